//! Tests of the exporter with brokers inside this process.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message as _;
use rdkafka::Message as _;
use rdkafka::message::Headers as _;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use tokio::time::{Instant, timeout};

use super::group::Grouping;
use super::producer::Exporter;
use super::record::{Record, records as unpacked, values};
use super::*;
use crate::component::Terminal;
use crate::pipeline::batch::{Batch, Code, Nack};
use crate::pipeline::{Component, Undelivered};
use crate::queue::{Encoded, Sender as _};
use crate::testing::named_batch;
use crate::testing::{Recorded, context};
use tributary_config::{Problems, Validate as _};
use tributary_net::kafka::RecordEncoding;
use tributary_net::kafka::testing::{Cluster, attribute, bodies, logs, records, soon, written};
use tributary_otlp::Requests;
use tributary_profiles::testing_requests::sample_names;

fn config(yaml: &str) -> Config {
    serde_yaml::from_str(yaml).unwrap()
}

fn batch(request: Vec<u8>) -> Batch {
    let items = tributary_otlp::count(Signal::Logs, &request);
    Batch::new(Signal::Logs, items, Bytes::from(request))
}

/// An exporter whose sends wait for the outcome.
struct Trial {
    terminal: Terminal,
    recorded: Recorded,
}

impl Trial {
    fn new(cluster: &Cluster, yaml: &str) -> Self {
        let mut config = config(yaml);
        config.brokers = vec![cluster.brokers.clone()];
        if let Some(queue) = &mut config.sending_queue.0 {
            queue.wait_for_result = true;
        }
        if let Some(retry) = &mut config.retry_on_failure.0 {
            retry.initial_interval = tributary_config::units::Duration::millis(10);
        }
        let recorded = Recorded::new();
        let mut terminal = recorded
            .within(|| config.build(&context("kafka"), &Signal::ALL))
            .unwrap();
        terminal.component.start();
        Trial { terminal, recorded }
    }

    async fn send(&self, batch: Batch) -> Result<(), Nack> {
        let consumer = self.terminal.inputs.get(batch.signal()).unwrap();
        soon(consumer.consume(batch)).await
    }

    async fn end(self) -> Undelivered {
        let component: Box<dyn Component> = self.terminal.component;
        component
            .shutdown(Instant::now() + Duration::from_secs(30))
            .await
    }
}

#[tokio::test]
async fn acknowledged_records_are_in_topic_with_headers() {
    let cluster = Cluster::new(&[("otlp_logs", 2), ("cpu", 1)]);
    let trial = Trial::new(
        &cluster,
        "{profiles: {topic: cpu}, record_headers: {from: here}}",
    );
    let request = logs(&[(&[], &["a", "b"])]);
    trial.send(batch(request.clone())).await.unwrap();
    trial.send(named_batch("shop", ["work"])).await.unwrap();
    assert_eq!(written(&cluster.brokers, "otlp_logs"), 1);
    let record = &records(&cluster.brokers, "otlp_logs", 1).await[0];
    assert_eq!(record.payload().unwrap(), request);
    assert_eq!(record.key(), None);
    let header = record.headers().unwrap().get(0);
    assert_eq!((header.key, header.value), ("from", Some(&b"here"[..])));
    let record = &records(&cluster.brokers, "cpu", 1).await[0];
    assert_eq!(sample_names(record.payload().unwrap()), ["work"]);
    assert_eq!(trial.recorded.items("delivered", Signal::Logs), 2);
    assert_eq!(trial.end().await.items, 0);
}

#[tokio::test]
async fn oversized_batch_is_split_and_oversized_item_dropped() {
    let cluster = Cluster::new(&[("otlp_logs", 1)]);
    let yaml = "{producer: {max_message_bytes: 1000}, logs: {encoding: otlp_json}}";
    let trial = Trial::new(&cluster, yaml);
    let (long, huge) = ("x".repeat(300), "y".repeat(2000));
    trial
        .send(batch(logs(&[(&[], &["a", &long, "b", &huge, &long, "c"])])))
        .await
        .unwrap();
    let count = written(&cluster.brokers, "otlp_logs") as usize;
    let mut arrived = Vec::new();
    for record in records(&cluster.brokers, "otlp_logs", count).await {
        let value = record.payload().unwrap();
        assert!(value.len() <= 1000, "{}", value.len());
        arrived.extend(bodies(
            &tributary_otlp::json::to_wire(Signal::Logs, value).unwrap(),
        ));
    }
    assert_eq!(arrived, ["a", long.as_str(), "b", long.as_str(), "c"]);
    assert_eq!(trial.recorded.items("delivered", Signal::Logs), 5);
    assert_eq!(trial.recorded.sum("tributary_exporter_dropped_items"), 1.0);
    let refused = trial
        .send(batch(logs(&[(&[], &[&huge])])))
        .await
        .unwrap_err();
    assert!(!refused.retryable, "{refused}");
}

#[tokio::test]
async fn records_of_resource_share_key_and_keep_order() {
    let cluster = Cluster::new(&[("otlp_logs", 8)]);
    let yaml = "{partition_logs_by_resource_attributes: true, sending_queue: {num_consumers: 1}}";
    let trial = Trial::new(&cluster, yaml);
    let (a, b): (&[_], &[_]) = (
        &[("service.name", "a"), ("zone", "1")],
        &[("service.name", "b")],
    );
    let turned: &[_] = &[("zone", "1"), ("service.name", "a")];
    trial
        .send(batch(logs(&[
            (a, &["a1"]),
            (b, &["b1"]),
            (turned, &["a2"]),
        ])))
        .await
        .unwrap();
    trial
        .send(batch(logs(&[(turned, &["a3"]), (b, &["b2"])])))
        .await
        .unwrap();
    let arrived = records(&cluster.brokers, "otlp_logs", 4).await;
    let of = |letter: char| {
        let those = arrived
            .iter()
            .filter(|record| bodies(record.payload().unwrap())[0].starts_with(letter));
        let mut those: Vec<_> = those.collect();
        those.sort_by_key(|record| record.offset());
        let keys: Vec<_> = those
            .iter()
            .map(|record| (record.partition(), record.key()))
            .collect();
        assert!(
            keys.iter().all(|key| *key == keys[0] && key.1.is_some()),
            "{keys:?}"
        );
        those
            .iter()
            .flat_map(|record| bodies(record.payload().unwrap()))
            .collect::<Vec<_>>()
    };
    assert_eq!(of('a'), ["a1", "a2", "a3"]);
    assert_eq!(of('b'), ["b1", "b2"]);
}

#[tokio::test]
async fn only_temporary_broker_errors_are_retried() {
    let cluster = Cluster::new(&[("otlp_logs", 1)]);
    let trial = Trial::new(&cluster, "{}");
    trial.send(batch(logs(&[(&[], &["first"])]))).await.unwrap();
    cluster.mock.request_errors(
        RDKafkaApiKey::Produce,
        &[
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED,
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS,
        ],
    );
    trial.send(batch(logs(&[(&[], &["again"])]))).await.unwrap();
    assert_eq!(written(&cluster.brokers, "otlp_logs"), 2);
    cluster.mock.request_errors(
        RDKafkaApiKey::Produce,
        &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE],
    );
    let refused = trial
        .send(batch(logs(&[(&[], &["never"])])))
        .await
        .unwrap_err();
    assert!(
        !refused.retryable && refused.reason.contains("otlp_logs"),
        "{refused}"
    );
    assert_eq!(
        refused.code,
        Code::ResourceExhausted,
        "smaller, it might be taken"
    );
}

#[tokio::test]
async fn client_with_fatal_error_is_replaced() {
    let cluster = Cluster::new(&[("otlp_logs", 1)]);
    let trial = Trial::new(&cluster, "{}");
    trial.send(batch(logs(&[(&[], &["first"])]))).await.unwrap();
    cluster.mock.request_errors(
        RDKafkaApiKey::Produce,
        &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER],
    );
    trial
        .send(batch(logs(&[(&[], &["second"])])))
        .await
        .unwrap();
    assert_eq!(written(&cluster.brokers, "otlp_logs"), 2);
}

/// Returns a batch as encoded by the queue.
fn encoded(exporter: &Exporter, request: Vec<u8>) -> Encoded {
    let requests = Requests::from(Bytes::from(request));
    let memory =
        crate::pipeline::output_memory::OutputMemory::new(&tributary_memory::Budget::new(1 << 30));
    let chunks = exporter.encode(Signal::Logs, &requests, &memory).unwrap();
    Encoded {
        signal: Signal::Logs,
        items: 1,
        chunks: chunks.into(),
        retained_bytes: 0,
        identity: Arc::default(),
    }
}

#[tokio::test]
async fn attempt_after_timeout_waits_for_same_record() {
    let cluster = Cluster::new(&[("otlp_logs", 1)]);
    let config = config(&format!("{{brokers: ['{}']}}", cluster.brokers));
    let exporter = Exporter::new(&config, &"kafka".parse().unwrap()).unwrap();
    soon(exporter.send(&encoded(&exporter, logs(&[(&[], &["first"])]))))
        .await
        .unwrap();
    cluster
        .mock
        .broker_round_trip_time(1, Duration::from_millis(1500))
        .unwrap();
    let late = encoded(&exporter, logs(&[(&[], &["late"])]));
    let early_end = timeout(Duration::from_millis(200), exporter.send(&late)).await;
    assert!(early_end.is_err());
    assert_eq!(exporter.unfinished.len(), 1);
    soon(exporter.send(&late)).await.unwrap();
    assert_eq!(exporter.unfinished.len(), 0);
    cluster
        .mock
        .broker_round_trip_time(1, Duration::ZERO)
        .unwrap();
    assert_eq!(written(&cluster.brokers, "otlp_logs"), 2);
    // State of batches that the queue has dropped is removed when another attempt ends early.
    cluster
        .mock
        .broker_round_trip_time(1, Duration::from_millis(1500))
        .unwrap();
    for body in ["given up", "kept"] {
        let one = encoded(&exporter, logs(&[(&[], &[body])]));
        assert!(
            timeout(Duration::from_millis(50), exporter.send(&one))
                .await
                .is_err()
        );
        assert_eq!(exporter.unfinished.len(), 1, "{body}");
    }
}

#[tokio::test]
async fn one_consumer_sends_many_requests_at_once_and_in_order() {
    let cluster = Cluster::new(&[("otlp_logs", 1)]);
    let yaml = "{sending_queue: {num_consumers: 1}, timeout: 50ms}";
    let trial = Trial::new(&cluster, yaml);
    trial.send(batch(logs(&[(&[], &["0"])]))).await.unwrap();
    // Longer than an attempt, so requests are retried while they are in flight.
    let answer = Duration::from_millis(300);
    cluster.mock.broker_round_trip_time(1, answer).unwrap();
    let begun = Instant::now();
    let bodies_sent: Vec<String> = (1..=50).map(|number| number.to_string()).collect();
    let sent = bodies_sent
        .iter()
        .map(|body| trial.send(batch(logs(&[(&[], &[body])]))));
    let outcomes = futures_util::future::join_all(sent).await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert!(begun.elapsed() < answer * 25, "{:?}", begun.elapsed());
    cluster
        .mock
        .broker_round_trip_time(1, Duration::ZERO)
        .unwrap();
    assert_eq!(written(&cluster.brokers, "otlp_logs"), 51);
    let arrived = records(&cluster.brokers, "otlp_logs", 51).await;
    let arrived = arrived
        .iter()
        .flat_map(|record| bodies(record.payload().unwrap()));
    assert_eq!(arrived.skip(1).collect::<Vec<_>>(), bodies_sent);
}

#[tokio::test]
async fn certificate_renewal_keeps_record_order() {
    let cluster = Cluster::new(&[("otlp_logs", 1)]);
    let config = config(&format!("{{brokers: ['{}']}}", cluster.brokers));
    let exporter = Exporter::new(&config, &"kafka".parse().unwrap()).unwrap();
    let one = |body: &str| encoded(&exporter, logs(&[(&[], &[body])]));
    soon(exporter.send(&one("0"))).await.unwrap();
    // The broker reports late that the record has to be sent again.
    cluster.mock.request_errors(
        RDKafkaApiKey::Produce,
        &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS],
    );
    cluster
        .mock
        .broker_round_trip_time(1, Duration::from_millis(1500))
        .unwrap();
    let before = one("before");
    let in_flight = timeout(Duration::from_millis(300), exporter.send(&before)).await;
    assert!(in_flight.is_err());
    cluster
        .mock
        .broker_round_trip_time(1, Duration::ZERO)
        .unwrap();
    soon(exporter.brokers.reconnect()).await;
    soon(exporter.send(&one("after"))).await.unwrap();
    soon(exporter.send(&before)).await.unwrap();
    let arrived = records(&cluster.brokers, "otlp_logs", 3).await;
    let arrived = arrived
        .iter()
        .flat_map(|record| bodies(record.payload().unwrap()));
    assert_eq!(arrived.collect::<Vec<_>>(), ["0", "before", "after"]);
}

#[tokio::test]
async fn forbidden_topic_does_not_block_other_topics() {
    let cluster = Cluster::new(&[("otlp_logs", 1), ("there", 1)]);
    cluster
        .mock
        .topic_error(
            "closed",
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED,
        )
        .unwrap();
    let yaml = "{topic_from_attribute: topic, timeout: 1s, sending_queue: {num_consumers: 1}, \
                retry_on_failure: {max_elapsed_time: 1s}}";
    let trial = Trial::new(&cluster, yaml);
    let to = |topic: &str, body: &str| logs(&[(&[("topic", topic)], &[body])]);
    // After the first failure, librdkafka knows the error of the topic.
    trial.send(batch(to("closed", "0"))).await.unwrap_err();
    let (closed, there): (&[_], &[_]) = (&[("topic", "closed")], &[("topic", "there")]);
    let both = batch(logs(&[(closed, &["1"]), (there, &["2"])]));
    let (refused, next) = tokio::join!(
        trial.send(both),
        // Queued behind the failing batch, and delivered before that batch is dropped.
        trial.send(batch(to("there", "3"))),
    );
    next.unwrap();
    assert!(refused.unwrap_err().reason.contains("closed"));
    assert_eq!(written(&cluster.brokers, "there"), 2);
}

#[test]
fn each_trace_is_a_group_with_resource_and_scopes() {
    let span = |trace: u8, name: &str| Span {
        trace_id: vec![trace; 16],
        name: name.to_owned(),
        ..Span::default()
    };
    let scope = |schema: &str, spans: Vec<Span>| ScopeSpans {
        schema_url: schema.to_owned(),
        spans,
        ..ScopeSpans::default()
    };
    let resource = |name: &str, scope_spans| ResourceSpans {
        resource: Some(Resource {
            attributes: vec![attribute("service.name", name)],
            ..Resource::default()
        }),
        scope_spans,
        ..ResourceSpans::default()
    };
    let request = ExportTraceServiceRequest {
        resource_spans: vec![
            resource(
                "a",
                vec![
                    scope("x", vec![span(1, "a1"), span(2, "a2"), span(1, "a3")]),
                    scope("y", vec![span(1, "a4")]),
                ],
            ),
            resource("b", vec![scope("x", vec![span(1, "b1")])]),
        ],
    };
    let grouping = Grouping {
        topic_attribute: String::new(),
        has_keys: true,
    };
    let groups = grouping.groups(Signal::Traces, &request.encode_to_vec().into());
    let keys: Vec<_> = groups.iter().map(|group| group.key.clone()).collect();
    assert_eq!(keys, ["01".repeat(16), "02".repeat(16)]);
    let decoded = |at: usize| {
        let request: &[u8] = &groups[at].request;
        ExportTraceServiceRequest::decode(request)
            .unwrap()
            .resource_spans
    };
    let first = vec![
        resource(
            "a",
            vec![
                scope("x", vec![span(1, "a1"), span(1, "a3")]),
                scope("y", vec![span(1, "a4")]),
            ],
        ),
        resource("b", vec![scope("x", vec![span(1, "b1")])]),
    ];
    assert_eq!(decoded(0), first);
    assert_eq!(
        decoded(1),
        [resource("a", vec![scope("x", vec![span(2, "a2")])])]
    );
}

#[test]
fn resource_attribute_names_topic_if_valid() {
    let grouping = Grouping {
        topic_attribute: "topic".to_owned(),
        has_keys: false,
    };
    let of = |topic: &'static str| [("topic", topic)];
    let (a, b, bad) = (of("a"), of("b"), of("no topic"));
    let request = logs(&[
        (&a, &["1"]),
        (&b, &["2"]),
        (&[], &["3"]),
        (&bad, &["4"]),
        (&a, &["5"]),
    ]);
    let groups = grouping.groups(Signal::Logs, &request.into());
    let found: Vec<_> = groups
        .iter()
        .map(|group| (group.topic.as_deref(), bodies(&group.request).join("")))
        .collect();
    let expected = [(Some("a"), "15"), (Some("b"), "2"), (None, "34")];
    assert_eq!(
        found,
        expected.map(|(topic, bodies)| (topic, bodies.to_owned()))
    );
}

#[test]
fn profiles_of_resource_have_equal_keys() {
    let grouping = Grouping {
        topic_attribute: String::new(),
        has_keys: true,
    };
    let groups = |batch: Batch| grouping.groups(Signal::Profiles, &batch.into_wire().to_bytes());
    let (one, two) = (
        named_batch("shop", ["work"]),
        named_batch("cart", ["wait", "more"]),
    );
    let joined = tributary_profiles::join(
        &[
            two.into_wire().to_bytes(),
            one.clone().into_wire().to_bytes(),
        ],
        usize::MAX,
    );
    let alone = groups(one);
    let both = grouping.groups(Signal::Profiles, &joined[0].request);
    assert_eq!(both.len(), 2);
    assert_eq!(both[1].key, alone[0].key);
    assert_ne!(both[0].key, both[1].key);
    assert_eq!(sample_names(&both[1].request), ["work"]);
    let request: &[u8] = &both[1].request;
    let strings = ExportProfilesServiceRequest::decode(request)
        .unwrap()
        .dictionary
        .unwrap()
        .string_table;
    assert!(!strings.contains(&"wait".to_owned()), "{strings:?}");
}

#[test]
fn values_are_within_the_limit_in_order_and_complete() {
    let texts: Vec<String> = (0..200)
        .map(|number| format!("{number}-{}", "z".repeat(number)))
        .collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let request = Bytes::from(logs(&[(&[("service.name", "a")], &texts)]));
    for encoding in [RecordEncoding::OtlpProto, RecordEncoding::OtlpJson] {
        let values = values(Signal::Logs, request.clone(), encoding, 1500).unwrap();
        assert!(values.len() > 10);
        assert!(values.iter().all(|(_, value)| value.len() <= 1500));
        assert_eq!(values.iter().map(|(items, _)| items).sum::<usize>(), 200);
        let arrived: Vec<String> = values
            .iter()
            .flat_map(|(_, value)| match encoding {
                RecordEncoding::OtlpProto => bodies(value),
                RecordEncoding::OtlpJson => {
                    bodies(&tributary_otlp::json::to_wire(Signal::Logs, value).unwrap())
                }
            })
            .collect();
        assert_eq!(arrived, texts);
    }
    ExportLogsServiceRequest::decode(request).unwrap();
}

#[test]
fn record_survives_encoding_as_chunks() {
    let record = |key: &'static str| Record {
        items: 7,
        topic: Bytes::from_static(b"topic"),
        key: Bytes::from_static(key.as_bytes()),
        payload: Bytes::from_static(b"payload"),
    };
    let all = [record("key"), record("")];
    let chunks: Vec<Bytes> = all
        .clone()
        .into_iter()
        .flat_map(Record::into_chunks)
        .collect();
    assert_eq!(unpacked(&chunks).collect::<Vec<_>>(), all);
}

#[test]
fn mistakes_are_found_at_their_keys() {
    let found = |yaml: &str| {
        let mut problems = Problems::default();
        config(yaml).validate(&mut problems);
        problems
            .found()
            .iter()
            .map(|problem| problem.path.join("."))
            .collect::<Vec<_>>()
    };
    assert_eq!(found("{}"), Vec::<String>::new());
    for (yaml, path) in [
        ("{brokers: []}", "brokers"),
        ("{brokers: ['kafka://a:9092']}", "brokers.0"),
        ("{protocol_version: 0.10.2}", "protocol_version"),
        ("{protocol_version: new}", "protocol_version"),
        ("{logs: {topic: 'a b'}}", "logs.topic"),
        ("{producer: {required_acks: 0}}", "producer.required_acks"),
        (
            "{producer: {max_message_bytes: 10}}",
            "producer.max_message_bytes",
        ),
        (
            "{producer: {compression: zstd, compression_params: {level: 3}}}",
            "producer.compression_params.level",
        ),
        (
            "{auth: {sasl: {username: a}}, tls: {}}",
            "auth.sasl.password",
        ),
        (
            "{auth: {sasl: {username: a, password: b}}}",
            "auth.sasl.mechanism",
        ),
        ("{tls: {ca_file: /nowhere/ca.pem}}", "tls.ca_file"),
        ("{tls: {cert_pem: x}}", "tls"),
    ] {
        assert_eq!(found(yaml), [path], "{yaml}");
    }
}

#[test]
fn password_is_in_no_message() {
    let yaml = "{auth: {sasl: {username: me, password: hush, mechanism: SCRAM-SHA-512}}, \
                tls: {ca_pem: 'no certificate'}}";
    let config = config(yaml);
    let Err(refused) = Exporter::new(&config, &"kafka".parse().unwrap()) else {
        panic!("there is no certificate");
    };
    assert!(refused.contains("ssl.ca.pem"), "{refused}");
    let printed = serde_yaml::to_string(&config).unwrap();
    let settings = tributary_net::kafka::client::settings(&config.connection());
    assert_eq!(settings.get("sasl.password"), Some("hush"));
    assert_eq!(settings.get("security.protocol"), Some("SASL_SSL"));
    for text in [refused, printed, format!("{config:?} {settings:?}")] {
        assert!(!text.contains("hush"), "{text}");
    }
}
