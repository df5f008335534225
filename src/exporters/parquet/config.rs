//! Configuration of the `parquet` exporter.

mod object_store;

use std::collections::HashSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::object_store::ObjectStoreConfig;
use super::queue::FileQueue;
use super::table;
use crate::queue::{RetryConfig, Sizer};
use tributary_config::units::Duration;
use tributary_config::{ByteSize, ExtensionUse, Problems, Section, Validate};

/// Writes telemetry into Parquet files, one series of files for each signal:
/// `signal=logs/date=2026-09-14/hour=05/part-ID.parquet` below `path`. Date and hour are those of
/// the items' timestamps, in UTC.
///
/// A file appears under its name when the file is finished, and never changes afterwards. The queue
/// keeps batches until the files that contain them are finished. Without a queue, clients are
/// acknowledged at that time, so acknowledged data survives a crash of the collector. In that case
/// `rotation.interval` must be shorter than the time that clients wait.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Directory of the files; created if missing. Several collectors may write into the same
    /// directory. Exactly one of `path` and `object_store` is required.
    pub path: String,
    /// Writes to an object store instead of a directory. Default: off.
    pub object_store: Section<ObjectStoreConfig>,
    /// Permissions of new files, as a quoted octal number; the umask of the process has no effect.
    /// "0600" gives access only to the user of the collector, "0640" adds read access for its
    /// group, "0644" for all users. Every user who may read files may also enter the directories.
    /// Default: "0600".
    pub file_permissions: String,
    /// Grouping of files below the signal, the date and the hour: none (`hour`) or by
    /// `service.name` (`service`). Default: `hour`.
    pub partition_by: PartitionBy,
    /// Conditions that finish a file.
    pub rotation: ParquetRotation,
    /// Conditions that complete a row group of a file.
    pub row_group: RowGroupConfig,
    /// Compression of pages: `zstd`, `lz4` (LZ4_RAW), `snappy` or `none`. Default: `zstd`.
    pub compression: ParquetCompression,
    /// Compression level of `zstd`, from 1 to 22. Default: 3.
    pub compression_level: i32,
    /// Attributes with columns of their own, in addition to their entries in the maps. Default:
    /// none.
    pub promote: PromoteConfig,
    /// Layout of profiles. `wide`: a row per sample with all its frames. `stacks`: a row per sample
    /// with the hash of its stack, and a second series of files, `signal=stacks`, with a row per
    /// stack. Default: `wide`.
    pub layout: ProfilesLayoutConfig,
    /// Whether id columns have bloom filters, which speed up lookups of single traces. Row groups
    /// with fewer than 256 ids have none. Default: true.
    pub bloom_filters: bool,
    /// Maximum number of open files. If a batch needs more files, the files without new rows for
    /// the longest time are finished early. A batch with rows for more files than the maximum is
    /// written in several steps. Default: 512.
    pub max_open_files: usize,
    /// Maximum number of partitions of a signal, with directories of their own: an hour, or a
    /// service in an hour with `partition_by: service`. A partition counts until it had no rows for
    /// `rotation.interval`. Further services share the directory `service=__overflow__` of their
    /// hour. Further hours share `date=__HIVE_DEFAULT_PARTITION__`. Default: 1000.
    pub max_partitions: usize,
    /// Memory limit for rows in unfinished files, for the requests of these rows, and for data not
    /// yet uploaded; at most half of the process's memory budget applies. Up to a quarter of the
    /// limit is reserved for encoding row groups: 6MiB for each of up to four concurrent row
    /// groups. If the limit is reached, the largest file is finished early. The rows that are being
    /// made may exceed it by 4MiB for each signal. Default: 128MiB.
    pub max_memory: ByteSize,
    /// Whether each finished file gets a line in `_manifest.jsonl` in `path`: name, signal, hour,
    /// service, rows, bytes, and the times of the first and last row. The manifest also marks
    /// directories with many small files, which are worth merging. A crash may lose a line of the
    /// manifest, but never a file. Only supported for directories. Default: false.
    pub manifest: bool,
    /// Queue in front of the exporter. `queue_size` includes the data of unfinished files; if three
    /// quarters of the queue are used, files are finished early. `compression: lz4` also compresses
    /// the requests of unfinished files in memory. Without `sizer` and `queue_size`, the queue
    /// holds 64MiB of requests, counted in bytes. Default: on.
    pub sending_queue: Section<FileQueue>,
    /// Retries of batches in `sending_queue` after a file could not be written; the batches go into
    /// another file. Without a queue there are no retries: the sender gets the error and
    /// still has its data. Default: on.
    pub retry_on_failure: Section<RetryConfig>,
}

/// Conditions that finish a file. The first condition that holds applies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ParquetRotation {
    /// File size from which no further row group is added; in an object store at most 10000 parts.
    /// The requests of a file must fit into `sending_queue`. Without a persistent queue the
    /// requests must also fit into `max_memory`. Default: 32MiB.
    pub max_bytes: ByteSize,
    /// Number of rows from which no further row group is added; 0 means no limit. Default: 0.
    pub max_rows: usize,
    /// Longest time from the first row of a file until the file is finished; more than 0. Default:
    /// 1m.
    pub interval: Duration,
}

/// Conditions that complete a row group. The first condition that holds applies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RowGroupConfig {
    /// Number of rows from which a row group is written; more than 0. Default: 131072.
    pub max_rows: usize,
    /// Size in memory from which a row group is written; more than 0. Default: 32MiB.
    pub max_bytes: ByteSize,
}

/// Attributes with columns of their own.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PromoteConfig {
    /// Keys of resource attributes. Default: none.
    pub resource: Vec<String>,
    /// Keys of the attributes of log records, spans, data points and samples. Default: none.
    pub item: Vec<String>,
}

/// Grouping of files into directories.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PartitionBy {
    /// By signal, date and hour.
    #[default]
    Hour,
    /// By signal, date, hour and `service.name`.
    Service,
}

/// Compression of pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ParquetCompression {
    /// Zstandard (RFC 8878).
    #[default]
    Zstd,
    /// LZ4 blocks.
    Lz4,
    /// Snappy blocks.
    Snappy,
    /// No compression.
    None,
}

/// Layout of profiles.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProfilesLayoutConfig {
    /// A row per sample with all its frames.
    #[default]
    Wide,
    /// A row per sample with the hash of its stack, and a row per stack.
    Stacks,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            path: String::new(),
            object_store: Section(None),
            file_permissions: "0600".to_owned(),
            partition_by: PartitionBy::Hour,
            rotation: ParquetRotation::default(),
            row_group: RowGroupConfig::default(),
            compression: ParquetCompression::Zstd,
            compression_level: 3,
            promote: PromoteConfig::default(),
            layout: ProfilesLayoutConfig::Wide,
            bloom_filters: true,
            max_open_files: 512,
            max_partitions: 1000,
            max_memory: ByteSize::mib(128),
            manifest: false,
            sending_queue: Section(Some(FileQueue::default())),
            retry_on_failure: Section(Some(RetryConfig::default())),
        }
    }
}

impl Default for ParquetRotation {
    fn default() -> Self {
        ParquetRotation {
            max_bytes: ByteSize::mib(32),
            max_rows: 0,
            interval: Duration::secs(60),
        }
    }
}

impl Default for RowGroupConfig {
    fn default() -> Self {
        RowGroupConfig {
            max_rows: 128 << 10,
            max_bytes: ByteSize::mib(32),
        }
    }
}

impl Config {
    /// Returns the bits of `file_permissions`.
    pub(super) fn file_mode(&self) -> Option<u32> {
        let mode = u32::from_str_radix(&self.file_permissions, 8).ok();
        mode.filter(|mode| *mode <= 0o777)
    }

    /// Reports promoted attributes whose column name would collide with another column.
    fn validate_promoted(&self, problems: &mut Problems) {
        let mut columns = HashSet::new();
        for (list, source, keys) in [
            (
                "resource",
                table::AttributeOwner::Resource,
                &self.promote.resource,
            ),
            ("item", table::AttributeOwner::Item, &self.promote.item),
        ] {
            for (at, key) in keys.iter().enumerate() {
                let key = key.clone();
                let promoted = table::Promoted { source, key };
                let column = promoted.column();
                let of = if promoted.key.is_empty() {
                    problems.error(&["promote", list, &at.to_string()], "must not be empty");
                    continue;
                } else if promoted.is_taken() {
                    "a built-in column"
                } else if !columns.insert(column.clone()) {
                    "the column of another attribute in this list"
                } else {
                    continue;
                };
                let reason = format!(
                    "the column name `{column}` is already used by {of}; promote another attribute"
                );
                problems.error(&["promote", list, &at.to_string()], reason);
            }
        }
    }

    /// Warns of sizes that files and row groups never reach.
    fn validate_sizes(&self, problems: &mut Problems) {
        let file = self.rotation.max_bytes;
        let queue = self.sending_queue.as_ref().map(|queue| &queue.0);
        if let Some(queue) = queue
            && queue.sizer() == Sizer::Bytes
            && file.as_usize() > queue.queue_size - queue.queue_size / 4
        {
            let least = file.0.saturating_add(file.0 / 3 + 1);
            let reason = format!(
                "files are finished before they reach `rotation.max_bytes` ({file}), because that is more than \
                 three quarters of the queue. Raise this to at least {least}, or lower `rotation.max_bytes`"
            );
            problems.warning(&["sending_queue", "queue_size"], reason);
        }
        // A quarter of the limit is reserved for encoding.
        let memory = self.max_memory.as_usize() / 4 * 3;
        let group = self.row_group.max_bytes;
        let is_stored = queue.is_some_and(|queue| queue.storage.is_some());
        let (needed, what) = match is_stored {
            true => (group.as_usize(), "a row group (`row_group.max_bytes`)"),
            false => (
                group.as_usize().saturating_add(file.as_usize()),
                "the requests of a file (`rotation.max_bytes`) and a row group (`row_group.max_bytes`)",
            ),
        };
        if needed > memory {
            let least = (needed as u64).saturating_add(needed as u64 / 3 + 1);
            let least = ByteSize::mib(least.div_ceil(1 << 20));
            let reason = format!(
                "files are finished early: {what} need more than three quarters of `max_memory`. Raise `max_memory` \
                 to at least {least}, or lower those limits"
            );
            problems.warning(&["max_memory"], reason);
        }
    }

    /// Returns the options that determine the columns.
    pub(super) fn layout_options(&self) -> table::TableOptions {
        let promoted = |source, keys: &[String]| -> Vec<table::Promoted> {
            let keys = keys.iter().cloned();
            keys.map(|key| table::Promoted { source, key }).collect()
        };
        let mut all = promoted(table::AttributeOwner::Resource, &self.promote.resource);
        all.extend(promoted(table::AttributeOwner::Item, &self.promote.item));
        table::TableOptions {
            promoted: all,
            profiles: match self.layout {
                ProfilesLayoutConfig::Wide => table::ProfilesLayout::Wide,
                ProfilesLayoutConfig::Stacks => table::ProfilesLayout::Stacks,
            },
            compression: match self.compression {
                ParquetCompression::Zstd => table::PageCompression::Zstd(self.compression_level),
                ParquetCompression::Lz4 => table::PageCompression::Lz4,
                ParquetCompression::Snappy => table::PageCompression::Snappy,
                ParquetCompression::None => table::PageCompression::None,
            },
            row_group_rows: self.row_group.max_rows,
            bloom_filters: self.bloom_filters,
        }
    }
}

/// Maximum number of parts of one upload in S3 and in Google Cloud Storage:
/// <https://docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html>.
const MAX_PARTS: u64 = 10_000;

impl Validate for Config {
    fn validate(&self, problems: &mut Problems) {
        match &*self.object_store {
            None if self.path.is_empty() => {
                let reason = "must be specified: set `path` to the directory to write to, or `object_store` with \
                              its `url`";
                problems.error(&["path"], reason);
            }
            Some(_) if !self.path.is_empty() => {
                let reason = "cannot be combined with `object_store`: remove one of the two; a prefix in the bucket \
                              is part of `url`";
                problems.error(&["path"], reason);
            }
            _ => {}
        }
        if let Some(store) = &*self.object_store {
            problems.within("object_store", store);
            let most = store.part_size.0.saturating_mul(MAX_PARTS);
            // The row group that exceeds the size is still written as a whole.
            let most = ByteSize(most.saturating_sub(self.row_group.max_bytes.0));
            if self.rotation.max_bytes > most {
                let reason = format!(
                    "must be at most {most}: an object has at most {MAX_PARTS} parts of {} \
                     (`object_store.part_size`), and one row group may exceed the size. Lower this, or raise \
                     `object_store.part_size`",
                    store.part_size
                );
                problems.error(&["rotation", "max_bytes"], reason);
            }
            if self.manifest {
                let reason = "is not supported with `object_store`, because objects cannot be appended to: remove it";
                problems.error(&["manifest"], reason);
            }
        }
        if self.file_mode().is_none() {
            problems.error(
                &["file_permissions"],
                "must be permissions in octal and in quotes, from \"0000\" to \"0777\"",
            );
        }
        if !(1..=22).contains(&self.compression_level) {
            problems.error(&["compression_level"], "must be from 1 to 22");
        }
        self.validate_promoted(problems);
        let above_0: [(&[&'static str], bool); 7] = [
            (&["rotation", "max_bytes"], self.rotation.max_bytes.0 == 0),
            (&["rotation", "interval"], self.rotation.interval.is_zero()),
            (&["row_group", "max_rows"], self.row_group.max_rows == 0),
            (&["row_group", "max_bytes"], self.row_group.max_bytes.0 == 0),
            (&["max_open_files"], self.max_open_files == 0),
            (&["max_partitions"], self.max_partitions == 0),
            (&["max_memory"], self.max_memory.0 == 0),
        ];
        for (path, _) in above_0.iter().filter(|(_, is_zero)| *is_zero) {
            problems.error(path, "must be above 0");
        }
        self.validate_sizes(problems);
        if let Some(queue) = &*self.sending_queue {
            problems.within("sending_queue", queue);
        }
        if let Some(retry) = &*self.retry_on_failure {
            problems.within("retry_on_failure", retry);
        }
        let queue = self.sending_queue.as_ref().map(|queue| &queue.0);
        let retry = self.retry_on_failure.as_ref();
        crate::queue::warn_about_retry_limit(queue, retry, problems);
    }

    fn uses_extensions(&self) -> Vec<ExtensionUse> {
        let queue = self.sending_queue.iter();
        queue.filter_map(|queue| queue.0.uses()).collect()
    }
}
