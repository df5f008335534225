//! Walks over the attributes of a set: skips irrelevant attributes, calls the rewriter for attributes that need a
//! decision, and inspects the strings of the rest.

use std::borrow::Cow;

use super::super::{
    AttributeDecision, RewriteError, Rewriter, SetAttribute, StringLocation, TextDecision,
};
use super::value::{KEY, NOT_UTF8};
use super::{Part, Walk, Walked};
use crate::edit::put_delimited;
use crate::reader::{Fields, value, varint};

impl<'a, R: Rewriter> Walk<'_, 'a, R> {
    /// Skips the leading attributes of `input` that need no change, and returns the rest of the input. Telemetry
    /// consists mostly of such attributes. The loop is a separate function so that its variables stay in registers.
    #[inline(never)]
    pub(super) fn pass_over(&self, key: u64, mut input: &'a [u8]) -> &'a [u8] {
        if self.rules || self.keys {
            return input;
        }
        while let [first, length @ 0..0x80, rest @ ..] = input
            && u64::from(*first) == key
            && let Some((attribute, rest)) = rest.split_at_checked(usize::from(*length))
        {
            let passes = match plain(attribute) {
                Plain::Text(_, text) => self.rewriter.is_clean(text),
                Plain::Scalar => true,
                Plain::No => false,
            };
            if !passes {
                break;
            }
            input = rest;
        }
        input
    }

    #[inline(always)]
    pub(super) fn attribute(
        &mut self,
        place: StringLocation,
        part: Part<'a>,
        depth: u32,
    ) -> Walked<R> {
        if !self.rules && !self.keys {
            match plain(part.body) {
                Plain::Text(key, text) => {
                    if text.is_empty() {
                        return Ok(());
                    }
                    match self
                        .rewriter
                        .text(place, text)
                        .map_err(RewriteError::Rewriter)?
                    {
                        TextDecision::Keep => {}
                        TextDecision::Replace(text) => self.put_attribute(&part, key, &text),
                        TextDecision::Remove => self.remove(&part),
                    }
                    return Ok(());
                }
                Plain::Scalar => return Ok(()),
                Plain::No => {}
            }
        }
        if self.rules {
            return self.judged(place, part, depth);
        }
        self.looked(place, part, depth)
    }

    #[cold]
    fn put_attribute(&mut self, part: &Part<'a>, key: &[u8], text: &str) {
        let mut value = Vec::with_capacity(text.len() + 4);
        put_delimited(1, text.as_bytes(), &mut value);
        let mut attribute = Vec::with_capacity(key.len() + value.len() + 8);
        put_delimited(1, key, &mut attribute);
        put_delimited(2, &value, &mut attribute);
        self.put(part, &attribute);
    }

    /// Handles an attribute that the rewriter decides about.
    fn judged(&mut self, place: StringLocation, part: Part<'a>, depth: u32) -> Walked<R> {
        let (mut key, mut value) = (&b""[..], None);
        let mut merged = Vec::new();
        let mut occurrences = (0, 0, 0);
        for field in Fields::new(part.body) {
            let field = field?;
            match (field.number, field.value.bytes()) {
                (1, Some(bytes)) => {
                    key = bytes;
                    occurrences.0 += 1;
                }
                (2, Some(bytes)) => {
                    if let Some(earlier) = value.replace(bytes) {
                        if occurrences.1 == 1 {
                            merged.extend_from_slice(earlier);
                        }
                        merged.extend_from_slice(bytes);
                    }
                    occurrences.1 += 1;
                }
                _ => occurrences.2 += 1,
            }
        }
        let key = utf8(key)?;
        let range = self.range(&part);
        let seen = SetAttribute {
            key,
            value: match occurrences.1 {
                0 | 1 => value,
                _ => Some(&merged),
            },
            plain: occurrences.0 < 2 && occurrences.1 < 2 && occurrences.2 == 0,
            at: (range.start, range.end),
        };
        match self
            .rewriter
            .attribute(place, seen)
            .map_err(RewriteError::Rewriter)?
        {
            AttributeDecision::Inspect => self.looked(place, part, depth)?,
            AttributeDecision::KeepValue => self.key_alone(part)?,
            AttributeDecision::Keep | AttributeDecision::Deferred => {}
            AttributeDecision::Remove => self.remove(&part),
            AttributeDecision::Replace(text) => {
                let key = self.key(key)?;
                self.put_attribute(&part, key.as_bytes(), &text);
            }
        }
        Ok(())
    }

    /// Inspects the key of an attribute whose value stays.
    fn key_alone(&mut self, part: Part<'a>) -> Walked<R> {
        if !self.keys {
            return Ok(());
        }
        let mark = self.editor.mark();
        let mut input = part.body;
        while !input.is_empty() {
            let start = input;
            let (key, rest) = varint(input)?;
            input = match key {
                KEY => {
                    let part = Part::read(start, key, rest)?;
                    self.text(StringLocation::AttributeKeys, part)?;
                    part.rest
                }
                _ => value((key & 7) as u32, rest)?.1,
            };
        }
        self.enclose(&mark, &part);
        Ok(())
    }

    /// Returns the new key of an attribute whose value is rewritten.
    fn key<'k>(&mut self, key: &'k str) -> Result<Cow<'k, str>, RewriteError<R::Refusal>> {
        if !self.keys || key.is_empty() {
            return Ok(Cow::Borrowed(key));
        }
        let change = self
            .rewriter
            .text(StringLocation::AttributeKeys, key.as_bytes());
        Ok(match change.map_err(RewriteError::Rewriter)? {
            TextDecision::Keep => Cow::Borrowed(key),
            TextDecision::Replace(key) => Cow::Owned(key),
            TextDecision::Remove => Cow::Borrowed(""),
        })
    }
}

#[inline(always)]
fn utf8<R>(bytes: &[u8]) -> Result<&str, RewriteError<R>> {
    std::str::from_utf8(bytes).map_err(|_| RewriteError::Malformed(NOT_UTF8))
}

/// An attribute in the usual form of SDKs: a key, then a short string or a number.
enum Plain<'a> {
    Text(&'a [u8], &'a [u8]),
    Scalar,
    No,
}

#[inline(always)]
fn plain(attribute: &[u8]) -> Plain<'_> {
    let [0x0a, key_len @ 0..0x80, rest @ ..] = attribute else {
        return Plain::No;
    };
    let Some((key, rest)) = rest.split_at_checked(usize::from(*key_len)) else {
        return Plain::No;
    };
    let [0x12, value_len @ 0..0x80, value @ ..] = rest else {
        return Plain::No;
    };
    if usize::from(*value_len) != value.len() {
        return Plain::No;
    }
    match value {
        [0x0a, text_len @ 0..0x80, text @ ..] if usize::from(*text_len) == text.len() => {
            Plain::Text(key, text)
        }
        [0x18 | 0x10, number @ ..] if matches!(varint(number), Ok((_, []))) => Plain::Scalar,
        [0x21, _, _, _, _, _, _, _, _] => Plain::Scalar,
        _ => Plain::No,
    }
}
