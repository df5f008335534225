//! Decodes Zipkin v1 as JSON.

use std::borrow::Cow;

use std::marker::PhantomData;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess};
use serde_json::value::RawValue;

use super::v1::{V1Annotation, V1Binary, V1Endpoint, V1Span, translate};
use crate::TranslateOptions;
use crate::attributes::Value;
use crate::encode::Groups;
use crate::error::TranslateError;
use crate::json::{Elements, Integer, Member, Nullable, Object, ReadMember, Scalar, Text, list};
use crate::keys;
use crate::memory::Memory;

/// Translates a list of spans.
pub(crate) fn v1_json<'r>(
    input: &[u8],
    options: &TranslateOptions,
    memory: &Memory<'r>,
    groups: &mut Groups<'r>,
) -> Result<(), TranslateError> {
    if std::str::from_utf8(input).is_ok() {
        return spans(input, options, memory, groups);
    }
    // A raw value must be UTF-8. An invalid byte becomes three bytes.
    let size = input.len().saturating_mul(3);
    memory.room.take(size)?;
    let repaired = String::from_utf8_lossy(input).into_owned();
    let translated = spans(repaired.as_bytes(), options, memory, groups);
    memory.room.release(size);
    translated
}

fn spans<'r>(
    input: &[u8],
    options: &TranslateOptions,
    memory: &Memory<'r>,
    groups: &mut Groups<'r>,
) -> Result<(), TranslateError> {
    list(
        input,
        memory,
        || SpanSeed(memory),
        |span| Ok(translate(span, Some(options), memory, groups)?),
    )
}

/// Reads a span.
struct SpanSeed<'m, 'r>(&'m Memory<'r>);

impl<'de> DeserializeSeed<'de> for SpanSeed<'_, '_> {
    type Value = V1Span<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        let reader = SpanReader(self.0, V1Span::default());
        let span = Object((reader, self.0)).deserialize(deserializer)?.1;
        if span.trace_id == 0 {
            return Err(D::Error::custom("the traceId is missing or zero"));
        }
        if span.span_id == 0 {
            return Err(D::Error::custom("the id is missing or zero"));
        }
        Ok(span)
    }
}

struct SpanReader<'de, 'm, 'r>(&'m Memory<'r>, V1Span<'de>);

impl<'de> ReadMember<'de> for SpanReader<'de, '_, '_> {
    fn member<A: MapAccess<'de>>(
        &mut self,
        key: Cow<'de, str>,
        member: Member<'_, A>,
    ) -> Result<(), A::Error> {
        let SpanReader(memory, span) = self;
        let memory = *memory;
        let text = Text(memory);
        match &*key {
            "traceId" => {
                let id = member.read(text)?.unwrap_or_default();
                span.trace_id = hex(&id, &[16, 32]).ok_or_else(|| {
                    A::Error::custom("`traceId` must have 16 or 32 hexadecimal digits")
                })?;
            }
            "id" => span.span_id = short_id("id", &member.read(text)?.unwrap_or_default())?,
            "parentId" => {
                span.parent_id = match member.read(text)? {
                    Some(id) if !id.is_empty() => short_id("parentId", &id)?,
                    _ => 0,
                };
            }
            "name" => span.name = member.read(text)?.unwrap_or_default(),
            "timestamp" => span.timestamp = integer(member)?.filter(|time| *time != 0),
            "duration" => span.duration = integer(member)?.unwrap_or_default(),
            "annotations" => {
                let annotations = &mut span.annotations;
                let elements = Elements {
                    seed: || Nullable(AnnotationSeed(memory)),
                    each: |annotation| match annotation {
                        Some(annotation) => memory.push(annotations, annotation).map_err(drop),
                        None => Ok(()),
                    },
                };
                member.read(elements)?;
            }
            "binaryAnnotations" => {
                let binaries = &mut span.binaries;
                let elements = Elements {
                    seed: || Nullable(BinarySeed(memory)),
                    each: |binary| match binary {
                        Some(binary) => memory.push(binaries, binary).map_err(drop),
                        None => Ok(()),
                    },
                };
                member.read(elements)?;
            }
            _ => member.skip()?,
        }
        Ok(())
    }
}

/// Reads an annotation.
struct AnnotationSeed<'m, 'r>(&'m Memory<'r>);

impl<'de> DeserializeSeed<'de> for AnnotationSeed<'_, '_> {
    type Value = V1Annotation<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        let annotation = V1Annotation {
            time: 0,
            text: Cow::Borrowed(""),
            endpoint: None,
        };
        let reader = AnnotationReader(self.0, annotation);
        Ok(Object((reader, self.0)).deserialize(deserializer)?.1)
    }
}

struct AnnotationReader<'de, 'm, 'r>(&'m Memory<'r>, V1Annotation<'de>);

impl<'de> ReadMember<'de> for AnnotationReader<'de, '_, '_> {
    fn member<A: MapAccess<'de>>(
        &mut self,
        key: Cow<'de, str>,
        member: Member<'_, A>,
    ) -> Result<(), A::Error> {
        let AnnotationReader(memory, annotation) = self;
        match &*key {
            "timestamp" => annotation.time = integer(member)?.unwrap_or_default(),
            "value" => annotation.text = member.read(Text(memory))?.unwrap_or_default(),
            "endpoint" => annotation.endpoint = endpoint(memory, member)?,
            _ => member.skip()?,
        }
        Ok(())
    }
}

/// Reads a binary annotation.
struct BinarySeed<'m, 'r>(&'m Memory<'r>);

impl<'de> DeserializeSeed<'de> for BinarySeed<'_, '_> {
    type Value = V1Binary<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        let binary = V1Binary {
            key: Cow::Borrowed(""),
            value: Value::Text(Cow::Borrowed("")),
            service: None,
        };
        let reader = BinaryReader(self.0, binary);
        let mut binary = Object((reader, self.0)).deserialize(deserializer)?.1;
        if binary.key == keys::OLD_HTTP_STATUS {
            binary.key = Cow::Borrowed(keys::HTTP_STATUS);
        }
        Ok(binary)
    }
}

struct BinaryReader<'de, 'm, 'r>(&'m Memory<'r>, V1Binary<'de>);

impl<'de> ReadMember<'de> for BinaryReader<'de, '_, '_> {
    fn member<A: MapAccess<'de>>(
        &mut self,
        key: Cow<'de, str>,
        member: Member<'_, A>,
    ) -> Result<(), A::Error> {
        let BinaryReader(memory, binary) = self;
        match &*key {
            "key" => binary.key = member.read(Text(memory))?.unwrap_or_default(),
            // Clients write `true` for the annotations `sa` and `ca`. The Collector refuses these spans.
            "value" => {
                let raw = member.read(PhantomData::<&RawValue>)?.map(RawValue::get);
                let text = raw.map(|raw| scalar_text(raw, memory)).transpose();
                binary.value = Value::Text(text.map_err(A::Error::custom)?.unwrap_or_default());
            }
            "endpoint" => {
                let named = endpoint(memory, member)?.map(|endpoint| endpoint.service);
                binary.service = named.filter(|name| !name.is_empty());
            }
            _ => member.skip()?,
        }
        Ok(())
    }
}

/// Returns the text of a string, a number or a boolean; empty for lists and objects.
fn scalar_text<'de>(json: &'de str, memory: &Memory<'_>) -> serde_json::Result<Cow<'de, str>> {
    let mut input = serde_json::Deserializer::from_str(json);
    if json.starts_with('"') {
        return Text(memory).deserialize(&mut input);
    }
    let text = match Scalar.deserialize(&mut input)? {
        Some(Value::Bool(value)) => value.to_string(),
        Some(Value::Int(value)) => value.to_string(),
        Some(Value::Double(value)) => value.to_string(),
        _ => String::new(),
    };
    memory.copy(text.len()).map_err(serde_json::Error::custom)?;
    Ok(Cow::Owned(text))
}

fn endpoint<'de, A: MapAccess<'de>>(
    memory: &Memory<'_>,
    member: Member<'_, A>,
) -> Result<Option<V1Endpoint<'de>>, A::Error> {
    let reader = EndpointReader(memory, V1Endpoint::default());
    let read = member.read(Object((reader, memory)))?;
    Ok(read.map(|reader| reader.1))
}

struct EndpointReader<'de, 'm, 'r>(&'m Memory<'r>, V1Endpoint<'de>);

impl<'de> ReadMember<'de> for EndpointReader<'de, '_, '_> {
    fn member<A: MapAccess<'de>>(
        &mut self,
        key: Cow<'de, str>,
        member: Member<'_, A>,
    ) -> Result<(), A::Error> {
        let EndpointReader(memory, endpoint) = self;
        let text = Text(memory);
        match &*key {
            "serviceName" => endpoint.service = member.read(text)?.unwrap_or_default(),
            "ipv4" => endpoint.ipv4 = member.read(text)?.unwrap_or_default(),
            "ipv6" => endpoint.ipv6 = member.read(text)?.unwrap_or_default(),
            "port" => {
                let port = integer(member)?.unwrap_or_default();
                endpoint.port =
                    i32::try_from(port).map_err(|_| A::Error::custom("the port is above 65535"))?;
            }
            _ => member.skip()?,
        }
        Ok(())
    }
}

fn integer<'de, A: MapAccess<'de>>(member: Member<'_, A>) -> Result<Option<i64>, A::Error> {
    let Some(value) = member.read(Integer)? else {
        return Ok(None);
    };
    let value = i64::try_from(value);
    value
        .map(Some)
        .map_err(|_| A::Error::custom("the number exceeds 63 bits"))
}

fn short_id<E: Error>(key: &str, digits: &str) -> Result<u64, E> {
    let id = hex(digits, &[16]).and_then(|id| u64::try_from(id).ok());
    let id = id.filter(|id| *id != 0);
    id.ok_or_else(|| {
        E::custom(format_args!(
            "`{key}` must have 16 hexadecimal digits, not all 0"
        ))
    })
}

/// Parses an id of one of these lengths.
fn hex(digits: &str, lengths: &[usize]) -> Option<u128> {
    let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    (is_hex && lengths.contains(&digits.len())).then(|| u128::from_str_radix(digits, 16).ok())?
}
