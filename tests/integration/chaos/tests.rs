//! Short rounds. The result does not depend on the speed of the machine: faults wait for progress, and each round waits
//! for the effects of its faults.

use std::time::Duration;

use futures_util::future::join_all;

use super::plan::Fault;
use super::{Plan, Program, Report, Topology, run};

async fn passed(plan: &Plan) -> Report {
    let report = run(&Program::Own, plan).await;
    assert!(
        report.failures.is_empty(),
        "{plan:#?}\n{report}\n{:#?}",
        report.failures
    );
    report
}

async fn survives(topology: Topology, faults: &[Fault]) -> Report {
    passed(&Plan::of(1, topology, faults)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_and_power_cuts_lose_nothing() {
    let faults = [
        Fault::PowerCut,
        Fault::Kill,
        Fault::PowerCut,
        Fault::PowerCut,
    ];
    let report = survives(Topology::Queue, &faults).await;
    assert_eq!(report.lives, 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn restarts_in_order_make_no_duplicates() {
    let report = survives(
        Topology::Batch,
        &[Fault::Stop, Fault::Refusals, Fault::Reload],
    )
    .await;
    assert_eq!((report.duplicates, report.explained), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_topology_survives_seeded_faults() {
    let plans = (1..)
        .zip(Topology::STORED)
        .map(|(seed, topology)| Plan::draw(seed, topology, 3, Duration::from_millis(500)));
    let plans: Vec<Plan> = plans.collect();
    join_all(plans.iter().map(passed)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn poison_does_not_block_other_requests() {
    survives(Topology::BatchBehindQueue, &[Fault::Poison]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failing_disk_refuses_and_recovers() {
    let report = survives(Topology::Queue, &[Fault::DiskErrors, Fault::DiskErrors]).await;
    assert!(report.refused > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_and_truncated_files_lose_only_reported_items() {
    for fault in [Fault::RemovedFiles, Fault::Truncation] {
        let mut plan = Plan::of(1, Topology::Queue, &[fault]);
        plan.steps[0].beside = Some(Fault::Outage);
        let report = passed(&plan).await;
        assert!(report.missing > 0, "nothing was lost: {report}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn full_queue_refuses_and_delivers_accepted_items() {
    let report = passed(&Plan::overload_of_disk(1)).await;
    assert!(report.full > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_is_bounded_at_the_limit() {
    let report = passed(&Plan::overload_of_memory(1)).await;
    let reached = (super::LIMIT_MIB / 2) << 20;
    assert!(report.peak > reached, "the limit was not reached: {report}");
}

/// The comparison with another collector. In this test, the same collector takes its place.
#[tokio::test(flavor = "multi_thread")]
async fn peer_gets_same_load_and_possible_faults() {
    let program = Program::Peer(crate::harness::collector::binary().into());
    let faults = [Fault::DiskErrors, Fault::Kill, Fault::Outage];
    let plan = Plan::of(1, Topology::Queue, &faults).for_peers();
    assert_eq!(plan.steps.len(), 2);
    let report = run(&program, &plan).await;
    assert_eq!((report.lives, report.missing), (2, 0), "{report}");
}

#[test]
fn seed_determines_the_faults() {
    let draw = |seed| Plan::draw(seed, Topology::Queue, 20, Duration::from_secs(9));
    assert_eq!(draw(7), draw(7));
    assert_ne!(draw(7).steps, draw(8).steps);
    assert_eq!(draw(7).steps.len(), 20);
}
