//! Walks over values of attributes and bodies, at every depth.

use super::super::{BodyDecision, RewriteError, Rewriter, StringLocation, TextDecision};
use super::{Part, TOO_DEEP, Walk, Walked};
use crate::DEPTH_LIMIT;
use crate::Signal;
use crate::reader::{Fields, value, varint};

/// A decision about the attribute or entry that holds a value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Stays,
    Goes,
}

pub(super) const NOT_UTF8: &str = "a string is not UTF-8";

// Field keys (number and wire type) of `KeyValue`, `AnyValue`, `ArrayValue` and `KeyValueList`.
pub(super) const KEY: u64 = 1 << 3 | 2;
const VALUE: u64 = 2 << 3 | 2;
const KEY_REFERENCE: u64 = 3 << 3;
const STRING: u64 = 1 << 3 | 2;
const ARRAY: u64 = 5 << 3 | 2;
const MAP: u64 = 6 << 3 | 2;
const BYTES: u64 = 7 << 3 | 2;

/// Whether a field is a boolean, an integer, a double, or a reference to a string.
fn is_scalar(key: u64) -> bool {
    const BOOL: u64 = 2 << 3;
    const INT: u64 = 3 << 3;
    const DOUBLE: u64 = 4 << 3 | 1;
    const REFERENCE: u64 = 8 << 3;
    matches!(key, BOOL | INT | DOUBLE | REFERENCE)
}

impl<'a, R: Rewriter> Walk<'_, 'a, R> {
    /// Inspects the strings of an attribute, or of an entry of a map.
    #[inline(never)]
    pub(super) fn looked(
        &mut self,
        place: StringLocation,
        part: Part<'a>,
        depth: u32,
    ) -> Walked<R> {
        // The attribute, and its value.
        if depth + 2 > DEPTH_LIMIT {
            return Err(RewriteError::Malformed(TOO_DEEP));
        }
        let claim = match self.embeds {
            true => self.claim(place, part.body)?,
            false => None,
        };
        let mark = self.editor.mark();
        let mut input = part.body;
        while !input.is_empty() {
            let start = input;
            let (key, rest) = varint(input)?;
            input = match key {
                KEY => {
                    let part = Part::read(start, key, rest)?;
                    if self.keys {
                        self.text(StringLocation::AttributeKeys, part)?;
                    }
                    part.rest
                }
                VALUE => {
                    let inner = Part::read(start, key, rest)?;
                    if (self.keys || self.tables.places.has(place))
                        && self.value(place, claim, inner, depth + 1)? == Fate::Goes
                    {
                        self.editor.rollback(&mark);
                        self.remove(&part);
                        return Ok(());
                    }
                    inner.rest
                }
                KEY_REFERENCE => value(0, rest)?.1,
                _ => self.unknown(start, key, rest)?,
            };
        }
        self.enclose(&mark, &part);
        Ok(())
    }

    pub(super) fn body(
        &mut self,
        place: StringLocation,
        part: Part<'a>,
        set: bool,
        depth: u32,
    ) -> Walked<R> {
        if set {
            let body = self.rewriter.body(place, part.body);
            match body.map_err(RewriteError::Rewriter)? {
                BodyDecision::Inspect => {}
                BodyDecision::Keep => return Ok(()),
                BodyDecision::Remove => {
                    self.remove(&part);
                    return Ok(());
                }
                BodyDecision::Replace(body) => {
                    self.put(&part, &body);
                    return Ok(());
                }
            }
        }
        if depth + 1 > DEPTH_LIMIT {
            return Err(RewriteError::Malformed(TOO_DEEP));
        }
        let claim = match self.embeds {
            true => self.rewriter.embedded_signal(place, None),
            false => None,
        };
        if self.value(place, claim, part, depth)? == Fate::Goes {
            self.remove(&part);
        }
        Ok(())
    }

    /// Returns the signal of the request that a bytes value claims to contain. If the attribute has several keys, any
    /// of the keys may make the claim.
    fn claim(
        &self,
        place: StringLocation,
        attribute: &'a [u8],
    ) -> Result<Option<Signal>, RewriteError<R::Refusal>> {
        for field in Fields::new(attribute) {
            let field = field?;
            if field.number == 1
                && let Some(key) = field.value.bytes()
                && let Some(signal) = self.rewriter.embedded_signal(place, Some(key))
            {
                return Ok(Some(signal));
            }
        }
        Ok(None)
    }

    /// Inspects the value in the field `part` of a message at `depth`. If the value is removed, no edit is
    /// recorded.
    fn value(
        &mut self,
        place: StringLocation,
        claim: Option<Signal>,
        part: Part<'a>,
        depth: u32,
    ) -> Result<Fate, RewriteError<R::Refusal>> {
        let mark = self.editor.mark();
        let mut input = part.body;
        while !input.is_empty() {
            let start = input;
            let (key, rest) = varint(input)?;
            input = match (key, claim) {
                (BYTES, Some(signal)) => {
                    let request = Part::read(start, key, rest)?;
                    self.embedded(place, signal, request)?;
                    request.rest
                }
                (STRING | BYTES, _) => {
                    let text = Part::read(start, key, rest)?;
                    if self.string(place, text)? == Fate::Goes {
                        self.editor.rollback(&mark);
                        return Ok(Fate::Goes);
                    }
                    text.rest
                }
                (ARRAY | MAP, _) => {
                    let list = Part::read(start, key, rest)?;
                    self.list(place, claim, list, key == MAP, depth + 2)?;
                    list.rest
                }
                _ if is_scalar(key) => value((key & 7) as u32, rest)?.1,
                _ => self.unknown(start, key, rest)?,
            };
        }
        self.enclose(&mark, &part);
        Ok(Fate::Stays)
    }

    /// Inspects the values of an array or the entries of a map, in a message at `depth`.
    fn list(
        &mut self,
        place: StringLocation,
        claim: Option<Signal>,
        part: Part<'a>,
        map: bool,
        depth: u32,
    ) -> Walked<R> {
        // The list and its entries.
        if depth + 1 > DEPTH_LIMIT {
            return Err(RewriteError::Malformed(TOO_DEEP));
        }
        let mark = self.editor.mark();
        let mut input = part.body;
        while !input.is_empty() {
            let start = input;
            let (key, rest) = varint(input)?;
            input = match key {
                KEY => {
                    let entry = Part::read(start, key, rest)?;
                    if map {
                        self.looked(place, entry, depth)?;
                    } else if (self.keys || self.tables.places.has(place))
                        && self.value(place, claim, entry, depth)? == Fate::Goes
                    {
                        self.remove(&entry);
                    }
                    entry.rest
                }
                _ => self.unknown(start, key, rest)?,
            };
        }
        self.enclose(&mark, &part);
        Ok(())
    }

    /// Rewrites an embedded request in the bytes of a value.
    fn embedded(&mut self, place: StringLocation, signal: Signal, part: Part<'a>) -> Walked<R> {
        if !self.tables.places.has(place) {
            return Ok(());
        }
        let request = self.rewriter.rewrite_embedded(place, signal, part.body);
        if let Some(request) = request.map_err(RewriteError::Rewriter)? {
            self.put(&part, &request);
        }
        Ok(())
    }

    /// Inspects a string or bytes value.
    pub(super) fn string(
        &mut self,
        place: StringLocation,
        part: Part<'a>,
    ) -> Result<Fate, RewriteError<R::Refusal>> {
        if !self.tables.places.has(place) {
            return Ok(Fate::Stays);
        }
        if part.body.is_empty() {
            return Ok(Fate::Stays);
        }
        if std::str::from_utf8(part.body).is_ok() {
            return match self
                .rewriter
                .text(place, part.body)
                .map_err(RewriteError::Rewriter)?
            {
                TextDecision::Keep => Ok(Fate::Stays),
                TextDecision::Remove => Ok(Fate::Goes),
                TextDecision::Replace(text) => {
                    self.put(&part, text.as_bytes());
                    Ok(Fate::Stays)
                }
            };
        }
        if place != StringLocation::Other && part.key == STRING {
            return Err(RewriteError::Malformed(NOT_UTF8));
        }
        // Texts with other bytes between them.
        let mut fresh: Option<Vec<u8>> = None;
        let mut done = 0;
        for chunk in part.body.utf8_chunks() {
            let text = chunk.valid();
            let change = match text {
                "" => TextDecision::Keep,
                text => {
                    let change = self.rewriter.text(place, text.as_bytes());
                    change.map_err(RewriteError::Rewriter)?
                }
            };
            match (change, &mut fresh) {
                (TextDecision::Remove, _) => return Ok(Fate::Goes),
                (TextDecision::Keep, None) => {}
                (TextDecision::Keep, Some(fresh)) => fresh.extend_from_slice(text.as_bytes()),
                (TextDecision::Replace(text), Some(fresh)) => {
                    fresh.extend_from_slice(text.as_bytes())
                }
                (TextDecision::Replace(text), fresh) => {
                    let mut so_far = part.body.get(..done).unwrap_or_default().to_vec();
                    so_far.extend_from_slice(text.as_bytes());
                    *fresh = Some(so_far);
                }
            }
            done += text.len() + chunk.invalid().len();
            if let Some(fresh) = &mut fresh {
                fresh.extend_from_slice(chunk.invalid());
            }
        }
        if let Some(fresh) = fresh {
            self.put(&part, &fresh);
        }
        Ok(Fate::Stays)
    }
}
