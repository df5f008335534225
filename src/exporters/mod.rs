//! The exporters. A new one is one file and one line in [`REGISTRY`].

pub mod otlp_grpc;
pub mod otlp_http;
mod otlp_response;

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
    entry!(dyn ExporterConfig, otlp_http::Config, "otlp_http", aliases: &["otlphttp"], "Sends OTLP over HTTP.", OTLP),
];
