//! `groupbyattrs`: moves attributes of spans, data points and log records to their resources, and combines equal
//! resources.
//!
//! Batches stay encoded: items are copied as they are, without the attributes that moved.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use metrics::{Counter, counter};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::decoding;
use crate::component::{
    BuildContext, BuildError, Entry, Origin, ProcessorConfig, Stability, Stage,
};
use crate::metric::{self, Metric, shared};
use crate::pipeline::Processor;
use crate::pipeline::batch::{Batch, Nack};
use crate::pipeline::output_memory::{OutputMemory, refusal};
use tributary_config::{Problems, Validate};
use tributary_memory::Budget;
use tributary_otlp::Signal;
use tributary_otlp::regroup::regroup;

/// Entry of the component registry.
pub const ENTRY: Entry<dyn ProcessorConfig> = crate::entry!(
    dyn ProcessorConfig,
    GroupByAttrsConfig,
    "groupbyattrs",
    aliases: &[],
    "Moves attributes of items to their resources, and combines equal resources.",
    &[
        (Signal::Traces, Stability::Beta),
        (Signal::Metrics, Stability::Beta),
        (Signal::Logs, Stability::Beta),
    ],
    collector: Origin::Contrib,
    metrics: &[shared::PROCESSOR, METRICS]
);

const METRICS: &[Metric] = &[metric::counter(
    "tributary_processor_groupbyattrs_items",
    "Number of items, by whether they had one of the attributes (`grouped`)",
)];

/// Configuration of the `groupbyattrs` processor.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GroupByAttrsConfig {
    /// Keys of the attributes that move from spans, data points and log records to their resources. Without keys, equal
    /// resources, scopes and metrics are combined. Default: none.
    pub keys: Vec<String>,
}

impl Validate for GroupByAttrsConfig {
    fn validate(&self, problems: &mut Problems) {
        for (at, key) in self.keys.iter().enumerate() {
            let place = ["keys", &at.to_string()];
            if key.is_empty() {
                problems.error(&place, "must not be empty: it is the key of an attribute");
            } else if self.keys.iter().take(at).any(|before| before == key) {
                problems.error(&place, format!("duplicate entry `{key}`"));
            }
        }
    }
}

impl ProcessorConfig for GroupByAttrsConfig {
    fn build(&self, cx: &BuildContext, signal: Signal) -> Result<Stage, BuildError> {
        let items = |grouped: &'static str| {
            counter!(
                "tributary_processor_groupbyattrs_items",
                "processor" => cx.id.to_string(),
                "otel_signal" => signal.name(),
                "grouped" => grouped
            )
        };
        Ok(Stage::Pure(Box::new(GroupByAttrs {
            keys: self.keys.clone(),
            budget: cx.budget.clone(),
            grouped: items("true"),
            ungrouped: items("false"),
        })))
    }
}

struct GroupByAttrs {
    keys: Vec<String>,
    budget: Arc<Budget>,
    grouped: Counter,
    ungrouped: Counter,
}

impl Processor for GroupByAttrs {
    fn process(&self, batch: Batch) -> Result<Option<Batch>, Nack> {
        let signal = batch.signal();
        let output = OutputMemory::new(&self.budget);
        let parts = batch.wire().parts();
        let joined;
        let request = match parts {
            [only] => only,
            // The resources of all requests are compared.
            parts => {
                let bytes = parts.iter().map(Bytes::len).sum();
                output.take(bytes).map_err(refusal)?;
                joined = batch.wire().to_bytes();
                &joined
            }
        };
        let regrouped = regroup(signal, request, &self.keys, &output);
        let regrouped = regrouped.map_err(|error| decoding::unedited(signal, error, &output))?;
        self.grouped.increment(regrouped.grouped as u64);
        self.ungrouped.increment(regrouped.ungrouped as u64);
        let items = regrouped.grouped + regrouped.ungrouped;
        let bytes = regrouped.request.len();
        let request = Bytes::from(regrouped.request);
        Ok(Some(batch.with_output(items, request, output.keep(bytes))))
    }
}
