//! `aggregate_on_attributes`: keeps some attributes of the data points, and merges the points that become alike
//! (contrib, `internal/coreinternal/aggregateutil`). Gauges, sums and histograms are supported.

use std::collections::HashMap;

use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, HistogramDataPoint, NumberDataPoint, Sum,
};
use prost::Message as _;

use super::{changed, metric};
use crate::editors::{Editing, Effect};
use crate::functions::Literals;
use crate::value::Undecided;

pub(super) fn function_is_known(literals: &Literals<'_>) -> Result<(), String> {
    match literals.text(0) {
        Some("sum" | "mean" | "min" | "max" | "median" | "count") | None => Ok(()),
        Some(other) => Err(format!(
            "the aggregation function `{other}` is not sum, mean, min, max, median or count"
        )),
    }
}

pub(super) fn aggregate(editing: &mut Editing<'_, '_>) -> Result<Effect, Undecided> {
    let mut metric = metric(editing)?;
    let keys = match editing.arguments.get(1) {
        None => None,
        Some(_) => {
            let keys = editing.arguments.list(1)?;
            let keys = keys.iter().map(|key| key.plain_text().map(str::to_owned));
            Some(keys.collect::<Result<Vec<String>, _>>()?)
        }
    };
    let function = editing.arguments.text(0)?;
    let is_kept = |attribute: &KeyValue| {
        keys.as_ref()
            .is_none_or(|keys| keys.contains(&attribute.key))
    };
    match &mut metric.data {
        Some(Data::Gauge(Gauge { data_points })) => {
            numbers(data_points, function, false, is_kept);
        }
        Some(Data::Sum(Sum {
            data_points,
            aggregation_temporality,
            ..
        })) => {
            let by_start = is_delta(*aggregation_temporality);
            numbers(data_points, function, by_start, is_kept);
        }
        Some(Data::Histogram(histogram)) => {
            let by_start = is_delta(histogram.aggregation_temporality);
            histograms(&mut histogram.data_points, by_start, is_kept);
        }
        Some(Data::ExponentialHistogram(histogram)) => {
            let mut identities = std::collections::HashSet::new();
            for point in &mut histogram.data_points {
                point.attributes.retain(&is_kept);
                let identity = (identity(&point.attributes), point.time_unix_nano);
                if !identities.insert(identity) {
                    return Err(Undecided::Because(
                        "aggregate_on_attributes does not merge exponential histograms",
                    ));
                }
            }
        }
        Some(Data::Summary(_)) => {
            return Err(Undecided::Because(
                "aggregate_on_attributes does not support summaries",
            ));
        }
        None => {}
    }
    changed(editing, &metric)
}

fn is_delta(temporality: i32) -> bool {
    temporality == AggregationTemporality::Delta as i32
}

/// Returns the identity of a set of attributes, which does not depend on their order.
fn identity(attributes: &[KeyValue]) -> Vec<u8> {
    let mut encoded: Vec<Vec<u8>> = attributes.iter().map(KeyValue::encode_to_vec).collect();
    encoded.sort();
    encoded
        .iter()
        .flat_map(|attribute| {
            let length = (attribute.len() as u64).to_le_bytes();
            length.into_iter().chain(attribute.iter().copied())
        })
        .collect()
}

/// Groups data points by a key, in the order of the first point of each group.
fn grouped<P, K: std::hash::Hash + Eq>(points: Vec<P>, key: impl Fn(&P) -> K) -> Vec<Vec<P>> {
    let mut positions = HashMap::new();
    let mut groups: Vec<Vec<P>> = Vec::new();
    for point in points {
        let at = *positions.entry(key(&point)).or_insert(groups.len());
        match groups.get_mut(at) {
            Some(group) => group.push(point),
            None => groups.push(vec![point]),
        }
    }
    groups
}

fn numbers(
    points: &mut Vec<NumberDataPoint>,
    function: &str,
    by_start: bool,
    is_kept: impl Fn(&KeyValue) -> bool,
) {
    for point in points.iter_mut() {
        point.attributes.retain(&is_kept);
    }
    let groups = grouped(std::mem::take(points), |point| {
        let start = by_start.then_some(point.start_time_unix_nano);
        (identity(&point.attributes), point.time_unix_nano, start)
    });
    points.extend(
        groups
            .into_iter()
            .filter_map(|group| merged(group, function)),
    );
}

fn double(point: &NumberDataPoint) -> f64 {
    match point.value {
        Some(Value::AsDouble(value)) => value,
        Some(Value::AsInt(value)) => value as f64,
        None => 0.0,
    }
}

#[allow(clippy::cast_possible_truncation)] // As in the Collector.
fn int(point: &NumberDataPoint) -> i64 {
    match point.value {
        Some(Value::AsDouble(value)) => value as i64,
        Some(Value::AsInt(value)) => value,
        None => 0,
    }
}

/// Merges the points of a group. The first one determines the type of the value.
fn merged(group: Vec<NumberDataPoint>, function: &str) -> Option<NumberDataPoint> {
    let mut point = group.first()?.clone();
    let start = group.iter().map(|point| point.start_time_unix_nano).min();
    point.start_time_unix_nano = start.unwrap_or_default();
    let count = group.len();
    point.value = match point.value {
        None => None,
        Some(Value::AsDouble(first)) => {
            let mut values: Vec<f64> = group.iter().map(double).collect();
            Some(Value::AsDouble(match function {
                "sum" => values.iter().sum(),
                "mean" => values.iter().sum::<f64>() / count as f64,
                "min" => values.into_iter().fold(f64::INFINITY, f64::min),
                "max" => values.into_iter().fold(f64::NEG_INFINITY, f64::max),
                // As in the Collector, a single point keeps its value.
                "count" if count == 1 => first,
                "count" => count as f64,
                _ => {
                    values.sort_by(f64::total_cmp);
                    let (low, high) = middle(&values)?;
                    if count.is_multiple_of(2) {
                        (low + high) / 2.0
                    } else {
                        high
                    }
                }
            }))
        }
        Some(Value::AsInt(first)) => {
            let mut values: Vec<i64> = group.iter().map(int).collect();
            let total = || {
                values
                    .iter()
                    .fold(0_i64, |sum, value| sum.wrapping_add(*value))
            };
            let count_of = i64::try_from(count).unwrap_or(i64::MAX);
            Some(Value::AsInt(match function {
                "sum" => total(),
                "mean" => total() / count_of,
                "min" => values.into_iter().min()?,
                "max" => values.into_iter().max()?,
                "count" if count == 1 => first,
                "count" => count_of,
                _ => {
                    values.sort_unstable();
                    let (low, high) = middle(&values)?;
                    if count.is_multiple_of(2) {
                        low.wrapping_add(high) / 2
                    } else {
                        high
                    }
                }
            }))
        }
    };
    Some(point)
}

/// Returns the element before the middle and the one in the middle. They are the same element of a list of one.
fn middle<T: Copy>(sorted: &[T]) -> Option<(T, T)> {
    let high = sorted.len() / 2;
    Some((*sorted.get(high.saturating_sub(1))?, *sorted.get(high)?))
}

fn histograms(
    points: &mut Vec<HistogramDataPoint>,
    by_start: bool,
    is_kept: impl Fn(&KeyValue) -> bool,
) {
    for point in points.iter_mut() {
        point.attributes.retain(&is_kept);
    }
    let groups = grouped(std::mem::take(points), |point| {
        let start = by_start.then_some(point.start_time_unix_nano);
        let bounds = point.explicit_bounds.iter().map(|bound| bound.to_bits());
        let bounds: Vec<u64> = bounds.collect();
        (
            identity(&point.attributes),
            point.time_unix_nano,
            start,
            bounds,
            (point.min.is_some(), point.max.is_some(), point.flags),
        )
    });
    points.extend(groups.into_iter().filter_map(|group| {
        let mut group = group.into_iter();
        let mut merged = group.next()?;
        for other in group.filter(|other| other.count > 0) {
            merged.count = merged.count.wrapping_add(other.count);
            merged.sum = Some(merged.sum.unwrap_or_default() + other.sum.unwrap_or_default());
            merged.min = merged
                .min
                .zip(other.min)
                .map(|(left, right)| left.min(right));
            merged.max = merged
                .max
                .zip(other.max)
                .map(|(left, right)| left.max(right));
            for (count, more) in merged.bucket_counts.iter_mut().zip(&other.bucket_counts) {
                *count = count.wrapping_add(*more);
            }
            merged.exemplars.extend(other.exemplars);
            let start = merged.start_time_unix_nano.min(other.start_time_unix_nano);
            merged.start_time_unix_nano = start;
        }
        Some(merged)
    }));
}
