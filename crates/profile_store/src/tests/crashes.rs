//! Crashes at every step, and failing disks.

use super::*;
use crate::StoreAppendError;
use crate::testing::profile;

/// Requests of a run. Request `n` has the value `4^n`, so that the sum shows the multiplicity of each request.
const REQUESTS: u64 = 14;

/// Appends requests and does due upkeep, until the disk stops. Returns the acknowledged requests and the requests
/// whose append failed.
fn run(disk: &MemoryDisk) -> (Vec<u64>, Vec<u64>) {
    let (mut acknowledged, mut failed) = (Vec::new(), Vec::new());
    let Ok((store, _)) = ProfileStore::open_on(Arc::new(disk.clone()), options()) else {
        return (acknowledged, failed);
    };
    let mut now = START;
    for request in 0..REQUESTS {
        let stacks = format!(
            "main;f{request} {}\n",
            4_i64.pow(u32::try_from(request).unwrap())
        );
        match store.append(profile("cart", "1", now, &stacks), now * NANOS) {
            Ok(_) => acknowledged.push(request),
            Err(_) => failed.push(request),
        }
        now += 7;
        let _ = store.maintain(now * NANOS);
    }
    for later in [2 * 3600, 8 * 3600] {
        let _ = store.maintain((START + later) * NANOS);
    }
    (acknowledged, failed)
}

/// Checks that each acknowledged request counts once, and each failed request at most once.
fn check(store: &ProfileStore, acknowledged: &[u64], failed: &[u64], about: &str) {
    let total = total(store);
    for request in 0..REQUESTS {
        let times = (total >> (2 * request)) & 3;
        if acknowledged.contains(&request) {
            assert_eq!(times, 1, "request {request}, {about}");
        } else {
            let most = i64::from(failed.contains(&request));
            assert!(times <= most, "request {request}, {about}");
        }
    }
}

#[test]
fn crash_at_any_step_loses_nothing_acknowledged() {
    for stop in 0.. {
        let disk = MemoryDisk::stopping_at(stop);
        let (acknowledged, failed) = run(&disk);
        let crashed = [
            ("kill", disk.after_kill()),
            ("power", disk.after_power_failure()),
        ];
        for (crash, disk) in crashed {
            let about = format!("{crash} at step {stop}");
            let (store, recovered) = open(&disk);
            assert_eq!(recovered.damaged, 0, "{about}");
            check(&store, &acknowledged, &failed, &about);
            // The same must hold after the interrupted work is done.
            for later in [60, 2 * 3600, 8 * 3600] {
                store.maintain((START + later) * NANOS).unwrap();
                check(&store, &acknowledged, &failed, &about);
            }
            drop(store);
            let (store, _) = open(&disk);
            check(&store, &acknowledged, &failed, &about);
        }
        if !disk.has_stopped() {
            assert!(stop > 100, "only {stop} steps");
            assert_eq!(acknowledged.len() as u64, REQUESTS);
            return;
        }
    }
}

#[test]
fn second_crash_during_recovery_loses_nothing() {
    let disk = MemoryDisk::default();
    let (store, _) = open(&disk);
    append(&store, profile("cart", "1", START, "main;f 5\n"), START);
    for stop in 0..20 {
        let crashed = disk.after_kill();
        let (again, recovered) = open(&crashed);
        assert_eq!(recovered.requests, 1);
        crashed.stop(true);
        assert!(again.flush((START + stop) * NANOS).is_err());
        assert_eq!(total(&open(&crashed.after_power_failure()).0), 5);
    }
}

#[test]
fn torn_record_at_the_end_of_a_journal_is_counted() {
    let disk = MemoryDisk::default();
    let (store, _) = open(&disk);
    append(&store, profile("cart", "1", START, "main;f 5\n"), START);
    append(&store, profile("cart", "1", START, "main;g 6\n"), START);
    let crashed = disk.after_kill();
    let journal = crashed.names().pop().unwrap();
    crashed.change(&journal, |bytes| bytes.truncate(bytes.len() - 3));
    let (store, recovered) = open(&crashed);
    assert_eq!((recovered.requests, recovered.torn), (1, 1));
    assert_eq!(total(&store), 5);
}

#[test]
fn append_succeeds_after_disk_failure() {
    let disk = MemoryDisk::default();
    let (store, _) = open(&disk);
    append(&store, profile("cart", "1", START, "main;f 5\n"), START);
    disk.stop(true);
    let lost = profile("cart", "1", START, "main;g 7\n");
    for _ in 0..3 {
        let refused = store.append(lost.clone(), START * NANOS).unwrap_err();
        assert!(matches!(refused, StoreAppendError::Disk(_)), "{refused}");
    }
    assert_eq!(total(&store), 5);
    disk.stop(false);
    append(&store, profile("cart", "1", START, "main;h 3\n"), START);
    assert_eq!(total(&store), 8);
    store.flush(START * NANOS).unwrap();
    assert_eq!(total(&store), 8);
}

#[test]
fn waiting_appends_share_a_sync() {
    const APPENDS: u64 = 16;
    let disk = MemoryDisk::default();
    let (store, _) = open(&disk);
    let before = disk.syncs();
    let held = disk.hold_writes();
    std::thread::scope(|scope| {
        for _ in 0..APPENDS {
            let request = profile("cart", "1", START, "main;f 1\n");
            scope.spawn(|| append(&store, request, START));
        }
        let current = store.current();
        let journal = current.journal.as_ref().unwrap();
        while journal.appended() < APPENDS {
            std::thread::yield_now();
        }
        drop(held);
    });
    assert!(disk.syncs() - before <= 2, "{}", disk.syncs() - before);
    assert_eq!(total(&store), 16);
}

#[test]
fn append_does_not_wait_for_a_query() {
    let disk = MemoryDisk::default();
    let (store, _) = open(&disk);
    append(&store, profile("cart", "1", START, "main;f 1\n"), START);
    store.flush(START * NANOS).unwrap();
    let held = disk.hold_reads();
    std::thread::scope(|scope| {
        let query = scope.spawn(|| folded(&store, &query("{}")));
        while store.stats().query_memory == 0 {
            std::thread::yield_now();
        }
        append(&store, profile("cart", "1", START, "main;f 2\n"), START);
        store.flush(START * NANOS).unwrap();
        drop(held);
        assert_eq!(query.join().unwrap(), "main;f 1\n");
    });
    assert_eq!(total(&store), 3);
}
