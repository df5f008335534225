//! Tables are written and read back, by the readers of the library.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value::Value};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::metrics::v1 as metrics_proto;
use opentelemetry_proto::tonic::profiles::v1development as profiles_proto;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status, span};
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use prost::Message as _;

mod expansion;
mod pages;

use super::*;
use tributary_otlp::room::Unbounded;

const HOUR: u64 = 3_600_000_000_000;
const START: u64 = 472_222 * HOUR;

/// All tables, by kind and partition.
struct Tables {
    layout: Arc<Layout>,
    by_service: bool,
    tables: BTreeMap<(TableKind, Partition), Table>,
}

impl Tables {
    fn new(options: &TableOptions) -> Self {
        Tables {
            layout: Arc::new(Layout::new(options)),
            by_service: false,
            tables: BTreeMap::new(),
        }
    }

    fn append(&mut self, signal: Signal, request: &impl prost::Message) {
        let layout = Arc::clone(&self.layout);
        append(
            signal,
            &request.encode_to_vec(),
            &layout,
            self.by_service,
            &Unbounded,
            self,
        )
        .unwrap();
    }

    fn file(&mut self, kind: TableKind) -> Bytes {
        let mut file = FileWriter::new(kind, &self.layout, Vec::new()).unwrap();
        for ((of, _), table) in &mut self.tables {
            if *of == kind {
                table.write(&mut file).unwrap();
                assert_eq!(table.rows(), 0);
            }
        }
        let (bytes, summary) = file.finish().unwrap();
        assert_eq!(summary.bytes, bytes.len() as u64);
        bytes.into()
    }

    fn rows(&mut self, kind: TableKind) -> Vec<HashMap<String, String>> {
        rows(self.file(kind))
    }
}

impl Sink for Tables {
    fn table(&mut self, kind: TableKind, partition: &Partition) -> Option<&mut Table> {
        let layout = &self.layout;
        let table = self.tables.entry((kind, partition.clone()));
        Some(table.or_insert_with(|| Table::new(kind, layout)))
    }
}

fn rows(file: Bytes) -> Vec<HashMap<String, String>> {
    let reader = SerializedFileReader::new(file).unwrap();
    let rows = reader.get_row_iter(None).unwrap();
    rows.map(|row| {
        let row = row.unwrap();
        let columns = row.get_column_iter();
        columns
            .map(|(name, field)| (name.clone(), field.to_string()))
            .collect()
    })
    .collect()
}

fn any(value: Value) -> AnyValue {
    AnyValue { value: Some(value) }
}

fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(any(value)),
        ..KeyValue::default()
    }
}

fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, Value::StringValue(value.to_owned()))
}

fn resource(service: &str) -> Option<Resource> {
    Some(Resource {
        attributes: vec![text("service.name", service), text("k8s.pod.name", "pod")],
        ..Resource::default()
    })
}

fn logs(service: &str, log_records: Vec<LogRecord>) -> ExportLogsServiceRequest {
    ExportLogsServiceRequest {
        resource_logs: vec![ResourceLogs {
            resource: resource(service),
            scope_logs: vec![ScopeLogs {
                log_records,
                ..ScopeLogs::default()
            }],
            ..ResourceLogs::default()
        }],
    }
}

#[test]
fn many_logs_are_sorted_by_service_and_time() {
    let record = |at: u64| LogRecord {
        time_unix_nano: START + at,
        body: Some(any(Value::StringValue(format!("request {at}")))),
        attributes: vec![attribute("at", Value::IntValue(at.cast_signed()))],
        trace_id: vec![at as u8; 16],
        ..LogRecord::default()
    };
    for compression in [
        PageCompression::None,
        PageCompression::Zstd(1),
        PageCompression::Lz4,
        PageCompression::Snappy,
    ] {
        let mut tables = Tables::new(&TableOptions {
            compression,
            ..TableOptions::default()
        });
        // More rows than a page has, newest first.
        tables.append(
            Signal::Logs,
            &logs("b", (0..30_000).rev().map(record).collect()),
        );
        tables.append(Signal::Logs, &logs("a", vec![record(7)]));
        let rows = tables.rows(TableKind::Logs);
        assert_eq!(rows.len(), 30_001);
        assert_eq!(rows[0]["service_name"], "\"a\"");
        for (at, row) in rows[1..].iter().enumerate() {
            assert_eq!(row["body"], format!("\"request {at}\""), "{compression:?}");
            assert_eq!(row["attributes"], format!("{{\"at\" -> \"{at}\"}}"));
            assert_eq!(row["attribute_types"], "\"i\"");
            assert_eq!(row["trace_id"], format!("{:?}", [at as u8; 16]));
        }
    }
}

#[test]
fn missing_fields_are_null_or_empty() {
    let nested = Value::KvlistValue(opentelemetry_proto::tonic::common::v1::KeyValueList {
        values: vec![
            attribute("x", Value::DoubleValue(f64::NAN)),
            text("y", "\""),
        ],
    });
    let records = vec![
        LogRecord {
            observed_time_unix_nano: START,
            trace_id: vec![1; 5],
            body: Some(any(nested)),
            attributes: vec![
                attribute("bytes", Value::BytesValue(vec![1, 2])),
                attribute("double", Value::DoubleValue(1.0)),
                attribute("true", Value::BoolValue(true)),
                text("text", "1"),
            ],
            ..LogRecord::default()
        },
        LogRecord {
            time_unix_nano: START + 1,
            ..LogRecord::default()
        },
    ];
    let mut tables = Tables::new(&TableOptions {
        promoted: vec![
            Promoted {
                source: AttributeOwner::Item,
                key: "text".to_owned(),
            },
            Promoted {
                source: AttributeOwner::Resource,
                key: "k8s.pod.name".to_owned(),
            },
        ],
        ..TableOptions::default()
    });
    tables.append(Signal::Logs, &logs("a", records));
    let rows = tables.rows(TableKind::Logs);
    let row = &rows[0];
    assert_eq!(row["timestamp_is_observed"], "true");
    assert_eq!(row["body"], "\"{\"x\":\"NaN\",\"y\":\"\\\"\"}\"");
    assert_eq!(row["body_type"], "\"m\"");
    assert_eq!(row["attribute_types"], "\"ydbsy\"");
    let attributes = "{\"bytes\" -> \"AQI=\", \"double\" -> \"1.0\", \"true\" -> \"true\", \"text\" -> \"1\", \
                      \"otlp.trace_id\" -> \"AQEBAQE=\"}";
    assert_eq!(row["attributes"], attributes);
    assert_eq!(row["attribute_text"], "\"1\"");
    assert_eq!(row["resource_attribute_k8s_pod_name"], "\"pod\"");
    let row = &rows[1];
    assert_eq!(row["timestamp_is_observed"], "false");
    for column in [
        "observed_timestamp",
        "body",
        "trace_id",
        "span_id",
        "attribute_text",
    ] {
        assert_eq!(row[column], "null", "{column}");
    }
    assert_eq!(row["attributes"], "{}");
}

#[test]
fn rows_are_partitioned_by_their_hour_and_service() {
    let records = [START + 1, START - 1, START + 2].map(|time| LogRecord {
        time_unix_nano: time,
        ..LogRecord::default()
    });
    let mut tables = Tables::new(&TableOptions::default());
    tables.by_service = true;
    tables.append(Signal::Logs, &logs("a", records.to_vec()));
    tables.append(Signal::Logs, &logs("b", records[..1].to_vec()));
    let found = tables.tables.iter().map(|((_, partition), table)| {
        let service = partition.service.clone().unwrap();
        (partition.hour, service.to_string(), table.rows())
    });
    let expected = [
        (472_221, "a".to_owned(), 1),
        (472_222, "a".to_owned(), 2),
        (472_222, "b".to_owned(), 1),
    ];
    assert_eq!(found.collect::<Vec<_>>(), expected);
}

#[test]
fn spans_are_read_back_with_events_and_links() {
    let event = |name: &str, attributes| span::Event {
        time_unix_nano: START,
        name: name.to_owned(),
        attributes,
        ..span::Event::default()
    };
    let spans = vec![
        Span {
            trace_id: vec![1; 16],
            span_id: vec![2; 8],
            name: "GET /".to_owned(),
            kind: 2,
            start_time_unix_nano: START,
            end_time_unix_nano: START + 5,
            status: Some(Status {
                code: 2,
                message: "no".to_owned(),
            }),
            events: vec![
                event("a", vec![]),
                event("b", vec![text("k", "v"), text("l", "w")]),
            ],
            links: vec![span::Link {
                trace_id: vec![3; 16],
                span_id: vec![4; 2],
                ..span::Link::default()
            }],
            ..Span::default()
        },
        Span {
            start_time_unix_nano: START + 1,
            kind: 77,
            ..Span::default()
        },
    ];
    let request = ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            scope_spans: vec![ScopeSpans {
                spans,
                ..ScopeSpans::default()
            }],
            ..ResourceSpans::default()
        }],
    };
    let mut tables = Tables::new(&TableOptions::default());
    tables.append(Signal::Traces, &request);
    let rows = tables.rows(TableKind::Traces);
    for (column, first, second) in [
        ("duration_nano", "5", "null"),
        ("service_name", "null", "null"),
        ("kind", "\"server\"", "\"77\""),
        ("status_code", "\"error\"", "\"unset\""),
        ("status_message", "\"no\"", "\"\""),
        ("span_id", "[2, 2, 2, 2, 2, 2, 2, 2]", "null"),
        ("event_name", "[\"a\", \"b\"]", "[]"),
        (
            "event_attributes",
            "[{}, {\"k\" -> \"v\", \"l\" -> \"w\"}]",
            "[]",
        ),
        ("link_span_id", "[[]]", "[]"),
        ("link_attributes", "[{\"otlp.span_id\" -> \"BAQ=\"}]", "[]"),
        ("link_attribute_types", "[\"y\"]", "[]"),
    ] {
        assert_eq!(
            (&*rows[0][column], &*rows[1][column]),
            (first, second),
            "{column}"
        );
    }
}

#[test]
fn data_points_of_all_types_are_rows_of_one_table() {
    use metrics_proto::metric::Data;
    use metrics_proto::number_data_point::Value as Number;
    let metric = |name: &str, data| metrics_proto::Metric {
        name: name.to_owned(),
        data: Some(data),
        ..metrics_proto::Metric::default()
    };
    let point = |value| metrics_proto::NumberDataPoint {
        time_unix_nano: START,
        value,
        ..metrics_proto::NumberDataPoint::default()
    };
    let exact = (1_i64 << 53) + 1;
    let metrics = vec![
        metric(
            "a",
            Data::Sum(metrics_proto::Sum {
                data_points: vec![point(Some(Number::AsInt(exact))), point(None)],
                aggregation_temporality: 2,
                is_monotonic: true,
            }),
        ),
        metric(
            "b",
            Data::ExponentialHistogram(metrics_proto::ExponentialHistogram {
                data_points: vec![metrics_proto::ExponentialHistogramDataPoint {
                    time_unix_nano: START,
                    count: 6,
                    scale: -3,
                    positive: Some(metrics_proto::exponential_histogram_data_point::Buckets {
                        offset: -2,
                        bucket_counts: vec![1, 2, 300],
                    }),
                    ..metrics_proto::ExponentialHistogramDataPoint::default()
                }],
                aggregation_temporality: 1,
            }),
        ),
        metric(
            "c",
            Data::Histogram(metrics_proto::Histogram {
                data_points: vec![metrics_proto::HistogramDataPoint {
                    time_unix_nano: START,
                    sum: Some(1.5),
                    bucket_counts: vec![1, 2],
                    explicit_bounds: vec![0.5],
                    ..metrics_proto::HistogramDataPoint::default()
                }],
                aggregation_temporality: 1,
            }),
        ),
    ];
    let request = ExportMetricsServiceRequest {
        resource_metrics: vec![metrics_proto::ResourceMetrics {
            scope_metrics: vec![metrics_proto::ScopeMetrics {
                metrics,
                ..metrics_proto::ScopeMetrics::default()
            }],
            ..metrics_proto::ResourceMetrics::default()
        }],
    };
    let mut tables = Tables::new(&TableOptions::default());
    tables.append(Signal::Metrics, &request);
    let rows = tables.rows(TableKind::Metrics);
    for (column, expected) in [
        ("metric_name", ["\"a\"", "\"a\"", "\"b\"", "\"c\""]),
        ("value_int", ["9007199254740993", "null", "null", "null"]),
        ("is_monotonic", ["true", "true", "null", "null"]),
        ("count", ["null", "null", "6", "0"]),
        ("sum", ["null", "null", "null", "1.5"]),
        ("scale", ["null", "null", "-3", "null"]),
        ("positive_offset", ["null", "null", "-2", "null"]),
        ("negative_offset", ["null", "null", "null", "null"]),
        ("positive_bucket_counts", ["[]", "[]", "[1, 2, 300]", "[]"]),
        ("bucket_counts", ["[]", "[]", "[]", "[1, 2]"]),
        ("explicit_bounds", ["[]", "[]", "[]", "[0.5]"]),
    ] {
        let found: Vec<&str> = rows.iter().map(|row| &*row[column]).collect();
        assert_eq!(found, expected, "{column}");
    }
}

/// A profile of two samples with one stack and one without.
fn profile() -> ExportProfilesServiceRequest {
    let strings = [
        "", "cpu", "ns", "main", "work", "main.c", "/bin/app", "thread", "s",
    ];
    let function = |name_strindex| profiles_proto::Function {
        name_strindex,
        filename_strindex: 5,
        ..profiles_proto::Function::default()
    };
    let line = |function_index| profiles_proto::Line {
        function_index,
        line: 9,
        column: 0,
    };
    let sample = |stack_index, values: &[i64], times: &[u64]| profiles_proto::Sample {
        stack_index,
        values: values.to_vec(),
        timestamps_unix_nano: times.to_vec(),
        attribute_indices: vec![1],
        ..profiles_proto::Sample::default()
    };
    let location = |address, lines| profiles_proto::Location {
        mapping_index: 1,
        address,
        lines,
        ..profiles_proto::Location::default()
    };
    ExportProfilesServiceRequest {
        resource_profiles: vec![profiles_proto::ResourceProfiles {
            resource: resource("shop"),
            scope_profiles: vec![profiles_proto::ScopeProfiles {
                profiles: vec![profiles_proto::Profile {
                    sample_type: Some(profiles_proto::ValueType {
                        type_strindex: 1,
                        unit_strindex: 2,
                    }),
                    time_unix_nano: START,
                    samples: vec![
                        sample(1, &[5], &[]),
                        sample(1, &[], &[START, START + 1]),
                        sample(0, &[2, 3], &[START, START + 1]),
                    ],
                    ..profiles_proto::Profile::default()
                }],
                ..profiles_proto::ScopeProfiles::default()
            }],
            ..profiles_proto::ResourceProfiles::default()
        }],
        dictionary: Some(profiles_proto::ProfilesDictionary {
            mapping_table: vec![
                profiles_proto::Mapping::default(),
                profiles_proto::Mapping {
                    filename_strindex: 6,
                    ..profiles_proto::Mapping::default()
                },
            ],
            location_table: vec![
                profiles_proto::Location::default(),
                location(16, vec![line(2), line(1)]),
                location(32, vec![]),
            ],
            function_table: vec![
                profiles_proto::Function::default(),
                function(3),
                function(4),
            ],
            link_table: vec![profiles_proto::Link::default()],
            string_table: strings.map(str::to_owned).to_vec(),
            attribute_table: vec![
                profiles_proto::KeyValueAndUnit::default(),
                profiles_proto::KeyValueAndUnit {
                    key_strindex: 7,
                    value: Some(any(Value::StringValueStrindex(3))),
                    unit_strindex: 8,
                },
            ],
            stack_table: vec![
                profiles_proto::Stack::default(),
                profiles_proto::Stack {
                    location_indices: vec![1, 2],
                },
            ],
        }),
    }
}

#[test]
fn samples_are_read_back_with_frames() {
    let mut tables = Tables::new(&TableOptions::default());
    tables.append(Signal::Profiles, &profile());
    let rows = tables.rows(TableKind::Profiles);
    for (column, expected) in [
        ("sample_type", ["\"cpu\""; 3]),
        ("value", ["5", "2", "5"]),
        ("sample_count", ["1", "2", "2"]),
        ("observation_values", ["[]", "[]", "[2, 3]"]),
        (
            "frame_function",
            [
                "[\"work\", \"main\", \"\"]",
                "[\"work\", \"main\", \"\"]",
                "[]",
            ],
        ),
        (
            "frame_inlined",
            ["[true, false, false]", "[true, false, false]", "[]"],
        ),
        ("frame_address", ["[16, 16, 32]", "[16, 16, 32]", "[]"]),
        ("frame_build_id", ["[]"; 3]),
        (
            "attributes",
            ["{\"thread\" -> \"main\", \"thread.unit\" -> \"s\"}"; 3],
        ),
        ("attribute_types", ["\"su\""; 3]),
    ] {
        let found: Vec<&str> = rows.iter().map(|row| &*row[column]).collect();
        assert_eq!(found, expected, "{column}");
    }
    assert_eq!(rows[0]["stack_hash"], rows[1]["stack_hash"]);
}

#[test]
fn stacks_have_a_table_of_their_own_if_wanted() {
    let wide = {
        let mut tables = Tables::new(&TableOptions::default());
        tables.append(Signal::Profiles, &profile());
        tables.rows(TableKind::Profiles)
    };
    let mut tables = Tables::new(&TableOptions {
        profiles: ProfilesLayout::Stacks,
        ..TableOptions::default()
    });
    // Cached entries of a request's dictionary must not outlive their table.
    for _ in 0..2 {
        tables.append(Signal::Profiles, &profile());
        tables.append(Signal::Profiles, &profile());
        let stacks = tables.rows(TableKind::Stacks);
        let samples = tables.rows(TableKind::Profiles);
        assert_eq!((stacks.len(), samples.len()), (2, 6));
        assert!(!samples[0].contains_key("frame_function"));
        assert_eq!(samples[0]["stack_hash"], wide[0]["stack_hash"]);
        assert_eq!(stacks[0]["stack_hash"], wide[0]["stack_hash"]);
        assert_eq!(stacks[0]["leaf_function"], "\"work\"");
        let frames = "[\"{\"function\":\"work\",\"file\":\"main.c\",\"mapping\":\"/bin/app\",\"line\":9,\"address\":16,\
                      \"inlined\":true}\", \"{\"function\":\"main\",\"file\":\"main.c\",\"mapping\":\"/bin/app\",\
                      \"line\":9,\"address\":16}\", \"{\"mapping\":\"/bin/app\",\"address\":32}\"]";
        assert_eq!(stacks[0]["frame"], frames);
    }
}

#[test]
fn leaf_without_a_name_is_empty_in_both_layouts() {
    let mut request = profile();
    let dictionary = request.dictionary.as_mut().unwrap();
    // A stack with one location without a line.
    dictionary.stack_table[1].location_indices = vec![2];
    let rows = |profiles, kind| {
        let mut tables = Tables::new(&TableOptions {
            profiles,
            ..TableOptions::default()
        });
        tables.append(Signal::Profiles, &request);
        tables.rows(kind)
    };
    let wide = rows(ProfilesLayout::Wide, TableKind::Profiles);
    let functions: Vec<&str> = wide.iter().map(|row| &*row["frame_function"]).collect();
    assert_eq!(functions, ["[\"\"]", "[\"\"]", "[]"]);
    let stacks = rows(ProfilesLayout::Stacks, TableKind::Stacks);
    let leaves: Vec<&str> = stacks.iter().map(|row| &*row["leaf_function"]).collect();
    // The second stack has no leaf.
    assert_eq!(leaves, ["\"\"", "null"]);
}

#[test]
fn times_have_microseconds_and_nanoseconds() {
    let record = |time_unix_nano| LogRecord {
        time_unix_nano,
        observed_time_unix_nano: time_unix_nano + 1,
        ..LogRecord::default()
    };
    let mut tables = Tables::new(&TableOptions::default());
    let records = vec![record(START + 1_234_567), record(START + 1_234_999)];
    tables.append(Signal::Logs, &logs("a", records));
    let rows = tables.rows(TableKind::Logs);
    let of = |column: &str| -> Vec<String> { rows.iter().map(|row| row[column].clone()).collect() };
    assert_eq!(of("timestamp_nanos"), ["567", "999"]);
    assert_eq!(of("observed_timestamp_nanos"), ["568", "0"]);
    assert_eq!(of("timestamp")[0], of("timestamp")[1]);
    assert_ne!(of("timestamp")[1], of("observed_timestamp")[1]);
}

#[test]
fn truncated_request_does_not_panic() {
    let request = profile().encode_to_vec();
    for end in 0..request.len() {
        let mut tables = Tables::new(&TableOptions::default());
        let layout = Arc::clone(&tables.layout);
        for signal in Signal::ALL {
            let _ = append(
                signal,
                &request[..end],
                &layout,
                true,
                &Unbounded,
                &mut tables,
            );
        }
        for kind in TableKind::ALL {
            tables.file(kind);
        }
    }
}

#[test]
fn columns_are_all_documented() {
    let documentation = include_str!("../../../../docs/parquet.md");
    for layout in [ProfilesLayout::Wide, ProfilesLayout::Stacks] {
        let layout = Layout::new(&TableOptions {
            profiles: layout,
            ..TableOptions::default()
        });
        for kind in TableKind::ALL {
            for column in layout.columns(kind) {
                let name = format!("`{}`", column.name);
                assert!(documentation.contains(&name), "{kind:?}: {name}");
            }
        }
    }
}
