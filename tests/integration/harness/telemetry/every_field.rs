//! Requests that use every field of OTLP.

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{
    AnyValue, ArrayValue, EntityRef, InstrumentationScope, KeyValue, KeyValueList,
};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::metrics::v1::exponential_histogram_data_point::Buckets;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::metrics::v1::summary_data_point::ValueAtQuantile;
use opentelemetry_proto::tonic::metrics::v1::{
    Exemplar, ExponentialHistogram, ExponentialHistogramDataPoint, Gauge, Histogram,
    HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum, Summary,
    SummaryDataPoint, exemplar,
};
use opentelemetry_proto::tonic::profiles::v1development::{
    Function, KeyValueAndUnit, Line, Link, Location, Mapping, Profile, ProfilesDictionary,
    ResourceProfiles, Sample, ScopeProfiles, Stack, ValueType,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::{Event, Link as SpanLink};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};

use super::{ID, Telemetry, attribute, text};
use crate::harness::Signal;

const TIME: u64 = 1_700_000_000_123_456_789;

impl Telemetry {
    /// A request of one to five items, whose ids begin with `name`, with every field set.
    pub fn with_every_field(signal: Signal, name: &str) -> Self {
        match signal {
            Signal::Traces => Telemetry::Traces(traces(name)),
            Signal::Metrics => Telemetry::Metrics(metrics(name)),
            Signal::Logs => Telemetry::Logs(logs(name)),
            Signal::Profiles => Telemetry::Profiles(profiles(name)),
        }
    }
}

fn attributes(id: &str) -> Vec<KeyValue> {
    let value = |value| AnyValue { value: Some(value) };
    vec![
        text(ID, id),
        text(
            "text",
            "Gr\u{fc}\u{df}e, \u{4e16}\u{754c} \u{1f680} \"quoted\" \\ \u{1}",
        ),
        text("empty", ""),
        attribute("true", Value::BoolValue(true)),
        attribute("false", Value::BoolValue(false)),
        attribute("least", Value::IntValue(i64::MIN)),
        attribute("most", Value::IntValue(i64::MAX)),
        attribute("fraction", Value::DoubleValue(-0.1)),
        attribute("infinite", Value::DoubleValue(f64::INFINITY)),
        attribute("bytes", Value::BytesValue(vec![0, 255, 128])),
        attribute(
            "list",
            Value::ArrayValue(ArrayValue {
                values: vec![
                    value(Value::IntValue(0)),
                    value(Value::StringValue("two".to_owned())),
                    AnyValue { value: None },
                ],
            }),
        ),
        attribute(
            "map",
            Value::KvlistValue(KeyValueList {
                values: vec![
                    text("inner", "value"),
                    attribute("deeper", Value::KvlistValue(KeyValueList::default())),
                ],
            }),
        ),
        KeyValue {
            key: "nothing".to_owned(),
            ..KeyValue::default()
        },
    ]
}

fn resource(name: &str) -> Option<Resource> {
    Some(Resource {
        attributes: attributes(name),
        dropped_attributes_count: 1,
        entity_refs: vec![EntityRef {
            schema_url: "https://example.com/entity".to_owned(),
            r#type: "service".to_owned(),
            id_keys: vec!["text".to_owned()],
            description_keys: vec!["empty".to_owned()],
        }],
    })
}

fn scope(name: &str) -> Option<InstrumentationScope> {
    Some(InstrumentationScope {
        name: "library".to_owned(),
        version: "1.2.3".to_owned(),
        attributes: attributes(name),
        dropped_attributes_count: 2,
    })
}

fn schema() -> String {
    "https://opentelemetry.io/schemas/1.30.0".to_owned()
}

fn traces(name: &str) -> ExportTraceServiceRequest {
    let span = Span {
        trace_id: (0..16).collect(),
        span_id: (16..24).collect(),
        trace_state: "a=1,b=2".to_owned(),
        parent_span_id: (24..32).collect(),
        flags: 0x301,
        name: "GET /".to_owned(),
        kind: 2,
        start_time_unix_nano: TIME,
        end_time_unix_nano: TIME + 1,
        attributes: attributes(&format!("{name}-0")),
        dropped_attributes_count: 3,
        events: vec![Event {
            time_unix_nano: TIME,
            name: "exception".to_owned(),
            attributes: attributes(name),
            dropped_attributes_count: 4,
        }],
        dropped_events_count: 5,
        links: vec![SpanLink {
            trace_id: vec![255; 16],
            span_id: vec![254; 8],
            trace_state: "c=3".to_owned(),
            attributes: attributes(name),
            dropped_attributes_count: 6,
            flags: 1,
        }],
        dropped_links_count: 7,
        status: Some(Status {
            message: "it failed".to_owned(),
            code: 2,
        }),
    };
    let least = Span {
        attributes: vec![text(ID, &format!("{name}-1"))],
        ..Span::default()
    };
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: resource(name),
            scope_spans: vec![
                ScopeSpans {
                    scope: scope(name),
                    spans: vec![span, least],
                    schema_url: schema(),
                },
                ScopeSpans::default(),
            ],
            schema_url: schema(),
        }],
    }
}

fn logs(name: &str) -> ExportLogsServiceRequest {
    let body = attributes(name).swap_remove(11);
    let record = LogRecord {
        time_unix_nano: TIME,
        observed_time_unix_nano: TIME + 1,
        severity_number: 9,
        severity_text: "INFO".to_owned(),
        body: body.value,
        attributes: attributes(&format!("{name}-0")),
        dropped_attributes_count: 1,
        flags: 1,
        trace_id: (0..16).collect(),
        span_id: (16..24).collect(),
        event_name: "event".to_owned(),
    };
    let least = LogRecord {
        attributes: vec![text(ID, &format!("{name}-1"))],
        ..LogRecord::default()
    };
    ExportLogsServiceRequest {
        resource_logs: vec![ResourceLogs {
            resource: resource(name),
            scope_logs: vec![ScopeLogs {
                scope: scope(name),
                log_records: vec![record, least],
                schema_url: schema(),
            }],
            schema_url: schema(),
        }],
    }
}

fn metrics(name: &str) -> ExportMetricsServiceRequest {
    let exemplar = |value| Exemplar {
        filtered_attributes: attributes(name),
        time_unix_nano: TIME,
        span_id: (16..24).collect(),
        trace_id: (0..16).collect(),
        value: Some(value),
    };
    let exemplars = vec![
        exemplar(exemplar::Value::AsInt(-1)),
        exemplar(exemplar::Value::AsDouble(0.1)),
    ];
    let number = |id: usize, value| NumberDataPoint {
        attributes: attributes(&format!("{name}-{id}")),
        start_time_unix_nano: TIME - 1,
        time_unix_nano: TIME,
        exemplars: exemplars.clone(),
        flags: 1,
        value: Some(value),
    };
    let histogram = HistogramDataPoint {
        attributes: attributes(&format!("{name}-2")),
        start_time_unix_nano: TIME - 1,
        time_unix_nano: TIME,
        count: 6,
        sum: Some(1.5),
        bucket_counts: vec![1, 2, 3],
        explicit_bounds: vec![0.5, 10.0],
        exemplars: exemplars.clone(),
        flags: 1,
        min: Some(0.0),
        max: Some(1e300),
    };
    let exponential = ExponentialHistogramDataPoint {
        attributes: attributes(&format!("{name}-3")),
        start_time_unix_nano: TIME - 1,
        time_unix_nano: TIME,
        count: u64::MAX,
        sum: Some(-1.5),
        scale: -3,
        zero_count: 1,
        positive: Some(Buckets {
            offset: -2,
            bucket_counts: vec![0, 1, u64::MAX],
        }),
        negative: Some(Buckets {
            offset: 2,
            bucket_counts: vec![1],
        }),
        flags: 1,
        exemplars: exemplars.clone(),
        min: Some(-1.0),
        max: Some(1.0),
        zero_threshold: 0.001,
    };
    let summary = SummaryDataPoint {
        attributes: attributes(&format!("{name}-4")),
        start_time_unix_nano: TIME - 1,
        time_unix_nano: TIME,
        count: 2,
        sum: 3.5,
        quantile_values: vec![ValueAtQuantile {
            quantile: 0.99,
            value: 2.5,
        }],
        flags: 1,
    };
    let metric = |data| Metric {
        name: "http.server.duration".to_owned(),
        description: "how long".to_owned(),
        unit: "s".to_owned(),
        metadata: attributes(name),
        data: Some(data),
    };
    let metrics = vec![
        metric(Data::Gauge(Gauge {
            data_points: vec![number(0, Number::AsDouble(-0.5))],
        })),
        metric(Data::Sum(Sum {
            data_points: vec![number(1, Number::AsInt(i64::MIN))],
            aggregation_temporality: 2,
            is_monotonic: true,
        })),
        metric(Data::Histogram(Histogram {
            data_points: vec![histogram],
            aggregation_temporality: 1,
        })),
        metric(Data::ExponentialHistogram(ExponentialHistogram {
            data_points: vec![exponential],
            aggregation_temporality: 2,
        })),
        metric(Data::Summary(Summary {
            data_points: vec![summary],
        })),
    ];
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: resource(name),
            scope_metrics: vec![ScopeMetrics {
                scope: scope(name),
                metrics,
                schema_url: schema(),
            }],
            schema_url: schema(),
        }],
    }
}

fn profiles(name: &str) -> ExportProfilesServiceRequest {
    let strings = [
        "",
        ID,
        "cpu",
        "nanoseconds",
        "main",
        "main.rs",
        "/bin/app",
        "bytes",
        "build",
        "key",
    ];
    let named = |key: i32, value: Option<AnyValue>, unit: i32| KeyValueAndUnit {
        key_strindex: key,
        value,
        unit_strindex: unit,
    };
    let dictionary = ProfilesDictionary {
        mapping_table: vec![
            Mapping::default(),
            Mapping {
                memory_start: 0x1000,
                memory_limit: 0x2000,
                file_offset: 0x10,
                filename_strindex: 6,
                attribute_indices: vec![2],
            },
        ],
        location_table: vec![
            Location::default(),
            Location {
                mapping_index: 1,
                address: u64::MAX,
                lines: vec![Line {
                    function_index: 1,
                    line: 12,
                    column: 34,
                }],
                attribute_indices: vec![3],
            },
        ],
        function_table: vec![
            Function::default(),
            Function {
                name_strindex: 4,
                system_name_strindex: 4,
                filename_strindex: 5,
                start_line: 10,
            },
        ],
        link_table: vec![
            Link::default(),
            Link {
                trace_id: (0..16).collect(),
                span_id: (16..24).collect(),
            },
        ],
        string_table: strings.map(str::to_owned).to_vec(),
        attribute_table: vec![
            KeyValueAndUnit::default(),
            named(1, text("", &format!("{name}-0")).value, 0),
            named(8, attribute("", Value::BytesValue(vec![1, 2])).value, 0),
            named(9, attribute("", Value::IntValue(-7)).value, 7),
        ],
        stack_table: vec![
            Stack::default(),
            Stack {
                location_indices: vec![1],
            },
        ],
    };
    let profile = Profile {
        sample_type: Some(ValueType {
            type_strindex: 2,
            unit_strindex: 3,
        }),
        samples: vec![Sample {
            stack_index: 1,
            attribute_indices: vec![1, 3],
            link_index: 1,
            values: vec![i64::MIN, 2],
            timestamps_unix_nano: vec![TIME, TIME + 1],
        }],
        time_unix_nano: TIME,
        duration_nano: 10_000_000_000,
        period_type: Some(ValueType {
            type_strindex: 2,
            unit_strindex: 3,
        }),
        period: 10_000_000,
        profile_id: (0..16).collect(),
        dropped_attributes_count: 1,
        original_payload_format: "pprofext".to_owned(),
        original_payload: vec![31, 139, 8],
        attribute_indices: vec![3],
    };
    ExportProfilesServiceRequest {
        resource_profiles: vec![ResourceProfiles {
            resource: resource(name),
            scope_profiles: vec![ScopeProfiles {
                scope: scope(name),
                profiles: vec![profile],
                schema_url: schema(),
            }],
            schema_url: schema(),
        }],
        dictionary: Some(dictionary),
    }
}
