//! Settings for equal log records.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::processors::log_dedup;
use tributary_config::units::{ByteSize, Duration};
use tributary_config::{Problems, Validate};

/// Treatment of log records that are equal and not duplicates, with the keys of `log_dedup`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Logs {
    /// `keep`: all of them pass. `count`: they are counted over an interval, and one record is
    /// forwarded with the count, as by the processor `log_dedup`. Default: `keep`.
    pub mode: LogMode,
    /// With `count`: counting interval, from the first of the equal records. Above 0. Default: 10s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<Duration>,
    /// With `count`: attribute that contains the count. Default: `log_count`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_count_attribute: Option<String>,
    /// With `count`: time zone of the attributes `first_observed_timestamp` and
    /// `last_observed_timestamp`: a name of the IANA database such as `America/New_York`, `UTC`, or
    /// `Local` for the zone of this machine. Default: `UTC`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
    /// With `count`: fields that are ignored in the comparison and removed: `attributes.KEY`,
    /// `body.KEY` for bodies that are maps, with further keys for nested maps, or `attributes` for
    /// all attributes. A dot within a key is written `\.`. Not together with `include_fields`.
    /// Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exclude_fields: Option<Vec<String>>,
    /// With `count`: the only fields to compare within a resource and a scope, in the form of
    /// `exclude_fields`. Records without any of these fields are compared in full. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include_fields: Option<Vec<String>>,
    /// With `count`: OTTL conditions; only records that fulfil at least one are counted, see the
    /// processor `log_dedup`. Default: none, all records are counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<String>>,
    /// With `count`: request headers that separate data: records with different values are counted
    /// separately. The receiver must have `include_metadata: true`. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata_keys: Option<Vec<String>>,
    /// With `count`: maximum number of combinations of values of `metadata_keys` in an interval;
    /// requests with further ones are refused. 0: no limit. Default: 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata_cardinality_limit: Option<u32>,
    /// With `count`: maximum memory for counted records, as in `64MiB`. Above it, the interval ends
    /// early. At least 64KiB. Default: 64MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<ByteSize>,
}

/// Treatment of equal log records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogMode {
    /// All of them pass.
    #[default]
    Keep,
    /// One record is forwarded with the count.
    Count,
}

impl Logs {
    /// Returns the configuration of the counting processor.
    pub(super) fn counting(&self) -> log_dedup::Config {
        let default = log_dedup::Config::default();
        let own = self.clone();
        log_dedup::Config {
            interval: own.interval.unwrap_or(default.interval),
            log_count_attribute: own
                .log_count_attribute
                .unwrap_or(default.log_count_attribute),
            timezone: own.timezone.unwrap_or(default.timezone),
            exclude_fields: own.exclude_fields.unwrap_or_default(),
            include_fields: own.include_fields.unwrap_or_default(),
            conditions: own.conditions.unwrap_or_default(),
            metadata_keys: own.metadata_keys.unwrap_or_default(),
            metadata_cardinality_limit: own.metadata_cardinality_limit.unwrap_or_default(),
            max_bytes: own.max_bytes.unwrap_or(default.max_bytes),
        }
    }
}

impl Validate for Logs {
    fn validate(&self, problems: &mut Problems) {
        if self.mode == LogMode::Count {
            return self.counting().validate(problems);
        }
        for (key, given) in [
            ("interval", self.interval.is_some()),
            ("log_count_attribute", self.log_count_attribute.is_some()),
            ("timezone", self.timezone.is_some()),
            ("exclude_fields", self.exclude_fields.is_some()),
            ("include_fields", self.include_fields.is_some()),
            ("conditions", self.conditions.is_some()),
            ("metadata_keys", self.metadata_keys.is_some()),
            (
                "metadata_cardinality_limit",
                self.metadata_cardinality_limit.is_some(),
            ),
            ("max_bytes", self.max_bytes.is_some()),
        ] {
            if given {
                let message = "has no meaning without `mode: count`: set that, or remove it";
                problems.error(&[key], message);
            }
        }
    }
}
