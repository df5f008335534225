//! Private data does not leave the collector: tests search the forwarded bytes, the log and the
//! metrics.

use crate::harness::{Backend, Collector, Signal, Telemetry, grpc_to, raw, within, yaml};

const SECRET: &str = "jane.roe@example.com";

fn has(bytes: &[u8]) -> bool {
    let mut parts = bytes.windows(SECRET.len());
    parts.any(|part| part == SECRET.as_bytes())
}

#[tokio::test]
async fn secret_of_an_application_does_not_leave_the_pod() {
    let backend = Backend::start().await;
    let redaction = (
        "redaction",
        "{allow_all_keys: true, detectors: [{name: email, action: replace}]}",
    );
    // The client receives the outcome of the delivery.
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

#[tokio::test]
async fn unscannable_request_is_refused_alone() {
    let backend = Backend::start().await;
    // The result of each match contains a new match, one word further on. After some rounds the scanner refuses the
    // text.
    let redaction = (
        "redaction",
        r"{allow_all_keys: true, custom: [{name: eats, regex: '(\*{4}|a) .'}]}",
    );
    let batch = ("batch", "{timeout: 1h, send_batch_size: 5}");
    let exporter = grpc_to(&backend, "");
    let collector = Collector::start(&yaml(&[batch, redaction], &[("otlp_grpc", &exporter)])).await;
    let unsettled = "a b c d e f g h i j k l m n o p";
    for id in ["one", "two", unsettled, "four", "five"] {
        let request = Telemetry::of(Signal::Logs, &[id.to_owned()]);
        let frame = raw::frame(false, &request.encode());
        let method = raw::method(Signal::Logs);
        let reply = raw::grpc(collector.grpc(), method, &[], frame).await;
        assert_eq!(reply.code, 0, "{reply:?}");
    }
    let arrived = |record: &crate::harness::backend::Record| {
        let ids = ["one", "two", "four", "five"];
        ids.iter().all(|id| record.arrivals.contains_key(*id))
    };
    within("what others sent", backend.until(arrived)).await;
    assert!(!backend.record().arrivals.contains_key(unsettled));
    let metrics = collector.assert_conservation().await;
    let dropped = metrics.sum(
        "tributary_pipeline_dropped_items",
        &[("reason", "permanent")],
    );
    assert_eq!(dropped, 1.0);
    let reason = [("reason", "unscannable")];
    let refused = metrics.sum("tributary_processor_redaction_refused_requests", &reason);
    assert!(refused >= 1.0, "{refused}");
    for line in collector.lines() {
        assert!(!line.message().contains("b c d"), "{}", line.message());
    }
}
