//! The exporters. A new exporter is one file and one line in [`REGISTRY`].

pub mod debug;
pub mod file;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod http_client_keys;
pub mod kafka;
pub mod load_balancing;
pub mod nop;
pub mod otlp_grpc;
pub mod otlp_http;
mod otlp_response;
pub mod parquet;
pub mod profile_store;
pub mod prometheus;
pub mod pyroscope;
pub mod zipkin;

use crate::component::{Entry, ExporterConfig};

/// All built-in exporters.
pub static REGISTRY: &[Entry<dyn ExporterConfig>] = &[
    debug::ENTRY,
    file::ENTRY,
    kafka::ENTRY,
    load_balancing::ENTRY,
    nop::ENTRY,
    otlp_grpc::ENTRY,
    otlp_http::ENTRY,
    parquet::ENTRY,
    profile_store::ENTRY,
    prometheus::ENTRY,
    pyroscope::ENTRY,
    zipkin::ENTRY,
];
