//! Decodes `jaeger.api_v2.PostSpansRequest`, the message of Jaeger's gRPC API.

use std::borrow::Cow;

use tributary_otlp::room::RoomExhausted;

use super::translate::{Encoding, JaegerSpan, Log, Reference, Tag, Translator};
use crate::attributes::Value;
use crate::encode::Groups;
use crate::error::{TranslateError, in_span};
use crate::memory::Memory;
use crate::proto::{ProtoField, each};

/// Translates a request. A span may have its own process, which takes precedence over the process of the batch.
pub(crate) fn post_spans<'r>(
    input: &[u8],
    memory: &Memory<'r>,
    groups: &mut Groups<'r>,
) -> Result<(), TranslateError> {
    let mut translator = Translator::new(memory, Encoding::Proto);
    // The process may come after the spans, and a repeated message is merged.
    let mut process = Process::default();
    each_in_batch(input, |field| match field.number() {
        2 => process.read(&field, memory),
        _ => Ok(()),
    })?;
    let batch = process.group(&mut translator, groups)?;
    let mut span = JaegerSpan::default();
    let mut index = 0;
    each_in_batch(input, |field| {
        if field.number() != 1 {
            return Ok(());
        }
        span.clear();
        process.clear();
        read_span(&field, memory, &mut span, &mut process)
            .map_err(|error| in_span(error, index))?;
        index += 1;
        let resource = match process.is_given {
            true => process.group(&mut translator, groups)?,
            false => batch,
        };
        translator.span(&mut span, resource, groups)?;
        memory.end_span();
        Ok(())
    })
}

/// Calls `read` for each field of the batch.
fn each_in_batch<'a>(
    input: &'a [u8],
    mut read: impl FnMut(ProtoField<'a>) -> Result<(), TranslateError>,
) -> Result<(), TranslateError> {
    each(input, |field| match field.number() {
        1 => field.each(&mut read),
        _ => Ok(()),
    })
}

/// The process of a batch or of a span.
#[derive(Default)]
struct Process<'a> {
    /// Whether there is a process. Without one, the resource is empty.
    is_given: bool,
    /// The encoded process, as the key of its group.
    encoded: Vec<&'a [u8]>,
    service: Cow<'a, str>,
    tags: Vec<Tag<'a>>,
}

impl<'a> Process<'a> {
    fn clear(&mut self) {
        self.is_given = false;
        self.encoded.clear();
        self.service = Cow::Borrowed("");
        self.tags.clear();
    }

    fn read(&mut self, field: &ProtoField<'a>, memory: &Memory<'_>) -> Result<(), TranslateError> {
        self.is_given = true;
        memory.push(&mut self.encoded, field.bytes()?)?;
        field.each(|field| {
            match field.number() {
                1 => self.service = memory.text(field.bytes()?)?,
                2 => {
                    let tag = read_tag(&field, memory)?;
                    memory.push(&mut self.tags, tag)?;
                }
                _ => {}
            }
            Ok(())
        })
    }

    fn group<'r>(
        &mut self,
        translator: &mut Translator<'a, '_, 'r>,
        groups: &mut Groups<'r>,
    ) -> Result<usize, RoomExhausted> {
        let joined;
        let key = match self.encoded.as_slice() {
            [] => &[],
            [one] => *one,
            several => {
                joined = several.concat();
                &joined
            }
        };
        groups.resource(key, |output| {
            translator.resource(&self.service, &mut self.tags, output)
        })
    }
}

fn read_span<'a>(
    field: &ProtoField<'a>,
    memory: &Memory<'_>,
    span: &mut JaegerSpan<'a>,
    process: &mut Process<'a>,
) -> Result<(), TranslateError> {
    let mut duration = 0_i64;
    field.each(|field| {
        match field.number() {
            1 => span.trace_id = trace_id(&field)?,
            2 => span.span_id = span_id(&field)?,
            3 => span.name = memory.text(field.bytes()?)?,
            4 => {
                let reference = read_reference(&field)?;
                memory.push(&mut span.references, reference)?;
            }
            5 => span.flags = field.varint()? as u32,
            6 => span.start = nanoseconds(&field)?.cast_unsigned(),
            7 => duration = nanoseconds(&field)?,
            8 => {
                let tag = read_tag(&field, memory)?;
                memory.push(&mut span.tags, tag)?;
            }
            9 => read_log(&field, memory, span)?,
            10 => process.read(&field, memory)?,
            _ => {}
        }
        Ok(())
    })?;
    span.end = span.start.wrapping_add(duration.cast_unsigned());
    Ok(())
}

fn read_reference(field: &ProtoField<'_>) -> Result<Reference, TranslateError> {
    let mut reference = Reference {
        trace_id: 0,
        span_id: 0,
        is_child_of: true,
    };
    field.each(|field| {
        match field.number() {
            1 => reference.trace_id = trace_id(&field)?,
            2 => reference.span_id = span_id(&field)?,
            3 => reference.is_child_of = field.varint()? == 0,
            _ => {}
        }
        Ok(())
    })?;
    Ok(reference)
}

fn read_log<'a>(
    field: &ProtoField<'a>,
    memory: &Memory<'_>,
    span: &mut JaegerSpan<'a>,
) -> Result<(), TranslateError> {
    let begin = span.fields.len();
    let mut time = 0;
    field.each(|field| {
        match field.number() {
            1 => time = nanoseconds(&field)?.cast_unsigned(),
            2 => {
                let tag = read_tag(&field, memory)?;
                memory.push(&mut span.fields, tag)?;
            }
            _ => {}
        }
        Ok(())
    })?;
    let fields = begin..span.fields.len();
    memory.push(&mut span.logs, Log { time, fields })?;
    Ok(())
}

fn read_tag<'a>(field: &ProtoField<'a>, memory: &Memory<'_>) -> Result<Tag<'a>, TranslateError> {
    let (mut key, mut kind) = (Cow::Borrowed(""), 0);
    let (mut text, mut boolean, mut int, mut double) = (Cow::Borrowed(""), false, 0, 0.0);
    let mut bytes: &[u8] = &[];
    field.each(|field| {
        match field.number() {
            1 => key = memory.text(field.bytes()?)?,
            2 => kind = field.varint()? as i32,
            3 => text = memory.text(field.bytes()?)?,
            4 => boolean = field.varint()? != 0,
            5 => int = field.varint()?.cast_signed(),
            6 => double = f64::from_bits(field.fixed64()?),
            7 => bytes = field.bytes()?,
            _ => {}
        }
        Ok(())
    })?;
    let value = match kind {
        0 => Value::Text(text),
        1 => Value::Bool(boolean),
        2 => Value::Int(int),
        3 => Value::Double(double),
        4 => Value::Bytes(bytes),
        unknown => {
            memory.copy(UNKNOWN)?;
            Value::Text(format!("<Unknown Jaeger TagType \"{unknown}\">").into())
        }
    };
    Ok((key, value))
}

/// Maximum size of the text for a tag of an unknown type, in bytes.
const UNKNOWN: usize = 64;

/// Reads an id of 128 bits. An id of 64 bits is padded on the left.
fn trace_id(field: &ProtoField<'_>) -> Result<u128, TranslateError> {
    let bytes = field.bytes()?;
    if let Ok(id) = bytes.try_into() {
        return Ok(u128::from_be_bytes(id));
    }
    match bytes.try_into() {
        Ok(id) => Ok(u64::from_be_bytes(id).into()),
        Err(_) => field.fail("a trace id has 16 or 8 bytes"),
    }
}

fn span_id(field: &ProtoField<'_>) -> Result<u64, TranslateError> {
    match field.bytes()?.try_into() {
        Ok(id) => Ok(u64::from_be_bytes(id)),
        Err(_) => field.fail("a span id has 8 bytes"),
    }
}

/// Reads a `Timestamp` or a `Duration`.
fn nanoseconds(field: &ProtoField<'_>) -> Result<i64, TranslateError> {
    let (mut seconds, mut nanoseconds) = (0_i64, 0);
    field.each(|field| {
        match field.number() {
            1 => seconds = field.varint()?.cast_signed(),
            2 => nanoseconds = field.varint()? as i32,
            _ => {}
        }
        Ok(())
    })?;
    match seconds
        .checked_mul(1_000_000_000)
        .and_then(|whole| whole.checked_add(nanoseconds.into()))
    {
        Some(total) => Ok(total),
        None => field.fail("the time is out of range"),
    }
}
