//! Analytical engines read the sent data from the files of `parquet`, and the queries of
//! docs/parquet.md return the expected results.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Output};

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::AnyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{
    Exemplar, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics,
    ScopeMetrics, Sum, number_data_point,
};
use opentelemetry_proto::tonic::profiles::v1development::{
    Function, Line, Location, Profile, ProfilesDictionary, ResourceProfiles, Sample, ScopeProfiles,
    Stack, ValueType,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, span};
use serde_json::json;
use tempfile::TempDir;

use crate::harness::telemetry::{attribute, text};
use crate::harness::{Client, Collector, Oracle, Telemetry, yaml};
use crate::sdk::{script, told};

const HOUR: u64 = 3_600_000_000_000;
/// 2024-01-01.
const START: u64 = 473_364 * HOUR;
const SERVICES: [&str; 3] = ["cart", "pay", "search"];
const ITEMS: u64 = 700;
const FUNCTIONS: [&str; 4] = ["main", "serve", "encode", "compress"];
const BUCKETS: u64 = 5;

/// Queries for every engine, by kind of file, with the expected result: `sum` and number (`present`) of values, `bytes`
/// of texts, `keys` of maps, `entries` of lists and their `total`.
type Facts = BTreeMap<&'static str, Vec<(&'static str, &'static str, f64)>>;

fn resource(service: &str) -> Option<Resource> {
    let namespace = ["shop", "backend"][usize::from(service == "search")];
    let attributes = vec![
        text("service.name", service),
        text("k8s.namespace.name", namespace),
    ];
    Some(Resource {
        attributes,
        ..Resource::default()
    })
}

/// Times in three hours.
fn time(item: u64) -> u64 {
    START + item % 3 * HOUR + item * 1_000_003
}

fn trace_id(item: u64) -> Vec<u8> {
    match item % 100 {
        7 => 0x5b8e_fff7_9803_8103_d269_b633_813f_c60c_u128.to_be_bytes(),
        _ => (u128::from(item) << 64 | 1).to_be_bytes(),
    }
    .into()
}

fn severity(item: u64) -> u64 {
    [9, 13, 17, 21][item as usize % 4]
}

fn body(item: u64) -> String {
    format!("order {item} pl\u{e4}ced")
}

fn logs(service: &str) -> Telemetry {
    let record = |item| LogRecord {
        time_unix_nano: time(item),
        severity_number: severity(item) as i32,
        body: (item % 10 != 0).then(|| AnyValue {
            value: Some(Value::StringValue(body(item))),
        }),
        trace_id: trace_id(item),
        attributes: vec![
            text("user", &format!("user-{item}")),
            attribute("retries", Value::IntValue(item as i64 % 5)),
        ],
        ..LogRecord::default()
    };
    Telemetry::Logs(ExportLogsServiceRequest {
        resource_logs: vec![ResourceLogs {
            resource: resource(service),
            scope_logs: vec![ScopeLogs {
                log_records: (0..ITEMS).map(record).collect(),
                ..ScopeLogs::default()
            }],
            ..ResourceLogs::default()
        }],
    })
}

/// Durations are distinct, so quantiles are unambiguous.
fn duration(item: u64) -> u64 {
    1_000_000 + item * 1000
}

fn traces(service: &str) -> Telemetry {
    let event = |at: u64| span::Event {
        time_unix_nano: START + at,
        name: "retry".to_owned(),
        attributes: vec![text("why", "busy")],
        ..span::Event::default()
    };
    let span = |item| Span {
        trace_id: trace_id(item),
        span_id: item.to_be_bytes().into(),
        name: format!("GET /{}", item % 2),
        kind: 2 + (item / 2 % 2) as i32,
        start_time_unix_nano: time(item),
        end_time_unix_nano: time(item) + duration(item),
        attributes: vec![text("http.route", "/")],
        events: (0..item % 3).map(event).collect(),
        links: vec![span::Link {
            trace_id: trace_id(item),
            ..span::Link::default()
        }],
        ..Span::default()
    };
    Telemetry::Traces(ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: resource(service),
            scope_spans: vec![ScopeSpans {
                spans: (1..=ITEMS).map(span).collect(),
                ..ScopeSpans::default()
            }],
            ..ResourceSpans::default()
        }],
    })
}

fn metrics(service: &str) -> Telemetry {
    let counted = |item: u64| NumberDataPoint {
        time_unix_nano: time(item),
        attributes: vec![text("route", "/cart")],
        value: Some(number_data_point::Value::AsInt(item as i64)),
        ..NumberDataPoint::default()
    };
    let measured = |item: u64| HistogramDataPoint {
        time_unix_nano: time(item),
        count: BUCKETS * item,
        sum: Some(item as f64 / 2.0),
        bucket_counts: vec![item; BUCKETS as usize],
        exemplars: vec![Exemplar {
            trace_id: trace_id(item),
            ..Exemplar::default()
        }],
        explicit_bounds: (1..BUCKETS).map(|bound| bound as f64).collect(),
        ..HistogramDataPoint::default()
    };
    let metric = |name: &str, data| Metric {
        name: name.to_owned(),
        data: Some(data),
        ..Metric::default()
    };
    let sum = Data::Sum(Sum {
        data_points: (0..ITEMS).map(counted).collect(),
        aggregation_temporality: 2,
        is_monotonic: true,
    });
    let histogram = Data::Histogram(Histogram {
        data_points: (0..ITEMS).map(measured).collect(),
        aggregation_temporality: 2,
    });
    Telemetry::Metrics(ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: resource(service),
            scope_metrics: vec![ScopeMetrics {
                metrics: vec![
                    metric("http.server.requests", sum),
                    metric("http.server.duration", histogram),
                ],
                ..ScopeMetrics::default()
            }],
            ..ResourceMetrics::default()
        }],
    })
}

/// The functions of a sample's stack, the leaf first.
fn stack(item: u64) -> Vec<usize> {
    (0..=item as usize % FUNCTIONS.len()).rev().collect()
}

fn profiles(service: &str) -> Telemetry {
    let mut strings: Vec<String> = ["", "cpu", "nanoseconds"].map(str::to_owned).into();
    strings.extend(FUNCTIONS.map(str::to_owned));
    let functions = (3..).take(FUNCTIONS.len()).map(|name| Function {
        name_strindex: name,
        ..Function::default()
    });
    let locations = (1..).take(FUNCTIONS.len()).map(|function| Location {
        lines: vec![Line {
            function_index: function,
            line: 7,
            ..Line::default()
        }],
        ..Location::default()
    });
    let stacks = (0..FUNCTIONS.len() as u64).map(|item| Stack {
        location_indices: stack(item).iter().map(|at| *at as i32 + 1).collect(),
    });
    let dictionary = ProfilesDictionary {
        mapping_table: vec![Default::default()],
        function_table: std::iter::once(Function::default())
            .chain(functions)
            .collect(),
        location_table: std::iter::once(Location::default())
            .chain(locations)
            .collect(),
        stack_table: std::iter::once(Stack::default()).chain(stacks).collect(),
        link_table: vec![Default::default()],
        attribute_table: vec![Default::default()],
        string_table: strings,
    };
    let sample = |item: u64| Sample {
        stack_index: (item % FUNCTIONS.len() as u64) as i32 + 1,
        values: vec![item as i64],
        ..Sample::default()
    };
    let profile = Profile {
        sample_type: Some(ValueType {
            type_strindex: 1,
            unit_strindex: 2,
        }),
        samples: (0..ITEMS).map(sample).collect(),
        time_unix_nano: START,
        duration_nano: 10,
        ..Profile::default()
    };
    Telemetry::Profiles(ExportProfilesServiceRequest {
        resource_profiles: vec![ResourceProfiles {
            resource: resource(service),
            scope_profiles: vec![ScopeProfiles {
                profiles: vec![profile],
                ..ScopeProfiles::default()
            }],
            ..ResourceProfiles::default()
        }],
        dictionary: Some(dictionary),
    })
}

/// The sum over the items of all services.
fn sum(of: impl Fn(u64) -> u64) -> f64 {
    (SERVICES.len() as u64 * (0..ITEMS).map(of).sum::<u64>()) as f64
}

fn facts(layout: &str) -> Facts {
    let frames = |item| stack(item).len() as u64;
    let bytes = |item| match item % 10 {
        0 => 0,
        _ => body(item).len() as u64,
    };
    let mut facts = Facts::from([
        (
            "logs",
            vec![
                ("sum", "severity_number", sum(severity)),
                ("sum", "timestamp_nanos", sum(|item| item * 3 % 1000)),
                ("present", "body", sum(|item| (item % 10 != 0).into())),
                ("bytes", "body", sum(bytes)),
                ("present", "trace_id", sum(|_| 1)),
                ("present", "span_id", 0.0),
                ("keys", "attributes", sum(|_| 2)),
                ("keys", "resource_attributes", sum(|_| 2)),
            ],
        ),
        (
            "traces",
            vec![
                ("sum", "duration_nano", sum(|item| duration(item + 1))),
                ("bytes", "name", sum(|_| 6)),
                ("present", "span_id", sum(|_| 1)),
                ("entries", "event_name", sum(|item| (item + 1) % 3)),
                ("entries", "link_trace_id", sum(|_| 1)),
                (
                    "total",
                    "event_timestamp_nanos",
                    sum(|item| ((item + 1) % 3 == 2).into()),
                ),
                ("keys", "attributes", sum(|_| 1)),
            ],
        ),
        (
            "metrics",
            vec![
                ("sum", "value", sum(|item| item)),
                ("sum", "value_int", sum(|item| item)),
                ("sum", "count", sum(|item| BUCKETS * item)),
                ("sum", "sum", sum(|item| item) / 2.0),
                ("total", "bucket_counts", sum(|item| BUCKETS * item)),
                ("entries", "explicit_bounds", sum(|_| BUCKETS - 1)),
                ("entries", "exemplar_trace_id", sum(|_| 1)),
                ("keys", "attributes", sum(|_| 1)),
            ],
        ),
        (
            "profiles",
            vec![
                ("sum", "value", sum(|item| item)),
                ("sum", "sample_count", sum(|_| 1)),
                ("bytes", "sample_type", sum(|_| 3)),
            ],
        ),
    ]);
    if layout == "wide" {
        let profiles = facts.entry("profiles").or_default();
        profiles.push(("entries", "frame_function", sum(frames)));
        profiles.push(("total", "frame_line", sum(|item| 7 * frames(item))));
    }
    facts
}

/// Sends everything to a collector that writes profiles in this layout.
async fn write(directory: &Path, layout: &str) {
    let parquet = format!(
        "{{path: '{}', layout: {layout}, sending_queue: {{enabled: false}}, rotation: {{interval: 100ms}}, \
         row_group: {{max_rows: 400}}}}",
        directory.display()
    );
    let collector = Collector::start(&yaml(&[], &[("parquet", &parquet)])).await;
    let client = Client::grpc("analyst", collector.grpc(), &Oracle::default()).await;
    for service in SERVICES {
        for request in [
            logs(service),
            traces(service),
            metrics(service),
            profiles(service),
        ] {
            client.send(&request).await.unwrap();
        }
    }
    assert!(collector.terminate().await.status.success());
}

#[tokio::test]
async fn every_engine_reads_the_files() {
    let Some(python) = told("PARQUET_PYTHON") else {
        return;
    };
    let directories = [TempDir::new().unwrap(), TempDir::new().unwrap()];
    let mut answers = Vec::new();
    for (layout, directory) in ["wide", "stacks"].into_iter().zip(&directories) {
        write(directory.path(), layout).await;
        let facts = facts(layout);
        let asked: BTreeMap<_, Vec<_>> = facts
            .iter()
            .map(|(kind, facts)| (kind, facts.iter().map(|(what, of, _)| [what, of]).collect()))
            .collect();
        let mut command = Command::new(&python);
        command.arg(script("read_parquet.py")).arg(directory.path());
        command.arg(json!(asked).to_string());
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/parquet.md"));
        let run = tokio::task::spawn_blocking(move || command.output().unwrap());
        let Output {
            status,
            stdout,
            stderr,
        } = run.await.unwrap();
        assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
        let said: serde_json::Value = serde_json::from_slice(&stdout).unwrap();
        let engines = said["found"].as_object().unwrap();
        // pandas and Spark too, where they are installed.
        assert!(engines.len() >= 4, "{engines:?}");
        for (engine, kinds) in engines {
            for (kind, facts) in &facts {
                let rows = sum(|_| if *kind == "metrics" { 2 } else { 1 });
                assert_eq!(kinds[kind][0], rows, "rows of {kind} by {engine}");
                for (at, (what, column, expected)) in facts.iter().enumerate() {
                    assert_eq!(
                        kinds[kind][at + 1],
                        *expected,
                        "{what} of {kind}.{column} by {engine}"
                    );
                }
            }
        }
        let rows: Vec<Vec<Vec<String>>> = serde_json::from_value(said["answers"].clone()).unwrap();
        let others = said["clickhouse"].as_array().unwrap();
        assert_equal_results(&rows, others);
        answers.push(rows);
    }
    check(&answers[0], &answers[1]);
}

/// Compares the results of ClickHouse and DuckDB, which print times and whole doubles differently.
fn assert_equal_results(answers: &[Vec<Vec<String>>], others: &[serde_json::Value]) {
    assert_eq!(answers.len(), others.len());
    let mut compared = 0;
    for (answer, other) in answers.iter().zip(others) {
        let Ok(other) = serde_json::from_value::<Vec<Vec<String>>>(other.clone()) else {
            continue;
        };
        let without_times = |rows: &[Vec<String>]| -> BTreeSet<Vec<String>> {
            let others = |row: &Vec<String>| {
                let texts = row.iter().filter(|text| !text.starts_with("2024-01-01 "));
                texts
                    .map(|text| text.strip_suffix(".0").unwrap_or(text).to_owned())
                    .collect()
            };
            rows.iter().map(others).collect()
        };
        assert_eq!(without_times(answer), without_times(&other));
        compared += 1;
    }
    assert!(compared > 0);
}

/// Compares the results of the queries of the document, in its order: the results for `layout: wide` and for `layout:
/// stacks`.
fn check(wide: &[Vec<Vec<String>>], stacks: &[Vec<Vec<String>>]) {
    let [self_time, slowest, of_trace, errors, counter] = wide else {
        panic!("{} questions", wide.len());
    };
    let expected: BTreeSet<_> = SERVICES
        .iter()
        .flat_map(|service| {
            (0..)
                .zip(FUNCTIONS)
                .map(move |(at, function)| (service, at, function))
        })
        .map(|(service, at, function)| {
            let own = (0..ITEMS).filter(|item| item % FUNCTIONS.len() as u64 == at);
            vec![
                service.to_string(),
                function.to_owned(),
                own.sum::<u64>().to_string(),
            ]
        })
        .collect();
    assert_eq!(BTreeSet::from_iter(self_time.clone()), expected);
    // Rows with equal sort keys have no order.
    let [of_stacks] = stacks else {
        panic!("{} questions", stacks.len());
    };
    assert_eq!(BTreeSet::from_iter(of_stacks.clone()), expected);
    assert_eq!(self_time[0][1], "compress");

    let number = |row: &Vec<String>, column: usize| row[column].parse::<f64>().unwrap();
    assert_eq!(slowest.len(), 2 * SERVICES.len());
    let spans: f64 = slowest.iter().map(|row| number(row, 2)).sum();
    assert_eq!(spans, sum(|item| (item.div_ceil(2) % 2 == 0).into()));
    assert!(slowest.is_sorted_by(|a, b| number(a, 3) >= number(b, 3)));

    assert_eq!(of_trace.len() as f64, sum(|item| (item % 100 == 7).into()));
    assert!(of_trace.iter().all(|row| row[2].ends_with("7 pl\u{e4}ced")));
    assert!(of_trace.is_sorted_by(|a, b| a[0] <= b[0]));

    let is_error = |item| (severity(item) >= 17).into();
    let each = (sum(is_error) / SERVICES.len() as f64) as u64;
    let row = |namespace: &str, errors: u64| vec![namespace.to_owned(), errors.to_string()];
    assert_eq!(*errors, [row("shop", 2 * each), row("backend", each)]);

    assert_eq!(counter.len() as f64, sum(|_| 1));
    assert!(counter.iter().all(|row| row[1] == "/cart"));
    let values: f64 = counter.iter().map(|row| number(row, 2)).sum();
    assert_eq!(values, sum(|item| item));
}
