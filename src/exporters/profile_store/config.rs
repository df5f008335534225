//! Configuration of the `profile_store` exporter.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::queue::{QueueConfig, RetryConfig};
use tributary_config::units::Duration;
use tributary_config::{ByteSize, ExtensionUse, Problems, Section, Validate};
use tributary_profile_store::ProfileStoreOptions;
use tributary_profile_store::options::OptionsError;

/// Keeps the profiles of the last hours in a directory, for questions: flame graphs, tables and totals over time.
///
/// Profiles of a series are merged in windows of 10 seconds, of a minute after an hour, and of 10 minutes after six
/// hours. A series has one `service.name`, one sample type and one value of each of the `labels`. An acknowledged
/// profile is on the disk, and queries see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Directory of the store; created if missing, with access for the user of the collector only. No other collector
    /// may use it. Required.
    pub directory: PathBuf,
    /// Maximum memory of the store; at least 1MiB. More than half of the process's memory budget has no effect. A
    /// quarter each is for the profiles of the last 10 seconds, the index, merging, and all queries together.
    /// Default: 256MiB.
    pub max_memory: ByteSize,
    /// Maximum size of the files; at least 1MiB. If it is reached, profiles are merged into longer windows before their
    /// time, and then the oldest ones are deleted. Default: 4GiB.
    pub max_disk: ByteSize,
    /// Age at which profiles are deleted; at least 10s. Older profiles are dropped and counted. Default: 24h.
    pub retention: Duration,
    /// Resource attributes that separate series, in addition to `service.name`. Other characters than letters, digits
    /// and `_` become `_` in the name of the label. Attributes with many values, such as ids of processes, make the
    /// index large. Default: none.
    pub labels: Vec<String>,
    /// Sending queue. Default: off, so that an acknowledged profile is in the store.
    pub sending_queue: Section<QueueConfig>,
    /// Retries of requests in `sending_queue`. Without a queue there are no retries: the sender learns of a failure at
    /// once and still has its data. Default: on.
    pub retry_on_failure: Section<RetryConfig>,
}

impl Default for Config {
    fn default() -> Self {
        let options = ProfileStoreOptions::new("");
        Config {
            directory: PathBuf::new(),
            max_memory: ByteSize::bytes(options.max_memory),
            max_disk: ByteSize::bytes(options.max_disk),
            retention: Duration(options.retention),
            labels: Vec::new(),
            sending_queue: Section(None),
            retry_on_failure: Section(Some(RetryConfig::default())),
        }
    }
}

/// Shortest retention: a window of the finest resolution.
const SHORTEST_RETENTION: std::time::Duration = std::time::Duration::from_secs(10);

impl Config {
    pub(super) fn options(&self) -> ProfileStoreOptions {
        ProfileStoreOptions {
            max_memory: self.max_memory.0,
            max_disk: self.max_disk.0,
            retention: *self.retention,
            labels: self.labels.clone(),
            ..ProfileStoreOptions::new(&self.directory)
        }
    }
}

impl Validate for Config {
    fn validate(&self, problems: &mut Problems) {
        if self.directory.as_os_str().is_empty() {
            problems.error(
                &["directory"],
                "`directory` must be specified, as in `/var/lib/tributary/profiles`",
            );
        }
        if *self.retention < SHORTEST_RETENTION {
            problems.error(&["retention"], "must be at least 10s");
        }
        match self.options().check() {
            Ok(()) => {}
            Err(OptionsError::TooSmall { name, .. }) => {
                problems.error(&[name], "must be at least 1MiB");
            }
            Err(error @ OptionsError::SameLabel(_)) => {
                problems.error(&["labels"], error.to_string());
            }
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

    fn uses_extensions(&self) -> Vec<ExtensionUse> {
        let queue = self.sending_queue.iter();
        queue.filter_map(QueueConfig::uses).collect()
    }

    fn writes_to(&self) -> Vec<(Vec<&'static str>, PathBuf)> {
        match self.directory.as_os_str().is_empty() {
            true => Vec::new(),
            false => vec![(vec!["directory"], self.directory.clone())],
        }
    }
}
