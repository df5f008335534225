//! The exporters. A new one is one file and one line in [`REGISTRY`].

pub mod debug;
pub mod nop;
#[cfg(test)]
pub(crate) mod testing;

use crate::batch::Signal;
use crate::component::{Entry, ExporterConfig, Stability};
use crate::entry;

/// Every exporter that is built in.
pub static REGISTRY: &[Entry<dyn ExporterConfig>] = &[
    entry!(
        dyn ExporterConfig,
        debug::Config,
        "debug",
        aliases: &["logging"],
        "Prints telemetry in a form that people can read.",
        &[
            (Signal::Traces, Stability::Alpha),
            (Signal::Metrics, Stability::Alpha),
            (Signal::Logs, Stability::Alpha),
            (Signal::Profiles, Stability::Alpha),
        ]
    ),
    entry!(
        dyn ExporterConfig,
        nop::Config,
        "nop",
        aliases: &[],
        "Takes everything and delivers it to nowhere.",
        &[
            (Signal::Traces, Stability::Beta),
            (Signal::Metrics, Stability::Beta),
            (Signal::Logs, Stability::Beta),
            (Signal::Profiles, Stability::Alpha),
        ]
    ),
];
