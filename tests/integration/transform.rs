//! Statements change what the next hop receives, in all signals.

use crate::harness::{Backend, Collector, Signal, Telemetry, grpc_to, raw, yaml};

#[tokio::test]
async fn statements_change_forwarded_telemetry() {
    let backend = Backend::start().await;
    let transform = (
        "transform",
        r#"{trace_statements: ['set(resource.attributes["tier"], "gold-tier")'], metric_statements: ['set(resource.attributes["tier"], "gold-tier")'], log_statements: ['set(resource.attributes["tier"], "gold-tier")'], profile_statements: ['set(resource.attributes["tier"], "gold-tier")']}"#,
    );
    let exporter = grpc_to(&backend, "sending_queue: {enabled: false}");
    let collector = Collector::start(&yaml(&[transform], &[("otlp_grpc", &exporter)])).await;
    for signal in Signal::ALL {
        let request = Telemetry::of(signal, &["one".to_owned(), "two".to_owned()]);
        let frame = raw::frame(false, &request.encode());
        let reply = raw::grpc(collector.grpc(), raw::method(signal), &[], frame).await;
        assert_eq!(reply.code, 0, "{reply:?}");
        let arrived: Vec<Telemetry> = backend.record().telemetry(signal).cloned().collect();
        assert_eq!(arrived.len(), 1, "{signal:?}");
        assert_eq!(arrived[0].ids(), ["one", "two"]);
        let bytes = arrived[0].encode();
        let is_changed = bytes.windows(9).any(|part| part == b"gold-tier");
        assert!(is_changed, "{signal:?}");
    }
    collector.assert_conservation().await;
}
