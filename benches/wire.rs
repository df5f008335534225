//! Cost per item of each step of the wire path, compared to decoding and encoding with prost.
//!
//! `cargo bench --bench wire [-- STEP]` prints nanoseconds (best and median of many runs) and, when
//! `valgrind` is on the path, instructions, which do not depend on the load of the machine. `cargo
//! test --benches` runs each step once.

use std::hint::black_box;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};
use prost::Message;
use serde::de::DeserializeOwned;
use tributary::component::{Host, ProcessorConfig, Stage};
use tributary::pipeline::Processor;
use tributary::pipeline::batch::Batch;
use tributary::processors::{filter, probabilistic_sampler, redaction, transform};
use tributary_memory::Budget;
use tributary_net::listeners::Listeners;
use tributary_otlp::attributes::{Action, Actions, AttributeLevel, Operation, ValueSource};
use tributary_otlp::stamp::Stamp;
use tributary_otlp::{Decoded, Requests, Signal};
use tributary_otlp::{Limit, json};

/// Samples, and spans in each.
const REQUESTS: usize = 40;
const SPANS: usize = 100;
/// Attributes of a span.
const ATTRIBUTES: u64 = 10;

/// One step: its function over all samples, and the number of their items.
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
    let bytes: usize = samples().iter().map(Message::encoded_len).sum();
    println!(
        "{REQUESTS} requests of {SPANS} spans of {ATTRIBUTES} attributes, {} bytes per span",
        bytes / (REQUESTS * SPANS)
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
    const RUNS: usize = 100;
    let mut runs: Vec<f64> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            (step.run)();
            start.elapsed().as_secs_f64() * 1e9 / step.items as f64
        })
        .collect();
    runs.sort_by(f64::total_cmp);
    (runs[0], runs[RUNS / 2])
}

/// Instructions per item: the difference between many rounds and one round, so that the start of the program cancels
/// out.
fn instructions(step: &Step) -> Option<f64> {
    const MORE: usize = 2;
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
    let requests: Vec<Bytes> = samples()
        .iter()
        .map(|sample| sample.encode_to_vec().into())
        .collect();
    let texts: Vec<Vec<u8>> = requests
        .iter()
        .filter_map(|request| json::from_wire(Signal::Traces, request).ok())
        .collect();
    let mut steps = Vec::new();
    /// A step that is carried out on each of the samples.
    macro_rules! step {
        ($name:literal, $samples:expr, |$sample:ident| $run:expr) => {{
            let samples = $samples;
            steps.push(Step {
                name: $name,
                items: SPANS * REQUESTS,
                run: Box::new(move || {
                    for $sample in &samples {
                        let _ = black_box($run);
                    }
                }),
            });
        }};
    }
    step!("validate", requests.clone(), |r| tributary_otlp::validate(
        Signal::Traces,
        r
    ));
    step!("count", requests.clone(), |r| tributary_otlp::count(
        Signal::Traces,
        r
    ));
    step!("batch: append", requests.clone(), |r| {
        let mut batch = Requests::default();
        batch.push(r.clone());
        batch
    });
    step!("batch: join (copy)", requests.clone(), |r| BytesMut::from(
        &r[..]
    ));
    step!("split in 10", requests.clone(), |r| {
        let limit = Limit {
            items: SPANS / 10,
            bytes: usize::MAX,
        };
        tributary_otlp::split(Signal::Traces, r, limit)
    });
    let value = || ValueSource::Value(Value::StringValue("redacted".to_owned()));
    let edit = |key: &str, operation| {
        let key = key.to_owned();
        Actions::new(vec![Action { key, operation }])
    };
    let with_hits: Vec<Bytes> = samples_with_hits()
        .iter()
        .map(|sample| sample.encode_to_vec().into())
        .collect();
    for (name, requests, detectors) in [
        ("redaction: walk, no detectors", &requests, "[]"),
        ("redaction: no hits", &requests, USUAL),
        ("redaction: 1 hit in 5 spans", &with_hits, USUAL),
    ] {
        let yaml = format!("{{allow_all_keys: true, detectors: {detectors}}}");
        let processor = processor::<redaction::Config>("redaction", &yaml);
        steps.push(through(name, processor, requests));
    }
    // With patterns for keys and values, as in configurations.
    for (name, requests) in [
        ("redaction: the example, no hits", &requests),
        ("redaction: the example, 1 hit in 5", &with_hits),
    ] {
        let processor = processor::<redaction::Config>("redaction", &example());
        steps.push(through(name, processor, requests));
    }
    let actions = edit("client.address", Operation::Update(value()));
    step!("attributes: update, all hit", requests.clone(), |r| {
        actions.apply(Signal::Traces, AttributeLevel::Items, r)
    });
    let actions = edit("deployment.environment", Operation::Upsert(value()));
    step!("attributes: upsert, all new", requests.clone(), |r| {
        actions.apply(Signal::Traces, AttributeLevel::Items, r)
    });
    let actions = edit("client.address", Operation::Delete);
    step!("attributes: delete, all hit", requests.clone(), |r| {
        actions.apply(Signal::Traces, AttributeLevel::Items, r)
    });
    let actions = edit("enduser.address", Operation::Delete);
    step!("attributes: delete, no hit", requests.clone(), |r| {
        actions.apply(Signal::Traces, AttributeLevel::Items, r)
    });
    let actions = edit("host.name", Operation::Upsert(value()));
    step!("attributes: upsert, resource", requests.clone(), |r| {
        actions.apply(Signal::Traces, AttributeLevel::Resources, r)
    });
    let actions = edit("client.address", Operation::Hash);
    step!("attributes: hash, all hit", requests.clone(), |r| {
        actions.apply(Signal::Traces, AttributeLevel::Items, r)
    });
    let pattern = || regex::Regex::new("^client\\.").map(std::sync::Arc::new);
    let actions = pattern().map(Operation::DeleteMatching);
    let actions = actions.map(|operation| edit("", operation));
    step!("attributes: delete by pattern", requests.clone(), |r| {
        actions
            .as_ref()
            .map(|actions| actions.apply(Signal::Traces, AttributeLevel::Items, r))
    });
    for (name, yaml) in [
        (
            "filter: attribute, no hit",
            "{trace_conditions: ['span.attributes[\"url.scheme\"] == \"no\"']}",
        ),
        (
            "filter: kind, a third goes",
            "{trace_conditions: ['span.kind == SPAN_KIND_SERVER']}",
        ),
        (
            "filter: how long it took, no hit",
            "{trace_conditions: ['span.end_time - span.start_time > Duration(\"1h\")']}",
        ),
    ] {
        let processor = processor::<filter::Config>("filter", yaml);
        steps.push(through(name, processor, &requests));
    }
    for (name, yaml) in [
        ("transform: no statement", "{}"),
        (
            "transform: set where, no hit",
            "{trace_statements: ['set(span.attributes[\"a\"], \"b\") where span.attributes[\"url.scheme\"] == \"no\"']}",
        ),
        (
            "transform: set where, all hit",
            "{trace_statements: ['set(span.attributes[\"a\"], \"b\") where span.attributes[\"url.scheme\"] != \"no\"']}",
        ),
    ] {
        let processor = processor::<transform::TransformConfig>("transform", yaml);
        steps.push(through(name, processor, &requests));
    }
    let sampler = processor::<probabilistic_sampler::Config>(
        "probabilistic_sampler",
        "{sampling_percentage: 10, hash_seed: 22}",
    );
    steps.push(through(
        "sampler: hash_seed, a tenth stays",
        sampler,
        &requests,
    ));
    let stamp = Stamp::new("client.identity");
    let identity = Some("spiffe://example.com/ns/shop/sa/checkout");
    let forgeries = stamp.clone();
    step!("stamp: all resources", requests.clone(), |r| {
        let stamping = stamp.prepare(Signal::Traces, identity, r);
        stamping.and_then(|stamping| stamping.write())
    });
    step!("stamp: look for forgeries", requests.clone(), |r| {
        let stamping = forgeries.prepare(Signal::Traces, None, r);
        stamping.and_then(|stamping| stamping.write())
    });
    step!("prost: decode", requests.clone(), |r| Decoded::decode(
        Signal::Traces,
        r
    ));
    step!("prost: encode", samples(), |r| r.encode_to_vec());
    let actions = edit("client.address", Operation::Update(value()));
    step!("prost: decode, update, encode", requests.clone(), |r| {
        Decoded::decode(Signal::Traces, r).map(|mut decoded| {
            actions.apply_decoded(AttributeLevel::Items, &mut decoded);
            decoded.encode()
        })
    });
    step!("OTLP/JSON: from wire", requests.clone(), |r| {
        json::from_wire(Signal::Traces, r)
    });
    step!("OTLP/JSON: to wire", texts.clone(), |text| json::to_wire(
        Signal::Traces,
        text
    ));
    steps
}

/// A step that sends all samples through a processor.
fn through(name: &'static str, processor: Box<dyn Processor>, requests: &[Bytes]) -> Step {
    let batches: Vec<Batch> = requests
        .iter()
        .map(|request| Batch::new(Signal::Traces, SPANS, request.clone()))
        .collect();
    Step {
        name,
        items: SPANS * REQUESTS,
        run: Box::new(move || {
            for batch in &batches {
                let _ = black_box(processor.process(batch.clone()));
            }
        }),
    }
}

fn processor<C: ProcessorConfig + DeserializeOwned>(id: &str, yaml: &str) -> Box<dyn Processor> {
    let host = Host {
        budget: Budget::new(1 << 30),
        listeners: Listeners::default(),
        stored_queues: Default::default(),
        profile_stores: Default::default(),
        introspection: Default::default(),
        health: Arc::default(),
    };
    let config = serde_yaml::from_str::<C>(yaml);
    let stage = config
        .ok()
        .zip(id.parse().ok())
        .and_then(|(config, id)| config.build(&host.context(&id), Signal::Traces).ok());
    match stage {
        Some(Stage::Pure(processor)) => processor,
        _ => unreachable!("it can be built and holds nothing"),
    }
}

/// The processor of `examples/configs/redaction.yaml`.
fn example() -> String {
    let file = include_str!("../examples/configs/redaction.yaml");
    let file: Result<serde_yaml::Value, _> = serde_yaml::from_str(file);
    let processor = file.ok().and_then(|file| {
        let processor = file.get("processors")?.get("redaction")?;
        serde_yaml::to_string(processor).ok()
    });
    processor.unwrap_or_default()
}

/// All detectors but `high_entropy`.
const USUAL: &str = "[private_key, jwt, aws_access_key, gcp_api_key, github_token, slack_token, stripe_key, \
    basic_auth, bearer_token, url_credentials, email, iban, credit_card, us_ssn, mac_address, ip_address, phone, \
    home_directory]";

/// The same with an address in an attribute of every fifth span.
fn samples_with_hits() -> Vec<ExportTraceServiceRequest> {
    let mut samples = samples();
    let spans = samples
        .iter_mut()
        .flat_map(|request| &mut request.resource_spans)
        .flat_map(|resource| &mut resource.scope_spans)
        .flat_map(|scope| &mut scope.spans);
    for span in spans.step_by(5) {
        if let Some(attribute) = span.attributes.get_mut(1)
            && let Some(AnyValue {
                value: Some(Value::StringValue(text)),
            }) = &mut attribute.value
        {
            text.insert_str(0, "jane.roe@example.com ");
        }
    }
    samples
}

/// Requests of an SDK. All spans differ, so that branch predictors cannot learn them.
fn samples() -> Vec<ExportTraceServiceRequest> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    (0..REQUESTS).map(|_| request(&mut random)).collect()
}

fn request(random: &mut Random) -> ExportTraceServiceRequest {
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(Resource {
                attributes: (0..5).map(|at| attribute(at, random)).collect(),
                ..Resource::default()
            }),
            scope_spans: vec![ScopeSpans {
                scope: Some(InstrumentationScope {
                    name: "io.opentelemetry.http".to_owned(),
                    version: "1.2.3".to_owned(),
                    ..InstrumentationScope::default()
                }),
                spans: (0..SPANS).map(|_| span(random)).collect(),
                schema_url: String::new(),
            }],
            schema_url: "https://opentelemetry.io/schemas/1.26.0".to_owned(),
        }],
    }
}

fn span(random: &mut Random) -> Span {
    let start = 1_700_000_000_000_000_000 + random.below(1 << 30);
    let first = random.below(ATTRIBUTES);
    Span {
        trace_id: [random.next().to_le_bytes(), random.next().to_le_bytes()].concat(),
        span_id: random.next().to_le_bytes().to_vec(),
        parent_span_id: match random.below(4) {
            0 => Vec::new(),
            _ => random.next().to_le_bytes().to_vec(),
        },
        flags: 0x101,
        name: format!("GET /{}", random.text(8, 30)),
        kind: 1 + random.below(3) as i32,
        start_time_unix_nano: start,
        end_time_unix_nano: start + random.below(1 << 24),
        attributes: (0..ATTRIBUTES)
            .map(|at| attribute((first + at) % ATTRIBUTES, random))
            .collect(),
        status: Some(Status {
            code: (random.below(8) == 0).into(),
            ..Status::default()
        }),
        ..Span::default()
    }
}

/// With the lengths, numbers and signs that values have.
fn attribute(at: u64, random: &mut Random) -> KeyValue {
    let word = random.text(4, 12);
    let (key, value) = match at {
        0 => (
            "http.request.method",
            ["GET", "POST", "DELETE"][random.below(3) as usize].to_owned(),
        ),
        1 => (
            "url.path",
            format!("/api/v2/{word}/{}", random.below(100_000)),
        ),
        2 => ("server.address", format!("{word}.prod.svc.cluster.local")),
        3 => (
            "user_agent.original",
            format!(
                "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/{}.0 Safari/537.36",
                100 + random.below(40)
            ),
        ),
        4 => ("network.protocol.version", format!("1.{}", random.below(2))),
        5 => ("http.route", format!("/api/v2/{word}/{{{word}_id}}")),
        6 => ("enduser.id", format!("u-{:016x}", random.next())),
        7 => (
            "http.response.status_code",
            (200 + 100 * random.below(4)).to_string(),
        ),
        8 => (
            "db.query.text",
            format!("SELECT id, name, price FROM {word} WHERE id = $1 AND region = $2 LIMIT 50"),
        ),
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

/// xorshift64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn text(&mut self, shortest: u64, longest: u64) -> String {
        let length = shortest + self.below(longest - shortest + 1);
        (0..length)
            .map(|_| char::from(b'a' + self.below(26) as u8))
            .collect()
    }
}
