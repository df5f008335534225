//! `debug` prints the received items to the configured output.

use std::os::unix::fs::PermissionsExt as _;

use crate::harness::{Client, Collector, Oracle, Signal, Telemetry, raw, yaml};

#[tokio::test]
async fn debug_logs_every_received_item() {
    let debug = ("debug", "{verbosity: detailed, sampling_initial: 100}");
    let collector = Collector::start(&yaml(&[], &[debug])).await;
    for signal in Signal::ALL {
        let request = Telemetry::with_every_field(signal, signal.name());
        let frame = raw::frame(false, &request.encode());
        let reply = raw::grpc(collector.grpc(), raw::method(signal), &[], frame).await;
        assert_eq!(reply.code, 0, "{reply:?}");
        for id in request.ids() {
            let line = collector
                .wait_for_line(&id, 0, |line| line.message().contains(&id))
                .await;
            assert_eq!(line.field("otelcol.component.id"), "debug");
            assert_eq!(line.field("otelcol.signal"), signal.name());
        }
    }
    let printed: String = collector
        .lines()
        .iter()
        .map(|line| line.message().to_owned())
        .collect();
    for expected in [
        "000102030405060708090a0b0c0d0e0f",
        "http.server.duration",
        "Gr\u{fc}\u{df}e, \u{4e16}\u{754c}",
        "-9223372036854775808",
        "exception",
        "it failed",
    ] {
        assert!(
            printed.contains(expected),
            "{expected:?} is not in:\n{printed}"
        );
    }
    collector.assert_conservation().await;
}

#[tokio::test]
async fn debug_writes_to_configured_file() {
    let directory = tempfile::TempDir::new().unwrap();
    let path = directory.path().join("telemetry.txt");
    let debug = format!(
        "{{verbosity: normal, use_internal_logger: false, output_paths: ['{}']}}",
        path.display()
    );
    let collector = Collector::start(&yaml(&[], &[("debug", &debug)])).await;
    let client = Client::http("client", collector.http(), &Oracle::default());
    let requests = Signal::ALL.map(|signal| client.request(signal, 1));
    for request in &requests {
        client.send(request).await.unwrap();
    }
    collector.assert_conservation().await;
    assert!(collector.terminate().await.status.success());
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "telemetry is for its user only");
    let written = std::fs::read_to_string(path).unwrap();
    for request in &requests[..3] {
        let id = &request.ids()[0];
        assert!(written.contains(id.as_str()), "{id} is not in:\n{written}");
    }
}
