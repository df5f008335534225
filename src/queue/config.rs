//! The configuration of a sending queue: the Collector's keys, defaults and rules, and `compression`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use tributary_config::units::Duration;
use tributary_config::{Capability, ComponentId, ExtensionUse, Problems, Section, Validate};

/// The sending queue of an exporter. There is one per signal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct QueueConfig {
    /// How many batches are sent at the same time; one that waits for its next attempt counts. Default: 10.
    pub num_consumers: usize,
    /// How much the queue may hold, in units of `sizer`, what is being sent included. Default: 1000.
    pub queue_size: usize,
    /// What `queue_size` counts: `requests`, `items` (spans, data points, log records, samples) or `bytes` (of the
    /// encoded, uncompressed requests; with `compression` of the compressed ones). Default: `requests`.
    pub sizer: Option<Sizer>,
    /// Whether a full queue makes the sender wait for room. Otherwise it is refused at once and told to retry.
    /// Default: false.
    pub block_on_overflow: bool,
    /// Whether a full queue drops what comes, counted as `queue_full`, instead of refusing it. A pipeline with several
    /// exporters takes data only while all of them do; with this, an exporter whose next hop is away for longer than
    /// its queue lasts no longer holds up the others. Not together with `block_on_overflow`. Default: false.
    pub drop_on_overflow: bool,
    /// Whether the sender waits until its data was delivered, and hears of failures. Default: false.
    pub wait_for_result: bool,
    /// `lz4` keeps requests that have to wait compressed in memory, so that the same bytes last through a longer
    /// outage; `none` keeps them as they are. What is being sent is expanded, which is up to `num_consumers` batches.
    /// Default: `none`.
    pub compression: HeldCompression,
    /// The extension that keeps the queue on disk, as in `file_storage`. What is acknowledged then survives the
    /// process, `queue_size` in `bytes` is the most that the queue has on disk, and memory holds only what is about to
    /// be sent. Default: none, the queue is in memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<ComponentId>,
    /// What a full queue with `storage` does: `refuse` what comes, or `drop_oldest`, counted as `queue_full`, to make
    /// room for it; what is being sent is not dropped. Default: `refuse`.
    pub overflow: Overflow,
    /// Merges requests before they are sent. Default: off.
    pub batch: Section<BatchConfig>,
}

/// Whether an exporter to a next hop holds up its pipelines while that is away: without a queue, or with a queue in
/// memory that refuses or blocks when it is full.
pub(crate) fn holds_up_pipelines(queue: Option<&QueueConfig>) -> bool {
    queue.is_none_or(|queue| queue.storage.is_none() && !queue.drop_on_overflow)
}

/// What a queue's size is counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Sizer {
    /// Requests, as they come from a receiver or processor.
    Requests,
    /// Spans, data points, log records, samples.
    Items,
    /// Bytes of the encoded requests.
    Bytes,
}

/// How batches are held in memory while they wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HeldCompression {
    /// As they came.
    #[default]
    None,
    /// LZ4 blocks.
    Lz4,
}

/// What a full queue on disk does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Overflow {
    /// Takes nothing until there is room; senders are told to come back, or wait with `block_on_overflow`.
    #[default]
    Refuse,
    /// Drops the oldest data that is not being sent.
    DropOldest,
}

/// Merging of requests inside the sending queue. Those of profiles become one request with one dictionary, in which
/// every sample is what it was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BatchConfig {
    /// How long after its first request a batch is sent, however small it is. Above 0. Default: 200ms.
    pub flush_timeout: Duration,
    /// The size from which a batch is sent at once, in units of `sizer`. Default: 8192.
    pub min_size: usize,
    /// The most a batch may have, in units of `sizer`; 0 is no limit. A request that does not fit into the batch at
    /// hand starts the next one; one that is larger than this is cut, profiles between their samples if need be.
    /// Default: 0.
    pub max_size: usize,
    /// What the sizes count: `items` or `bytes`. Default: what the queue's `sizer` says, else `items`.
    pub sizer: Option<BatchSizer>,
    /// Keeps requests of different clients apart.
    pub partition: PartitionConfig,
}

/// What a batch's size is counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BatchSizer {
    /// Spans, data points, log records, samples.
    Items,
    /// Bytes of the encoded requests, uncompressed; of profiles before their dictionaries become one.
    Bytes,
}

/// Which requests may share a batch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PartitionConfig {
    /// Request headers whose values a batch's requests must have in common; an absent header differs from an empty
    /// one. The receiver must keep them (`include_metadata`). Upper and lower case are the same. Default: none.
    pub metadata_keys: Vec<String>,
}

/// Retries of what failed and may succeed later.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RetryConfig {
    /// The wait after the first failure. Default: 5s.
    pub initial_interval: Duration,
    /// By how much a wait may be longer or shorter than computed, as a fraction between 0 and 1, so that many senders
    /// do not come back at once. Default: 0.5.
    pub randomization_factor: f64,
    /// How much longer each wait is than the one before; at least 1. Default: 1.5.
    pub multiplier: f64,
    /// The longest wait, unless the server asks for more. Default: 30s.
    pub max_interval: Duration,
    /// The time after which a batch is given up and dropped; 0 is never. Default: 5m, and 0 for a queue with `storage`,
    /// which is there to outlast this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_elapsed_time: Option<Duration>,
}

impl Default for QueueConfig {
    fn default() -> Self {
        QueueConfig {
            num_consumers: 10,
            queue_size: 1000,
            sizer: None,
            block_on_overflow: false,
            drop_on_overflow: false,
            wait_for_result: false,
            compression: HeldCompression::None,
            storage: None,
            overflow: Overflow::Refuse,
            batch: Section(None),
        }
    }
}

impl Default for BatchConfig {
    fn default() -> Self {
        BatchConfig {
            flush_timeout: Duration::millis(200),
            min_size: 8192,
            max_size: 0,
            sizer: None,
            partition: PartitionConfig::default(),
        }
    }
}

impl Default for RetryConfig {
    fn default() -> Self {
        RetryConfig {
            initial_interval: Duration::secs(5),
            randomization_factor: 0.5,
            multiplier: 1.5,
            max_interval: Duration::secs(30),
            max_elapsed_time: None,
        }
    }
}

impl QueueConfig {
    /// The extension that an exporter needs for its queue, which stands in the section `sending_queue`.
    pub fn uses(&self) -> Option<ExtensionUse> {
        Some(ExtensionUse {
            path: ["sending_queue", "storage"].map(str::to_owned).to_vec(),
            extension: self.storage.clone()?,
            capability: Capability::Storage,
        })
    }

    /// What `queue_size` counts.
    pub fn sizer(&self) -> Sizer {
        self.sizer.unwrap_or(Sizer::Requests)
    }

    /// What the sizes of `batch` count. An explicit `sizer` of the queue is inherited, as in the Collector; `requests`
    /// means nothing for a batch and counts as not set.
    pub fn batch_sizer(&self, batch: &BatchConfig) -> BatchSizer {
        batch.sizer.unwrap_or(match self.sizer {
            Some(Sizer::Bytes) => BatchSizer::Bytes,
            Some(Sizer::Items | Sizer::Requests) | None => BatchSizer::Items,
        })
    }
}

impl Validate for QueueConfig {
    fn validate(&self, problems: &mut Problems) {
        if self.num_consumers == 0 {
            problems.error(&["num_consumers"], "must be at least 1, or nothing is sent");
        }
        if self.queue_size == 0 {
            problems.error(
                &["queue_size"],
                "must be at least 1; to send without a queue, set `enabled: false`",
            );
        }
        if self.block_on_overflow && self.drop_on_overflow {
            problems.error(
                &["drop_on_overflow"],
                "a full queue cannot both drop and make the sender wait: remove one of them",
            );
        }
        self.validate_storage(problems);
        if let Some(batch) = &*self.batch {
            problems.within("batch", batch);
            let same_unit = matches!(
                (self.sizer(), self.batch_sizer(batch)),
                (Sizer::Items, BatchSizer::Items) | (Sizer::Bytes, BatchSizer::Bytes)
            );
            if same_unit && batch.min_size > self.queue_size {
                problems.error(
                    &["batch", "min_size"],
                    format!(
                        "must not be above queue_size ({}): the queue would be full before a batch is",
                        self.queue_size
                    ),
                );
            }
        }
    }
}

impl QueueConfig {
    fn validate_storage(&self, problems: &mut Problems) {
        if self.storage.is_none() {
            if self.overflow == Overflow::DropOldest {
                problems.error(
                    &["overflow"],
                    "a queue in memory refuses what does not fit, or drops it with `drop_on_overflow`: to drop \
                     the oldest, set `storage`",
                );
            }
            return;
        }
        if self.overflow == Overflow::DropOldest
            && (self.block_on_overflow || self.drop_on_overflow)
        {
            problems.error(
                &["overflow"],
                "a full queue does one thing: remove this, or `block_on_overflow` and `drop_on_overflow`",
            );
        }
        if self.wait_for_result {
            problems.error(
                &["wait_for_result"],
                "a sender that waits for the result keeps its data itself: remove this, or `storage`",
            );
        }
        if self.compression != HeldCompression::None {
            problems.error(
                &["compression"],
                "this is for queues in memory: remove it; the storage extension has a `compression` of its own",
            );
        }
    }
}

impl Validate for BatchConfig {
    fn validate(&self, problems: &mut Problems) {
        if self.flush_timeout.is_zero() {
            problems.error(&["flush_timeout"], "must be above 0");
        }
        if self.max_size != 0 && self.max_size < self.min_size {
            problems.error(
                &["max_size"],
                format!("must be 0 or at least min_size ({})", self.min_size),
            );
        }
        let keys = &self.partition.metadata_keys;
        for (at, key) in keys.iter().enumerate() {
            if keys[..at]
                .iter()
                .any(|other| other.eq_ignore_ascii_case(key))
            {
                problems.error(
                    &["partition", "metadata_keys", &at.to_string()],
                    format!("\"{key}\" is listed twice (upper and lower case are the same)"),
                );
            }
        }
    }
}

impl RetryConfig {
    /// After so long a batch is given up; zero is never.
    pub(crate) fn limit(&self) -> Duration {
        self.max_elapsed_time.unwrap_or(Duration::secs(300))
    }

    /// The same for what a queue holds, on disk or not.
    pub(crate) fn of_queue(&self, is_stored: bool) -> Self {
        let never = is_stored.then(Duration::default);
        RetryConfig {
            max_elapsed_time: self.max_elapsed_time.or(never),
            ..self.clone()
        }
    }
}

/// Warns when a queue on disk would give up what it could keep.
pub(crate) fn warn_of_giving_up(
    queue: Option<&QueueConfig>,
    retry: Option<&RetryConfig>,
    problems: &mut Problems,
) {
    let is_stored = queue.is_some_and(|queue| queue.storage.is_some());
    let limit = retry.and_then(|retry| retry.max_elapsed_time);
    if let Some(limit) = limit.filter(|limit| is_stored && !limit.is_zero()) {
        problems.warning(
            &["retry_on_failure", "max_elapsed_time"],
            format!(
                "batches are given up after {:?} although the queue is on disk; leave the key out to keep them until \
                 the next hop is back",
                *limit
            ),
        );
    }
}

impl Validate for RetryConfig {
    fn validate(&self, problems: &mut Problems) {
        if !(0.0..=1.0).contains(&self.randomization_factor) {
            problems.error(&["randomization_factor"], "must be between 0 and 1");
        }
        if !(self.multiplier.is_finite() && self.multiplier >= 1.0) {
            problems.error(&["multiplier"], "must be at least 1");
        }
        // Unless it is said, it depends on the queue.
        let Some(limit) = self.max_elapsed_time.filter(|limit| !limit.is_zero()) else {
            return;
        };
        for (key, interval) in [
            ("initial_interval", self.initial_interval),
            ("max_interval", self.max_interval),
        ] {
            if interval > limit {
                problems.error(
                    &["max_elapsed_time"],
                    format!("must be 0 (no limit) or at least {key} ({:?})", *interval),
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(part: &impl Validate) -> Vec<String> {
        let mut problems = Problems::default();
        part.validate(&mut problems);
        let found = problems.found().iter();
        found.map(|problem| problem.path.join("::")).collect()
    }

    #[test]
    fn the_defaults_are_valid_and_the_collectors() {
        let queue: QueueConfig = serde_yaml::from_str("{}").unwrap();
        assert_eq!(queue, QueueConfig::default());
        assert_eq!((queue.num_consumers, queue.queue_size), (10, 1000));
        assert_eq!(queue.sizer(), Sizer::Requests);
        assert!(paths(&queue).is_empty());
        assert!(paths(&BatchConfig::default()).is_empty());
        assert!(paths(&RetryConfig::default()).is_empty());
    }

    #[test]
    fn every_rule_is_reported_at_its_key() {
        let queue = QueueConfig {
            num_consumers: 0,
            queue_size: 0,
            sizer: Some(Sizer::Items),
            batch: Section(Some(BatchConfig {
                flush_timeout: Duration::secs(0),
                min_size: 10,
                max_size: 9,
                partition: PartitionConfig {
                    metadata_keys: vec!["Tenant".to_owned(), "tenant".to_owned()],
                },
                ..BatchConfig::default()
            })),
            ..QueueConfig::default()
        };
        assert_eq!(
            paths(&queue),
            [
                "num_consumers",
                "queue_size",
                "batch::flush_timeout",
                "batch::max_size",
                "batch::partition::metadata_keys::1",
                "batch::min_size",
            ]
        );
        let (mut stored, mut short) = (QueueConfig::default(), RetryConfig::default());
        stored.storage = Some("file_storage".parse().unwrap());
        short.max_elapsed_time = Some(Duration::secs(300));
        let unlimited = RetryConfig::default();
        for (queue, retry, expected) in [
            (&stored, &short, 1),
            (&stored, &unlimited, 0),
            (&QueueConfig::default(), &short, 0),
        ] {
            let mut problems = Problems::default();
            warn_of_giving_up(Some(queue), Some(retry), &mut problems);
            assert_eq!(problems.found().len(), expected);
        }
        let retry = RetryConfig {
            randomization_factor: 1.5,
            multiplier: f64::NAN,
            max_elapsed_time: Some(Duration::secs(1)),
            ..RetryConfig::default()
        };
        assert_eq!(
            paths(&retry),
            [
                "randomization_factor",
                "multiplier",
                "max_elapsed_time",
                "max_elapsed_time"
            ]
        );
    }

    #[test]
    fn a_batch_counts_what_its_queue_counts_unless_told_otherwise() {
        let sizer = |yaml: &str| {
            let queue: QueueConfig = serde_yaml::from_str(yaml).unwrap();
            queue.batch_sizer(queue.batch.as_ref().unwrap())
        };
        assert_eq!(sizer("batch: {}"), BatchSizer::Items);
        assert_eq!(sizer("{sizer: bytes, batch: {}}"), BatchSizer::Bytes);
        assert_eq!(sizer("{sizer: requests, batch: {}}"), BatchSizer::Items);
        assert_eq!(
            sizer("{sizer: bytes, batch: {sizer: items}}"),
            BatchSizer::Items
        );
    }

    #[test]
    fn keys_that_mean_nothing_with_or_without_storage_are_errors() {
        for (yaml, expected) in [
            ("{storage: file_storage/a}", vec![]),
            ("{storage: file_storage, overflow: drop_oldest}", vec![]),
            ("{storage: file_storage, block_on_overflow: true}", vec![]),
            ("{overflow: drop_oldest}", vec!["overflow"]),
            (
                "{storage: file_storage, overflow: drop_oldest, drop_on_overflow: true}",
                vec!["overflow"],
            ),
            (
                "{storage: file_storage, wait_for_result: true, compression: lz4}",
                vec!["wait_for_result", "compression"],
            ),
        ] {
            let queue: QueueConfig = serde_yaml::from_str(yaml).unwrap();
            assert_eq!(paths(&queue), expected, "{yaml}");
        }
    }
}
