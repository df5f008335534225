//! The configuration of `count`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use tributary_config::{Problems, Validate};
use tributary_otlp::Signal;
use tributary_ottl::parse;
use tributary_ottl::path::Context;

/// Metrics to count, by name, for each kind of telemetry. A kind that is not configured has its
/// default metric; a configured kind has only the configured metrics.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Metrics that count spans. Default: `trace.span.count`, which counts all spans.
    pub spans: BTreeMap<String, MetricConfig>,
    /// Metrics that count span events. Default: `trace.span.event.count`, which counts all events.
    pub spanevents: BTreeMap<String, MetricConfig>,
    /// Metrics that count metrics; without attributes, since metrics have none. Default:
    /// `metric.count`, which counts all metrics.
    pub metrics: BTreeMap<String, MetricConfig>,
    /// Metrics that count data points. Default: `metric.datapoint.count`, which counts all data
    /// points.
    pub datapoints: BTreeMap<String, MetricConfig>,
    /// Metrics that count log records. Default: `log.record.count`, which counts all log records.
    pub logs: BTreeMap<String, MetricConfig>,
    /// Metrics that count profiles, not their samples. Default: `profile.count`, which counts all
    /// profiles.
    pub profiles: BTreeMap<String, MetricConfig>,
}

/// A metric of a count.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MetricConfig {
    /// Description of the metric. Default: none.
    pub description: String,
    /// OTTL conditions of the items to count; an item is counted if it fulfils at least one. The language is that of
    /// the processor `filter`; a path without a context belongs to the counted item, as in `attributes["env"] ==
    /// "prod"`. A condition that cannot be evaluated is false, and is logged. Default: none, all items are counted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<String>,
    /// Attributes to group by: each combination of their values has its own data point. If an item lacks an attribute,
    /// the attribute of the resource or the scope is used. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attributes: Vec<AttributeConfig>,
}

/// An attribute to group by.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AttributeConfig {
    /// Key of the attribute. Required.
    pub key: String,
    /// Value for items without the attribute: a string or a number, not empty and not 0. Default: none, such items are
    /// not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_value: Option<DefaultValue>,
}

/// Value of a missing attribute.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum DefaultValue {
    /// A whole number.
    Int(i64),
    /// A number.
    Double(f64),
    /// A text.
    Text(String),
}

impl JsonSchema for DefaultValue {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "DefaultValue".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "A text or a number.",
            "anyOf": [{"type": "number"}, {"type": "string", "format": "text"}],
        })
    }
}

impl Default for Config {
    fn default() -> Self {
        let all = |name: &str, what: &str| {
            let metric = MetricConfig {
                description: format!("The number of {what} observed."),
                ..MetricConfig::default()
            };
            BTreeMap::from([(name.to_owned(), metric)])
        };
        Config {
            spans: all("trace.span.count", "spans"),
            spanevents: all("trace.span.event.count", "span events"),
            metrics: all("metric.count", "metrics"),
            datapoints: all("metric.datapoint.count", "data points"),
            logs: all("log.record.count", "log records"),
            profiles: all("profile.count", "profiles"),
        }
    }
}

impl Config {
    /// Returns the sections of the configuration with their metrics.
    pub(super) fn sections(&self) -> [(&'static str, Context, &BTreeMap<String, MetricConfig>); 6] {
        [
            ("spans", Context::Span, &self.spans),
            ("spanevents", Context::SpanEvent, &self.spanevents),
            ("metrics", Context::Metric, &self.metrics),
            ("datapoints", Context::DataPoint, &self.datapoints),
            ("logs", Context::Log, &self.logs),
            ("profiles", Context::Profile, &self.profiles),
        ]
    }
}

impl Validate for Config {
    fn validate(&self, problems: &mut Problems) {
        for (section, context, metrics) in self.sections() {
            for (name, metric) in metrics {
                if name.is_empty() {
                    problems.error(&[section], "a metric needs a name");
                }
                for (at, condition) in metric.conditions.iter().enumerate() {
                    let parsed = parse(condition, signal_of(context), Some(context));
                    if let Err(mistake) = parsed {
                        let path = [section, name, "conditions", &at.to_string()];
                        problems.error(&path, mistake.in_text(condition));
                    }
                }
                metric.validate_attributes(section, name, problems);
            }
        }
    }
}

impl MetricConfig {
    fn validate_attributes(&self, section: &str, name: &str, problems: &mut Problems) {
        if section == "metrics" && !self.attributes.is_empty() {
            let message = "is not supported, because metrics have no attributes: count data points by attribute in \
                           `datapoints`";
            problems.error(&[section, name, "attributes"], message);
            return;
        }
        for (at, attribute) in self.attributes.iter().enumerate() {
            let path = [section, name, "attributes", &at.to_string(), "key"];
            let mut before = self.attributes.iter().take(at);
            if attribute.key.is_empty() {
                problems.error(&path, "must not be empty: it is the key of an attribute");
            } else if before.any(|other| other.key == attribute.key) {
                problems.error(&path, format!("duplicate entry `{}`", attribute.key));
            }
        }
    }
}

pub(super) fn signal_of(context: Context) -> Signal {
    let mut all = Signal::ALL.into_iter();
    all.find(|signal| context.is_of(*signal))
        .unwrap_or(Signal::Traces)
}
