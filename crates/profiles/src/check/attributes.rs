//! Checks attributes in the dictionary, in index lists, and of resources and scopes.

use std::collections::HashMap;

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::profiles::v1development as proto;

use super::path::Path;
use super::{Checker, Rule};
use crate::fault::DictionaryTable;
use crate::names;

impl Checker<'_> {
    pub(super) fn attribute(
        &mut self,
        entry: &proto::KeyValueAndUnit,
        zero: bool,
        path: &Path<'_>,
    ) {
        let key = path.field("key_strindex");
        let valid = self.index(DictionaryTable::String, entry.key_strindex, &key);
        self.index(
            DictionaryTable::String,
            entry.unit_strindex,
            &path.field("unit_strindex"),
        );
        if let Some(value) = &entry.value {
            self.value(value, &path.field("value"));
        }
        if zero || !valid {
            return;
        }
        let name = self.text(entry.key_strindex);
        if name.is_empty() {
            self.add(Rule::EmptyKey, &key, || "is the empty string".to_owned());
        }
        if name.starts_with("pprof.scope.") {
            self.add(Rule::ScopeOnly, path, || {
                format!("`{name}` must be an attribute of the scope")
            });
        }
        let value = entry.value.as_ref().and_then(|value| value.value.as_ref());
        self.well_known(name, value, path);
    }

    /// Checks the type and the format of an attribute of the semantic conventions.
    fn well_known(&mut self, name: &str, value: Option<&Value>, path: &Path<'_>) {
        let reference = |index: &i32| {
            usize::try_from(*index)
                .ok()
                .and_then(|at| self.tables.string_table.get(at))
        };
        let text = match value {
            Some(Value::StringValue(text)) => Some(text),
            Some(Value::StringValueStrindex(index)) => reference(index),
            _ => None,
        };
        let expected = match name {
            names::FRAME_TYPE
            | names::BUILD_ID_GNU
            | names::BUILD_ID_GO
            | names::BUILD_ID_HTLHASH
            | names::DOC_URL
            | names::DROP_FRAMES
            | names::KEEP_FRAMES
            | names::DEFAULT_SAMPLE_TYPE => (text.is_some(), "a string"),
            names::HAS_FUNCTIONS
            | names::HAS_FILENAMES
            | names::HAS_LINE_NUMBERS
            | names::HAS_INLINE_FRAMES
            | names::IS_FOLDED => (matches!(value, Some(Value::BoolValue(_))), "a boolean"),
            names::COMMENT | names::SAMPLE_TYPE_ORDER => {
                (matches!(value, Some(Value::ArrayValue(_))), "a list")
            }
            _ => return,
        };
        let text = text.map(String::as_str);
        if let (false, kind) = expected {
            self.add(Rule::AttributeType, path, || {
                format!("`{name}` must be {kind}")
            });
        } else if let Some(id) = text {
            let hexadecimal = |len: std::ops::RangeInclusive<usize>| {
                let digit = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
                len.contains(&id.len()) && id.bytes().all(digit)
            };
            let valid = match name {
                names::BUILD_ID_GNU => hexadecimal(1..=usize::MAX),
                names::BUILD_ID_HTLHASH => hexadecimal(32..=32),
                names::BUILD_ID_GO => !id.is_empty(),
                _ => true,
            };
            if !valid {
                self.add(Rule::BuildIdFormat, path, || {
                    format!("`{name}` is {id:?}, but must be lower-case hexadecimal digits")
                });
            }
        }
    }

    pub(super) fn attribute_indices(&mut self, indices: &[i32], path: &Path<'_>) {
        let mut keys: HashMap<&str, usize> = HashMap::new();
        let tables = self.tables;
        for (at, index) in indices.iter().enumerate() {
            let path = path.at(at);
            if !self.index(DictionaryTable::Attribute, *index, &path) {
                continue;
            }
            if *index == 0 {
                self.add(Rule::NullInList, &path, || "is 0: no attribute".to_owned());
                continue;
            }
            let key = usize::try_from(*index)
                .ok()
                .and_then(|at| tables.attribute_table.get(at))
                .and_then(|entry| usize::try_from(entry.key_strindex).ok())
                .and_then(|at| tables.string_table.get(at));
            let Some(key) = key.filter(|_| indices.len() > 1) else {
                continue;
            };
            if let Some(first) = keys.insert(key, at) {
                self.add(Rule::DuplicateKey, &path, || {
                    format!("the key `{key}` is also at position {first}")
                });
            }
        }
    }

    /// Checks the attributes of a resource or scope, or a list of keys and values.
    pub(super) fn key_values(&mut self, attributes: &[KeyValue], scope: bool, path: &Path<'_>) {
        let mut keys: HashMap<String, usize> = HashMap::new();
        for (at, attribute) in attributes.iter().enumerate() {
            let path = path.at(at);
            let reference = path.field("key_strindex");
            let valid = self.index(DictionaryTable::String, attribute.key_strindex, &reference);
            if attribute.key_strindex != 0 && !attribute.key.is_empty() {
                self.add(Rule::KeyAndReference, &path, || {
                    format!("has both a key, `{}`, and a key reference", attribute.key)
                });
            }
            let key = match attribute.key.as_str() {
                "" => self.text(attribute.key_strindex),
                key => key,
            };
            let key = key.to_owned();
            if key.is_empty() && valid {
                self.add(Rule::EmptyKey, &path, || "has no key".to_owned());
            }
            if !scope && key.starts_with("pprof.scope.") {
                self.add(Rule::ScopeOnly, &path, || {
                    format!("`{key}` must be an attribute of the scope")
                });
            }
            if let Some(value) = &attribute.value {
                self.value(value, &path.field("value"));
                if scope {
                    self.well_known(&key, value.value.as_ref(), &path);
                }
            }
            if !key.is_empty()
                && let Some(first) = keys.insert(key, at)
            {
                self.add(Rule::DuplicateKeyValue, &path, || {
                    format!("has the key of position {first}")
                });
            }
        }
    }

    fn value(&mut self, value: &AnyValue, path: &Path<'_>) {
        match &value.value {
            Some(Value::StringValueStrindex(index)) => {
                let field = path.field("string_value_strindex");
                self.index(DictionaryTable::String, *index, &field);
            }
            Some(Value::ArrayValue(array)) => {
                let path = path.field("array_value.values");
                for (at, value) in array.values.iter().enumerate() {
                    self.value(value, &path.at(at));
                }
            }
            Some(Value::KvlistValue(list)) => {
                self.key_values(&list.values, true, &path.field("kvlist_value.values"));
            }
            _ => {}
        }
    }
}
