//! The `headers` key: what is added to every request.

use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::config::{Problems, Secret, Validate};

/// Headers as a map of name to value, or as a list of `name` and `value`; both are the Collector's. Values never show.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Headers(Vec<(String, Secret)>);

impl Headers {
    /// The headers for a request. Those that [`Validate`] refuses are left out.
    pub fn to_map(&self) -> HeaderMap {
        let valid = self.0.iter().filter_map(|(name, value)| {
            let mut value = HeaderValue::from_str(value.reveal()).ok()?;
            value.set_sensitive(true);
            Some((HeaderName::from_bytes(name.as_bytes()).ok()?, value))
        });
        valid.collect()
    }
}

impl Validate for Headers {
    fn validate(&self, problems: &mut Problems) {
        for (name, value) in &self.0 {
            if HeaderName::from_bytes(name.as_bytes()).is_err() {
                problems.error(&[name], format!("\"{name}\" is not a header name"));
            } else if HeaderValue::from_str(value.reveal()).is_err() {
                problems.error(&[name], "the value has characters that no header may have");
            }
        }
    }
}

impl Serialize for Headers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Headers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(HeadersVisitor)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pair {
    name: String,
    value: Secret,
}

struct HeadersVisitor;

impl<'de> Visitor<'de> for HeadersVisitor {
    type Value = Headers;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of header names to values, or a list of {name, value}")
    }

    fn visit_unit<E>(self) -> Result<Headers, E> {
        Ok(Headers::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Headers, A::Error> {
        let mut headers = Vec::new();
        while let Some(pair) = map.next_entry()? {
            headers.push(pair);
        }
        Ok(Headers(headers))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Headers, A::Error> {
        let mut headers = Vec::new();
        while let Some(Pair { name, value }) = seq.next_element()? {
            headers.push((name, value));
        }
        Ok(Headers(headers))
    }
}

impl JsonSchema for Headers {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Headers".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Headers: a map of name to value, or a list of name and value.",
            "anyOf": [
                {"type": "object", "additionalProperties": {"type": "string"}},
                {"type": "array", "items": {
                    "type": "object",
                    "properties": {"name": {"type": "string"}, "value": {"type": "string"}},
                    "required": ["name", "value"],
                    "additionalProperties": false
                }}
            ]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_are_read_and_values_stay_secret() {
        for yaml in ["{a: x, b: y}", "[{name: a, value: x}, {name: b, value: y}]"] {
            let headers: Headers = serde_yaml::from_str(yaml).unwrap();
            let map = headers.to_map();
            assert_eq!(
                (map["a"].as_bytes(), map["b"].as_bytes()),
                (&b"x"[..], &b"y"[..])
            );
            assert!(!format!("{headers:?} {map:?}").contains('x'));
            assert!(!serde_yaml::to_string(&headers).unwrap().contains('x'));
        }
    }

    #[test]
    fn what_cannot_be_a_header_is_reported() {
        let headers: Headers = serde_yaml::from_str("{'a b': x, c: \"y\\nz\"}").unwrap();
        let mut problems = Problems::default();
        headers.validate(&mut problems);
        assert_eq!(problems.found().len(), 2);
        assert!(headers.to_map().is_empty());
    }
}
