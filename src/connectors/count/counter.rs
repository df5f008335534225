//! Counting what is of one kind, and the metrics that come of it.

use std::collections::BTreeMap;
use std::collections::hash_map::{Entry, HashMap};

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
use crate::ottl::path::Context;
use crate::ottl::{Condition, Here, attributes, parse};
use crate::telemetry::sampled_log::SampledLog;
use crate::wire::edit::put_delimited;
use crate::wire::view::{AnyValue, attribute};

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

    fn applies(&self, definition: &Definition, here: &Here<'_>) -> bool {
        definition.conditions.is_empty()
            || definition.conditions.iter().any(|condition| {
                condition.is_true(here).unwrap_or_else(|_| {
                    if let Some(suppressed) = self.log.admit() {
                        tracing::warn!(
                            condition = condition.text,
                            suppressed,
                            "a condition looks for a key in something that has no keys"
                        );
                    }
                    false
                })
            })
    }

    /// The attributes of the data point that counts this, encoded in its field for them; `None` when one is missing.
    fn key(&self, definition: &Definition, here: &Here<'_>) -> Option<Vec<u8>> {
        let mut encoded = Vec::new();
        for (key, default) in &definition.attributes {
            let contexts = [self.context, Context::Scope, Context::Resource].into_iter();
            let found = contexts
                .filter_map(|context| attribute(attributes(context, here), key))
                .next();
            let value = match found {
                Some(AnyValue::Int(value)) => Value::IntValue(value),
                Some(AnyValue::Double(value)) => Value::DoubleValue(value),
                Some(other) => Value::StringValue(other.to_text().into_owned()),
                None => default.clone()?,
            };
            let pair = KeyValue {
                key: key.clone(),
                value: Some(common::AnyValue { value: Some(value) }),
                key_strindex: 0,
            };
            put_delimited(POINT_ATTRIBUTES, &pair.encode_to_vec(), &mut encoded);
        }
        Some(encoded)
    }
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
        }
    }

    /// Whether there is nothing to ask it for.
    pub(super) fn is_idle(&self) -> bool {
        self.section.is_empty()
    }

    /// Counts one.
    pub(super) fn count(&mut self, here: &Here<'_>) {
        for (definition, counts) in self.section.metrics.iter().zip(&mut self.counts) {
            if self.section.applies(definition, here)
                && let Some(key) = self.section.key(definition, here)
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
