//! What the readers of all signals share.

use tributary_otlp::Malformed;
use tributary_otlp::reader::{Fault, Fields, Value};

/// A fault somewhere in a message.
pub(super) fn malformed(fault: Fault) -> Malformed {
    Malformed::new(0, fault.text())
}

/// The fields of a message, as numbers and values.
#[inline]
pub(super) fn fields(message: &[u8]) -> impl Iterator<Item = Result<(u32, Value<'_>), Malformed>> {
    Fields::new(message).map(|field| match field {
        Ok(field) => Ok((field.number, field.value)),
        Err(fault) => Err(malformed(fault)),
    })
}

/// The messages of a repeated field.
#[inline]
pub(super) fn each(message: &[u8], number: u32) -> impl Iterator<Item = &[u8]> + Clone {
    Fields::new(message)
        .map_while(Result::ok)
        .filter(move |field| field.number == number)
        .filter_map(|field| field.value.bytes())
}

/// The messages of a repeated field, as far as there is no fault.
#[inline]
pub(super) fn messages(
    message: &[u8],
    number: u32,
) -> impl Iterator<Item = Result<&[u8], Malformed>> {
    fields(message).filter_map(move |field| match field {
        Ok((of, value)) => (of == number).then_some(Ok(bytes(value))),
        Err(fault) => Some(Err(fault)),
    })
}

/// What the entries of resources and those of scopes begin with: the resource or scope, and its schema URL.
pub(super) fn head(entry: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    let (mut origin, mut schema_url) = (&[][..], &[][..]);
    for field in fields(entry) {
        match field? {
            (1, value) => origin = bytes(value),
            (3, value) => schema_url = bytes(value),
            _ => {}
        }
    }
    Ok((origin, schema_url))
}

/// A scalar's bits.
#[inline]
pub(super) fn number(value: Value<'_>) -> u64 {
    match value {
        Value::Varint(value) | Value::Fixed64(value) => value,
        Value::Fixed32(value) => value.into(),
        Value::Bytes(_) => 0,
    }
}

/// The numbers of a repeated `fixed64` or `double`, packed or not, as their bits.
pub(super) fn fixed64s(value: Value<'_>, each: impl FnMut(u64)) {
    match value {
        Value::Bytes(packed) => {
            let values = packed.as_chunks::<8>().0.iter();
            values
                .map(|bytes| u64::from_le_bytes(*bytes))
                .for_each(each);
        }
        value => std::iter::once(number(value)).for_each(each),
    }
}

/// A string, bytes or a message.
#[inline]
pub(super) fn bytes(value: Value<'_>) -> &[u8] {
    value.bytes().unwrap_or_default()
}

/// Nanoseconds since 1970 as a timestamp; none for 0. Times after 2262 become those before 1970, with the same bits.
#[inline]
pub(super) fn time(nanoseconds: u64) -> Option<i64> {
    (nanoseconds != 0).then_some(nanoseconds.cast_signed())
}
