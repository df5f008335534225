//! Tests of points in requests and samples on the page.

use std::time::Duration;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as AnyValue;
use opentelemetry_proto::tonic::common::v1::{AnyValue as Any, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::exponential_histogram_data_point::Buckets;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::metrics::v1::summary_data_point::ValueAtQuantile;
use opentelemetry_proto::tonic::metrics::v1::{
    Exemplar, ExponentialHistogram, ExponentialHistogramDataPoint, Gauge, Histogram,
    HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum, Summary,
    SummaryDataPoint, exemplar,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;

use super::negotiate::Format;
use super::testing::{Sample, read};
use super::*;
use crate::testing::{Recorded, context};
use tributary_otlp::Signal;

mod any;
mod native;
mod rules;

fn table(config: Config) -> Arc<Table> {
    Arc::new(Table::new(&config, &context("prometheus")))
}

fn page(table: &Arc<Table>, accept: &str) -> Vec<u8> {
    let mut headers = http::HeaderMap::new();
    headers.insert(http::header::ACCEPT, accept.parse().unwrap());
    let format = Format::negotiate(&headers, true);
    let timestamps = accept.contains("timestamps");
    let mut page = page::Page::new(table.clone(), format, timestamps, false);
    let mut whole = Vec::new();
    while let Some(chunk) = page.chunk() {
        whole.extend_from_slice(&chunk);
    }
    whole
}

fn text(table: &Arc<Table>) -> String {
    String::from_utf8(page(table, TEXT)).unwrap()
}

fn open_metrics(table: &Arc<Table>) -> String {
    String::from_utf8(page(table, OPEN_METRICS)).unwrap()
}

/// Returns the value of the line that begins with a text.
fn value(table: &Arc<Table>, line: &str) -> Option<String> {
    let text = text(table);
    let line = text.lines().find_map(|found| found.strip_prefix(line))?;
    line.strip_prefix(' ').map(str::to_owned)
}

const TEXT: &str = "text/plain;version=0.0.4";
const OPEN_METRICS: &str = "application/openmetrics-text;version=1.0.0";
const PROTOBUF: &str =
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";

fn text_value(value: &str) -> Option<Any> {
    Some(Any {
        value: Some(AnyValue::StringValue(value.to_owned())),
    })
}

fn attributes(pairs: &[(&str, &str)]) -> Vec<KeyValue> {
    let pair = |(key, value): &(&str, &str)| KeyValue {
        key: (*key).to_owned(),
        value: text_value(value),
        ..KeyValue::default()
    };
    pairs.iter().map(pair).collect()
}

fn metric(name: &str, unit: &str, data: Data) -> Metric {
    Metric {
        name: name.to_owned(),
        description: format!("What {name} is"),
        unit: unit.to_owned(),
        data: Some(data),
        ..Metric::default()
    }
}

fn point(pairs: &[(&str, &str)], time: u64, value: f64) -> NumberDataPoint {
    NumberDataPoint {
        attributes: attributes(pairs),
        start_time_unix_nano: 1,
        time_unix_nano: time,
        value: Some(Number::AsDouble(value)),
        ..NumberDataPoint::default()
    }
}

fn gauge(name: &str, points: Vec<NumberDataPoint>) -> Metric {
    metric(
        name,
        "",
        Data::Gauge(Gauge {
            data_points: points,
        }),
    )
}

fn sum(name: &str, temporality: i32, points: Vec<NumberDataPoint>) -> Metric {
    let data = Sum {
        data_points: points,
        aggregation_temporality: temporality,
        is_monotonic: true,
    };
    metric(name, "", Data::Sum(data))
}

/// A request of one resource with a name and an instance.
fn request(metrics: Vec<Metric>) -> Vec<u8> {
    let resource = [("service.name", "shop"), ("service.instance.id", "a")];
    from(&resource, "", metrics)
}

fn from(resource: &[(&str, &str)], scope: &str, metrics: Vec<Metric>) -> Vec<u8> {
    let request = ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(Resource {
                attributes: attributes(resource),
                ..Resource::default()
            }),
            scope_metrics: vec![ScopeMetrics {
                scope: Some(InstrumentationScope {
                    name: scope.to_owned(),
                    ..InstrumentationScope::default()
                }),
                metrics,
                ..ScopeMetrics::default()
            }],
            ..ResourceMetrics::default()
        }],
    };
    request.encode_to_vec()
}

/// Accepts a request without rejected points.
#[track_caller]
fn take(table: &Arc<Table>, request: &[u8]) {
    assert_eq!(table.take(request).total(), 0);
}

/// Returns the number of points rejected for that reason; checks that no other points were
/// rejected.
#[track_caller]
fn rejected(table: &Arc<Table>, request: &[u8], why: Rejection) -> usize {
    let rejected = table.take(request);
    assert_eq!(rejected.total(), rejected.0[why as usize], "{rejected:?}");
    rejected.total()
}

const DELTA: i32 = 1;
const CUMULATIVE: i32 = 2;
