//! What is private does not leave: looked for in the bytes that arrive, the log and the metrics.

use crate::harness::{Backend, Collector, Signal, Telemetry, grpc_to, raw, yaml};

const SECRET: &str = "jane.roe@example.com";

fn has(bytes: &[u8]) -> bool {
    let mut parts = bytes.windows(SECRET.len());
    parts.any(|part| part == SECRET.as_bytes())
}

#[tokio::test]
async fn a_secret_that_an_application_sends_does_not_leave_the_pod() {
    let backend = Backend::start().await;
    let redaction = (
        "redaction",
        "{allow_all_keys: true, detectors: [{name: email, action: replace}]}",
    );
    // Who sends hears when it has been delivered.
    let exporter = grpc_to(&backend, "sending_queue: {enabled: false}");
    let debug = "{verbosity: detailed, sampling_initial: 100}";
    let exporters = [("otlp_grpc", &*exporter), ("debug", debug)];
    let collector = Collector::start(&yaml(&[redaction], &exporters)).await;
    for signal in Signal::ALL {
        let request = Telemetry::of(signal, &[format!("id of {SECRET}")]);
        assert!(has(&request.encode()));
        let frame = raw::frame(false, &request.encode());
        let reply = raw::grpc(collector.grpc(), raw::method(signal), &[], frame).await;
        assert_eq!(reply.code, 0, "{reply:?}");
        let arrived: Vec<Telemetry> = backend.record().telemetry(signal).cloned().collect();
        assert_eq!(arrived.len(), 1, "{signal:?}");
        assert_eq!(arrived[0].ids(), ["id of [EMAIL]"]);
        assert!(!has(&arrived[0].encode()), "{signal:?}");
    }
    let metrics = collector.assert_conservation().await;
    let hits = metrics.sum("otelcol_processor_redaction_hits", &[("detector", "email")]);
    assert!(hits >= 4.0, "{hits}");
    for line in collector.lines() {
        assert!(!has(line.message().as_bytes()));
    }
}
