//! Cost of the `parquet` exporter: processor time per row, from encoded requests to compressed row
//! groups, and bytes per row.
//!
//! `cargo bench --bench parquet` prints a line per signal. `cargo bench --bench parquet --
//! DIRECTORY` also writes the files there for `benches/parquet_pyarrow.py`, which measures pyarrow
//! writing the same columns. `cargo test --benches` runs it over a few rows.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{
    Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum, number_data_point,
};
use opentelemetry_proto::tonic::profiles::v1development::{
    Function, Line, Location, Profile, ProfilesDictionary, ResourceProfiles, Sample, ScopeProfiles,
    Stack, ValueType,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message as _;
use tributary::exporters::parquet::table::{
    FileWriter, Layout, Partition, Sink, Table, TableKind, TableOptions, append,
};
use tributary_otlp::Signal;
use tributary_otlp::room::Unbounded;

/// Items of each request, all of one resource.
const ITEMS: u64 = 250;
/// Files of each signal; the fastest file is reported.
const ROUNDS: usize = 7;
/// A time at the start of an hour.
const START: u64 = 1_699_999_200_000_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let measured = arguments.iter().any(|argument| argument == "--bench");
    let directory = arguments
        .iter()
        .find(|argument| !argument.starts_with("--"));
    let requests = if measured { 400 } else { 2 };
    for (signal, kind) in [
        (Signal::Logs, TableKind::Logs),
        (Signal::Traces, TableKind::Traces),
        (Signal::Metrics, TableKind::Metrics),
        (Signal::Profiles, TableKind::Profiles),
    ] {
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let requests: Vec<Vec<u8>> = (0..requests)
            .map(|number| request(signal, number, &mut random))
            .collect();
        let file = measure(signal, kind, &requests)?;
        if let Some(directory) = directory {
            std::fs::write(
                PathBuf::from(directory).join(format!("{}.parquet", kind.name())),
                file,
            )?;
        }
    }
    Ok(())
}

/// Tables, one of each kind: all rows are of one hour.
struct Tables {
    layout: Arc<Layout>,
    tables: BTreeMap<TableKind, Table>,
}

impl Sink for Tables {
    fn table(&mut self, kind: TableKind, _: &Partition) -> Option<&mut Table> {
        let table = self.tables.entry(kind);
        Some(table.or_insert_with(|| Table::new(kind, &self.layout)))
    }
}

/// Returns the file. The code never blocks, so the elapsed time is processor time on an idle machine.
fn measure(
    signal: Signal,
    kind: TableKind,
    requests: &[Vec<u8>],
) -> Result<Vec<u8>, Box<dyn Error>> {
    let layout = Arc::new(Layout::new(&TableOptions::default()));
    let mut tables = Tables {
        layout: Arc::clone(&layout),
        tables: BTreeMap::new(),
    };
    let (mut fastest, mut file, mut rows, mut memory) = ((f64::MAX, f64::MAX), Vec::new(), 0, 0);
    for _ in 0..ROUNDS {
        let began = Instant::now();
        for request in requests {
            append(signal, request, &layout, false, &Unbounded, &mut tables)?;
        }
        let appended = began.elapsed().as_secs_f64();
        let table = tables.tables.get_mut(&kind).ok_or("no rows")?;
        (rows, memory) = (table.rows(), table.memory());
        let began = Instant::now();
        let mut writer = FileWriter::new(kind, &layout, Vec::new())?;
        table.write(&mut writer)?;
        (file, _) = writer.finish()?;
        fastest.0 = fastest.0.min(appended);
        fastest.1 = fastest.1.min(began.elapsed().as_secs_f64());
    }
    let (append, write) = fastest;
    let each = |of: f64| of * 1e9 / rows as f64;
    let raw: usize = requests.iter().map(Vec::len).sum();
    println!(
        "{:<9} {rows:>7} rows  {:>7.0} ns/row ({:.0} append, {:.0} write)  {:>9.0} rows/s  {:>6.1} bytes/row \
         ({:.1} as OTLP, {:.1} in memory)",
        kind.name(),
        each(append + write),
        each(append),
        each(write),
        rows as f64 / (append + write),
        file.len() as f64 / rows as f64,
        raw as f64 / rows as f64,
        memory as f64 / rows as f64,
    );
    Ok(file)
}

/// Numbers without a pattern (xorshift64), the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn id(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.below(256) as u8).collect()
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

const ROUTES: [&str; 8] = [
    "/api/cart",
    "/api/checkout",
    "/api/products/{id}",
    "/api/users/{id}",
    "/login",
    "/api/search",
    "/health",
    "/api/orders/{id}",
];

fn request(signal: Signal, number: u64, random: &mut Random) -> Vec<u8> {
    let pod = random.below(32);
    let time = START + number * 5_000_000_000;
    match signal {
        Signal::Logs => logs(pod, time, random),
        Signal::Traces => traces(pod, time, random),
        Signal::Metrics => metrics(pod, time, random),
        Signal::Profiles => profiles(pod, time, random),
    }
}

fn resource(pod: u64) -> Option<Resource> {
    let attributes = vec![
        text("service.name", &format!("service-{}", pod % 8)),
        text("service.version", "1.4.2"),
        text("k8s.namespace.name", "production"),
        text("k8s.pod.name", &format!("service-{}-7d4f{pod}", pod % 8)),
        text("k8s.node.name", &format!("node-{}", pod % 20)),
        text("host.name", &format!("ip-10-0-{}-{pod}", pod % 4)),
        text("cloud.region", "eu-central-1"),
        whole("process.pid", 1 + pod),
    ];
    Some(Resource {
        attributes,
        ..Resource::default()
    })
}

fn scope() -> Option<InstrumentationScope> {
    Some(InstrumentationScope {
        name: "io.opentelemetry.spring-webmvc-6.0".to_owned(),
        version: "2.11.0".to_owned(),
        ..InstrumentationScope::default()
    })
}

fn logs(pod: u64, start: u64, random: &mut Random) -> Vec<u8> {
    let record = |item: u64| {
        let time = start + item * 20_000_000 + random.below(1_000_000);
        let (number, severity) =
            random.of(&[(9, "INFO"), (9, "INFO"), (13, "WARN"), (17, "ERROR")]);
        let body = match random.below(4) {
            0 => format!(
                "Completed {} in {} ms",
                random.of(&ROUTES),
                random.below(2000)
            ),
            1 => "Cache miss".to_owned(),
            2 => format!("GET {} 200", random.of(&ROUTES)),
            _ => format!("Order {:08x} placed", random.below(1 << 32)),
        };
        LogRecord {
            time_unix_nano: time,
            observed_time_unix_nano: time + 1_000_000 + random.below(100_000),
            severity_number: number,
            severity_text: severity.to_owned(),
            body: text("", &body).value,
            trace_id: random.id(16),
            span_id: random.id(8),
            flags: 1,
            attributes: vec![
                text(
                    "thread.name",
                    &format!("http-nio-8080-exec-{}", random.below(40)),
                ),
                text(
                    "logger.name",
                    random.of(&["com.shop.Cart", "com.shop.Order", "org.web"]),
                ),
                text("http.route", random.of(&ROUTES)),
                text("user.id", &random.below(100_000).to_string()),
                whole("code.lineno", random.below(400)),
                text("session.id", &format!("{:016x}", random.below(1 << 60))),
            ],
            ..LogRecord::default()
        }
    };
    let request = ExportLogsServiceRequest {
        resource_logs: vec![ResourceLogs {
            resource: resource(pod),
            scope_logs: vec![ScopeLogs {
                scope: scope(),
                log_records: (0..ITEMS).map(record).collect(),
                ..ScopeLogs::default()
            }],
            ..ResourceLogs::default()
        }],
    };
    request.encode_to_vec()
}

fn traces(pod: u64, start: u64, random: &mut Random) -> Vec<u8> {
    let (mut trace, mut root) = (random.id(16), random.id(8));
    let span = |item: u64| {
        let is_root = item.is_multiple_of(10);
        if is_root {
            (trace, root) = (random.id(16), random.id(8));
        }
        let begin = start + item * 20_000_000 + random.below(900_000);
        let route = random.of(&ROUTES);
        Span {
            trace_id: trace.clone(),
            span_id: if is_root { root.clone() } else { random.id(8) },
            parent_span_id: if is_root { Vec::new() } else { root.clone() },
            name: format!("GET {route}"),
            kind: if is_root { 2 } else { 3 },
            start_time_unix_nano: begin,
            end_time_unix_nano: begin + random.below(50_000_000),
            flags: 257,
            attributes: vec![
                text("http.request.method", "GET"),
                text("http.route", route),
                whole(
                    "http.response.status_code",
                    random.of(&[200, 200, 404, 500]),
                ),
                text(
                    "server.address",
                    &format!("service-{}.production.svc", random.below(8)),
                ),
                whole("server.port", 8080),
                text(
                    "url.path",
                    &route.replace("{id}", &random.below(10_000).to_string()),
                ),
                text(
                    "client.address",
                    &format!("10.0.{}.{}", random.below(16), random.below(256)),
                ),
                whole("thread.id", random.below(60)),
            ],
            ..Span::default()
        }
    };
    let request = ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: resource(pod),
            scope_spans: vec![ScopeSpans {
                scope: scope(),
                spans: (0..ITEMS).map(span).collect(),
                ..ScopeSpans::default()
            }],
            ..ResourceSpans::default()
        }],
    };
    request.encode_to_vec()
}

fn metrics(pod: u64, start: u64, random: &mut Random) -> Vec<u8> {
    const METRICS: [&str; 10] = [
        "requests", "active", "errors", "memory", "bytes", "cpu", "duration", "latency", "threads",
        "queue",
    ];
    let metric = |name: &str| {
        let point = |at: u64| NumberDataPoint {
            start_time_unix_nano: START,
            time_unix_nano: start,
            attributes: vec![
                text("http.route", ROUTES[at as usize % ROUTES.len()]),
                text(
                    "http.request.method",
                    ["GET", "POST", "PUT", "DELETE"][at as usize / 8],
                ),
                whole("http.response.status_code", 200),
            ],
            value: Some(number_data_point::Value::AsInt(random.below(1 << 20) as i64)),
            ..NumberDataPoint::default()
        };
        Metric {
            name: format!("http.server.{name}"),
            unit: "1".to_owned(),
            description: "How many there were since the start of the process".to_owned(),
            data: Some(Data::Sum(Sum {
                data_points: (0..ITEMS / METRICS.len() as u64).map(point).collect(),
                aggregation_temporality: 2,
                is_monotonic: true,
            })),
            ..Metric::default()
        }
    };
    let request = ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: resource(pod),
            scope_metrics: vec![ScopeMetrics {
                scope: scope(),
                metrics: METRICS.into_iter().map(metric).collect(),
                ..ScopeMetrics::default()
            }],
            ..ResourceMetrics::default()
        }],
    };
    request.encode_to_vec()
}

/// Stacks of 16 to 40 frames of some hundred functions: each function calls another one.
fn profiles(pod: u64, start: u64, random: &mut Random) -> Vec<u8> {
    const FUNCTIONS: i32 = 400;
    let mut strings: Vec<String> = ["", "cpu", "nanoseconds", "/src/server/handler.go"]
        .map(str::to_owned)
        .into();
    strings.extend((0..FUNCTIONS).map(|at| {
        format!(
            "github.com/shop/server/module{}.(*Handler).step{at}",
            at % 20
        )
    }));
    let mut dictionary = ProfilesDictionary {
        mapping_table: vec![Default::default()],
        location_table: vec![Location::default()],
        function_table: vec![Function::default()],
        link_table: vec![Default::default()],
        attribute_table: vec![Default::default()],
        stack_table: vec![Stack::default()],
        string_table: strings,
    };
    for at in 0..FUNCTIONS {
        dictionary.function_table.push(Function {
            name_strindex: 4 + at,
            filename_strindex: 3,
            ..Function::default()
        });
        dictionary.location_table.push(Location {
            lines: vec![Line {
                function_index: 1 + at,
                line: i64::from(10 + at * 7),
                ..Line::default()
            }],
            ..Location::default()
        });
    }
    let stack = |_| {
        let mut frame = random.below(FUNCTIONS as u64);
        let frames = (0..16 + random.below(24)).map(|_| {
            frame = (frame * 5 + random.below(3)) % FUNCTIONS as u64;
            1 + frame as i32
        });
        Stack {
            location_indices: frames.collect(),
        }
    };
    dictionary.stack_table.extend((0..ITEMS).map(stack));
    let sample = |item: u64| Sample {
        stack_index: 1 + item as i32,
        values: vec![10_000_000 * (1 + random.below(20) as i64)],
        ..Sample::default()
    };
    let profile = Profile {
        sample_type: Some(ValueType {
            type_strindex: 1,
            unit_strindex: 2,
        }),
        samples: (0..ITEMS).map(sample).collect(),
        time_unix_nano: start,
        duration_nano: 10_000_000_000,
        ..Profile::default()
    };
    let request = ExportProfilesServiceRequest {
        resource_profiles: vec![ResourceProfiles {
            resource: resource(pod),
            scope_profiles: vec![ScopeProfiles {
                scope: scope(),
                profiles: vec![profile],
                ..ScopeProfiles::default()
            }],
            ..ResourceProfiles::default()
        }],
        dictionary: Some(dictionary),
    };
    request.encode_to_vec()
}

fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, Value::StringValue(value.to_owned()))
}

fn whole(key: &str, value: u64) -> KeyValue {
    attribute(key, Value::IntValue(value as i64))
}

fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}
