//! The typed configuration from which the service is built.

use std::fmt;

use crate::component::{
    ConnectorConfig, Entry, ExporterConfig, ExtensionConfig, ProcessorConfig, ReceiverConfig,
};
use crate::pipeline::id::{PipelineConfig, PipelineId};

use crate::telemetry::config::TelemetryConfig;
use tributary_config::ComponentId;

/// A whole configuration, checked. Components are in the order of the configuration file.
#[derive(Debug)]
pub struct Config {
    /// Sources of telemetry.
    pub receivers: Vec<(ComponentId, Configured<dyn ReceiverConfig>)>,
    /// Processing steps of pipelines.
    pub processors: Vec<(ComponentId, Configured<dyn ProcessorConfig>)>,
    /// Destinations of telemetry.
    pub exporters: Vec<(ComponentId, Configured<dyn ExporterConfig>)>,
    /// Connections between pipelines.
    pub connectors: Vec<(ComponentId, Configured<dyn ConnectorConfig>)>,
    /// Components outside the pipelines.
    pub extensions: Vec<(ComponentId, Configured<dyn ExtensionConfig>)>,
    /// The running components and pipelines.
    pub service: ServiceConfig,
}

/// A component with its configuration.
pub struct Configured<C: ?Sized + 'static> {
    /// Registry entry of the component's type.
    pub entry: &'static Entry<C>,
    /// Settings of the component.
    pub config: Box<C>,
    /// The resolved settings as text with sorted keys. Two fingerprints are equal exactly when the
    /// settings are, so that a reload keeps unchanged components. The fingerprint contains secrets
    /// and is never printed.
    pub fingerprint: String,
}

/// The `service` section.
#[derive(Debug, Default)]
pub struct ServiceConfig {
    /// The running extensions, in the order of their start.
    pub extensions: Vec<ComponentId>,
    /// The pipelines, in the order of the configuration file.
    pub pipelines: Vec<(PipelineId, PipelineConfig)>,
    /// Settings of the collector's own logs and metrics.
    pub telemetry: TelemetryConfig,
}

impl<C: ?Sized + fmt::Debug> fmt::Debug for Configured<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple(self.entry.name)
            .field(&&*self.config)
            .finish()
    }
}
