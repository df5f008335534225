//! Configurations.

use std::net::SocketAddr;

use super::{Backend, Signal};

/// A configuration: OTLP over both protocols, then these processors, then these exporters, for every signal. The pairs
/// are ids and bodies.
pub fn yaml(processors: &[(&str, &str)], exporters: &[(&str, &str)]) -> String {
    yaml_of(&Signal::ALL, processors, exporters)
}

/// The same with pipelines of some signals.
pub fn yaml_of(
    signals: &[Signal],
    processors: &[(&str, &str)],
    exporters: &[(&str, &str)],
) -> String {
    let ids = |components: &[(&str, &str)]| {
        let ids: Vec<&str> = components.iter().map(|(id, _)| *id).collect();
        ids.join(", ")
    };
    let section = |components: &[(&str, &str)]| {
        let lines = components
            .iter()
            .map(|(id, body)| format!("  {id}: {body}\n"));
        lines.collect::<String>()
    };
    let pipeline = format!(
        "{{receivers: [otlp], processors: [{}], exporters: [{}]}}",
        ids(processors),
        ids(exporters)
    );
    let pipelines = signals
        .iter()
        .map(|signal| format!("    {}: {pipeline}\n", signal.name()));
    let pipelines: String = pipelines.collect();
    format!(
        "receivers:
  otlp:
    protocols:
      grpc: {{endpoint: '127.0.0.1:0', max_recv_msg_size_mib: 8}}
      http: {{endpoint: '127.0.0.1:0'}}
processors:
{}
exporters:
{}
service:
  pipelines:
{pipelines}",
        section(processors),
        section(exporters)
    )
}

/// The body of an `otlp_grpc` exporter to this backend, with more keys.
pub fn grpc_to(backend: &Backend, more: &str) -> String {
    grpc_at(backend.grpc(), more)
}

/// The body of an `otlp_http` exporter to this backend, with more keys.
pub fn http_to(backend: &Backend, more: &str) -> String {
    http_at(backend.http(), more)
}

/// The body of an `otlp_grpc` exporter to this address, with more keys.
pub fn grpc_at(address: SocketAddr, more: &str) -> String {
    format!("{{endpoint: '{address}', tls: {{insecure: true}}, {QUICK}, {more}}}")
}

/// The body of an `otlp_http` exporter to this address, with more keys.
pub fn http_at(address: SocketAddr, more: &str) -> String {
    format!("{{endpoint: 'http://{address}', {QUICK}, {more}}}")
}

/// Retries that do not make tests wait.
const QUICK: &str = "retry_on_failure: {initial_interval: 10ms, max_interval: 100ms}";
