//! Counts the items of one kind and writes the resulting metrics.

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
use tributary_ottl::{Condition, EvaluationTarget, attributes, parse, within};

/// Metrics of one section of the configuration.
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

    /// Whether the section has no metrics.
    pub(super) fn is_empty(&self) -> bool {
        self.metrics.is_empty()
    }

    /// Returns the initial state, without shared results.
    fn unknown(&self) -> Vec<Known> {
        let known = |definition: &Definition| Known {
            conditions: None,
            attributes: vec![None; definition.attributes.len()],
        };
        self.metrics.iter().map(known).collect()
    }

    /// Returns the shared results within the current resource or scope, based on those of the
    /// surrounding level.
    fn within(&self, before: &[Known], depth: Depth, here: &EvaluationTarget<'_>) -> Vec<Known> {
        let context = match depth {
            Depth::Resource => Some(Context::Resource),
            Depth::Scope => Some(Context::Scope),
            // An item has none of the attributes that this counter groups by.
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

    fn applies(&self, conditions: &[Condition], here: &EvaluationTarget<'_>) -> bool {
        conditions.is_empty()
            || conditions.iter().any(|condition| {
                condition.is_true(here).unwrap_or_else(|undecided| {
                    if let Some(suppressed) = self.log.admit() {
                        tracing::warn!(
                            condition = &*condition.text,
                            suppressed,
                            "a condition {undecided}"
                        );
                    }
                    false
                })
            })
    }

    /// Returns the encoded attributes of the data point; `None` if one is missing. Attributes of
    /// the resource or scope are charged to `room`.
    fn key(
        &self,
        definition: &Definition,
        known: &Known,
        here: &EvaluationTarget<'_>,
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

/// Results for a metric within a resource or a scope, shared by all items in it.
#[derive(Debug)]
struct Known {
    /// Remaining conditions after evaluation; `None` for the metric's own conditions.
    conditions: Option<Vec<Condition>>,
    /// Encoded attributes, by the index of their keys.
    attributes: Vec<Option<Arc<[u8]>>>,
}

impl Known {
    fn conditions<'k>(&'k self, definition: &'k Definition) -> &'k [Condition] {
        self.conditions.as_deref().unwrap_or(&definition.conditions)
    }
}

/// Maximum bytes of resource and scope attributes to copy into data points. A request contains each
/// of them only once.
#[derive(Debug)]
pub(super) struct Room(usize);

/// Limit for any request, and for each of its bytes: a small log record has 40 bytes, and ten
/// metrics may group it by names of services and hosts.
const ROOM: usize = 16 << 20;
const ROOM_PER_BYTE: usize = 32;

impl Room {
    /// Returns the limit for a request of this size in bytes.
    pub(super) fn new(request: usize) -> Self {
        Room(request.saturating_mul(ROOM_PER_BYTE).saturating_add(ROOM))
    }

    /// Whether the limit has not been exceeded.
    pub(super) fn is_left(&self) -> bool {
        self.0 > 0
    }

    fn take(&mut self, bytes: usize) {
        self.0 = self.0.saturating_sub(bytes);
    }
}

/// Converts an attribute to the value of a data point.
fn of_point(found: AnyValue<'_>) -> Value {
    match found {
        AnyValue::Int(value) => Value::IntValue(value),
        AnyValue::Double(value) => Value::DoubleValue(value),
        other => Value::StringValue(other.to_text().into_owned()),
    }
}

/// Encodes an attribute in the field of a data point.
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

/// Field number of a data point's attributes.
const POINT_ATTRIBUTES: u32 = 7;

/// Returns the value of a setting. As in the Collector, the empty text and 0 mean no value.
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

/// Counts of one section for one resource.
#[derive(Debug)]
pub(super) struct Counter<'s> {
    section: &'s Section,
    /// One for each metric of the section.
    counts: Vec<Counts>,
    /// Shared results for the resource, the scope, and the item that contains the counted element.
    known: [Vec<Known>; 3],
    deepest: Depth,
}

#[derive(Debug, Default)]
struct Counts {
    /// Encoded attributes with their counts, in order of arrival.
    points: Vec<(Vec<u8>, u64)>,
    places: HashMap<Vec<u8>, usize, RandomState>,
}

impl Counts {
    fn add(&mut self, key: Vec<u8>) {
        // Without attributes, there is only one data point.
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

    /// Enters another resource, scope or item at this depth; the following items belong to it.
    pub(super) fn enter(&mut self, depth: Depth, here: &EvaluationTarget<'_>) {
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

    /// Whether there is nothing to count.
    pub(super) fn is_idle(&self) -> bool {
        self.section.is_empty()
    }

    /// Counts an item, unless the limit is exceeded.
    pub(super) fn count(&mut self, here: &EvaluationTarget<'_>, room: &mut Room) {
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

    /// Appends the metrics with counts to a `ScopeMetrics`; returns the number of their data
    /// points.
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
