//! Walks over messages by their tables.

mod attribute;
mod value;

use bytes::Bytes;

use self::value::Fate;
use super::tables::{REPEATED, Step, Table, Tables};
use super::{RewriteError, Rewriter, StringLocation, TextDecision};
use crate::DEPTH_LIMIT;
use crate::Signal;
use crate::edit::{Editor, Mark, put_delimited};
use crate::reader::{delimited, value, varint};
use crate::room::Room;

/// Shows all strings of a valid request to the rewriter; `None` if nothing changes.
///
/// # Errors
/// Fails if the request is invalid, if the budget is too small for the result, or if the rewriter refuses the
/// request.
pub fn rewrite<R: Rewriter>(
    tables: &Tables,
    signal: Signal,
    request: &[u8],
    room: &dyn Room,
    rewriter: &mut R,
) -> Result<Option<Bytes>, RewriteError<R::Refusal>> {
    let Some(root) = tables.root(signal) else {
        return Ok(None);
    };
    let mut walk = Walk {
        tables,
        rules: rewriter.decides_attributes(),
        embeds: rewriter.has_embedded_requests(),
        keys: tables.places.has(StringLocation::AttributeKeys),
        remembers: !rewriter.needs_every_occurrence(),
        rewriter,
        editor: Editor::within(request, room),
        start: request.as_ptr().addr(),
        clean: [None; REPEATED],
    };
    walk.message(root, request, 0)?;
    Ok(walk.editor.finish_within()?.map(Bytes::from))
}

struct Walk<'w, 'a, R> {
    tables: &'w Tables,
    rewriter: &'w mut R,
    rules: bool,
    embeds: bool,
    keys: bool,
    /// Whether an unchanged resource or scope is remembered.
    remembers: bool,
    editor: Editor<'a>,
    /// Address of the request, for computing the position of a slice.
    start: usize,
    /// The last resource and the last scope without changes; many requests repeat them.
    clean: [Option<&'a [u8]>; REPEATED],
}

#[derive(Clone, Copy)]
struct Part<'a> {
    /// Input from the key of the field to the end of its message.
    start: &'a [u8],
    body: &'a [u8],
    /// Input after the field.
    rest: &'a [u8],
    key: u64,
}

impl<'a> Part<'a> {
    #[inline(always)]
    fn read<R>(start: &'a [u8], key: u64, rest: &'a [u8]) -> Result<Self, RewriteError<R>> {
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

type Walked<R> = Result<(), RewriteError<<R as Rewriter>::Refusal>>;

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
            self.rewriter
                .open(place, message)
                .map_err(RewriteError::Rewriter)?;
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
                    let passed = self.pass_over(key, start);
                    if passed.len() < start.len() {
                        passed
                    } else {
                        let part = Part::read(start, key, rest)?;
                        self.attribute(place, part, depth)?;
                        part.rest
                    }
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
                        && self.string(StringLocation::Other, part)? == Fate::Goes
                    {
                        self.remove(&part);
                    }
                    part.rest
                }
                Step::Shared => {
                    let (body, rest) = delimited(rest)?;
                    self.rewriter
                        .dictionary_string(body)
                        .map_err(RewriteError::Rewriter)?;
                    rest
                }
                Step::Original => {
                    let (body, rest) = delimited(rest)?;
                    if !body.is_empty() {
                        self.rewriter.original_payload();
                    }
                    rest
                }
                Step::Unknown => self.unknown(start, key, rest)?,
                Step::Mismatch => {
                    return Err(RewriteError::Malformed(
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

    /// Ends a message with attributes.
    fn close(&mut self, place: StringLocation, number: u32, mark: &Mark, message: &'a [u8]) {
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
            return Err(RewriteError::Malformed(TOO_DEEP));
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
    ) -> Result<&'a [u8], RewriteError<R::Refusal>> {
        let (_, rest) = value((key & 7) as u32, rest)?;
        if self.tables.drop_unknown {
            let from = self.at(start);
            let to = from + (start.len() - rest.len());
            self.editor.splice(from..to, |_| {});
        }
        Ok(rest)
    }

    #[inline(always)]
    fn text(&mut self, place: StringLocation, part: Part<'a>) -> Walked<R> {
        if part.body.is_empty() {
            return Ok(());
        }
        let change = self.rewriter.text(place, part.body);
        match change.map_err(RewriteError::Rewriter)? {
            TextDecision::Keep => {}
            TextDecision::Replace(text) => self.put(&part, text.as_bytes()),
            TextDecision::Remove => self.remove(&part),
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
}
