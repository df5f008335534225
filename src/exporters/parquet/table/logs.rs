//! Log records.

use smallvec::SmallVec;

use super::attributes::{Sets, encode_bytes};
use super::chunk::RowGroup;
use super::read::{bytes, each, fields, id, number, odd, time};
use super::rows::{Place, Shared};
use super::strings::{NONE, Texts};
use super::values::{Delta, Fixed};
use super::{Kind, Layout, WriteError, text};
use crate::wire::Malformed;
use crate::wire::view::{AnyValue, Message, View as _};

/// The columns that only log records have.
#[derive(Debug, Default)]
pub(super) struct Columns {
    /// Whether the row's time is the one at which the record was seen.
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
    attributes: Sets,
    scratch: Vec<u8>,
}

/// A log record, read once.
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
    fn read(message: &'r [u8]) -> Result<(u64, Self), Malformed> {
        let mut record = Record::default();
        for field in fields(message) {
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
        Ok((time, record))
    }
}

pub(super) fn append(scope: &[u8], place: &mut Place<'_, '_>) -> Result<(), Malformed> {
    let records = each(scope, 2).map(Record::read);
    place.append(Kind::Logs, records, |table, context, record| {
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
        self.trace.push(id(record.trace));
        self.span.push(id(record.span));
        self.flags.push(record.flags);
        self.dropped.push(record.dropped);
        for attribute in &record.attributes {
            self.attributes.push(shared.pairs.add(attribute));
        }
        if odd::<16>(record.trace) {
            let pair = encode_bytes(b"otlp.trace_id", record.trace);
            self.attributes.push(shared.pairs.add(&pair));
        }
        if odd::<8>(record.span) {
            let pair = encode_bytes(b"otlp.span_id", record.span);
            self.attributes.push(shared.pairs.add(&pair));
        }
        self.attributes.end(&shared.pairs, &mut shared.texts);
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
        let texts = &shared.texts;
        let rows = order.iter().map(|row| *row as usize);
        shared.write_times(order, group)?;
        let is_observed = rows.clone().map(|row| self.is_observed[row]);
        group.bits("timestamp_is_observed", is_observed)?;
        let observed = rows.clone().map(|row| time(self.observed[row]));
        group.optional("observed_timestamp", Delta::default(), observed)?;
        shared.write_service(order, group)?;
        let severity = rows.clone().map(|row| self.severity[row]);
        group.numbers("severity_number", severity, true)?;
        let severity = rows.clone().map(|row| self.severity_text[row]);
        group.texts("severity_text", texts, severity)?;
        let names = rows.clone().map(|row| self.event_name[row]);
        group.texts("event_name", texts, names)?;
        let bodies = rows.clone().map(|row| self.body[row]);
        group.optional_texts("body", self.bodies.strings(), bodies)?;
        let types = rows.clone().map(|row| self.body_type[row]);
        group.texts("body_type", texts, types)?;
        group.ids("trace_id", rows.clone().map(|row| self.trace[row]))?;
        let spans = rows.clone().map(|row| self.span[row]);
        group.optional("span_id", Fixed::new(None), spans)?;
        group.numbers("flags", rows.clone().map(|row| self.flags[row]), false)?;
        let attributes = rows.clone().map(|row| self.attributes.get(row));
        group.map("attributes", &shared.pairs, attributes)?;
        let types = rows.clone().map(|row| self.attributes.types(row));
        group.texts("attribute_types", texts, types)?;
        let dropped = rows.map(|row| self.dropped[row]);
        group.numbers("dropped_attributes_count", dropped, false)
    }

    pub(super) fn clear(&mut self) {
        self.is_observed.clear();
        self.observed.clear();
        self.severity.clear();
        self.severity_text.clear();
        self.event_name.clear();
        self.bodies.clear();
        self.body.clear();
        self.body_type.clear();
        self.trace.clear();
        self.span.clear();
        self.flags.clear();
        self.dropped.clear();
        self.attributes.clear();
    }

    pub(super) fn memory(&self) -> usize {
        let numbers = [
            &self.severity,
            &self.severity_text,
            &self.event_name,
            &self.body,
            &self.body_type,
            &self.flags,
            &self.dropped,
        ];
        let numbers = numbers.map(|column| column.capacity() * size_of::<u32>());
        numbers.iter().sum::<usize>()
            + self.is_observed.capacity()
            + self.observed.capacity() * size_of::<u64>()
            + self.bodies.memory()
            + self.trace.capacity() * size_of::<Option<[u8; 16]>>()
            + self.span.capacity() * size_of::<Option<[u8; 8]>>()
            + self.attributes.memory()
    }
}
