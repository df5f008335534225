//! Spans of real clients of Zipkin and Jaeger arrive: see tests/sdk/README.md.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, Span};

use crate::harness::{Backend, Collector, Signal, Telemetry, within};

/// A collector with the receivers, and a backend behind it.
struct Site {
    backend: Backend,
    collector: Collector,
}

impl Site {
    async fn start() -> Self {
        let backend = Backend::start().await;
        let collector = Collector::start(&format!(
            "receivers:
  zipkin: {{endpoint: '127.0.0.1:0'}}
  jaeger: {{protocols: {{thrift_http: {{endpoint: '127.0.0.1:0'}}, thrift_compact: {{endpoint: '127.0.0.1:0'}}}}}}
  jaeger/binary: {{protocols: {{thrift_binary: {{endpoint: '127.0.0.1:0'}}}}}}
exporters: {{otlp_grpc: {{endpoint: '{}', tls: {{insecure: true}}}}}}
service: {{pipelines: {{traces: {{receivers: [zipkin, jaeger, jaeger/binary], exporters: [otlp_grpc]}}}}}}
",
            backend.grpc()
        ))
        .await;
        Site { backend, collector }
    }

    fn address(&self, message: &str, component: &str) -> String {
        self.collector.server(message, component).to_string()
    }

    /// Runs a client, and waits until so many spans of each of these services have arrived. Returns the spans.
    async fn run(
        &self,
        mut command: Command,
        services: &[(&str, usize)],
    ) -> BTreeMap<String, Vec<Span>> {
        let run = tokio::task::spawn_blocking(move || command.output().unwrap());
        let Output { status, stderr, .. } = within("the end of the client", run).await.unwrap();
        assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
        let mut found = BTreeMap::new();
        self.backend
            .wait_for("all spans", |record| {
                found = by_service(record.telemetry(Signal::Traces));
                let count = |service: &str| found.get(service).map_or(0, Vec::len);
                services
                    .iter()
                    .all(|(service, spans)| count(service) == *spans)
            })
            .await;
        self.collector.assert_conservation().await;
        for span in found.values().flatten() {
            assert_eq!(
                (span.trace_id.len(), span.span_id.len()),
                (16, 8),
                "{span:?}"
            );
            assert!(
                span.end_time_unix_nano >= span.start_time_unix_nano,
                "{span:?}"
            );
            assert!(
                span.start_time_unix_nano > 1_600_000_000_000_000_000,
                "{span:?}"
            );
        }
        found
    }
}

fn by_service<'a>(telemetry: impl Iterator<Item = &'a Telemetry>) -> BTreeMap<String, Vec<Span>> {
    let mut services: BTreeMap<String, Vec<Span>> = BTreeMap::new();
    for telemetry in telemetry {
        let Telemetry::Traces(request) = telemetry else {
            panic!("{telemetry:?}");
        };
        for resource in &request.resource_spans {
            let spans = resource
                .scope_spans
                .iter()
                .flat_map(|scope| scope.spans.clone());
            services.entry(service(resource)).or_default().extend(spans);
        }
    }
    services
}

fn service(resource: &ResourceSpans) -> String {
    let attributes = resource
        .resource
        .iter()
        .flat_map(|resource| &resource.attributes);
    let mut names = attributes.filter(|attribute| attribute.key == "service.name");
    format!("{:?}", names.next().and_then(|name| name.value.clone()))
        .split('"')
        .nth(1)
        .unwrap_or_default()
        .to_owned()
}

/// Half of the spans are children with a parent among the spans, an error, an event and the kind of a client.
fn assert_children(spans: &[Span]) {
    let children: Vec<_> = spans.iter().filter(|span| span.name == "child").collect();
    assert_eq!(children.len(), spans.len() / 2);
    for child in children {
        let mut parents = spans
            .iter()
            .filter(|span| span.span_id == child.parent_span_id);
        assert_eq!(
            parents.next().unwrap().trace_id,
            child.trace_id,
            "{child:?}"
        );
        assert_eq!(child.kind, SpanKind::Client as i32, "{child:?}");
        assert_eq!(child.events.len(), 1, "{child:?}");
    }
}

/// The path in an environment variable, unless the peer is missing.
fn peer(variable: &str) -> Option<PathBuf> {
    let path = std::env::var_os(variable).map(PathBuf::from);
    if path.is_none() {
        eprintln!("SKIPPED: {variable} is not set");
    }
    path
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sdk")
}

#[tokio::test]
async fn spans_of_py_zipkin_arrive() {
    let Some(python) = peer("SPANS_PYTHON") else {
        return;
    };
    let site = Site::start().await;
    let mut command = Command::new(python);
    command.arg(scripts().join("spans.py"));
    command.arg(format!(
        "http://{}",
        site.address("Starting HTTP server", "zipkin")
    ));
    let services = ["py-v1_json", "py-v2_json", "py-v2_proto3"].map(|service| (service, 40));
    for spans in site.run(command, &services).await.values() {
        assert_children(spans);
    }
}

#[tokio::test]
async fn spans_of_javascript_clients_arrive() {
    let Some(modules) = peer("SPANS_NODE_MODULES") else {
        return;
    };
    let site = Site::start().await;
    let agent = site.address("Starting UDP server", "jaeger/binary");
    let mut command = Command::new("node");
    command.arg(scripts().join("spans.js")).arg(modules);
    command.arg(format!(
        "http://{}",
        site.address("Starting HTTP server", "zipkin")
    ));
    command.arg(format!(
        "http://{}/api/traces",
        site.address("Starting HTTP server", "jaeger")
    ));
    command.arg(agent.rsplit(':').next().unwrap());
    let services = ["js-v1", "js-v2", "js-http", "js-udp"].map(|service| (service, 40));
    let found = site.run(command, &services).await;
    assert_children(&found["js-http"]);
    assert_children(&found["js-udp"]);
}

#[tokio::test]
async fn spans_of_go_client_arrive() {
    let Some(go) = peer("SPANS_GO") else {
        return;
    };
    let site = Site::start().await;
    let mut command = Command::new(go);
    command
        .current_dir(scripts().join("jaeger"))
        .args(["run", "."]);
    command.arg(site.address("Starting UDP server", "jaeger"));
    command.arg(format!(
        "http://{}/api/traces",
        site.address("Starting HTTP server", "jaeger")
    ));
    for spans in site
        .run(command, &[("go-udp", 200), ("go-http", 200)])
        .await
        .values()
    {
        assert_children(spans);
    }
}
