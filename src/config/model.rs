//! What a configuration says, typed: what the service is built from.

use std::fmt;

use crate::batch::Signal;
use crate::component::{
    ConnectorConfig, Entry, ExporterConfig, ExtensionConfig, ProcessorConfig, ReceiverConfig,
};

use super::id::ComponentId;
use super::telemetry::TelemetryConfig;

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
    /// The resolved body as text, with sorted keys: two are equal exactly when the configurations are, so a reload
    /// leaves the component alone. It holds secrets and is never printed.
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

/// The id of a pipeline: `traces`, or `traces/name` when there are several.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PipelineId {
    /// What flows in it.
    pub signal: Signal,
    /// What follows the slash.
    pub name: Option<String>,
}

/// One pipeline: ids in the order in which they are written, which for processors is the order of work.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PipelineConfig {
    /// Receivers, and connectors that end other pipelines.
    pub receivers: Vec<ComponentId>,
    /// Processors.
    pub processors: Vec<ComponentId>,
    /// Exporters, and connectors that start other pipelines.
    pub exporters: Vec<ComponentId>,
}

impl fmt::Display for PipelineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{}/{name}", self.signal),
            None => f.write_str(self.signal.name()),
        }
    }
}

impl<C: ?Sized + fmt::Debug> fmt::Debug for Configured<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple(self.entry.name)
            .field(&&*self.config)
            .finish()
    }
}
