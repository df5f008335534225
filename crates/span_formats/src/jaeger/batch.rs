//! Decodes `jaeger.thrift`: a `Batch`, alone or in a message of the agent.

use std::borrow::Cow;

use super::translate::{Encoding, JaegerSpan, Log, Reference, Tag, Translator};
use crate::attributes::Value;
use crate::encode::Groups;
use crate::error::{TranslateError, in_span, malformed_at};
use crate::memory::Memory;
use crate::thrift::{Kind, Protocol, ThriftReader};

/// Translates a `Batch`.
pub(crate) fn batch<'r>(
    input: &[u8],
    memory: &Memory<'r>,
    groups: &mut Groups<'r>,
) -> Result<(), TranslateError> {
    let mut reader = ThriftReader::new(input, Protocol::Binary);
    read_batch(&mut reader, memory, groups)
}

/// Translates the message `emitBatch` of the agent. Other messages are an error.
pub(crate) fn agent<'r>(
    input: &[u8],
    protocol: Protocol,
    memory: &Memory<'r>,
    groups: &mut Groups<'r>,
) -> Result<(), TranslateError> {
    let mut reader = ThriftReader::new(input, protocol);
    match reader.message()? {
        b"emitBatch" => {}
        b"emitZipkinBatch" => {
            return reader.fail("emitZipkinBatch is not supported; the client must send emitBatch");
        }
        _ => return reader.fail("unknown message; expected emitBatch"),
    }
    reader.fields(|reader, id, kind| match (id, kind) {
        (1, Kind::Struct) => read_batch(reader, memory, groups).map(|()| true),
        _ => Ok(false),
    })
}

/// Returns the number of spans that a message of the agent states, without decoding them; 0 if it is malformed.
/// `is_compact` selects the protocol.
pub fn agent_spans(input: &[u8], is_compact: bool) -> usize {
    let protocol = match is_compact {
        true => Protocol::Compact,
        false => Protocol::Binary,
    };
    let mut reader = ThriftReader::new(input, protocol);
    let mut spans = 0;
    if reader.message().is_err() {
        return 0;
    }
    // The end of the spans is not needed, so an error after their number is none.
    let _ = reader.fields(|reader, id, kind| match (id, kind) {
        (1, Kind::Struct) => {
            let batch = reader.fields(|reader, id, kind| match (id, kind) {
                (2, Kind::List) => {
                    spans = reader.structs()?;
                    reader.fail("counted")
                }
                _ => Ok(false),
            });
            batch.map(|()| true)
        }
        _ => Ok(false),
    });
    spans
}

/// The spans may come before the process, so they are read after it.
fn read_batch<'a, 'r>(
    reader: &mut ThriftReader<'a>,
    memory: &Memory<'r>,
    groups: &mut Groups<'r>,
) -> Result<(), TranslateError> {
    let mut service = Cow::Borrowed("");
    let mut tags = Vec::new();
    let mut spans = None;
    let mut has_process = false;
    reader.fields(|reader, id, kind| match (id, kind) {
        (1, Kind::Struct) => {
            has_process = true;
            tags.clear();
            read_process(reader, memory, &mut service, &mut tags).map(|()| true)
        }
        (2, Kind::List) => {
            spans = Some(reader.offset());
            Ok(false)
        }
        _ => Ok(false),
    })?;
    let Some(spans) = spans.filter(|_| has_process) else {
        return reader.fail("a batch needs a process and spans");
    };
    let mut translator = Translator::new(memory, Encoding::Thrift);
    let resource = groups.resource(b"", |output| {
        translator.resource(&service, &mut tags, output)
    })?;
    let mut reader = reader.rewound(spans);
    let mut span = JaegerSpan::default();
    for index in 0..reader.structs()? {
        span.clear();
        read_span(&mut reader, memory, &mut span).map_err(|error| in_span(error, index))?;
        translator.span(&mut span, resource, groups)?;
        memory.end_span();
    }
    Ok(())
}

fn read_process<'a>(
    reader: &mut ThriftReader<'a>,
    memory: &Memory<'_>,
    service: &mut Cow<'a, str>,
    tags: &mut Vec<Tag<'a>>,
) -> Result<(), TranslateError> {
    let mut required = Required::new(1);
    reader.fields(|reader, id, kind| {
        match (id, kind) {
            (1, Kind::Text) => *service = memory.text(reader.bytes()?)?,
            (2, Kind::List) => read_tags(reader, memory, tags)?,
            _ => return Ok(false),
        }
        required.has(id);
        Ok(true)
    })?;
    required.check(reader, "a process needs a service name")
}

fn read_span<'a>(
    reader: &mut ThriftReader<'a>,
    memory: &Memory<'_>,
    span: &mut JaegerSpan<'a>,
) -> Result<(), TranslateError> {
    let (mut low, mut high) = (0, 0);
    let (mut start, mut duration) = (0_i64, 0_i64);
    let mut required = Required::new(0b1_1101_1111);
    reader.fields(|reader, id, kind| {
        match (id, kind) {
            (1, Kind::I64) => low = reader.i64()?,
            (2, Kind::I64) => high = reader.i64()?,
            (3, Kind::I64) => span.span_id = reader.i64()?.cast_unsigned(),
            (4, Kind::I64) => span.parent_id = reader.i64()?.cast_unsigned(),
            (5, Kind::Text) => span.name = memory.text(reader.bytes()?)?,
            (6, Kind::List) => {
                for _ in 0..reader.structs()? {
                    let reference = read_reference(reader)?;
                    memory.push(&mut span.references, reference)?;
                }
            }
            (7, Kind::I32) => span.flags = reader.i32()?.cast_unsigned(),
            (8, Kind::I64) => start = reader.i64()?,
            (9, Kind::I64) => duration = reader.i64()?,
            (10, Kind::List) => read_tags(reader, memory, &mut span.tags)?,
            (11, Kind::List) => {
                for _ in 0..reader.structs()? {
                    read_log(reader, memory, span)?;
                }
            }
            _ => return Ok(false),
        }
        required.has(id);
        Ok(true)
    })?;
    required.check(reader, "a field that every span needs is missing")?;
    span.trace_id = trace_id(high, low);
    span.start = nanoseconds(start);
    span.end = nanoseconds(start.wrapping_add(duration));
    Ok(())
}

fn read_reference(reader: &mut ThriftReader<'_>) -> Result<Reference, TranslateError> {
    let (mut low, mut high, mut span_id, mut kind_number) = (0, 0, 0_i64, 0);
    let mut required = Required::new(0b1111);
    reader.fields(|reader, id, kind| {
        match (id, kind) {
            (1, Kind::I32) => kind_number = reader.i32()?,
            (2, Kind::I64) => low = reader.i64()?,
            (3, Kind::I64) => high = reader.i64()?,
            (4, Kind::I64) => span_id = reader.i64()?,
            _ => return Ok(false),
        }
        required.has(id);
        Ok(true)
    })?;
    required.check(reader, "a field that every reference needs is missing")?;
    Ok(Reference {
        trace_id: trace_id(high, low),
        span_id: span_id.cast_unsigned(),
        is_child_of: kind_number == 0,
    })
}

fn read_log<'a>(
    reader: &mut ThriftReader<'a>,
    memory: &Memory<'_>,
    span: &mut JaegerSpan<'a>,
) -> Result<(), TranslateError> {
    let begin = span.fields.len();
    let mut time = 0;
    let mut required = Required::new(0b11);
    reader.fields(|reader, id, kind| {
        match (id, kind) {
            (1, Kind::I64) => time = nanoseconds(reader.i64()?),
            (2, Kind::List) => read_tags(reader, memory, &mut span.fields)?,
            _ => return Ok(false),
        }
        required.has(id);
        Ok(true)
    })?;
    required.check(reader, "a log needs a timestamp and fields")?;
    let fields = begin..span.fields.len();
    memory.push(&mut span.logs, Log { time, fields })?;
    Ok(())
}

fn read_tags<'a>(
    reader: &mut ThriftReader<'a>,
    memory: &Memory<'_>,
    tags: &mut Vec<Tag<'a>>,
) -> Result<(), TranslateError> {
    for _ in 0..reader.structs()? {
        let tag = read_tag(reader, memory)?;
        memory.push(tags, tag)?;
    }
    Ok(())
}

fn read_tag<'a>(
    reader: &mut ThriftReader<'a>,
    memory: &Memory<'_>,
) -> Result<Tag<'a>, TranslateError> {
    let (mut key, mut kind_number) = (Cow::Borrowed(""), 0);
    let (mut text, mut double, mut boolean, mut int) = (Cow::Borrowed(""), 0.0, false, 0);
    let mut bytes: &[u8] = &[];
    let mut required = Required::new(0b11);
    reader.fields(|reader, id, kind| {
        match (id, kind) {
            (1, Kind::Text) => key = memory.text(reader.bytes()?)?,
            (2, Kind::I32) => kind_number = reader.i32()?,
            (3, Kind::Text) => text = memory.text(reader.bytes()?)?,
            (4, Kind::Double) => double = reader.double()?,
            (5, Kind::Bool) => boolean = reader.bool()?,
            (6, Kind::I64) => int = reader.i64()?,
            (7, Kind::Text) => bytes = reader.bytes()?,
            _ => return Ok(false),
        }
        required.has(id);
        Ok(true)
    })?;
    required.check(reader, "a tag needs a key and a type")?;
    let value = match kind_number {
        0 => Value::Text(text),
        1 => Value::Double(double),
        2 => Value::Bool(boolean),
        3 => Value::Int(int),
        4 => Value::Bytes(bytes),
        _ => Value::Text("<Unknown Jaeger TagType \"<UNSET>\">".into()),
    };
    Ok((key, value))
}

/// Required fields of a struct that have not been read, as bits: bit 0 is the field with id 1.
struct Required(u16);

impl Required {
    fn new(fields: u16) -> Self {
        Required(fields)
    }

    fn has(&mut self, id: i16) {
        if let Ok(id @ 1..=16) = u32::try_from(id) {
            self.0 &= !(1 << (id - 1));
        }
    }

    fn check(&self, reader: &ThriftReader<'_>, reason: &str) -> Result<(), TranslateError> {
        match self.0 {
            0 => Ok(()),
            _ => Err(malformed_at(reader.offset(), reason)),
        }
    }
}

fn trace_id(high: i64, low: i64) -> u128 {
    u128::from(high.cast_unsigned()) << 64 | u128::from(low.cast_unsigned())
}

/// Converts microseconds since 1970.
fn nanoseconds(microseconds: i64) -> u64 {
    microseconds.cast_unsigned().wrapping_mul(1000)
}
