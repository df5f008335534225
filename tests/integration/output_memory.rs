//! A small request that stands for millions of structs stays within the memory limit in every component of the registries.

use std::path::Path;

use bytes::Bytes;
use http::Method;
use tempfile::TempDir;

use crate::harness::{Collector, Signal, codec, raw};
use tributary::component::Entry;

const MIB: u64 = 1 << 20;
/// Without optimizations a request is smaller: work that takes a release a second would take a minute.
const SCALE: u64 = if cfg!(debug_assertions) { 1 } else { 8 };
/// The limit that the configuration states, in MiB.
const LIMIT_MIB: u64 = 24 * SCALE;
/// Memory of the process beside the limit: the bound that SECURITY.md states.
const BESIDE_MIB: u64 = 48;
/// Bytes of a request, uncompressed: as structs they are several hundred MiB.
const REQUEST: usize = (SCALE as usize) << 20;

fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut encoded = vec![number << 3 | 2];
    prost::encoding::encode_varint(content.len() as u64, &mut encoded);
    encoded.extend_from_slice(content);
    encoded
}

/// Requests with one item at least, in which two to six bytes stand for a struct.
fn bombs(signal: Signal) -> Vec<Vec<u8>> {
    let many = |message: &[u8]| message.repeat(REQUEST / message.len());
    let request = |items: &[u8]| field(1, &field(2, items));
    let item = match signal {
        // A gauge and a sum in one metric, each with a data point.
        Signal::Metrics => field(2, &[field(5, &[0x0a, 0]), field(7, &[0x0a, 0])].concat()),
        Signal::Profiles => field(2, &field(2, &[0x22, 1, 1])),
        _ => field(2, &[]),
    };
    let resources = [request(&item), many(&[0x0a, 0])].concat();
    let attributes = field(1, &[field(1, &many(&[0x0a, 0])), field(2, &item)].concat());
    let items = match signal {
        Signal::Metrics => {
            let points = many(&[0x0a, 0]);
            let (gauge, sum) = points.split_at(REQUEST / 4 * 2);
            request(&field(2, &[field(5, gauge), field(7, sum)].concat()))
        }
        _ => request(&many(&item)),
    };
    vec![items, resources, attributes]
}

/// Configurations to try of a processor. A new processor needs a line here.
fn processors(name: &str) -> &'static [&'static str] {
    match name {
        "attributes" => &["{actions: [{key: k, value: v, action: upsert}]}"],
        "batch" => &["{send_batch_max_size: 1000, send_batch_size: 1000}"],
        "compression" => &["{}", "{mode: aggregate, interval: 1s}"],
        "dedup" => &["{}"],
        "filter" => &[
            "{trace_conditions: ['span.name == \"x\"'], log_conditions: ['log.severity_number == 1'], metric_conditions: ['metric.name == \"x\"'], profile_conditions: ['profile.period == 12345']}",
        ],
        "log_dedup" => &["{}"],
        // Part of every configuration here.
        "memory_limiter" => &[],
        "probabilistic_sampler" => &["{sampling_percentage: 50}"],
        "redaction" => &["{allow_all_keys: true}"],
        "resource" => &["{attributes: [{key: k, value: v, action: upsert}]}"],
        "symbolication" => &["{}"],
        _ => panic!("`{name}` has no configuration in this test"),
    }
}

/// Configurations to try of an exporter, with `DIR` for a directory. A new exporter needs a line here.
fn exporters(name: &str) -> &'static [&'static str] {
    match name {
        "debug" => &[
            "{use_internal_logger: false, output_paths: [/dev/null]}",
            "{use_internal_logger: false, output_paths: [/dev/null], verbosity: normal}",
            "{use_internal_logger: false, output_paths: [/dev/null], verbosity: detailed}",
        ],
        "file" => &["{path: DIR/file}", "{path: DIR/file, format: proto}"],
        "load_balancing" => &[
            "{retry_on_failure: {enabled: false}, protocol: {otlp: {tls: {insecure: true}, timeout: 1s}}, resolver: {static: {hostnames: ['127.0.0.1:1', '127.0.0.1:2']}}}",
        ],
        "nop" => &["{}"],
        "otlp_grpc" => &[
            "{endpoint: 'http://127.0.0.1:1', compression: zstd, retry_on_failure: {enabled: false}}",
        ],
        "otlp_http" => &[
            "{endpoint: 'http://127.0.0.1:1', encoding: json, retry_on_failure: {enabled: false}}",
            "{endpoint: 'http://127.0.0.1:1', retry_on_failure: {enabled: false}, sending_queue: {batch: {min_size: 100, max_size: 1000, sizer: items}}}",
        ],
        // A table is bounded by `max_memory`, which one request may exceed.
        "parquet" => &[],
        "prometheus" => &["{endpoint: '127.0.0.1:0'}"],
        _ => panic!("`{name}` has no configuration in this test"),
    }
}

/// Sends each bomb to a collector with this component and returns the largest peak of its memory, in MiB.
async fn peak<C: ?Sized>(kind: &str, entry: &Entry<C>, settings: &str, directory: &Path) -> u64 {
    let settings = settings.replace("DIR", &directory.display().to_string());
    let (name, signals) = (entry.name, entry.signals);
    let mut pipelines = String::new();
    for (signal, _) in signals {
        let (processor, exporter) = match kind {
            "processor" => (format!(", {name}"), "nop"),
            _ => (String::new(), name),
        };
        pipelines += &format!(
            "    {signal}: {{receivers: [otlp], processors: [memory_limiter{processor}], exporters: [{exporter}]}}\n"
        );
    }
    let nop = if (kind, name) == ("exporter", "nop") {
        ""
    } else {
        "  nop: {}\n"
    };
    let (processor, exporter) = match kind {
        "processor" => (format!("  {name}: {settings}\n"), String::new()),
        _ => (String::new(), format!("  {name}: {settings}\n")),
    };
    let yaml = format!(
        "receivers:
  otlp: {{protocols: {{grpc: {{endpoint: '127.0.0.1:0'}}, http: {{endpoint: '127.0.0.1:0'}}}}}}
processors:
  memory_limiter: {{limit_mib: {LIMIT_MIB}, spike_limit_mib: 4}}
{processor}exporters:
{nop}{exporter}service:
  pipelines:
{pipelines}"
    );
    let collector = Collector::start(&yaml).await;
    let headers = [
        ("content-type", "application/x-protobuf"),
        ("content-encoding", "gzip"),
    ];
    for (signal, _) in signals {
        for bomb in bombs(*signal) {
            let body = Bytes::from(codec::compress("gzip", &bomb));
            let path = raw::path(*signal);
            let answer = raw::http(collector.http(), Method::POST, path, &headers, body).await;
            assert!(
                [200, 413, 429, 503].contains(&answer.status.as_u16()),
                "{answer:?}"
            );
        }
    }
    // Exporters work on what is in their queues.
    collector.assert_conservation().await;
    collector.peak_memory() / MIB
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_bombs_stay_within_the_limit_in_every_component() {
    let mut beyond = Vec::new();
    let directory = TempDir::new().unwrap();
    for entry in tributary::processors::REGISTRY {
        for settings in processors(entry.name) {
            let peak = peak("processor", entry, settings, directory.path()).await;
            println!("== {} {settings}: {peak} MiB", entry.name);
            if peak > LIMIT_MIB + BESIDE_MIB {
                beyond.push(format!("processor {} {settings}: {peak} MiB", entry.name));
            }
        }
    }
    for entry in tributary::exporters::REGISTRY {
        if !entry.is_built_in() {
            continue;
        }
        for settings in exporters(entry.name) {
            let peak = peak("exporter", entry, settings, directory.path()).await;
            println!("== {} {settings}: {peak} MiB", entry.name);
            if peak > LIMIT_MIB + BESIDE_MIB {
                beyond.push(format!("exporter {} {settings}: {peak} MiB", entry.name));
            }
        }
    }
    assert!(beyond.is_empty(), "{beyond:#?}");
}
