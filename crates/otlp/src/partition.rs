//! Taking a request apart by where its resources, entries or data points are to go.
//!
//! A resource that goes to one destination is not copied: a share consists of ranges of the request. If the entries of
//! one resource go to several destinations, the entries are copied unchanged. The fields around the entries are then
//! repeated for each destination, including unknown fields.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use smallvec::SmallVec;

use super::count::{self, metric_data};
use super::reader::{Field, Fields, put_varint, varint_len};
use super::view::{Message, ResourceEntry, ScopeEntry, View as _};
use crate::{Decoded, Requests, Signal};

/// The smallest part of a request that has a destination of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grain {
    /// Everything of a resource.
    Resource,
    /// A span, a metric, a log record.
    Entry,
    /// A data point of a metric; of other signals the same as an entry.
    Point,
}

/// A part of the request in its context; the input for choosing a destination.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// The resource and what it sent.
    pub resource: ResourceEntry<'a>,
    /// The scope, unless the whole of a resource is meant.
    pub scope: Option<ScopeEntry<'a>>,
    /// The span, metric or log record, unless the whole of a resource is meant.
    pub entry: Option<Message<'a>>,
    /// The data point and the number of the field of its metric that it is in, if it is one.
    pub point: Option<(u32, Message<'a>)>,
}

/// The part of a request that goes to one destination.
#[derive(Debug, Clone)]
pub struct Share {
    /// The destination.
    pub destination: usize,
    /// Spans, data points, log records.
    pub items: usize,
    /// The requests.
    pub requests: Requests,
}

/// Takes a valid request of traces, metrics or logs apart: every part of the given grain is in the share of the
/// destination that is said for it. Shares come in the order of their first parts.
///
/// If repeating the headers around the parts would take more bytes than the request has, all of a resource goes to the
/// destination of its first part: a large header over many small parts must not multiply the size of the request. A
/// resource without entries goes to the destination chosen for the resource. A scope or a metric without entries stays
/// in one of the shares.
pub fn partition(
    signal: Signal,
    request: &Bytes,
    grain: Grain,
    mut destination: impl FnMut(&Place<'_>) -> usize,
) -> Vec<Share> {
    match Partition::of(signal, request, grain, &mut destination) {
        Ok(shares) => shares,
        Err(SeveralForms) => {
            // Decoding and encoding brings every metric's data into one field.
            let decoded = Decoded::decode(signal, request).map(|decoded| decoded.encode());
            let plain = decoded.unwrap_or_else(|_| request.clone());
            let shares = Partition::of(signal, &plain, grain, &mut destination);
            shares.unwrap_or_else(|SeveralForms| {
                vec![Share {
                    destination: 0,
                    items: count::count(signal, &plain),
                    requests: plain.into(),
                }]
            })
        }
    }
}

/// Bytes of headers that may be repeated in small requests, too.
const REPEATED: usize = 64 << 10;

/// A metric that has to be cut has its data in more than one field.
struct SeveralForms;

struct Partition<'a, 'd> {
    signal: Signal,
    request: &'a Bytes,
    grain: Grain,
    destination: &'d mut dyn FnMut(&Place<'_>) -> usize,
    /// Bytes of headers that may still be repeated.
    repeatable: usize,
    shares: Vec<Parts>,
}

/// A share in the making.
struct Parts {
    destination: usize,
    items: usize,
    parts: Vec<Part>,
}

enum Part {
    /// Of the request.
    Range(Range<usize>),
    Written(Bytes),
}

/// The part of one resource that goes to one destination.
struct Piece<'a> {
    destination: usize,
    items: usize,
    /// By the position of the scope: its entries, each a whole field.
    scopes: Vec<(usize, Vec<Cow<'a, [u8]>>)>,
}

/// The fields of a message that are repeated wherever the message is.
#[derive(Default)]
struct Header<'a> {
    fields: SmallVec<[&'a [u8]; 4]>,
    len: usize,
}

impl<'a> Header<'a> {
    /// Everything but the fields of that number.
    fn of(message: &Field<'a>, entries: u32) -> Self {
        let mut header = Header::default();
        for field in message.fields().map_while(Result::ok) {
            if field.number != entries {
                header.fields.push(field.raw);
                header.len += field.raw.len();
            }
        }
        header
    }

    fn write(&self, output: &mut Vec<u8>) {
        for field in &self.fields {
            output.extend_from_slice(field);
        }
    }
}

impl<'a> Partition<'a, '_> {
    fn of(
        signal: Signal,
        request: &'a Bytes,
        grain: Grain,
        destination: &mut dyn FnMut(&Place<'_>) -> usize,
    ) -> Result<Vec<Share>, SeveralForms> {
        let mut partition = Partition {
            signal,
            request,
            grain,
            destination,
            repeatable: request.len().max(REPEATED),
            shares: Vec::new(),
        };
        for field in Fields::new(request).map_while(Result::ok) {
            if field.number == 1 {
                partition.resource(&field)?;
            } else {
                // Unknown; all that can be said is that it came with this request.
                let first = partition.shares.first();
                let to = first.map_or(0, |share| share.destination);
                partition.add(to, 0, Part::Range(field.range()));
            }
        }
        Ok(partition.finish())
    }

    fn resource(&mut self, field: &Field<'a>) -> Result<(), SeveralForms> {
        let resource = Place {
            resource: ResourceEntry::view(message(field)),
            scope: None,
            entry: None,
            point: None,
        };
        let items = count::count(self.signal, field.raw);
        if self.grain == Grain::Resource {
            let to = (self.destination)(&resource);
            self.add(to, items, Part::Range(field.range()));
            return Ok(());
        }
        let (pieces, scopes) = self.pieces(field, resource)?;
        let to = match pieces.first() {
            None => (self.destination)(&resource),
            Some(first) => first.destination,
        };
        let header = Header::of(field, 2);
        let headers = scopes.iter().fold(header.len, |sum, scope| sum + scope.len);
        let repeated = headers.saturating_mul(pieces.len().saturating_sub(1));
        if pieces.len() < 2 || repeated > self.repeatable {
            self.add(to, items, Part::Range(field.range()));
            return Ok(());
        }
        self.repeatable -= repeated;
        for piece in pieces {
            let written = piece.write(&header, &scopes);
            self.add(piece.destination, piece.items, Part::Written(written));
        }
        Ok(())
    }

    /// Returns the pieces of a resource by destination, and the headers of its scopes.
    fn pieces(
        &mut self,
        field: &Field<'a>,
        resource: Place<'a>,
    ) -> Result<(Vec<Piece<'a>>, Vec<Header<'a>>), SeveralForms> {
        let mut pieces: Vec<Piece<'a>> = Vec::new();
        let mut scopes = Vec::new();
        let mut empty = Vec::new();
        for scope in numbered(field.fields(), 2) {
            let at = scopes.len();
            scopes.push(Header::of(&scope, 2));
            let place = Place {
                scope: Some(ScopeEntry::view(message(&scope))),
                ..resource
            };
            let mut entries = numbered(scope.fields(), 2).peekable();
            if entries.peek().is_none() {
                empty.push(at);
            }
            for entry in entries {
                let place = Place {
                    entry: Some(message(&entry)),
                    ..place
                };
                if self.signal == Signal::Metrics && self.grain == Grain::Point {
                    self.metric(&entry, place, at, &mut pieces)?;
                    continue;
                }
                let items = match self.signal {
                    Signal::Metrics => count::metric(entry.value.bytes().unwrap_or_default()),
                    _ => 1,
                };
                let to = (self.destination)(&place);
                piece(&mut pieces, to).add(at, items, Cow::Borrowed(entry.raw));
            }
        }
        if let Some(first) = pieces.first_mut() {
            first
                .scopes
                .extend(empty.into_iter().map(|at| (at, Vec::new())));
            first.scopes.sort_by_key(|(at, _)| *at);
        }
        Ok((pieces, scopes))
    }

    /// Brings the data points of a metric where they go.
    fn metric(
        &mut self,
        entry: &Field<'a>,
        place: Place<'a>,
        scope: usize,
        pieces: &mut Vec<Piece<'a>>,
    ) -> Result<(), SeveralForms> {
        let forms = entry.fields().map_while(Result::ok);
        let mut forms = forms.filter(|field| metric_data(field).is_some());
        let Some(data) = forms.next() else {
            let to = (self.destination)(&place);
            piece(pieces, to).add(scope, 0, Cow::Borrowed(entry.raw));
            return Ok(());
        };
        if forms.next().is_some() {
            return Err(SeveralForms);
        }
        let mut shares: Vec<(usize, Vec<&'a [u8]>)> = Vec::new();
        for point in numbered(data.fields(), 1) {
            let to = (self.destination)(&Place {
                point: Some((data.number, message(&point))),
                ..place
            });
            match shares.iter_mut().find(|(other, _)| *other == to) {
                Some((_, points)) => points.push(point.raw),
                None => shares.push((to, vec![point.raw])),
            }
        }
        match shares.as_slice() {
            [] => {
                let to = (self.destination)(&place);
                piece(pieces, to).add(scope, 0, Cow::Borrowed(entry.raw));
            }
            [(to, points)] => {
                piece(pieces, *to).add(scope, points.len(), Cow::Borrowed(entry.raw));
            }
            several => {
                let (header, around) = (Header::of(entry, data.number), Header::of(&data, 1));
                let repeated = (header.len + around.len).saturating_mul(several.len() - 1);
                let Some(left) = self.repeatable.checked_sub(repeated) else {
                    let (to, items) = (several[0].0, count::metric(place_bytes(&place)));
                    piece(pieces, to).add(scope, items, Cow::Borrowed(entry.raw));
                    return Ok(());
                };
                self.repeatable = left;
                for (to, points) in several {
                    let written = metric(data.number, &header, &around, points);
                    piece(pieces, *to).add(scope, points.len(), Cow::Owned(written));
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, destination: usize, items: usize, part: Part) {
        let shares = &mut self.shares;
        let at = shares
            .iter()
            .position(|share| share.destination == destination);
        let at = at.unwrap_or_else(|| {
            shares.push(Parts {
                destination,
                items: 0,
                parts: Vec::new(),
            });
            shares.len() - 1
        });
        let Some(share) = shares.get_mut(at) else {
            return;
        };
        share.items += items;
        match (share.parts.last_mut(), part) {
            (Some(Part::Range(before)), Part::Range(range)) if before.end == range.start => {
                before.end = range.end;
            }
            (_, part) => share.parts.push(part),
        }
    }

    fn finish(self) -> Vec<Share> {
        let request = self.request;
        let shares = self.shares.into_iter().map(|share| Share {
            destination: share.destination,
            items: share.items,
            requests: share
                .parts
                .into_iter()
                .map(|part| match part {
                    Part::Range(range) => request.slice(range),
                    Part::Written(bytes) => bytes,
                })
                .collect(),
        });
        shares.collect()
    }
}

impl<'a> Piece<'a> {
    fn add(&mut self, scope: usize, items: usize, entry: Cow<'a, [u8]>) {
        self.items += items;
        match self.scopes.last_mut() {
            Some((at, entries)) if *at == scope => entries.push(entry),
            _ => self.scopes.push((scope, vec![entry])),
        }
    }

    /// A request with this piece of a resource.
    fn write(&self, resource: &Header<'_>, scopes: &[Header<'_>]) -> Bytes {
        let body = |(at, entries): &(usize, Vec<Cow<'_, [u8]>>)| {
            let header = scopes.get(*at).map_or(0, |scope| scope.len);
            entries.iter().fold(header, |sum, entry| sum + entry.len())
        };
        let all = self.scopes.iter();
        let len = all.fold(resource.len, |sum, scope| sum + framed(body(scope)));
        let mut output = Vec::with_capacity(framed(len));
        open(1, len, &mut output);
        resource.write(&mut output);
        for scope in &self.scopes {
            open(2, body(scope), &mut output);
            let (at, entries) = scope;
            if let Some(header) = scopes.get(*at) {
                header.write(&mut output);
            }
            for entry in entries {
                output.extend_from_slice(entry);
            }
        }
        output.into()
    }
}

/// The piece for a destination.
fn piece<'p, 'a>(pieces: &'p mut Vec<Piece<'a>>, destination: usize) -> &'p mut Piece<'a> {
    let at = pieces
        .iter()
        .position(|piece| piece.destination == destination);
    let at = at.unwrap_or_else(|| {
        pieces.push(Piece {
            destination,
            items: 0,
            scopes: Vec::new(),
        });
        pieces.len() - 1
    });
    &mut pieces[at]
}

/// A metric with some of its points, as a field of its scope.
fn metric(number: u32, header: &Header<'_>, around: &Header<'_>, points: &[&[u8]]) -> Vec<u8> {
    let data = points
        .iter()
        .fold(around.len, |sum, point| sum + point.len());
    let len = header.len + framed(data);
    let mut output = Vec::with_capacity(framed(len));
    open(2, len, &mut output);
    header.write(&mut output);
    open(number, data, &mut output);
    around.write(&mut output);
    for point in points {
        output.extend_from_slice(point);
    }
    output
}

fn place_bytes<'a>(place: &Place<'a>) -> &'a [u8] {
    place.entry.map_or(&[], |entry| entry.encoded())
}

fn message<'a>(field: &Field<'a>) -> Message<'a> {
    Message::new(field.value.bytes().unwrap_or_default())
}

/// The messages in the fields of that number.
fn numbered(fields: Fields<'_>, number: u32) -> impl Iterator<Item = Field<'_>> {
    let fields = fields.map_while(Result::ok);
    fields.filter(move |field| field.number == number && field.value.bytes().is_some())
}

/// Key and length of a message.
fn open(number: u32, len: usize, output: &mut Vec<u8>) {
    put_varint(u64::from(number << 3 | 2), output);
    put_varint(len as u64, output);
}

/// The bytes of a message of that length with its key, which is one byte for every number up to 15.
fn framed(len: usize) -> usize {
    1 + varint_len(len as u64) + len
}
