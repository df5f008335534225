//! Long rounds of faults under load, from a seed: `tests/integration/chaos/mod.rs` says what is checked.
//!
//!     cargo build --release --bin collector
//!     cargo run --release --example chaos -- --minutes 10 --seed 1
//!
//! A failing round prints its seed. `--minutes 0 --seed SEED` repeats that round: the same faults in the same order.
//! The exit code is 0 if everything held, 1 if something did not.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    unreachable_pub,
    dead_code,
    unused_imports,
    reason = "the harness of the integration tests, of which this uses a part"
)]

#[path = "../../tests/integration/chaos/mod.rs"]
mod chaos;
#[path = "../../tests/integration/harness/mod.rs"]
mod harness;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;

use chaos::{Plan, Program, Report, Topology};

/// Inflicts faults on collectors under load, and accounts for every acknowledged item.
#[derive(Debug, Parser)]
struct Options {
    /// Time after which no round begins. The first round always begins.
    #[arg(long, value_name = "MINUTES", default_value_t = 10)]
    minutes: u64,
    /// Seed of the first round; the next rounds have the next seeds. Default: a random one.
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
    /// Binary of the OpenTelemetry Collector (contrib), which gets the same load, and the faults that are possible there.
    /// It is measured, not judged.
    #[arg(long, value_name = "PATH")]
    peer: Option<PathBuf>,
}

/// Faults in a round.
const STEPS: usize = 12;
/// The longest fault: ten times the timeout of a request.
const LONGEST: Duration = Duration::from_secs(20);

/// The round of a seed: every configuration in turn.
fn plan(seed: u64) -> Plan {
    let kinds = Topology::STORED.len() as u64 + 2;
    match (seed % kinds) as usize {
        0 => Plan::overload_of_memory(seed),
        1 => Plan::overload_of_disk(seed),
        kind => Plan::draw(seed, Topology::STORED[kind - 2], STEPS, LONGEST),
    }
}

/// Runs a round in a separate task, so that a panic does not end the other rounds.
async fn round(program: Program, plan: Plan) -> Report {
    let round = tokio::spawn(async move { chaos::run(&program, &plan).await });
    round.await.unwrap_or_else(|error| Report {
        failures: vec![format!("the round could not go on: {error}")],
        ..Report::default()
    })
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    let first = options.seed.unwrap_or_else(|| fastrand::u64(..1 << 32));
    let end = Instant::now() + Duration::from_secs(60 * options.minutes);
    let mut failed = Vec::new();
    for seed in first.. {
        let plan = plan(seed);
        println!("seed {seed}: {:?}", plan.topology);
        for step in &plan.steps {
            println!("    {step}");
        }
        let report = round(Program::Own, plan.clone()).await;
        println!("  {report}");
        for failure in &report.failures {
            println!("  FAILED: {failure}");
        }
        if !report.failures.is_empty() {
            failed.push(seed);
        }
        if let Some(peer) = &options.peer {
            let report = round(Program::Peer(peer.clone()), plan.for_peers()).await;
            println!("  peer: {report}");
            for failure in &report.failures {
                println!("  peer: {failure}");
            }
        }
        if Instant::now() >= end {
            break;
        }
    }
    if failed.is_empty() {
        println!("all is well");
        return ExitCode::SUCCESS;
    }
    println!("NOT well; repeat a round with `--minutes 0 --seed SEED`, of {failed:?}");
    ExitCode::FAILURE
}
