//! Tests with the detector `consul`, whose address is a setting.

use std::time::Duration;

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::logs::v1::ResourceLogs;
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;
use tokio::sync::watch;
use tokio::time::timeout;
use tributary_net::client::test_server::{TestServer, answer};

use super::running::RunningDetection;
use super::*;
use crate::component::Host;
use tributary_otlp::Decoded;

const AGENT: &str = r#"{"Config": {"NodeName": "n1", "Datacenter": "dc1", "NodeID": "id"}}"#;
const SCHEMA: &str = "https://opentelemetry.io/schemas/1.43.0";

async fn agent(status: watch::Receiver<u16>) -> TestServer {
    counted_agent(status, watch::Sender::new(0)).await
}

/// An agent that counts its responses of an error.
async fn counted_agent(status: watch::Receiver<u16>, failures: watch::Sender<u64>) -> TestServer {
    TestServer::start(None, move |_| {
        let status = *status.borrow();
        failures.send_modify(|count| *count += u64::from(status != 200));
        let headers = Default::default();
        Some(answer(
            status,
            headers,
            AGENT.as_bytes(),
            Default::default(),
        ))
    })
    .await
}

fn config(server: &TestServer, more: &str) -> DetectionConfig {
    let yaml = format!(
        "{{detectors: [consul], consul: {{address: '{}'}}, fail_on_missing_metadata: true{more}}}",
        server.address
    );
    serde_yaml::from_str(&yaml).unwrap()
}

fn build(config: &DetectionConfig, name: &str) -> Result<Box<dyn Processor>, BuildError> {
    let id = format!("resource_detection/{name}").parse().unwrap();
    match config.build(&Host::for_tests().context(&id), Signal::Logs)? {
        Stage::Pure(processor) => Ok(processor),
        Stage::Buffering(_) => unreachable!(),
    }
}

fn text(text: &str) -> Option<AnyValue> {
    let value = Some(Value::StringValue(text.to_owned()));
    Some(AnyValue { value })
}

fn logs(attributes: &[(&str, &str)], schema_url: &str) -> Batch {
    let attributes = attributes.iter().map(|(key, value)| KeyValue {
        key: (*key).to_owned(),
        value: text(value),
        ..KeyValue::default()
    });
    let entry = ResourceLogs {
        resource: Some(Resource {
            attributes: attributes.collect(),
            ..Resource::default()
        }),
        schema_url: schema_url.to_owned(),
        ..ResourceLogs::default()
    };
    let request = ExportLogsServiceRequest {
        resource_logs: vec![entry],
    };
    Batch::new(Signal::Logs, 0, Bytes::from(request.encode_to_vec()))
}

fn processed(processor: &dyn Processor, batch: Batch) -> (Vec<(String, String)>, String) {
    let batch = processor.process(batch).unwrap().unwrap();
    let Decoded::Logs(request) = batch.decoded().unwrap() else {
        unreachable!();
    };
    let entry = &request.resource_logs[0];
    let attributes = entry
        .resource
        .iter()
        .flat_map(|resource| &resource.attributes);
    let mut pairs: Vec<_> = attributes
        .map(
            |attribute| match attribute.value.as_ref().unwrap().value.as_ref() {
                Some(Value::StringValue(text)) => (attribute.key.clone(), text.clone()),
                other => (attribute.key.clone(), format!("{other:?}")),
            },
        )
        .collect();
    pairs.sort_unstable();
    (pairs, entry.schema_url.clone())
}

fn owned(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    pairs.iter().map(owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn detected_attributes_replace_others_unless_told_not_to() {
    let (_status, statuses) = watch::channel(200);
    let server = agent(statuses).await;
    for (more, id, schema_url) in [("", "id", ""), (", override: false", "own", "before")] {
        let processor = build(&config(&server, more), &format!("replace-{id}")).unwrap();
        let batch = logs(&[("host.id", "own"), ("a", "b")], schema_url);
        let (attributes, schema) = processed(&*processor, batch);
        let expected = [
            ("a", "b"),
            ("cloud.region", "dc1"),
            ("host.id", id),
            ("host.name", "n1"),
        ];
        assert_eq!(attributes, owned(&expected));
        assert_eq!(
            schema,
            if schema_url.is_empty() {
                SCHEMA
            } else {
                schema_url
            }
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deprecated_list_selects_attributes() {
    let (_status, statuses) = watch::channel(200);
    let server = agent(statuses).await;
    let processor = build(&config(&server, ", attributes: [host.name]"), "list").unwrap();
    let (attributes, _) = processed(&*processor, logs(&[], ""));
    assert_eq!(attributes, owned(&[("host.name", "n1")]));
}

#[tokio::test(flavor = "multi_thread")]
async fn pipelines_and_reloads_share_one_detection() {
    let (_status, statuses) = watch::channel(200);
    let server = agent(statuses).await;
    let settings = config(&server, "");
    let first = build(&settings, "shared").unwrap();
    let second = build(&settings, "shared").unwrap();
    assert_eq!(server.connections(), 1);
    build(&config(&server, ", override: false"), "shared").unwrap();
    assert_eq!(
        server.connections(),
        2,
        "other settings need another detection"
    );
    drop((first, second));
    build(&settings, "shared").unwrap();
    assert_eq!(server.connections(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn failing_detector_is_retried_and_then_prevents_the_start() {
    let (_status, statuses) = watch::channel(500);
    let server = agent(statuses).await;
    let retry =
        ", timeout: 10s, retry: {initial_interval: 20ms, multiplier: 1, max_elapsed_time: 2s}";
    let error = build(&config(&server, retry), "failing").err().unwrap();
    let expected = "detector `consul`: http://";
    assert!(error.0.starts_with(expected), "{error}");
    assert!(error.0.contains("500 Internal Server Error"), "{error}");
    assert!(server.connections() > 2);
    let before = server.connections();
    let once = ", retry: {enabled: false}";
    assert!(build(&config(&server, once), "failing").is_err());
    assert_eq!(server.connections(), before + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_refresh_keeps_the_attributes() {
    let (status, statuses) = watch::channel(200);
    let failures = watch::Sender::new(0);
    let mut counted = failures.subscribe();
    let server = counted_agent(statuses, failures).await;
    let more = ", refresh_interval: 5ms, retry: {enabled: false}";
    let settings = config(&server, more);
    let id = "resource_detection/refresh".parse().unwrap();
    let machine = Machine::of_this_process();
    let running = RunningDetection::start(&id, &settings, machine).unwrap();
    status.send(500).unwrap();
    let several = counted.wait_for(|count| *count >= 3);
    timeout(Duration::from_secs(30), several)
        .await
        .unwrap()
        .unwrap();
    assert!(running.actions().is_some());
}
