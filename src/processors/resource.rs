//! `resource`: changes attributes of resources.
//!
//! Key names and meanings are those of the Collector's resource processor.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::attributes::{ActionConfig, Attributes, Prepared, validate};
use super::matching::Choice;
use crate::batch::Signal;
use crate::component::{ALL_SIGNALS, BuildContext, BuildError, Entry, ProcessorConfig, Stage};
use crate::config::{Problems, Validate};
use crate::wire::attributes::Level;

/// The registry line.
pub const ENTRY: Entry<dyn ProcessorConfig> = crate::entry!(
    dyn ProcessorConfig,
    ResourceConfig,
    "resource",
    aliases: &[],
    "Changes attributes of resources.",
    ALL_SIGNALS
);

/// Configuration of the `resource` processor.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResourceConfig {
    /// What to do with the attributes of each resource, in this order. At least one is required.
    #[serde(default)]
    pub attributes: Vec<ActionConfig>,
}

impl Validate for ResourceConfig {
    fn validate(&self, problems: &mut Problems) {
        validate("attributes", &self.attributes, problems);
    }
}

impl ProcessorConfig for ResourceConfig {
    fn build(&self, cx: &BuildContext, _: Signal) -> Result<Stage, BuildError> {
        Ok(Stage::Pure(Box::new(Attributes {
            level: Level::Resources,
            actions: Prepared::new(&self.attributes)?,
            choice: Choice::default(),
            budget: cx.budget.clone(),
        })))
    }
}
