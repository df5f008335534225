//! Changes of single fields of encoded messages.

use tributary_otlp::edit::put_delimited;
use tributary_otlp::reader::Fields;
use tributary_otlp::view::{Attribute, Message, View as _};

use super::put_entry;
use crate::value::Undecided;

/// Returns the payload of the last field with a number.
pub(crate) fn field(message: &[u8], number: u32) -> Option<&[u8]> {
    let fields = Fields::new(message).map_while(Result::ok);
    let found = fields.filter(|field| field.number == number);
    found.filter_map(|field| field.value.bytes()).last()
}

/// Replaces all fields with the numbers by `field`, an encoded field, at the position of the first. An empty `field`
/// removes them.
pub(super) fn with_field(message: &[u8], numbers: &[u32], field: &[u8]) -> Vec<u8> {
    let mut output = Vec::with_capacity(message.len() + field.len());
    let mut is_written = false;
    for other in Fields::new(message).map_while(Result::ok) {
        if !numbers.contains(&other.number) {
            output.extend_from_slice(other.raw);
        } else if !is_written {
            output.extend_from_slice(field);
            is_written = true;
        }
    }
    if !is_written {
        output.extend_from_slice(field);
    }
    output
}

/// Whether `field`, an encoded field, is the only one with one of the numbers; for an empty `field`, whether there is
/// none.
pub(super) fn has_field(message: &[u8], numbers: &[u32], field: &[u8]) -> bool {
    let others = Fields::new(message).map_while(Result::ok);
    let mut others = others.filter(|other| numbers.contains(&other.number));
    match others.next() {
        Some(other) => other.raw == field && others.next().is_none(),
        None => field.is_empty(),
    }
}

/// Changes the message in a field, or the message itself. A missing message is created.
pub(super) fn inside(
    message: &[u8],
    number: Option<u32>,
    change: impl FnOnce(&[u8]) -> Result<Vec<u8>, Undecided>,
) -> Result<Vec<u8>, Undecided> {
    let Some(number) = number else {
        return change(message);
    };
    let before = field(message, number);
    let changed = change(before.unwrap_or_default())?;
    if before.unwrap_or_default() == changed {
        return Ok(message.to_vec());
    }
    let mut encoded = Vec::with_capacity(changed.len() + 8);
    put_delimited(number, &changed, &mut encoded);
    Ok(with_field(message, &[number], &encoded))
}

/// Returns the encoded value of a key in a map.
pub(super) fn entry<'m>(message: &'m [u8], number: u32, key: &str) -> Option<&'m [u8]> {
    let fields = Fields::new(message).map_while(Result::ok);
    let mut entries = fields
        .filter(|field| field.number == number)
        .filter_map(|field| field.value.bytes());
    let entry = entries.find(|entry| has_key(entry, key))?;
    field(entry, 2)
}

fn has_key(entry: &[u8], key: &str) -> bool {
    Attribute::view(Message::new(entry)).key_bytes() == key.as_bytes()
}

/// Sets the value of a key: replaces the first entry of the key, or appends an entry.
pub(super) fn set_entry(message: &[u8], number: u32, key: &str, value: &[u8]) -> Vec<u8> {
    let mut output = Vec::with_capacity(message.len() + key.len() + value.len() + 16);
    let mut is_written = false;
    for field in Fields::new(message).map_while(Result::ok) {
        let is_entry = !is_written
            && field.number == number
            && has_key(field.value.bytes().unwrap_or_default(), key);
        if is_entry {
            put_entry(number, key, value, &mut output);
            is_written = true;
        } else {
            output.extend_from_slice(field.raw);
        }
    }
    if !is_written {
        put_entry(number, key, value, &mut output);
    }
    output
}
