//! The extensions. A new one is one file and one line in [`REGISTRY`].

pub mod health_check;

use crate::component::{Entry, ExtensionConfig};

/// Every extension that is built in.
pub static REGISTRY: &[Entry<dyn ExtensionConfig>] = &[health_check::ENTRY];
