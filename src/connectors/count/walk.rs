//! Walks through a request and counts its items. Only the heads of profiles are decoded.

use std::sync::Arc;

use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use prost::Message as _;

use super::clock::Clock;
use super::counter::{Counter, Room, Section};
use crate::pipeline::batch::Nack;
use tributary_otlp::Signal;
use tributary_otlp::edit::put_delimited;
use tributary_otlp::reader::Fields;
use tributary_otlp::view::Message;
use tributary_ottl::EvaluationTarget;
use tributary_ottl::path::Depth;
use tributary_ottl::profile::{ProfileReader, dictionary, messages};
use tributary_profiles::reindex::ProfileFault;

const SCOPE_NAME: &str = "tributary/connector/count";

const TOO_MUCH: &str = "the counts would repeat more bytes of resource and scope attributes than allowed for a \
                        request of this size: send smaller requests, or shorten the attributes";

/// Sections of the configuration that count requests of one signal.
#[derive(Debug)]
pub(super) struct Sections {
    /// Spans, metrics, log records or profiles.
    items: Section,
    /// Span events or data points.
    inner: Option<Section>,
    /// A `ScopeMetrics` without metrics.
    scope: Vec<u8>,
    clock: Arc<Clock>,
}

impl Sections {
    /// Counters of a signal: for its items, and for the data inside them.
    pub(super) fn new(mut sections: Vec<Section>, clock: Arc<Clock>) -> Self {
        let scope = InstrumentationScope {
            name: SCOPE_NAME.to_owned(),
            ..InstrumentationScope::default()
        };
        let mut head = Vec::new();
        put_delimited(1, &scope.encode_to_vec(), &mut head);
        let inner = (sections.len() > 1).then(|| sections.remove(1));
        Sections {
            items: sections.remove(0),
            inner,
            scope: head,
            clock,
        }
    }

    /// Counts a valid request, and appends a request of metrics. Returns the number of data points.
    ///
    /// # Errors
    ///
    /// Profiles break the rules of their dictionary, or the counts would repeat too many bytes of resource
    /// attributes.
    pub(super) fn count(
        &self,
        signal: Signal,
        request: &[u8],
        metrics: &mut Vec<u8>,
    ) -> Result<usize, Nack> {
        let mut room = Room::new(request.len());
        let points = match signal {
            Signal::Profiles => self
                .profiles(request, metrics, &mut room)
                .map_err(|fault| Nack::invalid(format!("cannot count the profiles: {fault}")))?,
            _ => self.items(signal, request, metrics, &mut room),
        };
        match room.is_left() {
            true => Ok(points),
            false => Err(Nack::invalid(TOO_MUCH)),
        }
    }

    fn items(
        &self,
        signal: Signal,
        request: &[u8],
        metrics: &mut Vec<u8>,
        room: &mut Room,
    ) -> usize {
        let mut points = 0;
        for resource in messages(request, 1) {
            let mut counts = Counts::new(self);
            let mut here = EvaluationTarget {
                resource: Message::new(resource),
                ..EvaluationTarget::default()
            };
            counts.enter(Depth::Resource, &here);
            for scope in messages(resource, 2) {
                here.scope = Message::new(scope);
                counts.enter(Depth::Scope, &here);
                for item in messages(scope, 2) {
                    here.item = Message::new(item);
                    match signal {
                        Signal::Traces => counts.span(item, here, room),
                        Signal::Metrics => counts.metric(item, here, room),
                        Signal::Logs | Signal::Profiles => counts.items.count(&here, room),
                    }
                }
            }
            points += self.write(&counts, (resource, resource), metrics);
        }
        points
    }

    fn profiles(
        &self,
        request: &[u8],
        metrics: &mut Vec<u8>,
        room: &mut Room,
    ) -> Result<usize, ProfileFault> {
        let entries = dictionary(request)?;
        let mut reader = ProfileReader::new(&entries);
        let mut points = 0;
        for entry in messages(request, 1) {
            let mut counts = Counts::new(self);
            let resource = reader.resource(entry)?;
            let here = EvaluationTarget {
                resource: Message::new(&resource),
                ..EvaluationTarget::default()
            };
            counts.enter(Depth::Resource, &here);
            for scope in messages(entry, 2) {
                let head = reader.scope(scope)?;
                let here = EvaluationTarget {
                    scope: Message::new(&head),
                    ..here
                };
                counts.enter(Depth::Scope, &here);
                for profile in messages(scope, 2) {
                    let fields = reader.profile(profile)?;
                    let here = EvaluationTarget {
                        profile: Some(&fields),
                        ..here
                    };
                    counts.items.count(&here, room);
                }
            }
            points += self.write(&counts, (&resource, entry), metrics);
        }
        Ok(points)
    }

    /// Appends the metrics of a resource.
    fn write(
        &self,
        counts: &Counts<'_>,
        (resource, schema): (&[u8], &[u8]),
        metrics: &mut Vec<u8>,
    ) -> usize {
        let mut scope = self.scope.clone();
        let times = self.clock.tick();
        let mut points = counts.items.write(times, &mut scope);
        if let Some(inner) = &counts.inner {
            points += inner.write(times, &mut scope);
        }
        if points == 0 {
            return 0;
        }
        let mut entry = Vec::with_capacity(scope.len() + 256);
        for resource in messages(resource, 1) {
            put_delimited(1, resource, &mut entry);
        }
        put_delimited(2, &scope, &mut entry);
        if let Some(url) = messages(schema, 3).last() {
            put_delimited(3, url, &mut entry);
        }
        put_delimited(1, &entry, metrics);
        points
    }
}

/// The counts of a resource.
struct Counts<'s> {
    items: Counter<'s>,
    inner: Option<Counter<'s>>,
}

impl<'s> Counts<'s> {
    fn new(sections: &'s Sections) -> Self {
        let inner = sections.inner.as_ref().map(Counter::new);
        Counts {
            items: Counter::new(&sections.items),
            inner: inner.filter(|inner| !inner.is_idle()),
        }
    }

    fn enter(&mut self, depth: Depth, here: &EvaluationTarget<'_>) {
        self.items.enter(depth, here);
        if let Some(inner) = &mut self.inner {
            inner.enter(depth, here);
        }
    }

    fn span<'a>(&mut self, span: &'a [u8], mut here: EvaluationTarget<'a>, room: &mut Room) {
        self.items.count(&here, room);
        if let Some(events) = &mut self.inner {
            events.enter(Depth::Item, &here);
            for event in messages(span, 11) {
                here.inner = Message::new(event);
                events.count(&here, room);
            }
        }
    }

    fn metric<'a>(&mut self, metric: &'a [u8], mut here: EvaluationTarget<'a>, room: &mut Room) {
        self.items.count(&here, room);
        let Some(points) = &mut self.inner else {
            return;
        };
        let data = |number: &u32| matches!(number, 5 | 7 | 9 | 10 | 11);
        let fields = || Fields::new(metric).map_while(Result::ok);
        // The forms of data are a `oneof`: the last one is the data.
        let forms = fields().map(|field| field.number).filter(data);
        here.form = forms.last().unwrap_or_default();
        points.enter(Depth::Item, &here);
        for data in messages(metric, here.form) {
            for point in messages(data, 1) {
                here.inner = Message::new(point);
                points.count(&here, room);
            }
        }
    }
}
