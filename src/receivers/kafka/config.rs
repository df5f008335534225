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

/// Reads telemetry from topics of Kafka, as a member of a consumer group. A message counts as read when the next stage
/// has accepted it, never before: after a crash, or when partitions move, some messages may come twice and none is
/// lost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Brokers to learn the others from, as `host:port`. Default: `localhost:9092`.
    pub brokers: Vec<String>,
    /// The version of Kafka that the brokers have at least. Clients and brokers agree on the version of each request,
    /// so all it does is to refuse what is too old: 0.11 is the first that works. Default: `2.1.0`.
    pub protocol_version: String,
    /// What the brokers call us in their logs, metrics and quotas. Default: `otel-collector`.
    pub client_id: String,
    /// Whether to replace the names of `brokers` by the canonical names of their addresses, as Kerberos wants it.
    /// Default: false.
    pub resolve_canonical_bootstrap_servers_only: bool,
    /// How long a connection is kept that nothing is sent on; 0 is for ever. Default: 9m.
    pub conn_idle_timeout: Duration,
    /// What is known of topics and brokers.
    pub metadata: ClusterMetadata,
    /// TLS to the brokers. Default: off, plaintext.
    pub tls: Section<Tls>,
    /// Who we are to the brokers. Default: nobody.
    pub auth: Auth,
    /// Where traces come from. Default: topic `otlp_spans`.
    pub traces: SignalConfig,
    /// Where metrics come from. Default: topic `otlp_metrics`.
    pub metrics: SignalConfig,
    /// Where logs come from. Default: topic `otlp_logs`.
    pub logs: SignalConfig,
    /// Where profiles come from. Default: topic `otlp_profiles`.
    pub profiles: SignalConfig,
    /// The consumer group: its members share the partitions, and its offsets say what was read. Default:
    /// `otel-collector`.
    pub group_id: String,
    /// Who this member is, so that it gets its partitions back after a restart; each member needs another. Default:
    /// none, it is a new member each time.
    pub group_instance_id: String,
    /// The rack of this machine: where the brokers choose replicas by rack, the nearest is read from. Default: none.
    pub rack_id: String,
    /// Where to begin in a partition without an offset of the group: `latest` (with what comes; the place is committed
    /// at once) or `earliest`. Default: `latest`.
    pub initial_offset: InitialOffset,
    /// How long a member may be silent before its partitions are given to others. At most 1h, and within what the
    /// brokers allow. Default: 10s.
    pub session_timeout: Duration,
    /// How often a member says that it is there; below `session_timeout`. Default: 3s.
    pub heartbeat_interval: Duration,
    /// How partitions are shared: `range`, `roundrobin` or `cooperative-sticky`, which takes no partition away that
    /// stays. All members of a group need the same. Default: `cooperative-sticky`.
    pub group_rebalance_strategy: RebalanceStrategy,
    /// The bytes that a broker should have before it answers. From 1 to 100000000. Default: 1.
    pub min_fetch_size: u32,
    /// The most bytes of an answer of a broker, unless one batch of records is larger. Three times this is the memory
    /// that the receiver has for messages that wait; it counts in the memory budget. From 1024 to 1000000000. Default:
    /// 1048576.
    pub max_fetch_size: u32,
    /// The most bytes of one partition in an answer, unless one batch of records is larger. From 1 to 1000000000.
    /// Default: 1048576.
    pub max_partition_fetch_size: u32,
    /// How long a broker waits for `min_fetch_size`. At most 5m. Default: 250ms.
    pub max_fetch_wait: Duration,
    /// When offsets are committed.
    pub autocommit: Autocommit,
    /// Which messages count as read.
    pub message_marking: MessageMarking,
    /// How a message is tried again that the next stage refused for now; messages of the same partition wait. Off:
    /// after the time that the next stage asks for, or a second. Default: on.
    pub error_backoff: Section<ErrorBackoff>,
    /// Headers of messages as attributes of resources.
    pub header_extraction: HeaderExtraction,
}

/// Where a signal comes from, and as what.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SignalConfig {
    /// The topics. One that begins with `^` is a regular expression for the beginning of names (POSIX extended).
    /// Default: the signal's, as said there.
    pub topics: Vec<String>,
    /// `otlp_proto` or `otlp_json`. Default: `otlp_proto`.
    pub encoding: Encoding,
    /// Regular expressions (POSIX extended, without commas) of topics that are not read though a pattern in `topics`
    /// matches. Default: none.
    pub exclude_topics: Vec<String>,
}

/// Where to begin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum InitialOffset {
    /// With what comes.
    #[default]
    Latest,
    /// With what is there.
    Earliest,
}

/// How partitions are shared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RebalanceStrategy {
    /// Neighbours of each topic.
    Range,
    /// One after the other.
    RoundRobin,
    /// As before, as far as possible, without stopping.
    #[default]
    #[serde(rename = "cooperative-sticky")]
    CooperativeSticky,
}

/// When offsets are committed. Only those of messages that count as read ever are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Autocommit {
    /// Whether offsets are committed at intervals; otherwise after each message, which costs a request each. Default:
    /// true.
    pub enable: bool,
    /// The interval; what was read since comes again after a crash. Above 0. Default: 1s.
    pub interval: Duration,
}

/// Which messages count as read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MessageMarking {
    /// Must be true: a message counts when the next stage has accepted it, for one that counts before can be lost.
    /// Default: true. (The Collector's is false.)
    pub after: bool,
    /// Whether a message is passed over that the next stage still refuses for now when `error_backoff` gives up;
    /// otherwise it is tried for as long as it takes. Default: false.
    pub on_error: bool,
    /// Whether a message is passed over that cannot be read, or that the next stage refuses for good because of what is
    /// in it. It is counted and logged, with topic, partition and offset. Otherwise its partition stops there until the
    /// collector starts again or the partition moves. What is refused for another reason, such as wrong credentials, is
    /// tried again like what is refused for now. Default: true. (The Collector's is that of `on_error`.)
    pub on_permanent_error: bool,
}

/// The waits between two attempts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ErrorBackoff {
    /// The wait after the first refusal. Default: 1s.
    pub initial_interval: Duration,
    /// The longest wait, unless the next stage asks for more. Default: 30s.
    pub max_interval: Duration,
    /// How much longer each wait is than the one before; at least 1. Default: 1.5.
    pub multiplier: f64,
    /// By how much a wait may be longer or shorter than computed, as a fraction between 0 and 1. Default: 0.5.
    pub randomization_factor: f64,
    /// The time after which a message is given up with `message_marking::on_error`, and the waits begin anew without; 0
    /// is never. Default: 0.
    pub max_elapsed_time: Duration,
}

/// Headers of messages as attributes of resources.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HeaderExtraction {
    /// Whether to take any. Default: false.
    pub extract_headers: bool,
    /// Which: each becomes the attribute `kafka.header.NAME` of all resources of its message, in the place of what is
    /// there under that key. Default: none.
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
    /// The same for whoever computes the waits.
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
    /// How the brokers are reached.
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

    /// Where a signal comes from.
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
