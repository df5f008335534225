//! Spans, with their events and links.

use super::attributes::{Pairs, Sets, encode_bytes};
use super::chunk::RowGroup;
use super::ranges::Ranges;
use super::read::{bytes, each, fields, id, number, odd};
use super::rows::{Place, Shared};
use super::strings::Strings;
use super::values::{Delta, Fixed};
use super::{Kind, Layout, WriteError};
use crate::wire::Malformed;

/// The columns that only spans have.
#[derive(Debug, Default)]
pub(super) struct Columns {
    duration: Vec<Option<i64>>,
    name: Vec<u32>,
    kind: Vec<u32>,
    status: Vec<u32>,
    status_message: Vec<u32>,
    trace: Vec<Option<[u8; 16]>>,
    span: Vec<Option<[u8; 8]>>,
    parent: Vec<Option<[u8; 8]>>,
    trace_state: Vec<u32>,
    flags: Vec<u32>,
    dropped: Vec<u32>,
    attributes: Sets,
    events: Events,
    dropped_events: Vec<u32>,
    links: Links,
    dropped_links: Vec<u32>,
}

#[derive(Debug, Default)]
struct Events {
    rows: Ranges,
    time: Vec<i64>,
    name: Vec<u32>,
    attributes: Sets,
    dropped: Vec<u32>,
}

#[derive(Debug, Default)]
struct Links {
    rows: Ranges,
    trace: Vec<[u8; 16]>,
    span: Vec<[u8; 8]>,
    trace_state: Vec<u32>,
    flags: Vec<u32>,
    attributes: Sets,
    dropped: Vec<u32>,
}

/// A span, read once.
#[derive(Debug, Default)]
struct Span<'r> {
    message: &'r [u8],
    trace: &'r [u8],
    span: &'r [u8],
    parent: &'r [u8],
    trace_state: &'r [u8],
    name: &'r [u8],
    kind: u32,
    start: u64,
    end: u64,
    flags: u32,
    dropped: u32,
    dropped_events: u32,
    dropped_links: u32,
    status: &'r [u8],
}

impl<'r> Span<'r> {
    fn read(message: &'r [u8]) -> Result<(u64, Self), Malformed> {
        let mut span = Span {
            message,
            ..Span::default()
        };
        for field in fields(message) {
            match field? {
                (1, value) => span.trace = bytes(value),
                (2, value) => span.span = bytes(value),
                (3, value) => span.trace_state = bytes(value),
                (4, value) => span.parent = bytes(value),
                (5, value) => span.name = bytes(value),
                (6, value) => span.kind = number(value) as u32,
                (7, value) => span.start = number(value),
                (8, value) => span.end = number(value),
                (10, value) => span.dropped = number(value) as u32,
                (12, value) => span.dropped_events = number(value) as u32,
                (14, value) => span.dropped_links = number(value) as u32,
                (15, value) => span.status = bytes(value),
                (16, value) => span.flags = number(value) as u32,
                _ => {}
            }
        }
        Ok((span.start, span))
    }
}

pub(super) fn append(scope: &[u8], place: &mut Place<'_, '_>) -> Result<(), Malformed> {
    let spans = each(scope, 2).map(Span::read);
    place.append(Kind::Traces, spans, |table, context, span| {
        if let super::Columns::Traces(columns) = &mut table.columns {
            columns.push(&mut table.shared, context, &span);
        }
    })
}

/// The names of `SpanKind`; others are their numbers.
fn kind(number: u32) -> Option<&'static str> {
    const NAMES: [&str; 6] = [
        "unspecified",
        "internal",
        "server",
        "client",
        "producer",
        "consumer",
    ];
    NAMES.get(number as usize).copied()
}

/// The names of `StatusCode`; others are their numbers.
fn status(number: u32) -> Option<&'static str> {
    ["unset", "ok", "error"].get(number as usize).copied()
}

/// A name of an enumeration, or its number.
pub(super) fn name(texts: &mut Strings, name: Option<&'static str>, number: u32) -> u32 {
    match name {
        Some(name) => texts.intern(name.as_bytes()),
        None => texts.intern(number.cast_signed().to_string().as_bytes()),
    }
}

impl Columns {
    fn push(&mut self, shared: &mut Shared, context: u32, span: &Span<'_>) {
        shared.push(span.start.cast_signed(), context);
        let Shared { texts, pairs, .. } = shared;
        let duration = span.end.wrapping_sub(span.start).cast_signed();
        self.duration.push((span.end != 0).then_some(duration));
        self.name.push(texts.intern(span.name));
        self.kind.push(name(texts, kind(span.kind), span.kind));
        let (mut code, mut message) = (0, &[][..]);
        for (number, value) in fields(span.status).map_while(Result::ok) {
            match number {
                2 => message = bytes(value),
                3 => code = super::read::number(value) as u32,
                _ => {}
            }
        }
        self.status.push(name(texts, status(code), code));
        self.status_message.push(texts.intern(message));
        self.trace.push(id(span.trace));
        self.span.push(id(span.span));
        self.parent.push(id(span.parent));
        self.trace_state.push(texts.intern(span.trace_state));
        self.flags.push(span.flags);
        self.dropped.push(span.dropped);
        self.dropped_events.push(span.dropped_events);
        self.dropped_links.push(span.dropped_links);
        for (number, value) in fields(span.message).map_while(Result::ok) {
            match number {
                9 => self.attributes.push(pairs.add(bytes(value))),
                11 => self.events.push(bytes(value), texts, pairs),
                13 => self.links.push(bytes(value), texts, pairs),
                _ => {}
            }
        }
        for (key, is_odd, id) in [
            (&b"otlp.trace_id"[..], odd::<16>(span.trace), span.trace),
            (b"otlp.span_id", odd::<8>(span.span), span.span),
            (b"otlp.parent_span_id", odd::<8>(span.parent), span.parent),
        ] {
            if is_odd {
                self.attributes.push(pairs.add(&encode_bytes(key, id)));
            }
        }
        self.attributes.end(pairs, texts);
        self.events.rows.push(self.events.time.len());
        self.links.rows.push(self.links.trace.len());
    }

    pub(super) fn order(&self, shared: &Shared) -> Vec<u32> {
        shared.order(|_| 0)
    }

    pub(super) fn attributes(&self) -> Option<&Sets> {
        Some(&self.attributes)
    }

    pub(super) fn write(
        &self,
        shared: &Shared,
        _: &Layout,
        order: &[u32],
        group: &mut RowGroup<'_>,
    ) -> Result<(), WriteError> {
        let (texts, pairs) = (&shared.texts, &shared.pairs);
        let rows = order.iter().map(|row| *row as usize);
        fn column<T: Copy>(
            rows: impl Iterator<Item = usize> + Clone,
            column: &[T],
        ) -> impl Iterator<Item = T> + Clone {
            rows.map(|row| column[row])
        }
        let of = |values| column::<u32>(rows.clone(), values);
        shared.write_times(order, group)?;
        let durations = column(rows.clone(), &self.duration);
        group.optional("duration_nano", Delta::default(), durations)?;
        shared.write_service(order, group)?;
        group.texts("name", texts, of(&self.name))?;
        group.texts("kind", texts, of(&self.kind))?;
        group.texts("status_code", texts, of(&self.status))?;
        group.texts("status_message", texts, of(&self.status_message))?;
        group.ids("trace_id", column(rows.clone(), &self.trace))?;
        let spans = column(rows.clone(), &self.span);
        group.optional("span_id", Fixed::new(None), spans)?;
        let parents = column(rows.clone(), &self.parent);
        group.optional("parent_span_id", Fixed::new(None), parents)?;
        group.texts("trace_state", texts, of(&self.trace_state))?;
        group.numbers("flags", of(&self.flags), false)?;
        let attributes = rows.clone().map(|row| self.attributes.get(row));
        group.map("attributes", pairs, attributes)?;
        let types = rows.clone().map(|row| self.attributes.types(row));
        group.texts("attribute_types", texts, types)?;
        group.numbers("dropped_attributes_count", of(&self.dropped), false)?;
        self.events.write(rows.clone(), texts, pairs, group)?;
        group.numbers("dropped_events_count", of(&self.dropped_events), false)?;
        self.links.write(rows.clone(), texts, pairs, group)?;
        group.numbers("dropped_links_count", of(&self.dropped_links), false)
    }

    pub(super) fn clear(&mut self) {
        self.duration.clear();
        self.name.clear();
        self.kind.clear();
        self.status.clear();
        self.status_message.clear();
        self.trace.clear();
        self.span.clear();
        self.parent.clear();
        self.trace_state.clear();
        self.flags.clear();
        self.dropped.clear();
        self.attributes.clear();
        self.events.clear();
        self.dropped_events.clear();
        self.links.clear();
        self.dropped_links.clear();
    }

    pub(super) fn memory(&self) -> usize {
        let numbers = [
            &self.name,
            &self.kind,
            &self.status,
            &self.status_message,
            &self.trace_state,
            &self.flags,
            &self.dropped,
            &self.dropped_events,
            &self.dropped_links,
        ];
        let numbers = numbers.map(|column| column.capacity() * size_of::<u32>());
        numbers.iter().sum::<usize>()
            + self.duration.capacity() * size_of::<Option<i64>>()
            + self.trace.capacity() * size_of::<Option<[u8; 16]>>()
            + self.span.capacity() * size_of::<Option<[u8; 8]>>()
            + self.parent.capacity() * size_of::<Option<[u8; 8]>>()
            + self.attributes.memory()
            + self.events.memory()
            + self.links.memory()
    }
}

impl Events {
    fn push(&mut self, event: &[u8], texts: &mut Strings, pairs: &mut Pairs) {
        let (mut time, mut name, mut dropped) = (0, &[][..], 0);
        for (number, value) in fields(event).map_while(Result::ok) {
            match number {
                1 => time = super::read::number(value),
                2 => name = bytes(value),
                3 => self.attributes.push(pairs.add(bytes(value))),
                4 => dropped = super::read::number(value) as u32,
                _ => {}
            }
        }
        self.time.push(time.cast_signed());
        self.name.push(texts.intern(name));
        self.attributes.end(pairs, texts);
        self.dropped.push(dropped);
    }

    fn write(
        &self,
        rows: impl Iterator<Item = usize> + Clone,
        texts: &Strings,
        pairs: &Pairs,
        group: &mut RowGroup<'_>,
    ) -> Result<(), WriteError> {
        let rows = rows.map(|row| self.rows.get(row));
        let times = rows.clone().map(|row| row.map(|at| self.time[at]));
        group.list("event_timestamp", Delta::default(), times)?;
        let names = rows.clone().map(|row| row.map(|at| self.name[at]));
        group.text_lists("event_name", texts, names)?;
        let sets = &self.attributes;
        let attributes = rows.clone().map(|row| row.map(|at| sets.get(at)));
        group.maps("event_attributes", pairs, attributes)?;
        let types = rows.clone().map(|row| row.map(|at| sets.types(at)));
        group.text_lists("event_attribute_types", texts, types)?;
        let dropped = rows.map(|row| row.map(|at| self.dropped[at]));
        group.number_lists("event_dropped_attributes_count", dropped)
    }

    fn clear(&mut self) {
        self.rows.clear();
        self.time.clear();
        self.name.clear();
        self.attributes.clear();
        self.dropped.clear();
    }

    fn memory(&self) -> usize {
        self.rows.memory()
            + self.time.capacity() * size_of::<i64>()
            + (self.name.capacity() + self.dropped.capacity()) * size_of::<u32>()
            + self.attributes.memory()
    }
}

impl Links {
    fn push(&mut self, link: &[u8], texts: &mut Strings, pairs: &mut Pairs) {
        let (mut trace, mut span, mut state) = (&[][..], &[][..], &[][..]);
        let (mut dropped, mut flags) = (0, 0);
        for (number, value) in fields(link).map_while(Result::ok) {
            match number {
                1 => trace = bytes(value),
                2 => span = bytes(value),
                3 => state = bytes(value),
                4 => self.attributes.push(pairs.add(bytes(value))),
                5 => dropped = super::read::number(value) as u32,
                6 => flags = super::read::number(value) as u32,
                _ => {}
            }
        }
        self.trace.push(id(trace).unwrap_or_default());
        self.span.push(id(span).unwrap_or_default());
        if odd::<16>(trace) {
            let pair = encode_bytes(b"otlp.trace_id", trace);
            self.attributes.push(pairs.add(&pair));
        }
        if odd::<8>(span) {
            let pair = encode_bytes(b"otlp.span_id", span);
            self.attributes.push(pairs.add(&pair));
        }
        self.trace_state.push(texts.intern(state));
        self.flags.push(flags);
        self.attributes.end(pairs, texts);
        self.dropped.push(dropped);
    }

    fn write(
        &self,
        rows: impl Iterator<Item = usize> + Clone,
        texts: &Strings,
        pairs: &Pairs,
        group: &mut RowGroup<'_>,
    ) -> Result<(), WriteError> {
        let rows = rows.map(|row| self.rows.get(row));
        let traces = rows.clone().map(|row| row.map(|at| self.trace[at]));
        group.list("link_trace_id", Fixed::new(None), traces)?;
        let spans = rows.clone().map(|row| row.map(|at| self.span[at]));
        group.list("link_span_id", Fixed::new(None), spans)?;
        let states = rows.clone().map(|row| row.map(|at| self.trace_state[at]));
        group.text_lists("link_trace_state", texts, states)?;
        let flags = rows.clone().map(|row| row.map(|at| self.flags[at]));
        group.number_lists("link_flags", flags)?;
        let sets = &self.attributes;
        let attributes = rows.clone().map(|row| row.map(|at| sets.get(at)));
        group.maps("link_attributes", pairs, attributes)?;
        let types = rows.clone().map(|row| row.map(|at| sets.types(at)));
        group.text_lists("link_attribute_types", texts, types)?;
        let dropped = rows.map(|row| row.map(|at| self.dropped[at]));
        group.number_lists("link_dropped_attributes_count", dropped)
    }

    fn clear(&mut self) {
        self.rows.clear();
        self.trace.clear();
        self.span.clear();
        self.trace_state.clear();
        self.flags.clear();
        self.attributes.clear();
        self.dropped.clear();
    }

    fn memory(&self) -> usize {
        let numbers = [&self.trace_state, &self.flags, &self.dropped];
        let numbers = numbers.map(|column| column.capacity() * size_of::<u32>());
        self.rows.memory()
            + numbers.iter().sum::<usize>()
            + self.trace.capacity() * 16
            + self.span.capacity() * 8
            + self.attributes.memory()
    }
}
