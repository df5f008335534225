//! The connectors. A new one is one file and one line in [`REGISTRY`].

pub mod forward;

use crate::component::{ConnectorConfig, Entry};

/// Every connector that is built in.
pub static REGISTRY: &[Entry<dyn ConnectorConfig>] = &[forward::ENTRY];
