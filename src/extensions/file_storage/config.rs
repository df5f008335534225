//! The configuration: the Collector's keys, and settings for durability.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use tributary_config::units::Duration;
use tributary_config::{Problems, Validate};
use tributary_storage::Options;

/// Keeps sending queues of exporters in a directory, so that the queues survive a restart. An
/// exporter uses it by `sending_queue: {storage: file_storage}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Directory of the queues, with a subdirectory for each exporter and signal. Default:
    /// `/var/lib/otelcol/file_storage`.
    pub directory: PathBuf,
    /// Whether to create the directory if it is missing. Default: false.
    pub create_directory: bool,
    /// Permissions of a created directory, in octal and in quotes. From "0700" to "0777". Default: "0750".
    pub directory_permissions: String,
    /// Longest time to wait at the start for another process to release a queue. Default: 1s.
    pub timeout: Duration,
    /// Point at which batches are forced to the disk with fsync. `always`: before a batch is acknowledged, so that it
    /// survives a power failure. `interval`: every `fsync_interval`. `never`: when the operating system decides. A
    /// crash of the process loses nothing in any mode. `true` means `always`, `false` means `never`. Default: `always`,
    /// or `true`. (The Collector's default is `false`.)
    pub fsync: FsyncMode,
    /// Interval of `fsync: interval`. A power failure loses at most the batches acknowledged since the last fsync.
    /// Above 0. Default: 1s. (The Collector has no such key.)
    pub fsync_interval: Duration,
    /// Compression of stored batches: `lz4` or `none`. With `lz4`, batches are compressed only if the backlog is larger
    /// than 10 MiB; the batches of a smaller backlog are soon sent and deleted. Default: `lz4`. (The Collector has no
    /// such key.)
    pub compression: StorageCompression,
    /// Accepted for compatibility with the Collector, without an effect: damaged data is always skipped and counted.
    /// Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recreate: Option<bool>,
    /// Accepted for compatibility with the Collector, without an effect: segments are deleted once they are delivered.
    /// Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compaction: Option<CompactionConfig>,
}

/// Point at which batches are forced to the disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FsyncMode {
    /// Before a batch is acknowledged.
    #[default]
    Always,
    /// Every `fsync_interval`.
    Interval,
    /// When the operating system decides.
    Never,
}

/// Compression of stored blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StorageCompression {
    /// LZ4 blocks, for a backlog that is not soon delivered.
    #[default]
    Lz4,
    /// No compression.
    None,
}

/// Compaction in the Collector's storage, without an effect here.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CompactionConfig {
    /// Without an effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_start: Option<bool>,
    /// Without an effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_rebound: Option<bool>,
    /// Without an effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// Without an effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_transaction_size: Option<u64>,
    /// Without an effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rebound_needed_threshold_mib: Option<u64>,
    /// Without an effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rebound_trigger_threshold_mib: Option<u64>,
    /// Without an effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check_interval: Option<Duration>,
    /// Without an effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cleanup_on_start: Option<bool>,
}

/// Writes the Collector's booleans for modes that have one.
impl Serialize for FsyncMode {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            FsyncMode::Always => serializer.serialize_bool(true),
            FsyncMode::Interval => serializer.serialize_str("interval"),
            FsyncMode::Never => serializer.serialize_bool(false),
        }
    }
}

impl<'de> Deserialize<'de> for FsyncMode {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FsyncVisitor)
    }
}

/// Accepts the Collector's booleans as well.
struct FsyncVisitor;

impl serde::de::Visitor<'_> for FsyncVisitor {
    type Value = FsyncMode;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("`always`, `interval`, `never`, true or false")
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<FsyncMode, E> {
        Ok(if value {
            FsyncMode::Always
        } else {
            FsyncMode::Never
        })
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<FsyncMode, E> {
        match value {
            "always" => Ok(FsyncMode::Always),
            "interval" => Ok(FsyncMode::Interval),
            "never" => Ok(FsyncMode::Never),
            other => Err(E::unknown_variant(other, &["always", "interval", "never"])),
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Config {
            directory: PathBuf::from("/var/lib/otelcol/file_storage"),
            create_directory: false,
            directory_permissions: "0750".to_owned(),
            timeout: Duration::secs(1),
            fsync: FsyncMode::default(),
            fsync_interval: Duration::secs(1),
            compression: StorageCompression::default(),
            recreate: None,
            compaction: None,
        }
    }
}

impl Config {
    pub(super) fn directory_mode(&self) -> Option<u32> {
        let mode = u32::from_str_radix(&self.directory_permissions, 8).ok()?;
        (mode <= 0o777).then_some(mode)
    }

    /// Returns the options of the stored queues.
    pub(super) fn options(&self) -> Options {
        Options {
            fsync: match self.fsync {
                FsyncMode::Always => tributary_storage::Fsync::Always,
                FsyncMode::Interval => tributary_storage::Fsync::Interval(*self.fsync_interval),
                FsyncMode::Never => tributary_storage::Fsync::Never,
            },
            compress: self.compression == StorageCompression::Lz4,
            lock_timeout: *self.timeout,
            // A user who may list the directory may also read the files in it.
            file_mode: self.directory_mode().unwrap_or(0o750) & 0o666 | 0o600,
            ..Options::default()
        }
    }
}

impl Validate for Config {
    fn validate(&self, problems: &mut Problems) {
        let mode = self.directory_mode();
        if mode.is_none_or(|mode| mode & 0o700 != 0o700) {
            problems.error(
                &["directory_permissions"],
                "must be permissions in octal and in quotes, with full access for the owner, from \"0700\" to \
                 \"0777\"",
            );
        }
        if self.directory.as_os_str().is_empty() {
            problems.error(
                &["directory"],
                "must be specified: the directory of the queues",
            );
        } else if !self.create_directory && !self.directory.is_dir() {
            problems.error(
                &["directory"],
                format!(
                    "the directory {} does not exist: create it, or set `create_directory: true`",
                    self.directory.display()
                ),
            );
        }
        if self.fsync_interval.is_zero() {
            problems.error(
                &["fsync_interval"],
                "must be above 0; to sync every write, set `fsync: always`",
            );
        }
        if self.recreate == Some(true) {
            problems.warning(
                &["recreate"],
                "has no effect: damaged blocks of a queue are skipped, and the rest is delivered; remove it",
            );
        }
        if self.compaction.is_some() {
            problems.warning(
                &["compaction"],
                "has no effect: files are deleted as they are read, so there is nothing to compact; remove it",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(yaml: &str) -> Vec<String> {
        crate::testing::problems::<Config>(yaml)
    }

    #[test]
    fn invalid_values_are_reported_at_their_keys() {
        assert_eq!(problems("{directory: /tmp}"), [""; 0]);
        assert_eq!(
            problems("{create_directory: true, directory: /tmp/none}"),
            [""; 0]
        );
        assert_eq!(
            problems("{directory: /tmp/no/such/directory}"),
            ["directory"]
        );
        assert_eq!(
            problems(
                "{directory: '', directory_permissions: '9', fsync_interval: 0s, recreate: true, compaction: {on_start: true}}"
            ),
            [
                "directory_permissions",
                "directory",
                "fsync_interval",
                "recreate",
                "compaction"
            ]
        );
    }

    #[test]
    fn fsync_accepts_words_and_booleans() {
        for (text, expected) in [
            ("true", FsyncMode::Always),
            ("false", FsyncMode::Never),
            ("always", FsyncMode::Always),
            ("interval", FsyncMode::Interval),
            ("never", FsyncMode::Never),
        ] {
            let config: Config = serde_yaml::from_str(&format!("fsync: {text}")).unwrap();
            assert_eq!(config.fsync, expected);
        }
        assert!(serde_yaml::from_str::<Config>("fsync: sometimes").is_err());
    }
}
