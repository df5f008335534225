//! The components of a build.

use crate::component::{
    ConnectorConfig, Entry, ExporterConfig, ExtensionConfig, ProcessorConfig, ReceiverConfig,
};
use crate::{connectors, exporters, extensions, processors, receivers};

/// The component types that a configuration can use.
#[derive(Clone, Copy)]
pub(crate) struct Registries {
    pub(crate) receivers: &'static [Entry<dyn ReceiverConfig>],
    pub(crate) processors: &'static [Entry<dyn ProcessorConfig>],
    pub(crate) exporters: &'static [Entry<dyn ExporterConfig>],
    pub(crate) connectors: &'static [Entry<dyn ConnectorConfig>],
    pub(crate) extensions: &'static [Entry<dyn ExtensionConfig>],
}

impl Registries {
    /// Returns the built-in component types.
    pub(crate) fn built_in() -> Self {
        Registries {
            receivers: receivers::REGISTRY,
            processors: processors::REGISTRY,
            exporters: exporters::REGISTRY,
            connectors: connectors::REGISTRY,
            extensions: extensions::REGISTRY,
        }
    }
}
