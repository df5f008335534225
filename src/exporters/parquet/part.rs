//! One file from its first row group to its final name.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;
use tokio::task::spawn_blocking;

use super::memory::{Charge, Memory, Turn};
use super::partition::Key;
use super::place::{Out, Place, PlaceError, Unfinished};
use super::table::{
    ENTRY_BYTES, FileSummary, FileWriter, GROUP_ENTRIES, Layout, Table, WriteError,
};

/// A file, from its first row on. Before the first row group is written, the file exists in memory
/// only.
pub(super) struct Part {
    pub(super) key: Key,
    /// Path relative to the root.
    pub(super) path: String,
    /// Complete row groups that are not written yet.
    complete: Mutex<Vec<(Table, Charge)>>,
    writing: Arc<AsyncMutex<Writing>>,
    /// Bytes of written row groups.
    bytes: Arc<AtomicU64>,
    rows: AtomicUsize,
}

enum Writing {
    NotBegun,
    Begun {
        unfinished: Unfinished,
        writer: Box<FileWriter<Out>>,
        /// Memory of the writer.
        memory: Charge,
    },
    /// Some rows are missing, so nothing further is written.
    Failed(PlaceError),
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Finished {
    pub(super) summary: FileSummary,
    /// Size of the file in bytes.
    pub(super) bytes: u64,
}

impl Part {
    /// Returns a new file for rows with this key.
    pub(super) fn new(key: Key) -> Arc<Self> {
        Arc::new(Part {
            path: key.file(),
            key,
            complete: Mutex::default(),
            writing: Arc::new(AsyncMutex::new(Writing::NotBegun)),
            bytes: Arc::default(),
            rows: AtomicUsize::new(0),
        })
    }

    /// Adds a table as a row group of the file; [`write`](Self::write) writes the row group.
    pub(super) fn add(&self, table: Table, mut charge: Charge) {
        if table.rows() == 0 {
            return;
        }
        self.rows.fetch_add(table.rows(), Relaxed);
        charge.ends();
        let mut complete = self.complete.lock();
        complete.push((table, charge));
    }

    /// Returns the bytes of written row groups.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    pub(super) fn rows(&self) -> usize {
        self.rows.load(Relaxed)
    }

    /// Returns the memory for encoding the largest row group, in bytes.
    fn memory_to_write(&self) -> usize {
        let complete = self.complete.lock();
        let groups = complete.iter().map(|(table, _)| table.memory_to_write());
        groups.max().unwrap_or_default()
    }

    /// Writes all added row groups. An error is final: the file is lost.
    pub(super) async fn write(
        self: &Arc<Self>,
        place: &Place,
        layout: &Arc<Layout>,
        memory: &Arc<Memory>,
    ) -> Result<(), PlaceError> {
        let mut writing = self.writing.clone().lock_owned().await;
        let mut turn = memory.turn(self.memory_to_write()).await;
        let (part, place, layout) = (self.clone(), place.clone(), layout.clone());
        let memory = memory.clone();
        // The lock moves into the task, together with the duty to record the outcome: the caller
        // may be cancelled while other batches have rows in the file. If the encoder panics, its
        // row groups are lost and the file must not be finished.
        let encode = spawn_blocking(move || {
            let interrupted = PlaceError("the write was interrupted".to_owned());
            let before = std::mem::replace(&mut *writing, Writing::Failed(interrupted));
            let (after, outcome) = match part.encode(before, &place, &layout, &memory, &mut turn) {
                Ok(after) => (after, Ok(())),
                Err(error) => (Writing::Failed(error.clone()), Err(error)),
            };
            *writing = after;
            (writing, outcome)
        });
        let (mut writing, outcome) = encode
            .await
            .map_err(|panicked| PlaceError(panicked.to_string()))?;
        outcome?;
        if let Writing::Begun { unfinished, .. } = &mut *writing
            && let Err(error) = unfinished.advance().await
        {
            *writing = Writing::Failed(error.clone());
            return Err(error);
        }
        Ok(())
    }

    /// Writes the remaining row groups and gives the file its name. Returns `None` if there are no
    /// rows.
    pub(super) async fn finish(
        self: &Arc<Self>,
        place: &Place,
        layout: &Arc<Layout>,
        memory: &Arc<Memory>,
    ) -> Result<Option<Finished>, PlaceError> {
        self.write(place, layout, memory).await?;
        let mut writing = self.writing.lock().await;
        match std::mem::replace(&mut *writing, Writing::NotBegun) {
            Writing::NotBegun => Ok(None),
            Writing::Failed(error) => Err(error),
            Writing::Begun {
                unfinished,
                writer,
                memory: _memory,
            } => {
                let ended = spawn_blocking(move || {
                    let (mut out, summary) = writer.finish()?;
                    out.flush().map_err(|error| PlaceError(error.to_string()))?;
                    Ok::<_, PlaceError>(summary)
                });
                let summary = ended
                    .await
                    .map_err(|error| PlaceError(error.to_string()))??;
                let bytes = unfinished.finish().await?;
                Ok(Some(Finished { summary, bytes }))
            }
        }
    }

    /// Writes the complete row groups. Returns the new state of the file.
    fn encode(
        &self,
        mut writing: Writing,
        place: &Place,
        layout: &Arc<Layout>,
        memory: &Arc<Memory>,
        turn: &mut Turn,
    ) -> Result<Writing, PlaceError> {
        let most_entries = memory.largest_group().div_ceil(ENTRY_BYTES);
        let most_entries = most_entries.min(GROUP_ENTRIES);
        loop {
            if let Writing::Failed(error) = writing {
                return Err(error);
            }
            let next = {
                let mut complete = self.complete.lock();
                complete.pop()
            };
            let Some((mut table, _charge)) = next else {
                return Ok(writing);
            };
            if matches!(writing, Writing::NotBegun) {
                let (unfinished, out) = place.begin(&self.path)?;
                writing = Writing::Begun {
                    unfinished,
                    writer: Box::new(FileWriter::new(self.key.kind, layout, out)?),
                    memory: memory.rows(),
                };
            }
            if let Writing::Begun { writer, memory, .. } = &mut writing {
                turn.takes(table.memory_to_write());
                table.write_groups(writer, most_entries)?;
                self.bytes.store(writer.bytes_written() as u64, Relaxed);
                memory.set(writer.memory());
            }
        }
    }
}

impl From<WriteError> for PlaceError {
    fn from(error: WriteError) -> Self {
        PlaceError(error.to_string())
    }
}
