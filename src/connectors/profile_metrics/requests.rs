//! How many requests services served, by their spans or by their own counters.

use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;

use super::subject::service;
use crate::batch::Signal;
use crate::wire::edit::put_delimited;
use crate::wire::view::{Attributes, Data, Metric, Number, Request, ResourceEntry, Span};

/// What one resource says of its requests.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) service: Vec<u8>,
    /// Spans that serve a request or a message.
    pub(super) spans: u64,
    /// Counters of requests.
    pub(super) counters: Vec<Counter>,
}

/// A data point of a counter.
#[derive(Debug)]
pub(super) struct Counter {
    /// For one that counts from a start: what it goes on from, equal for the point before it.
    pub(super) series: Option<Vec<u8>>,
    /// Since when it counts, in nanoseconds since 1970; 0 when not known.
    pub(super) start: u64,
    pub(super) value: f64,
}

/// `SPAN_KIND_SERVER` and `SPAN_KIND_CONSUMER`.
const SERVING: [i32; 2] = [2, 5];

/// `AGGREGATION_TEMPORALITY_DELTA` and `AGGREGATION_TEMPORALITY_CUMULATIVE`.
const DELTA: i32 = 1;
const CUMULATIVE: i32 = 2;

/// What is in a valid request of traces or metrics. `names` are the metrics that count requests.
pub(super) fn served(signal: Signal, request: &[u8], names: &[String]) -> Vec<Served> {
    let mut all = Vec::new();
    for entry in Request::new(request).resources() {
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
                    let named = |metric: &Metric<'_>| {
                        let name = metric.name();
                        names.iter().any(|known| known == name)
                    };
                    for metric in scope.metrics().filter(named) {
                        counters(&entry, &metric, &mut served.counters);
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

fn counters(entry: &ResourceEntry<'_>, metric: &Metric<'_>, into: &mut Vec<Counter>) {
    let mut add = |temporality: i32, start: u64, value: f64, attributes: Vec<u8>| {
        let series = || {
            let mut key = Vec::new();
            let resource = entry.resource();
            let resource = resource.map_or(&[][..], |resource| resource.message().encoded());
            put_delimited(5, resource, &mut key);
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
            start,
            value,
        });
    };
    match metric.data() {
        Some(Data::Sum {
            points,
            temporality,
            monotonic: true,
        }) => {
            for point in points {
                let value = match point.value() {
                    Some(Number::Int(value)) => value as f64,
                    Some(Number::Double(value)) if value.is_finite() => value,
                    _ => continue,
                };
                let start = point.start_time_unix_nano();
                add(temporality, start, value, encoded(point.attributes()));
            }
        }
        Some(Data::Histogram {
            points,
            temporality,
        }) => {
            for point in points {
                let start = point.start_time_unix_nano();
                add(
                    temporality,
                    start,
                    point.count() as f64,
                    encoded(point.attributes()),
                );
            }
        }
        Some(Data::ExponentialHistogram {
            points,
            temporality,
        }) => {
            for point in points {
                let start = point.start_time_unix_nano();
                let attributes = encoded(point.attributes());
                add(temporality, start, point.count() as f64, attributes);
            }
        }
        _ => {}
    }
}

/// The attributes of a point, one behind the other.
fn encoded(attributes: Attributes<'_>) -> Vec<u8> {
    let mut encoded = Vec::new();
    for attribute in attributes {
        put_delimited(7, attribute.message().encoded(), &mut encoded);
    }
    encoded
}
