//! The walk.

use std::borrow::Cow;

use bytes::Bytes;

use super::tables::{REPEATED, Step, Table, Tables};
use super::{Attribute, Body, Change, Place, Refused, Rewriter, Seen};
use crate::batch::Signal;
use crate::wire::DEPTH_LIMIT;
use crate::wire::edit::{Editor, Mark, put_delimited};
use crate::wire::reader::{Fields, delimited, value, varint};

/// Shows all strings of a valid request to the rewriter; none when nothing changes.
///
/// # Errors
/// When the request is not valid, or when the rewriter refuses it.
pub fn rewrite<R: Rewriter>(
    tables: &Tables,
    signal: Signal,
    request: &[u8],
    rewriter: &mut R,
) -> Result<Option<Bytes>, Refused<R::Refusal>> {
    let Some(root) = tables.root(signal) else {
        return Ok(None);
    };
    let mut walk = Walk {
        tables,
        rules: rewriter.rules(),
        embeds: rewriter.embeds(),
        keys: tables.places.has(Place::AttributeKeys),
        remembers: !rewriter.counts(),
        rewriter,
        editor: Editor::new(request),
        start: request.as_ptr().addr(),
        clean: [None; REPEATED],
    };
    walk.message(root, request, 0)?;
    Ok(walk.editor.finish().map(Bytes::from))
}

struct Walk<'w, 'a, R> {
    tables: &'w Tables,
    rewriter: &'w mut R,
    rules: bool,
    embeds: bool,
    /// Whether keys are looked at.
    keys: bool,
    /// Whether a resource that was clean need not be looked at again.
    remembers: bool,
    editor: Editor<'a>,
    /// The address of the request: where a slice of it is follows from its own.
    start: usize,
    /// The last resource and the last scope in which nothing changed: many requests repeat them.
    clean: [Option<&'a [u8]>; REPEATED],
}

/// A length-delimited field.
#[derive(Clone, Copy)]
struct Part<'a> {
    /// From its key to the end of the message it is in.
    start: &'a [u8],
    body: &'a [u8],
    /// What follows it.
    rest: &'a [u8],
    key: u64,
}

impl<'a> Part<'a> {
    #[inline(always)]
    fn read<R>(start: &'a [u8], key: u64, rest: &'a [u8]) -> Result<Self, Refused<R>> {
        let (body, rest) = delimited(rest)?;
        Ok(Part {
            start,
            body,
            rest,
            key,
        })
    }

    fn number(&self) -> u32 {
        (self.key >> 3) as u32
    }
}

/// What becomes of what a value is the value of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Stays,
    Goes,
}

type Walked<R> = Result<(), Refused<<R as Rewriter>::Refusal>>;

const NOT_UTF8: &str = "a string is not UTF-8";
const TOO_DEEP: &str = "nested more than 100 levels deep";

impl<'a, R: Rewriter> Walk<'_, 'a, R> {
    fn at(&self, slice: &[u8]) -> usize {
        slice.as_ptr().addr() - self.start
    }

    fn range(&self, part: &Part<'a>) -> std::ops::Range<usize> {
        let start = self.at(part.start);
        start..start + (part.start.len() - part.rest.len())
    }

    fn message(&mut self, table: &Table, message: &'a [u8], depth: u32) -> Walked<R> {
        let set = table.set.filter(|_| self.rules);
        let mark = self.editor.mark();
        if let Some((place, _)) = set {
            self.rewriter.open(place, message).map_err(Refused::By)?;
        }
        let mut input = message;
        while !input.is_empty() {
            let start = input;
            let (key, rest) = varint(input)?;
            let step = usize::try_from(key)
                .ok()
                .and_then(|key| table.steps.get(key))
                .copied()
                .unwrap_or(Step::Unknown);
            input = match step {
                Step::Skip => value((key & 7) as u32, rest)?.1,
                Step::Attribute(place) => {
                    let part = Part::read(start, key, rest)?;
                    self.attribute(place, part, depth)?;
                    part.rest
                }
                Step::Text(place) => {
                    let part = Part::read(start, key, rest)?;
                    self.text(place, part)?;
                    part.rest
                }
                Step::Message(target) => {
                    let part = Part::read(start, key, rest)?;
                    self.nested(target, part, depth)?;
                    part.rest
                }
                Step::Value(place) => {
                    let part = Part::read(start, key, rest)?;
                    self.body(place, part, set.is_some(), depth)?;
                    part.rest
                }
                Step::Id => {
                    let part = Part::read(start, key, rest)?;
                    if !matches!(part.body.len(), 0 | 8 | 16)
                        && self.string(Place::Other, part)? == Fate::Goes
                    {
                        self.remove(&part);
                    }
                    part.rest
                }
                Step::Shared => {
                    let (body, rest) = delimited(rest)?;
                    self.rewriter.shared(body).map_err(Refused::By)?;
                    rest
                }
                Step::Original => {
                    let (body, rest) = delimited(rest)?;
                    if !body.is_empty() {
                        self.rewriter.original();
                    }
                    rest
                }
                Step::Unknown => self.unknown(start, key, rest)?,
                Step::Mismatch => {
                    return Err(Refused::Malformed(
                        "the wire type is not the one of its field",
                    ));
                }
            };
        }
        if let Some((place, number)) = set {
            self.close(place, number, &mark, message);
        }
        Ok(())
    }

    /// The end of a message that has attributes.
    fn close(&mut self, place: Place, number: u32, mark: &Mark, message: &'a [u8]) {
        let end = self.at(message) + message.len();
        for amendment in self.rewriter.close(place) {
            let put = |output: &mut Vec<u8>| put_delimited(number, &amendment.attribute, output);
            match amendment.place {
                Some(range) => self.editor.splice_since(mark, range, put),
                None => self.editor.splice(end..end, put),
            }
        }
    }

    #[inline(always)]
    fn nested(&mut self, target: u8, part: Part<'a>, depth: u32) -> Walked<R> {
        let tables = self.tables;
        let Some(table) = tables.tables.get(usize::from(target)) else {
            return Ok(());
        };
        if let Some(which) = table.repeated
            && self.clean.get(which) == Some(&Some(part.body))
        {
            return Ok(());
        }
        if depth >= DEPTH_LIMIT {
            return Err(Refused::Malformed(TOO_DEEP));
        }
        let mark = self.editor.mark();
        self.message(table, part.body, depth + 1)?;
        if self.editor.changed_since(&mark) {
            self.enclose(&mark, &part);
        } else if self.remembers
            && let Some(which) = table.repeated
            && let Some(clean) = self.clean.get_mut(which)
        {
            *clean = Some(part.body);
        }
        Ok(())
    }

    fn enclose(&mut self, mark: &Mark, part: &Part<'a>) {
        let head = self.at(part.start)..self.at(part.body);
        self.editor
            .enclose(mark, part.number(), head, part.body.len());
    }

    #[inline(always)]
    fn unknown(
        &mut self,
        start: &'a [u8],
        key: u64,
        rest: &'a [u8],
    ) -> Result<&'a [u8], Refused<R::Refusal>> {
        let (_, rest) = value((key & 7) as u32, rest)?;
        if self.tables.drop_unknown {
            let from = self.at(start);
            let to = from + (start.len() - rest.len());
            self.editor.splice(from..to, |_| {});
        }
        Ok(rest)
    }

    #[inline(always)]
    fn text(&mut self, place: Place, part: Part<'a>) -> Walked<R> {
        if part.body.is_empty() {
            return Ok(());
        }
        let change = self.rewriter.text(place, part.body);
        match change.map_err(Refused::By)? {
            Change::Keep => {}
            Change::Replace(text) => self.put(&part, text.as_bytes()),
            Change::Remove => self.remove(&part),
        }
        Ok(())
    }

    #[cold]
    fn put(&mut self, part: &Part<'a>, bytes: &[u8]) {
        let range = self.range(part);
        let number = part.number();
        self.editor
            .splice(range, |output| put_delimited(number, bytes, output));
    }

    #[cold]
    fn remove(&mut self, part: &Part<'a>) {
        let range = self.range(part);
        self.editor.splice(range, |_| {});
    }

    /// An attribute of a set.
    #[inline(always)]
    fn attribute(&mut self, place: Place, part: Part<'a>, depth: u32) -> Walked<R> {
        if !self.rules && !self.keys {
            match plain(part.body) {
                Plain::Text(key, text) => {
                    if text.is_empty() {
                        return Ok(());
                    }
                    match self.rewriter.text(place, text).map_err(Refused::By)? {
                        Change::Keep => {}
                        Change::Replace(text) => self.put_attribute(&part, key, &text),
                        Change::Remove => self.remove(&part),
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

    /// An attribute that the rewriter decides about first.
    fn judged(&mut self, place: Place, part: Part<'a>, depth: u32) -> Walked<R> {
        let (mut key, mut value) = (&b""[..], None);
        // Values that occur several times are one value for their reader, the sum of their fields.
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
        let seen = Seen {
            key,
            value: match occurrences.1 {
                0 | 1 => value,
                _ => Some(&merged),
            },
            plain: occurrences.0 < 2 && occurrences.1 < 2 && occurrences.2 == 0,
            at: (range.start, range.end),
        };
        match self.rewriter.attribute(place, seen).map_err(Refused::By)? {
            Attribute::Look => self.looked(place, part, depth)?,
            Attribute::KeepValue => self.key_alone(part)?,
            Attribute::Keep | Attribute::Later => {}
            Attribute::Remove => self.remove(&part),
            Attribute::Replace(text) => {
                let key = self.key(key)?;
                self.put_attribute(&part, key.as_bytes(), &text);
            }
        }
        Ok(())
    }

    /// The key of an attribute whose value stays.
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
                    self.text(Place::AttributeKeys, part)?;
                    part.rest
                }
                _ => value((key & 7) as u32, rest)?.1,
            };
        }
        self.enclose(&mark, &part);
        Ok(())
    }

    /// What becomes of the key of an attribute whose value is written anew.
    fn key<'k>(&mut self, key: &'k str) -> Result<Cow<'k, str>, Refused<R::Refusal>> {
        if !self.keys || key.is_empty() {
            return Ok(Cow::Borrowed(key));
        }
        let change = self.rewriter.text(Place::AttributeKeys, key.as_bytes());
        Ok(match change.map_err(Refused::By)? {
            Change::Keep => Cow::Borrowed(key),
            Change::Replace(key) => Cow::Owned(key),
            Change::Remove => Cow::Borrowed(""),
        })
    }

    /// An attribute, or an entry of a map: the strings in it.
    #[inline(never)]
    fn looked(&mut self, place: Place, part: Part<'a>, depth: u32) -> Walked<R> {
        // The attribute, and its value.
        if depth + 2 > DEPTH_LIMIT {
            return Err(Refused::Malformed(TOO_DEEP));
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
                        self.text(Place::AttributeKeys, part)?;
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

    /// A body.
    fn body(&mut self, place: Place, part: Part<'a>, set: bool, depth: u32) -> Walked<R> {
        if set {
            let body = self.rewriter.body(place, part.body);
            match body.map_err(Refused::By)? {
                Body::Look => {}
                Body::Keep => return Ok(()),
                Body::Remove => {
                    self.remove(&part);
                    return Ok(());
                }
                Body::Replace(body) => {
                    self.put(&part, &body);
                    return Ok(());
                }
            }
        }
        if depth + 1 > DEPTH_LIMIT {
            return Err(Refused::Malformed(TOO_DEEP));
        }
        let claim = match self.embeds {
            true => self.rewriter.claims(place, None),
            false => None,
        };
        if self.value(place, claim, part, depth)? == Fate::Goes {
            self.remove(&part);
        }
        Ok(())
    }

    /// What bytes in the value of an attribute claim to be: by any of its keys, if there are several.
    fn claim(
        &self,
        place: Place,
        attribute: &'a [u8],
    ) -> Result<Option<Signal>, Refused<R::Refusal>> {
        for field in Fields::new(attribute) {
            let field = field?;
            if field.number == 1
                && let Some(key) = field.value.bytes()
                && let Some(signal) = self.rewriter.claims(place, Some(key))
            {
                return Ok(Some(signal));
            }
        }
        Ok(None)
    }

    /// A value, in the field `part` of a message at `depth`. If it goes, nothing is noted.
    fn value(
        &mut self,
        place: Place,
        claim: Option<Signal>,
        part: Part<'a>,
        depth: u32,
    ) -> Result<Fate, Refused<R::Refusal>> {
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

    /// The values of an array or the entries of a map, in a message at `depth`.
    fn list(
        &mut self,
        place: Place,
        claim: Option<Signal>,
        part: Part<'a>,
        map: bool,
        depth: u32,
    ) -> Walked<R> {
        // The list and its entries.
        if depth + 1 > DEPTH_LIMIT {
            return Err(Refused::Malformed(TOO_DEEP));
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

    /// The bytes of a value that claim to be a request.
    fn embedded(&mut self, place: Place, signal: Signal, part: Part<'a>) -> Walked<R> {
        if !self.tables.places.has(place) {
            return Ok(());
        }
        let request = self.rewriter.embedded(place, signal, part.body);
        if let Some(request) = request.map_err(Refused::By)? {
            self.put(&part, &request);
        }
        Ok(())
    }

    /// The string, or bytes, of a value.
    fn string(&mut self, place: Place, part: Part<'a>) -> Result<Fate, Refused<R::Refusal>> {
        if !self.tables.places.has(place) {
            return Ok(Fate::Stays);
        }
        if part.body.is_empty() {
            return Ok(Fate::Stays);
        }
        if std::str::from_utf8(part.body).is_ok() {
            return match self.rewriter.text(place, part.body).map_err(Refused::By)? {
                Change::Keep => Ok(Fate::Stays),
                Change::Remove => Ok(Fate::Goes),
                Change::Replace(text) => {
                    self.put(&part, text.as_bytes());
                    Ok(Fate::Stays)
                }
            };
        }
        if place != Place::Other && part.key == STRING {
            return Err(Refused::Malformed(NOT_UTF8));
        }
        // Texts with other bytes between them.
        let mut fresh: Option<Vec<u8>> = None;
        let mut done = 0;
        for chunk in part.body.utf8_chunks() {
            let text = chunk.valid();
            let change = match text {
                "" => Change::Keep,
                text => {
                    let change = self.rewriter.text(place, text.as_bytes());
                    change.map_err(Refused::By)?
                }
            };
            match (change, &mut fresh) {
                (Change::Remove, _) => return Ok(Fate::Goes),
                (Change::Keep, None) => {}
                (Change::Keep, Some(fresh)) => fresh.extend_from_slice(text.as_bytes()),
                (Change::Replace(text), Some(fresh)) => fresh.extend_from_slice(text.as_bytes()),
                (Change::Replace(text), fresh) => {
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

// Keys of fields, number and wire type together, of `KeyValue`, `AnyValue`, `ArrayValue` and `KeyValueList`.
const KEY: u64 = 1 << 3 | 2;
const VALUE: u64 = 2 << 3 | 2;
const KEY_REFERENCE: u64 = 3 << 3;
const STRING: u64 = 1 << 3 | 2;
const ARRAY: u64 = 5 << 3 | 2;
const MAP: u64 = 6 << 3 | 2;
const BYTES: u64 = 7 << 3 | 2;

/// A boolean, an integer, a double, a reference to a string.
fn is_scalar(key: u64) -> bool {
    const BOOL: u64 = 2 << 3;
    const INT: u64 = 3 << 3;
    const DOUBLE: u64 = 4 << 3 | 1;
    const REFERENCE: u64 = 8 << 3;
    matches!(key, BOOL | INT | DOUBLE | REFERENCE)
}

#[inline(always)]
fn utf8<R>(bytes: &[u8]) -> Result<&str, Refused<R>> {
    std::str::from_utf8(bytes).map_err(|_| Refused::Malformed(NOT_UTF8))
}

/// An attribute of the shape that SDKs write: key, then a short string, or a number.
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
