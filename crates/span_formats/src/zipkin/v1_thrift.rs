//! Decodes Zipkin v1 as Thrift: a list of `zipkinCore` spans in the binary protocol.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::address;
use super::v1::{V1Annotation, V1Binary, V1Endpoint, V1Span, translate};
use crate::attributes::Value;
use crate::encode::Groups;
use crate::error::{TranslateError, in_span};
use crate::memory::Memory;
use crate::thrift::{Kind, Protocol, ThriftReader};

/// Translates a list of spans.
pub(crate) fn v1_thrift<'r>(
    input: &[u8],
    memory: &Memory<'r>,
    groups: &mut Groups<'r>,
) -> Result<(), TranslateError> {
    let mut reader = ThriftReader::new(input, Protocol::Binary);
    for index in 0..reader.structs()? {
        let span = read_span(&mut reader, memory).map_err(|error| in_span(error, index))?;
        translate(span, None, memory, groups)?;
        memory.end_span_with_lists();
    }
    Ok(())
}

fn read_span<'a>(
    reader: &mut ThriftReader<'a>,
    memory: &Memory<'_>,
) -> Result<V1Span<'a>, TranslateError> {
    let mut span = V1Span::default();
    let (mut low, mut high) = (0, 0);
    reader.fields(|reader, id, kind| {
        match (id, kind) {
            (1, Kind::I64) => low = reader.i64()?.cast_unsigned(),
            (3, Kind::Text) => span.name = memory.text(reader.bytes()?)?,
            (4, Kind::I64) => span.span_id = reader.i64()?.cast_unsigned(),
            (5, Kind::I64) => span.parent_id = reader.i64()?.cast_unsigned(),
            (6, Kind::List) => {
                for _ in 0..reader.structs()? {
                    let annotation = read_annotation(reader, memory)?;
                    memory.push(&mut span.annotations, annotation)?;
                }
            }
            (8, Kind::List) => {
                for _ in 0..reader.structs()? {
                    let binary = read_binary(reader, memory)?;
                    memory.push(&mut span.binaries, binary)?;
                }
            }
            (10, Kind::I64) => span.timestamp = Some(reader.i64()?),
            (11, Kind::I64) => span.duration = reader.i64()?,
            (12, Kind::I64) => high = reader.i64()?.cast_unsigned(),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    span.trace_id = u128::from(high) << 64 | u128::from(low);
    Ok(span)
}

fn read_annotation<'a>(
    reader: &mut ThriftReader<'a>,
    memory: &Memory<'_>,
) -> Result<V1Annotation<'a>, TranslateError> {
    let mut annotation = V1Annotation {
        time: 0,
        text: Cow::Borrowed(""),
        endpoint: None,
    };
    reader.fields(|reader, id, kind| {
        match (id, kind) {
            (1, Kind::I64) => annotation.time = reader.i64()?,
            (2, Kind::Text) => annotation.text = memory.text(reader.bytes()?)?,
            (3, Kind::Struct) => annotation.endpoint = Some(read_endpoint(reader, memory)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(annotation)
}

fn read_endpoint<'a>(
    reader: &mut ThriftReader<'a>,
    memory: &Memory<'_>,
) -> Result<V1Endpoint<'a>, TranslateError> {
    let mut endpoint = V1Endpoint::default();
    reader.fields(|reader, id, kind| {
        match (id, kind) {
            (1, Kind::I32) => {
                let address = reader.i32()?;
                if address != 0 {
                    let text = address::text_of_bytes(&address.to_be_bytes());
                    endpoint.ipv4 = text.unwrap_or_default().into();
                }
            }
            // Thrift has no unsigned type.
            (2, Kind::I16) => endpoint.port = reader.i16()?.cast_unsigned().into(),
            (3, Kind::Text) => endpoint.service = memory.text(reader.bytes()?)?,
            (4, Kind::Text) => {
                let text = address::text_of_bytes(reader.bytes()?);
                endpoint.ipv6 = text.unwrap_or_default().into();
            }
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(endpoint)
}

fn read_binary<'a>(
    reader: &mut ThriftReader<'a>,
    memory: &Memory<'_>,
) -> Result<V1Binary<'a>, TranslateError> {
    let (mut key, mut bytes, mut type_number): (_, &[u8], _) = (Cow::Borrowed(""), &[], 0);
    let mut service = None;
    reader.fields(|reader, id, kind| {
        match (id, kind) {
            (1, Kind::Text) => key = memory.text(reader.bytes()?)?,
            (2, Kind::Text) => bytes = reader.bytes()?,
            (3, Kind::I32) => type_number = reader.i32()?,
            (4, Kind::Struct) => service = Some(read_endpoint(reader, memory)?.service),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let value = value(type_number, bytes, memory)?;
    Ok(V1Binary {
        key,
        value,
        service,
    })
}

/// Converts a value by its `AnnotationType`. Integers of 16 and 32 bits are unsigned, as in the Collector.
fn value<'a>(
    type_number: i32,
    bytes: &'a [u8],
    memory: &Memory<'_>,
) -> Result<Value<'a>, TranslateError> {
    let too_short = Value::Text("<not enough bytes representing the number>".into());
    Ok(match type_number {
        0 => Value::Bool(bytes == [1]),
        1 => {
            memory.copy(bytes.len().saturating_mul(2))?;
            Value::Text(STANDARD.encode(bytes).into())
        }
        2 => first(bytes).map_or(too_short, |bytes| {
            Value::Int(u16::from_be_bytes(bytes).into())
        }),
        3 => first(bytes).map_or(too_short, |bytes| {
            Value::Int(u32::from_be_bytes(bytes).into())
        }),
        4 => first(bytes).map_or(too_short, |bytes| Value::Int(i64::from_be_bytes(bytes))),
        5 => first(bytes).map_or(too_short, |bytes| Value::Double(f64::from_be_bytes(bytes))),
        6 => Value::Text(memory.text(bytes)?),
        unknown => {
            let text = format!("<unknown zipkin v1 binary annotation type ({unknown})>");
            memory.copy(text.len())?;
            Value::Text(text.into())
        }
    })
}

fn first<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    bytes.first_chunk().copied()
}
