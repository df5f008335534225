use std::fs;
use std::path::PathBuf;

use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message as _;
use tempfile::TempDir;

use super::*;
use crate::pipeline::batch::Batch;
use crate::testing::{Recorded, context};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use tributary_config::{Problems, Validate as _};

fn traces(name: &str) -> Batch {
    let span = Span {
        name: name.to_owned(),
        ..Span::default()
    };
    let request = ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            scope_spans: vec![ScopeSpans {
                spans: vec![span],
                ..ScopeSpans::default()
            }],
            ..ResourceSpans::default()
        }],
    };
    Batch::new(Signal::Traces, 1, Bytes::from(request.encode_to_vec()))
}

fn config(directory: &TempDir, more: &str) -> (Config, PathBuf) {
    let path = directory.path().join("sub/data.json");
    let yaml = format!(
        "{{path: '{}', create_directory: true{more}}}",
        path.display()
    );
    (serde_yaml::from_str(&yaml).unwrap(), path)
}

fn problems(yaml: &str) -> Vec<String> {
    let config: Config = serde_yaml::from_str(yaml).unwrap();
    let mut problems = Problems::default();
    config.validate(&mut problems);
    let found = problems.found().iter();
    found.map(|problem| problem.path.join("::")).collect()
}

fn built(config: &Config) -> Terminal {
    let mut terminal = config.build(&context("file"), &Signal::ALL).unwrap();
    terminal.component.start();
    terminal
}

async fn send(terminal: &Terminal, batch: Batch) -> Result<(), crate::pipeline::batch::Nack> {
    let consumer = terminal.inputs.get(batch.signal()).unwrap();
    consumer.consume(batch).await
}

async fn stop(terminal: Terminal) {
    let deadline = Instant::now() + Duration::from_secs(10);
    let undelivered = terminal.component.shutdown(deadline).await;
    assert_eq!(undelivered, Undelivered::default());
}

#[tokio::test]
async fn what_is_acknowledged_is_in_the_file_one_request_in_a_line() {
    let directory = TempDir::new().unwrap();
    let (config, path) = config(&directory, "");
    let recorded = Recorded::new();
    let terminal = recorded.within(|| built(&config));
    for name in ["a", "b"] {
        send(&terminal, traces(name)).await.unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let last = text.strip_suffix('\n').unwrap().lines().last().unwrap();
        let request = tributary_otlp::json::to_wire(Signal::Traces, last.as_bytes()).unwrap();
        assert_eq!(request, traces(name).into_wire().to_bytes());
    }
    let logs = Batch::new(Signal::Logs, 0, Bytes::new());
    send(&terminal, logs).await.unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 3);
    assert_eq!(recorded.items("delivered", Signal::Traces), 2);
    stop(terminal).await;
}

#[tokio::test]
async fn protobuf_and_compressed_requests_stand_behind_their_lengths() {
    let plain = traces("a").into_wire().to_bytes();
    for (more, is_json, is_compressed) in [
        (", format: proto", false, false),
        (", format: proto, compression: zstd", false, true),
        (", format: json, compression: zstd", true, true),
    ] {
        let directory = TempDir::new().unwrap();
        let (config, path) = config(&directory, more);
        let terminal = built(&config);
        send(&terminal, traces("a")).await.unwrap();
        send(&terminal, traces("a")).await.unwrap();
        stop(terminal).await;
        let content = fs::read(&path).unwrap();
        let (one, other) = content.split_at(content.len() / 2);
        assert_eq!(one, other);
        let (prefix, body) = one.split_at(4);
        assert_eq!(prefix, u32::try_from(body.len()).unwrap().to_be_bytes());
        let body = match is_compressed {
            true => zstd::decode_all(body).unwrap(),
            false => body.to_vec(),
        };
        let request = match is_json {
            true => tributary_otlp::json::to_wire(Signal::Traces, &body).unwrap(),
            false => body,
        };
        assert_eq!(request, plain);
    }
}

#[tokio::test]
async fn a_disk_that_takes_nothing_is_a_refusal_to_be_tried_again_that_names_the_file() {
    let config: Config = serde_yaml::from_str("{path: /dev/full}").unwrap();
    let terminal = built(&config);
    let nack = send(&terminal, traces("a")).await.unwrap_err();
    assert!(nack.retryable);
    assert!(nack.reason.contains("/dev/full: No space left"), "{nack}");
    stop(terminal).await;
}

#[tokio::test]
async fn a_queue_is_emptied_into_the_file_before_the_end() {
    let directory = TempDir::new().unwrap();
    let (config, path) = config(&directory, ", sending_queue: {}");
    let terminal = built(&config);
    for _ in 0..10 {
        send(&terminal, traces("a")).await.unwrap();
    }
    stop(terminal).await;
    assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 10);
}

#[tokio::test]
async fn a_file_is_emptied_at_the_first_start_only_and_never_with_append() {
    for (more, kept) in [("", 0), (", append: true", 1), (", rotation: {}", 1)] {
        let directory = TempDir::new().unwrap();
        let (config, path) = config(&directory, more);
        fs::create_dir(path.parent().unwrap()).unwrap();
        fs::write(&path, "{}\n").unwrap();
        for start in 1..=2 {
            let terminal = built(&config);
            send(&terminal, traces("a")).await.unwrap();
            stop(terminal).await;
            let lines = fs::read_to_string(&path).unwrap().lines().count();
            assert_eq!(lines, kept + start, "{more}");
        }
    }
}

#[test]
fn a_directory_that_is_missing_is_an_error_that_says_what_to_do() {
    let directory = TempDir::new().unwrap();
    let (mut config, path) = config(&directory, "");
    config.create_directory = false;
    let error = config.build(&context("file"), &Signal::ALL).err().unwrap();
    let text = error.to_string();
    assert!(text.contains(&path.display().to_string()), "{text}");
    assert!(text.contains("create_directory"), "{text}");
}

#[test]
fn every_rule_is_reported_at_its_key() {
    assert_eq!(problems("{path: a}"), Vec::<String>::new());
    assert_eq!(
        problems("{path: a, group_by: {enabled: false}}"),
        Vec::<String>::new()
    );
    let yaml = "
flush_interval: 0s
directory_permissions: '0999'
compression_params: {level: 3}
group_by: {enabled: true}
encoding: otlp_encoding
sending_queue: {queue_size: 0}
retry_on_failure: {multiplier: 0}
";
    assert_eq!(
        problems(yaml),
        [
            "path",
            "flush_interval",
            "directory_permissions",
            "compression_params::level",
            "group_by::enabled",
            "encoding",
            "sending_queue::queue_size",
            "retry_on_failure::multiplier",
        ]
    );
}
