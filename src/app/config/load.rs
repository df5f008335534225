//! Loads and checks a configuration from its sources.

use crate::component::{
    ConnectorConfig, Entry, ExporterConfig, ExtensionConfig, ProcessorConfig, ReceiverConfig,
};
use crate::{connectors, exporters, extensions, processors, receivers};

use super::{assemble, schema};
use crate::app::config::Config;
use tributary_config::report::Report;
use tributary_config::{Sources, expand, hide_values_of, read};

/// The default configuration, used without `--config`.
const DEFAULT: &str = include_str!("../../../config/otel-collector-config.yaml");

/// Result of [`load`].
#[derive(Debug)]
pub struct Loaded {
    /// The configuration; `None` if there are errors.
    pub config: Option<Config>,
    /// Diagnostics, with or without errors.
    pub report: Report,
}

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

/// Reads, merges, expands and checks a configuration. Files and environment variables are read
/// again on every call.
///
/// `strict` turns warnings into errors.
pub fn load(sources: &Sources, strict: bool) -> Loaded {
    load_with(&Registries::built_in(), sources, strict)
}

pub(super) fn load_with(registries: &Registries, sources: &Sources, strict: bool) -> Loaded {
    hide_values_of(schema);
    let mut report = Report::default();
    let config = read(sources, DEFAULT, &mut report).and_then(|mut tree| {
        let not_taken = expand(&mut tree, &mut report);
        assemble::assemble(registries, &tree, not_taken, &mut report)
    });
    if strict {
        report.make_strict();
    }
    let config = config.filter(|_| !report.has_errors());
    Loaded { config, report }
}
