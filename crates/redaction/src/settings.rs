//! What the user configures: which detectors, and what happens to what they find.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{self, IntoDeserializer, MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize};

use super::catalogue::Detector;

/// A built-in detector and its action: the name alone, or `{name, action}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DetectorConfig {
    /// Which detector. Required.
    pub name: Detector,
    /// What to do with what it finds (`mask`).
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

/// A detector of the user's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CustomDetectorConfig {
    /// Its name in metrics, and in upper case in what `replace`, `hash` and `hmac` write: lower case letters, digits and
    /// `_`, at most 40 of them, and not the name of a built-in detector. Required.
    #[serde(default)]
    pub name: String,
    /// What to find: a regular expression in the syntax of RE2, as the Collector's. If it has a group named `value`,
    /// that group is what is private; otherwise the whole match. Required.
    #[serde(default)]
    pub regex: String,
    /// The checksum that the digits (and for `mod97` letters) of a match must have: `luhn`, `mod97` or `none`.
    #[serde(default)]
    pub checksum: Checksum,
    /// What to do with what it finds.
    #[serde(default)]
    pub action: DetectorAction,
}

/// What happens to what a detector finds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DetectorAction {
    /// Four asterisks stand in its place.
    #[default]
    Mask,
    /// The name of the detector stands in its place: `[EMAIL]`; for home directories `~`.
    Replace,
    /// A hash stands in its place, made with `hash_function` (`sha3` unless set): `[EMAIL:3f1a...]`. Numbers such as
    /// those of cards can be found again by trying: prefer `hmac`.
    Hash,
    /// A hash with the key `hmac_key` stands in its place, so that equal values stay equal and nobody without the key
    /// can try values: `[EMAIL:3f1a...]`. HMAC-SHA-256, or HMAC-SHA-512 if `hash_function` says so. As with `hash`, what
    /// built-in detectors find is brought into one form before: numbers without separators, e-mail addresses in lower case.
    Hmac,
    /// Four asterisks and its last 4 characters stand in its place; asterisks alone if it has fewer than 12.
    Partial,
    /// The text ends where it begins.
    Truncate,
    /// The whole text goes: the attribute or list entry is removed, and a text that must stay becomes empty.
    Drop,
}

/// A checksum over the digits of a match.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Checksum {
    /// None: the pattern decides.
    #[default]
    None,
    /// Modulo 10 with every second digit doubled (ISO/IEC 7812-1, annex B).
    Luhn,
    /// Modulo 97, letters counting from 10 (ISO/IEC 7064, as in IBANs).
    Mod97,
}

/// A hash function: the Collector's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum HashFunction {
    /// MD5, 128 bits. Broken; here for what is compared with older data.
    #[serde(rename = "md5")]
    Md5,
    /// SHA-1, 160 bits. Broken; here for what is compared with older data.
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
    /// Which detector. Required.
    name: Detector,
    /// What to do with what it finds.
    #[serde(default)]
    action: DetectorAction,
}

/// Both forms, for the schema.
#[derive(JsonSchema)]
#[serde(untagged)]
#[allow(dead_code, reason = "only its schema is used")]
enum Forms {
    /// The detector's name; what it finds is masked.
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
    fn a_detector_is_a_name_or_a_mapping() {
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
