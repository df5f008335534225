//! Configuration of the sending queue: the Collector's keys, defaults and rules, and some keys of our own.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use tributary_config::units::Duration;
use tributary_config::{Capability, ComponentId, ExtensionUse, Problems, Section, Validate};

/// Sending queue of an exporter. Each signal has a queue of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct QueueConfig {
    /// Number of batches that are sent concurrently, including batches that wait for a retry. At least 1. Default: 10.
    pub num_consumers: usize,
    /// Capacity of the queue in units of `sizer`, including batches in flight. At least 1. Default: 1000.
    pub queue_size: usize,
    /// Unit of `queue_size`: `requests`, `items` (spans, data points, log records, samples) or `bytes` (of the encoded,
    /// uncompressed requests; of the compressed requests if `compression` is set). Default: `requests`.
    pub sizer: Option<Sizer>,
    /// Whether a full queue blocks the upstream sender until there is room. Otherwise the queue refuses the request at
    /// once, and the sender has to retry. Default: false.
    pub block_on_overflow: bool,
    /// Whether a full queue drops new requests, counted as `queue_full`, instead of refusing them. A pipeline with
    /// several exporters accepts data only while every exporter does. With this setting, an exporter whose next hop is
    /// down no longer blocks the other exporters when its queue is full. Cannot be combined with `block_on_overflow`.
    /// Default: false. (The Collector has no such key.)
    pub drop_on_overflow: bool,
    /// Whether the upstream sender waits until its data is delivered, and receives delivery errors. Default: false.
    pub wait_for_result: bool,
    /// Compression of queued requests in memory: `lz4` or `none`. With `lz4` the same memory lasts through a longer
    /// outage. Batches in flight, at most `num_consumers`, are decompressed. Default: `none`. (The Collector has no
    /// such key.)
    pub compression: HeldCompression,
    /// Id of the extension that persists the queue, for example `file_storage`. Acknowledged data then survives the
    /// process. A `queue_size` in `bytes` limits the disk usage of the queue, and memory holds only the data that is
    /// sent next. Default: none, the queue is in memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<ComponentId>,
    /// Behaviour of a full queue with `storage`: `refuse` new requests, or `drop_oldest` to make room for them. Dropped
    /// data is counted as `queue_full`; data in flight is not dropped. Default: `refuse`. (The Collector has no such
    /// key.)
    pub overflow: Overflow,
    /// Merging of requests before they are sent. Default: off.
    pub batch: Section<BatchConfig>,
}

/// Whether the exporter blocks its pipelines while the next hop is unavailable: without a queue, or with a queue in
/// memory that refuses or blocks when it is full.
pub(crate) fn blocks_pipelines(queue: Option<&QueueConfig>) -> bool {
    queue.is_none_or(|queue| queue.storage.is_none() && !queue.drop_on_overflow)
}

/// Unit of a queue's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Sizer {
    /// Requests, as received from a receiver or processor.
    Requests,
    /// Spans, data points, log records, samples.
    Items,
    /// Bytes of the encoded requests.
    Bytes,
}

/// Compression of queued batches in memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HeldCompression {
    /// No compression.
    #[default]
    None,
    /// LZ4 block format.
    Lz4,
}

/// Behaviour of a full queue on disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Overflow {
    /// Refuses new requests until there is room. With `block_on_overflow`, upstream senders wait for the room instead.
    #[default]
    Refuse,
    /// Drops the oldest data that is not in flight.
    DropOldest,
}

/// Merging of requests inside the sending queue. Requests of profiles are merged into one request with one dictionary;
/// the samples do not change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BatchConfig {
    /// Maximum age of a batch, counted from its first request. At this age the batch is sent, however small it is. Must
    /// be above 0. Default: 200ms.
    pub flush_timeout: Duration,
    /// Size at which a batch is sent at once, in units of `sizer`. At most `queue_size`, if both have the same unit.
    /// Default: 8192.
    pub min_size: usize,
    /// Maximum size of a batch, in units of `sizer`; 0 means no limit. A request that does not fit into the current
    /// batch starts the next batch. A request larger than the maximum is split, if necessary between the samples of a
    /// profile. 0, or at least `min_size`. Default: 0.
    pub max_size: usize,
    /// Unit of the sizes: `items` or `bytes`. Default: the queue's `sizer` if that is one of the two, else `items`.
    pub sizer: Option<BatchSizer>,
    /// Separation of requests of different clients.
    pub partition: PartitionConfig,
}

/// Unit of batch sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BatchSizer {
    /// Spans, data points, log records, samples.
    Items,
    /// Bytes of the encoded, uncompressed requests; for profiles, before their dictionaries are merged.
    Bytes,
}

/// Conditions under which requests may share a batch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PartitionConfig {
    /// Request headers whose values must be equal for all requests of a batch. A missing header differs from an empty
    /// one. Names are case-insensitive. The receiver must keep the headers (`include_metadata`). Default: none.
    pub metadata_keys: Vec<String>,
}

/// Queue settings of an exporter.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `sending_queue`. Without it, the upstream sender waits while its data is sent.
    pub queue: Option<QueueConfig>,
    /// `retry_on_failure`. Without it, the first failure is final.
    pub retry: Option<RetryConfig>,
    /// `timeout` of one attempt. Zero means no timeout.
    pub timeout: std::time::Duration,
}

/// Retries after retryable failures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RetryConfig {
    /// Wait after the first failure. Default: 5s.
    pub initial_interval: Duration,
    /// Random variation of each wait, as a fraction between 0 and 1. The variation keeps many senders from retrying at
    /// the same moment. Default: 0.5.
    pub randomization_factor: f64,
    /// Factor by which each wait exceeds the previous one; at least 1. Default: 1.5.
    pub multiplier: f64,
    /// Maximum wait, unless the server asks for a longer one. Default: 30s.
    pub max_interval: Duration,
    /// Time after which a batch is dropped; 0 means never. 0, or at least `initial_interval` and `max_interval`.
    /// Default: 5m, or 0 for a queue with `storage`, which is meant to outlast long outages.
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
    /// Returns the extension that the queue needs. The reported path is that of the section `sending_queue`.
    pub fn uses(&self) -> Option<ExtensionUse> {
        Some(ExtensionUse {
            path: ["sending_queue", "storage"].map(str::to_owned).to_vec(),
            extension: self.storage.clone()?,
            capability: Capability::Storage,
        })
    }

    /// Returns the unit of `queue_size`.
    pub fn sizer(&self) -> Sizer {
        self.sizer.unwrap_or(Sizer::Requests)
    }

    /// Returns the unit of the sizes in `batch`. An explicit `sizer` of the queue is inherited, as in the Collector.
    /// The value `requests` has no meaning for a batch and is ignored.
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
            problems.error(&["num_consumers"], "must be at least 1");
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
                "cannot be combined with `block_on_overflow`: a full queue either drops data or blocks the sender; \
                 remove one of the two",
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
                        "must be at most queue_size ({}), or the queue is full before a batch reaches this size",
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
                    "`drop_oldest` needs a queue on disk: set `storage`, or use `drop_on_overflow`, which drops the \
                     newest data",
                );
            }
            return;
        }
        if self.overflow == Overflow::DropOldest
            && (self.block_on_overflow || self.drop_on_overflow)
        {
            problems.error(
                &["overflow"],
                "cannot be combined with `block_on_overflow` or `drop_on_overflow`: remove this key or those two",
            );
        }
        if self.wait_for_result {
            problems.error(
                &["wait_for_result"],
                "cannot be combined with `storage`: a queue on disk acknowledges data before it is delivered; \
                 remove one of the two",
            );
        }
        if self.compression != HeldCompression::None {
            problems.error(
                &["compression"],
                "has no effect with `storage`: remove it, and set `compression` in the storage extension",
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
    /// Returns the time after which a batch is dropped; zero means never.
    pub(crate) fn limit(&self) -> Duration {
        self.max_elapsed_time.unwrap_or(Duration::secs(300))
    }

    /// Returns the retry settings of a queue, with the default limit of a queue on disk or in memory.
    pub(crate) fn of_queue(&self, is_stored: bool) -> Self {
        let never = is_stored.then(Duration::default);
        RetryConfig {
            max_elapsed_time: self.max_elapsed_time.or(never),
            ..self.clone()
        }
    }
}

/// Warns if a queue on disk would drop data that it could keep.
pub(crate) fn warn_about_retry_limit(
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
                "batches are dropped after {:?} although the queue is on disk; remove the key to retry them until \
                 the next hop accepts them",
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
        // The default depends on the queue.
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
    fn defaults_are_valid_and_equal_the_collector() {
        let queue: QueueConfig = serde_yaml::from_str("{}").unwrap();
        assert_eq!(queue, QueueConfig::default());
        assert_eq!((queue.num_consumers, queue.queue_size), (10, 1000));
        assert_eq!(queue.sizer(), Sizer::Requests);
        assert!(paths(&queue).is_empty());
        assert!(paths(&BatchConfig::default()).is_empty());
        assert!(paths(&RetryConfig::default()).is_empty());
    }

    #[test]
    fn rule_violations_are_reported_at_their_keys() {
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
            warn_about_retry_limit(Some(queue), Some(retry), &mut problems);
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
    fn batch_sizer_defaults_to_queue_sizer() {
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
    fn keys_without_effect_are_errors() {
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
