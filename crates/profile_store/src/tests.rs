//! Tests of a whole store, on a disk in memory.

mod answers;
mod bounds;
mod crashes;
mod damage;
mod day;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::store::RecoveredStore;
use crate::testing::{MemoryDisk, NANOS};
use crate::{ProfileStore, ProfileStoreOptions, Query, Selector};

/// A time in seconds at the beginning of an hour.
const START: u64 = 1_700_000_000 - 1_700_000_000 % 3600;
const DAY: u64 = 24 * 3600;

fn options() -> ProfileStoreOptions {
    ProfileStoreOptions {
        labels: vec!["service.version".to_owned()],
        ..ProfileStoreOptions::new("/nowhere")
    }
}

fn open(disk: &MemoryDisk) -> (ProfileStore, RecoveredStore) {
    open_with(disk, options())
}

fn open_with(disk: &MemoryDisk, options: ProfileStoreOptions) -> (ProfileStore, RecoveredStore) {
    ProfileStore::open_on(Arc::new(disk.clone()), options).unwrap()
}

fn append(store: &ProfileStore, request: Bytes, seconds: u64) {
    store.append(request, seconds * NANOS).unwrap();
}

fn query(selector: &str) -> Query {
    Query {
        selector: selector.parse::<Selector>().unwrap(),
        range: 0..u64::MAX / 2,
        ..Query::default()
    }
}

fn within(selector: &str, from: u64, to: u64) -> Query {
    Query {
        range: from * NANOS..to * NANOS,
        ..query(selector)
    }
}

/// Folded stacks of the merged profile; empty without profiles.
fn folded(store: &ProfileStore, query: &Query) -> String {
    let answer = store.merge(query).unwrap();
    answer.map_or(String::new(), |answer| answer.folded())
}

/// Sum of all values, by the index and by the merged profile, which must be equal.
fn total(store: &ProfileStore) -> i64 {
    let merged = store.merge(&query("{}")).unwrap();
    let by_samples = merged.map_or(0, |mut answer| answer.tree().unwrap().totals()[0]);
    assert_eq!(total_by_index(store), by_samples);
    by_samples
}

/// Sum of all values, for stores that are too large for one query.
fn total_by_index(store: &ProfileStore) -> i64 {
    let all = query("{}");
    let longest = Duration::from_nanos(all.range.end);
    let totals = store.totals(&all, longest, Some(&[])).unwrap();
    totals
        .iter()
        .flat_map(|t| &t.points)
        .map(|(_, sum)| sum)
        .sum()
}
