use std::fs;
use std::path::PathBuf;

use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value::Value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message as _;
use tempfile::TempDir;

use super::*;
use crate::pipeline::batch::{Batch, Progress};
use crate::testing::{Recorded, context};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;

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
    crate::testing::problems::<Config>(yaml)
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
async fn acknowledged_requests_are_in_file_one_per_line() {
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
async fn protobuf_and_compressed_requests_have_length_prefix() {
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
async fn full_disk_refuses_with_file_name_for_retry() {
    let config: Config = serde_yaml::from_str("{path: /dev/full}").unwrap();
    let terminal = built(&config);
    let nack = send(&terminal, traces("a")).await.unwrap_err();
    assert!(nack.retryable);
    assert!(nack.reason.contains("/dev/full: No space left"), "{nack}");
    stop(terminal).await;
}

#[tokio::test]
async fn shutdown_writes_queue_to_file() {
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
async fn file_is_truncated_at_first_start_without_append() {
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
fn missing_directory_error_names_remedy() {
    let directory = TempDir::new().unwrap();
    let (mut config, path) = config(&directory, "");
    config.create_directory = false;
    let error = config.build(&context("file"), &Signal::ALL).err().unwrap();
    let text = error.to_string();
    assert!(text.contains(&path.display().to_string()), "{text}");
    assert!(text.contains("create_directory"), "{text}");
}

#[test]
fn violated_rules_are_reported_at_their_keys() {
    assert_eq!(problems("{path: a}"), Vec::<String>::new());
    assert_eq!(
        problems("{path: a, group_by: {enabled: false}}"),
        Vec::<String>::new()
    );
    let yaml = "
flush_interval: 0s
directory_permissions: '0999'
compression_params: {level: 3}
group_by: {enabled: true, resource_attribute: '', max_open_files: 0}
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
            "group_by::resource_attribute",
            "group_by::max_open_files",
            "encoding",
            "sending_queue::queue_size",
            "retry_on_failure::multiplier",
        ]
    );
}

#[test]
fn group_by_needs_one_star_behind_the_first_character() {
    for (path, expected) in [
        ("/data/*.json", [].as_slice()),
        ("/data/a.json", &["path"]),
        ("/data/*/*.json", &["path"]),
        ("*.json", &["path"]),
    ] {
        let yaml = format!("{{path: '{path}', group_by: {{enabled: true}}}}");
        assert_eq!(problems(&yaml), expected, "{path}");
    }
}

/// Returns one span for each resource, whose attribute `tenant` has the given value.
fn by_tenant(tenants: &[Option<Value>]) -> Batch {
    let resource_spans = tenants.iter().map(|value| {
        let attributes = value.iter().map(|value| KeyValue {
            key: "tenant".to_owned(),
            value: Some(AnyValue {
                value: Some(value.clone()),
            }),
            ..KeyValue::default()
        });
        ResourceSpans {
            resource: Some(Resource {
                attributes: attributes.collect(),
                ..Resource::default()
            }),
            scope_spans: vec![ScopeSpans {
                spans: vec![Span::default()],
                ..ScopeSpans::default()
            }],
            ..ResourceSpans::default()
        }
    });
    let request = ExportTraceServiceRequest {
        resource_spans: resource_spans.collect(),
    };
    let items = tenants.len();
    Batch::new(Signal::Traces, items, Bytes::from(request.encode_to_vec()))
}

fn tenants(names: &[&str]) -> Batch {
    let values = names
        .iter()
        .map(|name| Some(Value::StringValue((*name).to_owned())));
    by_tenant(&values.collect::<Vec<_>>())
}

fn grouped(directory: &TempDir, more: &str) -> Config {
    let yaml = format!(
        "{{path: '{}/data/*.json', group_by: {{enabled: true, resource_attribute: tenant, max_open_files: 2}}{more}}}",
        directory.path().display()
    );
    serde_yaml::from_str(&yaml).unwrap()
}

/// The number of spans in each line of each file, by the name of the file.
fn spans_by_file(directory: &TempDir) -> Vec<(String, Vec<usize>)> {
    let root = directory.path().join("data");
    let (mut files, mut todo) = (Vec::new(), vec![root.clone()]);
    while let Some(next) = todo.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                todo.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let spans = text.lines().map(|line| {
                let request = tributary_otlp::json::to_wire(Signal::Traces, line.as_bytes());
                tributary_otlp::count(Signal::Traces, &request.unwrap())
            });
            let name = path.strip_prefix(&root).unwrap().display().to_string();
            files.push((name, spans.collect()));
        }
    }
    files.sort();
    files
}

#[tokio::test]
async fn group_by_writes_each_value_to_its_file() {
    let directory = TempDir::new().unwrap();
    let terminal = built(&grouped(&directory, ""));
    let names = ["a", "b", "a", "../../c/d", "../../c/d"];
    send(&terminal, tenants(&names)).await.unwrap();
    send(&terminal, tenants(&["b"])).await.unwrap();
    stop(terminal).await;
    let expected = [
        ("a.json", vec![2]),
        ("b.json", vec![1, 1]),
        ("c/d.json", vec![2]),
    ];
    let expected = expected.map(|(name, spans)| (name.to_owned(), spans));
    assert_eq!(spans_by_file(&directory), expected);
}

#[tokio::test]
async fn group_by_drops_and_counts_unusable_names() {
    let directory = TempDir::new().unwrap();
    let recorded = Recorded::new();
    let terminal = recorded.within(|| built(&grouped(&directory, "")));
    let long = "x".repeat(300);
    let unusable = [
        None,
        Some(Value::IntValue(1)),
        Some(Value::StringValue(long)),
        Some(Value::StringValue("nul\0".to_owned())),
        Some(Value::StringValue("a".to_owned())),
    ];
    send(&terminal, by_tenant(&unusable)).await.unwrap();
    stop(terminal).await;
    assert_eq!(spans_by_file(&directory), [("a.json".to_owned(), vec![1])]);
    assert_eq!(recorded.items("delivered", Signal::Traces), 1);
    assert_eq!(recorded.items("dropped", Signal::Traces), 4);
}

#[tokio::test]
async fn group_by_reopens_least_recently_used_file() {
    let directory = TempDir::new().unwrap();
    let config = grouped(&directory, "");
    let files = OpenFiles::new(&"file".parse().unwrap(), &config);
    let path = |name: &str| directory.path().join("data").join(name);
    let open = |files: &OpenFiles| {
        let mut open: Vec<_> = files
            .all()
            .iter()
            .map(|open| open.path().to_owned())
            .collect();
        open.sort();
        open
    };
    for name in ["a", "b", "a", "c"] {
        files.write(&path(name), Framing::Lines, b"{}\n").unwrap();
    }
    assert_eq!(open(&files), [path("a"), path("c")]);
    files.write(&path("b"), Framing::Lines, b"{}\n").unwrap();
    assert_eq!(open(&files), [path("b"), path("c")]);
    assert_eq!(fs::read_to_string(path("b")).unwrap(), "{}\n{}\n");
    fs::remove_dir_all(path("b").parent().unwrap()).unwrap();
    files.write(&path("b"), Framing::Lines, b"{}\n").unwrap();
    assert_eq!(fs::read_to_string(path("b")).unwrap(), "{}\n");
}

#[tokio::test]
async fn group_by_retries_only_failed_files() {
    let directory = TempDir::new().unwrap();
    let config = grouped(&directory, "");
    let files = OpenFiles::new(&"file".parse().unwrap(), &config);
    let path = |name: &str| directory.path().join(name);
    std::os::unix::fs::symlink("/dev/full", path("full")).unwrap();
    let mut chunks = Vec::new();
    for name in ["full", "good"] {
        chunks.extend(to_chunks(1, Some(&path(name)), b"{}\n".to_vec()));
    }
    let (progress, rotations) = (Progress::default(), Counter::noop());
    let write = || write_groups(&files, Framing::Lines, &chunks, &progress, &rotations);
    assert!(write().unwrap_err().reason.contains("full: No space left"));
    fs::remove_file(path("full")).unwrap();
    assert_eq!(write().unwrap(), Outcome::default());
    for name in ["full", "good"] {
        assert_eq!(fs::read_to_string(path(name)).unwrap(), "{}\n", "{name}");
    }
}

#[tokio::test]
async fn group_by_splits_profiles_with_used_dictionary() {
    let directory = TempDir::new().unwrap();
    let mut config = grouped(&directory, ", format: proto");
    config.group_by.resource_attribute = "service.name".to_owned();
    let requests = [("a", "x"), ("b", "y"), ("a", "z")].map(|(service, name)| {
        let request = tributary_profiles::testing_requests::named(service, 1, [name, "shared"]);
        Bytes::from(request.encode_to_vec())
    });
    let joined = tributary_profiles::join(&requests, usize::MAX)
        .remove(0)
        .request;
    let groups = Groups::of(&config).unwrap();
    let memory = OutputMemory::new(&tributary_memory::Budget::new(1 << 30));
    let split = |request: &Bytes| {
        let requests = Requests::from(request.clone());
        groups.split(Signal::Profiles, &requests, &memory).unwrap()
    };
    let both = split(&joined);
    let found: Vec<_> = both
        .iter()
        .map(|group| {
            let name = group.path.as_ref().unwrap().file_name().unwrap();
            let names =
                tributary_profiles::testing_requests::sample_names(&group.requests.to_bytes());
            (name.to_str().unwrap().to_owned(), group.items, names)
        })
        .collect();
    let owned = |names: &[&str]| {
        names
            .iter()
            .map(|name| (*name).to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        found,
        [
            (
                "a.json".to_owned(),
                4,
                owned(&["x", "shared", "z", "shared"])
            ),
            ("b.json".to_owned(), 2, owned(&["y", "shared"])),
        ]
    );
    // With one file, nothing is copied.
    let one = split(&requests[0]);
    assert_eq!(one[0].requests.parts()[0].as_ptr(), requests[0].as_ptr());
}
