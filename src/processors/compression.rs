//! Reduces the size of telemetry by its structure, before byte compression: equal parts are stored
//! once.
//!
//! `mode: compact` is lossless. `mode: aggregate` summarizes profiles: one summary for all
//! instances of a service and some seconds. A summary keeps the retained resource attributes,
//! scopes, sample types, periods, times, stacks, values, and links up to `exemplars`. It drops
//! fields outside of the specification of profiles, `original_payload`, and request headers
//! (`include_metadata`), because a summary belongs to several clients.

mod aggregate;
mod compact;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::component::{
    ALL_SIGNALS, BuildContext, BuildError, Entry, Origin, ProcessorConfig, Stage,
};
use crate::entry;
use crate::metric::{self, Metric, shared};
use tributary_config::units::{ByteSize, Duration};
use tributary_config::{Problems, Validate};
use tributary_otlp::Signal;
use tributary_profiles::aggregate::{Gauge, SummaryOptions};

/// Entry of the component registry.
pub const ENTRY: Entry<dyn ProcessorConfig> = entry!(
    dyn ProcessorConfig,
    Config,
    "compression",
    aliases: &[],
    "Deduplicates resources, scopes and dictionaries within a request, or summarizes profiles over time.",
    ALL_SIGNALS,
    collector: Origin::Own,
    metrics: &[shared::PROCESSOR, METRICS]
);

const METRICS: &[Metric] = &[
    metric::counter(
        "tributary_processor_compression_flushes",
        "Number of summaries of profiles, by the end of their window: its interval or the memory bound",
    ),
    metric::counter(
        "tributary_processor_compression_saturated_sums",
        "Number of sums that exceeded 64 bits and were set to the maximum",
    ),
    metric::counter(
        "tributary_processor_compression_passed_requests",
        "Number of requests that passed without buffering because their series were quiet",
    ),
];

/// Scope of the merging of equal parts.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// `compact`: equal resources and scopes within a batch are merged, and so are equal entries of
    /// the dictionary of profiles; the mode is lossless and adds no delay. `aggregate`: profiles
    /// are summarized over a window; other signals are treated as by `compact`. Default: `compact`.
    pub mode: MergeScope,
    /// With `aggregate`: duration of a window. A request is forwarded without waiting if each of
    /// its profiles is the first of its series (retained resource attributes, scope, sample type)
    /// within this time; otherwise the whole request is buffered. Above 0. Default: 10s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<Duration>,
    /// With `aggregate`: resource attributes to retain. Profiles whose resources have equal values
    /// of all of them are merged; the other attributes are dropped, and `merged.count` is the
    /// number of different resources. Summaries may be summarized again at the next tier if their
    /// resources identify their source, as they do with the receiver's `client_identity_attribute`;
    /// otherwise gauges (see `gauges`) of two sources count as one source's. Default:
    /// `service.name`, `service.namespace`, `service.version`, `deployment.environment.name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_by: Option<Vec<String>>,
    /// With `aggregate`: combination of one instance's profiles in a window, for sample types that are not plain
    /// counts: `average`, `last`, or `sum`. Profiles of several instances are always added up. The entries extend or
    /// replace the built-in ones: `inuse_space` and `inuse_objects` are averaged; `goroutine`, `goroutines` and
    /// `threadcreate` use the last profile. Go's cumulative sample types (`alloc_space`, `alloc_objects`,
    /// `contentions`, `delay`) also use the last one, unless they have a duration, as after the receiver's `delta`:
    /// such profiles add up. Default: the built-in ones.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub gauges: BTreeMap<String, OverTime>,
    /// With `aggregate`: number of the heaviest samples of a profile that keep the link to their
    /// span; the others lose it and are added up. Gauges (see `gauges`) keep no links. At most
    /// 1024. Default: 16.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exemplars: Option<u32>,
    /// With `aggregate`: maximum number of call tree nodes in a summarized profile. The lightest
    /// subtrees become frames with the name `other`, and all totals stay. 0: no limit. Default: 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_nodes: Option<u32>,
    /// With `aggregate`: maximum memory of a window, as in `64MiB`. A larger window is flushed
    /// early. At least 64KiB. Default: 64MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<ByteSize>,
}

/// Scope of the merging of equal parts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MergeScope {
    /// Equal resources, scopes and dictionary entries.
    #[default]
    Compact,
    /// Profiles within a window.
    Aggregate,
}

/// Combination of one instance's profiles in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OverTime {
    /// Sum of the values.
    Sum,
    /// Average of the values.
    Average,
    /// Values of the last profile.
    Last,
}

const INTERVAL: std::time::Duration = std::time::Duration::from_secs(10);
const GROUP_BY: [&str; 4] = [
    "service.name",
    "service.namespace",
    "service.version",
    "deployment.environment.name",
];
const GAUGES: [(&str, Gauge); 5] = [
    ("inuse_space", Gauge::Average),
    ("inuse_objects", Gauge::Average),
    ("goroutine", Gauge::Last),
    ("goroutines", Gauge::Last),
    ("threadcreate", Gauge::Last),
];
const EXEMPLARS: u32 = 16;
/// Each sample with a span is compared with all exemplars.
const MOST_EXEMPLARS: u32 = 1024;
const MAX_BYTES: u64 = 64 << 20;
const LEAST_BYTES: u64 = 64 << 10;

impl Validate for Config {
    fn validate(&self, problems: &mut Problems) {
        if self.mode == MergeScope::Compact {
            for (key, given) in [
                ("interval", self.interval.is_some()),
                ("group_by", self.group_by.is_some()),
                ("gauges", !self.gauges.is_empty()),
                ("exemplars", self.exemplars.is_some()),
                ("max_nodes", self.max_nodes.is_some()),
                ("max_bytes", self.max_bytes.is_some()),
            ] {
                if given {
                    let message =
                        "has no effect without `mode: aggregate`: set the mode, or remove this key";
                    problems.error(&[key], message);
                }
            }
            return;
        }
        if self.interval.is_some_and(|interval| interval.is_zero()) {
            problems.error(&["interval"], "must be above 0");
        }
        if self.max_bytes.is_some_and(|bytes| bytes.0 < LEAST_BYTES) {
            problems.error(&["max_bytes"], "must be at least 64KiB");
        }
        if self.exemplars.is_some_and(|most| most > MOST_EXEMPLARS) {
            problems.error(&["exemplars"], "must be at most 1024 for each profile");
        }
        for (at, key) in self.group_by.iter().flatten().enumerate() {
            if key.is_empty() {
                problems.error(&["group_by", &at.to_string()], "must not be empty");
            }
        }
    }
}

impl Config {
    fn options(&self) -> SummaryOptions {
        let mut gauges: BTreeMap<String, Gauge> = BTreeMap::new();
        for (name, gauge) in GAUGES {
            gauges.insert(name.to_owned(), gauge);
        }
        for (name, over_time) in &self.gauges {
            let gauge = match over_time {
                OverTime::Sum => Gauge::Sum,
                OverTime::Average => Gauge::Average,
                OverTime::Last => Gauge::Last,
            };
            gauges.insert(name.clone(), gauge);
        }
        let group_by = || GROUP_BY.iter().map(|key| (*key).to_owned()).collect();
        let size = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        SummaryOptions {
            group_by: self.group_by.clone().unwrap_or_else(group_by),
            gauges,
            exemplars: size(self.exemplars.unwrap_or(EXEMPLARS)),
            max_nodes: size(self.max_nodes.unwrap_or(0)),
        }
    }
}

impl ProcessorConfig for Config {
    fn build(&self, cx: &BuildContext, signal: Signal) -> Result<Stage, BuildError> {
        if self.mode == MergeScope::Compact || signal != Signal::Profiles {
            return Ok(compact::stage(cx));
        }
        let settings = aggregate::Settings {
            options: self.options(),
            interval: self.interval.map_or(INTERVAL, |interval| interval.0),
            max_bytes: self.max_bytes.unwrap_or(ByteSize(MAX_BYTES)).as_usize(),
        };
        Ok(aggregate::stage(cx, settings))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(yaml: &str) -> Vec<String> {
        crate::testing::problems::<Config>(yaml)
    }

    #[test]
    fn violated_rules_are_reported_at_their_keys() {
        assert!(paths("{}").is_empty());
        assert!(paths("mode: aggregate").is_empty());
        let aggregating = "{interval: 1s, group_by: [a], gauges: {x: last}, exemplars: 1, max_nodes: 1, max_bytes: 1MiB}";
        let all = [
            "interval",
            "group_by",
            "gauges",
            "exemplars",
            "max_nodes",
            "max_bytes",
        ];
        assert_eq!(paths(aggregating), all);
        let wrong =
            "{mode: aggregate, interval: 0s, group_by: [a, ''], exemplars: 1025, max_bytes: 1KiB}";
        assert_eq!(
            paths(wrong),
            ["interval", "max_bytes", "exemplars", "group_by::1"]
        );
        assert!(paths("{mode: aggregate, exemplars: 1024}").is_empty());
    }

    #[test]
    fn table_of_levels_is_configurable() {
        let config: Config = serde_yaml::from_str(
            "{mode: aggregate, gauges: {inuse_space: sum, alloc_space: last}}",
        )
        .unwrap();
        let gauges = config.options().gauges;
        assert_eq!(gauges.get("inuse_space"), Some(&Gauge::Sum));
        assert_eq!(gauges.get("alloc_space"), Some(&Gauge::Last));
        assert_eq!(gauges.get("inuse_objects"), Some(&Gauge::Average));
    }
}
