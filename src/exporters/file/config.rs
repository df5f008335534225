//! The configuration of `file`.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::queue::{QueueConfig, RetryConfig};
use tributary_compression::Codec;
use tributary_compression::compress::CompressionParams;
use tributary_config::units::Duration;
use tributary_config::{ExtensionUse, Problems, Section, Validate};

/// Writes telemetry to a file, one request after the other. All signals go into the same file.
///
/// An acknowledged request has been given to the operating system and survives any end of the collector, even by
/// `kill -9`. If the machine loses power, requests written within the last `flush_interval` may be lost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Path of the file; with `group_by`, of the files, with a `*`. If another program moves or deletes the file, the next request creates a new one. New files
    /// can be read by their owner only (mode 0600). Required.
    pub path: String,
    /// Rotation of files: conditions for a new file, and the number of old files to keep. Default: off.
    pub rotation: Section<FileRotation>,
    /// Encoding of requests. `json`: OTLP/JSON, one request per line. `proto`: OTLP in protobuf, each request after its
    /// length in 4 bytes, most significant byte first. Protobuf does not name the signal of a request, so with `proto`
    /// each signal needs a file of its own. Default: `json`.
    pub format: FileFormat,
    /// Compression of requests. `zstd` compresses each request separately, after the length of the compressed bytes in
    /// 4 bytes, most significant byte first, whatever `format` is. Default: `none`.
    pub compression: FileCompression,
    /// Compression level.
    pub compression_params: CompressionParams,
    /// Whether an existing file is continued at the start; otherwise it is emptied. With `rotation` and over a reload
    /// the file is always continued. Half a request at its end, left by a crash, is cut off. Default: false.
    pub append: bool,
    /// Interval between forced writes to the disk (fsync); more than 0. Default: 1s.
    pub flush_interval: Duration,
    /// Whether to create the directory of the file, and its parents, if they are missing. Default: false.
    pub create_directory: bool,
    /// Permissions of created directories, in octal and in quotes. From "0000" to "0777". Default: "0755".
    pub directory_permissions: String,
    /// A file for each value of a resource attribute. Default: off.
    pub group_by: GroupByConfig,
    /// Extension that encodes the requests. Not supported: use `format`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encoding: Option<String>,
    /// Sending queue. Default: off, so that an acknowledged request is in the file. (The Collector has no such key.)
    pub sending_queue: Section<QueueConfig>,
    /// Retries of requests in `sending_queue`. Without a queue there are no retries: the sender learns of a failure at
    /// once and still has its data. Default: on. (The Collector has no such key.)
    pub retry_on_failure: Section<RetryConfig>,
}

/// Conditions for a new file, and the number of old files to keep. The name of an old file contains the time of the
/// rotation before the extension, as in `data-2026-09-14T05-02-14.173.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FileRotation {
    /// Maximum size of a file in MiB; 0 means the default. A larger request gets a file of its own. Default: 100.
    pub max_megabytes: u64,
    /// Age in days of 24 hours at which an old file is deleted; 0 means never. Old files are checked at the start, at
    /// each rotation and once an hour. Default: 0.
    pub max_days: u64,
    /// Number of old files to keep; 0 keeps all of them. Default: 100.
    pub max_backups: usize,
    /// Whether the times in file names are local times instead of UTC. Default: false.
    pub localtime: bool,
}

/// Encoding of a request in the file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FileFormat {
    /// OTLP/JSON.
    #[default]
    Json,
    /// Protobuf.
    Proto,
}

/// Compression of a request in the file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(transform = tributary_config::Aliases(&[""]))]
pub enum FileCompression {
    /// No compression.
    #[default]
    #[serde(alias = "")]
    None,
    /// Zstandard (RFC 8878).
    Zstd,
}

/// A file for each value of a resource attribute, as in a directory with one file for each tenant.
///
/// The value replaces the `*` in `path`. Directories in the value are created, but the value cannot lead out of the part
/// of `path` before the `*`. Resources are dropped and counted if the attribute is missing, is not a string, or is not
/// usable as a file name, for example because it is longer than 255 bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GroupByConfig {
    /// Whether each value gets a file. If true, `path` must contain exactly one `*`, and not at its beginning.
    /// Default: false.
    pub enabled: bool,
    /// Resource attribute whose value replaces the `*`. The attribute stays in the data. Default:
    /// `fileexporter.path_segment`.
    pub resource_attribute: String,
    /// Maximum number of open files. Beyond the maximum, the least recently written file is forced to the disk and
    /// closed. At least 1. Default: 100.
    pub max_open_files: usize,
}

impl Default for GroupByConfig {
    fn default() -> Self {
        GroupByConfig {
            enabled: false,
            resource_attribute: "fileexporter.path_segment".to_owned(),
            max_open_files: 100,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Config {
            path: String::new(),
            rotation: Section(None),
            format: FileFormat::Json,
            compression: FileCompression::None,
            compression_params: CompressionParams::default(),
            append: false,
            flush_interval: Duration::secs(1),
            create_directory: false,
            directory_permissions: "0755".to_owned(),
            group_by: GroupByConfig::default(),
            encoding: None,
            sending_queue: Section(None),
            retry_on_failure: Section(Some(RetryConfig::default())),
        }
    }
}

impl Default for FileRotation {
    fn default() -> Self {
        FileRotation {
            max_megabytes: 100,
            max_days: 0,
            max_backups: 100,
            localtime: false,
        }
    }
}

impl FileRotation {
    /// The largest file in bytes.
    pub(super) fn max_bytes(&self) -> u64 {
        let megabytes = match self.max_megabytes {
            0 => FileRotation::default().max_megabytes,
            megabytes => megabytes,
        };
        megabytes.saturating_mul(1 << 20)
    }
}

impl Config {
    /// `directory_permissions` as bits.
    pub(super) fn directory_mode(&self) -> Option<u32> {
        let mode = u32::from_str_radix(&self.directory_permissions, 8).ok();
        mode.filter(|mode| *mode <= 0o777)
    }

    /// Whether files that are there at the start are continued.
    pub(super) fn is_continued(&self) -> bool {
        self.append || self.rotation.is_some()
    }

    fn validate_groups(&self, problems: &mut Problems) {
        if self.path.matches('*').count() != 1 && !self.path.is_empty() {
            problems.error(
                &["path"],
                "must have exactly one `*` with `group_by`: the value of the resource attribute replaces the `*`",
            );
        } else if self.path.starts_with('*') {
            problems.error(
                &["path"],
                "must not begin with `*`: write `./*` for files in the working directory",
            );
        }
        if self.group_by.resource_attribute.is_empty() {
            problems.error(&["group_by", "resource_attribute"], "must not be empty");
        }
        if self.group_by.max_open_files == 0 {
            problems.error(&["group_by", "max_open_files"], "must be 1 or more");
        }
    }

    pub(super) fn codec(&self) -> Option<Codec> {
        (self.compression == FileCompression::Zstd).then_some(Codec::Zstd)
    }
}

impl Validate for Config {
    fn validate(&self, problems: &mut Problems) {
        if self.path.is_empty() {
            problems.error(&["path"], "`path` must be specified: the file to write to");
        }
        if self.flush_interval.is_zero() {
            problems.error(&["flush_interval"], "must be above 0");
        }
        if self.directory_mode().is_none() {
            problems.error(
                &["directory_permissions"],
                "must be permissions in octal and in quotes, from \"0000\" to \"0777\"",
            );
        }
        self.compression_params.validate(self.codec(), problems);
        if self.group_by.enabled {
            self.validate_groups(problems);
        }
        if self.encoding.is_some() {
            problems.error(
                &["encoding"],
                "encoding extensions are not supported: remove `encoding`, and set `format` to `json` (OTLP/JSON \
                 lines) or `proto` (OTLP protobuf, each message after its length in 4 bytes)",
            );
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
        match self.path.is_empty() {
            true => Vec::new(),
            false => vec![(vec!["path"], PathBuf::from(&self.path))],
        }
    }
}
