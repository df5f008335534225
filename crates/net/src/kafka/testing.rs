//! Test support for the Kafka exporter and receiver: in-process brokers, and the contents of their topics.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    missing_docs,
    unreachable_pub,
    dead_code,
    reason = "helpers for tests of this crate and others: a panic is a finding"
)]

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;
use rdkafka::consumer::{BaseConsumer, Consumer as _, StreamConsumer};
use rdkafka::message::{Header, OwnedHeaders, OwnedMessage};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{DefaultProducerContext, FutureProducer, FutureRecord};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

/// Timeout that is longer than any successful operation on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// An in-process broker.
pub struct Cluster {
    pub mock: MockCluster<'static, DefaultProducerContext>,
    pub brokers: String,
}

impl Cluster {
    /// Creates a broker with these topics and numbers of partitions.
    pub fn new(topics: &[(&str, i32)]) -> Self {
        let mock = MockCluster::new(1).unwrap();
        for (topic, partitions) in topics {
            mock.create_topic(topic, *partitions, 1).unwrap();
        }
        let brokers = mock.bootstrap_servers();
        Cluster { mock, brokers }
    }
}

/// Waits for a result, and fails the test on timeout.
pub async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(TIMEOUT, future)
        .await
        .expect("it comes in time")
}

fn client(brokers: &str) -> ClientConfig {
    let mut settings = ClientConfig::new();
    settings.set("bootstrap.servers", brokers);
    settings
}

/// Writes a record.
pub async fn write(
    brokers: &str,
    (topic, partition): (&str, i32),
    values: &[&[u8]],
    headers: &[(&str, &str)],
) {
    let producer: FutureProducer = client(brokers).create().unwrap();
    for value in values {
        let headers = headers
            .iter()
            .fold(OwnedHeaders::new(), |all, (key, value)| {
                all.insert(Header {
                    key,
                    value: Some(*value),
                })
            });
        let record = FutureRecord::<[u8], [u8]>::to(topic)
            .partition(partition)
            .payload(*value)
            .headers(headers);
        producer.send(record, TIMEOUT).await.unwrap();
    }
}

/// Returns the first records of all partitions of a topic.
pub async fn records(brokers: &str, topic: &str, count: usize) -> Vec<OwnedMessage> {
    let mut settings = client(brokers);
    settings.set("group.id", "reads-without-a-group");
    let consumer: StreamConsumer = settings.create().unwrap();
    let mut list = TopicPartitionList::new();
    for (partition, _) in partitions(brokers, topic) {
        list.add_partition_offset(topic, partition, Offset::Beginning)
            .unwrap();
    }
    consumer.assign(&list).unwrap();
    let mut records = Vec::new();
    while records.len() < count {
        records.push(soon(consumer.recv()).await.unwrap().detach());
    }
    tokio::task::spawn_blocking(move || drop(consumer))
        .await
        .unwrap();
    records
}

/// Returns the number of records in a topic.
pub fn written(brokers: &str, topic: &str) -> i64 {
    partitions(brokers, topic)
        .into_iter()
        .map(|(_, end)| end)
        .sum()
}

fn partitions(brokers: &str, topic: &str) -> Vec<(i32, i64)> {
    let consumer: BaseConsumer = client(brokers).create().unwrap();
    let metadata = consumer.fetch_metadata(Some(topic), TIMEOUT).unwrap();
    let partitions = metadata.topics()[0].partitions().iter();
    let end = |partition: i32| {
        consumer
            .fetch_watermarks(topic, partition, TIMEOUT)
            .unwrap()
            .1
    };
    partitions
        .map(|partition| (partition.id(), end(partition.id())))
        .collect()
}

/// Waits until a group has committed an offset in a partition.
pub async fn begun(cluster: &Cluster, (topic, partition): (&str, i32), group: &str) {
    let mut settings = client(&cluster.brokers);
    settings.set("group.id", group);
    let consumer: Arc<BaseConsumer> = Arc::new(settings.create().unwrap());
    let mut asked = TopicPartitionList::new();
    asked.add_partition(topic, partition);
    loop {
        let (consumer, asked) = (consumer.clone(), asked.clone());
        let committed = move || consumer.committed_offsets(asked, TIMEOUT).unwrap();
        let committed = tokio::task::spawn_blocking(committed).await.unwrap();
        if matches!(committed.elements()[0].offset(), Offset::Offset(_)) {
            return;
        }
    }
}

/// Returns an attribute with a string value.
pub fn attribute(key: &str, value: &str) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(text(value)),
        ..KeyValue::default()
    }
}

fn text(value: &str) -> AnyValue {
    AnyValue {
        value: Some(Value::StringValue(value.to_owned())),
    }
}

/// Attributes of a resource, and the bodies of its log records.
pub type LogEntry<'t> = (&'t [(&'t str, &'t str)], &'t [&'t str]);

/// Returns an encoded request of log records.
pub fn logs(resources: &[LogEntry<'_>]) -> Vec<u8> {
    let resource_logs = resources.iter().map(|(attributes, bodies)| ResourceLogs {
        resource: Some(Resource {
            attributes: attributes
                .iter()
                .map(|(key, value)| attribute(key, value))
                .collect(),
            ..Resource::default()
        }),
        scope_logs: vec![ScopeLogs {
            log_records: bodies
                .iter()
                .map(|body| LogRecord {
                    body: Some(text(body)),
                    ..LogRecord::default()
                })
                .collect(),
            ..ScopeLogs::default()
        }],
        ..ResourceLogs::default()
    });
    let request = ExportLogsServiceRequest {
        resource_logs: resource_logs.collect(),
    };
    request.encode_to_vec()
}

/// Returns the bodies in a request of log records.
pub fn bodies(request: &[u8]) -> Vec<String> {
    let request = ExportLogsServiceRequest::decode(request).unwrap();
    let scopes = request
        .resource_logs
        .into_iter()
        .flat_map(|resource| resource.scope_logs);
    let records = scopes.flat_map(|scope| scope.log_records);
    let body = |record: LogRecord| match record.body.and_then(|body| body.value) {
        Some(Value::StringValue(body)) => body,
        other => panic!("{other:?}"),
    };
    records.map(body).collect()
}
