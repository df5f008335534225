//! Fields of messages. The last of several values counts, as protobuf demands.

use tributary_otlp::reader::{Fields, Value};

/// Returns a text; `None` if the value is not UTF-8.
pub(super) fn as_text(value: Value<'_>) -> Option<&str> {
    std::str::from_utf8(value.bytes()?).ok()
}

/// Returns an integer; 0 for other values.
pub(super) fn integer(value: Value<'_>) -> u64 {
    match value {
        Value::Varint(value) => value,
        _ => 0,
    }
}

/// Returns a `double`; 0 for other values.
pub(super) fn double(value: Value<'_>) -> f64 {
    match value {
        Value::Fixed64(bits) => f64::from_bits(bits),
        _ => 0.0,
    }
}

/// Returns a `sint32` or `sint64`.
pub(super) fn zigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

fn last_value(message: &[u8], number: u32) -> Result<Option<Value<'_>>, &'static str> {
    let mut last = None;
    for field in Fields::new(message) {
        let field = field.map_err(|wrong| wrong.text())?;
        if field.number == number {
            last = Some(field.value);
        }
    }
    Ok(last)
}

/// Returns a `double` field; 0 if it is absent.
pub(super) fn last_double(message: &[u8], number: u32) -> Result<f64, &'static str> {
    Ok(last_value(message, number)?.map_or(0.0, double))
}

/// Returns an integer field; 0 if it is absent.
pub(super) fn last_integer(message: &[u8], number: u32) -> Result<u64, &'static str> {
    Ok(last_value(message, number)?.map_or(0, integer))
}

/// Returns a field that is a message.
pub(super) fn last(message: &[u8], number: u32) -> Result<Option<&[u8]>, &'static str> {
    Ok(last_value(message, number)?.and_then(Value::bytes))
}

/// Whether a field is present.
pub(super) fn has(message: &[u8], number: u32) -> Result<bool, &'static str> {
    last_value(message, number).map(|value| value.is_some())
}

/// Returns a `google.protobuf.Timestamp` in milliseconds. Malformed fields count as absent.
pub(super) fn seconds_and_nanos(message: &[u8]) -> i64 {
    let field = |number| last_integer(message, number).unwrap_or(0).cast_signed();
    field(1)
        .saturating_mul(1000)
        .saturating_add(field(2) / 1_000_000)
}

/// Checks a `LabelPair`.
pub(super) fn check_pair(value: Value<'_>) -> Result<(), &'static str> {
    let message = value.bytes().ok_or("a label is not a message")?;
    for field in Fields::new(message) {
        let field = field.map_err(|wrong| wrong.text())?;
        if field.number <= 2 && as_text(field.value).is_none() {
            return Err("the name or value of a label is not UTF-8");
        }
    }
    Ok(())
}

/// Returns the labels of a message that has them in its field 1.
pub(super) fn pairs(message: &[u8]) -> impl Iterator<Item = (&str, &str)> {
    let fields = Fields::new(message)
        .flatten()
        .filter(|field| field.number == 1);
    fields.map(|field| {
        let (mut name, mut value) = ("", "");
        for field in Fields::new(field.value.bytes().unwrap_or_default()).flatten() {
            let text = as_text(field.value).unwrap_or_default();
            match field.number {
                1 => name = text,
                2 => value = text,
                _ => {}
            }
        }
        (name, value)
    })
}
