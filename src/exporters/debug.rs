//! `debug`: prints telemetry in a form that people can read.

mod counts;
mod detailed;
mod normal;
mod output;
mod profiles;
mod sampler;
mod tables;
#[cfg(test)]
mod tests;
mod text;

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::component::{
    BuildContext, BuildError, Entry, ExporterConfig, Outputs, Stability, Terminal,
};
use crate::pipeline::account::DropReason;
use crate::pipeline::batch::{Batch, Nack};
use crate::pipeline::{Consumer, Idle};
use crate::queue::metrics::ExporterMetrics;
use counts::Counts;
use futures_util::future::BoxFuture;
use output::{Output, Sink};
use sampler::Sampler;
use tributary_config::{ComponentId, Problems, Validate};
use tributary_otlp::{Decoded, Signal};

/// Configuration of the `debug` exporter.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// How much is printed: `basic` (counts, one line per batch), `normal` (one line per item as
    /// well), `detailed` (everything, in the Collector's text) or `resolved` (the same, but profiles with
    /// the names of functions in the place of tables; the Collector has no such value). Default `basic`.
    pub verbosity: Verbosity,
    /// How many batches of each signal are printed in every second before sampling begins. Default
    /// 2.
    pub sampling_initial: u32,
    /// After these, every how many batches one is printed until the second is over; 1 prints all, 0
    /// none. Default 1.
    pub sampling_thereafter: u32,
    /// Whether the text goes to the collector's own log, as messages of level `info`. Default
    /// `true`.
    pub use_internal_logger: bool,
    /// Where the text goes otherwise: `stdout`, `stderr`, or names of files, which are appended to.
    /// Only with `use_internal_logger: false`. Default `[stdout]`.
    pub output_paths: Vec<String>,
    /// What `verbosity` was called in older Collectors: `debug` is `detailed`, `info` is `normal`,
    /// all others are `basic`. Takes precedence over `verbosity`. Default: not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loglevel: Option<LogLevel>,
}

/// How much is printed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(transform = tributary_config::Also(&["Basic", "BASIC", "Normal", "NORMAL", "Detailed", "DETAILED"]))]
pub enum Verbosity {
    /// Counts, one line per batch.
    #[default]
    #[serde(alias = "Basic", alias = "BASIC")]
    Basic,
    /// Counts, and one line per item.
    #[serde(alias = "Normal", alias = "NORMAL")]
    Normal,
    /// Counts, and everything that the telemetry says, in the Collector's text.
    #[serde(alias = "Detailed", alias = "DETAILED")]
    Detailed,
    /// The same, but of profiles the heaviest samples, with the names of functions in the place of indices.
    Resolved,
}

/// The levels that the old key `loglevel` took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(transform = tributary_config::Also(&["DEBUG", "INFO", "warning", "WARN", "ERROR", "dpanic", "panic", "fatal"]))]
pub enum LogLevel {
    /// As `verbosity: detailed`.
    #[serde(alias = "DEBUG")]
    Debug,
    /// As `verbosity: normal`.
    #[serde(alias = "INFO")]
    Info,
    /// As `verbosity: basic`.
    #[serde(alias = "warning", alias = "WARN")]
    Warn,
    /// As `verbosity: basic`.
    #[serde(alias = "ERROR", alias = "dpanic", alias = "panic", alias = "fatal")]
    Error,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            verbosity: Verbosity::Basic,
            sampling_initial: 2,
            sampling_thereafter: 1,
            use_internal_logger: true,
            output_paths: vec!["stdout".to_owned()],
            loglevel: None,
        }
    }
}

impl LogLevel {
    fn verbosity(self) -> (Verbosity, &'static str) {
        match self {
            LogLevel::Debug => (Verbosity::Detailed, "detailed"),
            LogLevel::Info => (Verbosity::Normal, "normal"),
            LogLevel::Warn | LogLevel::Error => (Verbosity::Basic, "basic"),
        }
    }
}

impl Config {
    fn effective_verbosity(&self) -> Verbosity {
        self.loglevel
            .map_or(self.verbosity, |level| level.verbosity().0)
    }
}

impl Validate for Config {
    fn validate(&self, problems: &mut Problems) {
        if let Some(level) = self.loglevel {
            let (_, name) = level.verbosity();
            problems.warning(
                &["loglevel"],
                format!("`loglevel` is the old name of `verbosity`; write `verbosity: {name}`"),
            );
        }
        if self.use_internal_logger {
            if self.output_paths != Config::default().output_paths {
                problems.warning(
                    &["output_paths"],
                    "has no effect unless `use_internal_logger` is false",
                );
            }
        } else if self.output_paths.is_empty() {
            problems.error(
                &["output_paths"],
                "must name at least one of `stdout`, `stderr` or a file",
            );
        }
        for (at, path) in self.output_paths.iter().enumerate() {
            if path.is_empty() {
                problems.error(&["output_paths", &at.to_string()], "must not be empty");
            }
        }
    }
}

/// The registry's entry.
pub const ENTRY: Entry<dyn ExporterConfig> = crate::entry!(
    dyn ExporterConfig,
    Config,
    "debug",
    aliases: &["logging"],
    "Prints telemetry in a form that people can read.",
    &[
        (Signal::Traces, Stability::Alpha),
        (Signal::Metrics, Stability::Alpha),
        (Signal::Logs, Stability::Alpha),
        (Signal::Profiles, Stability::Alpha),
    ]
);

impl ExporterConfig for Config {
    fn build(&self, cx: &BuildContext, signals: &[Signal]) -> Result<Terminal, BuildError> {
        let output = Arc::new(if self.use_internal_logger {
            Output::Log
        } else {
            let sinks = self.output_paths.iter().map(|path| Sink::open(path));
            Output::Sinks(Mutex::new(sinks.collect::<Result<_, _>>()?))
        });
        let mut inputs = Outputs::default();
        for signal in signals {
            let exporter = Debug {
                id: cx.id.clone(),
                signal: *signal,
                verbosity: self.effective_verbosity(),
                sampler: Sampler::new(self.sampling_initial, self.sampling_thereafter),
                output: output.clone(),
                metrics: ExporterMetrics::new(cx, *signal),
            };
            inputs.set(*signal, Arc::new(exporter));
        }
        Ok(Terminal {
            inputs,
            component: Box::new(Idle),
        })
    }
}

struct Debug {
    id: ComponentId,
    signal: Signal,
    verbosity: Verbosity,
    sampler: Sampler,
    output: Arc<Output>,
    metrics: ExporterMetrics,
}

impl Consumer for Debug {
    fn consume(&self, batch: Batch) -> BoxFuture<'_, Result<(), Nack>> {
        Box::pin(async move {
            let items = batch.items();
            self.metrics.received(items);
            if self.sampler.admits(Instant::now()) {
                // The clone is decoded and let go: the bytes that other exporters share stay as
                // they are.
                match batch.clone().decoded() {
                    Ok(decoded) => {
                        if let Err(error) = self.print(decoded) {
                            // Telemetry is not refused for want of a terminal: other exporters may
                            // have taken it.
                            warn!(otelcol.component.id = %self.id, %error, "cannot write debug output");
                            self.metrics.dropped(items, DropReason::Permanent);
                            return Ok(());
                        }
                    }
                    Err(nack) => {
                        self.metrics.refused(items);
                        return Err(nack);
                    }
                }
            }
            self.metrics.delivered(items);
            Ok(())
        })
    }
}

impl Debug {
    fn print(&self, decoded: &Decoded) -> io::Result<()> {
        let counts = Counts::of(decoded);
        let text = render(decoded, self.verbosity);
        match &*self.output {
            Output::Log => {
                self.log_counts(&counts);
                if !text.is_empty() {
                    info!(otelcol.component.id = %self.id, otelcol.signal = %self.signal, "{text}");
                }
                Ok(())
            }
            Output::Sinks(sinks) => {
                let whole = format!("{}\n{text}", counts.line());
                let mut sinks = sinks.lock().unwrap_or_else(PoisonError::into_inner);
                sinks
                    .iter_mut()
                    .try_for_each(|sink| sink.write(whole.as_bytes()))
            }
        }
    }

    fn log_counts(&self, counts: &Counts) {
        let Debug { id, signal, .. } = self;
        // The names of fields must be literals.
        macro_rules! log {
            ($message:literal, $($name:literal),*) => {
                info!(
                    otelcol.component.id = %id,
                    otelcol.component.kind = "exporter",
                    otelcol.signal = %signal,
                    $($name = counts.get($name),)*
                    $message
                )
            };
        }
        match signal {
            Signal::Traces => log!("Traces", "resource spans", "spans"),
            Signal::Metrics => log!("Metrics", "resource metrics", "metrics", "data points"),
            Signal::Logs => log!("Logs", "resource logs", "log records"),
            Signal::Profiles => log!("Profiles", "resource profiles", "sample records"),
        }
    }
}

/// What a person is to read beyond the counts; several lines, or none.
pub(super) fn render(decoded: &Decoded, verbosity: Verbosity) -> String {
    let mut out = String::new();
    // Formatting into a string does not fail; only a text that is long enough does.
    let printed = match (verbosity, decoded) {
        (Verbosity::Basic, _) => Ok(()),
        (Verbosity::Normal, decoded) => normal::render(&mut out, decoded),
        (_, Decoded::Traces(request)) => detailed::traces(&mut out, request),
        (_, Decoded::Metrics(request)) => detailed::metrics(&mut out, request),
        (_, Decoded::Logs(request)) => detailed::logs(&mut out, request),
        (Verbosity::Detailed, Decoded::Profiles(request)) => tables::profiles(&mut out, request),
        (Verbosity::Resolved, Decoded::Profiles(request)) => profiles::resolved(&mut out, request),
    };
    if printed.is_err() {
        out.push_str("... and more, which is left out: the text is longer than 64MiB\n");
    }
    out
}

/// The text of a batch ends there, in bytes.
const LONGEST: usize = 64 << 20;
