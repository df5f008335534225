//! The receivers. A new one is one file and one line in [`REGISTRY`].

mod glob;
pub mod kafka;
pub(crate) mod metrics;
pub mod nop;
pub mod otlp;
pub mod otlp_json_file;
mod polling;
pub mod pprof;
mod refusals;

use crate::component::{Entry, ReceiverConfig};

/// Every receiver that is built in.
pub static REGISTRY: &[Entry<dyn ReceiverConfig>] = &[
    kafka::ENTRY,
    nop::ENTRY,
    otlp::ENTRY,
    otlp_json_file::ENTRY,
    pprof::ENTRY,
];
