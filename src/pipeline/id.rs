//! Pipeline ids, and the components of a pipeline.

use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use tributary_config::{ComponentId, InvalidId};
use tributary_otlp::Signal;

/// Id of a pipeline: `traces`, or `traces/name` if there are several.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PipelineId {
    /// The signal that flows through the pipeline.
    pub signal: Signal,
    /// The part after the slash.
    pub name: Option<String>,
}

/// Configuration of one pipeline: component ids in their written order, which is the execution order of processors.
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

    /// Names follow the rules of component ids.
    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let id: ComponentId = text.parse()?;
        let Some(signal) = Signal::from_name(id.kind()) else {
            let known = Signal::ALL.map(Signal::name).join(", ");
            return Err(InvalidId(format!(
                "`{text}` is not a pipeline id: write one of {known}, or `SIGNAL/NAME`, as in `traces/name`"
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
