//! Rounds of seeded faults under load, and an account of every acknowledged item.
//!
//! A round starts the real binary with a queue on disk (or in memory, to reach the memory limit), next hops behind
//! links, and clients that send all signals over both protocols. It injects the faults of a [`Plan`] one after the
//! other, ends each of them, and waits until the backlog is delivered. Then it checks that
//!
//! * every acknowledged item arrived; with damaged or removed files, no more are missing than the collector reported;
//! * every item at a next hop was sent;
//! * no item arrived twice without a cause, and not more than were in flight at the causes;
//! * the accounts balance, and an orderly end has the matching exit code;
//! * memory stayed within the limit and [`BESIDE_LIMIT`].
//!
//! Short rounds are tests. `cargo run --release --example chaos` runs long ones.

mod load;
pub mod plan;
mod round;
mod service;
#[cfg(test)]
mod tests;
mod topology;
mod verdict;

use std::time::Duration;

pub use plan::{Plan, Topology};
pub use round::run;
pub use service::Program;
pub use verdict::Report;

/// `memory_limiter::limit_mib` of every collector.
const LIMIT_MIB: u64 = 64;
/// Maximum memory of a process above its limit, in MiB, as docs/deployment.md states.
const BESIDE_LIMIT: u64 = 48;
/// `num_consumers` of every queue.
const CONSUMERS: usize = 4;
/// Timeout of a request to a next hop.
const TIMEOUT: Duration = Duration::from_secs(2);
