//! Configuration of the `redaction` processor.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::IntoDeserializer;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::sanitizer_config::{DbSanitizerConfig, UrlSanitizerConfig};
use tributary_config::units::Secret;
use tributary_config::{Problems, Validate};
use tributary_otlp::Signal;
use tributary_otlp::strings::{StringLocation, StringLocations};
use tributary_redaction::{
    CustomDetectorConfig, DetectorConfig, HashFunction, Hasher, Pattern, Scanner, ScannerSettings,
    SettingsError,
};

/// Rules and detectors for private data, and the handling of the data they find.
///
/// The keys up to `db_sanitizer` are those of the Collector's redaction processor and mean the same. Without `scan` they
/// act where they act there: on the attributes of resources, scopes, spans, span events, log records and data points,
/// on log bodies, and (the sanitizers) on span names. With `scan` they act in all the places that it lists. Detectors
/// act in all of these places anyway.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Whether attributes that are not in `allowed_keys` are kept. If false, they are removed; with an empty
    /// `allowed_keys`, all attributes are removed. Default: false.
    pub allow_all_keys: bool,
    /// Keys of the attributes to keep if `allow_all_keys` is false. Default: none.
    pub allowed_keys: Vec<String>,
    /// Keys of attributes that are kept unchanged. Neither keys nor detectors apply to them. Default: none.
    pub ignored_keys: Vec<String>,
    /// Regular expressions (RE2) for keys of attributes that are kept unchanged, like `ignored_keys`. Default: none.
    pub ignored_key_patterns: Vec<String>,
    /// Regular expressions (RE2) for keys of attributes whose value is masked. The key stays. Default: none.
    pub blocked_key_patterns: Vec<String>,
    /// Regular expressions (RE2) whose matches in values are masked, one expression after the other in this order.
    /// Default: none.
    pub blocked_values: Vec<String>,
    /// Regular expressions (RE2). A value in which one of them matches anywhere is kept unchanged. Default: none.
    pub allowed_values: Vec<String>,
    /// Whether values that are not strings are scanned in their text form. A value with a hit becomes a string.
    /// Default: false.
    pub redact_all_types: bool,
    /// Hash function. If set, a hash replaces the hits of `blocked_key_patterns` and `blocked_values`; otherwise the
    /// mask `****` does. The actions `hash` and `hmac` of detectors use the function too. Default: none.
    #[serde(
        deserialize_with = "hash_function",
        skip_serializing_if = "Option::is_none"
    )]
    pub hash_function: Option<HashFunction>,
    /// Key of `hmac-sha256` (at least 32 bytes), `hmac-sha512` (at least 64 bytes) and the action `hmac`. Default:
    /// none.
    pub hmac_key: Secret,
    /// Attributes that describe the changes: `debug` writes keys and counts, `info` only counts, `silent` nothing.
    /// Default: `silent`.
    pub summary: SummaryDetail,
    /// Replacement of the variable parts of URLs.
    pub url_sanitizer: UrlSanitizerConfig,
    /// Removal of literals from database queries.
    pub db_sanitizer: DbSanitizerConfig,
    /// Built-in detectors to run: names, or mappings such as `{name: email, action: replace}`. Default: none. (The
    /// Collector has no such key.)
    pub detectors: Vec<DetectorConfig>,
    /// Detectors of your own, each with a regular expression. Default: none. (The Collector has no such key.)
    pub custom: Vec<CustomDetectorConfig>,
    /// Whether detectors also scan text that is percent-encoded, base64-encoded or JSON-escaped, one level deep.
    /// Default: false. (The Collector has no such key.)
    pub decode: bool,
    /// Bytes values that contain OTLP requests, such as bodies of messages read from a queue. They are redacted as
    /// requests. If a value is not a valid request, the whole outer request is refused. Other bytes values are scanned
    /// as text, as far as they are UTF-8. Default: none. (The Collector has no such key.)
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub embedded_otlp: Vec<EmbeddedOtlp>,
    /// Places to scan: names of places, `default` for all places that are not identifiers, or `all`. Default: `default`
    /// for detectors, the Collector's places for the other keys. (The Collector has no such key.)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scan: Option<Vec<Chosen>>,
    /// Handling of fields that this version of OTLP does not define, whose content cannot be scanned: `keep` or `drop`.
    /// A profiles request that is changed always loses its unknown fields. Default: `keep`. (The Collector has no such
    /// key.)
    pub unknown_fields: UnknownFields,
    /// Handling of the original file that a profile was converted from: `drop`, or `redact`, which redacts pprof files
    /// and drops other files. Unless `mode` is `report`, the file is never forwarded unscanned. Default: `drop`. (The
    /// Collector has no such key.)
    pub original_payload: OriginalPayload,
    /// `redact`, or `report`: hits are counted and nothing is changed. Default: `redact`. (The Collector has no such
    /// key.)
    pub mode: RedactionMode,
}

/// A bytes value that is an OTLP request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EmbeddedOtlp {
    /// Key of the attribute, or of the entry of a nested map, whose value is a request or a list of requests. Default:
    /// bodies of log records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Signal of the embedded request. Required.
    pub signal: EmbeddedSignal,
}

/// The signal of a request in a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EmbeddedSignal {
    /// An `ExportTraceServiceRequest`.
    Traces,
    /// An `ExportMetricsServiceRequest`.
    Metrics,
    /// An `ExportLogsServiceRequest`.
    Logs,
    /// An `ExportProfilesServiceRequest`.
    Profiles,
}

impl From<EmbeddedSignal> for Signal {
    fn from(signal: EmbeddedSignal) -> Self {
        match signal {
            EmbeddedSignal::Traces => Signal::Traces,
            EmbeddedSignal::Metrics => Signal::Metrics,
            EmbeddedSignal::Logs => Signal::Logs,
            EmbeddedSignal::Profiles => Signal::Profiles,
        }
    }
}

/// Empty is the Collector's default: none.
fn hash_function<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<HashFunction>, D::Error> {
    match Option::<String>::deserialize(deserializer)?.as_deref() {
        None | Some("") => Ok(None),
        Some(name) => HashFunction::deserialize(name.into_deserializer()).map(Some),
    }
}

/// Level of detail of the summary.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(transform = tributary_config::Aliases(&[""]))]
pub enum SummaryDetail {
    /// Keys and counts.
    Debug,
    /// Counts.
    Info,
    /// Nothing.
    #[default]
    #[serde(alias = "")]
    Silent,
}

/// Handling of unknown fields.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UnknownFields {
    /// Keeps unknown fields.
    #[default]
    Keep,
    /// Removes unknown fields.
    Drop,
}

/// Handling of the original file that a profile was converted from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OriginalPayload {
    /// Removes the file.
    #[default]
    Drop,
    /// Redacts a pprof file like the profile; removes other files.
    Redact,
}

/// Whether anything is changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RedactionMode {
    /// Redacts hits.
    #[default]
    Redact,
    /// Counts hits and changes nothing.
    Report,
}

/// An entry of `scan`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chosen {
    /// All places but identifiers.
    Default,
    /// All places.
    All,
    /// One place.
    One(StringLocation),
}

impl Chosen {
    fn name(self) -> &'static str {
        match self {
            Chosen::Default => "default",
            Chosen::All => "all",
            Chosen::One(place) => place.name(),
        }
    }

    fn has(self, place: StringLocation) -> bool {
        match self {
            Chosen::Default => !place.is_identifier(),
            Chosen::All => true,
            Chosen::One(one) => one == place,
        }
    }
}

impl Serialize for Chosen {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Chosen {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match String::deserialize(deserializer)?.as_str() {
            "default" => Chosen::Default,
            "all" => Chosen::All,
            name => Chosen::One(StringLocation::deserialize(name.into_deserializer())?),
        })
    }
}

impl JsonSchema for Chosen {
    fn schema_name() -> Cow<'static, str> {
        "ScanPlace".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let places = StringLocation::ALL.into_iter().map(StringLocation::name);
        let names: Vec<&str> = ["default", "all"].into_iter().chain(places).collect();
        json_schema!({ "type": "string", "enum": names })
    }
}

impl Config {
    pub(super) fn places(&self) -> StringLocations {
        let all = StringLocation::ALL.into_iter();
        match &self.scan {
            None => StringLocations::contents(),
            Some(chosen) => all
                .filter(|place| chosen.iter().any(|chosen| chosen.has(*place)))
                .collect(),
        }
    }

    pub(super) fn scanner(&self) -> Result<Scanner, SettingsError> {
        Scanner::new(&ScannerSettings {
            detectors: &self.detectors,
            custom: &self.custom,
            hash_function: self.hash_function,
            hmac_key: &self.hmac_key,
            decode: self.decode,
        })
    }
}

impl Validate for Config {
    fn validate(&self, problems: &mut Problems) {
        for (key, patterns) in [
            ("ignored_key_patterns", &self.ignored_key_patterns),
            ("blocked_key_patterns", &self.blocked_key_patterns),
            ("blocked_values", &self.blocked_values),
            ("allowed_values", &self.allowed_values),
        ] {
            for (at, pattern) in patterns.iter().enumerate() {
                if let Err(problem) = Pattern::new(pattern) {
                    problems.error(&[key, &at.to_string()], problem);
                }
            }
        }
        if let Some(function) = self.hash_function
            && let Err(error) = Hasher::new(function, &self.hmac_key)
        {
            problems.error(&["hmac_key"], hmac_problem(&error));
        } else if let Err(error) = self.scanner() {
            match error {
                SettingsError::Custom {
                    position,
                    key,
                    problem,
                } => problems.error(&["custom", &position.to_string(), key], problem),
                error @ SettingsError::Key { .. } => {
                    problems.error(&["hmac_key"], hmac_problem(&error));
                }
                error => problems.error(&["custom"], error.to_string()),
            }
        }
        for (at, entry) in self.embedded_otlp.iter().enumerate() {
            let earlier = self.embedded_otlp.get(..at).unwrap_or_default();
            if earlier.iter().any(|earlier| earlier.key == entry.key) {
                problems.error(
                    &["embedded_otlp", &at.to_string(), "key"],
                    "is listed twice: remove one of the two entries",
                );
            }
        }
        if !self.allow_all_keys && self.allowed_keys.is_empty() {
            problems.warning(
                &["allow_all_keys"],
                "is false and `allowed_keys` is empty, so every attribute is removed: set `allow_all_keys: true` to \
                 keep all attributes",
            );
        }
        if self.scan.as_ref().is_some_and(Vec::is_empty) {
            problems.error(
                &["scan"],
                "must not be empty: list the places to scan, or remove the key to scan all places except identifiers",
            );
        }
    }
}

/// Returns the message without the key's name, because the position names the key.
fn hmac_problem(error: &SettingsError) -> String {
    let text = error.to_string();
    text.strip_prefix("hmac_key ").unwrap_or(&text).to_owned()
}
