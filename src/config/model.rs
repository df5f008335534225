//! What a configuration says, typed: what the service is built from.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::batch::Signal;
use crate::component::{
    ConnectorConfig, Entry, ExporterConfig, ExtensionConfig, ProcessorConfig, ReceiverConfig,
};

use super::id::{ComponentId, InvalidId};
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

/// The id of a pipeline: `traces`, or `traces/name` when there are several.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PipelineId {
    /// What flows in it.
    pub signal: Signal,
    /// What follows the slash.
    pub name: Option<String>,
}

/// One pipeline: ids in the order in which they are written, which for processors is the order of
/// work.
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

impl FromStr for PipelineId {
    type Err = InvalidId;

    /// The rules for names are those of component ids.
    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let id: ComponentId = text.parse()?;
        let Some(signal) = Signal::from_name(id.kind()) else {
            let known = Signal::ALL.map(Signal::name).join(", ");
            return Err(InvalidId(format!(
                "`{text}` is not a pipeline: write one of {known}, or `traces/name`"
            )));
        };
        Ok(PipelineId {
            signal,
            name: id.name().map(str::to_owned),
        })
    }
}

impl<'de> Deserialize<'de> for PipelineId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl Serialize for PipelineId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for PipelineId {
    fn schema_name() -> Cow<'static, str> {
        "PipelineId".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "The id of a pipeline: a signal, or `signal/name`.",
            "pattern": "^(traces|metrics|logs|profiles)(/.+)?$",
        })
    }
}

impl<C: ?Sized + fmt::Debug> fmt::Debug for Configured<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple(self.entry.name)
            .field(&&*self.config)
            .finish()
    }
}
