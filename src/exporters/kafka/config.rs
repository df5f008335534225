//! The configuration of the exporter `kafka`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::queue::{QueueConfig, RetryConfig};
use tributary_config::units::Duration;
use tributary_config::{ExtensionUse, Problems, Section, Validate};
use tributary_net::kafka::{
    Auth, ClusterMetadata, Connection, Encoding, Tls, default_brokers, default_topic, milliseconds,
};
use tributary_otlp::Signal;

/// Writes telemetry to topics of Kafka.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Brokers to learn the others from, as `host:port`. Default: `localhost:9092`.
    pub brokers: Vec<String>,
    /// The version of Kafka that the brokers have at least. Clients and brokers agree on the version of each request,
    /// so all it does is to refuse what is too old: 0.11 is the first that works. Default: `2.1.0`.
    pub protocol_version: String,
    /// Client id for the brokers' logs, metrics and quotas. Default: `otel-collector`.
    pub client_id: String,
    /// Whether to replace the names of `brokers` by the canonical names of their addresses, as Kerberos wants it.
    /// Default: false.
    pub resolve_canonical_bootstrap_servers_only: bool,
    /// Time after which an idle connection is closed; 0 is never. Default: 9m.
    pub conn_idle_timeout: Duration,
    /// Metadata of topics and brokers.
    pub metadata: ClusterMetadata,
    /// TLS to the brokers. Default: off, plaintext.
    pub tls: Section<Tls>,
    /// Authentication to the brokers. Default: none.
    pub auth: Auth,
    /// Destination of traces. Default: topic `otlp_spans`.
    pub traces: SignalConfig,
    /// Destination of metrics. Default: topic `otlp_metrics`.
    pub metrics: SignalConfig,
    /// Destination of logs. Default: topic `otlp_logs`.
    pub logs: SignalConfig,
    /// Destination of profiles. Default: topic `otlp_profiles`.
    pub profiles: SignalConfig,
    /// The resource attribute that names the topic of what is from this resource; resources without it go to the topic
    /// of the signal. (The Collector looks for the first resource of a request that has it, and sends the whole request
    /// there.) Default: none.
    pub topic_from_attribute: String,
    /// Headers of every record. Default: none.
    pub record_headers: BTreeMap<String, String>,
    /// Whether each trace becomes a record of its own, with the trace id in hexadecimal digits as its key, so that all
    /// of a trace is in one partition. Default: false.
    pub partition_traces_by_id: bool,
    /// Whether metrics of different resources become different records, with a hash of the resource's attributes as the
    /// key, so that all series of a resource are in one partition. Default: false.
    pub partition_metrics_by_resource_attributes: bool,
    /// The same for logs. Default: false.
    pub partition_logs_by_resource_attributes: bool,
    /// The same for profiles. (The Collector has no such key.) Default: false.
    pub partition_profiles_by_resource_attributes: bool,
    /// Mapping of record keys to partitions.
    pub record_partitioner: RecordPartitioner,
    /// Settings of the producer.
    pub producer: Producer,
    /// Time limit for the delivery of a record, and for one attempt with a whole request; 0 is no limit. The next
    /// attempt continues to wait for the records already sent, so that no record is written twice. Default: 5s.
    pub timeout: Duration,
    /// The sending queue. With `num_consumers: 1` the records of a key are in the order of the requests, and no slower:
    /// a consumer does not wait for the brokers. More only help where making the records (JSON, keys) takes most of the
    /// time.
    pub sending_queue: Section<QueueConfig>,
    /// Retries of requests that were not delivered.
    pub retry_on_failure: Section<RetryConfig>,
}

/// Topic and encoding of a signal.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SignalConfig {
    /// The topic. Default: the signal's, as said there.
    pub topic: String,
    /// `otlp_proto` or `otlp_json`. Default: `otlp_proto`.
    pub encoding: Encoding,
}

/// Mapping of records to partitions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RecordPartitioner {
    /// By a hash of the key; records without a key go to one partition for a while, then to another.
    pub sticky_key: StickyKey,
}

/// Hashing of keys.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StickyKey {
    /// `sarama_compat` (FNV-1a) or `murmur2`, the hash of Kafka's own clients. Default: `sarama_compat`.
    pub hasher: Hasher,
}

/// A hash of keys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Hasher {
    /// FNV-1a, as the Go client Sarama has it.
    #[default]
    SaramaCompat,
    /// Murmur2, as Kafka's Java client has it.
    Murmur2,
}

/// Settings of the producer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Producer {
    /// The most bytes of a record, key and framing included, before compression. Requests above it are split; an item
    /// that alone is above it is dropped, and counted as `partial_success`. Not more than the brokers take
    /// (`message.max.bytes`, or `max.message.bytes` of the topic). From 1000 to 1000000000. Default: 1000000.
    pub max_message_bytes: usize,
    /// Replicas that must have a record before it is acknowledged: -1 all replicas in sync, 1 only the leader of its
    /// partition. With -1 the producer is idempotent: a record that the client sends again is written once. 0, no
    /// replica, is refused, because losses would go unnoticed. Default: -1. (The Collector's is 1.)
    pub required_acks: i16,
    /// `none`, `gzip`, `snappy`, `lz4` or `zstd`. Default: `none`.
    pub compression: Compression,
    /// Parameters of the compression.
    pub compression_params: CompressionParams,
    /// Time that a record waits for other records, to be sent with them. At most 15m. Default: 10ms.
    pub linger: Duration,
    /// The most records that are sent together to a partition. From 1 to 1000000. Default: 10000.
    pub flush_max_messages: u32,
}

/// A codec of records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// As they are.
    #[default]
    None,
    /// RFC 1952.
    Gzip,
    /// Snappy.
    Snappy,
    /// LZ4 frames.
    Lz4,
    /// RFC 8878.
    Zstd,
}

/// Parameters of the compression.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CompressionParams {
    /// The level: `gzip` 0 to 9, `lz4` 0 to 12, -1 the codec's default; the others have none here. Default: -1.
    pub level: i8,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            brokers: default_brokers(),
            protocol_version: "2.1.0".to_owned(),
            client_id: "otel-collector".to_owned(),
            resolve_canonical_bootstrap_servers_only: false,
            conn_idle_timeout: Duration::secs(9 * 60),
            metadata: ClusterMetadata::default(),
            tls: Section(None),
            auth: Auth::default(),
            traces: SignalConfig::default(),
            metrics: SignalConfig::default(),
            logs: SignalConfig::default(),
            profiles: SignalConfig::default(),
            topic_from_attribute: String::new(),
            record_headers: BTreeMap::new(),
            partition_traces_by_id: false,
            partition_metrics_by_resource_attributes: false,
            partition_logs_by_resource_attributes: false,
            partition_profiles_by_resource_attributes: false,
            record_partitioner: RecordPartitioner::default(),
            producer: Producer::default(),
            timeout: Duration::secs(5),
            sending_queue: Section(Some(QueueConfig::default())),
            retry_on_failure: Section(Some(RetryConfig::default())),
        }
    }
}

impl Default for Producer {
    fn default() -> Self {
        Producer {
            max_message_bytes: 1_000_000,
            required_acks: -1,
            compression: Compression::None,
            compression_params: CompressionParams::default(),
            linger: Duration::millis(10),
            flush_max_messages: 10_000,
        }
    }
}

impl Default for CompressionParams {
    fn default() -> Self {
        CompressionParams { level: -1 }
    }
}

impl Compression {
    /// Its name in librdkafka.
    pub const fn name(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Gzip => "gzip",
            Compression::Snappy => "snappy",
            Compression::Lz4 => "lz4",
            Compression::Zstd => "zstd",
        }
    }
}

impl Config {
    /// Returns the settings of the connection to the brokers.
    pub fn connection(&self) -> Connection<'_> {
        Connection {
            brokers: &self.brokers,
            protocol_version: &self.protocol_version,
            client_id: &self.client_id,
            resolve_canonical_names: self.resolve_canonical_bootstrap_servers_only,
            idle_timeout: self.conn_idle_timeout,
            metadata: &self.metadata,
            tls: self.tls.as_ref(),
            auth: &self.auth,
        }
    }

    /// Returns the topic and encoding of a signal.
    pub fn signal(&self, signal: Signal) -> &SignalConfig {
        match signal {
            Signal::Traces => &self.traces,
            Signal::Metrics => &self.metrics,
            Signal::Logs => &self.logs,
            Signal::Profiles => &self.profiles,
        }
    }

    /// The topic of what does not name one itself.
    pub fn topic(&self, signal: Signal) -> &str {
        match self.signal(signal).topic.as_str() {
            "" => default_topic(signal),
            topic => topic,
        }
    }

    /// Whether records of a signal have keys.
    pub fn has_keys(&self, signal: Signal) -> bool {
        match signal {
            Signal::Traces => self.partition_traces_by_id,
            Signal::Metrics => self.partition_metrics_by_resource_attributes,
            Signal::Logs => self.partition_logs_by_resource_attributes,
            Signal::Profiles => self.partition_profiles_by_resource_attributes,
        }
    }
}

/// Whether brokers take it as the name of a topic: <https://github.com/apache/kafka>, `Topic.validate`.
pub fn is_topic(name: &str) -> bool {
    let letters = |letter: u8| letter.is_ascii_alphanumeric() || b"._-".contains(&letter);
    matches!(name.len(), 1..=249) && name.bytes().all(letters) && name != "." && name != ".."
}

impl Validate for Config {
    fn validate(&self, problems: &mut Problems) {
        self.connection().validate(problems);
        for signal in Signal::ALL {
            let topic = self.topic(signal);
            if !is_topic(topic) {
                let reason = format!(
                    "`{topic}` is not the name of a topic: up to 249 letters, digits, `.`, `_` and `-`"
                );
                problems.error(&[signal.name(), "topic"], reason);
            }
        }
        let producer = &self.producer;
        if !(1000..=1_000_000_000).contains(&producer.max_message_bytes) {
            problems.error(
                &["producer", "max_message_bytes"],
                "must be from 1000 to 1000000000",
            );
        }
        match producer.required_acks {
            -1 | 1 => {}
            0 => problems.error(
                &["producer", "required_acks"],
                "0 is not supported: nothing would be known of what was lost; write -1 (all replicas) or \
                 1 (the leader)",
            ),
            _ => problems.error(
                &["producer", "required_acks"],
                "must be -1 (all replicas that are in sync) or 1 (the leader)",
            ),
        }
        let level = producer.compression_params.level;
        let highest = match producer.compression {
            Compression::Gzip => 9,
            Compression::Lz4 => 12,
            Compression::None | Compression::Snappy | Compression::Zstd => -1,
        };
        if !(-1..=highest).contains(&level) {
            let name = producer.compression.name();
            let reason = format!("`{name}` has no level {level} here: write -1, its default");
            problems.error(&["producer", "compression_params", "level"], reason);
        }
        if milliseconds(producer.linger) > 900_000 {
            problems.error(&["producer", "linger"], "must be at most 15m");
        }
        if !(1..=1_000_000).contains(&producer.flush_max_messages) {
            problems.error(
                &["producer", "flush_max_messages"],
                "must be from 1 to 1000000",
            );
        }
        if milliseconds(self.timeout) > 300_000 {
            problems.error(&["timeout"], "must be at most 5m");
        }
        if let Some(queue) = &*self.sending_queue {
            problems.within("sending_queue", queue);
        }
        if let Some(retry) = &*self.retry_on_failure {
            problems.within("retry_on_failure", retry);
        }
        let (queue, retry) = (self.sending_queue.as_ref(), self.retry_on_failure.as_ref());
        crate::queue::warn_of_giving_up(queue, retry, problems);
    }

    fn holds_up_pipelines(&self) -> bool {
        crate::queue::holds_up_pipelines(self.sending_queue.as_ref())
    }

    fn uses_extensions(&self) -> Vec<ExtensionUse> {
        self.sending_queue
            .iter()
            .filter_map(QueueConfig::uses)
            .collect()
    }
}
