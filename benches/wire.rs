//! What each step of the wire path costs per item, next to decoding and encoding with prost.
//!
//! `cargo bench --bench wire [-- STEP]` prints nanoseconds (best and median of many runs) and, when `valgrind` is on
//! the path, instructions, which do not depend on how busy the machine is. `cargo test --benches` runs each step once.

use std::hint::black_box;
use std::process::Command;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};
use prost::Message;
use tributary::batch::{Decoded, Requests, Signal};
use tributary::wire::{self, Limit, json};

const SPANS: usize = 100;
const ATTRIBUTES: usize = 10;

/// One step: what it does to the sample, and how many items that is.
struct Step {
    name: &'static str,
    items: usize,
    run: Box<dyn Fn()>,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let steps = steps();
    if let [flag, name, rounds] = arguments.as_slice()
        && flag == "--rounds-of"
    {
        let rounds: usize = rounds.parse().unwrap_or(1);
        for step in steps.iter().filter(|step| step.name == name) {
            (0..rounds).for_each(|_| (step.run)());
        }
        return;
    }
    let wanted = |step: &&Step| {
        let mut filters = arguments
            .iter()
            .filter(|argument| !argument.starts_with('-'))
            .peekable();
        filters.peek().is_none() || filters.any(|filter| step.name.contains(filter.as_str()))
    };
    if !arguments.iter().any(|argument| argument == "--bench") {
        steps.iter().filter(wanted).for_each(|step| (step.run)());
        return;
    }
    println!(
        "{SPANS} spans of {ATTRIBUTES} attributes, {} bytes per span",
        sample().len() / SPANS
    );
    println!(
        "{:<34} {:>9} {:>9} {:>13}",
        "step", "best ns", "median ns", "instructions"
    );
    for step in steps.iter().filter(wanted) {
        let (best, median) = time(step);
        let instructions =
            instructions(step).map_or_else(|| "-".to_owned(), |count| format!("{count:.0}"));
        println!(
            "{:<34} {best:>9.1} {median:>9.1} {instructions:>13}",
            step.name
        );
    }
}

/// Nanoseconds per item.
fn time(step: &Step) -> (f64, f64) {
    const RUNS: usize = 400;
    const ROUNDS: usize = 5;
    let mut runs: Vec<f64> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            (0..ROUNDS).for_each(|_| (step.run)());
            start.elapsed().as_secs_f64() * 1e9 / (ROUNDS * step.items) as f64
        })
        .collect();
    runs.sort_by(f64::total_cmp);
    (runs[0], runs[RUNS / 2])
}

/// Instructions per item: the difference between many rounds and one, so that the start of the program cancels out.
fn instructions(step: &Step) -> Option<f64> {
    const MORE: usize = 20;
    let collected = |rounds: usize| {
        let output = Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg(std::env::current_exe().ok()?)
            .args(["--rounds-of", step.name, &rounds.to_string()])
            .output()
            .ok()?;
        let text = String::from_utf8(output.stderr).ok()?;
        let line = text.lines().find(|line| line.contains("Collected"))?;
        line.rsplit(' ').next()?.parse::<f64>().ok()
    };
    Some((collected(MORE + 1)? - collected(1)?) / (MORE * step.items) as f64)
}

fn steps() -> Vec<Step> {
    let request = sample();
    let decoded = ExportTraceServiceRequest::decode(request.clone()).expect("valid");
    let json = json::from_wire(Signal::Traces, &request).expect("valid");
    let step = |name: &'static str, run: Box<dyn Fn()>| Step {
        name,
        items: SPANS,
        run,
    };
    macro_rules! step {
        ($name:literal, $request:ident, $run:expr) => {{
            let $request = request.clone();
            step($name, Box::new(move || drop(black_box($run))))
        }};
    }
    vec![
        step!(
            "validate",
            request,
            wire::validate(Signal::Traces, black_box(&request))
        ),
        step!(
            "count",
            request,
            wire::count(Signal::Traces, black_box(&request))
        ),
        step!("append to a batch", request, {
            let mut batch = Requests::default();
            batch.push(black_box(&request).clone());
            batch
        }),
        step!(
            "concatenate (copy)",
            request,
            BytesMut::from(&black_box(&request)[..])
        ),
        step!("split in 10", request, {
            let limit = Limit {
                items: SPANS / 10,
                bytes: usize::MAX,
            };
            wire::split(Signal::Traces, black_box(&request), limit)
        }),
        step!(
            "prost: decode",
            request,
            Decoded::decode(Signal::Traces, black_box(&request))
        ),
        step!("prost: decode, encode", request, {
            Decoded::decode(Signal::Traces, black_box(&request)).map(|decoded| decoded.encode())
        }),
        step(
            "prost: encode",
            Box::new(move || drop(black_box(decoded.encode_to_vec()))),
        ),
        step!(
            "OTLP/JSON from wire",
            request,
            json::from_wire(Signal::Traces, black_box(&request))
        ),
        step(
            "OTLP/JSON to wire",
            Box::new(move || drop(black_box(json::to_wire(Signal::Traces, &json)))),
        ),
    ]
}

/// A request as an SDK sends it.
fn sample() -> Bytes {
    let spans = (0..SPANS as u64).map(|number| Span {
        trace_id: (u128::from(number) << 64 | 0x5bd9_7a6c_2f1e_8d4b)
            .to_be_bytes()
            .to_vec(),
        span_id: (number | 0xeee1_9b7e_c3c1_b100).to_be_bytes().to_vec(),
        parent_span_id: 0xeee1_9b7e_c3c1_b174_u64.to_be_bytes().to_vec(),
        flags: 0x101,
        name: "GET /api/v1/orders/{id}".to_owned(),
        kind: 2,
        start_time_unix_nano: 1_700_000_000_000_000_000 + number,
        end_time_unix_nano: 1_700_000_000_004_000_000 + number,
        attributes: (0..ATTRIBUTES as u64)
            .map(|at| attribute(at, number))
            .collect(),
        status: Some(Status::default()),
        ..Span::default()
    });
    let resource = Resource {
        attributes: (0..5).map(|at| attribute(at, 0)).collect(),
        ..Resource::default()
    };
    let request = ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(resource),
            scope_spans: vec![ScopeSpans {
                scope: Some(InstrumentationScope {
                    name: "io.opentelemetry.http".to_owned(),
                    version: "1.2.3".to_owned(),
                    ..InstrumentationScope::default()
                }),
                spans: spans.collect(),
                schema_url: String::new(),
            }],
            schema_url: "https://opentelemetry.io/schemas/1.26.0".to_owned(),
        }],
    };
    request.encode_to_vec().into()
}

fn attribute(at: u64, number: u64) -> KeyValue {
    let (key, value) = match at {
        0 => ("http.request.method", "GET".to_owned()),
        1 => ("url.path", format!("/api/v1/orders/{number:08}")),
        2 => ("server.address", "orders.internal.example".to_owned()),
        3 => (
            "user_agent.original",
            "Mozilla/5.0 (X11; Linux x86_64)".to_owned(),
        ),
        4 => ("network.protocol.version", "1.1".to_owned()),
        5 => ("http.route", "/api/v1/orders/{id}".to_owned()),
        6 => (
            "client.address",
            format!("10.0.{}.{}", number / 16, number % 16),
        ),
        7 => ("http.response.status_code", "200".to_owned()),
        8 => ("thread.name", format!("http-nio-8080-exec-{number}")),
        _ => ("url.scheme", "https".to_owned()),
    };
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue {
            value: Some(Value::StringValue(value)),
        }),
        ..KeyValue::default()
    }
}
