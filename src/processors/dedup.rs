//! Drops what was delivered before: a retry after an answer that was lost, or the same from two collectors that one
//! client sends to.
//!
//! - A profile is known by its `profile_id` and sample type; without an id by resource, scope and content, from which
//!   an id is made that the next hop finds.
//! - A span is known by trace id, span id and its bytes; without ids by its bytes with resource and scope.
//! - A data point is known by its bytes, with metric, resource and scope.
//! - A log record is known by its bytes, with resource and scope.
//!
//! What has neither an id nor a time is never dropped: it cannot be told from another one that happens to be equal. For
//! the same reason equal log records in one request, and equal spans without ids, all pass. How items are grouped into
//! requests, by batching or splitting, makes no difference.
//!
//! An item counts as delivered once the next stage has accepted it: what is refused passes when it is sent again. What
//! comes while the same is still under way waits for the outcome, and is dropped or passed then; so nobody is told that
//! something was delivered which may be refused yet.
//!
//! With `logs: {mode: count}`, what is left of log records is counted: of equal ones, one leaves, see
//! [`log_dedup`](crate::processors::log_dedup).
//!
//! When in doubt, items pass: when `max_bytes` or the memory budget is used up, the oldest are forgotten first, and what
//! there is no memory to examine is not held up; a restart forgets everything. A reload forgets nothing, unless it changes
//! `window`, `max_bytes` or `ignore_resource_attributes` of this processor, or the name of its pipeline.

mod index;
pub(in crate::processors) mod keys;
mod logs;
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

use crate::component::{ALL_SIGNALS, BuildContext, BuildError, Entry, ProcessorConfig, Stage};
use crate::entry;
use crate::pipeline::Idle;
use crate::pipeline::Next;
pub use logs::{LogMode, Logs};
use seen::{BYTES_PER_KEY, CHUNK};
use tributary_config::units::{ByteSize, Duration};
use tributary_config::{Problems, Validate};
use tributary_otlp::Signal;

/// The registry's entry.
pub const ENTRY: Entry<dyn ProcessorConfig> = entry!(
    dyn ProcessorConfig,
    Config,
    "dedup",
    aliases: &[],
    "Drops what was delivered before.",
    ALL_SIGNALS
);

/// For how long, and in how much memory, it is remembered what was delivered.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// How long an item is remembered after the next stage has accepted it. It should be longer than the time for which
    /// clients try again: 5m for the sending queues of the Collector.
    pub window: Duration,
    /// The most memory for what is remembered, in each pipeline, as in `64MiB`. An item takes at most 40 bytes; memory
    /// is taken as it is needed, and counts in the budget of the process. When it is used up, the oldest items are
    /// forgotten first: see `tributary_processor_dedup_forgotten_items`.
    pub max_bytes: ByteSize,
    /// Attributes of resources that say which way something came and not what it is, such as the `rack.identity` that a
    /// receiver's `client_identity_attribute` writes: items are compared without them. They stay where they are.
    pub ignore_resource_attributes: Vec<String>,
    /// What becomes of log records that are equal without having been delivered before.
    pub logs: Logs,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            window: Duration::secs(600),
            max_bytes: ByteSize::mib(64),
            ignore_resource_attributes: Vec::new(),
            logs: Logs::default(),
        }
    }
}

impl Validate for Config {
    fn validate(&self, problems: &mut Problems) {
        if self.window.is_zero() {
            problems.error(
                &["window"],
                "must be greater than zero: nothing would be remembered",
            );
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
        problems.within("logs", &self.logs);
    }
}

impl ProcessorConfig for Config {
    fn notes_deliveries(&self) -> bool {
        true
    }

    fn build(&self, cx: &BuildContext, signal: Signal) -> Result<Stage, BuildError> {
        let config = self.clone();
        let cx = cx.clone();
        Ok(Stage::Holding(Box::new(move |next| {
            if signal != Signal::Logs || config.logs.mode == LogMode::Keep {
                let dedup = stage::Dedup::new(&config, &cx, signal, next);
                return (Arc::new(dedup), Box::new(Idle));
            }
            let account = next.account.clone();
            let (consumer, life) = config.logs.counting().connect(&cx)(next);
            let next = Next { consumer, account };
            let dedup = stage::Dedup::new(&config, &cx, signal, next);
            (Arc::new(dedup), life)
        })))
    }
}
