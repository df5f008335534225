//! What `dedup` costs per item: for what is new, and for what was delivered before.
//!
//! `cargo bench --bench dedup` prints nanoseconds per item (best and median over many requests) and the memory of what
//! is remembered. `cargo test --benches` runs each step over a few requests.

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{
    Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum,
};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;
use tributary::batch::{Batch, Nack, Signal};
use tributary::component::{BuildContext, Extensions, Next, ProcessorConfig, Stage};
use tributary::health::Health;
use tributary::memory::Budget;
use tributary::net::listeners::Listeners;
use tributary::pipeline::{BoxFuture, Consumer};
use tributary::processors::dedup::Config;
use tributary::telemetry::Account;

/// Items in each request.
const ITEMS: usize = 100;
/// Attributes of each item.
const ATTRIBUTES: usize = 10;

/// Takes everything.
struct Taker;

impl Consumer for Taker {
    fn consume(&self, _: Batch) -> BoxFuture<'_, Result<(), Nack>> {
        Box::pin(async { Ok(()) })
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let measured = std::env::args().any(|argument| argument == "--bench");
    let requests = if measured { 15_000 } else { 3 };
    println!("{requests} requests of {ITEMS} items of {ATTRIBUTES} attributes");
    println!(
        "{:<10} {:>9} {:>9} {:>11} {:>11} {:>16}",
        "signal", "bytes", "best ns", "median ns", "again ns", "bytes remembered"
    );
    for signal in [Signal::Traces, Signal::Metrics, Signal::Logs] {
        measure(signal, requests)?;
    }
    Ok(())
}

fn measure(signal: Signal, requests: u64) -> Result<(), Box<dyn Error>> {
    let budget = Budget::new(1 << 30);
    let dedup = processor(signal, &budget)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()?;
    let run = |number: u64| {
        // Held until the time is taken: freeing it is not what is measured.
        let request = request(signal, number);
        let batch = Batch::new(signal, ITEMS, request.clone());
        let start = Instant::now();
        runtime.block_on(dedup.consume(batch))?;
        Ok::<f64, Nack>(start.elapsed().as_secs_f64() * 1e9 / ITEMS as f64)
    };
    let mut new = (0..requests).map(run).collect::<Result<Vec<f64>, _>>()?;
    // By then what is remembered does not fit into any cache.
    let mut late = new.split_off(new.len() / 2);
    late.sort_by(f64::total_cmp);
    let remembered = budget.used() as f64 / (requests * ITEMS as u64) as f64;
    let again = (0..requests.min(1000)).map(|at| run(at * 7 % requests));
    let mut again = again.collect::<Result<Vec<f64>, _>>()?;
    again.sort_by(f64::total_cmp);
    println!(
        "{:<10} {:>9} {:>9.1} {:>11.1} {:>11.1} {remembered:>16.1}",
        signal.name(),
        request(signal, 1).len() / ITEMS,
        late[0],
        late[late.len() / 2],
        again[again.len() / 2],
    );
    Ok(())
}

fn processor(signal: Signal, budget: &Arc<Budget>) -> Result<Arc<dyn Consumer>, Box<dyn Error>> {
    let cx = BuildContext {
        id: "dedup".parse()?,
        budget: budget.clone(),
        listeners: Listeners::default(),
        health: Arc::<Health>::default(),
        extensions: Extensions::default(),
    };
    let Ok(Stage::Holding(connect)) = Config::default().build(&cx, signal) else {
        unreachable!("it has to see what becomes of a batch");
    };
    let next = Next {
        consumer: Arc::new(Taker),
        account: Account::of_pipeline("bench"),
    };
    Ok(connect(next).0)
}

/// A request with items that no other number has.
fn request(signal: Signal, number: u64) -> Bytes {
    let first = number * ITEMS as u64;
    let numbers = first..first + ITEMS as u64;
    match signal {
        Signal::Metrics => {
            let point = |number: u64| NumberDataPoint {
                attributes: attributes(),
                start_time_unix_nano: 1_700_000_000_000_000_000,
                time_unix_nano: 1_700_000_000_000_000_000 + number,
                ..NumberDataPoint::default()
            };
            let metric = Metric {
                name: "http.server.request.body.size".to_owned(),
                data: Some(Data::Sum(Sum {
                    data_points: numbers.map(point).collect(),
                    ..Sum::default()
                })),
                ..Metric::default()
            };
            let scope_metrics = vec![ScopeMetrics {
                metrics: vec![metric],
                ..ScopeMetrics::default()
            }];
            let resource_metrics = vec![ResourceMetrics {
                scope_metrics,
                ..ResourceMetrics::default()
            }];
            ExportMetricsServiceRequest { resource_metrics }.encode_to_vec()
        }
        Signal::Logs => {
            let record = |number: u64| LogRecord {
                time_unix_nano: 1_700_000_000_000_000_000 + number,
                body: Some(AnyValue {
                    value: Some(Value::StringValue("something has happened".to_owned())),
                }),
                attributes: attributes(),
                ..LogRecord::default()
            };
            let scope_logs = vec![ScopeLogs {
                log_records: numbers.map(record).collect(),
                ..ScopeLogs::default()
            }];
            let resource_logs = vec![ResourceLogs {
                scope_logs,
                ..ResourceLogs::default()
            }];
            ExportLogsServiceRequest { resource_logs }.encode_to_vec()
        }
        _ => {
            let span = |number: u64| Span {
                trace_id: vec![7; 16],
                span_id: (number + 1).to_be_bytes().to_vec(),
                name: "GET /checkout/{id}".to_owned(),
                start_time_unix_nano: 1_700_000_000_000_000_000,
                end_time_unix_nano: 1_700_000_000_001_000_000,
                attributes: attributes(),
                ..Span::default()
            };
            let scope_spans = vec![ScopeSpans {
                spans: numbers.map(span).collect(),
                ..ScopeSpans::default()
            }];
            let resource_spans = vec![ResourceSpans {
                scope_spans,
                ..ResourceSpans::default()
            }];
            ExportTraceServiceRequest { resource_spans }.encode_to_vec()
        }
    }
    .into()
}

fn attributes() -> Vec<KeyValue> {
    let attribute = |at: usize| KeyValue {
        key: format!("http.request.header.x-{at}"),
        value: Some(AnyValue {
            value: Some(Value::StringValue("a value of some length".to_owned())),
        }),
        ..KeyValue::default()
    };
    (0..ATTRIBUTES).map(attribute).collect()
}
