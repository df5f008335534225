//! The receivers. A new one is one file and one line in [`REGISTRY`].

pub mod otlp;

use crate::batch::Signal;
use crate::component::Stability::{Alpha, Stable};
use crate::component::{Entry, ReceiverConfig};
use crate::entry;

/// Every receiver that is built in.
#[rustfmt::skip]
pub static REGISTRY: &[Entry<dyn ReceiverConfig>] = &[
    entry!(dyn ReceiverConfig, otlp::Config, "otlp", aliases: &[],
        "Receives OTLP over gRPC and HTTP.",
        &[(Signal::Traces, Stable), (Signal::Metrics, Stable), (Signal::Logs, Stable), (Signal::Profiles, Alpha)]),
];
