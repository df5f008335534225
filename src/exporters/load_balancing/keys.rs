//! Computes routing keys as hashes; every sender computes the same hash.

use opentelemetry_proto::tonic::common::v1::KeyValue;
use xxhash_rust::xxh3::xxh3_64;

use super::config::{Config, RoutingKey};
use tributary_otlp::Signal;
use tributary_otlp::partition::{ItemContext, PartitionLevel};
use tributary_otlp::view;
use tributary_otlp::view::{
    Attributes, ExponentialHistogramPoint, HistogramPoint, LogRecord, Message, Metric, NumberPoint,
    Span, SummaryPoint, View as _, text_of,
};
use tributary_profiles::partition as profiles;

/// The configured routing key.
#[derive(Debug, Clone)]
pub(super) struct Keys {
    routing_key: Option<RoutingKey>,
    attributes: Vec<String>,
}

/// Computes the keys of one signal.
pub(super) struct Hasher<'k> {
    signal: Signal,
    routing_key: RoutingKey,
    attributes: &'k [String],
    text: Vec<u8>,
    /// Hash of all attributes of the resource at this address. Consecutive points often share a
    /// resource.
    resource: Option<(*const u8, u64)>,
}

const SERVICE: &str = "service.name";

impl Keys {
    pub(super) fn new(config: &Config) -> Self {
        Keys {
            routing_key: config.routing_key,
            attributes: config.routing_attributes.clone(),
        }
    }

    fn of(&self, signal: Signal) -> RoutingKey {
        let default = RoutingKey::default_of(signal);
        self.routing_key.unwrap_or(default)
    }

    /// Returns the parts of a request of traces, metrics or logs that have keys of their own.
    pub(super) fn grain(&self, signal: Signal) -> PartitionLevel {
        match self.of(signal) {
            RoutingKey::Service | RoutingKey::Resource | RoutingKey::ProfileSeries => {
                PartitionLevel::Resource
            }
            RoutingKey::TraceId | RoutingKey::Metric => PartitionLevel::Entry,
            RoutingKey::StreamId | RoutingKey::Attributes => PartitionLevel::Point,
        }
    }

    pub(super) fn hasher(&self, signal: Signal) -> Hasher<'_> {
        Hasher {
            signal,
            routing_key: self.of(signal),
            attributes: &self.attributes,
            text: Vec::new(),
            resource: None,
        }
    }
}

impl Hasher<'_> {
    /// Returns the key of an item, given its resource, scope and parents.
    pub(super) fn key(&mut self, place: &ItemContext<'_>) -> u64 {
        self.text.clear();
        match self.routing_key {
            RoutingKey::Service => self.service(place),
            RoutingKey::Resource | RoutingKey::ProfileSeries => return self.resource(place),
            RoutingKey::TraceId => self.trace(place),
            RoutingKey::Metric => {
                let metric = place.entry.map(Metric::view);
                let name = metric.map_or("", |metric| metric.name());
                self.text.extend_from_slice(name.as_bytes());
            }
            RoutingKey::StreamId => self.stream(place),
            RoutingKey::Attributes => self.composite(place),
        }
        xxh3_64(&self.text)
    }

    pub(super) fn profile_key(&mut self, place: &profiles::ProfileContext<'_>) -> u64 {
        self.text.clear();
        let attributes = of_profiles(place);
        match self.routing_key {
            RoutingKey::Attributes => {
                for name in self.attributes {
                    let found = profile_attribute(place, name);
                    put_attribute(name, found.as_deref().unwrap_or_default(), &mut self.text);
                }
            }
            RoutingKey::Resource | RoutingKey::ProfileSeries => {
                let pairs = attributes.iter().map(|pair| {
                    let value = pair.value.as_ref().map(text_of).unwrap_or_default();
                    (pair.key.as_str(), value.into_owned())
                });
                put_sorted(pairs.collect(), &mut self.text);
                if self.routing_key == RoutingKey::ProfileSeries
                    && let Some(profile) = place.profile
                {
                    let kind = profile.header.sample_type;
                    for text in [kind.kind, kind.unit] {
                        put(place.dictionary.text(text).as_bytes(), &mut self.text);
                    }
                }
            }
            _ => {
                let service = attributes.iter().find(|pair| pair.key == SERVICE);
                let value = service.and_then(|pair| pair.value.as_ref());
                let value = value.map(text_of).unwrap_or_default();
                self.text.extend_from_slice(value.as_bytes());
            }
        }
        xxh3_64(&self.text)
    }

    fn service(&mut self, place: &ItemContext<'_>) {
        let service = of_resource(place).and_then(|all| view::attribute(all, SERVICE));
        if let Some(value) = service {
            self.text.extend_from_slice(value.to_text().as_bytes());
        }
    }

    /// Hashes all attributes of the resource, independent of their order.
    fn resource(&mut self, place: &ItemContext<'_>) -> u64 {
        let address = place.resource.message().encoded().as_ptr();
        if let Some((known, hash)) = self.resource
            && known == address
        {
            return hash;
        }
        let mut text = Vec::new();
        if let Some(attributes) = of_resource(place) {
            put_set(attributes, &mut text);
        }
        let hash = xxh3_64(&text);
        self.resource = Some((address, hash));
        hash
    }

    /// Hashes the trace id. Items without a trace id use the service, which spreads them, too.
    fn trace(&mut self, place: &ItemContext<'_>) {
        let trace = place.entry.map_or(&[][..], |entry| match self.signal {
            Signal::Traces => Span::view(entry).trace_id(),
            _ => LogRecord::view(entry).trace_id(),
        });
        if trace.iter().any(|byte| *byte != 0) {
            self.text.extend_from_slice(trace);
        } else {
            self.service(place);
        }
    }

    fn stream(&mut self, place: &ItemContext<'_>) {
        let resource = self.resource(place);
        self.text.extend_from_slice(&resource.to_le_bytes());
        if let Some(scope) = place.scope.and_then(|entry| entry.scope()) {
            put(scope.name().as_bytes(), &mut self.text);
            put(scope.version().as_bytes(), &mut self.text);
            put_set(scope.attributes(), &mut self.text);
        }
        if let Some(metric) = place.entry.map(Metric::view) {
            put(metric.name().as_bytes(), &mut self.text);
            put(metric.unit().as_bytes(), &mut self.text);
        }
        if let Some((form, point)) = place.point {
            self.text.extend_from_slice(&form.to_le_bytes());
            put_set(of_point(form, point), &mut self.text);
        }
    }

    /// Hashes the attributes in the Collector's format: `name=value|`.
    fn composite(&mut self, place: &ItemContext<'_>) {
        for name in self.attributes {
            let value = self.attribute(place, name);
            put_attribute(name, &value.unwrap_or_default(), &mut self.text);
        }
    }

    fn attribute(&self, place: &ItemContext<'_>, name: &str) -> Option<String> {
        let scope = place.scope.and_then(|entry| entry.scope());
        let entry = place.entry;
        let own = match self.signal {
            Signal::Traces => entry.map(|entry| Span::view(entry).attributes()),
            Signal::Logs => entry.map(|entry| LogRecord::view(entry).attributes()),
            _ => place.point.map(|(form, point)| of_point(form, point)),
        };
        let places = [
            of_resource(place),
            scope.map(|scope| scope.attributes()),
            own,
        ];
        let found = places
            .into_iter()
            .flatten()
            .find_map(|attributes| view::attribute(attributes, name));
        if let Some(value) = found {
            return Some(value.to_text().into_owned());
        }
        match (self.signal, name) {
            (Signal::Traces, "span.name") => Some(Span::view(entry?).name().to_owned()),
            (Signal::Traces, "span.kind") => Some(Span::view(entry?).kind().to_string()),
            (Signal::Logs, "log.severity") => {
                Some(LogRecord::view(entry?).severity_text().to_owned())
            }
            (Signal::Logs, "log.body") => {
                let body = LogRecord::view(entry?).body()?;
                Some(body.to_text().into_owned())
            }
            _ => None,
        }
    }
}

fn of_resource<'a>(place: &ItemContext<'a>) -> Option<Attributes<'a>> {
    let resource = place.resource.resource();
    resource.map(|resource| resource.attributes())
}

/// Returns the attributes of a data point in that field of its metric.
fn of_point(form: u32, point: Message<'_>) -> Attributes<'_> {
    match form {
        9 => HistogramPoint::view(point).attributes(),
        10 => ExponentialHistogramPoint::view(point).attributes(),
        11 => SummaryPoint::view(point).attributes(),
        _ => NumberPoint::view(point).attributes(),
    }
}

fn of_profiles<'p>(place: &profiles::ProfileContext<'p>) -> &'p [KeyValue] {
    let resource = place.resource.resource.as_ref();
    resource.map_or(&[], |resource| &resource.attributes)
}

fn profile_attribute(place: &profiles::ProfileContext<'_>, name: &str) -> Option<String> {
    let scope = place.scope.and_then(|scope| scope.scope.as_ref());
    let of_scope = scope.map_or(&[][..], |scope| &scope.attributes);
    let mut pairs = of_profiles(place).iter().chain(of_scope);
    if let Some(pair) = pairs.find(|pair| pair.key == name) {
        return pair.value.as_ref().map(|value| text_of(value).into_owned());
    }
    let own = place.profile?.header.attributes;
    let found = place.dictionary.find(own, name)?;
    let value = place.dictionary.any_value(found.value);
    Some(text_of(&value).into_owned())
}

fn put_set(attributes: Attributes<'_>, text: &mut Vec<u8>) {
    let pairs = attributes.map(|attribute| {
        let value = attribute.value();
        let value = value.map(|value| value.to_text().into_owned());
        (attribute.key(), value.unwrap_or_default())
    });
    put_sorted(pairs.collect(), text);
}

fn put_sorted(mut pairs: Vec<(&str, String)>, text: &mut Vec<u8>) {
    pairs.sort_unstable();
    for (key, value) in pairs {
        put(key.as_bytes(), text);
        put(value.as_bytes(), text);
    }
}

fn put(part: &[u8], text: &mut Vec<u8>) {
    text.extend_from_slice(&(part.len() as u64).to_le_bytes());
    text.extend_from_slice(part);
}

fn put_attribute(name: &str, value: &str, text: &mut Vec<u8>) {
    for part in [name, "=", value, "|"] {
        text.extend_from_slice(part.as_bytes());
    }
}
