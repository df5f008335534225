//! The connectors. A new one is one file and one line in [`REGISTRY`].

pub mod forward;

use crate::batch::Signal::{Logs, Metrics, Profiles, Traces};
use crate::component::Stability::{Alpha, Beta};
use crate::component::{ConnectorConfig, Entry};
use crate::entry;

/// Every connector that is built in.
pub static REGISTRY: &[Entry<dyn ConnectorConfig>] = &[entry!(
    dyn ConnectorConfig,
    forward::Config,
    "forward",
    aliases: &[],
    "Hands everything on, so that pipelines can be joined and parted.",
    &[(Traces, Beta), (Metrics, Beta), (Logs, Beta), (Profiles, Alpha)]
)];
