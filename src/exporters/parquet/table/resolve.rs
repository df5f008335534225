//! The dictionary of a profiles request, and the entries already copied into a table.
//!
//! An invalid index means no entry, like index 0.

use opentelemetry_proto::tonic::common::v1 as common;
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;

use super::read::{bytes, fields, number};
use super::text;
use tributary_otlp::reader::{Value, varint};
use tributary_otlp::view::{AnyValue, Message, View as _};
use tributary_profiles::entries::Entries;
use tributary_profiles::references::References;

/// The tables of a request's dictionary.
#[derive(Debug)]
pub(super) struct Dictionary<'r> {
    pub(super) entries: Entries<'r>,
}

pub(super) struct Attribute<'r> {
    pub(super) key: &'r [u8],
    /// An encoded `AnyValue` without references.
    pub(super) value: std::borrow::Cow<'r, [u8]>,
    pub(super) unit: &'r [u8],
}

impl<'r> Dictionary<'r> {
    pub(super) fn string(&self, index: i32) -> &'r [u8] {
        get(&self.entries.strings, index)
    }

    pub(super) fn value_type(&self, value_type: &[u8]) -> (&'r [u8], &'r [u8]) {
        let (mut kind, mut unit) = (0, 0);
        for (field, value) in fields(value_type).map_while(Result::ok) {
            match field {
                1 => kind = index(value),
                2 => unit = index(value),
                _ => {}
            }
        }
        (self.string(kind), self.string(unit))
    }

    /// Returns the trace id and the span id of a link.
    pub(super) fn link(&self, at: i32) -> (&'r [u8], &'r [u8]) {
        let (mut trace, mut span) = (&[][..], &[][..]);
        for (field, value) in fields(get(&self.entries.links, at)).map_while(Result::ok) {
            match field {
                1 => trace = bytes(value),
                2 => span = bytes(value),
                _ => {}
            }
        }
        (trace, span)
    }

    pub(super) fn attribute(&self, at: i32) -> Option<Attribute<'r>> {
        let entry = *self.entries.attributes.get(usize::try_from(at).ok()?)?;
        if at == 0 {
            return None;
        }
        let (mut key, mut value, mut unit) = (0, &[][..], 0);
        for (field, bits) in fields(entry).map_while(Result::ok) {
            match field {
                1 => key = index(bits),
                2 => value = bytes(bits),
                3 => unit = index(bits),
                _ => {}
            }
        }
        Some(Attribute {
            key: self.string(key),
            value: self.value(value),
            unit: self.string(unit),
        })
    }

    /// Returns a value with its string references resolved.
    fn value<'v>(&self, value: &'v [u8]) -> std::borrow::Cow<'v, [u8]> {
        match AnyValue::view(Message::new(value)) {
            AnyValue::StringIndex(at) => {
                let text = self.string(at);
                let text = String::from_utf8_lossy(text).into_owned();
                let value = common::any_value::Value::StringValue(text);
                let value = common::AnyValue { value: Some(value) };
                value.encode_to_vec().into()
            }
            AnyValue::Array(_) | AnyValue::Map(_) => {
                let mut references = References::new(&self.entries.strings);
                let decoded = common::AnyValue::decode(value).unwrap_or_default();
                match references.resolved(&decoded) {
                    Ok(std::borrow::Cow::Owned(value)) => value.encode_to_vec().into(),
                    _ => value.into(),
                }
            }
            _ => value.into(),
        }
    }

    pub(super) fn resource(&self, resource: &[u8]) -> Vec<u8> {
        let mut decoded = Resource::decode(resource).unwrap_or_default();
        let mut references = References::new(&self.entries.strings);
        match references.resolve(&mut decoded.attributes) {
            Ok(()) => decoded.encode_to_vec(),
            Err(_) => resource.to_vec(),
        }
    }

    /// Returns a scope with its string references resolved.
    pub(super) fn scope(&self, scope: &[u8]) -> Vec<u8> {
        let mut decoded = common::InstrumentationScope::decode(scope).unwrap_or_default();
        let mut references = References::new(&self.entries.strings);
        match references.resolve(&mut decoded.attributes) {
            Ok(()) => decoded.encode_to_vec(),
            Err(_) => scope.to_vec(),
        }
    }

    /// Writes attributes as JSON, except the attributes with a column.
    pub(super) fn json(&self, indices: &[i32], left_out: &[&str], output: &mut Vec<u8>) {
        output.push(b'{');
        let mut is_first = true;
        for attribute in indices.iter().filter_map(|at| self.attribute(*at)) {
            let key = str::from_utf8(attribute.key).unwrap_or_default();
            if left_out.contains(&key) {
                continue;
            }
            if !std::mem::take(&mut is_first) {
                output.push(b',');
            }
            text::quote(key, output);
            output.push(b':');
            text::put_json(&AnyValue::view(Message::new(&attribute.value)), output);
            if !attribute.unit.is_empty() {
                output.push(b',');
                text::quote(&format!("{key}.unit"), output);
                output.push(b':');
                text::quote(str::from_utf8(attribute.unit).unwrap_or_default(), output);
            }
        }
        output.push(b'}');
    }

    /// Returns one of the attributes as text.
    pub(super) fn text_of(&self, indices: &[i32], key: &str) -> Option<Vec<u8>> {
        let mut attributes = indices.iter().filter_map(|at| self.attribute(*at));
        let found = attributes.find(|attribute| attribute.key == key.as_bytes())?;
        let mut output = Vec::new();
        text::put(&AnyValue::view(Message::new(&found.value)), &mut output);
        Some(output)
    }
}

/// Returns the entry of a table; empty for index 0.
pub(super) fn get<'r>(table: &[&'r [u8]], index: i32) -> &'r [u8] {
    match usize::try_from(index) {
        Ok(0) | Err(_) => &[],
        Ok(at) => table.get(at).copied().unwrap_or_default(),
    }
}

/// Returns an index: the lower 32 bits of the integer.
pub(super) fn index(value: Value<'_>) -> i32 {
    (number(value) as u32).cast_signed()
}

/// Calls `each` with indices, packed or not.
pub(super) fn indices(value: Value<'_>, mut each: impl FnMut(i32)) {
    varints(value, |value| each((value as u32).cast_signed()));
}

/// Calls `each` with integers, packed or not.
pub(super) fn varints(value: Value<'_>, mut each: impl FnMut(u64)) {
    match value {
        Value::Bytes(mut packed) => {
            while !packed.is_empty() {
                let Ok((value, rest)) = varint(packed) else {
                    return;
                };
                each(value);
                packed = rest;
            }
        }
        value => each(number(value)),
    }
}
