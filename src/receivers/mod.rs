//! The receivers. A new one is one file and one line in [`REGISTRY`].

pub mod nop;

use crate::batch::Signal;
use crate::component::{Entry, ReceiverConfig, Stability};
use crate::entry;

/// Every receiver that is built in.
pub static REGISTRY: &[Entry<dyn ReceiverConfig>] = &[entry!(
    dyn ReceiverConfig,
    nop::Config,
    "nop",
    aliases: &[],
    "Receives nothing.",
    &[
        (Signal::Traces, Stability::Beta),
        (Signal::Metrics, Stability::Beta),
        (Signal::Logs, Stability::Beta),
        (Signal::Profiles, Stability::Alpha),
    ]
)];
