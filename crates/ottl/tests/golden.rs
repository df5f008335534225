//! Statements have the effects that they have in the Collector (contrib 0.160).
//!
//! `golden/golden.txt` has inputs, and statements with their results. `golden/main.go` wrote it from `inputs.txt` and
//! `statements.txt`.

// A test crate: a panic is a finding.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{Metric, ResourceMetrics, ScopeMetrics};
use opentelemetry_proto::tonic::trace::v1::span::Event;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message as _;
use serde_json::Value as Json;
use tributary_otlp::Signal;
use tributary_otlp::json;
use tributary_otlp::view::Message;
use tributary_ottl::path::Context;
use tributary_ottl::statement::{PartChange, Statement};
use tributary_ottl::{EvaluationTarget, parse_statement};

const GOLDEN: &str = include_str!("golden/golden.txt");

/// Beginnings of rows in which the Collector differs, with the beginning of its result, and the reason.
const DIFFERENCES: &[(&str, &str, &str)] = &[
    (
        "set(attributes[\"out\"], Log(",
        "",
        "libraries differ in the last digit",
    ),
    (
        "set(attributes[\"out\"], Is",
        "invalid",
        "the Collector refuses a literal of another type",
    ),
    (
        "set(attributes[\"out\"], Format(\"%s-%v\", [body,",
        "",
        "the Collector prints addresses of memory",
    ),
    (
        "set(attributes[\"out\"], Format(\"%s\", [body]))",
        "",
        "the Collector prints addresses of memory",
    ),
    (
        "set(attributes[\"out\"], SliceToMap([{\"n\"",
        "invalid",
        "the Collector refuses a literal list of maps",
    ),
    (
        "set(attributes[\"out\"], bucket_counts)",
        "",
        "the Collector cannot set a list of unsigned numbers",
    ),
    (
        "append(attributes[\"l\"], {",
        "",
        "the Collector cannot append a map",
    ),
    (
        "set(attributes[\"out\"], SEVERITY_NUMBER_WARN + 1)",
        "invalid",
        "the Collector does not calculate with names of numbers",
    ),
    (
        "set(attributes[\"l\"][1], attributes[\"l\"])",
        "",
        "the Collector copies a list into itself while it changes",
    ),
];

#[derive(Default)]
struct Parts {
    resource: Vec<u8>,
    scope: Vec<u8>,
    item: Vec<u8>,
    inner: Vec<u8>,
    form: u32,
    added: Vec<Vec<u8>>,
}

impl Parts {
    fn execute(&mut self, statement: &Statement) -> Result<(), ()> {
        let here = EvaluationTarget {
            resource: Message::new(&self.resource),
            scope: Message::new(&self.scope),
            item: Message::new(&self.item),
            inner: Message::new(&self.inner),
            form: self.form,
            ..EvaluationTarget::default()
        };
        let effect = statement.execute(&here).map_err(drop)?;
        match effect.change {
            Some(PartChange::Part(Context::Resource, bytes)) => self.resource = bytes,
            Some(PartChange::Part(Context::Scope, bytes)) => self.scope = bytes,
            Some(PartChange::Part(Context::SpanEvent | Context::DataPoint, bytes)) => {
                self.inner = bytes;
            }
            Some(PartChange::Part(_, bytes)) => self.item = bytes,
            _ => {}
        }
        self.added.extend(effect.added);
        Ok(())
    }
}

fn log(request: &[u8], statement: &Statement, is_short: bool) -> Result<Vec<u8>, ()> {
    let mut request = ExportLogsServiceRequest::decode(request).unwrap();
    let mut entry = request.resource_logs.remove(0);
    let mut scope = entry.scope_logs.remove(0);
    let mut parts = Parts {
        item: scope.log_records.remove(0).encode_to_vec(),
        resource: entry.encode_to_vec(),
        scope: scope.encode_to_vec(),
        ..Parts::default()
    };
    parts.execute(statement)?;
    let mut entry = ResourceLogs::decode(parts.resource.as_slice()).unwrap();
    let mut scope = ScopeLogs::decode(parts.scope.as_slice()).unwrap();
    let mut record = LogRecord::decode(parts.item.as_slice()).unwrap();
    if is_short {
        let out = record.attributes.into_iter().find(|one| one.key == "out");
        record = LogRecord {
            body: out.and_then(|out| out.value),
            ..LogRecord::default()
        };
        entry = ResourceLogs::default();
        scope = ScopeLogs::default();
    }
    scope.log_records.push(record);
    entry.scope_logs.push(scope);
    request.resource_logs.push(entry);
    Ok(request.encode_to_vec())
}

fn span(request: &[u8], statement: &Statement) -> Result<Vec<u8>, ()> {
    let mut request = ExportTraceServiceRequest::decode(request).unwrap();
    let mut entry = request.resource_spans.remove(0);
    let mut scope = entry.scope_spans.remove(0);
    let mut span = scope.spans.remove(0);
    let is_inner = statement.context == Context::SpanEvent;
    let events = match is_inner {
        true => std::mem::take(&mut span.events),
        false => Vec::new(),
    };
    let mut parts = Parts {
        item: span.encode_to_vec(),
        resource: entry.encode_to_vec(),
        scope: scope.encode_to_vec(),
        ..Parts::default()
    };
    let mut after = Vec::new();
    for event in events {
        parts.inner = event.encode_to_vec();
        parts.execute(statement)?;
        after.push(Event::decode(parts.inner.as_slice()).unwrap());
    }
    if !is_inner {
        parts.execute(statement)?;
    }
    let mut entry = ResourceSpans::decode(parts.resource.as_slice()).unwrap();
    let mut scope = ScopeSpans::decode(parts.scope.as_slice()).unwrap();
    let mut span = Span::decode(parts.item.as_slice()).unwrap();
    span.events.extend(after);
    scope.spans.push(span);
    entry.scope_spans.push(scope);
    request.resource_spans.push(entry);
    Ok(request.encode_to_vec())
}

/// Takes the encoded data points out of a metric, with the number of their field.
fn points(metric: &mut Metric) -> (u32, Vec<Vec<u8>>) {
    macro_rules! take {
        ($data:expr) => {
            std::mem::take(&mut $data.data_points)
                .iter()
                .map(|point| point.encode_to_vec())
                .collect()
        };
    }
    match metric.data.as_mut().unwrap() {
        Data::Gauge(data) => (5, take!(data)),
        Data::Sum(data) => (7, take!(data)),
        Data::Histogram(data) => (9, take!(data)),
        Data::ExponentialHistogram(data) => (10, take!(data)),
        Data::Summary(data) => (11, take!(data)),
    }
}

fn put(metric: &mut Metric, point: &[u8]) {
    macro_rules! push {
        ($data:expr) => {
            $data
                .data_points
                .push(prost::Message::decode(point).unwrap())
        };
    }
    match metric.data.as_mut().unwrap() {
        Data::Gauge(data) => push!(data),
        Data::Sum(data) => push!(data),
        Data::Histogram(data) => push!(data),
        Data::ExponentialHistogram(data) => push!(data),
        Data::Summary(data) => push!(data),
    }
}

fn metric(request: &[u8], statement: &Statement) -> Result<Vec<u8>, ()> {
    let mut request = ExportMetricsServiceRequest::decode(request).unwrap();
    let mut entry = request.resource_metrics.remove(0);
    let mut scope = entry.scope_metrics.remove(0);
    let metrics = scope.metrics.remove(0);
    let mut parts = Parts {
        resource: entry.encode_to_vec(),
        scope: scope.encode_to_vec(),
        ..Parts::default()
    };
    let mut after = Vec::new();
    if statement.context == Context::DataPoint {
        let mut bare = metrics.clone();
        let (form, points) = points(&mut bare);
        // These functions read all data points of the metric.
        let is_whole = statement.text.starts_with("convert");
        parts.form = form;
        parts.item = match is_whole {
            true => metrics.encode_to_vec(),
            false => bare.encode_to_vec(),
        };
        for point in points {
            parts.inner = point;
            parts.execute(statement)?;
            if !is_whole {
                after.push(parts.inner.clone());
            }
        }
    } else {
        parts.item = metrics.encode_to_vec();
        parts.execute(statement)?;
        // The pass visits added metrics, too.
        let first = parts.item.clone();
        let mut at = 0;
        while let Some(added) = parts.added.get(at).cloned() {
            parts.item = added;
            parts.execute(statement)?;
            parts.added[at] = parts.item.clone();
            at += 1;
        }
        parts.item = first;
    }
    let mut entry = ResourceMetrics::decode(parts.resource.as_slice()).unwrap();
    let mut scope = ScopeMetrics::decode(parts.scope.as_slice()).unwrap();
    let mut metric = Metric::decode(parts.item.as_slice()).unwrap();
    for point in after {
        put(&mut metric, &point);
    }
    scope.metrics.push(metric);
    for added in parts.added {
        scope
            .metrics
            .push(Metric::decode(added.as_slice()).unwrap());
    }
    entry.scope_metrics.push(scope);
    request.resource_metrics.push(entry);
    Ok(request.encode_to_vec())
}

/// Sorts what has no order, keys of maps and data points, and removes empty messages.
fn sorted(json: &mut Json) {
    match json {
        Json::Array(values) => {
            values.iter_mut().for_each(sorted);
            let has_no_order =
                |value: &Json| value.get("key").is_some() || value.get("timeUnixNano").is_some();
            if values.iter().all(has_no_order) {
                values.sort_by_key(Json::to_string);
            }
        }
        Json::Object(entries) => {
            entries.values_mut().for_each(sorted);
            // An empty message is as good as none, except for a list or map.
            entries.retain(|key, value| {
                key.ends_with("Value") || value.as_object().is_none_or(|fields| !fields.is_empty())
            });
        }
        _ => {}
    }
}

fn canonical(signal: Signal, wire: &[u8]) -> Json {
    let text = json::from_wire(signal, wire).unwrap();
    let mut json: Json = serde_json::from_slice(&text).unwrap();
    sorted(&mut json);
    json
}

#[test]
fn statements_have_the_effects_of_the_collector() {
    let mut inputs: BTreeMap<(&str, &str), Vec<u8>> = BTreeMap::new();
    let mut wrong = Vec::new();
    let mut rows = 0;
    let mut differing = BTreeSet::new();
    for line in GOLDEN.lines() {
        let (kind, rest) = line.split_once(' ').unwrap();
        let (at, rest) = rest.split_once(' ').unwrap();
        if kind == "input" {
            let (number, input) = rest.split_once(' ').unwrap();
            let wire = json::to_wire(signal(at), input.as_bytes()).unwrap();
            inputs.insert((at, number), wire.to_vec());
            continue;
        }
        rows += 1;
        let (text, expected) = rest.split_once('\t').unwrap();
        let signal = signal(kind);
        let data = match kind {
            "spanevent" => "span",
            "datapoint" => "metric",
            kind => kind,
        };
        let input = &inputs[&(data, at)];
        let is_short = text.starts_with("set(attributes[\"out\"], ");
        let found = match parse_statement(text, signal, Context::of_name(kind)) {
            Err(mistake) => Err(format!("invalid ({})", mistake.message)),
            Ok(statement) => match data {
                "log" => log(input, &statement, is_short),
                "span" => span(input, &statement),
                _ => metric(input, &statement),
            }
            .map_err(|()| "error".to_owned()),
        };
        let shown = match &found {
            Ok(found) => canonical(signal, found).to_string(),
            Err(reason) => reason.clone(),
        };
        let expected = match expected {
            "error" | "invalid" => expected.to_owned(),
            json => {
                let wire = json::to_wire(signal, json.as_bytes()).unwrap();
                canonical(signal, &wire).to_string()
            }
        };
        // A mistake may be found earlier or later than by the Collector.
        let is_same = match (&found, expected.as_str()) {
            (Err(_), "error" | "invalid") => true,
            _ if shown == expected => true,
            _ => {
                let mut known = DIFFERENCES.iter();
                let known = known.position(|(start, result, _)| {
                    text.starts_with(start) && expected.starts_with(result)
                });
                differing.extend(known);
                known.is_some()
            }
        };
        if !is_same {
            wrong.push(format!(
                "{kind} {at} {text}\n  found    {shown}\n  expected {expected}"
            ));
        }
    }
    assert!(rows > 1000, "{rows}");
    for (at, (start, _, reason)) in DIFFERENCES.iter().enumerate() {
        let differs = differing.contains(&at);
        assert!(differs, "no row differs any more: {start} ({reason})");
    }
    let count = wrong.len();
    assert!(wrong.is_empty(), "{count} of {rows}:\n{}", wrong.join("\n"));
}

fn signal(kind: &str) -> Signal {
    match kind {
        "log" => Signal::Logs,
        "span" | "spanevent" => Signal::Traces,
        _ => Signal::Metrics,
    }
}
