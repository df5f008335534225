//! Translates a span of Zipkin v2.

use std::borrow::Cow;

use tributary_otlp::room::RoomExhausted;

use super::embedded;
use super::resource_tags::is_of_resource;
use super::values::value;
use crate::TranslateOptions;
use crate::attributes::{AttributeSet, Value};
use crate::encode::{Groups, Output};
use crate::keys;
use crate::memory::Memory;

/// A span of either encoding.
#[derive(Default)]
pub(super) struct V2Span<'a> {
    pub(super) trace_id: u128,
    pub(super) span_id: u64,
    pub(super) parent_id: u64,
    pub(super) name: Cow<'a, str>,
    pub(super) kind: V2Kind,
    /// Nanoseconds since 1970; `None` if the span has no start.
    pub(super) start: Option<u64>,
    /// Nanoseconds.
    pub(super) duration: u64,
    pub(super) local: V2Endpoint<'a>,
    pub(super) remote: V2Endpoint<'a>,
    pub(super) annotations: Vec<V2Annotation<'a>>,
    /// Tags, whose values are texts.
    pub(super) tags: AttributeSet<'a>,
}

#[derive(Default)]
pub(super) struct V2Endpoint<'a> {
    pub(super) service: Cow<'a, str>,
    pub(super) ipv4: Option<String>,
    pub(super) ipv6: Option<String>,
    pub(super) port: u16,
}

pub(super) struct V2Annotation<'a> {
    /// Nanoseconds since 1970.
    pub(super) time: u64,
    pub(super) text: Cow<'a, str>,
}

/// Kind of a span.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum V2Kind {
    #[default]
    Undetermined,
    Client,
    Server,
    Producer,
    Consumer,
}

/// Translates spans. Its buffers serve all spans of a request.
pub(super) struct V2Translator<'a, 'm, 'r> {
    options: TranslateOptions,
    memory: &'m Memory<'r>,
    none: AttributeSet<'a>,
}

impl<'a, 'm, 'r> V2Translator<'a, 'm, 'r> {
    pub(super) fn new(options: &TranslateOptions, memory: &'m Memory<'r>) -> Self {
        V2Translator {
            options: *options,
            memory,
            none: AttributeSet::default(),
        }
    }

    /// Adds a span to the group of its service and library. Tags that describe the resource or the scope are taken from
    /// the first span of a group.
    pub(super) fn span(
        &mut self,
        mut span: V2Span<'a>,
        groups: &mut Groups<'r>,
    ) -> Result<(), RoomExhausted> {
        let memory = self.memory;
        let mut tags = std::mem::take(&mut span.tags);
        tags.deduplicate(memory)?;
        let service = match &*span.local.service {
            "" => keys::NO_SERVICE,
            service => service,
        };
        let resource = groups.resource(service.as_bytes(), |output| {
            write_resource(service, &tags, output)
        })?;
        let text = |key| tags.get(key).map(Value::text);
        let library = text(keys::SCOPE_NAME).or(text(LIBRARY_NAME));
        let library = library.unwrap_or_default().to_owned();
        let version = text(keys::SCOPE_VERSION).or(text(LIBRARY_VERSION));
        let version = version.unwrap_or_default().to_owned();
        let write_scope = |output: &mut Output<'r>| {
            if library.is_empty() {
                return Ok(());
            }
            output.bytes(1, library.as_bytes())?;
            output.bytes(2, version.as_bytes())
        };
        groups.span(resource, &library, write_scope, |output| {
            self.fields(span, tags, output)
        })
    }

    fn fields(
        &self,
        span: V2Span<'a>,
        mut tags: AttributeSet<'a>,
        output: &mut Output<'r>,
    ) -> Result<(), RoomExhausted> {
        let memory = self.memory;
        output.ids(span.trace_id, span.span_id)?;
        if let Some(state) = tags.take(keys::TRACE_STATE) {
            output.bytes(3, state.text().as_bytes())?;
        }
        // A shared span of older clients has its own id as its parent.
        if span.parent_id != 0 && span.parent_id != span.span_id {
            output.bytes(4, &span.parent_id.to_be_bytes())?;
        }
        output.bytes(5, span.name.as_bytes())?;
        output.varint(6, kind_number(span.kind, &mut tags))?;
        write_status(&mut tags, output)?;
        self.write_links(&mut tags, output)?;

        let start = span.start.unwrap_or_default();
        output.fixed64(7, start)?;
        output.fixed64(8, start.wrapping_add(span.duration))?;

        let mut is_renamed = false;
        tags.retain(|key, text| {
            let stays = !is_of_resource(key) && !SCOPE_TAGS.contains(&&**key);
            if *key == keys::OLD_HTTP_STATUS {
                *key = Cow::Borrowed(keys::HTTP_STATUS);
                is_renamed = true;
            }
            if self.options.parse_string_tags && stays {
                let taken = std::mem::replace(text, Value::Bool(false));
                *text = value(taken.into_text(), true);
            }
            stays
        });
        if is_renamed {
            tags.deduplicate(memory)?;
        }
        let V2Endpoint {
            ipv4, ipv6, port, ..
        } = span.local;
        if let Some(address) = ipv6.or(ipv4) {
            tags.put(memory, LOCAL_ADDRESS, Value::Text(address.into()))?;
        }
        if port > 0 {
            tags.put(memory, LOCAL_PORT, Value::Int(port.into()))?;
        }
        let V2Endpoint {
            service,
            ipv4,
            ipv6,
            port,
        } = span.remote;
        if !service.is_empty() {
            tags.put(memory, PEER_SERVICE, Value::Text(service))?;
        }
        if let Some(address) = ipv6.or(ipv4) {
            tags.put(memory, PEER_ADDRESS, Value::Text(address.into()))?;
        }
        if port > 0 {
            tags.put(memory, PEER_PORT, Value::Int(port.into()))?;
        }
        if span.start.is_none() {
            tags.put(memory, START_ABSENT, Value::Bool(true))?;
        }
        output.attributes(9, &tags)?;
        for annotation in &span.annotations {
            match embedded::parse(&annotation.text, 1, memory) {
                Some(event) => {
                    output.event(
                        annotation.time,
                        event.head,
                        &event.attributes,
                        event.dropped,
                    )?;
                }
                None => output.event(annotation.time, &annotation.text, &self.none, 0)?,
            }
        }
        Ok(())
    }

    /// Writes the links in the tags `otlp.link.0`, `otlp.link.1` and so on. A tag that is not a link stays.
    fn write_links(
        &self,
        tags: &mut AttributeSet<'a>,
        output: &mut Output<'r>,
    ) -> Result<(), RoomExhausted> {
        let mut texts = [None; MAX_LINKS];
        for (key, value) in tags.iter() {
            if let Some(text) = link_index(key).and_then(|index| texts.get_mut(index)) {
                *text = Some(value.text());
            }
        }
        let mut written = [false; MAX_LINKS];
        for (text, written) in texts.into_iter().map_while(|text| text).zip(&mut written) {
            let link = embedded::parse(text, 3, self.memory);
            let ids = link.as_ref().and_then(|link| {
                let mut parts = link.head.splitn(3, '|');
                let trace = hex(parts.next()?, 32)?;
                let span = u64::try_from(hex(parts.next()?, 16)?).ok()?;
                Some((trace, span, parts.next()?))
            });
            if let (Some(link), Some((trace, span, state))) = (&link, ids) {
                output.message(13, |output| {
                    output.ids(trace, span)?;
                    output.bytes(3, state.as_bytes())?;
                    output.attributes(4, &link.attributes)?;
                    output.varint(5, link.dropped.into())
                })?;
                *written = true;
            }
        }
        if written.contains(&true) {
            let is_written = |index| written.get(index).copied().unwrap_or(false);
            tags.retain(|key, _| !link_index(key).is_some_and(is_written));
        }
        Ok(())
    }
}

/// Returns the number in the key of a tag that may contain a link.
fn link_index(key: &str) -> Option<usize> {
    let digits = key.strip_prefix("otlp.link.")?;
    let is_canonical = digits == "0" || digits.starts_with(|first| matches!(first, '1'..='9'));
    is_canonical.then(|| digits.parse().ok())?
}

/// Parses so many hexadecimal digits; no digits are 0.
fn hex(digits: &str, count: usize) -> Option<u128> {
    match digits.len() {
        0 => Some(0),
        length if length == count && digits.bytes().all(|digit| digit.is_ascii_hexdigit()) => {
            u128::from_str_radix(digits, 16).ok()
        }
        _ => None,
    }
}

fn write_resource(
    service: &str,
    tags: &AttributeSet<'_>,
    output: &mut Output<'_>,
) -> Result<(), RoomExhausted> {
    if service == keys::NO_SERVICE {
        return Ok(());
    }
    let source = tags
        .get(SERVICE_SOURCE)
        .map(Value::text)
        .unwrap_or_default();
    let name_key = if source.is_empty() {
        keys::SERVICE_NAME
    } else {
        source
    };
    let rename = |key| {
        if key == OLD_FUNCTION_ID {
            FUNCTION_ID
        } else {
            key
        }
    };
    let is_written = |key: &str| is_of_resource(key) && key != SERVICE_SOURCE;
    // A tag of the same key replaces the name.
    if !is_written(name_key) || tags.get(name_key).is_none() {
        output.attribute(1, name_key, &Value::Text(service.into()))?;
    }
    for (key, value) in tags.iter().filter(|(key, _)| is_written(key)) {
        if key == OLD_FUNCTION_ID && tags.get(FUNCTION_ID).is_some() {
            continue;
        }
        output.attribute(1, rename(key), value)?;
    }
    Ok(())
}

/// Returns the number of the `SpanKind`. Zipkin has no internal spans; the Collector's exporter marks them by a tag.
fn kind_number(kind: V2Kind, tags: &mut AttributeSet<'_>) -> u64 {
    match kind {
        V2Kind::Server => 2,
        V2Kind::Client => 3,
        V2Kind::Producer => 4,
        V2Kind::Consumer => 5,
        V2Kind::Undetermined => match tags.take(keys::SPAN_KIND) {
            Some(kind) if kind.text() == "internal" => 1,
            _ => 0,
        },
    }
}

/// Writes the status, and removes its tags.
fn write_status(tags: &mut AttributeSet<'_>, output: &mut Output<'_>) -> Result<(), RoomExhausted> {
    let (mut code, mut description) = (0, Cow::Borrowed(""));
    if let Some(text) = tags.take(keys::STATUS_CODE) {
        code = match text.text() {
            "STATUS_CODE_OK" | "Ok" => 1,
            "STATUS_CODE_ERROR" | "Error" => 2,
            _ => 0,
        };
        let text = tags.take(keys::STATUS_DESCRIPTION);
        description = text.map(Value::into_text).unwrap_or_default();
    }
    if let Some(error) = tags.get(keys::ERROR) {
        code = 2;
        if error.text() == "true" {
            tags.take(keys::ERROR);
        }
    }
    output.status(code, &description)
}

/// Maximum number of links of a span, as in the Collector.
const MAX_LINKS: usize = 128;
const SERVICE_SOURCE: &str = "otlp.service.name.source";
const LIBRARY_NAME: &str = "otel.library.name";
const LIBRARY_VERSION: &str = "otel.library.version";
/// Tags of the instrumentation scope, which are never attributes.
const SCOPE_TAGS: [&str; 4] = [
    LIBRARY_NAME,
    LIBRARY_VERSION,
    keys::SCOPE_NAME,
    keys::SCOPE_VERSION,
];
const OLD_FUNCTION_ID: &str = "faas.id";
const FUNCTION_ID: &str = "cloud.resource_id";
const LOCAL_ADDRESS: &str = "network.local.address";
const LOCAL_PORT: &str = "net.host.port";
const PEER_SERVICE: &str = "service.peer.name";
const PEER_ADDRESS: &str = "network.peer.address";
const PEER_PORT: &str = "net.peer.port";
pub(super) const START_ABSENT: &str = "otel.zipkin.absentField.startTime";
