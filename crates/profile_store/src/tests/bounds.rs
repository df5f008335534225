//! Bounds of memory, disk and queries.

use super::*;
use crate::options::OptionsError;
use crate::testing::profile;
use crate::{QueryError, QueryLimits, StoreAppendError, StoreOpenError};

/// Stacks of functions that occur in no other profile.
fn stacks(number: u64, count: u64) -> String {
    let mut random = fastrand::Rng::with_seed(number);
    let mut line = || format!("main;{:016x};{:016x} 1\n", random.u64(..), random.u64(..));
    (0..count).map(|_| line()).collect()
}

#[test]
fn memory_and_disk_stay_within_bounds() {
    const MIB: u64 = 1 << 20;
    let disk = MemoryDisk::default();
    let bounded = ProfileStoreOptions {
        max_memory: 2 * MIB,
        max_disk: 3 * MIB,
        ..options()
    };
    let (store, _) = open_with(&disk, bounded);
    for step in 0..300 {
        let now = START + 5 * step;
        let service = format!("service-{}", step % 40);
        append(&store, profile(&service, "1", now, &stacks(step, 400)), now);
        if step % 3 == 0 {
            store.maintain(now * NANOS).unwrap();
        }
        let stats = store.stats();
        assert!(stats.memory <= 2 * MIB, "{stats:?}");
        // A flush writes its block before it releases the requests, and the bounds exclude the journal of the open
        // window.
        assert!(stats.disk <= 4 * MIB, "{stats:?}");
    }
    let stats = store.stats();
    assert!(
        stats.dropped_blocks > 0 && stats.early_compactions > 0,
        "{stats:?}"
    );
    let kept = u64::try_from(total_by_index(&store)).unwrap();
    assert_eq!(kept + stats.dropped_samples, 300 * 400);
    store.maintain((START + 1500) * NANOS).unwrap();
    assert!(store.stats().disk <= 3 * MIB);
    let newest = within("{service_name=\"service-19\"}", START + 1490, START + 1500);
    assert!(folded(&store, &newest).lines().count() >= 400);
}

#[test]
fn index_of_too_many_series_makes_blocks_age_early() {
    let small = ProfileStoreOptions {
        max_memory: 1 << 20,
        ..options()
    };
    let disk = MemoryDisk::default();
    let (store, _) = open_with(&disk, small);
    for step in 0..200 {
        let now = START + 10 * step;
        for pod in 0..20 {
            let service = format!("{pod}-{}", step % 4);
            append(&store, profile(&service, "1", now, "main 1\n"), now);
        }
        store.maintain((now + 10) * NANOS).unwrap();
        assert!(store.stats().memory <= 1 << 20);
    }
    assert!(store.stats().early_compactions > 0);
}

#[test]
fn labels_of_dropped_blocks_free_their_memory() {
    let small = ProfileStoreOptions {
        max_memory: 1 << 20,
        ..options()
    };
    let disk = MemoryDisk::default();
    let (store, _) = open_with(&disk, small);
    let long = "x".repeat(1000);
    for step in 0..60 {
        let now = START + 10 * step;
        for pod in 0..10 {
            append(
                &store,
                profile(&format!("{step}-{pod}-{long}"), "1", now, "main 1\n"),
                now,
            );
        }
        store.maintain((now + 10) * NANOS).unwrap();
        assert!(store.stats().memory <= 1 << 20);
    }
    let stats = store.stats();
    assert!(stats.dropped_blocks > 0 && stats.series >= 50, "{stats:?}");
    assert!(folded(&store, &query("{service_name=~\"59-.*\"}")).starts_with("main 10"));
}

#[test]
fn full_window_is_refused_until_the_disk_works() {
    let disk = MemoryDisk::default();
    let small = ProfileStoreOptions {
        max_memory: 1 << 20,
        ..options()
    };
    let (store, _) = open_with(&disk, small);
    let too_large = profile("cart", "1", START, &stacks(1, 5000));
    let refused = store.append(too_large, START * NANOS).unwrap_err();
    assert!(
        matches!(refused, StoreAppendError::TooLarge(..)),
        "{refused}"
    );
    let fill = || store.append(profile("cart", "1", START, &stacks(2, 400)), START * NANOS);
    let mut accepted: i64 = 0;
    while store.stats().memory < 200 << 10 {
        fill().unwrap();
        accepted += 400;
    }
    disk.stop(true);
    assert!(matches!(fill().unwrap_err(), StoreAppendError::Disk(_)));
    disk.stop(false);
    for _ in 0..20 {
        fill().unwrap();
        accepted += 400;
    }
    assert_eq!(total_by_index(&store), accepted);
}

#[test]
fn full_disk_drops_oldest_profiles() {
    let disk = MemoryDisk::default();
    disk.limit(300 << 10);
    let (store, _) = open(&disk);
    let mut refused = 0;
    for step in 0..60 {
        let now = START + 10 * step;
        let request = profile("cart", "1", now, &stacks(step, 400));
        while store.append(request.clone(), now * NANOS).is_err() {
            refused += 1;
            assert!(refused < 100, "request {step}");
        }
        let _ = store.maintain((now + 10) * NANOS);
    }
    let stats = store.stats();
    assert!(stats.dropped_samples > 0, "{stats:?}");
    let kept = u64::try_from(total_by_index(&store)).unwrap();
    assert_eq!(kept + stats.dropped_samples, 60 * 400);
}

#[test]
fn profiles_beyond_the_retention_are_deleted_and_not_accepted() {
    let disk = MemoryDisk::default();
    let (store, _) = open(&disk);
    append(&store, profile("cart", "1", START, "main;f 5\n"), START);
    let now = START + DAY + 10;
    let late = store.append(
        profile("cart", "1", START, "main;f 5\nmain;g 1\n"),
        now * NANOS,
    );
    assert_eq!(late.unwrap().too_old, 2);
    assert_eq!(store.stats().too_old, 2);
    store.maintain(now * NANOS).unwrap();
    assert_eq!(total(&store), 0);
    assert_eq!(store.stats().series, 0);
    let blocks = disk
        .names()
        .iter()
        .filter(|name| name.ends_with(".block"))
        .count();
    assert_eq!(blocks, 0);
}

#[test]
fn profile_from_future_or_without_time_gets_arrival_time() {
    let disk = MemoryDisk::default();
    let (store, _) = open(&disk);
    append(
        &store,
        profile("cart", "1", START + 3600, "main;f 5\n"),
        START,
    );
    append(&store, profile("cart", "1", 0, "main;f 2\n"), START);
    let answer = folded(&store, &within("{}", START, START + 10));
    assert_eq!(answer, "main;f 7\n");
    assert_eq!(store.stats().from_the_future, 1);
}

#[test]
fn query_beyond_its_memory_or_time_is_refused() {
    let disk = MemoryDisk::default();
    let (store, _) = open(&disk);
    for (second, place) in [(0, "block"), (20, "window")] {
        let now = START + second;
        append(&store, profile(place, "1", now, &stacks(second, 1000)), now);
        if place == "block" {
            store.flush(now * NANOS).unwrap();
        }
    }
    for selector in [
        "{}",
        "{service_name=\"block\"}",
        "{service_name=\"window\"}",
    ] {
        let with = |limits| {
            store.merge(&Query {
                limits,
                ..query(selector)
            })
        };
        let limits = QueryLimits::default();
        assert!(with(limits).unwrap().is_some());
        let bytes = 10_000;
        let refused = with(QueryLimits { bytes, ..limits }).unwrap_err();
        assert!(
            refused.to_string().contains("the limit is 10000"),
            "{refused}"
        );
        let time = Duration::ZERO;
        let refused = with(QueryLimits { time, ..limits }).unwrap_err();
        assert_eq!(refused, QueryError::TooSlow(time));
    }
    // The tree counts as memory of the result. Long stacks of few functions make a small profile and a large tree.
    let mut random = fastrand::Rng::with_seed(1);
    let mut stacks = String::new();
    for _ in 0..300 {
        stacks.extend((0..50).map(|_| format!("f{};", random.u8(..8))));
        stacks.push_str("leaf 1\n");
    }
    append(&store, profile("deep", "1", START, &stacks), START);
    let limits = QueryLimits {
        bytes: 600_000,
        ..QueryLimits::default()
    };
    let deep = query("{service_name=\"deep\"}");
    let mut answer = store.merge(&Query { limits, ..deep }).unwrap().unwrap();
    let refused = answer.tree().unwrap_err();
    assert!(matches!(refused, QueryError::TooLarge { .. }), "{refused}");
    drop(answer);
    assert_eq!(store.stats().query_memory, 0);
}

#[test]
fn results_keep_memory_until_dropped() {
    let disk = MemoryDisk::default();
    let small = ProfileStoreOptions {
        max_memory: 4 << 20,
        ..options()
    };
    let (store, _) = open_with(&disk, small);
    append(&store, profile("cart", "1", START, &stacks(1, 300)), START);
    let mut answers = Vec::new();
    let refused = loop {
        match store.merge(&query("{}")) {
            Ok(answer) => answers.push(answer.unwrap()),
            Err(error) => break error,
        }
        assert!(answers.len() < 200, "{}", store.stats().query_memory);
    };
    assert_eq!(refused, QueryError::Busy);
    assert!(store.stats().query_memory <= 1 << 20);
    answers.clear();
    assert!(store.merge(&query("{}")).is_ok());
}

#[test]
fn totals_with_too_many_steps_are_refused() {
    let (store, _) = open(&MemoryDisk::default());
    for (length, step) in [(11_001, 1), (10, 0)] {
        let query = within("{}", START, START + length);
        let refused = store
            .totals(&query, Duration::from_secs(step), None)
            .unwrap_err();
        assert_eq!(refused, QueryError::TooManySteps);
    }
}

#[test]
fn second_process_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let options = ProfileStoreOptions::new(directory.path().join("store"));
    let (store, _) = ProfileStore::open(options.clone()).unwrap();
    append(&store, profile("cart", "1", START, "main;f 5\n"), START);
    let refused = ProfileStore::open(options.clone()).unwrap_err();
    assert!(
        matches!(refused, StoreOpenError::Locked { .. }),
        "{refused}"
    );
    drop(store);
    let (store, recovered) = ProfileStore::open(options.clone()).unwrap();
    assert_eq!(recovered.requests, 1);
    store.flush(START * NANOS).unwrap();
    assert_eq!(total(&store), 5);
    drop(store);
    assert_eq!(total(&ProfileStore::open(options).unwrap().0), 5);
    let wrong = ProfileStoreOptions {
        max_disk: 0,
        ..ProfileStoreOptions::new("/nowhere")
    };
    let refused = ProfileStore::open(wrong).unwrap_err();
    assert!(matches!(
        refused,
        StoreOpenError::ProfileStoreOptions(OptionsError::TooSmall { .. })
    ));
}

#[test]
fn new_settings_apply_without_restart() {
    let disk = MemoryDisk::default();
    let (store, _) = open(&disk);
    append(&store, profile("cart", "1", START, "main 1\n"), START);
    let wrong = ProfileStoreOptions {
        max_disk: 1,
        ..options()
    };
    store.reconfigure(wrong).unwrap_err();
    assert_eq!(*store.options(), options());
    let changed = ProfileStoreOptions {
        directory: "/elsewhere".into(),
        labels: Vec::new(),
        retention: Duration::from_secs(60),
        ..options()
    };
    store.reconfigure(changed).unwrap();
    assert_eq!(store.options().directory, options().directory);
    store.flush(START * NANOS).unwrap();
    assert_eq!(store.label_values("service_version", &query("{}")), [""; 0]);
    assert_eq!(total(&store), 1);
    let late = store.append(
        profile("cart", "1", START, "main 1\n"),
        (START + 61) * NANOS,
    );
    assert_eq!(late.unwrap().too_old, 1);
    store.maintain((START + 100) * NANOS).unwrap();
    assert_eq!(total(&store), 0);
}

#[test]
fn extent_has_the_oldest_and_newest_window() {
    let disk = MemoryDisk::default();
    let (store, _) = open(&disk);
    assert_eq!(store.extent(), None);
    append(
        &store,
        profile("cart", "1", START + 5, "main 1\n"),
        START + 5,
    );
    store.flush((START + 20) * NANOS).unwrap();
    append(
        &store,
        profile("cart", "1", START + 33, "main 1\n"),
        START + 33,
    );
    let extent = store.extent().unwrap();
    assert_eq!(extent, START * NANOS..(START + 40) * NANOS);
}
