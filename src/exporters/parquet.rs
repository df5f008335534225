//! `parquet`: writes telemetry as columns, for analysts' tools.
//!
//! ```text
//! queue -> rows, step by step (steps) -> open files, by signal, hour and service (shelf) -> finished files (place)
//!   ^                                                                                        |
//!   +------------------------------ outcome of each batch (ticket) --------------------------+
//! ```
//!
//! The queue keeps a batch until every file with rows of the batch is finished. A file that cannot be finished is lost
//! as a whole, and its batches are written to another file, without the rows that are in finished files.

mod adding;
mod closing;
mod config;
mod early;
mod files;
mod finishing;
mod manifest;
mod memory;
mod part;
mod partition;
mod partitions;
mod place;
mod queue;
mod relief;
mod shelf;
mod steps;
pub mod table;
mod taking;
#[cfg(test)]
mod tests;
mod ticket;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;

pub use self::config::{
    Config, ObjectStoreConfig, ParquetCompression, ParquetRotation, PartitionBy,
    ProfilesLayoutConfig, PromoteConfig, RowGroupConfig,
};
use self::files::{Files, Setup};
use self::manifest::Manifest;
use self::memory::Memory;
use self::place::Place;
use self::place::directory::Directory;
use self::relief::QueueRoom;
use self::shelf::Limits;
use self::table::Layout;
use crate::component::{
    ALL_SIGNALS, BuildContext, BuildError, Entry, ExporterConfig, Origin, Outputs, Terminal,
};
use crate::metric::{self, Metric, shared};
use crate::pipeline::batch::Code;
use crate::pipeline::{Component, FlushReason, Undelivered};
use crate::queue::{Encoded, Outcome, SendError, SendOutcome, Sender, Settings};
use futures_util::future::{BoxFuture, join_all};
use tributary_otlp::Signal;

/// Entry of the component registry.
pub const ENTRY: Entry<dyn ExporterConfig> = crate::entry!(
    dyn ExporterConfig,
    Config,
    "parquet",
    aliases: &[],
    "Writes telemetry to Parquet files, on disk or in an object store.",
    ALL_SIGNALS,
    collector: Origin::Own,
    metrics: &[shared::EXPORTER, shared::STORED_QUEUE, shared::DISK, METRICS]
);

const METRICS: &[Metric] = &[
    metric::counter(
        "tributary_exporter_parquet_files",
        "Number of finished Parquet files, by table",
    ),
    metric::counter(
        "tributary_exporter_parquet_rows",
        "Number of rows in finished Parquet files, by table",
    ),
    metric::counter(
        "tributary_exporter_parquet_bytes",
        "Size of finished Parquet files, in bytes, by table",
    ),
    metric::counter(
        "tributary_exporter_parquet_failed_files",
        "Number of Parquet files that could not be written; their batches were written again or refused",
    ),
    metric::counter(
        "tributary_exporter_parquet_early_files",
        "Number of Parquet files finished before their size or age limit, by the resource that was short",
    ),
    metric::counter(
        "tributary_exporter_parquet_overflow_rows",
        "Number of rows in shared files, because there were more partitions than `max_partitions`",
    ),
    metric::gauge(
        "tributary_exporter_parquet_open_files",
        "Number of open Parquet files",
    ),
];

impl ExporterConfig for Config {
    fn build(&self, cx: &BuildContext, signals: &[Signal]) -> Result<Terminal, BuildError> {
        let memory = Memory::new(self.max_memory.as_usize(), &cx.budget);
        let (place, manifest) = self.place(&memory)?;
        let rows = |rows: usize| if rows == 0 { usize::MAX } else { rows };
        let files = Files::new(Setup {
            id: cx.id.clone(),
            place,
            layout: Arc::new(Layout::new(&self.layout_options())),
            limits: Limits {
                group_rows: self.row_group.max_rows,
                group_bytes: self.row_group.max_bytes.as_usize(),
                file_rows: rows(self.rotation.max_rows),
                file_bytes: self.rotation.max_bytes.0,
                interval: *self.rotation.interval,
                most_open: self.max_open_files,
                most_partitions: self.max_partitions,
            },
            queue: self
                .sending_queue
                .as_ref()
                .map(|queue| QueueRoom::of(&queue.0)),
            by_service: self.partition_by == PartitionBy::Service,
            memory,
            manifest,
        });
        let queue = self.sending_queue.0.clone().map(|queue| queue.0);
        let settings = Settings {
            // A client without a queue in between still has the data and can retry.
            retry: self.retry_on_failure.0.clone().filter(|_| queue.is_some()),
            queue,
            timeout: Duration::ZERO,
        };
        let mut inputs = Outputs::default();
        let mut queues = Vec::with_capacity(signals.len());
        for signal in signals {
            // One sender for each signal, so that a full queue finishes only its own files early.
            let sender: Arc<dyn Sender> = Arc::new(Exporter {
                files: files.clone(),
                signal: *signal,
            });
            let terminal = crate::queue::terminal(cx, &[*signal], &settings, &sender)?;
            if let Some(input) = terminal.inputs.get(*signal) {
                inputs.set(*signal, input.clone());
            }
            queues.push(terminal.component);
        }
        let component = Box::new(Writer {
            queues,
            files,
            running: None,
        });
        Ok(Terminal { inputs, component })
    }
}

impl Config {
    #[cfg_attr(
        not(feature = "object-store"),
        allow(unused_variables, reason = "directories have no memory of their own")
    )]
    fn place(&self, memory: &Arc<Memory>) -> Result<(Place, Option<Manifest>), BuildError> {
        #[cfg(feature = "object-store")]
        if let Some(config) = &*self.object_store {
            let store = place::store::Store::new(config, memory);
            let store = store.map_err(|error| BuildError(error.to_string()))?;
            return Ok((Place::Store(Arc::new(store)), None));
        }
        let mode = self.file_mode().unwrap_or(0o600);
        let directory = Directory::open(Path::new(&self.path), mode);
        let directory = directory.map_err(|error| BuildError(error.to_string()))?;
        let manifest = self.manifest.then(|| Manifest::of(&directory));
        Ok((Place::Directory(Arc::new(directory)), manifest))
    }
}

/// The sender of one signal's queue.
struct Exporter {
    files: Arc<Files>,
    signal: Signal,
}

impl Sender for Exporter {
    fn send<'a>(&'a self, batch: &'a Encoded) -> BoxFuture<'a, Result<Outcome, SendError>> {
        Box::pin(async move {
            let given_up = |_| {
                Err(SendError::transient(
                    Code::Unavailable,
                    "the file was discarded",
                ))
            };
            self.files.take(batch).await?.await.unwrap_or_else(given_up)
        })
    }

    fn buffers(&self) -> bool {
        true
    }

    fn send_or_buffer<'a>(
        &'a self,
        batch: &'a Encoded,
    ) -> BoxFuture<'a, Result<SendOutcome, SendError>> {
        Box::pin(async move { self.files.take(batch).await.map(SendOutcome::Buffered) })
    }

    fn request_flush(&self, reason: FlushReason) {
        match reason {
            FlushReason::Full => self.files.relieve(self.signal),
            FlushReason::Ending => self.files.end(),
        }
    }
}

/// The running exporter: its queues, and the task that finishes files in time.
struct Writer {
    queues: Vec<Box<dyn Component>>,
    files: Arc<Files>,
    running: Option<JoinHandle<()>>,
}

impl Component for Writer {
    fn start(&mut self) {
        self.running = Some(tokio::spawn(self.files.clone().run()));
        self.queues.iter_mut().for_each(|queue| queue.start());
    }

    fn idle(&self) -> bool {
        self.queues.iter().all(|queue| queue.idle()) && self.files.idle()
    }

    fn flush(&self) {
        self.files.end();
        self.queues.iter().for_each(|queue| queue.flush());
    }

    fn shutdown(self: Box<Self>, deadline: Instant) -> BoxFuture<'static, Undelivered> {
        Box::pin(async move {
            let ending = self.queues.into_iter();
            let ended = join_all(ending.map(|queue| queue.shutdown(deadline))).await;
            let mut undelivered = Undelivered::default();
            ended.into_iter().for_each(|left| undelivered += left);
            // Without a queue, the exporter itself has to end the files.
            self.files.end();
            self.files.ended(deadline).await;
            if let Some(running) = self.running {
                running.abort();
                // The task has a reference to the directory, which must be released.
                let _ = running.await;
            }
            undelivered
        })
    }
}
