//! A collector under test, a backend with scripted failures, and clients that record acknowledged items.

pub mod attacks;
pub mod authority;
pub mod backend;
pub mod certificates;
pub mod client;
pub mod codec;
pub mod collector;
pub mod http2;
pub mod link;
pub mod metrics;
pub mod oracle;
pub mod parquet;
pub mod pprof;
pub mod raw;
pub mod site;
pub mod status;
pub mod telemetry;
pub mod yaml;

use std::time::Duration;

pub use authority::Authority;
pub use backend::{Answer, Backend, Refusal};
pub use client::{Client, Refused};
pub use collector::Collector;
pub use oracle::Oracle;
pub use telemetry::Telemetry;
pub use tributary_otlp::Signal;
pub use yaml::{grpc_at, grpc_to, http_at, http_to, yaml, yaml_of};

/// Time limit of any wait in a test. Generous, because only a broken test reaches it.
pub const WAIT_LIMIT: Duration = Duration::from_secs(120);

/// Interval for polling values without a notification, such as metrics.
pub const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Returns the output of `future`.
///
/// # Panics
/// If the output does not arrive within [`WAIT_LIMIT`]; `what` describes it in the message.
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(WAIT_LIMIT, future).await {
        Ok(outcome) => outcome,
        Err(_) => panic!("waited {WAIT_LIMIT:?} in vain: {what}"),
    }
}
