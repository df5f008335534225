//! Number of requests that services served, from spans or from the services' own counters.

use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;

use super::subject::service;
use tributary_otlp::Signal;
use tributary_otlp::edit::put_delimited;
use tributary_otlp::view::{
    Attributes, Data, Metric, Number, Request, ResourceEntry, ScopeEntry, Span,
};

/// Served requests of one resource.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) service: Vec<u8>,
    /// Spans that serve a request or a message.
    pub(super) spans: u64,
    pub(super) counters: Vec<Counter>,
}

/// A data point of a counter.
#[derive(Debug)]
pub(super) struct Counter {
    /// For a cumulative series: the start time, which is equal for consecutive points.
    pub(super) series: Option<Vec<u8>>,
    /// Start of the count, in nanoseconds since 1970; 0 if unknown.
    pub(super) start: u64,
    /// End of the count, in nanoseconds since 1970; 0 if unknown.
    pub(super) time: u64,
    pub(super) value: f64,
}

/// `SPAN_KIND_SERVER` and `SPAN_KIND_CONSUMER`.
const SERVING: [i32; 2] = [2, 5];

/// `DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK`: the series has ended, and the value has no meaning.
const NO_RECORDED_VALUE: u32 = 1;

/// Metrics of the semantic conventions, each with the metric that it replaced. Services in transition
/// (`OTEL_SEMCONV_STABILITY_OPT_IN=http/dup`) send both for the same requests.
const REPLACED: [(&str, &str); 2] = [
    ("http.server.request.duration", "http.server.duration"),
    ("rpc.server.call.duration", "rpc.server.duration"),
];

/// `AGGREGATION_TEMPORALITY_DELTA` and `AGGREGATION_TEMPORALITY_CUMULATIVE`.
const DELTA: i32 = 1;
const CUMULATIVE: i32 = 2;

/// Reads a valid request of traces or metrics. `names` are the metrics that count requests.
pub(super) fn served(signal: Signal, request: &[u8], names: &[String]) -> Vec<Served> {
    let mut all = Vec::new();
    for entry in Request::new(request).resources() {
        let names = match signal {
            Signal::Metrics => once_each(&entry, names),
            _ => Vec::new(),
        };
        let mut served = Served {
            service: Vec::new(),
            spans: 0,
            counters: Vec::new(),
        };
        for scope in entry.scopes() {
            match signal {
                Signal::Traces => {
                    let serving = |span: &Span<'_>| SERVING.contains(&span.kind());
                    served.spans += scope.spans().filter(serving).count() as u64;
                }
                _ => {
                    let named = |metric: &Metric<'_>| names.contains(&metric.name());
                    for metric in scope.metrics().filter(named) {
                        counters(&entry, &scope, &metric, &mut served.counters);
                    }
                }
            }
        }
        if served.spans > 0 || !served.counters.is_empty() {
            let resource = entry.resource();
            let resource =
                resource.and_then(|found| Resource::decode(found.message().encoded()).ok());
            served.service = service(resource.as_ref());
            all.push(served);
        }
    }
    all
}

/// Returns the metrics that count each request of a resource once.
fn once_each<'n>(entry: &ResourceEntry<'_>, names: &'n [String]) -> Vec<&'n str> {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let is_there = |name: &str| {
        let mut scopes = entry.scopes();
        names.contains(&name)
            && scopes.any(|scope| scope.metrics().any(|metric| metric.name() == name))
    };
    let replaced = REPLACED.iter().filter(|(new, _)| is_there(new));
    let replaced: Vec<&str> = replaced.map(|(_, old)| *old).collect();
    let mut once = names.clone();
    once.retain(|name| !replaced.contains(name));
    once
}

fn counters(
    entry: &ResourceEntry<'_>,
    scope: &ScopeEntry<'_>,
    metric: &Metric<'_>,
    into: &mut Vec<Counter>,
) {
    let mut add = |temporality: i32, times: (u64, u64), value: f64, attributes: Vec<u8>| {
        let series = || {
            let mut key = Vec::new();
            let resource = entry.resource();
            let resource = resource.map_or(&[][..], |resource| resource.message().encoded());
            put_delimited(5, resource, &mut key);
            let itself = scope.scope();
            let itself = itself.map_or(&[][..], |scope| scope.message().encoded());
            put_delimited(8, itself, &mut key);
            put_delimited(9, scope.schema_url().as_bytes(), &mut key);
            put_delimited(6, metric.name().as_bytes(), &mut key);
            key.extend_from_slice(&attributes);
            key
        };
        let series = match temporality {
            DELTA => None,
            CUMULATIVE => Some(series()),
            _ => return,
        };
        into.push(Counter {
            series,
            start: times.0,
            time: times.1,
            value,
        });
    };
    match metric.data() {
        Some(Data::Sum {
            points,
            temporality,
            monotonic: true,
        }) => {
            for point in points.filter(|point| is_value(point.flags())) {
                let value = match point.value() {
                    Some(Number::Int(value)) => value as f64,
                    Some(Number::Double(value)) if value.is_finite() => value,
                    _ => continue,
                };
                let times = (point.start_time_unix_nano(), point.time_unix_nano());
                add(temporality, times, value, encoded(point.attributes()));
            }
        }
        Some(Data::Histogram {
            points,
            temporality,
        }) => {
            for point in points.filter(|point| is_value(point.flags())) {
                let times = (point.start_time_unix_nano(), point.time_unix_nano());
                let attributes = encoded(point.attributes());
                add(temporality, times, point.count() as f64, attributes);
            }
        }
        Some(Data::ExponentialHistogram {
            points,
            temporality,
        }) => {
            for point in points.filter(|point| is_value(point.flags())) {
                let times = (point.start_time_unix_nano(), point.time_unix_nano());
                let attributes = encoded(point.attributes());
                add(temporality, times, point.count() as f64, attributes);
            }
        }
        _ => {}
    }
}

fn is_value(flags: u32) -> bool {
    flags & NO_RECORDED_VALUE == 0
}

fn encoded(attributes: Attributes<'_>) -> Vec<u8> {
    let mut encoded = Vec::new();
    for attribute in attributes {
        put_delimited(7, attribute.message().encoded(), &mut encoded);
    }
    encoded
}
