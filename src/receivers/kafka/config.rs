//! The configuration of the receiver `kafka`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::queue::RetryConfig;
use tributary_config::units::Duration;
use tributary_config::{Problems, Section};
use tributary_net::kafka::{RecordEncoding, milliseconds};
use tributary_net::kafka_section;

kafka_section! {
    /// Reads telemetry from Kafka topics as a member of a consumer group. A message is marked as
    /// consumed only after the next stage has accepted it. After a crash or a rebalance, some messages
    /// may be delivered twice; none is lost.
    pub struct Config {
        signals: ConsumerSignal,
        /// Consumer group. Its members share the partitions, and its committed offsets mark the
        /// consumed messages. Default: `otel-collector`.
        group_id: String = "otel-collector".to_owned(),
        /// Id of a static group member, which keeps its partitions across a restart. Each member needs
        /// a different id. Default: none; the member is new after each start.
        group_instance_id: String = String::new(),
        /// Rack of this machine. If the brokers select replicas by rack, messages are read from the
        /// nearest replica. Default: none.
        rack_id: String = String::new(),
        /// Start position in a partition without a committed offset of the group: `latest` (new
        /// messages only; the position is committed at once) or `earliest`. Default: `latest`.
        initial_offset: InitialOffset = InitialOffset::default(),
        /// Time without a heartbeat after which the group assigns the partitions of a member to other members. At most
        /// 1h, and within the bounds that the brokers set. Above 0. Default: 10s.
        session_timeout: Duration = Duration::secs(10),
        /// Interval of heartbeats to the group coordinator; less than `session_timeout`. Above 0. Default: 3s.
        heartbeat_interval: Duration = Duration::secs(3),
        /// Assignment of partitions to members: `range`, `roundrobin` or `cooperative-sticky`, which
        /// does not interrupt partitions that stay with their member. All members of a group need the
        /// same strategy. Default: `cooperative-sticky`.
        group_rebalance_strategy: RebalanceStrategy = RebalanceStrategy::default(),
        /// Minimum size of a broker's fetch response, in bytes. From 1 to 100000000. Default: 1.
        min_fetch_size: u32 = 1,
        /// Maximum size of a broker's fetch response, in bytes, unless a single batch of records is
        /// larger. The receiver buffers up to three times this size; the buffer counts toward the
        /// memory budget. From 1024 to 1000000000. At least `min_fetch_size`. Default: 1048576.
        max_fetch_size: u32 = 1 << 20,
        /// Maximum size of one partition in a fetch response, in bytes, unless a single batch of
        /// records is larger. From 1 to 1000000000. Default: 1048576.
        max_partition_fetch_size: u32 = 1 << 20,
        /// Longest time that a broker waits for `min_fetch_size` bytes. At most 5m. Default: 250ms.
        max_fetch_wait: Duration = Duration::millis(250),
        /// Commits of offsets.
        autocommit: Autocommit = Autocommit::default(),
        /// Rules for marking messages as consumed.
        message_marking: MessageMarking = MessageMarking::default(),
        /// Back-off after the next stage refuses a message temporarily; later messages of the same
        /// partition wait. Off: retry after the delay that the next stage asks for, or after one
        /// second. Default: on.
        error_backoff: Section<ErrorBackoff> = Section(Some(ErrorBackoff::default())),
        /// Message headers that become resource attributes.
        header_extraction: HeaderExtraction = HeaderExtraction::default(),
    }
}

/// Topics and encoding of one signal.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ConsumerSignal {
    /// Topics to read. A topic that begins with `^` is a regular expression (POSIX extended) that
    /// matches the beginning of topic names. Default: the topic given for each signal.
    pub topics: Vec<String>,
    /// Encoding of messages: `otlp_proto` or `otlp_json`. Default: `otlp_proto`.
    pub encoding: RecordEncoding,
    /// Regular expressions (POSIX extended, without commas) of topics to exclude, although a
    /// pattern in `topics` matches them. Default: none.
    pub exclude_topics: Vec<String>,
}

/// Start position in a partition without a committed offset.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum InitialOffset {
    /// New messages only.
    #[default]
    Latest,
    /// The oldest message of the partition.
    Earliest,
}

/// Assignment of partitions to group members.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RebalanceStrategy {
    /// Consecutive partitions of each topic.
    Range,
    /// Partitions in turn.
    RoundRobin,
    /// The previous assignment as far as possible, without interrupting partitions that stay.
    #[default]
    #[serde(rename = "cooperative-sticky")]
    CooperativeSticky,
}

/// Commits of offsets. Only offsets of messages marked as consumed are committed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Autocommit {
    /// Whether offsets are committed at intervals; otherwise after each message, at the cost of one
    /// request per message. Default: true.
    pub enable: bool,
    /// Commit interval. After a crash, messages consumed since the last commit are delivered again. Above 0. At most
    /// 24h. Default: 1s.
    pub interval: Duration,
}

/// Rules for marking messages as consumed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MessageMarking {
    /// Must be true: a message is marked after the next stage has accepted it. A message marked
    /// earlier could be lost. Default: true. (The Collector's default is false.)
    pub after: bool,
    /// Whether to skip a message that the next stage still refuses temporarily when `error_backoff`
    /// gives up; otherwise retries continue without limit. Default: false.
    pub on_error: bool,
    /// Whether to skip a message that cannot be decoded, or whose content the next stage refuses
    /// permanently. A skipped message is counted and logged with topic, partition and offset. If
    /// false, the partition stops at the message until the collector restarts or the partition is
    /// reassigned. Refusals for other reasons, such as wrong credentials, are retried like
    /// temporary ones. Default: true. (The Collector's default is the value of `on_error`.)
    pub on_permanent_error: bool,
}

/// Back-off between attempts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ErrorBackoff {
    /// Delay after the first refusal. Above 0. Default: 1s.
    pub initial_interval: Duration,
    /// Maximum delay, unless the next stage asks for a longer one. Default: 30s.
    pub max_interval: Duration,
    /// Factor by which each delay is longer than the previous one; at least 1. Default: 1.5.
    pub multiplier: f64,
    /// Random deviation of each delay, as a fraction between 0 and 1. Default: 0.5.
    pub randomization_factor: f64,
    /// Time after which a message is skipped if `message_marking::on_error` is true; otherwise the
    /// delays start again at `initial_interval`. 0 disables the limit. Default: 0.
    pub max_elapsed_time: Duration,
}

/// Message headers that become resource attributes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HeaderExtraction {
    /// Whether to extract headers. Default: false.
    pub extract_headers: bool,
    /// Headers to extract. Each becomes the attribute `kafka.header.NAME` of all resources in its
    /// message and replaces an existing attribute of that name. Default: none.
    pub headers: Vec<String>,
}

impl Default for Autocommit {
    fn default() -> Self {
        Autocommit {
            enable: true,
            interval: Duration::secs(1),
        }
    }
}

impl Default for MessageMarking {
    fn default() -> Self {
        MessageMarking {
            after: true,
            on_error: false,
            on_permanent_error: true,
        }
    }
}

impl Default for ErrorBackoff {
    fn default() -> Self {
        ErrorBackoff {
            initial_interval: Duration::secs(1),
            max_interval: Duration::secs(30),
            multiplier: 1.5,
            randomization_factor: 0.5,
            max_elapsed_time: Duration::secs(0),
        }
    }
}

impl ErrorBackoff {
    /// Converts the settings to the type that computes the delays.
    pub fn retry(&self) -> RetryConfig {
        RetryConfig {
            initial_interval: self.initial_interval,
            randomization_factor: self.randomization_factor,
            multiplier: self.multiplier,
            max_interval: self.max_interval,
            max_elapsed_time: Some(self.max_elapsed_time),
        }
    }
}

impl Config {
    pub(super) fn validate_group(&self, problems: &mut Problems) {
        if self.group_id.is_empty() {
            problems.error(
                &["group_id"],
                "must be specified: the consumer group keeps the read positions",
            );
        }
        let (session, heartbeat) = (self.session_timeout, self.heartbeat_interval);
        if !(1..=3_600_000).contains(&milliseconds(session)) {
            problems.error(&["session_timeout"], "must be above 0 and at most 1h");
        }
        if heartbeat.is_zero() || heartbeat >= session {
            problems.error(
                &["heartbeat_interval"],
                "must be above 0 and below `session_timeout`",
            );
        }
        if !(1..=86_400_000).contains(&milliseconds(self.autocommit.interval)) {
            problems.error(
                &["autocommit", "interval"],
                "must be above 0 and at most 24h; to commit after each message, set `enable: false`",
            );
        }
    }

    pub(super) fn validate_fetching(&self, problems: &mut Problems) {
        if !(1..=100_000_000).contains(&self.min_fetch_size) {
            problems.error(&["min_fetch_size"], "must be from 1 to 100000000");
        }
        if !(1024..=1_000_000_000).contains(&self.max_fetch_size) {
            problems.error(&["max_fetch_size"], "must be from 1024 to 1000000000");
        } else if self.max_fetch_size < self.min_fetch_size {
            problems.error(&["max_fetch_size"], "must be at least `min_fetch_size`");
        }
        if !(1..=1_000_000_000).contains(&self.max_partition_fetch_size) {
            problems.error(
                &["max_partition_fetch_size"],
                "must be from 1 to 1000000000",
            );
        }
        if milliseconds(self.max_fetch_wait) > 300_000 {
            problems.error(&["max_fetch_wait"], "must be at most 5m");
        }
    }
}
