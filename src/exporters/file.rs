//! `file`: writes requests to a file, as JSON lines or with length prefixes.
//!
//! A request is written with one call. If the call fails partway, the incomplete request is removed, and the sender
//! gets the error and still has its data. An incomplete request of a crash is removed when the file is opened next.

mod backups;
mod config;
mod ending;
mod group;
mod open_files;
mod output;
#[cfg(test)]
mod tests;

pub use self::config::{Config, FileCompression, FileFormat, FileRotation, GroupByConfig};

use std::error::Error;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use metrics::{Counter, counter};
use rustix::fs::Access;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::error;

use self::ending::Framing;
use self::group::{Groups, to_chunks};
use self::open_files::{OpenFiles, make_directory, write_groups};
use self::output::Output;
use crate::component::{
    ALL_SIGNALS, BuildContext, BuildError, Entry, ExporterConfig, Origin, Terminal,
};
use crate::metric::{self, Metric, shared};
use crate::pipeline::batch::Code;
use crate::pipeline::output_memory::OutputMemory;
use crate::pipeline::{Component, Undelivered};
use crate::queue;
use crate::queue::{Encoded, Fault, Outcome, SendError, Settings};
use futures_util::future::BoxFuture;
use tributary_compression::compress::Compressor;
use tributary_config::ComponentId;
use tributary_otlp::edit::EditError;
use tributary_otlp::{Requests, Signal};

/// Entry of the component registry.
pub const ENTRY: Entry<dyn ExporterConfig> = crate::entry!(
    dyn ExporterConfig,
    Config,
    "file",
    aliases: &[],
    "Writes telemetry to a file, as JSON lines or in protobuf.",
    ALL_SIGNALS,
    collector: Origin::Contrib,
    metrics: &[shared::EXPORTER, shared::STORED_QUEUE, METRICS]
);

const METRICS: &[Metric] = &[metric::counter(
    "tributary_exporter_file_rotations",
    "Number of rotations: a full file is renamed and a new file is created",
)];

impl ExporterConfig for Config {
    fn build(&self, cx: &BuildContext, signals: &[Signal]) -> Result<Terminal, BuildError> {
        let files = Arc::new(Files::of(&cx.id, self)?);
        let framing = match (self.format, self.compression) {
            (FileFormat::Json, FileCompression::None) => Framing::Lines,
            _ => Framing::Lengths,
        };
        let level = self.compression_params.level;
        let exporter = Exporter {
            files: files.clone(),
            groups: Groups::of(self),
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
            // A waiting sender still has the data, and can retry.
            retry: self.retry_on_failure.0.clone().filter(|_| queue.is_some()),
            queue,
            timeout: Duration::ZERO,
        };
        let sender: Arc<dyn queue::Sender> = Arc::new(exporter);
        let Terminal { inputs, component } = queue::terminal(cx, signals, &settings, &sender)?;
        let component = Box::new(Writer {
            id: cx.id.clone(),
            queues: component,
            files,
            config: self.clone(),
            stop: CancellationToken::new(),
            flusher: None,
        });
        Ok(Terminal { inputs, component })
    }
}

enum Files {
    One(Arc<Output>),
    Grouped(Box<OpenFiles>),
}

impl Files {
    /// Checks that files can be written as configured.
    fn of(id: &ComponentId, config: &Config) -> Result<Self, BuildError> {
        let groups = Groups::of(config);
        let path = match &groups {
            Some(groups) => groups.directory(),
            None => Path::new(&config.path),
        };
        let unusable = |what: &str, error: &io::Error, hint: &str| {
            BuildError(format!("cannot {what} {}: {error}{hint}", path.display()))
        };
        // The first request would create the directory of the groups, so create it now.
        if config.create_directory || groups.is_some() {
            let within = groups.as_ref().map(|_| path.join("file"));
            make_directory(within.as_deref().unwrap_or(path), config)
                .map_err(|error| unusable("create the directory of", &error, ""))?;
        }
        if groups.is_some() {
            rustix::fs::access(path, Access::WRITE_OK | Access::EXEC_OK)
                .map_err(|error| unusable("write to the directory", &error.into(), ""))?;
            return Ok(Files::Grouped(Box::new(OpenFiles::new(id, config))));
        }
        let output = Output::of(path);
        output.probe().map_err(|error| {
            let hint = match error.kind() {
                io::ErrorKind::NotFound => {
                    " (set `create_directory: true` to create its directory)"
                }
                _ => "",
            };
            unusable("write to", &error, hint)
        })?;
        Ok(Files::One(output))
    }

    fn open(&self) -> Vec<Arc<Output>> {
        match self {
            Files::One(output) => vec![output.clone()],
            Files::Grouped(files) => files.all(),
        }
    }
}

struct Exporter {
    files: Arc<Files>,
    groups: Option<Groups>,
    format: FileFormat,
    framing: Framing,
    compressor: Option<Compressor>,
    rotations: Counter,
}

impl Exporter {
    /// Returns a request in its form in the file, with its newline or length.
    fn record(
        &self,
        signal: Signal,
        requests: &Requests,
        memory: &OutputMemory,
    ) -> Result<Vec<u8>, SendError> {
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
                    EditError::Malformed(error) => unfit(&error),
                    EditError::RoomExhausted(_) => SendError::no_memory(memory),
                }
            })
        };
        if let (FileFormat::Json, Framing::Lines) = (self.format, self.framing) {
            let mut record = json(requests)?;
            record.push(b'\n');
            return Ok(record);
        }
        let text;
        let parts = match self.format {
            FileFormat::Proto => requests.parts(),
            FileFormat::Json => {
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
            let reason =
                format!("the batch has {len} bytes, more than the 4294967295 that the format allows; send smaller \
                         batches");
            SendError::permanent(Code::ResourceExhausted, Fault::Size, reason)
        })?;
        take(len + 4)?;
        let mut record = Vec::with_capacity(len + 4);
        record.extend_from_slice(&prefix.to_be_bytes());
        for part in parts {
            record.extend_from_slice(part);
        }
        Ok(record)
    }
}

impl queue::Sender for Exporter {
    /// Returns one chunk with the request in its form in the file; with `group_by`, two chunks for each file.
    fn encode(
        &self,
        signal: Signal,
        requests: &Requests,
        memory: &OutputMemory,
    ) -> Result<Vec<Bytes>, SendError> {
        let Some(groups) = &self.groups else {
            return Ok(vec![self.record(signal, requests, memory)?.into()]);
        };
        let mut chunks = Vec::new();
        for group in groups.split(signal, requests, memory)? {
            let record = match &group.path {
                Some(_) => self.record(signal, &group.requests, memory)?,
                None => Vec::new(),
            };
            chunks.extend(to_chunks(group.items, group.path.as_deref(), record));
        }
        Ok(chunks)
    }

    fn encodes_every_byte(&self) -> bool {
        true
    }

    fn send<'a>(&'a self, batch: &'a Encoded) -> BoxFuture<'a, Result<Outcome, SendError>> {
        Box::pin(async move {
            let (files, framing) = (self.files.clone(), self.framing);
            let (chunks, identity) = (batch.chunks.clone(), batch.identity.clone());
            let rotations = self.rotations.clone();
            // A disk may be slow, and a file system may hang.
            let written = spawn_blocking(move || match &*files {
                Files::One(output) => {
                    let record = chunks.first().map(Bytes::as_ref).unwrap_or_default();
                    let written = output.write(framing, record).map_err(|error| {
                        let reason = output.describe("cannot write to", &error);
                        SendError::transient(Code::Unavailable, reason)
                    })?;
                    rotations.increment(written.rotated.into());
                    Ok(Outcome::default())
                }
                Files::Grouped(files) => {
                    write_groups(files, framing, &chunks, &identity.progress, &rotations)
                }
            });
            let failed = |error| Err(SendError::transient(Code::Unavailable, format!("{error}")));
            written.await.unwrap_or_else(failed)
        })
    }
}

fn unfit(error: &dyn Error) -> SendError {
    let reason = format!("cannot encode the batch: {error}");
    SendError::permanent(Code::Internal, Fault::Content, reason)
}

/// Lifecycle of the exporter: its queues, and the task that syncs written data to disk.
struct Writer {
    id: ComponentId,
    queues: Box<dyn Component>,
    files: Arc<Files>,
    config: Config,
    stop: CancellationToken,
    flusher: Option<JoinHandle<()>>,
}

impl Component for Writer {
    fn start(&mut self) {
        for output in self.files.open() {
            let rotation = self.config.rotation.0.clone();
            if let Err(error) = output.begin(self.config.is_continued(), rotation) {
                let reason = output.describe("cannot truncate", &error);
                error!(otelcol.component.id = %self.id, otelcol.component.kind = "exporter", "{reason}");
            }
        }
        let (id, files) = (self.id.clone(), self.files.clone());
        let (every, stop) = (*self.config.flush_interval, self.stop.clone());
        self.flusher = Some(tokio::spawn(async move {
            let mut ticks = interval(every.max(MIN_FLUSH_INTERVAL));
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                let stopped = tokio::select! {
                    () = stop.cancelled() => true,
                    _ = ticks.tick() => false,
                };
                let (id, files) = (id.clone(), files.clone());
                let flushed = spawn_blocking(move || {
                    for output in files.open() {
                        output.prune();
                        if let Err(error) = output.sync() {
                            let reason = output.describe("cannot sync (fsync) the file", &error);
                            error!(otelcol.component.id = %id, otelcol.component.kind = "exporter", "{reason}");
                        }
                    }
                });
                // An error here is a panic, which ends the process.
                let _ = flushed.await;
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

/// Minimum time between two flushes, because each flush takes time itself.
const MIN_FLUSH_INTERVAL: Duration = Duration::from_millis(1);
