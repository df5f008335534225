//! Splits a request by the destination of its resources, entries or data points.
//!
//! A resource with a single destination is not copied: a share consists of ranges of the request. If the
//! entries of one resource go to several destinations, the entries are copied unchanged. The fields around
//! the entries are then repeated for each destination, including unknown fields.

mod pieces;

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;

use self::pieces::{Header, Piece, Points, message, metric, numbered, piece};
use super::count::{self, metric_data};
use super::reader::{Field, Fields};
use super::view::{Message, ResourceEntry, ScopeEntry, View as _};
use crate::{Requests, Signal};

/// The smallest part of a request with its own destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartitionLevel {
    /// A resource with all its telemetry.
    Resource,
    /// A span, a metric, a log record.
    Entry,
    /// A data point of a metric; for other signals the same as an entry.
    Point,
}

/// Input of a routing decision: a part of the request in its context.
#[derive(Debug, Clone, Copy)]
pub struct ItemContext<'a> {
    /// The resource with its telemetry.
    pub resource: ResourceEntry<'a>,
    /// The scope, unless the part is a whole resource.
    pub scope: Option<ScopeEntry<'a>>,
    /// The span, metric or log record, unless the part is a whole resource.
    pub entry: Option<Message<'a>>,
    /// The data point and the number of its field in the metric, if the part is a data point.
    pub point: Option<(u32, Message<'a>)>,
}

/// The part of a request that goes to one destination.
#[derive(Debug, Clone)]
pub struct Share {
    /// The destination.
    pub destination: usize,
    /// Number of spans, data points or log records.
    pub items: usize,
    /// The requests.
    pub requests: Requests,
}

/// Splits a valid request of traces, metrics or logs: `destination` chooses the share for every part of the
/// given grain. Shares are in the order of their first parts.
///
/// If repeating the headers around the parts would take more bytes than the request has, the whole resource goes to the
/// destination of its first part: a large header over many small parts must not multiply the size of the request. A
/// resource without entries goes to the destination chosen for the resource. A scope or a metric without entries stays
/// in one of the shares.
pub fn partition(
    signal: Signal,
    request: &Bytes,
    grain: PartitionLevel,
    mut destination: impl FnMut(&ItemContext<'_>) -> usize,
) -> Vec<Share> {
    Partition::of(signal, request, grain, &mut destination)
}

/// Bytes of headers that may be repeated even in small requests.
const REPEATED: usize = 64 << 10;

struct Partition<'a, 'd> {
    signal: Signal,
    request: &'a Bytes,
    grain: PartitionLevel,
    destination: &'d mut dyn FnMut(&ItemContext<'_>) -> usize,
    /// Bytes of headers that may still be repeated.
    repeatable: usize,
    shares: Vec<Parts>,
}

struct Parts {
    destination: usize,
    items: usize,
    parts: Vec<Part>,
}

enum Part {
    Range(Range<usize>),
    Written(Bytes),
}

impl<'a> Partition<'a, '_> {
    fn of(
        signal: Signal,
        request: &'a Bytes,
        grain: PartitionLevel,
        destination: &mut dyn FnMut(&ItemContext<'_>) -> usize,
    ) -> Vec<Share> {
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
                partition.resource(&field);
            } else {
                let first = partition.shares.first();
                let to = first.map_or(0, |share| share.destination);
                partition.add(to, 0, Part::Range(field.range()));
            }
        }
        partition.finish()
    }

    fn resource(&mut self, field: &Field<'a>) {
        let resource = ItemContext {
            resource: ResourceEntry::view(message(field)),
            scope: None,
            entry: None,
            point: None,
        };
        let items = count::count(self.signal, field.raw);
        if self.grain == PartitionLevel::Resource {
            let to = (self.destination)(&resource);
            self.add(to, items, Part::Range(field.range()));
            return;
        }
        let (pieces, scopes) = self.pieces(field, resource);
        let to = match pieces.first() {
            None => (self.destination)(&resource),
            Some(first) => first.destination,
        };
        let header = Header::of(field, 2);
        let headers = scopes.iter().fold(header.len, |sum, scope| sum + scope.len);
        let repeated = headers.saturating_mul(pieces.len().saturating_sub(1));
        if pieces.len() < 2 || repeated > self.repeatable {
            self.add(to, items, Part::Range(field.range()));
            return;
        }
        self.repeatable -= repeated;
        for piece in pieces {
            let written = piece.write(&header, &scopes);
            self.add(piece.destination, piece.items, Part::Written(written));
        }
    }

    /// Returns the pieces of a resource by destination, and the headers of its scopes.
    fn pieces(
        &mut self,
        field: &Field<'a>,
        resource: ItemContext<'a>,
    ) -> (Vec<Piece<'a>>, Vec<Header<'a>>) {
        let mut pieces: Vec<Piece<'a>> = Vec::new();
        let mut scopes = Vec::new();
        let mut empty = Vec::new();
        for scope in numbered(field.fields(), 2) {
            let at = scopes.len();
            scopes.push(Header::of(&scope, 2));
            let place = ItemContext {
                scope: Some(ScopeEntry::view(message(&scope))),
                ..resource
            };
            let mut entries = numbered(scope.fields(), 2).peekable();
            if entries.peek().is_none() {
                empty.push(at);
            }
            for entry in entries {
                let place = ItemContext {
                    entry: Some(message(&entry)),
                    ..place
                };
                if self.signal == Signal::Metrics && self.grain == PartitionLevel::Point {
                    self.metric(&entry, place, at, &mut pieces);
                    continue;
                }
                let items = match self.signal {
                    Signal::Metrics => count::metric(entry.value.bytes().unwrap_or_default()),
                    _ => 1,
                };
                let to = (self.destination)(&place);
                piece(&mut pieces, self.request, to).add(at, items, Cow::Borrowed(entry.raw));
            }
        }
        if let Some(first) = pieces.first_mut() {
            first
                .scopes
                .extend(empty.into_iter().map(|at| (at, Vec::new())));
            first.scopes.sort_by_key(|(at, _)| *at);
        }
        (pieces, scopes)
    }

    /// Adds the data points of a metric to the pieces of their destinations. The data of a metric is a `oneof`: readers
    /// use the last form, and merge repeated fields of the same form. The pieces contain the result of both rules.
    fn metric(
        &mut self,
        entry: &Field<'a>,
        place: ItemContext<'a>,
        scope: usize,
        pieces: &mut Vec<Piece<'a>>,
    ) {
        let data = || {
            let fields = entry.fields().map_while(Result::ok);
            fields.filter(|field| metric_data(field).is_some())
        };
        let (mut form, mut superseded) = (0, 0);
        for (at, field) in data().enumerate() {
            if field.number != form {
                (form, superseded) = (field.number, at);
            }
        }
        let merged = || data().skip(superseded);
        let mut shares: Vec<Points<'a>> = Vec::new();
        for point in merged().flat_map(|data| numbered(data.fields(), 1)) {
            let to = (self.destination)(&ItemContext {
                point: Some((form, message(&point))),
                ..place
            });
            match shares.iter_mut().find(|share| share.destination == to) {
                Some(share) => share.add(self.request, point.raw),
                None => shares.push(Points {
                    destination: to,
                    count: 1,
                    runs: vec![point.raw],
                }),
            }
        }
        match shares.as_slice() {
            [] => {
                let to = (self.destination)(&place);
                piece(pieces, self.request, to).add(scope, 0, Cow::Borrowed(entry.raw));
            }
            [only] => {
                let piece = piece(pieces, self.request, only.destination);
                piece.add(scope, only.count, Cow::Borrowed(entry.raw));
            }
            several => {
                let (mut header, mut around) = (Header::default(), Header::default());
                header.extend(entry, |number| !count::is_metric_data(number));
                merged().for_each(|data| around.extend(&data, |number| number != 1));
                let repeated = (header.len + around.len).saturating_mul(several.len() - 1);
                let Some(left) = self.repeatable.checked_sub(repeated) else {
                    let (to, items) = (several[0].destination, count::metric(place_bytes(&place)));
                    piece(pieces, self.request, to).add(scope, items, Cow::Borrowed(entry.raw));
                    return;
                };
                self.repeatable = left;
                for share in several {
                    let written = metric(form, &header, &around, &share.runs);
                    let piece = piece(pieces, self.request, share.destination);
                    piece.add(scope, share.count, Cow::Owned(written));
                }
            }
        }
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

fn place_bytes<'a>(place: &ItemContext<'a>) -> &'a [u8] {
    place.entry.map_or(&[], |entry| entry.encoded())
}
