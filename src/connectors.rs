//! The connectors. A new component is one file and one line in [`REGISTRY`].

pub mod count;
mod delivering;
pub mod failover;
pub mod forward;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
pub mod profile_metrics;
pub mod profile_regressions;
mod queued;

use crate::component::{ConnectorConfig, Entry};

/// All built-in connectors.
pub static REGISTRY: &[Entry<dyn ConnectorConfig>] = &[
    count::ENTRY,
    failover::ENTRY,
    forward::ENTRY,
    profile_metrics::ENTRY,
    profile_regressions::ENTRY,
];
