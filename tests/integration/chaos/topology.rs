//! Configurations.

use std::net::SocketAddr;
use std::path::Path;

use super::plan::{Plan, Topology};
use super::{CONSUMERS, LIMIT_MIB, TIMEOUT};
use crate::harness::Signal;

const RETRY: &str =
    "retry_on_failure: {initial_interval: 10ms, max_interval: 100ms, max_elapsed_time: 0s}";

/// The configuration of a plan with queues in `directory` and these next hops. The receiver listens at `grpc` and `http`.
pub fn yaml(plan: &Plan, directory: &Path, hops: &[SocketAddr], listen: [SocketAddr; 2]) -> String {
    let size = plan.queue_bytes;
    let consumers = format!("num_consumers: {CONSUMERS}");
    let stored = format!("storage: file_storage, sizer: bytes, queue_size: {size}, {consumers}");
    let exporter = |name: &str, hop: SocketAddr, more: &str| {
        format!(
            "  otlp_grpc{name}: {{endpoint: '{hop}', tls: {{insecure: true}}, timeout: {}ms, {more}}}\n",
            TIMEOUT.as_millis()
        )
    };
    let one = |queue: &str| {
        let queue = format!("{RETRY}, sending_queue: {{{queue}}}");
        hops.first().map(|hop| exporter("", *hop, &queue)).unwrap()
    };
    let (mut processors, mut connectors) = ("memory_limiter".to_owned(), String::new());
    let exporters = match plan.topology {
        Topology::Queue => one(&stored),
        Topology::Batch => {
            processors += ", batch";
            one(&stored)
        }
        Topology::BatchBehindQueue => {
            let batch = "batch: {flush_timeout: 20ms, sizer: items, min_size: 200, max_size: 500}";
            one(&format!("{stored}, {batch}"))
        }
        Topology::Memory => one(&format!(
            "sizer: bytes, queue_size: 1000000000, {consumers}"
        )),
        Topology::Windows => {
            connectors = format!("connectors:\n  forward: {{sending_queue: {{{stored}}}}}\n");
            one(&consumers)
        }
        Topology::Failover => {
            let level = |name: &str| {
                Signal::ALL
                    .map(|signal| format!("{signal}/{name}"))
                    .join(", ")
            };
            connectors = format!(
                "connectors:\n  failover: {{priority_levels: [[{}], [{}]], retry_interval: 50ms, sending_queue: {{{stored}}}}}\n",
                level("0"),
                level("1")
            );
            let direct = "sending_queue: {enabled: false}, retry_on_failure: {enabled: false}";
            let exporters = hops
                .iter()
                .enumerate()
                .map(|(number, hop)| exporter(&format!("/{number}"), *hop, direct));
            exporters.collect()
        }
        Topology::Balancing => {
            let names: Vec<String> = hops.iter().map(|hop| format!("'{hop}'")).collect();
            format!(
                "  load_balancing: {{protocol: {{otlp: {{tls: {{insecure: true}}, timeout: {}ms}}}}, resolver: {{static: \
                 {{hostnames: [{}]}}}}, member_backoff: {{initial_interval: 50ms, max_interval: 100ms}}, {RETRY}, \
                 sending_queue: {{{stored}}}}}\n",
                TIMEOUT.as_millis(),
                names.join(", ")
            )
        }
    };
    let mut pipelines = String::new();
    for signal in Signal::ALL {
        let mut line = |id: &str, from: &str, processors: &str, to: &str| {
            pipelines += &format!(
                "    {signal}{id}: {{receivers: [{from}], processors: [{processors}], exporters: [{to}]}}\n"
            );
        };
        match plan.topology {
            Topology::Failover => {
                line("", "otlp", &processors, "failover");
                line("/0", "failover", "", "otlp_grpc/0");
                line("/1", "failover", "", "otlp_grpc/1");
            }
            Topology::Windows => {
                let window = match signal {
                    Signal::Profiles => "compression, batch",
                    Signal::Logs => "log_dedup, batch",
                    _ => "batch",
                };
                line("/in", "otlp", &processors, "forward");
                line("", "forward", window, "otlp_grpc");
            }
            Topology::Balancing => line("", "otlp", &processors, "load_balancing"),
            _ => line("", "otlp", &processors, "otlp_grpc"),
        }
    }
    let windows = match plan.topology {
        Topology::Windows => {
            "  compression: {mode: aggregate, interval: 100ms}\n  log_dedup: {interval: 100ms}\n"
        }
        _ => "",
    };
    let batch = match plan.topology {
        Topology::Batch | Topology::Windows => "  batch: {timeout: 50ms}\n",
        _ => "",
    };
    let (storage, extension) = match plan.topology {
        Topology::Memory => (String::new(), ""),
        _ => (
            format!(
                "extensions:\n  file_storage: {{directory: '{}', create_directory: true, fsync: true}}\n",
                directory.display()
            ),
            "\n  extensions: [file_storage]",
        ),
    };
    let [grpc, http] = listen;
    format!(
        "{storage}receivers:
  otlp: {{protocols: {{grpc: {{endpoint: '{grpc}'}}, http: {{endpoint: '{http}'}}}}}}
processors:
  memory_limiter: {{check_interval: 1s, limit_mib: {LIMIT_MIB}, spike_limit_mib: {}}}
{batch}{windows}{connectors}exporters:
{exporters}service:{extension}
  pipelines:
{pipelines}",
        LIMIT_MIB / 4,
    )
}
