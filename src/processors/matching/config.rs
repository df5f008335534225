//! The configuration of `include` and `exclude`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::literal::Literal;
use crate::component::BuildError;
use tributary_config::Problems;
use tributary_config::re2;
use tributary_otlp::Signal;

/// Properties to match telemetry against. All given properties must match.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MatchConfig {
    /// Comparison of texts: `strict` means equality, `regexp` a regular expression that matches
    /// anywhere in the text. Required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub match_type: Option<MatchType>,
    /// Accepted for compatibility with the Collector's cache of results, without an effect. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regexp: Option<RegexpCache>,
    /// The resource's `service.name` must match one of these. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<String>,
    /// For traces: the name of the span must match one of these. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub span_names: Vec<String>,
    /// For traces: the kind of the span must match one of these, as in `SPAN_KIND_SERVER`. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub span_kinds: Vec<String>,
    /// For logs: the body of the record, as text, must match one of these. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub log_bodies: Vec<String>,
    /// For logs: the severity text must match one of these. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub log_severity_texts: Vec<String>,
    /// For logs: the minimum severity. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_severity_number: Option<SeverityConfig>,
    /// For metrics: the name of the metric must match one of these. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub metric_names: Vec<String>,
    /// For traces, logs and profiles: all of these attributes must exist and have these values. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attributes: Vec<MatchAttribute>,
    /// All of these attributes of the resource must exist and have these values. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<MatchAttribute>,
    /// The instrumentation scope must match all of these. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub libraries: Vec<LibraryConfig>,
}

/// Comparison of texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MatchType {
    /// The texts are equal.
    Strict,
    /// A regular expression matches anywhere in the text.
    Regexp,
}

/// The Collector's cache of regular expression results; without an effect here.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RegexpCache {
    /// Whether results are cached. No effect. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cacheenabled: Option<bool>,
    /// Maximum number of cached results. No effect. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cachemaxnumentries: Option<u64>,
}

/// An attribute that must exist.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MatchAttribute {
    /// Attribute key. Required.
    #[serde(default)]
    pub key: String,
    /// Attribute value: a text, a number or a boolean of the same type. With `match_type: regexp`,
    /// a regular expression, which is matched against the text form of numbers and booleans.
    /// Default: any value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Literal>,
}

/// An instrumentation scope.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LibraryConfig {
    /// Name of the scope. Required.
    #[serde(default)]
    pub name: String,
    /// Version of the scope. Default: any version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// Minimum severity of log records.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SeverityConfig {
    /// Minimum `SeverityNumber` that matches: 9 is INFO, 13 WARN, 17 ERROR. Default: 0.
    pub min: i32,
    /// Whether records without a severity number match. Default: false.
    pub match_undefined: bool,
}

impl MatchConfig {
    /// Validates the properties at `key` of the configuration.
    pub(in crate::processors) fn validate(&self, key: &str, problems: &mut Problems) {
        self.validate_at(&[key], problems);
    }

    /// Validates the properties at `path` of the configuration.
    pub(in crate::processors) fn validate_at(&self, path: &[&str], problems: &mut Problems) {
        let at = |key: &[&'static str]| -> Vec<String> {
            path.iter()
                .chain(key)
                .map(|step| (*step).to_owned())
                .collect()
        };
        let mut found: Vec<(Vec<String>, String)> = Vec::new();
        if self.match_type.is_none() {
            found.push((
                at(&["match_type"]),
                "is required: strict or regexp".to_owned(),
            ));
        }
        if !self.says_anything() {
            let message = "must have at least one property to match, such as `services`";
            found.push((at(&[]), message.to_owned()));
        }
        let patterns = self.match_type == Some(MatchType::Regexp);
        for (key, texts) in self.texts() {
            for (position, text) in texts.iter().enumerate() {
                let mut path = at(&[key]);
                path.push(position.to_string());
                if let Err(reason) = check(text, patterns) {
                    found.push((path, reason));
                }
            }
        }
        for (position, library) in self.libraries.iter().enumerate() {
            for (key, text) in [
                ("name", Some(&library.name)),
                ("version", library.version.as_ref()),
            ] {
                let mut path = at(&["libraries"]);
                path.extend([position.to_string(), key.to_owned()]);
                if let Some(Err(reason)) = text.map(|text| check(text, patterns)) {
                    found.push((path, reason));
                }
            }
        }
        if !patterns {
            for (position, kind) in self.span_kinds.iter().enumerate() {
                if !KINDS.contains(&kind.as_str()) {
                    let mut path = at(&["span_kinds"]);
                    path.push(position.to_string());
                    found.push((
                        path,
                        format!("is not a span kind; use one of: {}", KINDS.join(", ")),
                    ));
                }
            }
        }
        for (key, attributes) in [
            ("attributes", &self.attributes),
            ("resources", &self.resources),
        ] {
            for (position, attribute) in attributes.iter().enumerate() {
                if let Err((place, reason)) = attribute.check(patterns) {
                    let mut path = at(&[key]);
                    path.extend([position.to_string(), place.to_owned()]);
                    found.push((path, reason));
                }
            }
        }
        for (path, message) in found {
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            problems.error(&path, message);
        }
    }

    fn texts(&self) -> [(&'static str, &[String]); 6] {
        [
            ("services", &self.services),
            ("span_names", &self.span_names),
            ("span_kinds", &self.span_kinds),
            ("log_bodies", &self.log_bodies),
            ("log_severity_texts", &self.log_severity_texts),
            ("metric_names", &self.metric_names),
        ]
    }

    fn says_anything(&self) -> bool {
        let of_lists = self.texts().iter().any(|(_, texts)| !texts.is_empty());
        of_lists
            || self.log_severity_number.is_some()
            || !(self.attributes.is_empty()
                && self.resources.is_empty()
                && self.libraries.is_empty())
    }

    /// Rejects properties that do not exist in a pipeline of this signal.
    pub(in crate::processors) fn check_signal(
        &self,
        key: &str,
        signal: Signal,
    ) -> Result<(), BuildError> {
        match self.out_of_place(signal).next() {
            Some(property) => Err(BuildError(format!(
                "`{key}.{property}` {}",
                no_meaning(signal)
            ))),
            None => Ok(()),
        }
    }

    /// Reports the properties at `path` that do not exist in a pipeline of this signal.
    pub(in crate::processors) fn validate_for(
        &self,
        path: &[&str],
        signal: Signal,
        problems: &mut Problems,
    ) {
        for property in self.out_of_place(signal) {
            let path: Vec<&str> = path.iter().copied().chain([property]).collect();
            problems.error(&path, no_meaning(signal));
        }
    }

    fn out_of_place(&self, signal: Signal) -> impl Iterator<Item = &'static str> {
        let traces = signal == Signal::Traces;
        let logs = signal == Signal::Logs;
        let metrics = signal == Signal::Metrics;
        let properties = [
            ("span_names", !self.span_names.is_empty(), traces),
            ("span_kinds", !self.span_kinds.is_empty(), traces),
            ("log_bodies", !self.log_bodies.is_empty(), logs),
            (
                "log_severity_texts",
                !self.log_severity_texts.is_empty(),
                logs,
            ),
            (
                "log_severity_number",
                self.log_severity_number.is_some(),
                logs,
            ),
            ("metric_names", !self.metric_names.is_empty(), metrics),
            ("attributes", !self.attributes.is_empty(), !metrics),
        ];
        let wrong = properties
            .into_iter()
            .filter(|(_, given, allowed)| *given && !allowed);
        wrong.map(|(property, ..)| property)
    }
}

fn no_meaning(signal: Signal) -> String {
    format!("is not supported for {signal}: use a separate processor for {signal}")
}

/// Names of span kinds, at the index of their number less one.
pub(super) const KINDS: [&str; 5] = [
    "SPAN_KIND_INTERNAL",
    "SPAN_KIND_SERVER",
    "SPAN_KIND_CLIENT",
    "SPAN_KIND_PRODUCER",
    "SPAN_KIND_CONSUMER",
];

fn check(text: &str, is_pattern: bool) -> Result<(), String> {
    match is_pattern.then(|| re2::compile(text)) {
        Some(Err(wrong)) => Err(wrong.to_string()),
        _ => Ok(()),
    }
}

impl MatchAttribute {
    /// Returns the key of the first invalid property and the reason.
    pub(in crate::processors) fn check(
        &self,
        patterns: bool,
    ) -> Result<(), (&'static str, String)> {
        if self.key.is_empty() {
            return Err(("key", "is required: the attribute to compare".to_owned()));
        }
        match &self.value {
            Some(Literal::List(_) | Literal::Map(_)) => {
                let message = "is not supported: use a string, a number or a boolean";
                Err(("value", message.to_owned()))
            }
            Some(Literal::Text(text)) => check(text, patterns).map_err(|reason| ("value", reason)),
            Some(_) if patterns => {
                let message =
                    "must be a regular expression in quotes, because `match_type` is `regexp`";
                Err(("value", message.to_owned()))
            }
            _ => Ok(()),
        }
    }
}
