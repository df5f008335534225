//! The exporters. A new one is one file and one line in [`REGISTRY`].

use crate::component::{Entry, ExporterConfig};

/// Every exporter that is built in.
pub static REGISTRY: &[Entry<dyn ExporterConfig>] = &[];
