//! Settings of detectors: enabled detectors, and the actions for their hits.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{self, IntoDeserializer, MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize};

use super::catalogue::Detector;

/// A built-in detector and its action: the name alone, or `{name, action}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DetectorConfig {
    /// Name of the detector. Required.
    pub name: Detector,
    /// Action for each hit (default: `mask`).
    pub action: DetectorAction,
}

impl From<Detector> for DetectorConfig {
    fn from(name: Detector) -> Self {
        DetectorConfig {
            name,
            action: DetectorAction::default(),
        }
    }
}

/// A detector defined by the user as a regular expression.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CustomDetectorConfig {
    /// Name of the detector in metrics. Marks of `replace`, `hash` and `hmac` show the name in upper case. At most
    /// 40 lower case letters, digits and `_`; the names of built-in detectors are reserved. Required.
    #[serde(default)]
    pub name: String,
    /// Regular expression in RE2 syntax, like the Collector's. If the expression has a group named `value`, that
    /// group is the hit; otherwise the whole match is the hit. Required.
    #[serde(default)]
    pub regex: String,
    /// Checksum that the digits (for `mod97` also the letters) of a match must satisfy: `luhn`, `mod97` or `none`.
    /// Default: `none`.
    #[serde(default)]
    pub checksum: Checksum,
    /// Action for each hit. Default: `mask`.
    #[serde(default)]
    pub action: DetectorAction,
}

/// Action for the hits of a detector.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DetectorAction {
    /// Replaces the hit with four asterisks.
    #[default]
    Mask,
    /// Replaces the hit with the name of the detector: `[EMAIL]`. Home directories become `~`.
    Replace,
    /// Replaces the hit with a hash made by `hash_function` (`sha3` unless set): `[EMAIL:3f1a...]`. Short numbers
    /// such as card numbers can be recovered from a hash by trial; prefer `hmac`.
    Hash,
    /// Replaces the hit with a hash keyed by `hmac_key`: `[EMAIL:3f1a...]`. Equal values stay equal, and nobody can
    /// test guesses without the key. The function is HMAC-SHA-256, or HMAC-SHA-512 if `hash_function` is
    /// `hmac-sha512`. As with `hash`, hits of built-in detectors are normalized first: numbers lose their
    /// separators, e-mail addresses become lower case.
    Hmac,
    /// Replaces the hit with four asterisks and the last 4 characters of the hit. A hit shorter than 12 characters
    /// becomes four asterisks alone.
    Partial,
    /// Cuts the text off where the hit begins.
    Truncate,
    /// Drops the whole text: the attribute or list entry is removed. A text that cannot be removed becomes empty.
    Drop,
}

/// A checksum that a match must satisfy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Checksum {
    /// No checksum: a match of the pattern is enough.
    #[default]
    None,
    /// Modulo 10 with every second digit doubled (ISO/IEC 7812-1, annex B).
    Luhn,
    /// Modulo 97, letters counting from 10 (ISO/IEC 7064, as in IBANs).
    Mod97,
}

/// A hash function, named as in the Collector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum HashFunction {
    /// MD5, 128 bits. Broken; use only to compare with older data.
    #[serde(rename = "md5")]
    Md5,
    /// SHA-1, 160 bits. Broken; use only to compare with older data.
    #[serde(rename = "sha1")]
    Sha1,
    /// SHA3-256.
    #[serde(rename = "sha3")]
    Sha3,
    /// HMAC-SHA-256 with `hmac_key`, which needs at least 32 bytes.
    #[serde(rename = "hmac-sha256")]
    HmacSha256,
    /// HMAC-SHA-512 with `hmac_key`, which needs at least 64 bytes.
    #[serde(rename = "hmac-sha512")]
    HmacSha512,
}

/// The long form of [`DetectorConfig`].
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NameAndAction {
    /// Name of the detector. Required.
    name: Detector,
    /// Action for each hit. Default: `mask`.
    #[serde(default)]
    action: DetectorAction,
}

/// Short and long form of [`DetectorConfig`], for the schema.
#[derive(JsonSchema)]
#[serde(untagged)]
#[allow(dead_code, reason = "only its schema is used")]
enum Forms {
    /// Name of the detector; hits are masked.
    Name(Detector),
    /// The detector and its action.
    NameAndAction(NameAndAction),
}

impl JsonSchema for DetectorConfig {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "DetectorConfig".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Forms::json_schema(generator)
    }
}

impl<'de> Deserialize<'de> for DetectorConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DetectorVisitor)
    }
}

struct DetectorVisitor;

impl<'de> Visitor<'de> for DetectorVisitor {
    type Value = DetectorConfig;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a detector, or a mapping such as {name: email, action: replace}")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<DetectorConfig, E> {
        Detector::deserialize(text.into_deserializer()).map(DetectorConfig::from)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<DetectorConfig, A::Error> {
        let NameAndAction { name, action } =
            NameAndAction::deserialize(MapAccessDeserializer::new(map))?;
        Ok(DetectorConfig { name, action })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detector_is_read_from_name_or_mapping() {
        let read = |yaml: &str| serde_yaml::from_str::<Vec<DetectorConfig>>(yaml);
        let both = read("[email, {name: jwt, action: hmac}, {name: phone}]").unwrap();
        assert_eq!(
            both,
            [
                DetectorConfig::from(Detector::Email),
                DetectorConfig {
                    name: Detector::Jwt,
                    action: DetectorAction::Hmac
                },
                DetectorConfig::from(Detector::Phone),
            ]
        );
        assert!(read("[emial]").unwrap_err().to_string().contains("emial"));
        assert!(read("[{name: email, acton: mask}]").is_err());
        assert!(read("[1]").is_err());
    }
}
