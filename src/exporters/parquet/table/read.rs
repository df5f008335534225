//! Common parts of the readers of all signals.

use tributary_otlp::Malformed;
use tributary_otlp::reader::{Fields, Value, WireFault};

/// Converts a fault in a message to an error.
pub(super) fn malformed(fault: WireFault) -> Malformed {
    Malformed::new(0, fault.text())
}

#[inline]
pub(super) fn fields(message: &[u8]) -> impl Iterator<Item = Result<(u32, Value<'_>), Malformed>> {
    Fields::new(message).map(|field| match field {
        Ok(field) => Ok((field.number, field.value)),
        Err(fault) => Err(malformed(fault)),
    })
}

/// Returns the messages of a repeated field.
#[inline]
pub(super) fn each(message: &[u8], number: u32) -> impl Iterator<Item = &[u8]> + Clone {
    Fields::new(message)
        .map_while(Result::ok)
        .filter(move |field| field.number == number)
        .filter_map(|field| field.value.bytes())
}

/// Returns the messages of a repeated field up to the first fault.
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

/// Returns the resource or scope and the schema URL of an entry.
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

/// Returns the bits of a scalar.
#[inline]
pub(super) fn number(value: Value<'_>) -> u64 {
    match value {
        Value::Varint(value) | Value::Fixed64(value) => value,
        Value::Fixed32(value) => value.into(),
        Value::Bytes(_) => 0,
    }
}

/// Calls `each` with the bits of a repeated `fixed64` or `double`, packed or not.
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

/// Returns a string, bytes or a message.
#[inline]
pub(super) fn bytes(value: Value<'_>) -> &[u8] {
    value.bytes().unwrap_or_default()
}

/// Converts nanoseconds since 1970 to a timestamp; `None` for 0. Times after 2262 wrap to times
/// before 1970.
#[inline]
pub(super) fn time(nanoseconds: u64) -> Option<i64> {
    (nanoseconds != 0).then_some(nanoseconds.cast_signed())
}
