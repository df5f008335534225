//! Resources, scopes, attributes and their values.

use super::message::{Each, Message, View, scalar, text, view};
use crate::reader::Value;

view! {
    /// A resource: the source of telemetry.
    Resource {
        /// Attributes that describe the resource.
        attributes: each<Attribute> = 1;
        /// Number of attributes that the application dropped before export.
        dropped_attributes_count: uint32 = 2;
        /// Entities of the resource.
        entity_refs: each<EntityRef> = 3;
    }
}

view! {
    /// An entity of a resource, as a selection of the resource's attributes.
    EntityRef {
        /// The schema of the entity.
        schema_url: text = 1;
        /// Type of the entity, such as `host`.
        kind: text = 2;
        /// Keys of the identifying attributes.
        id_keys: texts = 3;
        /// Keys of the describing attributes.
        description_keys: texts = 4;
    }
}

view! {
    /// An instrumentation scope.
    Scope {
        /// Name of the scope.
        name: text = 1;
        /// Version of the scope.
        version: text = 2;
        /// Attributes that describe the scope.
        attributes: each<Attribute> = 3;
        /// Number of attributes that the application dropped before export.
        dropped_attributes_count: uint32 = 4;
    }
}

view! {
    /// A key and its value.
    Attribute {
        /// The key.
        key: text = 1;
        /// The value; may be missing.
        value: one<AnyValue> = 2;
        /// In profiles, index of the key in the dictionary's string table.
        key_strindex: int32 = 3;
    }
}

impl<'a> Attribute<'a> {
    /// Returns the key without checking UTF-8, which validation has checked.
    #[inline]
    pub fn key_bytes(&self) -> &'a [u8] {
        match plain_key(self.message().encoded()) {
            Some(key) => key,
            None => self.message().bytes(1),
        }
    }
}

/// Returns the key of an attribute that consists of one key and one value, in this order, without reading the
/// value.
#[inline]
fn plain_key(attribute: &[u8]) -> Option<&[u8]> {
    let [0x0a, key_len @ 0..0x80, rest @ ..] = attribute else {
        return None;
    };
    let (key, rest) = rest.split_at_checked(usize::from(*key_len))?;
    let value_len = match rest {
        [0x12, len @ 0..0x80, ..] => 2 + usize::from(*len),
        [0x12, low, high @ 1..0x80, ..] => 3 + (usize::from(*low & 0x7f) | usize::from(*high) << 7),
        _ => return None,
    };
    (rest.len() == value_len).then_some(key)
}

/// A set of attributes.
pub type Attributes<'a> = Each<'a, Attribute<'a>>;

/// Returns the value of an attribute in a set.
pub fn attribute<'a>(mut attributes: Attributes<'a>, key: &str) -> Option<AnyValue<'a>> {
    attributes
        .find(|attribute| attribute.key_bytes() == key.as_bytes())
        .and_then(|attribute| attribute.value())
}

/// A value.
#[derive(Debug, Clone)]
pub enum AnyValue<'a> {
    /// No value.
    Empty,
    /// A text.
    String(&'a str),
    /// A boolean.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Double(f64),
    /// A list of values.
    Array(Each<'a, AnyValue<'a>>),
    /// Values by key.
    Map(Attributes<'a>),
    /// Bytes.
    Bytes(&'a [u8]),
    /// In profiles, index of a text in the dictionary's string table.
    StringIndex(i32),
}

impl<'a> View<'a> for AnyValue<'a> {
    /// Reads the last member of the `oneof`.
    fn view(message: Message<'a>) -> Self {
        let members = message
            .values()
            .filter(|(number, _)| (1..=8).contains(number));
        match members.last() {
            Some((1, Value::Bytes(bytes))) => AnyValue::String(text(bytes)),
            Some((2, value)) => AnyValue::Bool(scalar(value) != 0),
            Some((3, value)) => AnyValue::Int(scalar(value).cast_signed()),
            Some((4, value)) => AnyValue::Double(f64::from_bits(scalar(value))),
            Some((5, Value::Bytes(list))) => AnyValue::Array(Message::new(list).each(1)),
            Some((6, Value::Bytes(list))) => AnyValue::Map(Message::new(list).each(1)),
            Some((7, Value::Bytes(bytes))) => AnyValue::Bytes(bytes),
            Some((8, value)) => AnyValue::StringIndex((scalar(value) as u32).cast_signed()),
            _ => AnyValue::Empty,
        }
    }
}
