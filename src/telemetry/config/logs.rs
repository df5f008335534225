//! `service.telemetry.logs`: the collector's own logs.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::push::PushExporter;
use tributary_config::units::Duration;
use tributary_config::{Problems, Validate};

/// Level, encoding and destination of the collector's own logs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LogsConfig {
    /// Minimum severity of logged lines. Default: `info`.
    pub level: LogLevel,
    /// `console` for people, `json` for machines. Default: `console`.
    pub encoding: LogEncoding,
    /// Destinations of log lines: `stderr`, `stdout` or file paths. Files are appended to, and
    /// created with mode 0640. Default: `[stderr]`.
    pub output_paths: Vec<String>,
    /// Fields added to every line. Default: none.
    pub initial_fields: BTreeMap<String, String>,
    /// Destination of the logger's own errors: always `stderr`, the Collector's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_output_paths: Option<Vec<String>>,
    /// Sampling of log lines with equal messages. Default: components limit repeated messages
    /// themselves; libraries log ten lines of one message in ten seconds; above the level `debug`,
    /// at most a thousand lines of one message are logged in ten seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampling: Option<Sampling>,
    /// Omits the source location (`caller`) from JSON lines; `console` lines never have one.
    /// Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disable_caller: Option<bool>,
    /// Omits the process attributes (`resource`) from JSON lines; `console` lines never have them.
    /// Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disable_zap_resource: Option<bool>,
    /// Disables the Collector's stack traces. Lines here never have stack traces, so only `true` is
    /// accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disable_stacktrace: Option<bool>,
    /// The Collector's development mode. Only `false` is accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub development: Option<bool>,
    /// Export of the collector's own log lines by OTLP, in addition to `output_paths`. Lines of libraries and lines about
    /// this export are not exported. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub processors: Vec<LogProcessor>,
}

/// A processor of log lines: exactly one of the keys.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LogProcessor {
    /// Exports lines in batches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchLogProcessor>,
    /// Exports each line at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub simple: Option<SimpleLogProcessor>,
}

/// Export of log lines in batches. Times are in milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BatchLogProcessor {
    /// Longest wait of a line for its export, in milliseconds. Default: 1000.
    pub schedule_delay: u64,
    /// Time limit of one export in milliseconds; a batch that fails until then is dropped. Above 0. Default: 30000.
    pub export_timeout: u64,
    /// Number of lines that wait for export; further lines are dropped. 1 to 65536. Default: 2048.
    pub max_queue_size: usize,
    /// Maximum number of lines of one export, 1 to `max_queue_size`. Default: 512.
    pub max_export_batch_size: usize,
    /// Destination. Required.
    pub exporter: PushExporter,
}

/// Export of each log line at once.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SimpleLogProcessor {
    /// Destination. Required.
    pub exporter: PushExporter,
}

/// Sampling of log lines with equal messages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Sampling {
    /// Whether lines are dropped. Default: `true`.
    pub enabled: bool,
    /// Time after which counting starts again. Default: `10s`.
    pub tick: Duration,
    /// Number of equal lines logged per `tick`. Default: 10.
    pub initial: u64,
    /// After `initial` lines, one in this many equal lines is logged. Default: 100.
    pub thereafter: u64,
}

/// Minimum severity of logged lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(transform = tributary_config::Aliases(&["DEBUG", "INFO", "WARN", "ERROR"]))]
pub enum LogLevel {
    /// Details for diagnosing faults.
    #[serde(alias = "DEBUG")]
    Debug,
    /// Normal operation.
    #[default]
    #[serde(alias = "INFO")]
    Info,
    /// Conditions that need attention.
    #[serde(alias = "WARN")]
    Warn,
    /// Failures.
    #[serde(alias = "ERROR")]
    Error,
}

/// Encoding of a log line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogEncoding {
    /// Text for people.
    #[default]
    Console,
    /// One JSON object per line.
    Json,
}

impl Default for LogsConfig {
    fn default() -> Self {
        LogsConfig {
            level: LogLevel::default(),
            encoding: LogEncoding::default(),
            output_paths: vec!["stderr".to_owned()],
            initial_fields: BTreeMap::new(),
            error_output_paths: None,
            sampling: None,
            disable_caller: None,
            disable_zap_resource: None,
            disable_stacktrace: None,
            development: None,
            processors: Vec::new(),
        }
    }
}

impl Default for BatchLogProcessor {
    fn default() -> Self {
        BatchLogProcessor {
            schedule_delay: 1000,
            export_timeout: 30_000,
            max_queue_size: 2048,
            max_export_batch_size: 512,
            exporter: PushExporter::default(),
        }
    }
}

impl LogProcessor {
    /// Returns the settings; `simple` exports without delay.
    pub fn settings(&self) -> BatchLogProcessor {
        match (&self.batch, &self.simple) {
            (Some(batch), _) => batch.clone(),
            (None, simple) => BatchLogProcessor {
                schedule_delay: 0,
                exporter: simple.clone().unwrap_or_default().exporter,
                ..BatchLogProcessor::default()
            },
        }
    }

    /// Returns the number of lines that wait for export.
    pub fn queue_size(&self) -> usize {
        self.settings().max_queue_size
    }
}

impl Validate for LogProcessor {
    fn validate(&self, problems: &mut Problems) {
        match (&self.batch, &self.simple) {
            (Some(batch), None) => problems.within("batch", batch),
            (None, Some(simple)) => {
                let mut inner = Problems::default();
                simple.exporter.validate(&mut inner);
                problems.extend(&["simple", "exporter"], inner);
            }
            _ => {
                let message = "must have one of `batch` and `simple`";
                problems.error(&[], message);
            }
        }
    }
}

impl Validate for BatchLogProcessor {
    fn validate(&self, problems: &mut Problems) {
        const MOST: usize = 1 << 16;
        problems.within("exporter", &self.exporter);
        if self.export_timeout == 0 {
            problems.error(&["export_timeout"], "must be above 0 milliseconds");
        }
        if !(1..=MOST).contains(&self.max_queue_size) {
            let message = format!("must be between 1 and {MOST}");
            problems.error(&["max_queue_size"], message);
        }
        if !(1..=self.max_queue_size.max(1)).contains(&self.max_export_batch_size) {
            let message = "must be between 1 and `max_queue_size`";
            problems.error(&["max_export_batch_size"], message);
        }
    }
}

impl Default for Sampling {
    fn default() -> Self {
        Sampling {
            enabled: true,
            tick: Duration::secs(10),
            initial: 10,
            thereafter: 100,
        }
    }
}

impl Validate for LogsConfig {
    fn validate(&self, problems: &mut Problems) {
        if self.output_paths.is_empty() {
            let message = "must not be empty: list `stderr`, `stdout` or a file";
            problems.error(&["output_paths"], message);
        }
        for (index, processor) in self.processors.iter().enumerate() {
            let mut inner = Problems::default();
            processor.validate(&mut inner);
            problems.extend(&["processors", &index.to_string()], inner);
        }
        // Settings that only change the look of lines cause a warning, not an error.
        let mut no_effect = |key: &str, asked: bool, what: &str| {
            if asked {
                problems.warning(&[key], format!("has no effect: {what}"));
            }
        };
        let elsewhere = |paths: &Vec<String>| paths.iter().any(|path| path != "stderr");
        no_effect(
            "error_output_paths",
            self.error_output_paths.as_ref().is_some_and(elsewhere),
            "errors of the logger are always written to stderr",
        );
        let stack = self.disable_stacktrace == Some(false);
        no_effect("disable_stacktrace", stack, "lines carry no stack traces");
        let development = self.development == Some(true);
        no_effect(
            "development",
            development,
            "is not supported; set `level: debug`",
        );
    }
}
