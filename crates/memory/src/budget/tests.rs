use std::sync::atomic::Ordering::Relaxed;

use super::*;
use crate::unfinished::UnfinishedShare;
use crate::{UnfinishedPermit, clients};

#[test]
fn permits_never_exceed_the_limit_and_return_when_dropped() {
    let budget = Budget::new(100);
    let mut first = budget.acquire(60).unwrap();
    assert!(
        budget
            .acquire(41)
            .is_err_and(|no_room| no_room.may_fit_later())
    );
    assert!(
        first
            .grow(41)
            .is_err_and(|no_room| !no_room.may_fit_later())
    );
    first.grow(40).unwrap();
    assert_eq!(budget.used(), 100);
    first.resize(10).unwrap();
    assert_eq!(budget.used(), 10);
    assert!(first.resize(101).is_err());
    first.resize(30).unwrap();
    assert_eq!((first.bytes(), budget.used()), (30, 30));
    drop(first);
    assert_eq!(budget.used(), 0);
}

#[test]
fn smallest_explicit_limit_replaces_the_default() {
    let budget = Budget::new(100);
    for (is_explicit, limit) in [(500, 500), (300, 300), (400, 300)] {
        budget.set_limit(is_explicit);
        assert_eq!(budget.limit(), limit);
    }
    budget.reset_limit(100);
    assert_eq!(budget.limit(), 100);
}

#[test]
fn unfinished_requests_leave_half_of_the_budget() {
    const KIB: usize = 1 << 10;
    let budget = Budget::new(1024 * KIB);
    let shares: [UnfinishedShare; 4] = Default::default();
    let held: Vec<UnfinishedPermit> = shares
        .iter()
        .map(|share| {
            let mut request = budget.begin(share);
            request.grow(128 * KIB).unwrap();
            request
        })
        .collect();
    let newcomer = UnfinishedShare::default();
    let mut request = budget.begin(&newcomer);
    request.grow(64 * KIB).unwrap();
    assert!(request.grow(1).is_err_and(|why| why.may_fit_later()));
    let complete = budget.acquire(400 * KIB).unwrap();
    drop(held);
    request.grow(64 * KIB).unwrap();
    let permit = request.finish();
    assert_eq!(permit.bytes(), 128 * KIB);
    assert_eq!(budget.unfinished.load(Relaxed), 0);
    drop((permit, complete));
    assert_eq!(budget.used(), 0);
}

#[test]
fn connection_gets_a_quarter_or_one_unfinished_request() {
    let budget = Budget::new(1000);
    let (one, other) = (UnfinishedShare::default(), UnfinishedShare::default());
    let mut only = budget.begin(&one);
    only.grow(900).unwrap();
    drop(only);
    let mut first = budget.begin(&one);
    first.grow(200).unwrap();
    let mut second = budget.begin(&one);
    second.grow(50).unwrap();
    assert!(second.grow(1).is_err_and(|why| why.may_fit_later()));
    budget.begin(&other).grow(250).unwrap();
    drop(first);
    second.grow(700).unwrap();
    drop(second);
    assert_eq!((budget.used(), one.0.load(Relaxed)), (0, 0));
}

#[test]
fn client_memory_above_allowance_reduces_permits() {
    let budget = Budget::new(64 << 20);
    let connections = CLIENT_ALLOWANCE / clients::CONNECTION_COST;
    budget.clients.connections.store(connections, Relaxed);
    assert!(budget.acquire(64 << 20).is_ok());
    budget.clients.frames.store(8 << 20, Relaxed);
    assert!(budget.acquire((56 << 20) + 1).is_err());
    assert!(budget.has_room((56 << 20) + 1).is_err());
    assert!(budget.acquire(56 << 20).is_ok());
}

#[test]
fn stored_queues_share_exclusive_reserve() {
    let budget = Budget::new(800);
    let first = budget.stored_queue();
    assert_eq!(first.allowance(), 200);
    let second = budget.stored_queue();
    assert_eq!((first.allowance(), second.allowance()), (100, 100));
    let full = budget.acquire(601).unwrap_err();
    assert!(!full.may_fit_later(), "{full}");
    let others = budget.acquire(600).unwrap();
    assert!(budget.has_room(1).is_err() && budget.acquire(1).is_err());
    let (one, other) = (first.read_ahead(100), second.read_ahead(100));
    assert_eq!(budget.used(), 800);
    drop(others);
    assert!(budget.acquire(601).is_err() && budget.acquire(600).is_ok());
    drop((one, other, first, second));
    assert_eq!(budget.used(), 0);
    assert!(budget.acquire(800).is_ok(), "nothing is reserved any more");
}

#[test]
fn huge_sizes_do_not_overflow() {
    let budget = Budget::new(usize::MAX);
    let _held = budget.acquire(10).unwrap();
    assert!(budget.acquire(usize::MAX).is_err());
}
