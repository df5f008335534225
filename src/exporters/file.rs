//! `file`: writes requests to a file, as JSON lines or behind their lengths.
//!
//! A request is written with one call, and cut off again if that fails halfway; then the sender hears of it and still
//! has its data. So is what a crash leaves of a request when the file is opened next.

mod backups;
mod config;
mod ending;
mod output;
#[cfg(test)]
mod tests;

pub use self::config::{Compression, Config, Format, GroupByConfig, RotationConfig};

use std::error::Error;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use metrics::{Counter, counter};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::error;

use self::ending::Framing;
use self::output::Output;
use crate::component::{ALL_SIGNALS, BuildContext, BuildError, Entry, ExporterConfig, Terminal};
use crate::pipeline::batch::Code;
use crate::pipeline::output_memory::OutputMemory;
use crate::pipeline::{Component, Undelivered};
use crate::queue;
use crate::queue::{Encoded, Fault, Outcome, SendError, Settings};
use futures_util::future::BoxFuture;
use tributary_compression::compress::Compressor;
use tributary_config::ComponentId;
use tributary_otlp::edit::Unedited;
use tributary_otlp::{Requests, Signal};

/// The registry's entry.
pub const ENTRY: Entry<dyn ExporterConfig> = crate::entry!(
    dyn ExporterConfig,
    Config,
    "file",
    aliases: &[],
    "Writes telemetry to a file, as JSON lines or in protobuf.",
    ALL_SIGNALS
);

impl ExporterConfig for Config {
    fn build(&self, cx: &BuildContext, signals: &[Signal]) -> Result<Terminal, BuildError> {
        let path = Path::new(&self.path);
        let unusable = |what: &str, error: &io::Error| {
            BuildError(format!("cannot {what} {}: {error}", path.display()))
        };
        if self.create_directory {
            let mode = self.directory_mode().unwrap_or(0o755);
            DirBuilder::new()
                .recursive(true)
                .mode(mode)
                .create(backups::directory(path))
                .map_err(|error| unusable("make the directory of", &error))?;
        }
        let output = Output::of(path);
        output.probe().map_err(|error| {
            let hint = match error.kind() {
                io::ErrorKind::NotFound => " (`create_directory: true` makes its directory)",
                _ => "",
            };
            let BuildError(reason) = unusable("write to", &error);
            BuildError(format!("{reason}{hint}"))
        })?;
        let framing = match (self.format, self.compression) {
            (Format::Json, Compression::None) => Framing::Lines,
            _ => Framing::Lengths,
        };
        let level = self.compression_params.level;
        let exporter = Exporter {
            output: output.clone(),
            format: self.format,
            framing,
            compressor: self.codec().map(|codec| Compressor::new(codec, level)),
            rotations: counter!(
                "tributary_exporter_file_rotations",
                "exporter" => cx.id.to_string()
            ),
        };
        let queue = self.sending_queue.0.clone();
        let settings = Settings {
            // Who waits has the data, and can keep it or refuse it in turn.
            retry: self.retry_on_failure.0.clone().filter(|_| queue.is_some()),
            queue,
            timeout: Duration::ZERO,
        };
        let sender: Arc<dyn queue::Sender> = Arc::new(exporter);
        let Terminal { inputs, component } = queue::terminal(cx, signals, &settings, &sender)?;
        let component = Box::new(Writer {
            id: cx.id.clone(),
            queues: component,
            output,
            config: self.clone(),
            stop: CancellationToken::new(),
            flusher: None,
        });
        Ok(Terminal { inputs, component })
    }
}

struct Exporter {
    output: Arc<Output>,
    format: Format,
    framing: Framing,
    compressor: Option<Compressor>,
    rotations: Counter,
}

impl queue::Sender for Exporter {
    /// One piece: the request as it will stand in the file, with what sets it apart from the next.
    fn encode(
        &self,
        signal: Signal,
        requests: &Requests,
        memory: &OutputMemory,
    ) -> Result<Vec<Bytes>, SendError> {
        let take = |bytes| memory.take(bytes).map_err(|_| SendError::no_memory(memory));
        let json = |requests: &Requests| {
            take(if requests.parts().len() > 1 {
                requests.len()
            } else {
                0
            })?;
            let request = requests.to_bytes();
            tributary_otlp::json::from_wire_within(signal, &request, memory).map_err(|error| {
                match error {
                    Unedited::Malformed(error) => unfit(&error),
                    Unedited::Full(_) => SendError::no_memory(memory),
                }
            })
        };
        let mut record = Vec::new();
        match (self.format, self.framing) {
            (Format::Json, Framing::Lines) => {
                record = json(requests)?;
                record.push(b'\n');
            }
            (format, _) => {
                let text;
                let parts = match format {
                    Format::Proto => requests.parts(),
                    Format::Json => {
                        text = [Bytes::from(json(requests)?)];
                        &text
                    }
                };
                let compressed;
                let parts = match &self.compressor {
                    None => parts,
                    Some(compressor) => {
                        take(compressor.most_bytes(parts))?;
                        compressed = [compressor.compress(parts).map_err(|error| unfit(&error))?];
                        &compressed
                    }
                };
                let len: usize = parts.iter().map(Bytes::len).sum();
                let prefix = u32::try_from(len).map_err(|_| {
                    let reason = format!(
                        "the batch has {len} bytes, and the format has room for 4294967295"
                    );
                    SendError::permanent(Code::ResourceExhausted, Fault::Size, reason)
                })?;
                take(len + 4)?;
                record.reserve_exact(len + 4);
                record.extend_from_slice(&prefix.to_be_bytes());
                for part in parts {
                    record.extend_from_slice(part);
                }
            }
        }
        Ok(vec![record.into()])
    }

    fn encodes_every_byte(&self) -> bool {
        true
    }

    fn send<'a>(&'a self, batch: &'a Encoded) -> BoxFuture<'a, Result<Outcome, SendError>> {
        Box::pin(async move {
            let (output, framing) = (self.output.clone(), self.framing);
            let chunks = batch.chunks.clone();
            // A disk may be slow, and a file system may hang.
            let written = spawn_blocking(move || {
                let record = chunks.first().map(Bytes::as_ref).unwrap_or_default();
                output
                    .write(framing, record)
                    .map_err(|error| output.describe("cannot write to", &error))
            });
            let written = written.await.unwrap_or_else(|error| Err(error.to_string()));
            let written = written.map_err(|why| SendError::transient(Code::Unavailable, why))?;
            if written.rotated {
                self.rotations.increment(1);
            }
            Ok(Outcome::default())
        })
    }
}

fn unfit(error: &dyn Error) -> SendError {
    let reason = format!("cannot encode the batch: {error}");
    SendError::permanent(Code::Internal, Fault::Content, reason)
}

/// The life of the exporter: its queues, and the task that forces what was written to the disk.
struct Writer {
    id: ComponentId,
    queues: Box<dyn Component>,
    output: Arc<Output>,
    config: Config,
    stop: CancellationToken,
    flusher: Option<JoinHandle<()>>,
}

impl Component for Writer {
    fn start(&mut self) {
        let rotation = self.config.rotation.0.clone();
        let is_continued = self.config.append || rotation.is_some();
        // What this process wrote under an older configuration was acknowledged: it stays.
        let empty = self.output.is_first_use() && !is_continued;
        if let Err(error) = self.output.begin(empty, rotation) {
            let reason = self.output.describe("cannot empty", &error);
            error!(otelcol.component.id = %self.id, otelcol.component.kind = "exporter", "{reason}");
        }
        let (id, output) = (self.id.clone(), self.output.clone());
        let (every, stop) = (*self.config.flush_interval, self.stop.clone());
        self.flusher = Some(tokio::spawn(async move {
            let mut ticks = interval(every.max(SHORTEST));
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                let stopped = tokio::select! {
                    () = stop.cancelled() => true,
                    _ = ticks.tick() => false,
                };
                let file = output.clone();
                let synced = spawn_blocking(move || {
                    file.prune();
                    file.sync()
                });
                let synced = synced.await;
                if let Ok(Err(error)) = synced {
                    let reason = output.describe("cannot force to the disk what is in", &error);
                    error!(otelcol.component.id = %id, otelcol.component.kind = "exporter", "{reason}");
                }
                if stopped {
                    return;
                }
            }
        }));
        self.queues.start();
    }

    fn idle(&self) -> bool {
        self.queues.idle()
    }

    fn flush(&self) {
        self.queues.flush();
    }

    fn shutdown(self: Box<Self>, deadline: Instant) -> BoxFuture<'static, Undelivered> {
        Box::pin(async move {
            let undelivered = self.queues.shutdown(deadline).await;
            self.stop.cancel();
            if let Some(mut flusher) = self.flusher
                && timeout_at(deadline, &mut flusher).await.is_err()
            {
                flusher.abort();
            }
            undelivered
        })
    }
}

/// The shortest time between two flushes: with less, nothing else would be done.
const SHORTEST: Duration = Duration::from_millis(1);
