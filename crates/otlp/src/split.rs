//! Cutting requests into pieces of bounded size.
//!
//! Entries (spans, log records, metrics) are copied as they are; the headers of the messages around them - every other
//! field, unknown ones too - are repeated in each piece. A piece is planned first, so that every length in it is known
//! and it is written in one go.

use bytes::Bytes;
use smallvec::SmallVec;

use super::Limit;
use super::count::{self, metric_data};
use super::reader::{Field, Fields, Value, put_varint, varint_len};
use crate::{Decoded, Signal};

/// Cuts a valid request into pieces within `limit`, each with its number of items, in order; resource and scope headers
/// are repeated. A single item above the byte limit becomes a piece of its own. A request of profiles is returned as it
/// is: its dictionary is shared, and `tributary_profiles::split` knows how to divide that.
///
/// Metrics count in data points: a metric that alone exceeds the limit is cut between its points, and the rest of it
/// is repeated. Where repeating headers would take more bytes than the request has, pieces exceed the limit: a large
/// header over many small items must not become a multiple of what was received. A resource, a scope or a metric
/// without items stays in one of the pieces. What fits is returned as it is, without a copy.
pub fn split(signal: Signal, request: &Bytes, limit: Limit) -> Vec<(usize, Bytes)> {
    let items = count::count(signal, request);
    if signal == Signal::Profiles || (items <= limit.items && request.len() <= limit.bytes) {
        return vec![(items, request.clone())];
    }
    if let Ok(pieces) = cut(signal, request, limit) {
        return pieces;
    }
    // Decoding and encoding brings every metric's data into one field.
    let plain = Decoded::decode(signal, request).map(|decoded| decoded.encode());
    match plain.map(|plain| cut(signal, &plain, limit)) {
        Ok(Ok(pieces)) => pieces,
        _ => vec![(items, request.clone())],
    }
}

/// Bytes of headers that may be repeated in small requests, too.
const REPEATED: usize = 64 << 10;

/// A metric that has to be cut has its data in more than one field.
struct SeveralForms;

fn cut(signal: Signal, request: &[u8], limit: Limit) -> Result<Vec<(usize, Bytes)>, SeveralForms> {
    let mut packer = Packer::new(limit, request.len().max(REPEATED));
    for field in fields(request) {
        let Some(resource) = message(&field, 1) else {
            // Unknown; all that can be said is that it came with this request.
            packer.add(0, field.raw);
            continue;
        };
        packer.enter(1, resource, 2);
        for scope in messages(resource, 2) {
            packer.enter(2, scope, 2);
            for entry in fields(scope).filter(|field| field.number == 2) {
                match signal {
                    Signal::Metrics => add_metric(&mut packer, &entry)?,
                    _ => packer.add(1, entry.raw),
                }
            }
            packer.leave();
        }
        packer.leave();
    }
    Ok(packer.finish())
}

fn add_metric<'a>(packer: &mut Packer<'a>, entry: &Field<'a>) -> Result<(), SeveralForms> {
    let Value::Bytes(metric) = entry.value else {
        return Ok(());
    };
    let points = count::metric(metric);
    if points <= 1 || packer.fits_alone(points, entry.raw.len()) {
        packer.add(points, entry.raw);
        return Ok(());
    }
    let mut forms =
        fields(metric).filter_map(|field| metric_data(&field).map(|data| (field.number, data)));
    let (Some((number, data)), None) = (forms.next(), forms.next()) else {
        return Err(SeveralForms);
    };
    packer.enter(2, metric, number);
    packer.enter(number, data, 1);
    for point in fields(data).filter(|field| field.number == 1) {
        packer.add(1, point.raw);
    }
    packer.leave();
    packer.leave();
    Ok(())
}

/// Fills one piece after the other.
struct Packer<'a> {
    limit: Limit,
    /// Bytes of headers that may still be repeated.
    repeatable: usize,
    /// The messages around the next entry, outermost first.
    path: SmallVec<[Level<'a>; 4]>,
    done: Vec<(usize, Bytes)>,
    /// The current piece: its items, its encoded length, and what it is made of.
    items: usize,
    len: usize,
    chunks: Vec<Chunk<'a>>,
}

/// A message that is open.
struct Level<'a> {
    number: u32,
    header: Header<'a>,
    /// Where it is in the current piece, when it is there already.
    chunk: Option<usize>,
    /// Whether it is in any piece.
    written: bool,
}

/// The fields of a message that are repeated wherever the message is.
#[derive(Clone, Default)]
struct Header<'a> {
    fields: SmallVec<[&'a [u8]; 4]>,
    len: usize,
}

enum Chunk<'a> {
    /// Key, length and header of a message; what is in it follows.
    Open {
        number: u32,
        body_len: usize,
        header: Header<'a>,
    },
    /// A whole field.
    Field(&'a [u8]),
}

impl<'a> Packer<'a> {
    fn new(limit: Limit, repeatable: usize) -> Self {
        Packer {
            limit,
            repeatable,
            path: SmallVec::new(),
            done: Vec::new(),
            items: 0,
            len: 0,
            chunks: Vec::new(),
        }
    }

    /// Goes into the field `number`, a message whose entries are its fields `entries`.
    fn enter(&mut self, number: u32, message: &'a [u8], entries: u32) {
        let mut header = Header::default();
        for field in fields(message).filter(|field| field.number != entries) {
            header.fields.push(field.raw);
            header.len += field.raw.len();
        }
        self.path.push(Level {
            number,
            header,
            chunk: None,
            written: false,
        });
    }

    fn leave(&mut self) {
        // A message without entries is telemetry too.
        if self.path.last().is_some_and(|level| !level.written) {
            self.make_room(0, 0);
            self.open_path(0);
        }
        self.path.pop();
    }

    /// Adds a field to the innermost message.
    fn add(&mut self, items: usize, field: &'a [u8]) {
        self.make_room(items, field.len());
        self.open_path(field.len());
        self.items += items;
        self.chunks.push(Chunk::Field(field));
    }

    /// Whether a field would fit into a piece that has nothing else.
    fn fits_alone(&self, items: usize, len: usize) -> bool {
        let alone = self
            .path
            .iter()
            .rev()
            .fold(len, |inner, level| framed(level.header.len + inner));
        items <= self.limit.items && alone <= self.limit.bytes
    }

    /// Begins a new piece when the current one cannot take that much more.
    fn make_room(&mut self, items: usize, len: usize) {
        let mut growth = len;
        for level in self.path.iter().rev() {
            growth = match level.chunk.and_then(|chunk| self.chunks.get(chunk)) {
                Some(Chunk::Open { body_len, .. }) => framed(body_len + growth) - framed(*body_len),
                _ => framed(level.header.len + growth),
            };
        }
        let full = self.items + items > self.limit.items.max(1)
            || self.len.saturating_add(growth) > self.limit.bytes;
        if full && !self.chunks.is_empty() && self.may_repeat() {
            self.flush();
        }
    }

    /// Whether the headers around the next entry may go into one more piece.
    fn may_repeat(&mut self) -> bool {
        let again = self.path.iter().filter(|level| level.written);
        let left = self
            .repeatable
            .checked_sub(again.map(|level| level.header.len).sum());
        self.repeatable = left.unwrap_or(self.repeatable);
        left.is_some()
    }

    /// Opens what is not open yet, and lets every message around grow by `len` bytes.
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
                Chunk::Field(field) => piece.extend_from_slice(field),
                Chunk::Open {
                    number,
                    body_len,
                    header,
                } => {
                    put_varint(u64::from(number << 3 | 2), &mut piece);
                    put_varint(body_len as u64, &mut piece);
                    for field in &header.fields {
                        piece.extend_from_slice(field);
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

/// The bytes of a message field: a key of one byte (numbers up to 15), the length, the message.
fn framed(body_len: usize) -> usize {
    1 + varint_len(body_len as u64) + body_len
}

fn fields(message: &[u8]) -> impl Iterator<Item = Field<'_>> {
    Fields::new(message).map_while(Result::ok)
}

fn messages(message: &[u8], number: u32) -> impl Iterator<Item = &[u8]> {
    fields(message).filter_map(move |field| self::message(&field, number))
}

fn message<'a>(field: &Field<'a>, number: u32) -> Option<&'a [u8]> {
    (field.number == number)
        .then(|| field.value.bytes())
        .flatten()
}
