//! Decodes Zipkin v2 as protobuf: `zipkin.proto3.ListOfSpans`.

use std::borrow::Cow;

use super::address;
use super::v2::{V2Annotation, V2Endpoint, V2Kind, V2Span, V2Translator};
use crate::TranslateOptions;
use crate::attributes::Value;
use crate::encode::Groups;
use crate::error::{TranslateError, in_span};
use crate::memory::Memory;
use crate::proto::{ProtoField, each};

/// Translates a list of spans.
pub(crate) fn v2_proto<'r>(
    input: &[u8],
    options: &TranslateOptions,
    memory: &Memory<'r>,
    groups: &mut Groups<'r>,
) -> Result<(), TranslateError> {
    let mut translator = V2Translator::new(options, memory);
    let mut index = 0;
    each(input, |field| {
        if field.number() == 1 {
            let span = read_span(&field, memory).map_err(|error| in_span(error, index))?;
            index += 1;
            translator.span(span, groups)?;
            memory.end_span_with_lists();
        }
        Ok(())
    })
}

fn read_span<'a>(
    field: &ProtoField<'a>,
    memory: &Memory<'_>,
) -> Result<V2Span<'a>, TranslateError> {
    let mut span = V2Span {
        start: Some(0),
        ..V2Span::default()
    };
    let mut has_trace = false;
    field.each(|field| {
        match field.number() {
            1 => {
                span.trace_id = field.trace_id()?;
                has_trace = true;
            }
            2 => span.parent_id = short_id(&field)?,
            3 => span.span_id = short_id(&field)?,
            4 => {
                span.kind = match field.varint()? {
                    1 => V2Kind::Client,
                    2 => V2Kind::Server,
                    3 => V2Kind::Producer,
                    4 => V2Kind::Consumer,
                    _ => V2Kind::Undetermined,
                };
            }
            5 => span.name = memory.text(field.bytes()?)?,
            6 => span.start = Some(field.fixed64()?.wrapping_mul(1000)),
            7 => span.duration = field.varint()?.wrapping_mul(1000),
            8 => read_endpoint(&field, memory, &mut span.local)?,
            9 => read_endpoint(&field, memory, &mut span.remote)?,
            10 => {
                let annotation = read_annotation(&field, memory)?;
                memory.push(&mut span.annotations, annotation)?;
            }
            11 => {
                let (key, value) = read_tag(&field, memory)?;
                span.tags.add(memory, key, Value::Text(value))?;
            }
            _ => {}
        }
        Ok(())
    })?;
    if !has_trace {
        return field.fail("the span has no trace id");
    }
    if span.span_id == 0 {
        return field.fail("the span has no id");
    }
    Ok(span)
}

/// Reads an id of 8 bytes; an empty one is 0.
fn short_id(field: &ProtoField<'_>) -> Result<u64, TranslateError> {
    match field.bytes()? {
        [] => Ok(0),
        bytes => match bytes.try_into() {
            Ok(id) => Ok(u64::from_be_bytes(id)),
            Err(_) => field.fail("a span id has 8 bytes"),
        },
    }
}

fn read_endpoint<'a>(
    field: &ProtoField<'a>,
    memory: &Memory<'_>,
    endpoint: &mut V2Endpoint<'a>,
) -> Result<(), TranslateError> {
    field.each(|field| {
        match field.number() {
            1 => endpoint.service = memory.text(field.bytes()?)?,
            2 => endpoint.ipv4 = address::text_of_bytes(field.bytes()?),
            3 => endpoint.ipv6 = address::text_of_bytes(field.bytes()?),
            4 => endpoint.port = field.varint()? as u16,
            _ => {}
        }
        Ok(())
    })
}

fn read_annotation<'a>(
    field: &ProtoField<'a>,
    memory: &Memory<'_>,
) -> Result<V2Annotation<'a>, TranslateError> {
    let mut annotation = V2Annotation {
        time: 0,
        text: Cow::Borrowed(""),
    };
    field.each(|field| {
        match field.number() {
            1 => annotation.time = field.fixed64()?.wrapping_mul(1000),
            2 => annotation.text = memory.text(field.bytes()?)?,
            _ => {}
        }
        Ok(())
    })?;
    Ok(annotation)
}

fn read_tag<'a>(
    field: &ProtoField<'a>,
    memory: &Memory<'_>,
) -> Result<(Cow<'a, str>, Cow<'a, str>), TranslateError> {
    let (mut key, mut value) = Default::default();
    field.each(|field| {
        match field.number() {
            1 => key = memory.text(field.bytes()?)?,
            2 => value = memory.text(field.bytes()?)?,
            _ => {}
        }
        Ok(())
    })?;
    Ok((key, value))
}
