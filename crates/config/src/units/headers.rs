//! Headers of requests and responses.

use std::borrow::Cow;
use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Secret;

/// Header names with their values, in the order in which they are written.
///
/// Written as a mapping, `{x-tenant: a}`, or as a list, `[{name: x-tenant, value: a}]`. Values are
/// secrets: most of them are. Whether names and values are allowed in HTTP is checked when they are
/// read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Headers(pub Vec<(String, Secret)>);

impl Headers {
    /// Returns names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.reveal()))
    }

    /// Converts the headers for a request or response. Values are marked as sensitive, so that they stay out of logs
    /// and of HPACK's table. Invalid names and values were refused when the configuration was read.
    pub fn to_map(&self) -> HeaderMap {
        let header = |(name, value): (&str, &str)| {
            let mut value = HeaderValue::from_str(value).ok()?;
            value.set_sensitive(true);
            Some((HeaderName::from_bytes(name.as_bytes()).ok()?, value))
        };
        self.iter().filter_map(header).collect()
    }

    /// Whether there are no headers.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    name: Name,
    #[serde(default)]
    value: Value,
}

#[derive(Deserialize)]
#[serde(try_from = "String")]
struct Name(String);

#[derive(Default)]
struct Value(Secret);

impl TryFrom<String> for Name {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        match HeaderName::from_bytes(name.as_bytes()) {
            Ok(_) => Ok(Name(name)),
            Err(_) => Err(format!("`{name}` is not a header name")),
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Option::<Secret>::deserialize(deserializer)?.unwrap_or_default();
        match HeaderValue::from_str(value.reveal()) {
            Ok(_) => Ok(Value(value)),
            Err(_) => Err(de::Error::custom(
                "the value of a header must be one line of visible ASCII characters",
            )),
        }
    }
}

impl<'de> Deserialize<'de> for Headers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(HeadersVisitor)
    }
}

struct HeadersVisitor;

impl<'de> Visitor<'de> for HeadersVisitor {
    type Value = Headers;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping of names to values, or a list of `{name, value}`")
    }

    /// Accepts an empty text, which is an empty list in the comma-separated form of lists.
    fn visit_str<E: de::Error>(self, text: &str) -> Result<Headers, E> {
        match text {
            "" => Ok(Headers::default()),
            _ => Err(E::invalid_type(de::Unexpected::Other("text"), &self)),
        }
    }

    fn visit_unit<E: de::Error>(self) -> Result<Headers, E> {
        Ok(Headers::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Headers, A::Error> {
        let mut headers = Vec::new();
        while let Some(name) = map.next_key::<Name>()? {
            headers.push((name.0, map.next_value::<Value>()?.0));
        }
        Ok(Headers(headers))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Headers, A::Error> {
        let mut headers = Vec::new();
        while let Some(header) = list.next_element::<Header>()? {
            headers.push((header.name.0, header.value.0));
        }
        Ok(Headers(headers))
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

impl JsonSchema for Headers {
    fn schema_name() -> Cow<'static, str> {
        "Headers".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Header names with their values.",
            "anyOf": [
                {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean", "null"]}},
                {"type": "array", "items": {
                    "type": "object",
                    "properties": {
                        "name": {
                            "type": ["string", "number", "boolean"],
                            "pattern": "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$",
                        },
                        "value": {"type": "string"},
                    },
                    "required": ["name"],
                    "additionalProperties": false,
                }},
                {"type": "null"},
            ],
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
            assert_eq!(headers.iter().collect::<Vec<_>>(), [("a", "x"), ("b", "y")]);
            assert!(!format!("{headers:?}").contains('x'));
            assert!(!serde_yaml::to_string(&headers).unwrap().contains('x'));
        }
    }

    #[test]
    fn invalid_header_is_refused() {
        for yaml in ["{\"a b\": x}", "{a: \"x\\ny\"}", "[{name: \"\", value: x}]"] {
            assert!(serde_yaml::from_str::<Headers>(yaml).is_err(), "{yaml}");
        }
    }
}
