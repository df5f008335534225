//! The configuration of the exporter `kafka`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::queue::{QueueConfig, RetryConfig};
use tributary_config::units::Duration;
use tributary_config::{ExtensionUse, Problems, Section, Validate};
use tributary_net::kafka::{RecordEncoding, default_topic, milliseconds};
use tributary_net::kafka_section;
use tributary_otlp::Signal;

kafka_section! {
    /// Writes telemetry to Kafka topics.
    pub struct Config {
        signals: ProducerSignal,
        /// Resource attribute that names the topic for the data of the resource. Data of resources without the
        /// attribute goes to the topic of the signal. Default: none. (The Collector sends a whole request to the topic
        /// of the first resource that has the attribute.)
        topic_from_attribute: String = String::new(),
        /// Headers of every record, by name. Default: none.
        record_headers: BTreeMap<String, String> = BTreeMap::new(),
        /// Whether each trace becomes a record of its own. The key of the record is the trace id in hexadecimal digits,
        /// so one partition has the whole trace. Default: false.
        partition_traces_by_id: bool = false,
        /// Whether the metrics of each resource become a record of their own. The key of the record is a hash of the
        /// resource's attributes, so one partition has all series of a resource. Default: false.
        partition_metrics_by_resource_attributes: bool = false,
        /// Whether the log records of each resource become a record of their own, as with
        /// `partition_metrics_by_resource_attributes`. Default: false.
        partition_logs_by_resource_attributes: bool = false,
        /// Whether the profiles of each resource become a record of their own, as with
        /// `partition_metrics_by_resource_attributes`. Default: false. (The Collector has no such key.)
        partition_profiles_by_resource_attributes: bool = false,
        /// Mapping of record keys to partitions.
        record_partitioner: RecordPartitioner = RecordPartitioner::default(),
        /// Settings of the producer.
        producer: Producer = Producer::default(),
        /// Time limit for the delivery of a record, and for one attempt to send a whole request; 0 means no limit. The
        /// next attempt waits for the records that were already sent, so no record is written twice. Default: 5s.
        timeout: Duration = Duration::secs(5),
        /// Sending queue. With `num_consumers: 1`, the records of a key keep the order of the requests at the same
        /// speed, because a consumer does not wait for the brokers. More consumers help only if encoding the records
        /// (JSON, keys) takes most of the time. Default: on.
        sending_queue: Section<QueueConfig> = Section(Some(QueueConfig::default())),
        /// Retries of requests that were not delivered. Default: on.
        retry_on_failure: Section<RetryConfig> = Section(Some(RetryConfig::default())),
    }
}

/// Topic and encoding of a signal.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ProducerSignal {
    /// Topic. Default: the topic given for each signal.
    pub topic: String,
    /// Encoding of records: `otlp_proto` or `otlp_json`. Default: `otlp_proto`.
    pub encoding: RecordEncoding,
}

/// Mapping of records to partitions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RecordPartitioner {
    /// By a hash of the key. Records without a key go to one partition at a time.
    pub sticky_key: StickyKey,
}

/// Hashing of keys.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StickyKey {
    /// Hash function: `sarama_compat` (FNV-1a) or `murmur2`, the hash of Kafka's own clients. Default: `sarama_compat`.
    pub hasher: PartitionHasher,
}

/// Hash function of keys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PartitionHasher {
    /// FNV-1a, as in the Go client Sarama.
    #[default]
    SaramaCompat,
    /// Murmur2, as in Kafka's Java client.
    Murmur2,
}

/// Settings of the producer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Producer {
    /// Maximum size of a record in bytes, including key and framing, before compression. Larger requests are split. A
    /// single item above the maximum is dropped and counted as `partial_success`. The brokers' `message.max.bytes` (or
    /// the topic's `max.message.bytes`) must not be smaller. From 1000 to 1000000000. Default: 1000000.
    pub max_message_bytes: usize,
    /// Replicas that must have a record before it is acknowledged: -1 for all replicas in sync, 1 for the leader of the
    /// partition. With -1 the producer is idempotent: a record that the client sends again is written once. 0 is
    /// refused, because losses would go unnoticed. Default: -1. (The Collector's default is 1.)
    pub required_acks: i16,
    /// Compression of records: `none`, `gzip`, `snappy`, `lz4` or `zstd`. Default: `none`.
    pub compression: KafkaCompression,
    /// Compression level.
    pub compression_params: KafkaCompressionParams,
    /// Time that a record waits for further records, to be sent together. At most 15m. Default: 10ms.
    pub linger: Duration,
    /// Maximum number of records that are sent together to a partition. From 1 to 1000000. Default: 10000.
    pub flush_max_messages: u32,
}

/// A codec of records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum KafkaCompression {
    /// No compression.
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
pub struct KafkaCompressionParams {
    /// Compression level: `gzip` 0 to 9, `lz4` 0 to 12, -1 for the codec's default; the other codecs have no levels.
    /// Default: -1.
    pub level: i8,
}

impl Default for Producer {
    fn default() -> Self {
        Producer {
            max_message_bytes: 1_000_000,
            required_acks: -1,
            compression: KafkaCompression::None,
            compression_params: KafkaCompressionParams::default(),
            linger: Duration::millis(10),
            flush_max_messages: 10_000,
        }
    }
}

impl Default for KafkaCompressionParams {
    fn default() -> Self {
        KafkaCompressionParams { level: -1 }
    }
}

impl KafkaCompression {
    /// Its name in librdkafka.
    pub const fn name(self) -> &'static str {
        match self {
            KafkaCompression::None => "none",
            KafkaCompression::Gzip => "gzip",
            KafkaCompression::Snappy => "snappy",
            KafkaCompression::Lz4 => "lz4",
            KafkaCompression::Zstd => "zstd",
        }
    }
}

impl Config {
    /// Default topic of a signal.
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
                    "`{topic}` is not a topic name: use up to 249 letters, digits, `.`, `_` and `-`"
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
                "0 is not supported, because losses would go unnoticed: write -1 (all replicas) or 1 (the leader)",
            ),
            _ => problems.error(
                &["producer", "required_acks"],
                "must be -1 (all in-sync replicas) or 1 (the leader)",
            ),
        }
        let level = producer.compression_params.level;
        let highest = match producer.compression {
            KafkaCompression::Gzip => 9,
            KafkaCompression::Lz4 => 12,
            KafkaCompression::None | KafkaCompression::Snappy | KafkaCompression::Zstd => -1,
        };
        if !(-1..=highest).contains(&level) {
            let name = producer.compression.name();
            let reason =
                format!("`{name}` does not support level {level}: write -1 for the default");
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
        crate::queue::warn_about_retry_limit(queue, retry, problems);
    }

    fn blocks_pipelines(&self) -> bool {
        crate::queue::blocks_pipelines(self.sending_queue.as_ref())
    }

    fn uses_extensions(&self) -> Vec<ExtensionUse> {
        self.sending_queue
            .iter()
            .filter_map(QueueConfig::uses)
            .collect()
    }
}
