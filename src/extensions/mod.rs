//! The extensions. A new one is one file and one line in [`REGISTRY`].

pub mod health_check;

use crate::component::{Entry, ExtensionConfig};
use crate::entry;

/// Every extension that is built in.
pub static REGISTRY: &[Entry<dyn ExtensionConfig>] = &[entry!(
    dyn ExtensionConfig,
    health_check::Config,
    "health_check",
    aliases: &[],
    "Answers whether the collector does its job, for probes.",
    &[]
)];
