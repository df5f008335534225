//! What the readers of all signals share.

use crate::wire::Malformed;
use crate::wire::reader::{Fault, Fields, Value};

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

/// A scalar's bits.
#[inline]
pub(super) fn number(value: Value<'_>) -> u64 {
    match value {
        Value::Varint(value) | Value::Fixed64(value) => value,
        Value::Fixed32(value) => value.into(),
        Value::Bytes(_) => 0,
    }
}

/// A string, bytes or a message.
#[inline]
pub(super) fn bytes(value: Value<'_>) -> &[u8] {
    value.bytes().unwrap_or_default()
}

/// An id of that length; none where there is none or it has another length, which [`odd`] tells.
#[inline]
pub(super) fn id<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    bytes.try_into().ok()
}

/// Whether an id has a length that the column does not take. It becomes an attribute.
#[inline]
pub(super) fn odd<const N: usize>(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.len() != N
}

/// Nanoseconds since 1970 as a timestamp; none for 0. Times after 2262 become those before 1970, with the same bits.
#[inline]
pub(super) fn time(nanoseconds: u64) -> Option<i64> {
    (nanoseconds != 0).then_some(nanoseconds.cast_signed())
}
