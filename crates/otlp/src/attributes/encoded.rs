//! Reads and writes encoded attributes.

use super::put_attribute;
use super::state::{Found, States};
use crate::edit::{Editor, put_delimited};
use crate::reader::{Field, varint};

/// A key occurs twice in a set, or an attribute has two keys.
pub(super) struct DuplicateKey;

pub(super) fn set_value<'a>(
    key: &[u8],
    found: &Found<'a>,
    value: Option<&[u8]>,
    editor: &mut Editor<'a>,
) {
    let attribute = &found.attribute;
    if found.plain {
        return editor.replace(attribute, |output| {
            put_attribute(attribute.number, key, value, output);
        });
    }
    editor.message(attribute, |editor| {
        let put = |output: &mut Vec<u8>| {
            if let Some(value) = value {
                put_delimited(2, value, output);
            }
        };
        match &found.value {
            Some(field) => editor.replace(field, put),
            None => editor.append(attribute, put),
        }
    });
}

pub(super) fn put_added(number: u32, states: &States<'_, '_>, added: usize, output: &mut Vec<u8>) {
    for turn in 0..added {
        for state in states {
            if state.added == Some(turn) {
                let value = state.value.as_ref().and_then(|value| value.as_deref());
                put_attribute(number, &state.key, value, output);
            }
        }
    }
}

pub(super) fn length_bit(length: usize) -> u64 {
    1 << (length % 64)
}

/// Returns the key of an attribute that consists of one key and one value, in this order.
#[inline(always)]
pub(super) fn plain_key(attribute: &[u8]) -> Option<&[u8]> {
    let [0x0a, key_len @ 0..0x80, rest @ ..] = attribute else {
        return None;
    };
    let (key, rest) = rest.split_at_checked(usize::from(*key_len))?;
    let [0x12, rest @ ..] = rest else {
        return None;
    };
    let (value_len, value) = varint(rest).ok()?;
    (value_len == value.len() as u64).then_some(key)
}

#[cold]
pub(super) fn key_and_value<'a>(
    attribute: &Field<'a>,
) -> Result<(&'a [u8], Option<Field<'a>>), DuplicateKey> {
    let mut key = None;
    let mut value = None;
    for field in attribute.fields() {
        let field = field.map_err(|_| DuplicateKey)?;
        let twice = match field.number {
            1 => key
                .replace(field.value.bytes().ok_or(DuplicateKey)?)
                .is_some(),
            2 => value.replace(field).is_some(),
            _ => false,
        };
        if twice {
            return Err(DuplicateKey);
        }
    }
    Ok((key.unwrap_or_default(), value))
}
