//! Log records.

use std::ops::ControlFlow;

use smallvec::SmallVec;

use super::cost::row_memory;
use super::gathered::gathered;
use super::group::RowGroup;
use super::kind::TableKind;
use super::order::Rows;
use super::read::{bytes, each, fields, number, time};
use super::rows::{Item, RowDestination, Shared};
use super::strings::{NONE, Texts};
use super::{Layout, RowColumns, WriteError, text};
use tributary_otlp::Malformed;
use tributary_otlp::view::{AnyValue, Message, View as _};

gathered! {
    /// Columns of log records only.
    pub(super) struct Columns {
        /// Whether the row's time is the observed time.
        is_observed: Vec<bool>,
        observed: Vec<u64>,
        severity: Vec<u32>,
        severity_text: Vec<u32>,
        event_name: Vec<u32>,
        bodies: Texts,
        body: Vec<u32>,
        body_type: Vec<u32>,
        trace: Vec<Option<[u8; 16]>>,
        span: Vec<Option<[u8; 8]>>,
        flags: Vec<u32>,
        dropped: Vec<u32>,
        scratch: Vec<u8>,
    }
}

/// A decoded log record.
#[derive(Debug, Default)]
struct Record<'r> {
    attributes: SmallVec<[&'r [u8]; 12]>,
    time: u64,
    observed: u64,
    severity: u32,
    severity_text: &'r [u8],
    body: Option<&'r [u8]>,
    dropped: u32,
    flags: u32,
    trace: &'r [u8],
    span: &'r [u8],
    event_name: &'r [u8],
}

impl<'r> Record<'r> {
    fn read(message: &'r [u8]) -> Result<Item<Self>, Malformed> {
        let mut record = Record::default();
        let mut all = 0;
        for field in fields(message) {
            all += 1;
            match field? {
                (1, value) => record.time = number(value),
                (2, value) => record.severity = number(value) as u32,
                (3, value) => record.severity_text = bytes(value),
                (5, value) => record.body = value.bytes(),
                (6, value) => record.attributes.push(bytes(value)),
                (7, value) => record.dropped = number(value) as u32,
                (8, value) => record.flags = number(value) as u32,
                (9, value) => record.trace = bytes(value),
                (10, value) => record.span = bytes(value),
                (11, value) => record.observed = number(value),
                (12, value) => record.event_name = bytes(value),
                _ => {}
            }
        }
        let time = match record.time {
            0 => record.observed,
            time => time,
        };
        Ok(Item {
            time,
            memory: row_memory(message.len(), all),
            content: record,
        })
    }
}

pub(super) fn append(
    scope: &[u8],
    place: &mut RowDestination<'_, '_>,
) -> Result<ControlFlow<()>, Malformed> {
    let records = each(scope, 2).map(Record::read);
    place.append(TableKind::Logs, 0, records, |table, context, record| {
        if let super::Columns::Logs(columns) = &mut table.columns {
            columns.push(&mut table.shared, context, &record);
        }
    })
}

impl Columns {
    fn push(&mut self, shared: &mut Shared, context: u32, record: &Record<'_>) {
        let is_observed = record.time == 0 && record.observed != 0;
        let time = if is_observed {
            record.observed
        } else {
            record.time
        };
        shared.push(time.cast_signed(), context);
        self.is_observed.push(is_observed);
        self.observed.push(record.observed);
        self.severity.push(record.severity);
        let texts = &mut shared.texts;
        self.severity_text.push(texts.intern(record.severity_text));
        self.event_name.push(texts.intern(record.event_name));
        let (body, letter) = match record.body {
            None => (NONE, text::letter::NONE),
            Some(body) => match AnyValue::view(Message::new(body)) {
                AnyValue::Empty => (NONE, text::letter::NONE),
                AnyValue::String(body) => (self.bodies.add(body.as_bytes()), text::letter::STRING),
                body => {
                    self.scratch.clear();
                    let letter = text::put(&body, &mut self.scratch);
                    (self.bodies.add(&self.scratch), letter)
                }
            },
        };
        self.body.push(body);
        self.body_type.push(texts.intern(&[letter]));
        self.flags.push(record.flags);
        self.dropped.push(record.dropped);
        let Shared {
            attributes,
            pairs,
            texts,
            ..
        } = shared;
        for attribute in &record.attributes {
            attributes.push(pairs.add(attribute));
        }
        let trace = attributes.id(b"otlp.trace_id", record.trace, pairs);
        self.trace.push(trace);
        let span = attributes.id(b"otlp.span_id", record.span, pairs);
        self.span.push(span);
        attributes.end(pairs, texts);
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
        group.bits("timestamp_is_observed", rows.of(&self.is_observed))?;
        let names = ["observed_timestamp", "observed_timestamp_nanos"];
        group.optional_times(names, rows.of(&self.observed).map(time))?;
        shared.write_service(rows, group)?;
        group.numbers("severity_number", rows.of(&self.severity), true)?;
        group.texts("severity_text", texts, rows.of(&self.severity_text))?;
        group.texts("event_name", texts, rows.of(&self.event_name))?;
        group.optional_texts("body", self.bodies.strings(), rows.of(&self.body))?;
        group.texts("body_type", texts, rows.of(&self.body_type))?;
        group.ids("trace_id", rows.of(&self.trace))?;
        group.plain_ids("span_id", rows.of(&self.span))?;
        group.numbers("flags", rows.of(&self.flags), false)?;
        let names = ["attributes", "attribute_types"];
        group.attributes(names, &shared.attributes, shared, rows.iter())?;
        group.numbers("dropped_attributes_count", rows.of(&self.dropped), false)
    }
}
