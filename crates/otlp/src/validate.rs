//! Validates requests like prost, and counts their items.
//!
//! Every received request is validated, so validation is the most expensive part of a pipeline without processors. Two
//! techniques reduce the cost. A table per message type maps a field's key to its step with one load. An attribute of
//! the usual form (most messages are attributes) is recognised as a whole, without a table.

use super::count;
use super::reader::{WireFault, delimited, value, varint};
use super::schema::{FieldCheck, SCHEMA, Schema, Table};
use super::{Checked, Malformed};
use crate::Signal;

/// Maximum depth of nested messages below the request. The limit equals prost's fixed limit, because the next hop may
/// decode requests with prost.
pub const DEPTH_LIMIT: u32 = 100;

pub(super) fn check(signal: Signal, request: &[u8]) -> Result<Checked, Malformed> {
    let schema = &*SCHEMA;
    let mut walker = Walker {
        schema,
        items: 0,
        repeats_single: false,
        forms: 0,
    };
    let root = schema
        .tables
        .get(schema.root(signal))
        .map_or(Ok(()), |table| walker.message(table, request, 0));
    match root {
        Ok(()) => Ok(Checked {
            items: walker.items,
            repeats_single: walker.repeats_single,
        }),
        Err(failure) => Err(Malformed {
            offset: failure.address.saturating_sub(request.as_ptr().addr()),
            path: failure.path(),
            reason: failure.reason,
        }),
    }
}

struct Walker {
    schema: &'static Schema,
    items: usize,
    repeats_single: bool,
    /// Bit set of the forms of data in the current metric, by field number.
    forms: u32,
}

impl Walker {
    /// Validates one message, `depth` levels below the request.
    fn message(&mut self, table: &'static Table, message: &[u8], depth: u32) -> Walk {
        let mut input = message;
        let mut seen = 0_u32;
        while !input.is_empty() {
            let start = input;
            let (key, rest) = varint(input).map_err(|fault| Failure::at(start, fault.text()))?;
            let Some(action) = usize::try_from(key)
                .ok()
                .and_then(|key| table.actions.get(key))
            else {
                input = unknown(start, key, rest, depth)?;
                continue;
            };
            input = match *action {
                FieldCheck::KeyValue(target) => {
                    let (body, rest) = body(start, key, rest, table)?;
                    if !is_plain_attribute(body) || depth + 2 > DEPTH_LIMIT {
                        self.nested(target, body, depth, table, key)?;
                    }
                    rest
                }
                FieldCheck::Text => {
                    let (text, rest) = body(start, key, rest, table)?;
                    if !is_utf8(text) {
                        return Err(Failure::at(text, "the string is not UTF-8").within(table, key));
                    }
                    rest
                }
                FieldCheck::Bytes => body(start, key, rest, table)?.1,
                FieldCheck::Fixed64 => match rest.get(8..) {
                    Some(rest) => rest,
                    None => return Err(truncated(start).within(table, key)),
                },
                FieldCheck::Fixed32 => match rest.get(4..) {
                    Some(rest) => rest,
                    None => return Err(truncated(start).within(table, key)),
                },
                FieldCheck::Varint => match varint(rest) {
                    Ok((_, rest)) => rest,
                    Err(fault) => {
                        return Err(Failure::at(start, fault.text()).within(table, key));
                    }
                },
                FieldCheck::Item(target) => {
                    let (body, rest) = body(start, key, rest, table)?;
                    self.items += 1;
                    self.nested(target, body, depth, table, key)?;
                    rest
                }
                FieldCheck::Repeated(target) => {
                    let (body, rest) = body(start, key, rest, table)?;
                    self.nested(target, body, depth, table, key)?;
                    rest
                }
                FieldCheck::Single(target) => {
                    let (body, rest) = body(start, key, rest, table)?;
                    self.repeats_single |= note(&mut seen, key);
                    self.nested(target, body, depth, table, key)?;
                    rest
                }
                FieldCheck::Data(target) => {
                    let (body, rest) = body(start, key, rest, table)?;
                    self.repeats_single |= note(&mut seen, key);
                    note(&mut self.forms, key);
                    self.nested(target, body, depth, table, key)?;
                    rest
                }
                FieldCheck::Metric(target) => {
                    let (body, rest) = body(start, key, rest, table)?;
                    self.metric(target, body, depth, table, key)?;
                    rest
                }
                FieldCheck::PackedVarints => {
                    let (mut packed, rest) = body(start, key, rest, table)?;
                    while !packed.is_empty() {
                        match varint(packed) {
                            Ok((_, rest)) => packed = rest,
                            Err(fault) => {
                                return Err(Failure::at(packed, fault.text()).within(table, key));
                            }
                        }
                    }
                    rest
                }
                FieldCheck::PackedFixed64 => packed_fixed::<8>(start, key, rest, table)?,
                FieldCheck::PackedFixed32 => packed_fixed::<4>(start, key, rest, table)?,
                FieldCheck::Mismatch => {
                    return Err(Failure::at(start, mismatch(key)).within(table, key));
                }
                FieldCheck::Unknown => unknown(start, key, rest, depth)?,
            };
        }
        Ok(())
    }

    /// Validates the message in a field of a message at `depth`.
    #[inline(always)]
    fn nested(
        &mut self,
        target: u8,
        body: &[u8],
        depth: u32,
        table: &'static Table,
        key: u64,
    ) -> Walk {
        let schema = self.schema;
        let Some(target) = schema.tables.get(usize::from(target)) else {
            return Ok(());
        };
        if depth >= DEPTH_LIMIT {
            return Err(Failure::at(body, "nested more than 100 levels deep").within(table, key));
        }
        self.message(target, body, depth + 1)
            .map_err(|failure| failure.within(table, key))
    }

    /// Validates a metric. If the data occurs in several forms, only the points of the last form count, as for readers.
    fn metric(
        &mut self,
        target: u8,
        body: &[u8],
        depth: u32,
        table: &'static Table,
        key: u64,
    ) -> Walk {
        let before = self.items;
        self.forms = 0;
        self.nested(target, body, depth, table, key)?;
        if self.forms.count_ones() > 1 {
            self.items = before + count::metric(body);
        }
        Ok(())
    }
}

/// Whether an attribute has the usual form of SDKs (key, then a string, an integer, a boolean or a double)
/// and is valid. `false` only means that the full check is needed.
#[inline(always)]
fn is_plain_attribute(attribute: &[u8]) -> bool {
    let [0x0a, key_len, rest @ ..] = attribute else {
        return false;
    };
    // A length of 128 or more takes two bytes, so the first one has its high bit set.
    let Some((key, rest)) = rest.split_at_checked(usize::from(*key_len)) else {
        return false;
    };
    let [0x12, value_len, value @ ..] = rest else {
        return false;
    };
    if usize::from(*value_len) != value.len() || *value_len >= 0x80 || *key_len >= 0x80 {
        return false;
    }
    match value {
        // Tags, lengths and texts are all ASCII here, so one check covers all bytes.
        [0x0a, text_len, text @ ..] => usize::from(*text_len) == text.len() && is_ascii(attribute),
        [0x18 | 0x10, number @ ..] => matches!(varint(number), Ok((_, []))) && is_ascii(key),
        [0x21, _, _, _, _, _, _, _, _] => is_ascii(key),
        _ => false,
    }
}

#[inline(always)]
fn is_utf8(text: &[u8]) -> bool {
    is_ascii(text) || std::str::from_utf8(text).is_ok()
}

/// Whether all bytes are ASCII. Overlapping words at both ends spare usual texts a loop, which is faster for short
/// texts than the standard library's check.
#[inline(always)]
fn is_ascii(text: &[u8]) -> bool {
    let high = if let (Some(first), Some(last)) = (text.first_chunk::<32>(), text.last_chunk()) {
        let (middle, _) = text.as_chunks::<32>();
        let middle = middle.get(1..).unwrap_or_default();
        middle
            .iter()
            .fold(high_bits(first) | high_bits::<32>(last), |high, bytes| {
                high | high_bits(bytes)
            })
    } else if let (Some(first), Some(last)) = (text.first_chunk::<16>(), text.last_chunk()) {
        high_bits(first) | high_bits::<16>(last)
    } else if let (Some(first), Some(last)) = (text.first_chunk::<8>(), text.last_chunk()) {
        high_bits(first) | high_bits::<8>(last)
    } else {
        text.iter().fold(0, |high, byte| high | u64::from(*byte))
    };
    high & 0x8080_8080_8080_8080 == 0
}

/// Returns a word that has a high bit set if any of the bytes has.
#[inline(always)]
fn high_bits<const LEN: usize>(bytes: &[u8; LEN]) -> u64 {
    let (words, _) = bytes.as_chunks::<8>();
    words
        .iter()
        .fold(0, |high, word| high | u64::from_le_bytes(*word))
}

/// Records a field number. Returns whether the number was recorded before.
#[inline(always)]
fn note(seen: &mut u32, key: u64) -> bool {
    let bit = 1 << (key >> 3 & 31);
    let before = *seen & bit != 0;
    *seen |= bit;
    before
}

#[inline(always)]
fn body<'a>(
    start: &'a [u8],
    key: u64,
    rest: &'a [u8],
    table: &'static Table,
) -> Result<(&'a [u8], &'a [u8]), Box<Failure>> {
    delimited(rest).map_err(|fault| Failure::at(start, fault.text()).within(table, key))
}

fn packed_fixed<'a, const WIDTH: usize>(
    start: &'a [u8],
    key: u64,
    rest: &'a [u8],
    table: &'static Table,
) -> Result<&'a [u8], Box<Failure>> {
    let (packed, rest) = body(start, key, rest, table)?;
    if packed.len() % WIDTH != 0 {
        return Err(truncated(start).within(table, key));
    }
    Ok(rest)
}

/// Skips an unknown field, which must be well-formed.
#[cold]
fn unknown<'a>(
    start: &'a [u8],
    key: u64,
    rest: &'a [u8],
    depth: u32,
) -> Result<&'a [u8], Box<Failure>> {
    // prost counts an unknown field as one more level.
    if depth >= DEPTH_LIMIT {
        return Err(Failure::at(start, "nested more than 100 levels deep"));
    }
    let fault = |fault: WireFault| Failure::at(start, fault.text());
    let key = u32::try_from(key).map_err(|_| fault(WireFault::Key))?;
    if key >> 3 == 0 {
        return Err(fault(WireFault::FieldZero));
    }
    value(key & 7, rest).map(|(_, rest)| rest).map_err(fault)
}

type Walk = Result<(), Box<Failure>>;

/// Position and reason of a failed validation. Boxed, so that the result of a success fits in a register.
#[derive(Debug)]
struct Failure {
    address: usize,
    reason: &'static str,
    /// Field names, innermost first.
    fields: Vec<String>,
}

#[cold]
fn truncated(at: &[u8]) -> Box<Failure> {
    Failure::at(at, WireFault::Truncated.text())
}

#[cold]
fn mismatch(key: u64) -> &'static str {
    match key & 7 {
        3 | 4 => WireFault::Group.text(),
        6 | 7 => WireFault::WireType.text(),
        _ => "the wire type is not the one of this field",
    }
}

impl Failure {
    #[cold]
    #[inline(never)]
    fn at(rest: &[u8], reason: &'static str) -> Box<Self> {
        Box::new(Failure {
            address: rest.as_ptr().addr(),
            reason,
            fields: Vec::new(),
        })
    }

    #[cold]
    #[inline(never)]
    fn within(mut self: Box<Self>, table: &'static Table, key: u64) -> Box<Self> {
        self.fields.push(table.field_name(key >> 3));
        self
    }

    /// Returns the field names, outermost first. Deep nesting is abridged.
    fn path(&self) -> String {
        const MAX_SHOWN_FIELDS: usize = 10;
        let mut names: Vec<&str> = self.fields.iter().rev().map(String::as_str).collect();
        if names.len() > MAX_SHOWN_FIELDS {
            names.truncate(MAX_SHOWN_FIELDS);
            names.push("...");
        }
        names.join(".")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(path: &[u8], innermost: &[u8]) -> Vec<u8> {
        path.iter().rev().fold(innermost.to_vec(), |body, tag| {
            let mut message = vec![*tag];
            super::super::reader::put_varint(body.len() as u64, &mut message);
            message.extend(body);
            message
        })
    }

    #[test]
    fn empty_request_is_valid_without_items() {
        for signal in Signal::ALL {
            assert_eq!(check(signal, &[]).map(|checked| checked.items), Ok(0));
        }
    }

    #[test]
    fn malformed_request_is_refused_with_offset_and_path() {
        let spans = [0x0a, 0x12, 0x12];
        for (innermost, offset, path, reason) in [
            (
                &[0x2a, 2, 0xc3, 0x28][..],
                8,
                "resource_spans.scope_spans.spans.name",
                "the string is not UTF-8",
            ),
            (
                &[0x2a, 9, b'a'],
                6,
                "resource_spans.scope_spans.spans.name",
                "the value is longer than the message around it",
            ),
            (
                &[0x29, 1, 2, 3, 4, 5, 6, 7, 8],
                6,
                "resource_spans.scope_spans.spans.name",
                "the wire type is not the one of this field",
            ),
            (
                &[0x00, 0],
                6,
                "resource_spans.scope_spans.spans",
                "field number 0",
            ),
        ] {
            let request = nested(&spans, innermost);
            assert_eq!(
                check(Signal::Traces, &request),
                Err(Malformed {
                    offset,
                    path: path.to_owned(),
                    reason
                })
            );
        }
    }

    #[test]
    fn only_last_form_of_metric_data_is_counted() {
        let point = [0x0a, 0];
        let mut metric = nested(&[0x2a], &[point, point].concat());
        metric.extend(nested(&[0x3a], &point));
        let request = nested(&[0x0a, 0x12, 0x12], &metric);
        assert_eq!(
            check(Signal::Metrics, &request),
            Ok(Checked {
                items: 1,
                repeats_single: false
            })
        );
    }

    #[test]
    fn non_ascii_byte_is_found_at_every_position() {
        for len in 1..200 {
            for at in 0..len {
                let mut text = vec![b'a'; len];
                assert!(is_ascii(&text));
                text[at] = 0x80;
                assert!(!is_ascii(&text), "{at} of {len}");
            }
        }
    }
}
