//! Drops duplicates: retries after a lost acknowledgment, or the same data from two collectors that
//! one client sends to.
//!
//! - A profile is identified by its `profile_id` and sample type; without an id by resource, scope
//!   and content. These determine an id that the next hop uses.
//! - A span is identified by trace id, span id and its bytes; without ids by its bytes with
//!   resource and scope.
//! - A data point is identified by its bytes, with metric, resource and scope.
//! - A log record is identified by its bytes, with resource and scope.
//!
//! An item with neither an id nor a time is never dropped: it cannot be distinguished from another
//! item with equal content. For the same reason, equal log records in one request, and equal spans
//! without ids, all pass. Batching and splitting of requests makes no difference.
//!
//! An item counts as delivered once the next stage has accepted it, so a refused item passes when it
//! is sent again. If an equal item is in flight, an item waits for the outcome of that item, and is
//! then dropped or passed. No sender therefore gets an acknowledgment for an item that may still be
//! refused.
//!
//! In doubt, items pass. If `max_bytes` or the memory budget is exhausted, the oldest keys are
//! evicted first, and items that cannot be examined for lack of memory pass. The keys are lost at a
//! restart. A reload keeps the keys, unless it changes `window`, `max_bytes` or
//! `ignore_resource_attributes` of this processor, or the name of its pipeline.

mod index;
pub(in crate::processors) mod keys;
mod memory;
mod offer;
mod profiles;
mod remove;
mod seen;
mod stage;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::component::{
    ALL_SIGNALS, BuildContext, BuildError, Entry, Origin, ProcessorConfig, Stage,
};
use crate::entry;
use crate::metric::{self, Metric, shared};
use crate::pipeline::Idle;
use seen::{BYTES_PER_KEY, CHUNK};
use tributary_config::units::{ByteSize, Duration};
use tributary_config::{Problems, Validate};
use tributary_otlp::Signal;

/// Entry of the component registry.
pub const ENTRY: Entry<dyn ProcessorConfig> = entry!(
    dyn ProcessorConfig,
    Config,
    "dedup",
    aliases: &[],
    "Drops items that were already delivered, as they occur when a sender retries.",
    ALL_SIGNALS,
    collector: Origin::Own,
    metrics: &[shared::PROCESSOR, METRICS]
);

const METRICS: &[Metric] = &[
    metric::counter(
        "tributary_processor_dedup_duplicate_items",
        "Number of dropped duplicates, by what was recognized: the whole request or the item",
    ),
    metric::counter(
        "tributary_processor_dedup_unexamined_items",
        "Number of items that passed without a check for lack of memory",
    ),
    metric::gauge(
        "tributary_processor_dedup_remembered_items",
        "Number of remembered items and requests",
    ),
    metric::counter(
        "tributary_processor_dedup_forgotten_items",
        "Number of items forgotten before the end of the window because of `max_bytes`",
    ),
];

/// Time and memory for remembering delivered items.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Time for which an item is remembered after the next stage has accepted it. The time should be longer than
    /// clients retry: 5m for the sending queues of the Collector. Above 0. Default: 10m.
    pub window: Duration,
    /// Maximum memory for remembered items, in each pipeline, as in `64MiB`. An item takes at most 40 bytes; memory is
    /// reserved as needed, and counts toward the memory budget of the process. If the limit is reached, the oldest
    /// items are forgotten first: see `tributary_processor_dedup_forgotten_items`. At least 20KiB. Default: 64MiB.
    pub max_bytes: ByteSize,
    /// Resource attributes that describe the route of an item and not its content, such as the `rack.identity` that a
    /// receiver's `client_identity_attribute` adds. Items are compared without these attributes, and keep them. Keys
    /// must not be empty. Default: none.
    pub ignore_resource_attributes: Vec<String>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            window: Duration::secs(600),
            max_bytes: ByteSize::mib(64),
            ignore_resource_attributes: Vec::new(),
        }
    }
}

impl Validate for Config {
    fn validate(&self, problems: &mut Problems) {
        if self.window.is_zero() {
            problems.error(&["window"], "must be above 0");
        }
        if self.max_bytes.as_usize() < CHUNK * BYTES_PER_KEY {
            problems.error(
                &["max_bytes"],
                "must be at least `20KiB`, the memory for 512 items",
            );
        }
        for (at, attribute) in self.ignore_resource_attributes.iter().enumerate() {
            if attribute.is_empty() {
                problems.error(
                    &["ignore_resource_attributes", &at.to_string()],
                    "must not be empty: it is the key of an attribute",
                );
            }
        }
    }

    fn removed_keys() -> &'static [(&'static str, &'static str)] {
        &[(
            "logs",
            "add the processor `log_dedup` after `dedup`, and move the keys there without \
             `mode`",
        )]
    }
}

impl ProcessorConfig for Config {
    fn remembers_deliveries(&self) -> bool {
        true
    }

    fn build(&self, cx: &BuildContext, signal: Signal) -> Result<Stage, BuildError> {
        let config = self.clone();
        let cx = cx.clone();
        Ok(Stage::Buffering(Box::new(move |next| {
            let dedup = stage::Dedup::new(&config, &cx, signal, next);
            (Arc::new(dedup), Box::new(Idle))
        })))
    }
}
