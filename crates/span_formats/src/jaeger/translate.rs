//! Writes a span of Jaeger as OTLP.

use std::borrow::Cow;
use std::ops::Range;

use tributary_otlp::room::RoomExhausted;

use super::status::{Outcome, outcome};
use crate::attributes::{AttributeSet, Value};
use crate::encode::{Groups, Output};
use crate::keys;
use crate::memory::Memory;

/// A tag of a span, a process or a log.
pub(super) type Tag<'a> = (Cow<'a, str>, Value<'a>);

/// A span of either encoding.
#[derive(Default)]
pub(super) struct JaegerSpan<'a> {
    pub(super) trace_id: u128,
    pub(super) span_id: u64,
    /// Span id of the parent as Thrift states it; 0 if the references tell.
    pub(super) parent_id: u64,
    pub(super) name: Cow<'a, str>,
    pub(super) references: Vec<Reference>,
    pub(super) flags: u32,
    /// Nanoseconds since 1970.
    pub(super) start: u64,
    /// Nanoseconds since 1970.
    pub(super) end: u64,
    pub(super) tags: Vec<Tag<'a>>,
    pub(super) logs: Vec<Log>,
    /// Fields of all logs.
    pub(super) fields: Vec<Tag<'a>>,
}

pub(super) struct Reference {
    pub(super) trace_id: u128,
    pub(super) span_id: u64,
    pub(super) is_child_of: bool,
}

pub(super) struct Log {
    /// Nanoseconds since 1970.
    pub(super) time: u64,
    /// Range in the fields of the span.
    pub(super) fields: Range<usize>,
}

impl JaegerSpan<'_> {
    /// Empties the span, and keeps its memory for the next one.
    pub(super) fn clear(&mut self) {
        self.references.clear();
        self.tags.clear();
        self.logs.clear();
        self.fields.clear();
        (self.trace_id, self.span_id, self.parent_id) = (0, 0, 0);
        (self.flags, self.start, self.end) = (0, 0, 0);
        self.name = Cow::Borrowed("");
    }

    /// Whether all fields have their default. The Collector ignores such spans.
    fn is_blank(&self) -> bool {
        self.trace_id == 0
            && (self.span_id, self.parent_id) == (0, 0)
            && (self.flags, self.start, self.end) == (0, 0, 0)
            && self.name.is_empty()
            && self.references.is_empty()
            && self.tags.is_empty()
            && self.logs.is_empty()
    }

    /// Returns the span id of the parent: a reference to the same trace, of which CHILD_OF comes first.
    fn parent(&self) -> u64 {
        if self.parent_id != 0 {
            return self.parent_id;
        }
        let same = || {
            let all = self.references.iter();
            all.filter(|reference| reference.trace_id == self.trace_id)
        };
        let child_of = same().find(|reference| reference.is_child_of);
        child_of
            .or_else(|| same().next())
            .map_or(0, |reference| reference.span_id)
    }
}

/// Differences between the translations of the two encodings.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Thrift,
    /// Tags name the scope and the trace state.
    Proto,
}

/// Writes spans to the groups of a request. Its buffers serve all spans of a batch.
pub(super) struct Translator<'a, 'm, 'r> {
    memory: &'m Memory<'r>,
    encoding: Encoding,
    attributes: AttributeSet<'a>,
}

impl<'a, 'm, 'r> Translator<'a, 'm, 'r> {
    pub(super) fn new(memory: &'m Memory<'r>, encoding: Encoding) -> Self {
        Translator {
            memory,
            encoding,
            attributes: AttributeSet::default(),
        }
    }

    /// Writes the resource of a process.
    pub(super) fn resource(
        &mut self,
        service: &str,
        tags: &mut Vec<Tag<'a>>,
        output: &mut Output<'r>,
    ) -> Result<(), RoomExhausted> {
        if self.encoding == Encoding::Proto && service == keys::NO_SERVICE {
            return Ok(());
        }
        let memory = self.memory;
        let attributes = &mut self.attributes;
        attributes.clear();
        fill(memory, tags.drain(..), attributes)?;
        if attributes.get("host.name").is_none()
            && let Some(name) = attributes.take("hostname")
        {
            attributes.put(memory, "host.name", name)?;
        }
        if attributes.get("opencensus.exporterversion").is_none()
            && let Some(version) = attributes.take("jaeger.version")
        {
            let version = format!("Jaeger-{}", version.text());
            memory.copy(version.len())?;
            let version = Value::Text(version.into());
            attributes.put(memory, "opencensus.exporterversion", version)?;
        }
        // A tag of this key replaces the name.
        if !service.is_empty() && attributes.get(keys::SERVICE_NAME).is_none() {
            output.attribute(1, keys::SERVICE_NAME, &Value::Text(service.into()))?;
        }
        output.attributes(1, attributes)
    }

    /// Adds a span to the group `resource`.
    pub(super) fn span(
        &mut self,
        span: &mut JaegerSpan<'a>,
        resource: usize,
        groups: &mut Groups<'r>,
    ) -> Result<(), RoomExhausted> {
        if span.is_blank() {
            return Ok(());
        }
        let (name, version) = match self.encoding {
            Encoding::Proto => scope(&mut span.tags),
            Encoding::Thrift => Default::default(),
        };
        let key = match (name.is_empty(), version.is_empty()) {
            (true, true) => String::new(),
            _ => format!("{name}\0{version}"),
        };
        let write_scope = |output: &mut Output<'r>| {
            output.bytes(1, name.as_bytes())?;
            output.bytes(2, version.as_bytes())
        };
        groups.span(resource, &key, write_scope, |output| {
            self.fields(span, output)
        })
    }

    fn fields(
        &mut self,
        span: &mut JaegerSpan<'a>,
        output: &mut Output<'r>,
    ) -> Result<(), RoomExhausted> {
        let memory = self.memory;
        let attributes = &mut self.attributes;
        attributes.clear();
        let parent = span.parent();
        output.ids(span.trace_id, span.span_id)?;
        if parent != 0 {
            output.bytes(4, &parent.to_be_bytes())?;
        }
        output.bytes(5, span.name.as_bytes())?;
        output.fixed64(7, span.start)?;
        output.fixed64(8, span.end)?;
        fill(memory, span.tags.drain(..), attributes)?;
        let kind = attributes.take(keys::SPAN_KIND);
        let kind = kind.map_or(0, |kind| kind_number(kind.text()));
        output.varint(6, kind)?;
        let Outcome { code, text } = outcome(attributes, kind);
        output.status(code, &text)?;
        if self.encoding == Encoding::Proto
            && let Some(state) = attributes.take(keys::TRACE_STATE)
        {
            output.bytes(3, state.text().as_bytes())?;
        }
        output.attributes(9, attributes)?;
        for log in &span.logs {
            attributes.clear();
            let fields = span.fields.get_mut(log.fields.clone()).unwrap_or_default();
            fill(memory, fields.iter_mut().map(take_tag), attributes)?;
            let name = attributes.take("event").map(Value::into_text);
            output.event(log.time, name.as_deref().unwrap_or_default(), attributes, 0)?;
        }
        for reference in &span.references {
            if reference.is_child_of && reference.span_id == parent {
                continue;
            }
            output.message(13, |link| {
                link.ids(reference.trace_id, reference.span_id)?;
                let kind = match reference.is_child_of {
                    true => "child_of",
                    false => "follows_from",
                };
                link.attribute(4, "opentracing.ref_type", &Value::Text(kind.into()))
            })?;
        }
        // Field 16 is a fixed32.
        if span.flags & SAMPLED != 0 {
            output.fixed32(16, SAMPLED)?;
        }
        Ok(())
    }
}

fn take_tag<'a>(tag: &mut Tag<'a>) -> Tag<'a> {
    std::mem::replace(tag, (Cow::Borrowed(""), Value::Bool(false)))
}

/// Moves tags to a set of attributes. The last of several tags with one key remains.
fn fill<'a>(
    memory: &Memory<'_>,
    tags: impl Iterator<Item = Tag<'a>>,
    attributes: &mut AttributeSet<'a>,
) -> Result<(), RoomExhausted> {
    for (mut key, value) in tags {
        if key == keys::OLD_HTTP_STATUS {
            key = Cow::Borrowed(keys::HTTP_STATUS);
        }
        attributes.add(memory, key, value)?;
    }
    attributes.deduplicate(memory)
}

/// Removes the tags of the instrumentation scope, and returns its name and version.
fn scope<'a>(tags: &mut Vec<Tag<'a>>) -> (Cow<'a, str>, Cow<'a, str>) {
    let mut take = |wanted: &str| {
        let at = tags.iter().position(|(key, _)| key == wanted)?;
        Some(tags.remove(at).1.into_text())
    };
    match take(keys::SCOPE_NAME) {
        Some(name) => (name, take(keys::SCOPE_VERSION).unwrap_or_default()),
        None => Default::default(),
    }
}

/// Returns the number of a `SpanKind`.
fn kind_number(name: &str) -> u64 {
    match name {
        "internal" => 1,
        "server" => 2,
        "client" => 3,
        "producer" => 4,
        "consumer" => 5,
        _ => 0,
    }
}

/// Flag of sampled spans, in Jaeger and in OTLP.
const SAMPLED: u32 = 1;
