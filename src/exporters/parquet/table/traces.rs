//! Spans, with their events and links.

use std::ops::ControlFlow;

use super::attributes::{Pairs, Sets};
use super::cost::row_memory;
use super::gathered::gathered;
use super::group::RowGroup;
use super::kind::TableKind;
use super::order::{Rows, values};
use super::ranges::Ranges;
use super::read::{bytes, each, fields, number};
use super::rows::{Item, Place, Shared};
use super::strings::Strings;
use super::{Layout, RowColumns, WriteError};
use tributary_otlp::Malformed;

gathered! {
    /// Columns of spans only.
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
        events: Events,
        dropped_events: Vec<u32>,
        links: Links,
        dropped_links: Vec<u32>,
    }
}

gathered! {
    struct Events {
        rows: Ranges,
        time: Vec<i64>,
        name: Vec<u32>,
        attributes: Sets,
        dropped: Vec<u32>,
    }
}

gathered! {
    struct Links {
        rows: Ranges,
        trace: Vec<[u8; 16]>,
        span: Vec<[u8; 8]>,
        trace_state: Vec<u32>,
        flags: Vec<u32>,
        attributes: Sets,
        dropped: Vec<u32>,
    }
}

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
    fn read(message: &'r [u8]) -> Result<Item<Self>, Malformed> {
        let mut all = 0;
        let mut span = Span {
            message,
            ..Span::default()
        };
        for field in fields(message) {
            all += 1;
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
        Ok(Item {
            time: span.start,
            memory: row_memory(message.len(), all),
            content: span,
        })
    }
}

pub(super) fn append(
    scope: &[u8],
    place: &mut Place<'_, '_>,
) -> Result<ControlFlow<()>, Malformed> {
    let spans = each(scope, 2).map(Span::read);
    place.append(TableKind::Traces, 0, spans, |table, context, span| {
        if let super::Columns::Traces(columns) = &mut table.columns {
            columns.push(&mut table.shared, context, &span);
        }
    })
}

/// Returns the name of a `SpanKind`; `None` for an unknown value.
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

/// Returns the name of a `StatusCode`; `None` for an unknown value.
fn status(number: u32) -> Option<&'static str> {
    ["unset", "ok", "error"].get(number as usize).copied()
}

/// Returns the name of an enumeration's value, or its number as text.
pub(super) fn name(texts: &mut Strings, name: Option<&'static str>, number: u32) -> u32 {
    match name {
        Some(name) => texts.intern(name.as_bytes()),
        None => texts.intern(number.cast_signed().to_string().as_bytes()),
    }
}

impl Columns {
    fn push(&mut self, shared: &mut Shared, context: u32, span: &Span<'_>) {
        shared.push(span.start.cast_signed(), context);
        let Shared {
            texts,
            pairs,
            attributes,
            ..
        } = shared;
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
        self.trace_state.push(texts.intern(span.trace_state));
        self.flags.push(span.flags);
        self.dropped.push(span.dropped);
        self.dropped_events.push(span.dropped_events);
        self.dropped_links.push(span.dropped_links);
        for (number, value) in fields(span.message).map_while(Result::ok) {
            match number {
                9 => attributes.push(pairs.add(bytes(value))),
                11 => self.events.push(bytes(value), texts, pairs),
                13 => self.links.push(bytes(value), texts, pairs),
                _ => {}
            }
        }
        let trace = attributes.id(b"otlp.trace_id", span.trace, pairs);
        self.trace.push(trace);
        let parent = span.parent;
        let span = attributes.id(b"otlp.span_id", span.span, pairs);
        self.span.push(span);
        let parent = attributes.id(b"otlp.parent_span_id", parent, pairs);
        self.parent.push(parent);
        attributes.end(pairs, texts);
        self.events.rows.push(self.events.time.len());
        self.links.rows.push(self.links.trace.len());
    }
}

impl RowColumns for Columns {
    fn write(
        &self,
        shared: &Shared,
        _: &Layout,
        rows: Rows<'_>,
        group: &mut RowGroup<'_>,
    ) -> Result<(), WriteError> {
        let texts = &shared.texts;
        shared.write_times(rows, group)?;
        group.optional_deltas("duration_nano", rows.of(&self.duration))?;
        shared.write_service(rows, group)?;
        group.texts("name", texts, rows.of(&self.name))?;
        group.texts("kind", texts, rows.of(&self.kind))?;
        group.texts("status_code", texts, rows.of(&self.status))?;
        group.texts("status_message", texts, rows.of(&self.status_message))?;
        group.ids("trace_id", rows.of(&self.trace))?;
        group.plain_ids("span_id", rows.of(&self.span))?;
        group.plain_ids("parent_span_id", rows.of(&self.parent))?;
        group.texts("trace_state", texts, rows.of(&self.trace_state))?;
        group.numbers("flags", rows.of(&self.flags), false)?;
        let names = ["attributes", "attribute_types"];
        group.attributes(names, &shared.attributes, shared, rows.iter())?;
        group.numbers("dropped_attributes_count", rows.of(&self.dropped), false)?;
        self.events.write(shared, rows, group)?;
        let dropped = rows.of(&self.dropped_events);
        group.numbers("dropped_events_count", dropped, false)?;
        self.links.write(shared, rows, group)?;
        group.numbers("dropped_links_count", rows.of(&self.dropped_links), false)
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
        shared: &Shared,
        rows: Rows<'_>,
        group: &mut RowGroup<'_>,
    ) -> Result<(), WriteError> {
        let lists = rows.lists(&self.rows);
        let times = values(lists.clone(), &self.time);
        group.time_lists(["event_timestamp", "event_timestamp_nanos"], times)?;
        let names = values(lists.clone(), &self.name);
        group.text_lists("event_name", &shared.texts, names)?;
        let names = ["event_attributes", "event_attribute_types"];
        group.attribute_lists(names, &self.attributes, shared, lists.clone())?;
        let dropped = values(lists, &self.dropped);
        group.number_lists("event_dropped_attributes_count", dropped)
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
        let attributes = &mut self.attributes;
        let trace = attributes.id(b"otlp.trace_id", trace, pairs);
        self.trace.push(trace.unwrap_or_default());
        let span = attributes.id(b"otlp.span_id", span, pairs);
        self.span.push(span.unwrap_or_default());
        self.trace_state.push(texts.intern(state));
        self.flags.push(flags);
        self.attributes.end(pairs, texts);
        self.dropped.push(dropped);
    }

    fn write(
        &self,
        shared: &Shared,
        rows: Rows<'_>,
        group: &mut RowGroup<'_>,
    ) -> Result<(), WriteError> {
        let lists = rows.lists(&self.rows);
        group.id_lists("link_trace_id", values(lists.clone(), &self.trace))?;
        group.id_lists("link_span_id", values(lists.clone(), &self.span))?;
        let states = values(lists.clone(), &self.trace_state);
        group.text_lists("link_trace_state", &shared.texts, states)?;
        group.number_lists("link_flags", values(lists.clone(), &self.flags))?;
        let names = ["link_attributes", "link_attribute_types"];
        group.attribute_lists(names, &self.attributes, shared, lists.clone())?;
        let dropped = values(lists, &self.dropped);
        group.number_lists("link_dropped_attributes_count", dropped)
    }
}
