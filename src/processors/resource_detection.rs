//! `resource_detection`: adds attributes of the host, container, cluster or cloud that the collector runs on.
//!
//! Detection is a part of the start. Batches get its result without waiting, and stay encoded.
//!
//! Key names and meanings are those of the Collector's resourcedetection processor.

mod running;
mod session;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use self::running::RunningDetection;
use super::attributes::{Attributes, Prepared};
use super::matching::Choice;
use crate::component::{
    ALL_SIGNALS, BuildContext, BuildError, Entry, Origin, ProcessorConfig, Stage,
};
use crate::metric::shared;
use crate::pipeline::Processor;
use crate::pipeline::batch::{Batch, Nack};
use tributary_detectors::{DetectionConfig, Machine};
use tributary_otlp::Signal;
use tributary_otlp::attributes::AttributeLevel;

/// Entry of the component registry.
pub const ENTRY: Entry<dyn ProcessorConfig> = crate::entry!(
    dyn ProcessorConfig,
    DetectionConfig,
    "resource_detection",
    aliases: &["resourcedetection"],
    "Adds attributes of the host, container, cluster or cloud that the collector runs on.",
    ALL_SIGNALS,
    collector: Origin::Contrib,
    metrics: &[shared::PROCESSOR]
);

impl ProcessorConfig for DetectionConfig {
    fn build(&self, cx: &BuildContext, _: Signal) -> Result<Stage, BuildError> {
        let machine = Machine::of_this_process();
        Ok(Stage::Pure(Box::new(ResourceDetection {
            running: RunningDetection::shared(&cx.id, self, machine).map_err(BuildError)?,
            attributes: Attributes {
                level: AttributeLevel::Resources,
                actions: Prepared::new(&[])?,
                choice: Choice::default(),
                budget: cx.budget.clone(),
            },
        })))
    }
}

struct ResourceDetection {
    running: Arc<RunningDetection>,
    attributes: Attributes,
}

impl Processor for ResourceDetection {
    fn process(&self, batch: Batch) -> Result<Option<Batch>, Nack> {
        match &**self.running.actions() {
            Some(actions) => self.attributes.edit(actions, batch).map(Some),
            None => Ok(Some(batch)),
        }
    }
}
