//! The entries of one resource that go to one destination.

use std::borrow::Cow;

use bytes::Bytes;
use smallvec::SmallVec;

use super::super::reader::{Field, Fields, put_varint, varint_len};
use super::super::split::joined;
use super::super::view::Message;

/// The part of one resource that goes to one destination.
pub(super) struct Piece<'a> {
    request: &'a [u8],
    pub(super) destination: usize,
    pub(super) items: usize,
    /// Entries by the position of their scope, as runs of adjacent whole fields.
    pub(super) scopes: Vec<(usize, Vec<Cow<'a, [u8]>>)>,
}

/// The data points of a metric that go to one destination.
pub(super) struct Points<'a> {
    pub(super) destination: usize,
    pub(super) count: usize,
    /// Runs of points that are adjacent in the request.
    pub(super) runs: Vec<&'a [u8]>,
}

impl<'a> Points<'a> {
    pub(super) fn add(&mut self, request: &'a [u8], point: &'a [u8]) {
        self.count += 1;
        if let Some(run) = self.runs.last_mut()
            && let Some(longer) = joined(request, run, point)
        {
            *run = longer;
        } else {
            self.runs.push(point);
        }
    }
}

/// Fields that are repeated in every copy of their message.
#[derive(Default)]
pub(super) struct Header<'a> {
    fields: SmallVec<[&'a [u8]; 4]>,
    pub(super) len: usize,
}

impl<'a> Header<'a> {
    /// Returns the fields of a message except for the fields `entries`.
    pub(super) fn of(message: &Field<'a>, entries: u32) -> Self {
        let mut header = Header::default();
        header.extend(message, |number| number != entries);
        header
    }

    pub(super) fn extend(&mut self, message: &Field<'a>, is_header: impl Fn(u32) -> bool) {
        for field in message.fields().map_while(Result::ok) {
            if is_header(field.number) {
                self.fields.push(field.raw);
                self.len += field.raw.len();
            }
        }
    }

    fn write(&self, output: &mut Vec<u8>) {
        for field in &self.fields {
            output.extend_from_slice(field);
        }
    }
}

impl<'a> Piece<'a> {
    pub(super) fn add(&mut self, scope: usize, items: usize, entry: Cow<'a, [u8]>) {
        self.items += items;
        let entries = match self.scopes.last_mut() {
            Some((at, entries)) if *at == scope => entries,
            _ => {
                self.scopes.push((scope, vec![entry]));
                return;
            }
        };
        if let (Some(Cow::Borrowed(run)), Cow::Borrowed(next)) = (entries.last_mut(), &entry)
            && let Some(longer) = joined(self.request, run, next)
        {
            *run = longer;
        } else {
            entries.push(entry);
        }
    }

    /// Encodes this piece of a resource as a request.
    pub(super) fn write(&self, resource: &Header<'_>, scopes: &[Header<'_>]) -> Bytes {
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

/// Returns the piece for a destination, adding it if necessary.
pub(super) fn piece<'p, 'a>(
    pieces: &'p mut Vec<Piece<'a>>,
    request: &'a [u8],
    destination: usize,
) -> &'p mut Piece<'a> {
    let at = pieces
        .iter()
        .position(|piece| piece.destination == destination);
    let at = at.unwrap_or_else(|| {
        pieces.push(Piece {
            request,
            destination,
            items: 0,
            scopes: Vec::new(),
        });
        pieces.len() - 1
    });
    &mut pieces[at]
}

/// Encodes a metric with some of its points, as a field of its scope.
pub(super) fn metric(
    number: u32,
    header: &Header<'_>,
    around: &Header<'_>,
    points: &[&[u8]],
) -> Vec<u8> {
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

pub(super) fn message<'a>(field: &Field<'a>) -> Message<'a> {
    Message::new(field.value.bytes().unwrap_or_default())
}

/// Iterates over the messages in the fields `number`.
pub(super) fn numbered(fields: Fields<'_>, number: u32) -> impl Iterator<Item = Field<'_>> {
    let fields = fields.map_while(Result::ok);
    fields.filter(move |field| field.number == number && field.value.bytes().is_some())
}

/// Appends key and length of a message.
fn open(number: u32, len: usize, output: &mut Vec<u8>) {
    put_varint(u64::from(number << 3 | 2), output);
    put_varint(len as u64, output);
}

/// Returns the size of a message with its key and length. The key takes one byte for all numbers up to 15.
fn framed(len: usize) -> usize {
    1 + varint_len(len as u64) + len
}
