//! Counts equal log records over an interval, and emits one of them with the count.
//!
//! Records are equal if they have the same resource, scope, body, severity, event name and attributes, or the same
//! values of `include_fields`. The emitted record is the first one. Its attributes have the count (`log_count`) and
//! the times of arrival of the first and the last record (`first_observed_timestamp`, `last_observed_timestamp`). Its
//! timestamp is the time of emission, and its observed timestamp is the arrival of the first record. A record without
//! duplicates is emitted in the same form. The times, trace ids and span ids of the duplicates are lost.
//!
//! Records are compared in encoded form. The order of attributes does not matter; the order of entries in a map
//! inside a body does.
//!
//! This is the Collector's processor `log_dedup`. Unlike the Collector, it acknowledges a record only when the record
//! is in bounded memory, and retries when the next stage refuses.

mod conditions;
mod count;
mod fields;
mod stage;
#[cfg(test)]
mod tests;

use jiff::tz::TimeZone;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::fields::Path;
use crate::component::{
    BuildContext, BuildError, Entry, Origin, ProcessorConfig, Stability, Stage,
};
use crate::entry;
use crate::metric::{self, Metric, shared};
use crate::pipeline::partition;
use tributary_config::units::{ByteSize, Duration};
use tributary_config::{Problems, Validate};
use tributary_otlp::Signal;

/// Entry of the component registry.
pub const ENTRY: Entry<dyn ProcessorConfig> = entry!(
    dyn ProcessorConfig,
    Config,
    "log_dedup",
    aliases: &["logdedup"],
    "Replaces equal log records of an interval by one record with their count.",
    &[(Signal::Logs, Stability::Alpha)],
    collector: Origin::Contrib,
    metrics: &[shared::PROCESSOR, METRICS]
);

pub(super) const METRICS: &[Metric] = &[metric::counter(
    "tributary_processor_log_dedup_flushes",
    "Number of flushes, by the end of their interval: its time or the memory bound",
)];

/// Settings for counting equal log records and replacing them with one.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Time for which equal records are counted, from the first record on. Above 0. Default: 10s.
    pub interval: Duration,
    /// Attribute that contains the count. Default: `log_count`.
    pub log_count_attribute: String,
    /// Time zone of the attributes `first_observed_timestamp` and `last_observed_timestamp`: a name of the IANA
    /// database such as `America/New_York`, `UTC`, or `Local` for the zone of this machine. Default: `UTC`.
    pub timezone: String,
    /// Fields that are ignored in the comparison and removed: `attributes.KEY`, `body.KEY` for bodies that are maps,
    /// with further keys for nested maps, or `attributes` for all attributes. A dot within a key is written `\.`.
    /// Cannot be combined with `include_fields`. Default: none.
    pub exclude_fields: Vec<String>,
    /// The only fields to compare within a resource and a scope, in the form of `exclude_fields`. Records without any
    /// of these fields are compared in full. Default: none.
    pub include_fields: Vec<String>,
    /// OTTL conditions of the records to count; records that fulfil none of them pass at once. The language is that of
    /// the processor `filter`, in the context of a log record, as in `severity_number < SEVERITY_NUMBER_ERROR` or
    /// `attributes["http.route"] == "/health"`. A condition that cannot be evaluated is false. Default: none, all
    /// records are counted.
    pub conditions: Vec<String>,
    /// Request headers that separate data: records with different values are counted separately. The receiver must have
    /// `include_metadata: true`. Default: none.
    pub metadata_keys: Vec<String>,
    /// Maximum number of combinations of values of `metadata_keys` in an interval; requests with further ones are
    /// refused. 0: no limit. Default: 0.
    pub metadata_cardinality_limit: u32,
    /// Maximum memory for counted records, as in `64MiB`. A full memory ends the interval early. At least 64KiB.
    /// Default: 64MiB. (The Collector has no such key.)
    pub max_bytes: ByteSize,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            interval: Duration::secs(10),
            log_count_attribute: "log_count".to_owned(),
            timezone: "UTC".to_owned(),
            exclude_fields: Vec::new(),
            include_fields: Vec::new(),
            conditions: Vec::new(),
            metadata_keys: Vec::new(),
            metadata_cardinality_limit: 0,
            max_bytes: ByteSize::mib(64),
        }
    }
}

const LEAST_BYTES: u64 = 64 << 10;

impl Validate for Config {
    fn validate(&self, problems: &mut Problems) {
        if self.interval.is_zero() {
            problems.error(&["interval"], "must be above 0");
        }
        if self.log_count_attribute.is_empty() {
            problems.error(
                &["log_count_attribute"],
                "must not be empty: it is the key of an attribute",
            );
        }
        if zone(&self.timezone).is_none() {
            problems.error(
                &["timezone"],
                format!(
                    "unknown time zone `{}`: expected a name such as `America/New_York`, `UTC` or `Local`",
                    self.timezone
                ),
            );
        }
        validate_fields("exclude_fields", &self.exclude_fields, problems);
        validate_fields("include_fields", &self.include_fields, problems);
        if !self.exclude_fields.is_empty() && !self.include_fields.is_empty() {
            problems.error(
                &["include_fields"],
                "cannot be used together with `exclude_fields`: remove one of them",
            );
        }
        for (at, text) in self.conditions.iter().enumerate() {
            if let Err(mistake) = conditions::condition(text) {
                let path = ["conditions", &at.to_string()];
                problems.error_within(&path, mistake.characters(text), mistake.in_text(text));
            }
        }
        partition::Keys::validate(&self.metadata_keys, problems);
        if self.max_bytes.0 < LEAST_BYTES {
            problems.error(&["max_bytes"], "must be at least 64KiB");
        }
    }
}

fn validate_fields(key: &str, fields: &[String], problems: &mut Problems) {
    for (at, field) in fields.iter().enumerate() {
        let place = [key, &at.to_string()];
        if let Err(error) = Path::parse(field) {
            problems.error(&place, format!("`{field}`: {error}"));
        } else if fields.iter().take(at).any(|before| before == field) {
            problems.error(&place, format!("duplicate entry `{field}`"));
        } else if key == "include_fields" && field == "attributes" {
            problems.error(
                &place,
                "is not supported: name one attribute, as in `attributes.KEY`",
            );
        }
    }
}

/// Returns the time zone with the name `name`.
fn zone(name: &str) -> Option<TimeZone> {
    match name {
        "" | "UTC" => Some(TimeZone::UTC),
        "Local" => Some(TimeZone::system()),
        name => TimeZone::get(name).ok(),
    }
}

impl ProcessorConfig for Config {
    fn build(&self, cx: &BuildContext, _: Signal) -> Result<Stage, BuildError> {
        Ok(Stage::Buffering(stage::connect(self.clone(), cx)))
    }
}
