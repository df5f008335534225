//! Cost of the `prometheus` exporter: per point of a new series, per point of a known series, per page, and memory per
//! series.
//!
//! `cargo bench --bench prometheus` prints tables for counters, for counters sent as deltas, and
//! for histograms of ten buckets; a page is fetched over a connection as Prometheus does. `cargo
//! bench --bench prometheus -- 1000000` uses that many series. `cargo test --benches` runs each
//! step over a few series.

use std::error::Error;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::metrics::v1::{
    Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use tributary::component::{BuildContext, ExporterConfig, Extensions, Terminal};
use tributary::exporters::prometheus::Config;
use tributary::pipeline::Consumer;
use tributary::pipeline::batch::Batch;
use tributary::pipeline::health::Health;
use tributary_config::Endpoint;
use tributary_memory::Budget;
use tributary_net::listeners::Listeners;
use tributary_otlp::Signal;

/// Points in each request, all of one metric of one resource.
const POINTS: usize = 1000;
/// Between two points of a series, in nanoseconds.
const INTERVAL: u64 = 10_000_000_000;
/// Rounds of points. After them a series of deltas has its full memory.
const ROUNDS: u64 = 10;
/// Pages of each format.
const PAGES: usize = 9;

/// Kind of measured metrics.
#[derive(Clone, Copy, PartialEq)]
enum Shape {
    Counters,
    Deltas,
    Histograms,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let measured = arguments.iter().any(|argument| argument == "--bench");
    let given = arguments.iter().find_map(|argument| argument.parse().ok());
    let series = given.unwrap_or(if measured { 100_000 } else { 2000 });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let _entered = runtime.enter();
    for shape in [Shape::Counters, Shape::Deltas, Shape::Histograms] {
        // Each line of a histogram is a series.
        let points = match shape {
            Shape::Histograms => series / 12,
            _ => series,
        };
        measure(&runtime, points, shape)?;
    }
    Ok(())
}

fn measure(
    runtime: &tokio::runtime::Runtime,
    points: usize,
    shape: Shape,
) -> Result<(), Box<dyn Error>> {
    let budget = Budget::new(4 << 30);
    let cx = BuildContext {
        id: "prometheus".parse()?,
        budget: budget.clone(),
        listeners: Listeners::default(),
        stored_queues: Default::default(),
        profile_stores: Default::default(),
        introspection: Default::default(),
        health: Arc::<Health>::default(),
        extensions: Extensions::default(),
        pipeline: String::new(),
    };
    let config = Config {
        endpoint: Endpoint("127.0.0.1:0".to_owned()),
        enable_open_metrics: true,
        max_series: 0,
        ..Config::default()
    };
    let Terminal {
        inputs,
        mut component,
    } = config.build(&cx, &[Signal::Metrics])?;
    let address = cx.listeners.bind(&cx.id, &config.endpoint)?.local_addr()?;
    component.start();
    let input = inputs.get(Signal::Metrics).ok_or("no input")?;
    let what = match shape {
        Shape::Counters => "counters",
        Shape::Deltas => "counters, as deltas",
        Shape::Histograms => "histograms of 10 buckets",
    };
    println!("{points} {what} with 5 attributes");
    let before = resident();
    let mut fastest = Duration::MAX;
    for round in 0..ROUNDS {
        let taken = take(runtime, input, points, round, shape)?;
        let (step, taken) = match round {
            0 => ("new", taken),
            _ => {
                fastest = fastest.min(taken);
                ("known", fastest)
            }
        };
        if round == 0 || round == ROUNDS - 1 {
            let grown = resident().saturating_sub(before) as f64 / points as f64;
            let each = taken.as_secs_f64() * 1e9 / points as f64;
            println!("  a point, {step:<6} {each:>9.1} ns  {grown:>7.1} bytes resident per series");
        }
    }
    println!(
        "  memory, counted  {:>9.1} bytes per point",
        budget.used() as f64 / points as f64
    );
    let protobuf = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily";
    for (name, accept, encoding) in [
        ("text", "text/plain", "identity"),
        ("text, gzip", "text/plain", "gzip"),
        ("openmetrics", "application/openmetrics-text", "identity"),
        ("protobuf", protobuf, "identity"),
        ("protobuf, gzip", protobuf, "gzip"),
    ] {
        let mut pages = Vec::with_capacity(PAGES);
        for _ in 0..PAGES {
            pages.push(scrape(address, accept, encoding)?);
        }
        pages.sort_unstable();
        let (time, bytes) = pages[PAGES / 2];
        let milliseconds = time.as_secs_f64() * 1e3;
        println!("  page, {name:<14} {milliseconds:>8.1} ms {bytes:>12} bytes");
    }
    let deadline = tokio::time::Instant::now() + Duration::from_secs(5);
    runtime.block_on(component.shutdown(deadline));
    Ok(())
}

/// Brings a point of each series; the time is that of the exporter alone.
fn take(
    runtime: &tokio::runtime::Runtime,
    input: &Arc<dyn Consumer>,
    points: usize,
    round: u64,
    shape: Shape,
) -> Result<Duration, Box<dyn Error>> {
    let mut taken = Duration::ZERO;
    for first in (0..points).step_by(POINTS) {
        let end = points.min(first + POINTS);
        let batch = Batch::new(
            Signal::Metrics,
            end - first,
            request(first..end, round, shape),
        );
        let began = Instant::now();
        runtime.block_on(input.consume(batch))?;
        taken += began.elapsed();
    }
    Ok(taken)
}

/// The time until the last byte, and how many there were.
fn scrape(
    address: SocketAddr,
    accept: &str,
    encoding: &str,
) -> Result<(Duration, usize), Box<dyn Error>> {
    let mut connection = TcpStream::connect(address)?;
    let began = Instant::now();
    write!(
        connection,
        "GET /metrics HTTP/1.0\r\nhost: bench\r\naccept: {accept}\r\naccept-encoding: {encoding}\r\n\r\n"
    )?;
    let mut page = Vec::new();
    connection.read_to_end(&mut page)?;
    if !page.starts_with(b"HTTP/1.0 200") {
        return Err("no page".into());
    }
    Ok((began.elapsed(), page.len()))
}

fn request(numbers: std::ops::Range<usize>, round: u64, shape: Shape) -> Bytes {
    let name = format!("requests.{}", numbers.start / POINTS % 100);
    let time = 1_700_000_000_000_000_000 + round * INTERVAL;
    let data = if shape == Shape::Histograms {
        let point = |number: usize| HistogramDataPoint {
            attributes: attributes(number),
            start_time_unix_nano: 1_600_000_000_000_000_000,
            time_unix_nano: time,
            count: 55 + 10 * round,
            sum: Some(number as f64 * 0.7),
            bucket_counts: (1..=10).map(|count| count + round).collect(),
            explicit_bounds: (1..10).map(|bound| f64::from(bound) * 0.1).collect(),
            ..HistogramDataPoint::default()
        };
        Data::Histogram(Histogram {
            data_points: numbers.map(point).collect(),
            aggregation_temporality: 2,
        })
    } else {
        let point = |number: usize| NumberDataPoint {
            attributes: attributes(number),
            start_time_unix_nano: 1_600_000_000_000_000_000,
            time_unix_nano: time,
            value: Some(Number::AsInt((number as i64) * 37)),
            ..NumberDataPoint::default()
        };
        Data::Sum(Sum {
            data_points: numbers.map(point).collect(),
            aggregation_temporality: if shape == Shape::Deltas { 1 } else { 2 },
            is_monotonic: true,
        })
    };
    let resource = [
        ("service.name", "checkout"),
        ("service.instance.id", "pod-1"),
    ];
    let request = ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(Resource {
                attributes: resource.map(|(key, value)| attribute(key, value)).to_vec(),
                ..Resource::default()
            }),
            scope_metrics: vec![ScopeMetrics {
                metrics: vec![Metric {
                    name,
                    description: "Requests".to_owned(),
                    data: Some(data),
                    ..Metric::default()
                }],
                ..ScopeMetrics::default()
            }],
            ..ResourceMetrics::default()
        }],
    };
    request.encode_to_vec().into()
}

fn attributes(number: usize) -> Vec<KeyValue> {
    let path = format!("/api/v1/items/{}", number % 1000);
    let user = format!("tenant-{}", number / 1000);
    [
        ("http.request.method", ["GET", "POST", "PUT"][number % 3]),
        ("http.route", &path),
        (
            "http.response.status_code",
            ["200", "404", "500"][number / 3 % 3],
        ),
        ("tenant", &user),
        ("k8s.namespace.name", "production"),
    ]
    .map(|(key, value)| attribute(key, value))
    .to_vec()
}

fn attribute(key: &str, value: &str) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue {
            value: Some(Value::StringValue(value.to_owned())),
        }),
        ..KeyValue::default()
    }
}

/// Bytes of this process in memory.
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = pages.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0) * 4096
}
