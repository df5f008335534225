//! Properties of every series of profiles.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry_proto::tonic::common::v1::{InstrumentationScope, KeyValue};
use proptest::prelude::*;

use super::*;
use tributary_memory::Budget;
use tributary_profiles::dictionary::Location;

/// The values of each sample type by stack, which an address stands for.
type Values = BTreeMap<u64, [i64; 4]>;

const HEAP: [(&str, &str); 4] = [
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
];

const MEMORY: usize = 64 << 20;

fn budget() -> Arc<Budget> {
    Budget::new(1 << 30)
}

fn keeping(limit: usize, budget: &Arc<Budget>) -> Deltas {
    Deltas::new(&"pprof".parse().unwrap(), limit, budget)
}

/// A heap profile, as the reader would make it.
fn heap(series: &mut Series, time: u64, values: &Values) -> ScopeProfiles {
    let (dictionary, _) = series.tables();
    let mut profiles = Vec::new();
    for (at, (kind, unit)) in HEAP.into_iter().enumerate() {
        let mut samples = Samples::default();
        for (address, values) in values {
            let location = dictionary.location(Location {
                address: *address,
                ..Location::default()
            });
            let key = SampleKey {
                stack: dictionary.stack(&[location]),
                ..SampleKey::default()
            };
            if values[at] != 0 {
                samples.push(key, &[values[at]], &[]);
            }
        }
        if samples.is_empty() {
            samples.push(SampleKey::default(), &[0], &[]);
        }
        let (kind, unit) = (dictionary.string(kind), dictionary.string(unit));
        profiles.push(Profile {
            header: Header {
                sample_type: ValueType { kind, unit },
                time,
                ..Header::default()
            },
            samples,
        });
    }
    ScopeProfiles {
        scope: Some(InstrumentationScope {
            attributes: vec![KeyValue {
                key: names::SAMPLE_TYPE_ORDER.to_owned(),
                value: Some(AnyValue {
                    value: Some(order([0, 1, 2, 3])),
                }),
                key_strindex: 0,
            }],
            ..InstrumentationScope::default()
        }),
        profiles,
        ..ScopeProfiles::default()
    }
}

fn order<const N: usize>(places: [i64; N]) -> Any {
    Any::ArrayValue(ArrayValue {
        values: places
            .map(|place| AnyValue {
                value: Some(Any::IntValue(place)),
            })
            .to_vec(),
    })
}

fn order_of(profiles: &ScopeProfiles) -> Any {
    let attributes = &profiles.scope.as_ref().unwrap().attributes;
    attributes[0].value.clone().unwrap().value.unwrap()
}

/// Name of the sample type, start, duration, and value by address.
type Told = (String, u64, u64, BTreeMap<u64, i64>);

fn told(series: &Series, profiles: &ScopeProfiles) -> Vec<Told> {
    let dictionary = series.dictionary();
    let told = profiles.profiles.iter().map(|profile| {
        let values = profile.samples.iter().map(|sample| {
            let locations = dictionary.locations(sample.key.stack);
            let address = locations
                .first()
                .map_or(0, |id| dictionary.get_location(*id).address);
            (address, sample.total().0)
        });
        let header = &profile.header;
        let kind = dictionary.text(header.sample_type.kind).to_owned();
        (kind, header.time, header.duration, values.collect())
    });
    told.collect()
}

/// Adds a profile and delivers its difference.
fn scrape(deltas: &Deltas, time: u64, values: &Values) -> (Fit, Vec<Told>) {
    let mut taken = deltas.take("a");
    let series = &mut taken.series;
    let profiles = heap(series, time, values);
    let difference = series.difference(profiles);
    let result = (difference.fit, told(series, &difference.profiles));
    series.delivered(difference);
    deltas.put("a", taken);
    result
}

fn one(address: u64, value: i64) -> Values {
    Values::from([(address, [value, value * 8, 3, 24])])
}

fn kinds(told: &[Told]) -> Vec<&str> {
    told.iter().map(|(kind, ..)| kind.as_str()).collect()
}

#[test]
fn the_first_profile_is_only_remembered_but_its_levels_pass() {
    let mut series = Series::default();
    let profiles = heap(&mut series, 1000, &one(7, 5));
    let difference = series.difference(profiles);
    assert_eq!(difference.fit, Fit::First);
    assert_eq!(order_of(&difference.profiles), order([0, 1]));
    let level = |kind: &str, value| (kind.to_owned(), 1000, 0, BTreeMap::from([(7, value)]));
    assert_eq!(
        told(&series, &difference.profiles),
        [level("inuse_objects", 3), level("inuse_space", 24)]
    );
}

#[test]
fn a_difference_is_of_the_time_between_two_profiles() {
    let deltas = keeping(MEMORY, &budget());
    scrape(&deltas, 1000, &one(7, 5));
    let mut both = one(7, 9);
    both.extend(one(8, 1));
    let (fit, told) = scrape(&deltas, 1600, &both);
    assert_eq!(fit, Fit::Continued);
    let allocated = (
        "alloc_objects".to_owned(),
        1000,
        600,
        [(7, 4), (8, 1)].into(),
    );
    assert_eq!(told[0], allocated);
    assert_eq!(kinds(&told), HEAP.map(|(kind, _)| kind));
    // Gauges belong to a point in time.
    assert_eq!((told[3].1, told[3].2), (1600, 0));
}

#[test]
fn nothing_new_is_no_sample_and_no_profile() {
    let deltas = keeping(MEMORY, &budget());
    scrape(&deltas, 1000, &one(7, 5));
    let (fit, told) = scrape(&deltas, 2000, &one(7, 5));
    assert_eq!(fit, Fit::Continued);
    assert_eq!(kinds(&told), ["inuse_objects", "inuse_space"]);
}

#[test]
fn new_process_starts_from_zero() {
    let deltas = keeping(MEMORY, &budget());
    scrape(&deltas, 1000, &one(7, 50));
    let (fit, told) = scrape(&deltas, 2000, &one(7, 4));
    assert_eq!(fit, Fit::Restarted);
    let all = ("alloc_objects".to_owned(), 1000, 1000, [(7, 4)].into());
    assert_eq!(told[0], all);
    // The series continues from this profile.
    let (fit, told) = scrape(&deltas, 3000, &one(7, 6));
    assert_eq!((fit, &told[0].3), (Fit::Continued, &[(7, 2)].into()));
    // A missing stack counts as a fallen value.
    assert_eq!(scrape(&deltas, 4000, &one(8, 100)).0, Fit::Restarted);
    for time in [5000, 6000, 7000] {
        let address = if time == 6000 { 8 } else { 7 };
        let (fit, told) = scrape(&deltas, time, &one(address, 200));
        assert_eq!(fit, Fit::Unsteady);
        assert_eq!(kinds(&told), ["inuse_objects", "inuse_space"]);
    }
    let (fit, told) = scrape(&deltas, 8000, &one(7, 201));
    assert_eq!((fit, &told[0].3), (Fit::Continued, &[(7, 1)].into()));
}

#[test]
fn undelivered_difference_is_part_of_next_one() {
    let deltas = keeping(MEMORY, &budget());
    scrape(&deltas, 1000, &one(7, 5));
    let mut taken = deltas.take("a");
    let profiles = heap(&mut taken.series, 2000, &one(7, 6));
    drop(taken.series.difference(profiles));
    deltas.put("a", taken);
    let (_, told) = scrape(&deltas, 3000, &one(7, 9));
    let since_the_first = ("alloc_objects".to_owned(), 1000, 2000, [(7, 4)].into());
    assert_eq!(told[0], since_the_first);
}

#[test]
fn profile_with_duration_is_no_counter() {
    let mut series = Series::default();
    for time in [1000, 2000] {
        let mut profiles = heap(&mut series, time, &one(7, 5));
        for profile in &mut profiles.profiles {
            profile.header.duration = 10;
        }
        let difference = series.difference(profiles.clone());
        assert_eq!(difference.fit, Fit::NotCumulative);
        assert_eq!(difference.profiles, profiles);
        series.delivered(difference);
    }
}

#[test]
fn clock_going_back_gives_no_delta() {
    let deltas = keeping(MEMORY, &budget());
    scrape(&deltas, 2000, &one(7, 5));
    let (_, told) = scrape(&deltas, 1000, &one(7, 6));
    assert_eq!(
        told[0],
        ("alloc_objects".to_owned(), 1000, 1, [(7, 1)].into())
    );
}

/// Puts a series with many stacks back, and returns the number of evicted series.
fn put(deltas: &Deltas, name: &str) -> u64 {
    let many: Values = (1..200).map(|at| (at, [1, 1, 0, 0])).collect();
    let mut taken = deltas.take(name);
    let profiles = heap(&mut taken.series, 1000, &many);
    let difference = taken.series.difference(profiles);
    taken.series.delivered(difference);
    deltas.put(name, taken)
}

fn knows(deltas: &Deltas, name: &str) -> bool {
    let taken = deltas.take(name);
    let known = taken.series.last.is_some();
    deltas.put(name, taken);
    known
}

/// With room for two, as large as `put` makes them.
fn with_room_for_two() -> Deltas {
    let deltas = keeping(MEMORY, &budget());
    assert_eq!(put(&deltas, "a"), 0);
    let each = deltas.bytes();
    keeping(each * 5 / 2, &budget())
}

#[tokio::test(start_paused = true)]
async fn new_series_beyond_limit_are_evicted() {
    let deltas = with_room_for_two();
    for _ in 0..5 {
        assert_eq!(["a", "b", "c"].map(|name| put(&deltas, name)), [0, 0, 1]);
        tokio::time::advance(Duration::from_secs(60)).await;
    }
    assert_eq!(
        ["a", "b", "c"].map(|name| knows(&deltas, name)),
        [true, true, false]
    );
    // A single profile above the limit is not kept either.
    let deltas = keeping(deltas.bytes() / 4, &budget());
    assert_eq!((put(&deltas, "a"), deltas.bytes()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn absent_series_are_evicted_but_not_slow_ones() {
    let deltas = with_room_for_two();
    let hour = Duration::from_secs(3600);
    // Every hour.
    put(&deltas, "slow");
    tokio::time::advance(hour).await;
    put(&deltas, "slow");
    put(&deltas, "gone");
    tokio::time::advance(hour).await;
    assert_eq!(put(&deltas, "new"), 1);
    assert_eq!(
        ["slow", "gone", "new"].map(|name| knows(&deltas, name)),
        [true, false, true]
    );
}

#[test]
fn remembered_totals_take_a_quarter_of_the_budget_at_most() {
    let large = budget();
    let deltas = keeping(MEMORY, &large);
    assert_eq!(put(&deltas, "a"), 0);
    let each = deltas.bytes();
    assert_eq!(large.used(), each);
    drop(deltas);
    assert_eq!(large.used(), 0);
    let small = Budget::new(each * 10);
    let deltas = keeping(MEMORY, &small);
    assert_eq!(["a", "b", "c"].map(|name| put(&deltas, name)), [0, 0, 1]);
    assert_eq!(small.used(), deltas.bytes());
    // Other targets need the memory.
    let deltas = keeping(MEMORY, &large);
    let _others = large.acquire(large.limit() - each * 3 / 2).unwrap();
    assert_eq!(["a", "b"].map(|name| put(&deltas, name)), [0, 1]);
    assert!(knows(&deltas, "a"));
}

#[test]
fn dictionary_does_not_grow_with_restarts() {
    let deltas = keeping(MEMORY, &budget());
    let mut largest = 0;
    for process in 1..=60 {
        let values: Values = (0..500)
            .map(|at| (process * 1000 + at, [1, 1, 0, 0]))
            .collect();
        scrape(&deltas, process * 10, &values);
        largest = largest.max(deltas.bytes());
        let (fit, told) = scrape(&deltas, process * 10 + 5, &values);
        assert_eq!((fit, told.len()), (Fit::Continued, 2));
    }
    assert!(largest < 1 << 20, "{largest}");
}

proptest! {
    #[test]
    fn the_first_profile_and_all_differences_are_the_last_profile(
        steps in proptest::collection::vec(
            proptest::collection::vec((0u64..12, 0i64..1000, 0i64..1 << 40), 0..20), 1..12),
        lost in proptest::collection::vec(any::<bool>(), 12),
    ) {
        let mut series = Series::default();
        let mut now = Values::new();
        let mut sum: Option<BTreeMap<(String, u64), i64>> = None;
        let mut last = BTreeMap::new();
        for (at, step) in steps.iter().enumerate() {
            for (address, objects, bytes) in step {
                let values = now.entry(*address).or_default();
                values[0] += objects;
                values[1] += bytes;
            }
            let time = 1000 * (at as u64 + 1);
            let profiles = heap(&mut series, time, &now);
            let all = told(&series, &profiles);
            let difference = series.difference(profiles);
            if lost[at] {
                continue;
            }
            let of = |told: &[Told]| -> BTreeMap<(String, u64), i64> {
                let counters = told.iter().filter(|(kind, ..)| kind.starts_with("alloc"));
                let each = counters.flat_map(|(kind, _, _, values)| {
                    values.iter().map(|(address, value)| ((kind.clone(), *address), *value))
                });
                each.filter(|(_, value)| *value != 0).collect()
            };
            last = of(&all);
            let seen = told(&series, &difference.profiles);
            match &mut sum {
                None => {
                    prop_assert!(of(&seen).is_empty());
                    sum = Some(last.clone());
                }
                Some(sum) => {
                    prop_assert_eq!(difference.fit, Fit::Continued);
                    for (key, value) in of(&seen) {
                        prop_assert!(value > 0);
                        *sum.entry(key).or_default() += value;
                    }
                }
            }
            series.delivered(difference);
            series.compact();
        }
        if let Some(sum) = sum {
            prop_assert_eq!(sum, last);
        }
    }

    #[test]
    fn no_difference_is_negative_whatever_comes(
        steps in proptest::collection::vec(
            proptest::collection::btree_map(0u64..6, [0i64..5, 0..5, 0..5, 0..5], 0..6), 0..12),
    ) {
        let deltas = keeping(MEMORY, &budget());
        for (at, values) in steps.iter().enumerate() {
            let (fit, told) = scrape(&deltas, at as u64, values);
            prop_assert_eq!(fit == Fit::First, at == 0, "{:?}", fit);
            for (kind, _, _, values) in told.iter().filter(|told| told.0.starts_with("alloc")) {
                prop_assert!(values.values().all(|value| *value > 0), "{} {:?}", kind, values);
            }
        }
    }
}
