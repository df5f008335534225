//! Configuration of the `batch` processor.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::pipeline::gathering::Sizes;
use crate::pipeline::partition::Keys;
use tributary_config::units::{ByteSize, Duration};
use tributary_config::{Problems, Validate};
use tributary_otlp::Limit;

/// Size and age at which a batch is sent.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Longest time that the first item of a batch waits. `0s` sends everything at once, subject to the maximum sizes.
    /// In front of a queue on disk, a batch waits at most 20ms. Default: 200ms.
    pub timeout: Duration,
    /// Number of items (spans, data points, log records, samples) at which a batch is sent. 0 means no item threshold;
    /// if `send_batch_bytes` is 0 too, everything is sent at once. Default: 8192.
    pub send_batch_size: u32,
    /// Maximum number of items in a batch. Larger requests are split, profiles between their samples if necessary. 0
    /// means no limit. 0, or at least `send_batch_size`. Default: 0.
    pub send_batch_max_size: u32,
    /// Encoded size at which a batch is sent, as in `2MiB`. The size of profiles is measured before their dictionaries
    /// are merged. 0 means no size threshold. Default: 0. (The Collector has no such key.)
    pub send_batch_bytes: ByteSize,
    /// Maximum encoded size of a batch, as in `4MiB`; larger requests are split. 0 means no limit. 0, or at least
    /// `send_batch_bytes`. Default: 0. (The Collector has no such key.)
    pub send_batch_max_bytes: ByteSize,
    /// Request headers that separate batches: all requests of a batch have equal values. The receiver must have
    /// `include_metadata: true`. Default: none.
    pub metadata_keys: Vec<String>,
    /// Maximum number of distinct combinations of values of `metadata_keys` during the life of the process; requests
    /// with further combinations are refused. 0 means no limit. Default: 1000.
    pub metadata_cardinality_limit: u32,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            timeout: Duration::millis(200),
            send_batch_size: 8192,
            send_batch_max_size: 0,
            send_batch_bytes: ByteSize(0),
            send_batch_max_bytes: ByteSize(0),
            metadata_keys: Vec::new(),
            metadata_cardinality_limit: 1000,
        }
    }
}

impl Validate for Config {
    fn validate(&self, problems: &mut Problems) {
        if self.send_batch_max_size > 0 && self.send_batch_max_size < self.send_batch_size {
            problems.error(
                &["send_batch_max_size"],
                "must be greater than or equal to `send_batch_size`, or 0 for no limit",
            );
        }
        if self.send_batch_max_bytes.0 > 0 && self.send_batch_max_bytes.0 < self.send_batch_bytes.0
        {
            problems.error(
                &["send_batch_max_bytes"],
                "must be greater than or equal to `send_batch_bytes`, or 0 for no limit",
            );
        }
        Keys::validate(&self.metadata_keys, problems);
    }
}

impl Config {
    pub(super) fn sizes(&self) -> Sizes {
        let no_size = self.send_batch_size == 0 && self.send_batch_bytes.0 == 0;
        let at_once = self.timeout.is_zero() || no_size;
        let min = |size: u64| if at_once { 1 } else { limit(size) };
        let max = Limit {
            items: limit(u64::from(self.send_batch_max_size)),
            bytes: limit(self.send_batch_max_bytes.0),
        };
        // A batch of the maximum size has nothing to wait for. Besides, requests left over from a
        // batch are always younger than the batch, so their timeout may start again.
        Sizes {
            min: Limit {
                items: min(u64::from(self.send_batch_size)).min(max.items),
                bytes: min(self.send_batch_bytes.0).min(max.bytes),
            },
            max,
        }
    }
}

/// Returns a size limit; 0 means no limit.
pub(super) fn limit(size: u64) -> usize {
    match usize::try_from(size) {
        Ok(0) | Err(_) => usize::MAX,
        Ok(size) => size,
    }
}
