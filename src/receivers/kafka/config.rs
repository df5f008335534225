//! The configuration of the receiver `kafka`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::topics::Topics;
use crate::queue::RetryConfig;
use tributary_config::units::Duration;
use tributary_config::{Problems, Section, Validate};
use tributary_net::kafka::{
    Auth, ClusterMetadata, Connection, Encoding, Tls, default_brokers, milliseconds,
};
use tributary_otlp::Signal;

/// Reads telemetry from Kafka topics as a member of a consumer group. A message is marked as
/// consumed only after the next stage has accepted it. After a crash or a rebalance, some messages
/// may be delivered twice; none is lost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Bootstrap brokers, as `host:port`. Default: `localhost:9092`.
    pub brokers: Vec<String>,
    /// Minimum Kafka version of the brokers. Clients and brokers negotiate the version of each
    /// request, so this setting only rejects versions that are too old: the first supported one is
    /// 0.11. Default: `2.1.0`.
    pub protocol_version: String,
    /// Client id in the logs, metrics and quotas of the brokers. Default: `otel-collector`.
    pub client_id: String,
    /// Whether to replace the names in `brokers` by their canonical names, as Kerberos requires.
    /// Default: false.
    pub resolve_canonical_bootstrap_servers_only: bool,
    /// Time after which an idle connection is closed; 0 disables the timeout. Default: 9m.
    pub conn_idle_timeout: Duration,
    /// Refresh of the metadata of topics and brokers.
    pub metadata: ClusterMetadata,
    /// TLS to the brokers. Absent: plain text.
    pub tls: Section<Tls>,
    /// Authentication to the brokers. Default: none.
    pub auth: Auth,
    /// Topics and encoding of traces. Default: topic `otlp_spans`.
    pub traces: SignalConfig,
    /// Topics and encoding of metrics. Default: topic `otlp_metrics`.
    pub metrics: SignalConfig,
    /// Topics and encoding of logs. Default: topic `otlp_logs`.
    pub logs: SignalConfig,
    /// Topics and encoding of profiles. Default: topic `otlp_profiles`.
    pub profiles: SignalConfig,
    /// Consumer group. Its members share the partitions, and its committed offsets mark the
    /// consumed messages. Default: `otel-collector`.
    pub group_id: String,
    /// Id of a static group member, which keeps its partitions across a restart. Each member needs
    /// a different id. Default: none; the member is new after each start.
    pub group_instance_id: String,
    /// Rack of this machine. If the brokers select replicas by rack, messages are read from the
    /// nearest replica. Default: none.
    pub rack_id: String,
    /// Start position in a partition without a committed offset of the group: `latest` (new
    /// messages only; the position is committed at once) or `earliest`. Default: `latest`.
    pub initial_offset: InitialOffset,
    /// Time without a heartbeat after which the group assigns the partitions of a member to other
    /// members. At most 1h, and within the bounds that the brokers set. Default: 10s.
    pub session_timeout: Duration,
    /// Interval of heartbeats to the group coordinator; less than `session_timeout`. Default: 3s.
    pub heartbeat_interval: Duration,
    /// Assignment of partitions to members: `range`, `roundrobin` or `cooperative-sticky`, which
    /// does not interrupt partitions that stay with their member. All members of a group need the
    /// same strategy. Default: `cooperative-sticky`.
    pub group_rebalance_strategy: RebalanceStrategy,
    /// Minimum size of a broker's fetch response, in bytes. From 1 to 100000000. Default: 1.
    pub min_fetch_size: u32,
    /// Maximum size of a broker's fetch response, in bytes, unless a single batch of records is
    /// larger. The receiver buffers up to three times this size; the buffer counts toward the
    /// memory budget. From 1024 to 1000000000. Default: 1048576.
    pub max_fetch_size: u32,
    /// Maximum size of one partition in a fetch response, in bytes, unless a single batch of
    /// records is larger. From 1 to 1000000000. Default: 1048576.
    pub max_partition_fetch_size: u32,
    /// Longest time that a broker waits for `min_fetch_size` bytes. At most 5m. Default: 250ms.
    pub max_fetch_wait: Duration,
    /// Commits of offsets.
    pub autocommit: Autocommit,
    /// Rules for marking messages as consumed.
    pub message_marking: MessageMarking,
    /// Back-off after the next stage refuses a message temporarily; later messages of the same
    /// partition wait. Off: retry after the delay that the next stage asks for, or after one
    /// second. Default: on.
    pub error_backoff: Section<ErrorBackoff>,
    /// Message headers that become resource attributes.
    pub header_extraction: HeaderExtraction,
}

/// Topics and encoding of one signal.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SignalConfig {
    /// Topics to read. A topic that begins with `^` is a regular expression (POSIX extended) that
    /// matches the beginning of topic names. Default: the topic given for each signal.
    pub topics: Vec<String>,
    /// Encoding of messages: `otlp_proto` or `otlp_json`. Default: `otlp_proto`.
    pub encoding: Encoding,
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
    /// Commit interval. After a crash, messages consumed since the last commit are delivered again.
    /// Above 0. Default: 1s.
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
    /// Delay after the first refusal. Default: 1s.
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
            group_id: "otel-collector".to_owned(),
            group_instance_id: String::new(),
            rack_id: String::new(),
            initial_offset: InitialOffset::default(),
            session_timeout: Duration::secs(10),
            heartbeat_interval: Duration::secs(3),
            group_rebalance_strategy: RebalanceStrategy::default(),
            min_fetch_size: 1,
            max_fetch_size: 1 << 20,
            max_partition_fetch_size: 1 << 20,
            max_fetch_wait: Duration::millis(250),
            autocommit: Autocommit::default(),
            message_marking: MessageMarking::default(),
            error_backoff: Section(Some(ErrorBackoff::default())),
            header_extraction: HeaderExtraction::default(),
        }
    }
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
    /// Returns the settings of the connections to the brokers.
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

    /// Returns the topics and encoding of a signal.
    pub fn signal(&self, signal: Signal) -> &SignalConfig {
        match signal {
            Signal::Traces => &self.traces,
            Signal::Metrics => &self.metrics,
            Signal::Logs => &self.logs,
            Signal::Profiles => &self.profiles,
        }
    }

    fn validate_group(&self, problems: &mut Problems) {
        if self.group_id.is_empty() {
            problems.error(
                &["group_id"],
                "must be specified: the group remembers what was read",
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

    fn validate_fetching(&self, problems: &mut Problems) {
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

impl Validate for Config {
    fn validate(&self, problems: &mut Problems) {
        self.connection().validate(problems);
        if let Err(wrong) = Topics::new(self, Signal::ALL) {
            for wrong in wrong {
                let path: Vec<&str> = wrong.path.iter().map(String::as_str).collect();
                problems.error(&path, wrong.reason);
            }
        }
        self.validate_group(problems);
        self.validate_fetching(problems);
        if !self.message_marking.after {
            problems.error(
                &["message_marking", "after"],
                "false is not supported: what is marked before it is accepted can be lost; remove the key",
            );
        }
        if let Some(backoff) = &*self.error_backoff {
            if backoff.initial_interval.is_zero() {
                problems.error(&["error_backoff", "initial_interval"], "must be above 0");
            }
            problems.within("error_backoff", &backoff.retry());
        }
        let extraction = &self.header_extraction;
        if extraction.extract_headers && extraction.headers.is_empty() {
            problems.error(
                &["header_extraction", "headers"],
                "must be specified: list at least one name",
            );
        }
    }
}
