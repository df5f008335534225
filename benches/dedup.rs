//! Cost of `dedup` per item, for new items and for duplicates.
//!
//! Items of profiles are samples. Profiles without an id are hashed by content; `profiles, by id`
//! are profiles to which the first collector has assigned an id.
//!
//! `cargo bench --bench dedup` prints nanoseconds per item over many requests (best, median and
//! mean; the mean includes the growth of the tables) and the memory of remembered items. In the
//! rows with `full`, an old item is forgotten for each new one. `cargo bench --bench dedup --
//! traces 1000` is for a profiler: one signal, that many requests, no timing. `cargo test
//! --benches` runs each step over a few requests.

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{
    Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum,
};
use opentelemetry_proto::tonic::profiles::v1development as proto;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;
use tributary::component::{BuildContext, Extensions, ProcessorConfig, Stage};
use tributary::pipeline::Consumer;
use tributary::pipeline::Next;
use tributary::pipeline::account::Account;
use tributary::pipeline::batch::{Batch, Nack};
use tributary::pipeline::health::Health;
use tributary::processors::dedup::Config;
use tributary_config::units::ByteSize;
use tributary_memory::Budget;
use tributary_net::listeners::Listeners;
use tributary_otlp::Signal;

/// Items in each request.
const ITEMS: usize = 100;
/// Attributes of each item.
const ATTRIBUTES: usize = 10;

/// Accepts everything.
struct Sink;

impl Consumer for Sink {
    fn consume(&self, _: Batch) -> BoxFuture<'_, Result<(), Nack>> {
        Box::pin(async { Ok(()) })
    }

    fn behind(&self) -> Vec<Arc<dyn Consumer>> {
        Vec::new()
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, signal, requests, ..] = arguments.as_slice()
        && let (Some(signal), Ok(requests)) = (Signal::from_name(signal), requests.parse())
    {
        return only_run(signal, requests);
    }
    let measured = arguments.iter().any(|argument| argument == "--bench");
    let requests = if measured { 15_000 } else { 3 };
    println!("{requests} requests of {ITEMS} items of {ATTRIBUTES} attributes");
    println!(
        "{:<16} {:>9} {:>9} {:>9} {:>9} {:>9} {:>16}",
        "signal", "bytes", "best ns", "median ns", "mean ns", "again ns", "bytes remembered"
    );
    for signal in [Signal::Traces, Signal::Metrics, Signal::Logs] {
        measure(signal, false, requests, ByteSize::mib(64))?;
    }
    for ids in [false, true] {
        measure(
            Signal::Profiles,
            ids,
            requests.min(3_000),
            ByteSize::mib(64),
        )?;
    }
    // Room for a third of the items.
    let third = ByteSize((requests * ITEMS as u64 * 40 / 3).max(20 << 10));
    measure(Signal::Traces, false, requests, third)
}

fn only_run(signal: Signal, requests: u64) -> Result<(), Box<dyn Error>> {
    let dedup = processor(signal, &Budget::new(1 << 30), ByteSize::mib(64))?;
    let template = Template::new(signal, false)?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    for number in 0..requests {
        let batch = Batch::new(signal, ITEMS, template.request(number));
        runtime.block_on(dedup.consume(batch))?;
    }
    Ok(())
}

fn measure(
    signal: Signal,
    ids: bool,
    requests: u64,
    max_bytes: ByteSize,
) -> Result<(), Box<dyn Error>> {
    let budget = Budget::new(1 << 30);
    let dedup = processor(signal, &budget, max_bytes)?;
    let template = Template::new(signal, ids)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()?;
    let run = |number: u64| {
        // Dropped after the measurement, so that the time excludes the deallocation.
        let request = template.request(number);
        let batch = Batch::new(signal, ITEMS, request.clone());
        let start = Instant::now();
        runtime.block_on(dedup.consume(batch))?;
        Ok::<f64, Nack>(start.elapsed().as_secs_f64() * 1e9 / ITEMS as f64)
    };
    let mut new = (0..requests).map(run).collect::<Result<Vec<f64>, _>>()?;
    let mean = new.iter().sum::<f64>() / new.len() as f64;
    // At this time the remembered items exceed every cache.
    let mut late = new.split_off(new.len() / 2);
    late.sort_by(f64::total_cmp);
    let full = requests * ITEMS as u64 * 40 > max_bytes.0;
    let remembered = match full {
        true => "at the bound".to_owned(),
        false => {
            let items = (requests * ITEMS as u64) as f64;
            format!("{:.1}", budget.used() as f64 / items)
        }
    };
    // The last requests, because earlier ones may have been forgotten.
    let again = (1..=requests.min(1000)).map(|at| run(requests - at));
    let mut again = again.collect::<Result<Vec<f64>, _>>()?;
    again.sort_by(f64::total_cmp);
    println!(
        "{:<16} {:>9} {:>9.1} {:>9.1} {mean:>9.1} {:>9.1} {remembered:>16}",
        format!(
            "{}{}{}",
            signal.name(),
            if ids { ", by id" } else { "" },
            if full { ", full" } else { "" }
        ),
        template.bytes.len() / ITEMS,
        late[0],
        late[late.len() / 2],
        again[again.len() / 2],
    );
    Ok(())
}

/// A request into which other numbers are written. Encoding each request would leave the allocator with thousands of
/// freed blocks, which it would consolidate during the measurement.
struct Template {
    signal: Signal,
    bytes: Vec<u8>,
    /// Positions of the items' numbers.
    places: Vec<usize>,
}

impl Template {
    fn new(signal: Signal, ids: bool) -> Result<Self, &'static str> {
        let bytes = match signal {
            Signal::Profiles => profile(ids).into(),
            _ => request(signal, 0),
        };
        let bytes = bytes.to_vec();
        // A profile has one number for all its samples.
        let numbers = if signal == Signal::Profiles { 1 } else { ITEMS };
        let place = |number: u64| {
            let stamp = stamp(signal, number);
            let found = bytes.windows(8).position(|window| window == stamp);
            found.ok_or("an item does not have its number")
        };
        let places = (0..numbers as u64).map(place).collect::<Result<_, _>>()?;
        Ok(Template {
            signal,
            places,
            bytes,
        })
    }

    fn request(&self, number: u64) -> Bytes {
        let mut bytes = self.bytes.clone();
        for (number, place) in (number * ITEMS as u64..).zip(&self.places) {
            bytes[*place..*place + 8].copy_from_slice(&stamp(self.signal, number));
        }
        bytes.into()
    }
}

/// Encodes a number as in the items, see [`request`].
fn stamp(signal: Signal, number: u64) -> [u8; 8] {
    match signal {
        Signal::Traces => (number + 1).to_be_bytes(),
        _ => (1_700_000_000_000_000_000 + number).to_le_bytes(),
    }
}

fn processor(
    signal: Signal,
    budget: &Arc<Budget>,
    max_bytes: ByteSize,
) -> Result<Arc<dyn Consumer>, Box<dyn Error>> {
    let cx = BuildContext {
        id: "dedup".parse()?,
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
        max_bytes,
        ..Config::default()
    };
    let Ok(Stage::Buffering(connect)) = config.build(&cx, signal) else {
        unreachable!("it has to see what becomes of a batch");
    };
    let next = Next {
        consumer: Arc::new(Sink),
        account: Account::of_pipeline("bench"),
    };
    Ok(connect(next).0)
}

/// A request whose items depend on the number.
fn request(signal: Signal, number: u64) -> Bytes {
    let first = number * ITEMS as u64;
    let numbers = first..first + ITEMS as u64;
    match signal {
        Signal::Metrics => {
            let point = |number: u64| NumberDataPoint {
                attributes: attributes(),
                start_time_unix_nano: 1_600_000_000_000_000_000,
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

/// A CPU profile of many samples, with the number 0 as its time or id.
fn profile(with_id: bool) -> Vec<u8> {
    let index = |number: usize| i32::try_from(number).unwrap_or_default();
    let names = (0..ITEMS).map(|at| format!("example.com/service/package.Function{at}"));
    let fixed = ["", "cpu", "nanoseconds"].map(str::to_owned);
    let mut tables = proto::ProfilesDictionary {
        mapping_table: vec![Default::default()],
        location_table: vec![Default::default()],
        function_table: vec![Default::default()],
        link_table: vec![Default::default()],
        string_table: fixed.into_iter().chain(names).collect(),
        attribute_table: vec![Default::default()],
        stack_table: vec![Default::default()],
    };
    for at in 1..=ITEMS {
        tables.function_table.push(proto::Function {
            name_strindex: index(at + 2),
            ..Default::default()
        });
        tables.location_table.push(proto::Location {
            lines: vec![proto::Line {
                function_index: index(at),
                ..Default::default()
            }],
            ..Default::default()
        });
        let frames = (0..20).map(|depth| index(1 + (at * (depth + 1) + depth) % ITEMS));
        tables.stack_table.push(proto::Stack {
            location_indices: frames.collect(),
        });
    }
    let samples = (1..=ITEMS).map(|at| proto::Sample {
        stack_index: index(at),
        values: vec![10_000_000],
        ..Default::default()
    });
    let number = stamp(Signal::Profiles, 0);
    let profile = proto::Profile {
        sample_type: Some(proto::ValueType {
            type_strindex: 1,
            unit_strindex: 2,
        }),
        samples: samples.collect(),
        time_unix_nano: if with_id {
            1
        } else {
            u64::from_le_bytes(number)
        },
        duration_nano: 10,
        profile_id: if with_id {
            number.repeat(2)
        } else {
            Vec::new()
        },
        ..Default::default()
    };
    let request = ExportProfilesServiceRequest {
        resource_profiles: vec![proto::ResourceProfiles {
            scope_profiles: vec![proto::ScopeProfiles {
                profiles: vec![profile],
                ..Default::default()
            }],
            ..Default::default()
        }],
        dictionary: Some(tables),
    };
    request.encode_to_vec()
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
