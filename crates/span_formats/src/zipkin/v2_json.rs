//! Decodes Zipkin v2 as JSON.

use std::borrow::Cow;
use std::net::IpAddr;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess};

use super::address;
use super::v2::{V2Annotation, V2Endpoint, V2Kind, V2Span, V2Translator};
use crate::TranslateOptions;
use crate::attributes::{AttributeSet, Value};
use crate::encode::Groups;
use crate::error::TranslateError;
use crate::json::{Elements, Integer, Member, Object, ReadMember, Text, list};
use crate::memory::Memory;

/// Translates a list of spans.
pub(crate) fn v2_json<'r>(
    input: &[u8],
    options: &TranslateOptions,
    memory: &Memory<'r>,
    groups: &mut Groups<'r>,
) -> Result<(), TranslateError> {
    let mut translator = V2Translator::new(options, memory);
    list(
        input,
        memory,
        || SpanSeed(memory),
        |span| Ok(translator.span(span, groups)?),
    )
}

/// Reads a span.
struct SpanSeed<'m, 'r>(&'m Memory<'r>);

impl<'de> DeserializeSeed<'de> for SpanSeed<'_, '_> {
    type Value = V2Span<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        let reader = SpanReader {
            memory: self.0,
            span: V2Span::default(),
            has_trace: false,
        };
        let reader = Object((reader, self.0)).deserialize(deserializer)?;
        if !reader.has_trace {
            return Err(D::Error::custom("the span has no traceId"));
        }
        if reader.span.span_id == 0 {
            return Err(D::Error::custom("the span has no id"));
        }
        Ok(reader.span)
    }
}

struct SpanReader<'de, 'm, 'r> {
    memory: &'m Memory<'r>,
    span: V2Span<'de>,
    has_trace: bool,
}

impl<'de> ReadMember<'de> for SpanReader<'de, '_, '_> {
    fn member<A: MapAccess<'de>>(
        &mut self,
        key: Cow<'de, str>,
        member: Member<'_, A>,
    ) -> Result<(), A::Error> {
        let memory = self.memory;
        let text = Text(memory);
        let span = &mut self.span;
        match &*key {
            "traceId" => {
                if let Some(id) = member.read(text)? {
                    span.trace_id = hex(&id, 32).ok_or_else(|| invalid_id("traceId", 32))?;
                    self.has_trace = true;
                }
            }
            "id" => {
                if let Some(id) = member.read(text)? {
                    span.span_id = short_id("id", &id)?;
                }
            }
            "parentId" => {
                span.parent_id = match member.read(text)? {
                    Some(id) if !id.is_empty() => short_id("parentId", &id)?,
                    _ => 0,
                };
            }
            "name" => span.name = member.read(text)?.unwrap_or_default(),
            "kind" => {
                span.kind = match member.read(text)?.as_deref() {
                    Some("CLIENT") => V2Kind::Client,
                    Some("SERVER") => V2Kind::Server,
                    Some("PRODUCER") => V2Kind::Producer,
                    Some("CONSUMER") => V2Kind::Consumer,
                    _ => V2Kind::Undetermined,
                };
            }
            "timestamp" => span.start = microseconds(member)?.filter(|start| *start > 0),
            "duration" => span.duration = microseconds(member)?.unwrap_or_default(),
            "localEndpoint" => span.local = endpoint(memory, member)?,
            "remoteEndpoint" => span.remote = endpoint(memory, member)?,
            "annotations" => {
                let annotations = &mut span.annotations;
                annotations.clear();
                let elements = Elements {
                    seed: || AnnotationSeed(memory),
                    each: |annotation| memory.push(annotations, annotation).map_err(drop),
                };
                member.read(elements)?;
            }
            "tags" => {
                let reader = Tags {
                    memory,
                    tags: std::mem::take(&mut span.tags),
                };
                if let Some(read) = member.read(Object((reader, memory)))? {
                    span.tags = read.tags;
                }
            }
            _ => member.skip()?,
        }
        Ok(())
    }
}

/// Reads tags, whose values are strings.
struct Tags<'de, 'm, 'r> {
    memory: &'m Memory<'r>,
    tags: AttributeSet<'de>,
}

impl<'de> ReadMember<'de> for Tags<'de, '_, '_> {
    fn member<A: MapAccess<'de>>(
        &mut self,
        key: Cow<'de, str>,
        member: Member<'_, A>,
    ) -> Result<(), A::Error> {
        let value = member.read(Text(self.memory))?.unwrap_or_default();
        self.tags
            .add(self.memory, key, Value::Text(value))
            .map_err(A::Error::custom)
    }
}

fn endpoint<'de, A: MapAccess<'de>>(
    memory: &Memory<'_>,
    member: Member<'_, A>,
) -> Result<V2Endpoint<'de>, A::Error> {
    let reader = EndpointReader {
        memory,
        endpoint: V2Endpoint::default(),
    };
    let read = member.read(Object((reader, memory)))?;
    Ok(read.map(|reader| reader.endpoint).unwrap_or_default())
}

struct EndpointReader<'de, 'm, 'r> {
    memory: &'m Memory<'r>,
    endpoint: V2Endpoint<'de>,
}

impl<'de> ReadMember<'de> for EndpointReader<'de, '_, '_> {
    fn member<A: MapAccess<'de>>(
        &mut self,
        key: Cow<'de, str>,
        member: Member<'_, A>,
    ) -> Result<(), A::Error> {
        let text = Text(self.memory);
        let endpoint = &mut self.endpoint;
        match &*key {
            "serviceName" => endpoint.service = member.read(text)?.unwrap_or_default(),
            "ipv4" => endpoint.ipv4 = address(member.read(text)?)?,
            "ipv6" => endpoint.ipv6 = address(member.read(text)?)?,
            "port" => {
                let port = member.read(Integer)?.unwrap_or_default();
                let port = u16::try_from(port);
                endpoint.port = port.map_err(|_| A::Error::custom("the port is above 65535"))?;
            }
            _ => member.skip()?,
        }
        Ok(())
    }
}

fn address<E: Error>(text: Option<Cow<'_, str>>) -> Result<Option<String>, E> {
    let Some(text) = text.filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    match text.parse::<IpAddr>() {
        Ok(address) => Ok(Some(address::text(address))),
        Err(_) => Err(E::custom("the address of an endpoint is no IP address")),
    }
}

/// Reads an annotation.
struct AnnotationSeed<'m, 'r>(&'m Memory<'r>);

impl<'de> DeserializeSeed<'de> for AnnotationSeed<'_, '_> {
    type Value = V2Annotation<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        let reader = AnnotationReader {
            memory: self.0,
            annotation: V2Annotation {
                time: 0,
                text: Cow::Borrowed(""),
            },
        };
        let read = Object((reader, self.0)).deserialize(deserializer)?;
        match read.annotation.time {
            0 => Err(D::Error::custom("an annotation has no timestamp")),
            _ => Ok(read.annotation),
        }
    }
}

struct AnnotationReader<'de, 'm, 'r> {
    memory: &'m Memory<'r>,
    annotation: V2Annotation<'de>,
}

impl<'de> ReadMember<'de> for AnnotationReader<'de, '_, '_> {
    fn member<A: MapAccess<'de>>(
        &mut self,
        key: Cow<'de, str>,
        member: Member<'_, A>,
    ) -> Result<(), A::Error> {
        match &*key {
            "timestamp" => self.annotation.time = microseconds(member)?.unwrap_or_default(),
            "value" => {
                self.annotation.text = member.read(Text(self.memory))?.unwrap_or_default();
            }
            _ => member.skip()?,
        }
        Ok(())
    }
}

/// Reads microseconds, and returns nanoseconds.
fn microseconds<'de, A: MapAccess<'de>>(member: Member<'_, A>) -> Result<Option<u64>, A::Error> {
    let Some(value) = member.read(Integer)? else {
        return Ok(None);
    };
    match u64::try_from(value) {
        Ok(value) => Ok(Some(value.wrapping_mul(1000))),
        Err(_) => Err(A::Error::custom("a time is negative")),
    }
}

fn short_id<E: Error>(key: &str, digits: &str) -> Result<u64, E> {
    let id = hex(digits, 16).and_then(|id| u64::try_from(id).ok());
    id.ok_or_else(|| invalid_id(key, 16))
}

fn invalid_id<E: Error>(key: &str, digits: usize) -> E {
    E::custom(format_args!(
        "`{key}` must have 1 to {digits} hexadecimal digits"
    ))
}

/// Parses an id of at most so many digits. Shorter ids are padded on the left.
fn hex(digits: &str, most: usize) -> Option<u128> {
    let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let fits = (1..=most).contains(&digits.len());
    (is_hex && fits).then(|| u128::from_str_radix(digits, 16).ok())?
}
