//! Rebuilds requests from views. Also used by the fuzz targets.

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1 as common;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::logs::v1 as logs;
use opentelemetry_proto::tonic::metrics::v1 as metrics;
use opentelemetry_proto::tonic::resource::v1 as resource;
use opentelemetry_proto::tonic::trace::v1 as trace;
use tributary_otlp::view;
use tributary_otlp::{Decoded, Signal};

use crate::oracle;

/// Asserts that views read like prost, and that admission keeps the meaning.
pub(crate) fn reads_like_prost(signal: Signal, request: Bytes) {
    let expected = Decoded::decode(signal, &request).unwrap();
    let (items, admitted) = admit(signal, request);
    assert_eq!(items, oracle::items(&expected));
    let expected = format!("{expected:?}");
    let decoded = Decoded::decode(signal, &admitted).unwrap();
    assert_eq!(format!("{decoded:?}"), expected);
    if let Some(read) = rebuild(signal, &admitted) {
        assert_eq!(format!("{read:?}"), expected);
    }
}

/// Checks a request and merges repeated messages, as receivers do.
fn admit(signal: Signal, request: Bytes) -> (usize, Bytes) {
    let checked = tributary_otlp::check(signal, &request).unwrap();
    if !checked.repeats_single {
        return (checked.items, request);
    }
    let merged = tributary_otlp::merge_repeated(signal, &request).unwrap();
    assert!(
        !tributary_otlp::check(signal, &merged)
            .unwrap()
            .repeats_single
    );
    (checked.items, merged)
}

/// Rebuilds the request from its views; `None` for profiles, which have no views.
fn rebuild(signal: Signal, request: &[u8]) -> Option<Decoded> {
    let resources = view::Request::new(request).resources();
    macro_rules! rebuild {
        ($entry:path, $scopes:ident, $scope:path, $entries:ident, $views:ident, $one:ident) => {
            resources
                .map(|entry| {
                    use $entry as Entry;
                    use $scope as Scope;
                    Entry {
                        resource: entry.resource().map(resource),
                        $scopes: entry
                            .scopes()
                            .map(|inner| Scope {
                                scope: inner.scope().map(scope),
                                $entries: inner.$views().map($one).collect(),
                                schema_url: inner.schema_url().to_owned(),
                            })
                            .collect(),
                        schema_url: entry.schema_url().to_owned(),
                    }
                })
                .collect()
        };
    }
    Some(match signal {
        Signal::Traces => Decoded::Traces(ExportTraceServiceRequest {
            resource_spans: rebuild!(
                trace::ResourceSpans,
                scope_spans,
                trace::ScopeSpans,
                spans,
                spans,
                span
            ),
        }),
        Signal::Logs => Decoded::Logs(ExportLogsServiceRequest {
            resource_logs: rebuild!(
                logs::ResourceLogs,
                scope_logs,
                logs::ScopeLogs,
                log_records,
                log_records,
                log_record
            ),
        }),
        Signal::Metrics => Decoded::Metrics(ExportMetricsServiceRequest {
            resource_metrics: rebuild!(
                metrics::ResourceMetrics,
                scope_metrics,
                metrics::ScopeMetrics,
                metrics,
                metrics,
                metric
            ),
        }),
        Signal::Profiles => return None,
    })
}

fn resource(view: view::Resource<'_>) -> resource::Resource {
    resource::Resource {
        attributes: attributes(view.attributes()),
        dropped_attributes_count: view.dropped_attributes_count(),
        entity_refs: view
            .entity_refs()
            .map(|entity| common::EntityRef {
                schema_url: entity.schema_url().to_owned(),
                r#type: entity.kind().to_owned(),
                id_keys: entity.id_keys().map(str::to_owned).collect(),
                description_keys: entity.description_keys().map(str::to_owned).collect(),
            })
            .collect(),
    }
}

fn scope(view: view::Scope<'_>) -> common::InstrumentationScope {
    common::InstrumentationScope {
        name: view.name().to_owned(),
        version: view.version().to_owned(),
        attributes: attributes(view.attributes()),
        dropped_attributes_count: view.dropped_attributes_count(),
    }
}

fn attributes(views: view::Attributes<'_>) -> Vec<common::KeyValue> {
    views
        .map(|view| common::KeyValue {
            key: view.key().to_owned(),
            value: view.value().map(any_value),
            key_strindex: view.key_strindex(),
        })
        .collect()
}

fn any_value(view: view::AnyValue<'_>) -> common::AnyValue {
    common::AnyValue {
        value: match view {
            view::AnyValue::Empty => None,
            view::AnyValue::String(text) => Some(Value::StringValue(text.to_owned())),
            view::AnyValue::Bool(value) => Some(Value::BoolValue(value)),
            view::AnyValue::Int(value) => Some(Value::IntValue(value)),
            view::AnyValue::Double(value) => Some(Value::DoubleValue(value)),
            view::AnyValue::Array(values) => Some(Value::ArrayValue(common::ArrayValue {
                values: values.map(any_value).collect(),
            })),
            view::AnyValue::Map(values) => Some(Value::KvlistValue(common::KeyValueList {
                values: attributes(values),
            })),
            view::AnyValue::Bytes(bytes) => Some(Value::BytesValue(bytes.to_vec())),
            view::AnyValue::StringIndex(index) => Some(Value::StringValueStrindex(index)),
        },
    }
}

fn span(view: view::Span<'_>) -> trace::Span {
    trace::Span {
        trace_id: view.trace_id().to_vec(),
        span_id: view.span_id().to_vec(),
        trace_state: view.trace_state().to_owned(),
        parent_span_id: view.parent_span_id().to_vec(),
        flags: view.flags(),
        name: view.name().to_owned(),
        kind: view.kind(),
        start_time_unix_nano: view.start_time_unix_nano(),
        end_time_unix_nano: view.end_time_unix_nano(),
        attributes: attributes(view.attributes()),
        dropped_attributes_count: view.dropped_attributes_count(),
        events: view
            .events()
            .map(|event| trace::span::Event {
                time_unix_nano: event.time_unix_nano(),
                name: event.name().to_owned(),
                attributes: attributes(event.attributes()),
                dropped_attributes_count: event.dropped_attributes_count(),
            })
            .collect(),
        dropped_events_count: view.dropped_events_count(),
        links: view
            .links()
            .map(|link| trace::span::Link {
                trace_id: link.trace_id().to_vec(),
                span_id: link.span_id().to_vec(),
                trace_state: link.trace_state().to_owned(),
                attributes: attributes(link.attributes()),
                dropped_attributes_count: link.dropped_attributes_count(),
                flags: link.flags(),
            })
            .collect(),
        dropped_links_count: view.dropped_links_count(),
        status: view.status().map(|status| trace::Status {
            message: status.text().to_owned(),
            code: status.code(),
        }),
    }
}

fn log_record(view: view::LogRecord<'_>) -> logs::LogRecord {
    logs::LogRecord {
        time_unix_nano: view.time_unix_nano(),
        observed_time_unix_nano: view.observed_time_unix_nano(),
        severity_number: view.severity_number(),
        severity_text: view.severity_text().to_owned(),
        body: view.body().map(any_value),
        attributes: attributes(view.attributes()),
        dropped_attributes_count: view.dropped_attributes_count(),
        flags: view.flags(),
        trace_id: view.trace_id().to_vec(),
        span_id: view.span_id().to_vec(),
        event_name: view.event_name().to_owned(),
    }
}

fn metric(view: view::Metric<'_>) -> metrics::Metric {
    use metrics::metric::Data;
    metrics::Metric {
        name: view.name().to_owned(),
        description: view.description().to_owned(),
        unit: view.unit().to_owned(),
        metadata: attributes(view.metadata()),
        data: view.data().map(|data| match data {
            view::Data::Gauge { points } => Data::Gauge(metrics::Gauge {
                data_points: points.map(number_point).collect(),
            }),
            view::Data::Sum {
                points,
                temporality,
                monotonic,
            } => Data::Sum(metrics::Sum {
                data_points: points.map(number_point).collect(),
                aggregation_temporality: temporality,
                is_monotonic: monotonic,
            }),
            view::Data::Histogram {
                points,
                temporality,
            } => Data::Histogram(metrics::Histogram {
                data_points: points.map(histogram_point).collect(),
                aggregation_temporality: temporality,
            }),
            view::Data::ExponentialHistogram {
                points,
                temporality,
            } => Data::ExponentialHistogram(metrics::ExponentialHistogram {
                data_points: points.map(exponential_point).collect(),
                aggregation_temporality: temporality,
            }),
            view::Data::Summary { points } => Data::Summary(metrics::Summary {
                data_points: points.map(summary_point).collect(),
            }),
        }),
    }
}

fn number_point(view: view::NumberPoint<'_>) -> metrics::NumberDataPoint {
    use metrics::number_data_point::Value;
    metrics::NumberDataPoint {
        attributes: attributes(view.attributes()),
        start_time_unix_nano: view.start_time_unix_nano(),
        time_unix_nano: view.time_unix_nano(),
        exemplars: view.exemplars().map(exemplar).collect(),
        flags: view.flags(),
        value: view.value().map(|value| match value {
            view::Number::Double(value) => Value::AsDouble(value),
            view::Number::Int(value) => Value::AsInt(value),
        }),
    }
}

fn histogram_point(view: view::HistogramPoint<'_>) -> metrics::HistogramDataPoint {
    metrics::HistogramDataPoint {
        attributes: attributes(view.attributes()),
        start_time_unix_nano: view.start_time_unix_nano(),
        time_unix_nano: view.time_unix_nano(),
        count: view.count(),
        sum: view.sum(),
        bucket_counts: view.bucket_counts().collect(),
        explicit_bounds: view.explicit_bounds().collect(),
        exemplars: view.exemplars().map(exemplar).collect(),
        flags: view.flags(),
        min: view.min(),
        max: view.max(),
    }
}

fn exponential_point(
    view: view::ExponentialHistogramPoint<'_>,
) -> metrics::ExponentialHistogramDataPoint {
    let buckets = |buckets: view::Buckets<'_>| metrics::exponential_histogram_data_point::Buckets {
        offset: buckets.offset(),
        bucket_counts: buckets.bucket_counts().collect(),
    };
    metrics::ExponentialHistogramDataPoint {
        attributes: attributes(view.attributes()),
        start_time_unix_nano: view.start_time_unix_nano(),
        time_unix_nano: view.time_unix_nano(),
        count: view.count(),
        sum: view.sum(),
        scale: view.scale(),
        zero_count: view.zero_count(),
        positive: view.positive().map(buckets),
        negative: view.negative().map(buckets),
        flags: view.flags(),
        exemplars: view.exemplars().map(exemplar).collect(),
        min: view.min(),
        max: view.max(),
        zero_threshold: view.zero_threshold(),
    }
}

fn summary_point(view: view::SummaryPoint<'_>) -> metrics::SummaryDataPoint {
    metrics::SummaryDataPoint {
        attributes: attributes(view.attributes()),
        start_time_unix_nano: view.start_time_unix_nano(),
        time_unix_nano: view.time_unix_nano(),
        count: view.count(),
        sum: view.sum(),
        quantile_values: view
            .quantile_values()
            .map(|quantile| metrics::summary_data_point::ValueAtQuantile {
                quantile: quantile.quantile(),
                value: quantile.value(),
            })
            .collect(),
        flags: view.flags(),
    }
}

fn exemplar(view: view::Exemplar<'_>) -> metrics::Exemplar {
    use metrics::exemplar::Value;
    metrics::Exemplar {
        filtered_attributes: attributes(view.filtered_attributes()),
        time_unix_nano: view.time_unix_nano(),
        span_id: view.span_id().to_vec(),
        trace_id: view.trace_id().to_vec(),
        value: view.value().map(|value| match value {
            view::Number::Double(value) => Value::AsDouble(value),
            view::Number::Int(value) => Value::AsInt(value),
        }),
    }
}
