//! The configuration of `filter`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tributary_config::TextOr;

use crate::processors::matching::{
    MatchAttribute, MatchConfig, MatchType, RegexpCache, SeverityConfig,
};

/// Conditions and properties of the items to drop.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Handling of conditions that cannot be evaluated. Examples: a key is looked up in a value without keys,
    /// arithmetic meets a value that is not a number, a prefix is tested on a value that is not a string. `ignore`
    /// treats the condition as false and logs the error, `silent` treats it as false without logging, `propagate`
    /// refuses the request. Default: `ignore`.
    pub error_mode: ErrorMode,
    /// Conditions about traces. Every path begins with its context, as in `span.attributes["http.route"] ==
    /// "/healthz"`. Contexts: `resource`, `scope`, `span`, `spanevent`. If a condition is true, the item of its deepest
    /// context is dropped, for example a span or a span event. An element is a condition, or a group with `context`,
    /// `error_mode` and `conditions`. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub trace_conditions: Vec<ConditionEntry>,
    /// Conditions about metrics, as in `trace_conditions`. Contexts: `resource`, `scope`, `metric`, `datapoint`.
    /// Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub metric_conditions: Vec<ConditionEntry>,
    /// Conditions about logs, as in `trace_conditions`. Contexts: `resource`, `scope`, `log`. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub log_conditions: Vec<ConditionEntry>,
    /// Conditions about profiles, as in `trace_conditions`. Contexts: `resource`, `scope`, `profile`. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub profile_conditions: Vec<ConditionEntry>,
    /// Conditions about traces in the older form, in which a path without a prefix belongs to the context of its list.
    pub traces: TraceFilters,
    /// Conditions about metrics in the older form, or properties of metrics.
    pub metrics: MetricFilters,
    /// Conditions about logs in the older form, or properties of log records.
    pub logs: LogFilters,
    /// Conditions about profiles in the older form.
    pub profiles: ProfileFilters,
    /// Properties of the spans to keep or drop.
    pub spans: SpanFilters,
}

/// Handling of conditions and statements that cannot be evaluated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ErrorMode {
    /// A condition is false, a statement has no effect, and the error is logged.
    #[default]
    Ignore,
    /// A condition is false, and a statement has no effect.
    Silent,
    /// The request is refused.
    Propagate,
}

/// A condition, or a group of conditions.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum ConditionEntry {
    /// A condition.
    Text(String),
    /// A group of conditions with its own settings.
    Group(ConditionGroup),
}

impl<'de> Deserialize<'de> for ConditionEntry {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let entry = TextOr::read(deserializer, "a condition, or a mapping with `conditions`")?;
        Ok(match entry {
            TextOr::Text(text) => ConditionEntry::Text(text),
            TextOr::Mapping(group) => ConditionEntry::Group(group),
        })
    }
}

/// A group of conditions with its own settings.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConditionGroup {
    /// Context of the conditions, and of paths without a prefix. Default: the context of the deepest path of each
    /// condition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// Handling of conditions that cannot be evaluated. Default: the processor's `error_mode`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_mode: Option<ErrorMode>,
    /// The conditions. If any of them is true, the item is dropped.
    #[serde(default)]
    pub conditions: Vec<String>,
}

/// Conditions about traces.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TraceFilters {
    /// Conditions about resources: all spans of a matching resource are dropped. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource: Vec<String>,
    /// Conditions about spans. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub span: Vec<String>,
    /// Conditions about events of spans. A span stays even if it has no event left. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub spanevent: Vec<String>,
}

/// Conditions about metrics, or properties of metrics.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MetricFilters {
    /// Conditions about resources: all metrics of a matching resource are dropped. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource: Vec<String>,
    /// Conditions about metrics. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub metric: Vec<String>,
    /// Conditions about data points. A metric without data points left is dropped. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub datapoint: Vec<String>,
    /// Properties of the metrics to keep: a metric that does not match all of them is dropped. Default: all metrics are
    /// kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include: Option<MetricProperties>,
    /// Properties of the metrics to drop: a metric is dropped if its name or its resource matches. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exclude: Option<MetricProperties>,
    /// Cache settings of the Collector for regular expressions. Accepted for compatibility; without an effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regexp: Option<RegexpCache>,
}

/// Properties of metrics.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MetricProperties {
    /// Comparison of strings: `strict` or `regexp`. Required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub match_type: Option<MetricMatchType>,
    /// Cache settings of the Collector for regular expressions. Accepted for compatibility; without an effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regexp: Option<RegexpCache>,
    /// Names, of which the metric's name must match one. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub metric_names: Vec<String>,
    /// Not supported: use `metric_conditions`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub expressions: Vec<String>,
    /// Attributes of the resource, all of which must exist with these values. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource_attributes: Vec<MatchAttribute>,
}

/// Comparison of metric properties.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MetricMatchType {
    /// The strings are equal.
    Strict,
    /// A regular expression matches anywhere in the string.
    Regexp,
    /// Not supported: use `metric_conditions`.
    Expr,
}

impl MetricProperties {
    /// Whether it is in the expression language that is not supported.
    pub(super) fn is_expression(&self) -> bool {
        self.match_type == Some(MetricMatchType::Expr) || !self.expressions.is_empty()
    }

    pub(super) fn properties(&self) -> MatchConfig {
        MatchConfig {
            match_type: match self.match_type {
                Some(MetricMatchType::Strict) => Some(MatchType::Strict),
                Some(MetricMatchType::Regexp) => Some(MatchType::Regexp),
                _ => None,
            },
            metric_names: self.metric_names.clone(),
            resources: self.resource_attributes.clone(),
            ..MatchConfig::default()
        }
    }
}

/// Conditions about logs, or properties of log records.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LogFilters {
    /// Conditions about resources: all records of a matching resource are dropped. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource: Vec<String>,
    /// Conditions about log records. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub log_record: Vec<String>,
    /// Properties of the records to keep: a record that does not match all of them is dropped. Default: all records are
    /// kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include: Option<LogProperties>,
    /// Properties of the records to drop: a record that matches all of them is dropped. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exclude: Option<LogProperties>,
}

/// Properties of log records.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LogProperties {
    /// Comparison of strings: `strict` or `regexp`. Required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub match_type: Option<MatchType>,
    /// Attributes of the resource, all of which must exist with these values. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource_attributes: Vec<MatchAttribute>,
    /// Attributes of the record, all of which must exist with these values. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub record_attributes: Vec<MatchAttribute>,
    /// Severity texts, of which the record's must match one. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub severity_texts: Vec<String>,
    /// Minimum severity. Default: any severity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub severity_number: Option<SeverityName>,
    /// Texts, of which the body of the record must match one. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bodies: Vec<String>,
}

/// Minimum severity, by name.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SeverityName {
    /// Name of the minimum severity, as in `INFO` or `WARN2`, or its number in quotes. Default: any severity.
    pub min: String,
    /// Whether records without a severity number match. Default: false.
    pub match_undefined: bool,
}

impl SeverityName {
    /// Returns the severity number; `None` if the name is unknown.
    pub(super) fn number(&self) -> Option<i32> {
        const NAMES: [&str; 6] = ["TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"];
        if self.min.is_empty() {
            return Some(0);
        }
        if let Ok(number) = self.min.parse::<i32>() {
            return (1..=24).contains(&number).then_some(number);
        }
        let text = self.min.to_ascii_uppercase();
        let name = text.trim_end_matches(['2', '3', '4']);
        let step = match text.strip_prefix(name)? {
            "" => 0,
            "2" => 1,
            "3" => 2,
            "4" => 3,
            _ => return None,
        };
        let at = NAMES.iter().position(|known| *known == name)?;
        i32::try_from(at).ok().map(|at| 4 * at + 1 + step)
    }
}

impl LogProperties {
    pub(super) fn is_empty(&self) -> bool {
        self.resource_attributes.is_empty()
            && self.record_attributes.is_empty()
            && self.severity_texts.is_empty()
            && self.severity_number.is_none()
            && self.bodies.is_empty()
    }

    pub(super) fn properties(&self) -> MatchConfig {
        MatchConfig {
            match_type: self.match_type,
            resources: self.resource_attributes.clone(),
            attributes: self.record_attributes.clone(),
            log_severity_texts: self.severity_texts.clone(),
            log_severity_number: self
                .severity_number
                .as_ref()
                .map(|severity| SeverityConfig {
                    min: severity.number().unwrap_or_default(),
                    match_undefined: severity.match_undefined,
                }),
            log_bodies: self.bodies.clone(),
            ..MatchConfig::default()
        }
    }
}

/// Conditions about profiles.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ProfileFilters {
    /// Conditions about resources: all profiles of a matching resource are dropped. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource: Vec<String>,
    /// Conditions about profiles. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub profile: Vec<String>,
}

/// Properties of the spans to keep or drop.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SpanFilters {
    /// Properties of the spans to keep: a span that does not match all of them is dropped. Default: all spans are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include: Option<MatchConfig>,
    /// Properties of the spans to drop: a span that matches all of them is dropped. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exclude: Option<MatchConfig>,
}
