//! Resolves references from attributes into the dictionary's strings (since OTLP 1.10): keys by
//! `key_strindex`, string values by `string_value_strindex`.
//!
//! References are resolved when a message is read, because many readers do not support references,
//! and after a merge the references would point into the wrong dictionary.

use std::borrow::Cow;

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};

use super::fault::{DictionaryTable, ProfileFault};
pub use crate::fault::LIMIT;

/// Strings of a message, for resolving references.
#[derive(Debug)]
pub struct References<'s, S = String> {
    strings: &'s [S],
    left: usize,
}

impl<'s, S: AsRef<[u8]>> References<'s, S> {
    /// Creates a resolver for references into these strings.
    pub fn new(strings: &'s [S]) -> Self {
        References {
            strings,
            left: LIMIT,
        }
    }

    /// Returns the value with its references resolved.
    ///
    /// # Errors
    /// Fails if there is no such string, or the strings exceed the limit.
    pub fn resolved<'v>(&mut self, value: &'v AnyValue) -> Result<Cow<'v, AnyValue>, ProfileFault> {
        if !refers(value) {
            return Ok(Cow::Borrowed(value));
        }
        let mut value = value.clone();
        self.resolve_nested(&mut value)?;
        Ok(Cow::Owned(value))
    }

    /// Resolves the references in attributes. If an attribute has both a key and a reference, the key stays.
    ///
    /// # Errors
    /// Fails if there is no such string, or the strings exceed the limit.
    pub fn resolve(&mut self, attributes: &mut [KeyValue]) -> Result<(), ProfileFault> {
        for attribute in attributes {
            if attribute.key_strindex != 0 {
                if attribute.key.is_empty() {
                    attribute.key = self.string(attribute.key_strindex)?;
                }
                attribute.key_strindex = 0;
            }
            if let Some(value) = &mut attribute.value {
                self.resolve_nested(value)?;
            }
        }
        Ok(())
    }

    /// Resolves the references in a value.
    ///
    /// # Errors
    /// Fails if there is no such string, or the strings exceed the limit.
    pub fn resolve_value(&mut self, value: &mut AnyValue) -> Result<(), ProfileFault> {
        // Most values have no references.
        match refers(value) {
            true => self.resolve_nested(value),
            false => Ok(()),
        }
    }

    fn resolve_nested(&mut self, value: &mut AnyValue) -> Result<(), ProfileFault> {
        match &mut value.value {
            Some(Value::StringValueStrindex(index)) => {
                value.value = Some(Value::StringValue(self.string(*index)?));
            }
            Some(Value::ArrayValue(array)) => {
                for value in &mut array.values {
                    self.resolve_nested(value)?;
                }
            }
            Some(Value::KvlistValue(list)) => self.resolve(&mut list.values)?,
            _ => {}
        }
        Ok(())
    }

    fn string(&mut self, index: i32) -> Result<String, ProfileFault> {
        if index == 0 {
            return Ok(String::new());
        }
        let table = DictionaryTable::String;
        let string = usize::try_from(index)
            .ok()
            .and_then(|at| self.strings.get(at))
            .ok_or(ProfileFault::Dangling { table, index })?
            .as_ref();
        self.left = self
            .left
            .checked_sub(string.len())
            .ok_or(ProfileFault::Expansion)?;
        let string = str::from_utf8(string).map_err(|_| ProfileFault::Malformed("a string"))?;
        Ok(string.to_owned())
    }
}

fn refers(value: &AnyValue) -> bool {
    match &value.value {
        Some(Value::StringValueStrindex(_)) => true,
        Some(Value::ArrayValue(array)) => array.values.iter().any(refers),
        Some(Value::KvlistValue(list)) => list
            .values
            .iter()
            .any(|entry| entry.key_strindex != 0 || entry.value.as_ref().is_some_and(refers)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::common::v1::{ArrayValue, KeyValueList};

    use super::*;

    fn any(value: Value) -> AnyValue {
        AnyValue { value: Some(value) }
    }

    fn attribute(key: &str, key_strindex: i32, value: Value) -> KeyValue {
        KeyValue {
            key: key.to_owned(),
            key_strindex,
            value: Some(any(value)),
        }
    }

    #[test]
    fn references_are_resolved_at_every_depth() {
        let strings = ["", "key", "value"].map(str::to_owned);
        let nested = |inner: Value, key: &str, index| {
            Value::ArrayValue(ArrayValue {
                values: vec![
                    any(inner.clone()),
                    any(Value::KvlistValue(KeyValueList {
                        values: vec![attribute(key, index, inner)],
                    })),
                    any(Value::IntValue(2)),
                ],
            })
        };
        let text = || Value::StringValue("value".to_owned());
        let mut attributes = [
            attribute("", 1, Value::StringValueStrindex(2)),
            attribute("both", 1, nested(Value::StringValueStrindex(2), "", 1)),
        ];
        References::new(&strings).resolve(&mut attributes).unwrap();
        let expected = [
            attribute("key", 0, text()),
            attribute("both", 0, nested(text(), "key", 0)),
        ];
        assert_eq!(attributes, expected);
        let untouched = any(nested(text(), "key", 0));
        assert!(matches!(
            References::new(&strings).resolved(&untouched).unwrap(),
            Cow::Borrowed(_)
        ));
    }

    #[test]
    fn dangling_reference_is_an_error() {
        let strings = [String::new()];
        for index in [1, -1, i32::MIN] {
            let value = any(Value::StringValueStrindex(index));
            let table = DictionaryTable::String;
            assert_eq!(
                References::new(&strings).resolved(&value).unwrap_err(),
                ProfileFault::Dangling { table, index }
            );
            let mut attributes = [attribute("", index, Value::BoolValue(true))];
            assert!(References::new(&strings).resolve(&mut attributes).is_err());
        }
        let zero = any(Value::StringValueStrindex(0));
        let empty = any(Value::StringValue(String::new()));
        assert_eq!(
            References::new(&strings)
                .resolved(&zero)
                .unwrap()
                .into_owned(),
            empty
        );
    }

    #[test]
    fn repeated_long_string_is_refused() {
        let strings = [String::new(), "x".repeat(1 << 20)];
        let mut attributes = vec![attribute("key", 0, Value::StringValueStrindex(1)); 65];
        let mut references = References::new(&strings);
        assert_eq!(
            references.resolve(&mut attributes),
            Err(ProfileFault::Expansion)
        );
    }
}
