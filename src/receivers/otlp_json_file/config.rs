//! The configuration of `otlp_json_file`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::receivers::glob::Glob;
use tributary_config::units::{ByteSize, Duration};
use tributary_config::{Capability, ComponentId, ExtensionUse, Problems, Validate};

/// Reads files of the `file` exporter, of this collector or of the OpenTelemetry Collector:
/// OTLP/JSON with one request per line, or another encoding according to `format` and
/// `compression`.
///
/// Without `storage`, read positions are in memory only: after a start, `start_at` says where to begin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Paths of files to read. In a path, `*` matches any text without `/`, `?` one ASCII character,
    /// `[a-z]` one character of the range, `[^a-z]` one character outside of the range, and `{a,b}`
    /// one of the two. `\` before a character removes its meaning. Required.
    pub include: Vec<String>,
    /// Paths of files to exclude, although `include` matches them. Default: none.
    pub exclude: Vec<String>,
    /// Start position in files that exist at the start: `beginning` or `end`. Files that appear
    /// later are read from the beginning. Default: `end`.
    pub start_at: StartAt,
    /// Interval of polls for new files and lines. Above 0. Default: 200ms.
    pub poll_interval: Duration,
    /// Whether each poll reads all files again from the beginning, whatever `start_at` says.
    /// Default: false.
    pub replay_file: bool,
    /// Maximum size of a line or message, both as stored and after decompression; larger ones are skipped. Above 0.
    /// Default: 64MiB. (The Collector's default is 1MiB.)
    pub max_log_size: ByteSize,
    /// Encoding of requests. `json`: OTLP/JSON. `proto`: protobuf. Protobuf does not name the signal of a request, so
    /// with `proto` the receiver may be in pipelines of one signal only. (The Collector has no such key.) Default:
    /// `json`.
    pub format: InputFormat,
    /// Compression of requests. `zstd`: each request is compressed and follows its length, as the `file` exporter
    /// writes with `compression: zstd`. Default: `none`. (The Collector has no such key.)
    pub compression: InputCompression,
    /// The `file_storage` extension that keeps the read positions, so that a restart continues where reading ended;
    /// once there are positions, `start_at` has no effect. Records may be read twice after a crash. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<ComponentId>,
}

/// Start position in files that exist at the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StartAt {
    /// The existing content is read.
    Beginning,
    /// Only content that is appended later is read.
    #[default]
    End,
}

/// Encoding of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum InputFormat {
    /// OTLP/JSON.
    #[default]
    Json,
    /// Protobuf.
    Proto,
}

/// Compression of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(transform = tributary_config::Aliases(&[""]))]
pub enum InputCompression {
    /// No compression.
    #[default]
    #[serde(alias = "")]
    None,
    /// Zstandard (RFC 8878).
    Zstd,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            include: Vec::new(),
            exclude: Vec::new(),
            start_at: StartAt::End,
            poll_interval: Duration::millis(200),
            replay_file: false,
            max_log_size: ByteSize::mib(64),
            format: InputFormat::Json,
            compression: InputCompression::None,
            storage: None,
        }
    }
}

impl Validate for Config {
    fn validate(&self, problems: &mut Problems) {
        if self.include.is_empty() {
            problems.error(
                &["include"],
                "must be specified: list at least one path or pattern",
            );
        }
        for (key, patterns) in [("include", &self.include), ("exclude", &self.exclude)] {
            for (at, pattern) in patterns.iter().enumerate() {
                let at = at.to_string();
                match Glob::new(pattern) {
                    _ if pattern.is_empty() => problems.error(&[key, &at], "must not be empty"),
                    Err(why) => problems.error(&[key, &at], why),
                    Ok(_) => {}
                }
            }
        }
        if self.poll_interval.unless_zero().is_none() {
            problems.error(&["poll_interval"], "must be above 0");
        }
        if self.max_log_size.as_usize() == 0 {
            problems.error(&["max_log_size"], "must be above 0");
        }
        if self.storage.is_some() && self.replay_file {
            problems.error(
                &["storage"],
                "has no effect with `replay_file: true`, which reads all files repeatedly; remove one of the two",
            );
        }
    }

    fn uses_extensions(&self) -> Vec<ExtensionUse> {
        let used = self.storage.iter().map(|id| ExtensionUse {
            path: vec!["storage".to_owned()],
            extension: id.clone(),
            capability: Capability::Storage,
        });
        used.collect()
    }
}
