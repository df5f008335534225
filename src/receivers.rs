//! The receivers. A new receiver is one file and one line in [`REGISTRY`].

mod glob;
pub mod kafka;
pub(crate) mod metrics;
pub mod nop;
pub mod otlp;
pub mod otlp_json_file;
mod polling;
pub mod pprof;
mod profile_intake;
pub mod pyroscope;
mod refusals;
mod scraping;

use crate::component::{Entry, ReceiverConfig};

/// All built-in receivers.
pub static REGISTRY: &[Entry<dyn ReceiverConfig>] = &[
    kafka::ENTRY,
    nop::ENTRY,
    otlp::ENTRY,
    otlp_json_file::ENTRY,
    pprof::ENTRY,
    pyroscope::ENTRY,
];
