//! Parts of JSON decoders: seeds for scalars, and errors without content of the input.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::attributes::Value;
use crate::error::{MalformedSpans, TranslateError};
use crate::memory::Memory;

/// Reads a JSON list, and calls `read` with a seed's value for each element that is not `null`.
pub(crate) fn list<'a, S, V>(
    input: &'a [u8],
    memory: &Memory<'_>,
    seed: impl Fn() -> S,
    mut read: impl FnMut(V) -> Result<(), TranslateError>,
) -> Result<(), TranslateError>
where
    S: DeserializeSeed<'a, Value = V>,
{
    let input = input.strip_prefix(b"\xef\xbb\xbf").unwrap_or(input);
    let is_list = input.trim_ascii_start().starts_with(b"[");
    let mut index = 0;
    let mut failed = None;
    let mut text = serde_json::Deserializer::from_slice(input);
    let elements = Elements {
        seed: || Nullable(seed()),
        each: |value: Option<V>| {
            index += 1;
            let read = value.map_or(Ok(()), &mut read);
            memory.end_span_with_lists();
            read.map_err(|error| failed = Some(error))
        },
    };
    let outcome = elements.deserialize(&mut text).and_then(|()| text.end());
    match (failed, outcome) {
        (Some(error), _) => Err(crate::error::in_span(error, index - 1)),
        (None, Ok(())) => Ok(()),
        (None, Err(_)) if memory.is_full() => Err(tributary_otlp::room::RoomExhausted.into()),
        (None, Err(error)) => Err(TranslateError::Malformed(MalformedSpans {
            span: (is_list && error.is_data()).then_some(index),
            reason: without_value(error.to_string()),
        })),
    }
}

/// Removes the value from serde's message for a wrong type.
fn without_value(reason: String) -> String {
    let mismatch = reason
        .strip_prefix("invalid type: ")
        .or_else(|| reason.strip_prefix("invalid value: "))
        .and_then(|rest| rest.rsplit_once(", expected "));
    let Some((found, expected)) = mismatch else {
        return reason;
    };
    let found = match found.split_whitespace().next() {
        Some("null") => "null",
        Some("boolean") => "a boolean",
        Some("string") => "a string",
        Some("sequence") => "a list",
        Some("map") => "an object",
        _ => "a number",
    };
    let (expected, position) = expected.split_once(" at line ").unwrap_or((expected, "?"));
    format!("expected {expected}, found {found}, at line {position}")
}

/// Reads a list, one element at a time. `each` fails without a reason, which its owner knows.
pub(crate) struct Elements<S, F> {
    pub(crate) seed: S,
    pub(crate) each: F,
}

impl<'de, S, T, F> DeserializeSeed<'de> for Elements<S, F>
where
    S: Fn() -> T,
    T: DeserializeSeed<'de>,
    F: FnMut(T::Value) -> Result<(), ()>,
{
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, S, T, F> Visitor<'de> for Elements<S, F>
where
    S: Fn() -> T,
    T: DeserializeSeed<'de>,
    F: FnMut(T::Value) -> Result<(), ()>,
{
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        while let Some(value) = list.next_element_seed((self.seed)())? {
            (self.each)(value).map_err(|()| A::Error::custom("the element is refused"))?;
        }
        Ok(())
    }
}

/// Reads a value or `null`.
pub(crate) struct Nullable<S>(pub(crate) S);

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Nullable<S> {
    type Value = Option<S::Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de, S: DeserializeSeed<'de>> Visitor<'de> for Nullable<S> {
    type Value = Option<S::Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_none<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        self.0.deserialize(deserializer).map(Some)
    }
}

/// Reads an object. `read` gets each key and reads its value.
pub(crate) struct Object<F>(pub(crate) F);

/// The value of a key that has just been read.
pub(crate) struct Member<'m, A>(&'m mut A);

impl<'de, A: MapAccess<'de>> Member<'_, A> {
    /// Reads the value; `None` for `null`.
    pub(crate) fn read<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        self.0.next_value_seed(Nullable(seed))
    }

    /// Skips the value.
    pub(crate) fn skip(self) -> Result<(), A::Error> {
        self.0.next_value::<IgnoredAny>().map(drop)
    }
}

/// A function that reads the members of an object.
pub(crate) trait ReadMember<'de> {
    fn member<A: MapAccess<'de>>(
        &mut self,
        key: Cow<'de, str>,
        member: Member<'_, A>,
    ) -> Result<(), A::Error>;
}

impl<'de, F: ReadMember<'de>> DeserializeSeed<'de> for Object<(F, &Memory<'_>)> {
    type Value = F;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<F, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, F: ReadMember<'de>> Visitor<'de> for Object<(F, &Memory<'_>)> {
    type Value = F;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<F, A::Error> {
        let Object((mut reader, memory)) = self;
        while let Some(key) = map.next_key_seed(Text(memory))? {
            reader.member(key, Member(&mut map))?;
        }
        Ok(reader)
    }
}

/// Reads a string. Lone surrogates and bytes that are not UTF-8 become U+FFFD.
#[derive(Clone, Copy)]
pub(crate) struct Text<'m, 'r>(pub(crate) &'m Memory<'r>);

impl<'de> DeserializeSeed<'de> for Text<'_, '_> {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_bytes(self)
    }
}

impl<'de> Visitor<'de> for Text<'_, '_> {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_bytes<E: Error>(self, bytes: &'de [u8]) -> Result<Self::Value, E> {
        self.0.text(bytes).map_err(E::custom)
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Self::Value, E> {
        self.0.owned_text(bytes).map(Cow::Owned).map_err(E::custom)
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        self.visit_bytes(text.as_bytes())
    }
}

/// Reads an integer without a fraction.
pub(crate) struct Integer;

impl<'de> DeserializeSeed<'de> for Integer {
    type Value = i128;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<i128, D::Error> {
        deserializer.deserialize_u64(self)
    }
}

impl Visitor<'_> for Integer {
    type Value = i128;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an integer")
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<i128, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<i128, E> {
        Ok(value.into())
    }
}

/// Reads a string, a number or a boolean; `None` for lists and objects.
pub(crate) struct Scalar;

impl<'de> DeserializeSeed<'de> for Scalar {
    type Value = Option<Value<'static>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Scalar {
    type Value = Option<Value<'static>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Some(Value::Bool(value)))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Self::Value, E> {
        Ok(Some(match i64::try_from(value) {
            Ok(value) => Value::Int(value),
            Err(_) => Value::Double(value as f64),
        }))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Self::Value, E> {
        Ok(Some(Value::Int(value)))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Self::Value, E> {
        Ok(Some(Value::Double(value)))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Self::Value, E> {
        Ok(Some(Value::Text(value.to_owned().into())))
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(None)
    }
}
