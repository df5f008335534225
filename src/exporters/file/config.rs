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
    /// The file. When it is moved or deleted by somebody else, the next request makes a new one. New files can be
    /// read by their owner only (mode 0600). Required.
    pub path: String,
    /// When to begin a new file, and which of the old ones to keep. Present but empty means on with its defaults.
    /// Default: off.
    pub rotation: Section<RotationConfig>,
    /// `json`: OTLP/JSON, one request in a line. `proto`: OTLP in protobuf, each request behind its length in 4
    /// bytes, most significant first; it does not say of which signal a request is, so give each signal a file of its
    /// own. Default: `json`.
    pub format: Format,
    /// `zstd` compresses each request for itself and puts it behind the length of the compressed bytes, in 4 bytes,
    /// most significant first, whatever `format` is. Default: `none`.
    pub compression: Compression,
    /// Parameters of the compression.
    pub compression_params: CompressionParams,
    /// Whether a file that is there at the start is continued; otherwise it is emptied. It is always continued with
    /// `rotation`, and over a reload. Half a request at its end, left by a crash, is cut off. Default: false.
    pub append: bool,
    /// Interval between forced writes to the disk (fsync); more than 0. Default: 1s.
    pub flush_interval: Duration,
    /// Whether to make the directory of the file if there is none, and those above it. Default: false.
    pub create_directory: bool,
    /// The permissions of directories that are made, in octal and in quotes. Default: "0755".
    pub directory_permissions: String,
    /// A file for each value of a resource attribute. Not supported.
    pub group_by: GroupByConfig,
    /// An extension that encodes what is written. Not supported: see `format`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encoding: Option<String>,
    /// A queue in front. Default: off, so that what is acknowledged is in the file.
    pub sending_queue: Section<QueueConfig>,
    /// Retries of what is in `sending_queue`. Without a queue there are none: the sender hears of a failure at once and
    /// still has its data. Default: on.
    pub retry_on_failure: Section<RetryConfig>,
}

/// When to begin a new file. The old one gets the time into its name, before the extension, as in
/// `data-2026-09-14T05-02-14.173.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RotationConfig {
    /// The largest file in MiB; 0 means the default. A request that is larger gets a file of its own. Default: 100.
    pub max_megabytes: u64,
    /// After how many days of 24 hours an old file is deleted: at the start, with each rotation, and once an hour
    /// between them; 0 is never. Default: 0.
    pub max_days: u64,
    /// Number of old files to keep; 0 keeps all of them. Default: 100.
    pub max_backups: usize,
    /// Whether the times in names are local; otherwise they are in UTC. Default: false.
    pub localtime: bool,
}

/// Encoding of a request in the file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// OTLP/JSON.
    #[default]
    Json,
    /// Protobuf.
    Proto,
}

/// Compression of a request in the file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(transform = tributary_config::Also(&[""]))]
pub enum Compression {
    /// It is not.
    #[default]
    #[serde(alias = "")]
    None,
    /// RFC 8878.
    Zstd,
}

/// A file for each value of a resource attribute. Not supported.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GroupByConfig {
    /// Must be false. Default: false.
    pub enabled: bool,
    /// Without an effect while `enabled` is false. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_attribute: Option<String>,
    /// Without an effect while `enabled` is false. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_open_files: Option<u64>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            path: String::new(),
            rotation: Section(None),
            format: Format::Json,
            compression: Compression::None,
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

impl Default for RotationConfig {
    fn default() -> Self {
        RotationConfig {
            max_megabytes: 100,
            max_days: 0,
            max_backups: 100,
            localtime: false,
        }
    }
}

impl RotationConfig {
    /// The largest file in bytes.
    pub(super) fn max_bytes(&self) -> u64 {
        let megabytes = match self.max_megabytes {
            0 => RotationConfig::default().max_megabytes,
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

    pub(super) fn codec(&self) -> Option<Codec> {
        (self.compression == Compression::Zstd).then_some(Codec::Zstd)
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
            problems.error(
                &["group_by", "enabled"],
                "`group_by` is not supported: use one exporter and pipeline for each file, with a `filter` \
                 processor that lets the right resources pass",
            );
        }
        if self.encoding.is_some() {
            problems.error(
                &["encoding"],
                "there are no encoding extensions: remove `encoding`, and set `format` to `json` (OTLP/JSON lines) or \
                 `proto` (OTLP protobuf behind a length of 4 bytes)",
            );
        }
        if let Some(queue) = &*self.sending_queue {
            problems.within("sending_queue", queue);
        }
        if let Some(retry) = &*self.retry_on_failure {
            problems.within("retry_on_failure", retry);
        }
        let (queue, retry) = (self.sending_queue.as_ref(), self.retry_on_failure.as_ref());
        crate::queue::warn_of_giving_up(queue, retry, problems);
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
