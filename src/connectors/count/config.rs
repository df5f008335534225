//! The configuration of `count`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use tributary_config::{Problems, Validate};
use tributary_otlp::Signal;
use tributary_ottl::parse;
use tributary_ottl::path::Context;

/// What is counted: metrics by name, for each kind of telemetry. A kind that is not mentioned has its default metric;
/// one that is has those that are written, and no others.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Metrics that count spans. Default: `trace.span.count`, all of them.
    pub spans: BTreeMap<String, MetricConfig>,
    /// Metrics that count events of spans. Default: `trace.span.event.count`, all of them.
    pub spanevents: BTreeMap<String, MetricConfig>,
    /// Metrics that count metrics; without attributes, for metrics have none. Default: `metric.count`, all of them.
    pub metrics: BTreeMap<String, MetricConfig>,
    /// Metrics that count data points. Default: `metric.datapoint.count`, all of them.
    pub datapoints: BTreeMap<String, MetricConfig>,
    /// Metrics that count log records. Default: `log.record.count`, all of them.
    pub logs: BTreeMap<String, MetricConfig>,
    /// Metrics that count profiles, not their samples. Default: `profile.count`, all of them.
    pub profiles: BTreeMap<String, MetricConfig>,
}

/// A metric that counts.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MetricConfig {
    /// What it means: the description of the metric.
    pub description: String,
    /// Only what one of these conditions is true of is counted; without any, everything. The language is that of the
    /// `filter` processor; paths without a context in front belong to what is counted, as in `attributes["env"] ==
    /// "prod"`. A condition that cannot be evaluated is not true, and logged.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<String>,
    /// Each combination of values of these attributes has a count of its own, a data point of the metric. An
    /// attribute of the resource or the scope counts where what is counted has none of that key.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attributes: Vec<AttributeConfig>,
}

/// An attribute that keeps counts apart.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AttributeConfig {
    /// Its key.
    pub key: String,
    /// Its value where it is missing: a text or a number, not empty and not 0. Without one, what lacks the attribute
    /// is not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_value: Option<DefaultValue>,
}

/// The value of an attribute that is missing.
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
    /// The sections with what they count.
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
            let message = "metrics have no attributes: count data points by them, in `datapoints`";
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

/// The signal that has what a context is about.
pub(super) fn signal_of(context: Context) -> Signal {
    let mut all = Signal::ALL.into_iter();
    all.find(|signal| context.is_of(*signal))
        .unwrap_or(Signal::Traces)
}
