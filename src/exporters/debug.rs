//! `debug`: prints telemetry as readable text.

mod chunks;
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
use std::sync::Arc;

use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::component::{
    BuildContext, BuildError, Entry, ExporterConfig, Origin, Outputs, Stability, Terminal,
};
use crate::metric::shared;
use crate::pipeline::account::DropReason;
use crate::pipeline::batch::{Batch, Nack};
use crate::pipeline::output_memory::OutputMemory;
use crate::pipeline::{Consumer, Idle};
use crate::queue::metrics::ExporterMetrics;
use chunks::Text;
use counts::Counts;
use futures_util::future::BoxFuture;
use output::{Output, Sink};
use sampler::Sampler;
use tributary_config::{ComponentId, Problems, Validate};
use tributary_memory::Budget;
use tributary_otlp::decoded_bytes;
use tributary_otlp::{Decoded, Signal};

/// Level of detail, sampling and destination of the printed text.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Level of detail: `basic` (counts, one line per batch), `normal` (also one line per item), `detailed`
    /// (everything, in the Collector's text) or `resolved` (as `detailed`, but profiles show function names instead of
    /// tables). Default: `basic`. (The Collector has no `resolved`.)
    pub verbosity: Verbosity,
    /// Number of batches of each signal that are printed in every second before sampling begins. Default: 2.
    pub sampling_initial: u32,
    /// After `sampling_initial` batches in a second, one in this many batches is printed; 1 prints all batches, 0 none.
    /// Default: 1.
    pub sampling_thereafter: u32,
    /// Whether the text goes to the collector's own log, as messages of level `info`. Default: true.
    pub use_internal_logger: bool,
    /// With `use_internal_logger: false`: destinations of the text: `stdout`, `stderr`, or paths of files, which are
    /// appended to. Default: `[stdout]`.
    pub output_paths: Vec<String>,
    /// Older name of `verbosity`: `debug` means `detailed`, `info` means `normal`, all other values mean `basic`.
    /// Takes precedence over `verbosity`. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loglevel: Option<OldLogLevel>,
}

/// Level of detail of the output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(transform = tributary_config::Aliases(&["Basic", "BASIC", "Normal", "NORMAL", "Detailed", "DETAILED"]))]
pub enum Verbosity {
    /// Counts, one line per batch.
    #[default]
    #[serde(alias = "Basic", alias = "BASIC")]
    Basic,
    /// Counts, and one line per item.
    #[serde(alias = "Normal", alias = "NORMAL")]
    Normal,
    /// Counts and the whole content, in the Collector's text.
    #[serde(alias = "Detailed", alias = "DETAILED")]
    Detailed,
    /// As `detailed`, but for profiles the heaviest samples with function names instead of indices.
    Resolved,
}

/// Values of the older key `loglevel`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(transform = tributary_config::Aliases(&["DEBUG", "INFO", "warning", "WARN", "ERROR", "dpanic", "panic", "fatal"]))]
pub enum OldLogLevel {
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

impl OldLogLevel {
    fn verbosity(self) -> (Verbosity, &'static str) {
        match self {
            OldLogLevel::Debug => (Verbosity::Detailed, "detailed"),
            OldLogLevel::Info => (Verbosity::Normal, "normal"),
            OldLogLevel::Warn | OldLogLevel::Error => (Verbosity::Basic, "basic"),
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
                    "has no effect with `use_internal_logger: true`: set that to false, or remove this key",
                );
            }
        } else if self.output_paths.is_empty() {
            problems.error(
                &["output_paths"],
                "must not be empty: list `stdout`, `stderr` or a file",
            );
        }
        for (at, path) in self.output_paths.iter().enumerate() {
            if path.is_empty() {
                problems.error(&["output_paths", &at.to_string()], "must not be empty");
            }
        }
    }
}

/// Entry of the component registry.
pub const ENTRY: Entry<dyn ExporterConfig> = crate::entry!(
    dyn ExporterConfig,
    Config,
    "debug",
    aliases: &["logging"],
    "Prints telemetry in readable form.",
    &[
        (Signal::Traces, Stability::Alpha),
        (Signal::Metrics, Stability::Alpha),
        (Signal::Logs, Stability::Alpha),
        (Signal::Profiles, Stability::Alpha),
    ],
    collector: Origin::Core,
    metrics: &[shared::EXPORTER]
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
                budget: cx.budget.clone(),
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
    budget: Arc<Budget>,
}

impl Consumer for Debug {
    fn consume(&self, batch: Batch) -> BoxFuture<'_, Result<(), Nack>> {
        Box::pin(async move {
            let items = batch.items();
            self.metrics.received(items);
            if self.sampler.admits(Instant::now()) {
                match self.print(&batch) {
                    Ok(()) => {}
                    // A missing terminal does not refuse telemetry, because other exporters may have accepted it.
                    Err(Unprinted::Io(error)) => {
                        warn!(otelcol.component.id = %self.id, %error, "Cannot write the debug output; check \
                            `output_paths`");
                        self.metrics.dropped(items, DropReason::Permanent);
                        return Ok(());
                    }
                    Err(Unprinted::Unreadable(nack)) => {
                        self.metrics.refused(items);
                        return Err(nack);
                    }
                }
            }
            self.metrics.delivered(items);
            Ok(())
        })
    }

    fn behind(&self) -> Vec<Arc<dyn Consumer>> {
        Vec::new()
    }
}

/// Reason why a batch was not printed.
enum Unprinted {
    Io(io::Error),
    Unreadable(Nack),
}

impl Debug {
    fn print(&self, batch: &Batch) -> Result<(), Unprinted> {
        let counts = Counts::of(self.signal, batch.wire());
        // Keep the permit while the structs exist.
        let memory = OutputMemory::new(&self.budget);
        let decoded = match self.decoded(batch, &memory) {
            Some(decoded) => Some(decoded.map_err(Unprinted::Unreadable)?),
            None => None,
        };
        let print = |emit: &mut dyn FnMut(&str) -> io::Result<()>| match &decoded {
            Some(decoded) => render(decoded, self.verbosity, emit),
            None if self.verbosity == Verbosity::Basic => Ok(()),
            None => emit(NO_ROOM),
        };
        let printed = match &*self.output {
            Output::Log => {
                self.log_counts(&counts);
                print(&mut |text| {
                    info!(otelcol.component.id = %self.id, otelcol.signal = %self.signal, "{text}");
                    Ok(())
                })
            }
            Output::Sinks(sinks) => {
                let mut sinks = sinks.lock();
                let mut write = |text: &str| {
                    let mut sinks = sinks.iter_mut();
                    sinks.try_for_each(|sink| sink.write(text.as_bytes()))
                };
                write(&format!("{}\n", counts.line())).and_then(|()| print(&mut write))
            }
        };
        printed.map_err(Unprinted::Io)
    }

    /// Decodes the batch into structs, if the structs are printed and the memory budget has room.
    fn decoded(&self, batch: &Batch, memory: &OutputMemory) -> Option<Result<Decoded, Nack>> {
        if self.verbosity == Verbosity::Basic {
            return None;
        }
        let requests = batch.wire();
        let structs = requests.parts().iter();
        let structs = structs.map(|request| decoded_bytes(self.signal, request));
        let joined = match requests.parts().len() {
            0 | 1 => 0,
            _ => requests.len(),
        };
        memory
            .take(structs.sum::<usize>().saturating_add(joined))
            .ok()?;
        Some(batch.decoded())
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

/// Text printed instead of a batch that is too large to be decoded.
const NO_ROOM: &str = "(not printed: decoding needs more than the memory budget; raise the limit of \
                       `memory_limiter`, or send smaller requests)\n";

/// Prints the text beyond the counts, in any number of lines.
///
/// # Errors
///
/// The error of the first chunk that could not be emitted.
pub(super) fn render(
    decoded: &Decoded,
    verbosity: Verbosity,
    emit: &mut dyn FnMut(&str) -> io::Result<()>,
) -> io::Result<()> {
    let mut emit = |text: &str| emit(text);
    let mut out = Text::new(&mut emit);
    let printed = match (verbosity, decoded) {
        (Verbosity::Basic, _) => Ok(()),
        (Verbosity::Normal, decoded) => normal::render(&mut out, decoded),
        (_, Decoded::Traces(request)) => detailed::traces(&mut out, request),
        (_, Decoded::Metrics(request)) => detailed::metrics(&mut out, request),
        (_, Decoded::Logs(request)) => detailed::logs(&mut out, request),
        (Verbosity::Detailed, Decoded::Profiles(request)) => tables::profiles(&mut out, request),
        (Verbosity::Resolved, Decoded::Profiles(request)) => profiles::resolved(&mut out, request),
    };
    out.finish(match printed {
        Ok(()) => "",
        Err(_) => "... (the text is cut at 64MiB)\n",
    })
}

/// Returns the whole text that [`render`] prints.
#[cfg(any(test, fuzzing))]
pub(super) fn rendered(decoded: &Decoded, verbosity: Verbosity) -> String {
    let mut all = String::new();
    let mut emit = |text: &str| {
        all.push_str(text);
        Ok(())
    };
    // Appending to a string does not fail.
    let _ = render(decoded, verbosity, &mut emit);
    all
}

/// Maximum length of the text of a batch, in bytes.
const MAX_TEXT: usize = 64 << 20;
