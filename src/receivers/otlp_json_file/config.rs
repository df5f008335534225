//! The configuration of `otlp_json_file`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::receivers::glob::Glob;
use tributary_config::units::{ByteSize, Duration};
use tributary_config::{Capability, ComponentId, ExtensionUse, Problems, Validate};

/// Reads the files that the `file` exporter writes, here or in the Collector: OTLP/JSON, one request in a line, or what
/// `format` and `compression` say.
///
/// Without `storage`, read positions are in memory only: after a start, `start_at` says where to begin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Which files: paths in which `*` stands for any text without `/`, `?` for one character, `[a-z]` for one of these
    /// and `[^a-z]` for one of the others. Required.
    pub include: Vec<String>,
    /// Which of these files not. Default: none.
    pub exclude: Vec<String>,
    /// Where to begin with files that are there at the start, `beginning` or `end`; files that appear later are read
    /// from the beginning. Default: `end`.
    pub start_at: StartAt,
    /// How often to look for new files and lines. Default: 200ms.
    pub poll_interval: Duration,
    /// Whether to read all files again at every look, whatever `start_at` says. Default: false.
    pub replay_file: bool,
    /// Largest line or message in bytes, as it is and after decompression; what is larger is skipped. Default: 64MiB.
    pub max_log_size: ByteSize,
    /// `json`: OTLP/JSON. `proto`: protobuf; it does not say of which signal a request is, so the receiver may be in
    /// pipelines of one signal only. (The Collector has no such key.) Default: `json`.
    pub format: Format,
    /// `zstd` if each request is compressed, and so behind its length, as the `file` exporter writes it with
    /// `compression: zstd`. Default: `none`.
    pub compression: Compression,
    /// The `file_storage` extension that keeps the read positions, so that a restart continues where reading ended; once
    /// there are positions, `start_at` has no effect. Records may be read twice after a crash. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<ComponentId>,
}

/// Where to begin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StartAt {
    /// With what is there.
    Beginning,
    /// With what comes.
    #[default]
    End,
}

/// What a request is written in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// OTLP/JSON.
    #[default]
    Json,
    /// Protobuf.
    Proto,
}

/// How a request is compressed.
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

impl Default for Config {
    fn default() -> Self {
        Config {
            include: Vec::new(),
            exclude: Vec::new(),
            start_at: StartAt::End,
            poll_interval: Duration::millis(200),
            replay_file: false,
            max_log_size: ByteSize::mib(64),
            format: Format::Json,
            compression: Compression::None,
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
                "has no effect with `replay_file: true`, which reads all files again and again; remove one of them",
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
