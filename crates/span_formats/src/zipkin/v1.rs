//! Translates a span of Zipkin v1.

use std::borrow::Cow;

use tributary_otlp::room::RoomExhausted;

use super::v2::START_ABSENT;
use super::values;
use crate::TranslateOptions;
use crate::attributes::{AttributeSet, Value};
use crate::encode::{Groups, Output};
use crate::keys;
use crate::memory::Memory;

/// A span of either encoding.
#[derive(Default)]
pub(super) struct V1Span<'a> {
    pub(super) trace_id: u128,
    pub(super) span_id: u64,
    pub(super) parent_id: u64,
    pub(super) name: Cow<'a, str>,
    /// Microseconds since 1970.
    pub(super) timestamp: Option<i64>,
    /// Microseconds.
    pub(super) duration: i64,
    pub(super) annotations: Vec<V1Annotation<'a>>,
    pub(super) binaries: Vec<V1Binary<'a>>,
}

pub(super) struct V1Annotation<'a> {
    /// Microseconds since 1970.
    pub(super) time: i64,
    pub(super) text: Cow<'a, str>,
    pub(super) endpoint: Option<V1Endpoint<'a>>,
}

/// A binary annotation: an attribute of the span.
pub(super) struct V1Binary<'a> {
    pub(super) key: Cow<'a, str>,
    pub(super) value: Value<'a>,
    /// Name of the service in the endpoint, if there is an endpoint.
    pub(super) service: Option<Cow<'a, str>>,
}

#[derive(Clone, Default)]
pub(super) struct V1Endpoint<'a> {
    pub(super) service: Cow<'a, str>,
    pub(super) ipv4: Cow<'a, str>,
    pub(super) ipv6: Cow<'a, str>,
    pub(super) port: i32,
}

/// Nanoseconds of the start and the end.
type Times = (u64, u64);

/// Adds a span to the group of its endpoint. With `options`, a span without a time gets the current time, and texts
/// may be parsed; Thrift needs neither.
pub(super) fn translate<'a, 'r>(
    span: V1Span<'a>,
    options: Option<&TranslateOptions>,
    memory: &Memory<'r>,
    groups: &mut Groups<'r>,
) -> Result<(), RoomExhausted> {
    let V1Tags {
        mut attributes,
        status,
        service: fallback,
    } = read_tags(span.binaries, options, memory)?;
    let mut endpoint = None;
    let mut kind = 0;
    let (mut first, mut last) = (i64::MAX, i64::MIN);
    let mut times: Times = (0, 0);
    for annotation in &span.annotations {
        if annotation.text.is_empty() {
            continue;
        }
        let is_core = core_kind(&annotation.text);
        if let Some(core) = is_core {
            let named = annotation.endpoint.as_ref();
            let named = named.filter(|found| !matches!(&*found.service, "" | UNKNOWN));
            endpoint = endpoint.or(named);
            kind = if kind == 0 { core } else { kind };
        }
        if annotation.time < first {
            first = annotation.time;
            times.0 = nanoseconds(first);
        }
        if annotation.time > last {
            last = annotation.time;
            times.1 = nanoseconds(last);
        }
    }
    let mut endpoint = endpoint.cloned().unwrap_or_else(|| V1Endpoint {
        service: UNKNOWN.into(),
        ..V1Endpoint::default()
    });
    if endpoint.service == UNKNOWN && !fallback.is_empty() {
        endpoint.service = fallback;
    }
    if let Some(start) = span.timestamp {
        let end = start.wrapping_add(span.duration);
        times = (nanoseconds(start), nanoseconds(end));
    }
    if times.0 == 0
        && let Some(now) = options.map(|options| options.now)
    {
        times = (now, now);
        attributes.put(memory, START_ABSENT, Value::Bool(true))?;
    }
    let V1Endpoint {
        service,
        ipv4,
        ipv6,
        port,
    } = &endpoint;
    let key = format!("{service}-{ipv4}-{ipv6}-{port}");
    let resource = groups.resource(key.as_bytes(), |output| write_resource(&endpoint, output))?;
    let none = AttributeSet::default();
    let fields = |output: &mut Output<'r>| {
        output.ids(span.trace_id, span.span_id)?;
        if span.parent_id != 0 {
            output.bytes(4, &span.parent_id.to_be_bytes())?;
        }
        output.bytes(5, span.name.as_bytes())?;
        output.varint(6, kind)?;
        output.fixed64(7, times.0)?;
        output.fixed64(8, times.1)?;
        output.attributes(9, &attributes)?;
        for annotation in &span.annotations {
            if !annotation.text.is_empty() && core_kind(&annotation.text).is_none() {
                output.event(nanoseconds(annotation.time), &annotation.text, &none, 0)?;
            }
        }
        let (code, text) = &status;
        output.status(*code, text)
    };
    groups.span(resource, "", |_| Ok(()), fields)
}

/// Returns the number of the `SpanKind` that a core annotation implies.
fn core_kind(annotation: &str) -> Option<u64> {
    match annotation {
        "ss" | "sr" => Some(2),
        "cs" | "cr" => Some(3),
        "ms" => Some(4),
        "mr" => Some(5),
        _ => None,
    }
}

fn write_resource(endpoint: &V1Endpoint<'_>, output: &mut Output<'_>) -> Result<(), RoomExhausted> {
    let port = match endpoint.port {
        0 => String::new(),
        port => port.to_string(),
    };
    let text = |text: &Cow<'_, str>| Value::Text(Cow::Owned(text.clone().into_owned()));
    output.attribute(1, keys::SERVICE_NAME, &text(&endpoint.service))?;
    for (key, value) in [
        ("ipv4", &endpoint.ipv4),
        ("ipv6", &endpoint.ipv6),
        ("port", &port.into()),
    ] {
        if !value.is_empty() {
            output.attribute(1, key, &text(value))?;
        }
    }
    Ok(())
}

/// The content of binary annotations.
struct V1Tags<'a> {
    attributes: AttributeSet<'a>,
    /// Code and description.
    status: (i32, Cow<'a, str>),
    /// Name of the service for a span whose annotations have none.
    service: Cow<'a, str>,
}

fn read_tags<'a>(
    binaries: Vec<V1Binary<'a>>,
    options: Option<&TranslateOptions>,
    memory: &Memory<'_>,
) -> Result<V1Tags<'a>, RoomExhausted> {
    let mut attributes = AttributeSet::default();
    let mut status = StatusTags::default();
    let parse = options.is_some_and(|options| options.parse_string_tags);
    let (mut service, mut component) = (Cow::Borrowed(""), Cow::Borrowed(""));
    for V1Binary {
        mut key,
        value,
        service: named,
    } in binaries
    {
        service = named.unwrap_or(service);
        if key == LOCAL_COMPONENT {
            key = Cow::Borrowed("component");
            component = value.clone().into_text();
        }
        let value = match value {
            Value::Text(text) => values::value(text, parse),
            other => other,
        };
        if !status.is_only_status(&key, &value) {
            attributes.add(memory, key, value)?;
        }
    }
    attributes.deduplicate(memory)?;
    Ok(V1Tags {
        attributes,
        status: status.outcome(),
        service: if service.is_empty() {
            component
        } else {
            service
        },
    })
}

/// The status of a span according to its tags, by their source.
#[derive(Default)]
struct StatusTags<'a> {
    census: (Option<i32>, Cow<'a, str>),
    otel: (Option<i32>, Cow<'a, str>),
    http: (Option<i32>, Cow<'a, str>),
    has_error: bool,
}

impl<'a> StatusTags<'a> {
    /// Reads a tag. Returns whether the tag is not an attribute too.
    fn is_only_status(&mut self, key: &str, value: &Value<'a>) -> bool {
        let text = || value.clone().into_text();
        match key {
            "census.status_code" => {
                // 0 is success in OpenCensus.
                let code = number(value).map(|code| if code == 0 { 1 } else { 2 });
                self.census.0 = code.or(self.census.0);
            }
            "census.status_description" | "opencensus.status_description" => self.census.1 = text(),
            keys::STATUS_CODE => self.otel.0 = number(value).or(self.otel.0),
            keys::STATUS_DESCRIPTION => self.otel.1 = text(),
            keys::OLD_HTTP_STATUS | keys::HTTP_STATUS => {
                let code = number(value).map(|code| if (100..400).contains(&code) { 0 } else { 2 });
                self.http.0 = code.or(self.http.0);
                return false;
            }
            keys::HTTP_MESSAGE => {
                self.http.1 = text();
                return false;
            }
            keys::ERROR => self.has_error = true,
            _ => return false,
        }
        true
    }

    /// Returns the code and the description of the status.
    fn outcome(self) -> (i32, Cow<'a, str>) {
        let StatusTags {
            census,
            otel,
            http,
            has_error,
        } = self;
        match (census, otel, http) {
            ((Some(code), text), ..) | (_, (Some(code), text), _) => (code, text),
            ((_, census), (_, otel), _) if has_error => {
                (2, if census.is_empty() { otel } else { census })
            }
            (_, _, (Some(code), text)) => (code, text),
            _ => (0, Cow::Borrowed("")),
        }
    }
}

fn number(value: &Value<'_>) -> Option<i32> {
    match value {
        Value::Int(value) => i32::try_from(*value).ok(),
        Value::Text(text) => text
            .parse::<i64>()
            .ok()
            .and_then(|value| value.try_into().ok()),
        _ => None,
    }
}

/// Converts microseconds since 1970; times before 1970 become 0.
fn nanoseconds(microseconds: i64) -> u64 {
    u64::try_from(microseconds).map_or(0, |positive| positive.wrapping_mul(1000))
}

/// Service name of spans without one, as in the Collector.
const UNKNOWN: &str = "unknown-service";
/// Key of the binary annotation that names a component within the service.
const LOCAL_COMPONENT: &str = "lc";
