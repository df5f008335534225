//! The exporters. A new one is one file and one line in [`REGISTRY`].

pub mod debug;
pub mod nop;
pub mod otlp_grpc;
mod otlp_response;
#[cfg(test)]
pub(crate) mod testing;

use crate::batch::Signal;
use crate::component::{Entry, ExporterConfig, Stability};
use crate::entry;

/// All signals; profiles are in development in OTLP itself.
const OTLP: &[(Signal, Stability)] = &[
    (Signal::Traces, Stability::Beta),
    (Signal::Metrics, Stability::Beta),
    (Signal::Logs, Stability::Beta),
    (Signal::Profiles, Stability::Alpha),
];

/// Every exporter that is built in.
pub static REGISTRY: &[Entry<dyn ExporterConfig>] = &[
    entry!(dyn ExporterConfig, otlp_grpc::Config, "otlp_grpc", aliases: &["otlp"], "Sends OTLP over gRPC.", OTLP),
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
