//! Splits requests into parts of bounded size.
//!
//! Entries (spans, log records, metrics) are copied unchanged. The other fields of the enclosing messages, including
//! unknown fields, are repeated in each part. A part is planned first, so that all its lengths are known when it is
//! written.

use bytes::Bytes;
use smallvec::SmallVec;

use super::Limit;
use super::count::{self, metric_data};
use super::reader::{Field, Fields, Value, put_varint, varint_len};
use crate::Signal;

/// Splits a valid request into parts within `limit`, each with its number of items, in order. Resource and
/// scope headers are repeated. A single item above the byte limit becomes a part of its own. A profiles
/// request is returned unchanged; use `tributary_profiles::split` for it.
///
/// Metrics count in data points: a metric above the limit is split between its points, and its other fields are
/// repeated. If repeating headers would take more bytes than the request has, parts exceed the limit: a large header
/// over many small items must not multiply the size of the request. A resource, scope or metric without items stays in
/// one of the parts. A request within the limit is returned without a copy.
pub fn split(signal: Signal, request: &Bytes, limit: Limit) -> Vec<(usize, Bytes)> {
    let items = count::count(signal, request);
    if signal == Signal::Profiles || (items <= limit.items && request.len() <= limit.bytes) {
        return vec![(items, request.clone())];
    }
    let mut packer = Packer::new(limit, request);
    for field in fields(request) {
        let Some(resource) = message(&field, 1) else {
            // Unknown fields are kept unchanged.
            packer.add(0, field.raw);
            continue;
        };
        let items = count::resource_items(signal, resource);
        if packer.fits(items, field.raw.len()) {
            packer.add(items, field.raw);
            continue;
        }
        packer.enter(1, field.raw, Header::of(resource, |number| number != 2));
        for scope in fields(resource).filter(|field| field.number == 2) {
            add_scope(signal, &mut packer, &scope);
        }
        packer.leave();
    }
    packer.finish()
}

/// Bytes of headers that may be repeated even in small requests.
const REPEATED: usize = 64 << 10;

fn add_scope<'a>(signal: Signal, packer: &mut Packer<'a>, field: &Field<'a>) {
    let Value::Bytes(scope) = field.value else {
        return;
    };
    let items = count::scope_items(signal, scope);
    if packer.fits(items, field.raw.len()) {
        packer.add(items, field.raw);
        return;
    }
    packer.enter(2, field.raw, Header::of(scope, |number| number != 2));
    for entry in fields(scope).filter(|field| field.number == 2) {
        match signal {
            Signal::Metrics => add_metric(packer, &entry),
            _ => packer.add(1, entry.raw),
        }
    }
    packer.leave();
}

/// Adds a metric, point by point if the metric alone exceeds the limit. The data of a metric is a `oneof`: readers use
/// the last form, and merge repeated fields of the same form. The parts contain the result of both rules.
fn add_metric<'a>(packer: &mut Packer<'a>, entry: &Field<'a>) {
    let Value::Bytes(metric) = entry.value else {
        return;
    };
    let points = count::metric(metric);
    if points <= 1 || packer.fits_alone(points, entry.raw.len()) {
        packer.add(points, entry.raw);
        return;
    }
    let mut form = 0;
    let mut superseded = 0;
    for (at, (number, _)) in data(metric).enumerate() {
        if number != form {
            (form, superseded) = (number, at);
        }
    }
    let merged = || data(metric).skip(superseded).map(|(_, data)| data);
    let mut header = Header::default();
    for data in merged() {
        header.extend(data, |number| number != 1);
    }
    let is_header = |number| !count::is_metric_data(number);
    packer.enter(2, entry.raw, Header::of(metric, is_header));
    packer.enter(form, &[], header);
    for point in merged().flat_map(fields).filter(|field| field.number == 1) {
        packer.add(1, point.raw);
    }
    packer.leave();
    packer.leave();
}

/// Returns the fields that hold the data of a metric, with their numbers.
fn data(metric: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
    fields(metric).filter_map(|field| metric_data(&field).map(|data| (field.number, data)))
}

/// Fills one part after the other.
struct Packer<'a> {
    limit: Limit,
    request: &'a [u8],
    /// Bytes of headers that may still be repeated.
    repeatable: usize,
    /// Messages around the next entry, outermost first.
    path: SmallVec<[Level<'a>; 4]>,
    done: Vec<(usize, Bytes)>,
    /// State of the current part: its items, its encoded size, and its content.
    items: usize,
    len: usize,
    chunks: Vec<Chunk<'a>>,
}

/// An open message.
struct Level<'a> {
    number: u32,
    /// The whole field as received.
    raw: &'a [u8],
    header: Header<'a>,
    /// Index of the message in the current part, if the part contains the message already.
    chunk: Option<usize>,
    /// Whether the message is in any part.
    written: bool,
}

/// Fields of a message that every part of the message repeats.
#[derive(Clone, Default)]
struct Header<'a> {
    /// Runs of adjacent fields.
    runs: SmallVec<[&'a [u8]; 2]>,
    pub(super) len: usize,
}

impl<'a> Header<'a> {
    fn of(message: &'a [u8], is_header: impl Fn(u32) -> bool) -> Self {
        let mut header = Header::default();
        header.extend(message, is_header);
        header
    }

    fn extend(&mut self, message: &'a [u8], is_header: impl Fn(u32) -> bool) {
        for field in fields(message).filter(|field| is_header(field.number)) {
            self.len += field.raw.len();
            match self.runs.last_mut() {
                Some(run) => match joined(message, run, field.raw) {
                    Some(longer) => *run = longer,
                    None => self.runs.push(field.raw),
                },
                None => self.runs.push(field.raw),
            }
        }
    }
}

/// Joins two ranges of `whole`, if the second follows the first.
pub(super) fn joined<'a>(whole: &'a [u8], first: &[u8], second: &[u8]) -> Option<&'a [u8]> {
    let start = first.as_ptr().addr().checked_sub(whole.as_ptr().addr())?;
    let follows = first.as_ptr_range().end == second.as_ptr();
    let end = start + first.len() + second.len();
    follows.then(|| whole.get(start..end)).flatten()
}

enum Chunk<'a> {
    /// Key, length and header of a message, followed by its content.
    Open {
        number: u32,
        body_len: usize,
        header: Header<'a>,
    },
    /// Consecutive whole fields.
    Fields(&'a [u8]),
}

impl<'a> Packer<'a> {
    fn new(limit: Limit, request: &'a [u8]) -> Self {
        Packer {
            limit,
            request,
            repeatable: request.len().max(REPEATED),
            path: SmallVec::new(),
            done: Vec::new(),
            items: 0,
            len: 0,
            chunks: Vec::new(),
        }
    }

    /// Enters a message in the field `number`: `raw` as received, and its repeated fields.
    fn enter(&mut self, number: u32, raw: &'a [u8], header: Header<'a>) {
        self.path.push(Level {
            number,
            raw,
            header,
            chunk: None,
            written: false,
        });
    }

    fn leave(&mut self) {
        if let Some(level) = self.path.pop()
            && !level.written
        {
            self.add(0, level.raw);
        }
    }

    /// Adds a field to the innermost message.
    fn add(&mut self, items: usize, field: &'a [u8]) {
        self.make_room(items, field.len());
        self.open_path(field.len());
        self.items += items;
        if let Some(Chunk::Fields(before)) = self.chunks.last_mut()
            && let Some(both) = joined(self.request, before, field)
        {
            *before = both;
        } else {
            self.chunks.push(Chunk::Fields(field));
        }
    }

    fn fits(&self, items: usize, len: usize) -> bool {
        self.items + items <= self.limit.items.max(1)
            && self.len.saturating_add(self.growth(len)) <= self.limit.bytes
    }

    /// Whether a field would fit into an empty part.
    fn fits_alone(&self, items: usize, len: usize) -> bool {
        let alone = self
            .path
            .iter()
            .rev()
            .fold(len, |inner, level| framed(level.header.len + inner));
        items <= self.limit.items && alone <= self.limit.bytes
    }

    /// Begins a new part if the current one has no room for these items and bytes.
    fn make_room(&mut self, items: usize, len: usize) {
        if !self.fits(items, len) && !self.chunks.is_empty() && self.may_repeat() {
            self.flush();
        }
    }

    /// Growth of the current part by a field of `len` bytes, including the messages around it.
    fn growth(&self, len: usize) -> usize {
        let levels = self.path.iter().rev();
        levels.fold(len, |growth, level| {
            match level.chunk.and_then(|chunk| self.chunks.get(chunk)) {
                Some(Chunk::Open { body_len, .. }) => framed(body_len + growth) - framed(*body_len),
                _ => framed(level.header.len + growth),
            }
        })
    }

    /// Whether the headers around the next entry may be repeated once more.
    fn may_repeat(&mut self) -> bool {
        let again = self.path.iter().filter(|level| level.written);
        let left = self
            .repeatable
            .checked_sub(again.map(|level| level.header.len).sum());
        self.repeatable = left.unwrap_or(self.repeatable);
        left.is_some()
    }

    /// Opens the messages around the next entry, and enlarges each by `len` bytes.
    fn open_path(&mut self, len: usize) {
        for level in &mut self.path {
            if level.chunk.is_none() {
                level.chunk = Some(self.chunks.len());
                level.written = true;
                self.chunks.push(Chunk::Open {
                    number: level.number,
                    body_len: usize::MAX,
                    header: level.header.clone(),
                });
            }
        }
        let mut growth = len;
        for level in self.path.iter().rev() {
            if let Some(Chunk::Open { body_len, .. }) =
                level.chunk.and_then(|chunk| self.chunks.get_mut(chunk))
            {
                let (before, old_len) = match *body_len {
                    usize::MAX => (0, level.header.len),
                    len => (framed(len), len),
                };
                *body_len = old_len + growth;
                growth = framed(*body_len) - before;
            }
        }
        self.len += growth;
    }

    fn flush(&mut self) {
        let mut piece = Vec::with_capacity(self.len);
        for chunk in self.chunks.drain(..) {
            match chunk {
                Chunk::Fields(fields) => piece.extend_from_slice(fields),
                Chunk::Open {
                    number,
                    body_len,
                    header,
                } => {
                    put_varint(u64::from(number << 3 | 2), &mut piece);
                    put_varint(body_len as u64, &mut piece);
                    for run in &header.runs {
                        piece.extend_from_slice(run);
                    }
                }
            }
        }
        debug_assert_eq!(piece.len(), self.len);
        self.done.push((self.items, piece.into()));
        self.items = 0;
        self.len = 0;
        for level in &mut self.path {
            level.chunk = None;
        }
    }

    fn finish(mut self) -> Vec<(usize, Bytes)> {
        if !self.chunks.is_empty() || self.done.is_empty() {
            self.flush();
        }
        self.done
    }
}

/// Returns the size of a message field: a key of one byte (numbers up to 15), the length, the message.
fn framed(body_len: usize) -> usize {
    1 + varint_len(body_len as u64) + body_len
}

fn fields(message: &[u8]) -> impl Iterator<Item = Field<'_>> {
    Fields::new(message).map_while(Result::ok)
}

fn message<'a>(field: &Field<'a>, number: u32) -> Option<&'a [u8]> {
    (field.number == number)
        .then(|| field.value.bytes())
        .flatten()
}
