//! Counting what is of one kind, and the metrics that come of it.

use std::collections::BTreeMap;
use std::collections::hash_map::{Entry, HashMap};
use std::sync::Arc;

use foldhash::fast::RandomState;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{self as common, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Metric, NumberDataPoint, Sum, metric,
};
use prost::Message as _;

use super::config::{DefaultValue, MetricConfig, signal_of};
use crate::component::BuildError;
use tributary_net::sampled_log::SampledLog;
use tributary_otlp::edit::put_delimited;
use tributary_otlp::view::{AnyValue, attribute};
use tributary_ottl::path::{Context, Depth};
use tributary_ottl::{Condition, Here, attributes, parse, within};

/// The metrics of one section of the configuration.
#[derive(Debug)]
pub(super) struct Section {
    context: Context,
    metrics: Vec<Definition>,
    log: SampledLog,
}

#[derive(Debug)]
struct Definition {
    name: String,
    description: String,
    conditions: Vec<Condition>,
    /// Keys, with the values where they are missing.
    attributes: Vec<(String, Option<Value>)>,
}

impl Section {
    pub(super) fn new(
        context: Context,
        metrics: &BTreeMap<String, MetricConfig>,
    ) -> Result<Self, BuildError> {
        let signal = signal_of(context);
        let mut definitions = Vec::with_capacity(metrics.len());
        for (name, config) in metrics {
            let conditions = config.conditions.iter().map(|text| {
                parse(text, signal, Some(context))
                    .map_err(|mistake| BuildError(mistake.in_text(text)))
            });
            let attributes = config.attributes.iter();
            definitions.push(Definition {
                name: name.clone(),
                description: config.description.clone(),
                conditions: conditions.collect::<Result<_, _>>()?,
                attributes: attributes
                    .map(|attribute| {
                        let value = attribute.default_value.as_ref().and_then(stated);
                        (attribute.key.clone(), value)
                    })
                    .collect(),
            });
        }
        Ok(Section {
            context,
            metrics: definitions,
            log: SampledLog::default(),
        })
    }

    /// Whether it counts nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.metrics.is_empty()
    }

    /// What is known at the beginning: nothing.
    fn unknown(&self) -> Vec<Known> {
        let known = |definition: &Definition| Known {
            conditions: None,
            attributes: vec![None; definition.attributes.len()],
        };
        self.metrics.iter().map(known).collect()
    }

    /// What is known within the resource or the scope at hand, which is in what `before` is known of.
    fn within(&self, before: &[Known], depth: Depth, here: &Here<'_>) -> Vec<Known> {
        let context = match depth {
            Depth::Resource => Some(Context::Resource),
            Depth::Scope => Some(Context::Scope),
            // It has no attributes that count for what is in it.
            Depth::Item | Depth::Inner => None,
        };
        let known = |(definition, before): (&Definition, &Known)| {
            let conditions = before.conditions(definition);
            let pairs = definition.attributes.iter().zip(&before.attributes);
            let pairs = pairs.map(|((key, _), before)| {
                let found = context.and_then(|context| attribute(attributes(context, here), key));
                match found {
                    Some(found) => Some(pair(key, of_point(found)).into()),
                    None => before.clone(),
                }
            });
            Known {
                attributes: pairs.collect(),
                conditions: within(conditions, depth, here).or_else(|| before.conditions.clone()),
            }
        };
        self.metrics.iter().zip(before).map(known).collect()
    }

    fn applies(&self, conditions: &[Condition], here: &Here<'_>) -> bool {
        conditions.is_empty()
            || conditions.iter().any(|condition| {
                condition.is_true(here).unwrap_or_else(|_| {
                    if let Some(suppressed) = self.log.admit() {
                        tracing::warn!(
                            condition = &*condition.text,
                            suppressed,
                            "a condition looks for a key in something that has no keys"
                        );
                    }
                    false
                })
            })
    }

    /// The attributes of the data point that counts this, encoded in its field for them; `None` when one is missing.
    /// What of them is not its own is taken off `room`.
    fn key(
        &self,
        definition: &Definition,
        known: &Known,
        here: &Here<'_>,
        room: &mut Room,
    ) -> Option<Vec<u8>> {
        let mut encoded = Vec::new();
        for ((key, default), shared) in definition.attributes.iter().zip(&known.attributes) {
            let own = attribute(attributes(self.context, here), key);
            match (own, shared) {
                (Some(own), _) => encoded.extend(pair(key, of_point(own))),
                (None, Some(shared)) => {
                    room.take(shared.len());
                    encoded.extend_from_slice(shared);
                }
                (None, None) => encoded.extend(pair(key, default.clone()?)),
            }
        }
        Some(encoded)
    }
}

/// What of a metric is known within a resource or a scope, so that it is not looked for again for all that is in it.
#[derive(Debug)]
struct Known {
    /// With the answers to what they ask; the metric's own if they ask nothing.
    conditions: Option<Vec<Condition>>,
    /// Encoded attributes, by the places of their keys.
    attributes: Vec<Option<Arc<[u8]>>>,
}

impl Known {
    fn conditions<'k>(&'k self, definition: &'k Definition) -> &'k [Condition] {
        self.conditions.as_deref().unwrap_or(&definition.conditions)
    }
}

/// How many bytes of attributes of resources and scopes may be carried over into what counts their items. In a request
/// they are there once.
#[derive(Debug)]
pub(super) struct Room(usize);

/// For any request, and for each of its bytes: a small log record has 40 bytes, and ten metrics may count it by names of
/// services and hosts.
const ROOM: usize = 16 << 20;
const ROOM_PER_BYTE: usize = 32;

impl Room {
    /// For a request of so many bytes.
    pub(super) fn new(request: usize) -> Self {
        Room(request.saturating_mul(ROOM_PER_BYTE).saturating_add(ROOM))
    }

    /// Whether there was enough so far.
    pub(super) fn is_left(&self) -> bool {
        self.0 > 0
    }

    fn take(&mut self, bytes: usize) {
        self.0 = self.0.saturating_sub(bytes);
    }
}

/// The value that a data point has for one that was found.
fn of_point(found: AnyValue<'_>) -> Value {
    match found {
        AnyValue::Int(value) => Value::IntValue(value),
        AnyValue::Double(value) => Value::DoubleValue(value),
        other => Value::StringValue(other.to_text().into_owned()),
    }
}

/// An encoded attribute in the field of a data point.
fn pair(key: &str, value: Value) -> Vec<u8> {
    let pair = KeyValue {
        key: key.to_owned(),
        value: Some(common::AnyValue { value: Some(value) }),
        key_strindex: 0,
    };
    let mut encoded = Vec::new();
    put_delimited(POINT_ATTRIBUTES, &pair.encode_to_vec(), &mut encoded);
    encoded
}

/// The field of a data point that has its attributes.
const POINT_ATTRIBUTES: u32 = 7;

/// The value that is meant by a setting. As in the Collector, the empty text and 0 are none.
fn stated(value: &DefaultValue) -> Option<Value> {
    match value {
        DefaultValue::Text(text) if text.is_empty() => None,
        DefaultValue::Int(0) => None,
        DefaultValue::Double(number) if *number == 0.0 => None,
        DefaultValue::Text(text) => Some(Value::StringValue(text.clone())),
        DefaultValue::Int(number) => Some(Value::IntValue(*number)),
        DefaultValue::Double(number) => Some(Value::DoubleValue(*number)),
    }
}

/// The counts of one section, of one resource.
#[derive(Debug)]
pub(super) struct Counter<'s> {
    section: &'s Section,
    /// As many as the section has metrics.
    counts: Vec<Counts>,
    /// What is known of the resource, the scope, and the item around what is counted.
    known: [Vec<Known>; 3],
    deepest: Depth,
}

#[derive(Debug, Default)]
struct Counts {
    /// Encoded attributes with their counts, in the order in which they came.
    points: Vec<(Vec<u8>, u64)>,
    places: HashMap<Vec<u8>, usize, RandomState>,
}

impl Counts {
    fn add(&mut self, key: Vec<u8>) {
        // Without attributes there is only one.
        if key.is_empty() {
            match self.points.first_mut() {
                Some((_, count)) => *count += 1,
                None => self.points.push((key, 1)),
            }
            return;
        }
        let next = self.points.len();
        match self.places.entry(key) {
            Entry::Occupied(known) => {
                if let Some((_, count)) = self.points.get_mut(*known.get()) {
                    *count += 1;
                }
            }
            Entry::Vacant(new) => {
                self.points.push((new.key().clone(), 1));
                new.insert(next);
            }
        }
    }
}

impl<'s> Counter<'s> {
    pub(super) fn new(section: &'s Section) -> Self {
        Counter {
            section,
            counts: section.metrics.iter().map(|_| Counts::default()).collect(),
            known: Default::default(),
            deepest: Depth::Resource,
        }
    }

    /// Another resource, scope or item is at hand, at that depth; what is counted from now on is in it.
    pub(super) fn enter(&mut self, depth: Depth, here: &Here<'_>) {
        let at = depth as usize;
        let before = at.checked_sub(1).and_then(|above| self.known.get(above));
        let within = match before {
            Some(before) => self.section.within(before, depth, here),
            None => self.section.within(&self.section.unknown(), depth, here),
        };
        if let Some(known) = self.known.get_mut(at) {
            *known = within;
            self.deepest = depth;
        }
    }

    /// Whether there is nothing to ask it for.
    pub(super) fn is_idle(&self) -> bool {
        self.section.is_empty()
    }

    /// Counts one, unless there is no room for more.
    pub(super) fn count(&mut self, here: &Here<'_>, room: &mut Room) {
        let metrics = self.section.metrics.iter();
        let known = self.known.get(self.deepest as usize);
        let known = known.map_or(&[][..], Vec::as_slice);
        for ((definition, known), counts) in metrics.zip(known).zip(&mut self.counts) {
            if room.is_left()
                && self.section.applies(known.conditions(definition), here)
                && let Some(key) = self.section.key(definition, known, here, room)
            {
                counts.add(key);
            }
        }
    }

    /// Appends the metrics that counted anything to a `ScopeMetrics`; returns how many data points they have.
    pub(super) fn write(&self, (start, end): (u64, u64), scope: &mut Vec<u8>) -> usize {
        let mut written = 0;
        for (definition, counts) in self.section.metrics.iter().zip(&self.counts) {
            if counts.points.is_empty() {
                continue;
            }
            let point = |(key, count): &(Vec<u8>, u64)| {
                let mut point = NumberDataPoint::decode(key.as_slice()).unwrap_or_default();
                point.start_time_unix_nano = start;
                point.time_unix_nano = end;
                let count = i64::try_from(*count).unwrap_or(i64::MAX);
                point.value = Some(Number::AsInt(count));
                point
            };
            let metric = Metric {
                name: definition.name.clone(),
                description: definition.description.clone(),
                data: Some(metric::Data::Sum(Sum {
                    data_points: counts.points.iter().map(point).collect(),
                    aggregation_temporality: AggregationTemporality::Delta.into(),
                    is_monotonic: true,
                })),
                ..Metric::default()
            };
            written += counts.points.len();
            put_delimited(2, &metric.encode_to_vec(), scope);
        }
        written
    }
}
