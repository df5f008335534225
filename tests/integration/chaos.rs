//! Everything that can go wrong in three tiers, from a seed: a short run of `examples/chaos`.

#[allow(clippy::duplicate_mod, reason = "it reads metrics as the tests do")]
#[path = "../../examples/chaos/chaos/mod.rs"]
mod program;

use clap::Parser as _;

use crate::harness::certificates::installed;
use crate::harness::collector::BINARY;

#[tokio::test(flavor = "multi_thread")]
async fn nothing_acknowledged_is_lost_whatever_happens_to_processes_links_and_disks() {
    if !installed("openssl") {
        return;
    }
    let arguments = "chaos --seed=5 --seconds=20 --sidecars=1 --rate=300 --collector";
    let arguments = arguments.split(' ').chain([BINARY]);
    let report = program::run(program::Options::parse_from(arguments)).await;
    let report = report.unwrap();
    assert!(report.failures.is_empty(), "{:#?}", report.failures);
}
