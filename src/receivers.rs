//! The receivers. A new receiver is one file and one line in [`REGISTRY`].

mod glob;
pub mod jaeger;
pub mod kafka;
pub(crate) mod metrics;
pub mod nop;
pub mod otlp;
pub mod otlp_json_file;
mod permit_room;
mod polling;
pub mod pprof;
mod profile_intake;
pub mod prometheus;
pub mod pyroscope;
mod refusals;
mod scraping;
mod spans_http;
pub mod zipkin;

use crate::component::{Entry, ReceiverConfig};

/// All built-in receivers.
pub static REGISTRY: &[Entry<dyn ReceiverConfig>] = &[
    jaeger::ENTRY,
    kafka::ENTRY,
    nop::ENTRY,
    otlp::ENTRY,
    otlp_json_file::ENTRY,
    pprof::ENTRY,
    pyroscope::ENTRY,
    prometheus::ENTRY,
    zipkin::ENTRY,
];
