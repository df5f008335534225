//! Converts a window to a request of metrics.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum,
    metric,
};
use opentelemetry_proto::tonic::resource::v1;
use prost::Message as _;

use super::kinds::{self, METRICS, Quantity};
pub(super) use super::kinds::{FRAMES, HOTNESS, PROFILES, REQUESTS, SAMPLES};
use super::measured::{Function, Values};
use super::window::{Gathered, Resource, Window};
use tributary_profiles::names::PROFILE_NAME;

const SCOPE_NAME: &str = "tributary/connector/profile_metrics";

/// Attribute with the name of a function, from the semantic conventions.
const FUNCTION_NAME: &str = "code.function.name";
/// Attribute with the metric name of the total that a share belongs to.
const METRIC_NAME: &str = "profile.metric.name";
/// Attribute with whether frames have function names.
const SYMBOLIZED: &str = "profile.frame.symbolized";
/// Stands for all functions without their own data points.
const OTHER: &str = "other";

/// Encodes the metrics of a window, with this number of functions for each total.
pub(super) fn request(window: &Window, functions: usize) -> Vec<u8> {
    let writer = Writer {
        start: window.start,
        end: window.end,
        functions,
    };
    let mut resources = Vec::new();
    for (key, resource) in &window.resources {
        resources.push(entry(key, writer.resource(resource)));
    }
    for (key, requests) in &window.requests {
        let served = |resource: &&Resource| resource.service == *key;
        let of_service: Vec<&Resource> = window.resources.values().filter(served).collect();
        resources.push(entry(key, writer.requests(requests.count(), &of_service)));
    }
    ExportMetricsServiceRequest {
        resource_metrics: resources,
    }
    .encode_to_vec()
}

fn entry(resource: &[u8], metrics: Vec<Metric>) -> ResourceMetrics {
    ResourceMetrics {
        // The bytes were encoded by this connector.
        resource: v1::Resource::decode(resource).ok(),
        scope_metrics: vec![ScopeMetrics {
            scope: Some(InstrumentationScope {
                name: SCOPE_NAME.to_owned(),
                ..InstrumentationScope::default()
            }),
            metrics,
            ..ScopeMetrics::default()
        }],
        ..ResourceMetrics::default()
    }
}

struct Writer {
    start: u64,
    end: u64,
    functions: usize,
}

/// Values of one kind, by source.
type Sources<'g> = Vec<(&'g Option<Arc<str>>, Cow<'g, Values>)>;

impl Writer {
    fn resource(&self, resource: &Resource) -> Vec<Metric> {
        let mut metrics = Vec::new();
        let mut hotness = Vec::new();
        for metric in &METRICS {
            let sources = sources(resource, metric.kind);
            if sources.is_empty() {
                continue;
            }
            let mut points = Vec::new();
            let (mut own, mut totals) = (Vec::new(), Vec::new());
            for (source, values) in &sources {
                let labels = labels(source);
                points.push(self.point(labels.clone(), number(metric, values.total)));
                if !metric.of_functions || self.functions == 0 {
                    continue;
                }
                for (name, value) in self.own(values) {
                    let mut labels = labels.clone();
                    labels.push(text(FUNCTION_NAME, name));
                    own.push(self.point(labels.clone(), number(metric, value)));
                    if values.total != 0 {
                        labels.push(text(METRIC_NAME, &format!("profile.{}", metric.name)));
                        let share = value as f64 / values.total as f64;
                        hotness.push(self.point(labels, Number::AsDouble(share)));
                    }
                }
                for (name, value) in self.ranked(values, |function| function.total) {
                    let mut labels = labels.clone();
                    labels.push(text(FUNCTION_NAME, name));
                    totals.push(self.point(labels, number(metric, value)));
                }
            }
            let described = |what: &str| format!("{} {what}", metric.description);
            metrics.push(self.metric(metric, "", metric.description.to_owned(), points));
            let own_words = described("By function, without its callees.");
            let total_words = described("By function, including its callees.");
            for (prefix, words, points) in [
                ("function.self.", own_words, own),
                ("function.inclusive.", total_words, totals),
            ] {
                if !points.is_empty() {
                    metrics.push(self.metric(metric, prefix, words, points));
                }
            }
        }
        if !hotness.is_empty() {
            let words = "Value of a function itself, as a fraction of the total.";
            metrics.push(level(HOTNESS, "1", words, hotness));
        }
        metrics.extend(self.received(resource));
        metrics
    }

    fn received(&self, resource: &Resource) -> Vec<Metric> {
        let received = resource.received;
        let count = |labels, count: u64| self.point(labels, whole(count.into()));
        let one = |of| vec![count(Vec::new(), of)];
        let symbolized = |value| KeyValue {
            key: SYMBOLIZED.to_owned(),
            value: Some(AnyValue {
                value: Some(Value::BoolValue(value)),
            }),
            key_strindex: 0,
        };
        let frames = [(true, received.named), (false, received.unnamed)];
        let frames = frames.map(|(named, frames)| count(vec![symbolized(named)], frames));
        vec![
            self.sum(PROFILES, "{profile}", "Profiles received.", one(received.profiles)),
            self.sum(
                SAMPLES,
                "{sample}",
                "Samples of profiles received.",
                one(received.samples),
            ),
            self.sum(
                FRAMES,
                "{frame}",
                "Frames in the stacks of samples received, by whether they have the name of a function.",
                frames.to_vec(),
            ),
        ]
    }

    /// Returns the number of requests of a service, and the average cost of a request.
    fn requests(&self, requests: f64, resources: &[&Resource]) -> Vec<Metric> {
        let count = self.point(Vec::new(), whole(requests.round() as i128));
        let words = "Requests served, by the service's own counters or by its spans.";
        let mut metrics = vec![self.sum(REQUESTS, "{request}", words, vec![count])];
        if requests <= 0.0 {
            return metrics;
        }
        for metric in METRICS.iter().filter(|metric| metric.per_request) {
            let mut totals: BTreeMap<&Option<Arc<str>>, i128> = BTreeMap::new();
            for resource in resources {
                for (source, values) in sources(resource, metric.kind) {
                    *totals.entry(source).or_default() += values.total;
                }
            }
            let points = totals.into_iter().map(|(source, total)| {
                let each = value(metric, total) / requests;
                self.point(labels(source), Number::AsDouble(each))
            });
            let points: Vec<_> = points.collect();
            if !points.is_empty() {
                let words = format!("{} Per request.", metric.description);
                let name = format!("profile.request.{}", metric.name);
                metrics.push(level(&name, metric.unit, &words, points));
            }
        }
        metrics
    }

    /// Returns the functions with the largest own values, and the rest, so that the sum is the
    /// total.
    fn own<'v>(&self, values: &'v Values) -> Vec<(&'v str, i128)> {
        let mut ranked = self.ranked(values, |function| function.own);
        let rest = values.total - ranked.iter().map(|(_, own)| own).sum::<i128>();
        if rest != 0 {
            ranked.push((OTHER, rest));
        }
        ranked
    }

    /// Returns the functions with the largest values; equal values are ordered by name. A function
    /// called `other` is part of the rest, since two data points must not have the same name.
    fn ranked<'v>(
        &self,
        values: &'v Values,
        by: impl Fn(&Function) -> i128,
    ) -> Vec<(&'v str, i128)> {
        let all = values.functions.iter();
        let mut ranked: Vec<(&str, i128)> = all
            .map(|(name, function)| (&**name, by(function)))
            .filter(|(name, value)| *value != 0 && *name != OTHER)
            .collect();
        let order = |a: &(&str, i128), b: &(&str, i128)| {
            b.1.abs().cmp(&a.1.abs()).then_with(|| a.0.cmp(b.0))
        };
        if ranked.len() > self.functions {
            ranked.select_nth_unstable_by(self.functions, order);
            ranked.truncate(self.functions);
        }
        ranked.sort_unstable_by(order);
        ranked
    }

    fn point(&self, attributes: Vec<KeyValue>, value: Number) -> NumberDataPoint {
        NumberDataPoint {
            attributes,
            start_time_unix_nano: self.start,
            time_unix_nano: self.end,
            value: Some(value),
            ..NumberDataPoint::default()
        }
    }

    fn metric(
        &self,
        metric: &kinds::QuantityMetric,
        prefix: &str,
        description: String,
        points: Vec<NumberDataPoint>,
    ) -> Metric {
        let name = format!("profile.{prefix}{}", metric.name);
        match metric.is_level {
            true => level(&name, metric.unit, &description, points),
            false => self.sum(&name, metric.unit, &description, points),
        }
    }

    fn sum(
        &self,
        name: &str,
        unit: &str,
        description: &str,
        points: Vec<NumberDataPoint>,
    ) -> Metric {
        let sum = Sum {
            data_points: points,
            aggregation_temporality: AggregationTemporality::Delta.into(),
            is_monotonic: true,
        };
        with(name, unit, description, metric::Data::Sum(sum))
    }
}

fn level(name: &str, unit: &str, description: &str, points: Vec<NumberDataPoint>) -> Metric {
    let mut points = points;
    for point in &mut points {
        // A gauge has no start time.
        point.start_time_unix_nano = 0;
    }
    let gauge = Gauge {
        data_points: points,
    };
    with(name, unit, description, metric::Data::Gauge(gauge))
}

fn with(name: &str, unit: &str, description: &str, data: metric::Data) -> Metric {
    Metric {
        name: name.to_owned(),
        unit: unit.to_owned(),
        description: description.to_owned(),
        data: Some(data),
        ..Metric::default()
    }
}

/// Returns the values of a kind; gauges are summed over instances.
fn sources(resource: &Resource, kind: Quantity) -> Sources<'_> {
    let of_kind = resource
        .gathered
        .iter()
        .filter(|((found, _), _)| *found == kind);
    of_kind
        .map(|((_, source), gathered)| {
            let values = match gathered {
                Gathered::Sum(values) => Cow::Borrowed(values),
                Gathered::Levels(levels) => {
                    let mut sum = Values::default();
                    for (_, values) in levels.values() {
                        sum.add(values);
                    }
                    Cow::Owned(sum)
                }
            };
            (source, values)
        })
        .collect()
}

fn labels(source: &Option<Arc<str>>) -> Vec<KeyValue> {
    let source = source.as_deref();
    source
        .map(|name| text(PROFILE_NAME, name))
        .into_iter()
        .collect()
}

fn text(key: &str, value: &str) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue {
            value: Some(Value::StringValue(value.to_owned())),
        }),
        key_strindex: 0,
    }
}

/// Returns a value in the unit of its metric.
fn value(metric: &kinds::QuantityMetric, value: i128) -> f64 {
    match metric.is_time() {
        true => value as f64 / 1e9,
        false => value as f64,
    }
}

/// Times are seconds and need fractions; all other values are integers.
fn number(metric: &kinds::QuantityMetric, of: i128) -> Number {
    match metric.is_time() {
        true => Number::AsDouble(value(metric, of)),
        false => whole(of),
    }
}

fn whole(value: i128) -> Number {
    let cut = value.clamp(i64::MIN.into(), i64::MAX.into());
    Number::AsInt(i64::try_from(cut).unwrap_or_default())
}
