//! What a configuration says, typed: what the service is built from.

use std::fmt;

use crate::component::{
    ConnectorConfig, Entry, ExporterConfig, ExtensionConfig, ProcessorConfig, ReceiverConfig,
};
use crate::pipeline::id::{PipelineConfig, PipelineId};

use crate::telemetry::config::TelemetryConfig;
use tributary_config::ComponentId;

/// A whole configuration, checked. Components are in the order in which they are written.
#[derive(Debug)]
pub struct Config {
    /// Where telemetry comes in.
    pub receivers: Vec<(ComponentId, Configured<dyn ReceiverConfig>)>,
    /// What is done to it.
    pub processors: Vec<(ComponentId, Configured<dyn ProcessorConfig>)>,
    /// Where it goes out.
    pub exporters: Vec<(ComponentId, Configured<dyn ExporterConfig>)>,
    /// What joins pipelines.
    pub connectors: Vec<(ComponentId, Configured<dyn ConnectorConfig>)>,
    /// What is beside the pipelines.
    pub extensions: Vec<(ComponentId, Configured<dyn ExtensionConfig>)>,
    /// Which of them run, and how.
    pub service: ServiceConfig,
}

/// A component as it is configured.
pub struct Configured<C: ?Sized + 'static> {
    /// What it is.
    pub entry: &'static Entry<C>,
    /// How it is configured.
    pub config: Box<C>,
    /// The resolved body as text, with sorted keys: two are equal exactly when the configurations
    /// are, so a reload leaves the component alone. It holds secrets and is never printed.
    pub fingerprint: String,
}

/// The `service` section.
#[derive(Debug, Default)]
pub struct ServiceConfig {
    /// The extensions that run, in the order of their start.
    pub extensions: Vec<ComponentId>,
    /// The pipelines, in the order in which they are written.
    pub pipelines: Vec<(PipelineId, PipelineConfig)>,
    /// The collector's own logs and metrics.
    pub telemetry: TelemetryConfig,
}

impl<C: ?Sized + fmt::Debug> fmt::Debug for Configured<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple(self.entry.name)
            .field(&&*self.config)
            .finish()
    }
}
