//! A small request that stands for millions of structs stays within the memory limit in every component of the registries.

use std::path::Path;

use bytes::Bytes;
use futures_util::future::join_all;
use http::Method;
use tempfile::TempDir;

use crate::harness::attacks::{self, message, request};
use crate::harness::{Collector, Signal, codec, raw};
use tributary::component::Entry;

const MIB: u64 = 1 << 20;
/// Without optimizations a request is smaller: work that takes an optimized build a second would take a minute.
const SCALE: u64 = if cfg!(debug_assertions) { 1 } else { 8 };
/// The limit that the configuration states, in MiB.
const LIMIT_MIB: u64 = 24 * SCALE;
/// Maximum memory of the process above the limit, as SECURITY.md states.
const BESIDE_MIB: u64 = 48;
/// Uncompressed size of a request in bytes. The decoded structs take several hundred MiB.
const REQUEST: usize = (SCALE as usize) << 20;

/// Requests with at least one item, in which two to six bytes decode to a struct.
fn bombs(signal: Signal) -> Vec<Vec<u8>> {
    let mut all = attacks::bombs(signal, REQUEST);
    if signal == Signal::Profiles {
        all.extend(dictionaries());
    }
    all
}

/// Requests of profiles whose dictionaries take more memory than their encoding.
fn dictionaries() -> Vec<Vec<u8>> {
    const LINES: usize = 500;
    let profile = |sample: &[u8]| request(&message(2, &message(2, sample)));
    let table = |number: u8, entries: &[&[u8]]| {
        let entries = entries.iter().map(|entry| message(number, entry));
        entries.collect::<Vec<_>>().concat()
    };
    let empty: &[u8] = &[];
    // A deep stack: a few bytes of references to a location with many lines.
    let references = vec![1; REQUEST / 64];
    let deep = [
        table(2, &[empty, &[0x1a, 0].repeat(LINES)]),
        table(3, &[empty]),
        table(5, &[empty]),
        table(7, &[empty, &message(1, &references)]),
    ];
    // Each table has as many entries as fit.
    let entries = |number: u8| [number << 3 | 2, 0].repeat(REQUEST / 2);
    let mut all = vec![[profile(&[0x08, 1]), message(2, &deep.concat())].concat()];
    for number in [2, 5, 7] {
        all.push([profile(&[]), message(2, &entries(number))].concat());
    }
    all
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
        // Every configuration of this test has the component.
        "memory_limiter" => &[],
        "probabilistic_sampler" => &["{sampling_percentage: 50}"],
        "redaction" => &["{allow_all_keys: true}"],
        "resource" => &["{attributes: [{key: k, value: v, action: upsert}]}"],
        "symbolication" => &["{}"],
        "transform" => &[
            "{trace_statements: ['set(span.attributes[\"a\"], \"b\")'], metric_statements: ['set(datapoint.attributes[\"a\"], \"b\")', 'set(metric.unit, \"s\")'], log_statements: ['set(log.attributes[\"a\"], log.body)'], profile_statements: ['set(profile.attributes[\"a\"], \"b\")']}",
        ],
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
            "{routing_key: streamID, retry_on_failure: {enabled: false}, protocol: {otlp: {tls: {insecure: true}, timeout: 1s}}, resolver: {static: {hostnames: ['127.0.0.1:1', '127.0.0.1:2']}}}",
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
        "parquet" => &[
            "{path: DIR/hours, rotation: {interval: 1s}}",
            "{path: DIR/stacks, rotation: {interval: 1s}, layout: stacks, partition_by: service, compression: none}",
        ],
        "profile_store" => &["{directory: DIR/profiles}"],
        "prometheus" => &["{endpoint: '127.0.0.1:0'}"],
        "pyroscope" => &["{endpoint: 'http://127.0.0.1:1', retry_on_failure: {enabled: false}}"],
        "zipkin" => &[
            "{endpoint: 'http://127.0.0.1:1', retry_on_failure: {enabled: false}}",
            "{endpoint: 'http://127.0.0.1:1', format: proto, compression: gzip, retry_on_failure: {enabled: false}}",
        ],
        _ => panic!("`{name}` has no configuration in this test"),
    }
}

/// Configurations to try of a connector, with `LEVEL` for a pipeline that follows. A new connector needs a line here.
fn connectors(name: &str) -> &'static [&'static str] {
    match name {
        "count" => &[
            "{}",
            "{spans: {a: {conditions: ['name == \"x\"']}}, logs: {a: {attributes: [{key: k, default_value: v}]}}, datapoints: {a: {attributes: [{key: k, default_value: v}]}}, profiles: {a: {attributes: [{key: k, default_value: v}]}}}",
        ],
        "failover" => &[
            "{priority_levels: [[LEVEL]]}",
            "{priority_levels: [[LEVEL]], sending_queue: {batch: {min_size: 100, max_size: 1000, sizer: items}}}",
        ],
        "forward" => &["{}", "{sending_queue: {}}"],
        "profile_metrics" => &["{interval: 1s}"],
        "profile_regressions" => &["{window: 1s, compare_with: [previous_version, day_before]}"],
        _ => panic!("`{name}` has no configuration in this test"),
    }
}

/// Signals that the component accepts with these settings.
fn signals<C: ?Sized>(entry: &Entry<C>, settings: &str) -> Vec<Signal> {
    let only_metrics = settings.contains("routing_key: streamID");
    let signals = entry.signals.iter().map(|(signal, _)| *signal);
    signals
        .filter(|signal| !only_metrics || *signal == Signal::Metrics)
        .collect()
}

/// A configuration with this component in a pipeline for each of its signals.
fn config<C: ?Sized>(kind: &str, entry: &Entry<C>, settings: &str) -> String {
    let name = entry.name;
    let (mut pipelines, mut connectors) = (String::new(), String::new());
    for signal in signals(entry, settings) {
        let (processor, exporter) = match kind {
            "processor" => (format!(", {name}"), "nop".to_owned()),
            "connector" => (String::new(), format!("{name}/{signal}")),
            _ => (String::new(), name.to_owned()),
        };
        pipelines += &format!(
            "    {signal}: {{receivers: [otlp], processors: [memory_limiter{processor}], exporters: [{exporter}]}}\n"
        );
        if kind == "connector" {
            for out in entry.emits.unwrap_or(&[signal]) {
                let next = format!("{out}/of_{signal}");
                let settings = settings.replace("LEVEL", &next);
                connectors += &format!("  {name}/{signal}: {settings}\n");
                pipelines +=
                    &format!("    {next}: {{receivers: [{name}/{signal}], exporters: [nop]}}\n");
            }
        }
    }
    let (processor, exporter) = match kind {
        "processor" => (format!("  {name}: {settings}\n"), "  nop: {}\n".to_owned()),
        "connector" => (String::new(), "  nop: {}\n".to_owned()),
        _ => (String::new(), format!("  {name}: {settings}\n")),
    };
    let connectors = match connectors.as_str() {
        "" => connectors,
        connectors => format!("connectors:\n{connectors}"),
    };
    format!(
        "receivers:
  otlp:
    protocols:
      grpc: {{endpoint: '127.0.0.1:0'}}
      http: {{endpoint: '127.0.0.1:0', max_items_per_request: 100000000}}
processors:
  memory_limiter: {{limit_mib: {LIMIT_MIB}, spike_limit_mib: 4}}
{processor}exporters:
{exporter}{connectors}service:
  pipelines:
{pipelines}"
    )
}

/// Sends each bomb `at_once` times to a collector with this component and returns the peak of its memory, in MiB.
async fn peak<C: ?Sized>(
    kind: &str,
    entry: &Entry<C>,
    settings: &str,
    directory: &Path,
    at_once: usize,
) -> u64 {
    let settings = settings.replace("DIR", &directory.display().to_string());
    let collector = Collector::start(&config(kind, entry, &settings)).await;
    let headers = [
        ("content-type", "application/x-protobuf"),
        ("content-encoding", "gzip"),
    ];
    for signal in signals(entry, &settings) {
        // Concurrent requests are of one kind: without optimizations their processing takes long.
        let kinds = if at_once > 1 { 1 } else { usize::MAX };
        for bomb in bombs(signal).into_iter().take(kinds) {
            let body = Bytes::from(codec::compress("gzip", &bomb));
            let path = raw::path(signal);
            let send = || raw::http(collector.http(), Method::POST, path, &headers, body.clone());
            for answer in join_all((0..at_once).map(|_| send())).await {
                assert!(
                    [200, 413, 429, 503].contains(&answer.status.as_u16()),
                    "{answer:?}"
                );
            }
            // Exporters process the content of their queues.
            collector.assert_conservation().await;
        }
    }
    collector.peak_memory() / MIB
}

#[derive(Default)]
struct BoundExceeded(Vec<String>);

impl BoundExceeded {
    async fn try_all<C: ?Sized>(
        &mut self,
        kind: &str,
        registry: &[Entry<C>],
        configurations: fn(&str) -> &'static [&'static str],
        at_once: usize,
    ) {
        let directory = TempDir::new().unwrap();
        for entry in registry.iter().filter(|entry| entry.is_built_in()) {
            for settings in configurations(entry.name) {
                let peak = peak(kind, entry, settings, directory.path(), at_once).await;
                let result = format!("{kind} {} {settings}: {peak} MiB", entry.name);
                println!("== {result}");
                if peak > LIMIT_MIB + BESIDE_MIB {
                    self.0.push(result);
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_bombs_stay_within_the_limit_in_every_component() {
    let mut beyond = BoundExceeded::default();
    let all = tributary::processors::REGISTRY;
    beyond.try_all("processor", all, processors, 1).await;
    let all = tributary::exporters::REGISTRY;
    beyond.try_all("exporter", all, exporters, 1).await;
    let all = tributary::connectors::REGISTRY;
    beyond.try_all("connector", all, connectors, 1).await;
    assert!(beyond.0.is_empty(), "{:#?}", beyond.0);
}

/// Exporters that make something larger of a request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_bombs_stay_within_limit_in_exporters() {
    fn transcoding(name: &str) -> &'static [&'static str] {
        let all = exporters(name);
        match name {
            "debug" | "parquet" => all,
            // The first configurations of these exporters write JSON.
            "file" | "otlp_http" => &all[..1],
            _ => &[],
        }
    }
    let mut beyond = BoundExceeded::default();
    let all = tributary::exporters::REGISTRY;
    beyond.try_all("exporter", all, transcoding, 8).await;
    assert!(beyond.0.is_empty(), "{:#?}", beyond.0);
}
