//! A span of Zipkin, made from a span of OTLP.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::IpAddr;

use tributary_otlp::room::{Room, RoomExhausted};
use tributary_otlp::view::{AnyValue, Attributes, Event, ResourceEntry, Scope, Span};

use super::RenderError;
use crate::keys;

/// Tags in the order of their keys. Their memory is returned to the room when they are dropped.
pub(super) struct SpanTags<'a, 'r> {
    room: &'r dyn Room,
    taken: Cell<usize>,
    tags: BTreeMap<Cow<'a, str>, Cow<'a, str>>,
}

/// Memory of a tag in addition to the copies of its texts: its share of a node of the tree.
const TAG: usize = 128;
/// Maximum growth of a value that becomes text: an escaped control character.
const GROWTH: usize = 6;

impl<'a, 'r> SpanTags<'a, 'r> {
    pub(super) fn new(room: &'r dyn Room) -> Self {
        SpanTags {
            room,
            taken: Cell::new(0),
            tags: BTreeMap::new(),
        }
    }

    /// Returns tags that begin with these tags.
    pub(super) fn layer(&self) -> Result<SpanTags<'_, 'r>, RoomExhausted> {
        let mut layer = SpanTags::new(self.room);
        layer.take_room(TAG * self.tags.len())?;
        let tags = self.tags.iter();
        layer.tags = tags
            .map(|(key, value)| (Cow::Borrowed(&**key), Cow::Borrowed(&**value)))
            .collect();
        Ok(layer)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.tags.iter().map(|(key, value)| (&**key, &**value))
    }

    fn take_room(&self, bytes: usize) -> Result<(), RoomExhausted> {
        self.room.take(bytes)?;
        self.taken.set(self.taken.get() + bytes);
        Ok(())
    }

    fn set(&mut self, key: Cow<'a, str>, value: Cow<'a, str>) -> Result<(), RoomExhausted> {
        self.take_room(TAG)?;
        self.tags.insert(key, value);
        Ok(())
    }

    fn add(&mut self, attributes: Attributes<'a>) -> Result<(), RoomExhausted> {
        for attribute in attributes {
            let value = attribute.value().unwrap_or(AnyValue::Empty);
            if !matches!(value, AnyValue::String(_)) {
                self.take_room(GROWTH * attribute.message().encoded().len())?;
            }
            self.set(attribute.key().into(), value.to_text())?;
        }
        Ok(())
    }

    /// Adds the tags of a scope.
    pub(super) fn scope(&mut self, scope: Scope<'a>) -> Result<(), RoomExhausted> {
        self.add(scope.attributes())?;
        for (key, value) in [
            (keys::SCOPE_NAME, scope.name()),
            (keys::SCOPE_VERSION, scope.version()),
        ] {
            if !value.is_empty() {
                self.set(key.into(), value.into())?;
            }
        }
        Ok(())
    }

    fn get(&self, key: &str) -> Option<&Cow<'a, str>> {
        self.tags.get(key)
    }

    fn remove(&mut self, key: &str) -> Option<Cow<'a, str>> {
        self.tags.remove(key)
    }
}

impl Drop for SpanTags<'_, '_> {
    fn drop(&mut self) {
        self.room.release(self.taken.get());
    }
}

/// Adds the tags of a resource, and returns the name of its service, if it has one. A name from another attribute than
/// `service.name` has a tag that tells its source.
pub(super) fn resource_tags<'a>(
    entry: ResourceEntry<'a>,
    tags: &mut SpanTags<'a, '_>,
) -> Result<Option<Cow<'a, str>>, RoomExhausted> {
    let Some(resource) = entry.resource() else {
        return Ok(None);
    };
    tags.add(resource.attributes())?;
    if let Some(function) = tags.remove("faas.id")
        && tags.get("cloud.resource_id").is_none()
    {
        tags.set("cloud.resource_id".into(), function)?;
    }
    for key in NAME_KEYS {
        if let Some(name) = tags.remove(key) {
            if key != keys::SERVICE_NAME {
                tags.set("otlp.service.name.source".into(), key.into())?;
            }
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// Attributes that name a service, the first of which counts.
const NAME_KEYS: [&str; 4] = [
    keys::SERVICE_NAME,
    "faas.name",
    "k8s.deployment.name",
    "process.executable.name",
];

/// The fields of a span besides its tags.
pub(super) struct Rendered<'a> {
    pub(super) trace_id: &'a [u8],
    pub(super) span_id: &'a [u8],
    /// Empty for a root span.
    pub(super) parent_id: &'a [u8],
    pub(super) name: &'a str,
    /// Name and number of the kind.
    pub(super) kind: Option<(&'static str, u64)>,
    /// Nanoseconds since 1970; 0 without a start.
    pub(super) start: u64,
    /// Nanoseconds.
    pub(super) duration: u64,
    pub(super) local: Option<RenderedEndpoint<'a>>,
    pub(super) remote: Option<RenderedEndpoint<'a>>,
    events: Span<'a>,
    room: &'a dyn Room,
}

pub(super) struct RenderedEndpoint<'a> {
    pub(super) service: Cow<'a, str>,
    pub(super) address: Option<IpAddr>,
    pub(super) port: u16,
}

impl<'a> Rendered<'a> {
    /// Calls `write` with the time in nanoseconds and the text of each annotation.
    pub(super) fn annotations(
        &self,
        mut write: impl FnMut(u64, &str) -> Result<(), RoomExhausted>,
    ) -> Result<(), RoomExhausted> {
        for event in self.events.events() {
            let size = GROWTH * event.message().encoded().len();
            self.room.take(size)?;
            let written = write(event.time_unix_nano(), &annotation(event));
            self.room.release(size);
            written?;
        }
        Ok(())
    }
}

fn annotation(event: Event<'_>) -> Cow<'_, str> {
    let dropped = event.dropped_attributes_count();
    if event.attributes().next().is_none() && dropped == 0 {
        return Cow::Borrowed(event.name());
    }
    let attributes = attributes_json(event.attributes());
    Cow::Owned(format!("{}|{attributes}|{dropped}", event.name()))
}

/// Formats attributes as the Collector does, which escapes characters with a meaning in HTML.
fn attributes_json(attributes: Attributes<'_>) -> String {
    let json = AnyValue::Map(attributes).to_text();
    if json.is_empty() {
        // JSON has no infinities.
        return "{}".to_owned();
    }
    json.replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
}

/// Returns the fields of a span, and adds its tags to those of its resource and scope.
pub(super) fn rendered<'a: 't, 't>(
    span: Span<'a>,
    service: &'t str,
    tags: &mut SpanTags<'t, 't>,
) -> Result<Rendered<'t>, RenderError> {
    let is_id = |id: &[u8], length| id.len() == length && id.iter().any(|byte| *byte != 0);
    if !is_id(span.trace_id(), 16) || !is_id(span.span_id(), 8) {
        return Err(RenderError::InvalidId);
    }
    tags.add(span.attributes())?;
    if tags.get(keys::OLD_HTTP_STATUS).is_none()
        && let Some(status) = tags.get(keys::HTTP_STATUS).cloned()
    {
        tags.set(keys::OLD_HTTP_STATUS.into(), status)?;
    }
    if !span.trace_state().is_empty() {
        tags.set(keys::TRACE_STATE.into(), span.trace_state().into())?;
    }
    let kind = match span.kind() {
        2 => Some(("SERVER", 2)),
        3 => Some(("CLIENT", 1)),
        4 => Some(("PRODUCER", 3)),
        5 => Some(("CONSUMER", 4)),
        _ => None,
    };
    if span.kind() == INTERNAL {
        tags.set(keys::SPAN_KIND.into(), "internal".into())?;
    }
    let local = endpoint(
        tags,
        Some(service.into()),
        "network.local.address",
        "net.host.port",
    );
    let peer = tags
        .remove("service.peer.name")
        .or_else(|| tags.remove("peer.service"));
    let remote = endpoint(tags, peer, "network.peer.address", "net.peer.port");
    set_status(span, tags)?;
    set_links(span, tags)?;
    let (start, end) = (span.start_time_unix_nano(), span.end_time_unix_nano());
    let is_time = |time: u64| time <= i64::MAX as u64;
    let parent = span.parent_span_id();
    Ok(Rendered {
        trace_id: span.trace_id(),
        span_id: span.span_id(),
        parent_id: if is_id(parent, 8) { parent } else { &[] },
        name: span.name(),
        kind,
        start: if start >= SECOND && is_time(start) {
            start
        } else {
            0
        },
        duration: if is_time(end) {
            end.saturating_sub(start)
        } else {
            0
        },
        local,
        remote,
        events: span,
        room: tags.room,
    })
}

/// Removes the tags of an endpoint, and returns the endpoint. A tag that is not an IP address stays.
fn endpoint<'t>(
    tags: &mut SpanTags<'t, '_>,
    service: Option<Cow<'t, str>>,
    address_key: &str,
    port_key: &str,
) -> Option<RenderedEndpoint<'t>> {
    let address = tags.get(address_key).and_then(|text| text.parse().ok());
    if address.is_some() {
        tags.remove(address_key);
    }
    let service = service.unwrap_or_default();
    if service.is_empty() && address.is_none() {
        return None;
    }
    let port = tags.get(port_key).and_then(|text| text.parse().ok());
    if port.is_some() {
        tags.remove(port_key);
    }
    Some(RenderedEndpoint {
        service,
        address,
        port: port.unwrap_or_default(),
    })
}

fn set_status<'a: 't, 't>(
    span: Span<'a>,
    tags: &mut SpanTags<'t, '_>,
) -> Result<(), RoomExhausted> {
    let code = span.status().map_or(0, |status| status.code());
    // Zipkin takes any value of the tag for a failure.
    match code {
        ERROR => tags.set(keys::ERROR.into(), "true".into())?,
        _ => drop(tags.remove(keys::ERROR)),
    }
    let name = match code {
        OK => "STATUS_CODE_OK",
        ERROR => "STATUS_CODE_ERROR",
        0 => return Ok(()),
        _ => "",
    };
    tags.set(keys::STATUS_CODE.into(), name.into())?;
    let text = span.status().map_or("", |status| status.text());
    if !text.is_empty() {
        tags.set(keys::STATUS_DESCRIPTION.into(), text.into())?;
    }
    Ok(())
}

fn set_links<'a: 't, 't>(span: Span<'a>, tags: &mut SpanTags<'t, '_>) -> Result<(), RoomExhausted> {
    for (index, link) in span.links().enumerate() {
        tags.take_room(TAG + GROWTH * link.message().encoded().len())?;
        let text = format!(
            "{}|{}|{}|{}|{}",
            hex(link.trace_id()),
            hex(link.span_id()),
            link.trace_state(),
            attributes_json(link.attributes()),
            link.dropped_attributes_count(),
        );
        tags.set(format!("otlp.link.{index}").into(), text.into())?;
    }
    Ok(())
}

/// Formats an id; the empty text for an id of zeros.
fn hex(id: &[u8]) -> String {
    match id.iter().all(|byte| *byte == 0) {
        true => String::new(),
        false => id.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}

const INTERNAL: i32 = 1;
const OK: i32 = 1;
const ERROR: i32 = 2;
/// Nanoseconds of a second. An earlier start stands for a span without one.
const SECOND: u64 = 1_000_000_000;
