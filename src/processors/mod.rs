//! The processors. A new one is one file and one line in [`REGISTRY`].

pub mod batch;
pub mod memory_limiter;

use crate::batch::Signal::{Logs, Metrics, Profiles, Traces};
use crate::component::Stability::{Alpha, Beta};
use crate::component::{Entry, ProcessorConfig};
use crate::entry;

/// Every processor that is built in.
pub static REGISTRY: &[Entry<dyn ProcessorConfig>] = &[
    entry!(
        dyn ProcessorConfig,
        batch::Config,
        "batch",
        aliases: &[],
        "Gathers requests into larger batches.",
        &[(Traces, Beta), (Metrics, Beta), (Logs, Beta), (Profiles, Alpha)]
    ),
    entry!(
        dyn ProcessorConfig,
        memory_limiter::Config,
        "memory_limiter",
        aliases: &[],
        "Sets how many bytes of telemetry the process may hold.",
        &[(Traces, Beta), (Metrics, Beta), (Logs, Beta), (Profiles, Alpha)]
    ),
];
