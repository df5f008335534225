//! `attributes`: changes attributes of spans, data points, log records and profiles.
//!
//! Key names and meanings are those of the Collector's attributes processor.

mod actions;
mod profiles;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::actions::{ActionConfig, ActionKind, ConvertedType};
pub(super) use self::actions::{Prepared, validate};
use super::decoding;
use super::matching::{Choice, MatchConfig};
use crate::component::{
    ALL_SIGNALS, BuildContext, BuildError, Entry, Origin, ProcessorConfig, Stage,
};
use crate::metric::shared;
use crate::pipeline::Processor;
use crate::pipeline::batch::{Batch, Nack};
use crate::pipeline::output_memory::{OutputMemory, refusal};
use tributary_config::{Problems, Validate};
use tributary_memory::Budget;
use tributary_otlp::attributes::{Actions, AttributeLevel};
use tributary_otlp::{Requests, Signal};

/// Entry of the component registry.
pub const ENTRY: Entry<dyn ProcessorConfig> = crate::entry!(
    dyn ProcessorConfig,
    AttributesConfig,
    "attributes",
    aliases: &[],
    "Inserts, changes and deletes attributes of spans, data points, log records and profiles.",
    ALL_SIGNALS,
    collector: Origin::Contrib,
    metrics: &[shared::PROCESSOR]
);

/// Configuration of the `attributes` processor.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AttributesConfig {
    /// Actions on the attributes of each span, data point and log record, in this order; at least one. In profiles, the
    /// actions edit the attributes of each profile and of each of its samples; a constant is added to the profile
    /// alone. An edited profile loses its `original_payload`, which contains the unedited labels. Required.
    #[serde(default)]
    pub actions: Vec<ActionConfig>,
    /// Properties of the items to edit: spans, log records, profiles, or metrics with all their data points. Default:
    /// all items are edited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub include: Option<MatchConfig>,
    /// Properties of the items to leave unedited, even if they match `include`. Default: no item is excluded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclude: Option<MatchConfig>,
}

impl Validate for AttributesConfig {
    fn validate(&self, problems: &mut Problems) {
        validate("actions", &self.actions, problems);
        for (key, properties) in [("include", &self.include), ("exclude", &self.exclude)] {
            if let Some(properties) = properties {
                properties.validate(key, problems);
            }
        }
    }
}

impl ProcessorConfig for AttributesConfig {
    fn check_signal(&self, signal: Signal, problems: &mut Problems) {
        for (key, properties) in [("include", &self.include), ("exclude", &self.exclude)] {
            if let Some(properties) = properties {
                properties.validate_for(&[key], signal, problems);
            }
        }
    }

    fn build(&self, cx: &BuildContext, signal: Signal) -> Result<Stage, BuildError> {
        Ok(Stage::Pure(Box::new(Attributes {
            level: AttributeLevel::Items,
            actions: Prepared::new(&self.actions)?,
            choice: Choice::new(signal, self.include.as_ref(), self.exclude.as_ref())?,
            budget: cx.budget.clone(),
        })))
    }
}

/// The processor, also used for the processor `resource`.
pub(super) struct Attributes {
    pub(super) level: AttributeLevel,
    pub(super) actions: Prepared,
    pub(super) choice: Choice,
    pub(super) budget: Arc<Budget>,
}

impl Processor for Attributes {
    fn process(&self, batch: Batch) -> Result<Option<Batch>, Nack> {
        let metadata = batch.metadata.clone();
        self.actions
            .with(metadata.as_deref(), |actions| self.edit(actions, batch))
            .map(Some)
    }
}

impl Attributes {
    /// Applies these actions to a batch.
    pub(super) fn edit(&self, actions: &Actions, batch: Batch) -> Result<Batch, Nack> {
        let signal = batch.signal();
        let mut items = batch.items();
        let mut changed = false;
        let mut made = 0;
        let output = OutputMemory::new(&self.budget);
        let edited = batch.wire().parts().iter().map(|part| {
            let edited = if signal == Signal::Profiles {
                let room = decoding::room(std::slice::from_ref(part), &self.budget);
                let _room = room.map_err(refusal)?;
                let edited = profiles::apply(actions, self.level, &self.choice, part, &output)?;
                let len = edited.as_ref().map_or(0, |(_, edited)| edited.len());
                output.take(len).map_err(refusal)?;
                edited.map(|(samples, edited)| {
                    // The rewrite also omits samples without values.
                    items = (items + samples).saturating_sub(tributary_otlp::count(signal, part));
                    edited
                })
            } else {
                let mut select = self.choice.selecting(signal);
                actions
                    .apply_where(signal, self.level, part, &output, &mut select)
                    .map_err(|error| decoding::unedited(signal, error, &output))?
            };
            changed |= edited.is_some();
            made += edited.as_ref().map_or(0, Bytes::len);
            Ok(edited.unwrap_or_else(|| part.clone()))
        });
        let edited: Requests = edited.collect::<Result<_, Nack>>()?;
        Ok(if changed {
            batch.with_output(items, edited, output.keep(made))
        } else {
            batch
        })
    }
}
