//! One file on its way from its first row group to its name.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Mutex as AsyncMutex;
use tokio::task::spawn_blocking;

use super::memory::Charge;
use super::partition::Key;
use super::place::{Out, Place, PlaceError, Unfinished};
use super::table::{FileSummary, FileWriter, Layout, Table, WriteError};

/// A file, from when its first row comes. It takes up nothing outside of memory before its first row group is written.
pub(super) struct Part {
    pub(super) key: Key,
    /// Relative to the root.
    pub(super) path: String,
    /// Row groups that are complete and not written yet.
    complete: Mutex<Vec<(Table, Charge)>>,
    writing: Arc<AsyncMutex<Writing>>,
    /// Bytes of row groups that are written.
    bytes: Arc<AtomicU64>,
    /// Rows of complete row groups.
    rows: AtomicUsize,
}

enum Writing {
    NotBegun,
    Begun {
        unfinished: Unfinished,
        writer: Box<FileWriter<Out>>,
    },
    /// Nothing is written any more: some of it is missing.
    Failed(PlaceError),
}

/// A file that has its name.
#[derive(Debug, Clone, Copy)]
pub(super) struct Finished {
    /// What is in it.
    pub(super) summary: FileSummary,
    /// Its size.
    pub(super) bytes: u64,
}

impl Part {
    /// A new file for these rows.
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

    /// The table is a row group of the file; [`write`](Self::write) writes it.
    pub(super) fn add(&self, table: Table, charge: Charge) {
        if table.rows() == 0 {
            return;
        }
        self.rows.fetch_add(table.rows(), Relaxed);
        let mut complete = self.complete.lock().unwrap_or_else(PoisonError::into_inner);
        complete.push((table, charge));
    }

    /// Bytes of the row groups that are written.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Rows of complete row groups.
    pub(super) fn rows(&self) -> usize {
        self.rows.load(Relaxed)
    }

    /// Writes all row groups that were added. After an error nothing helps any more: the file is lost.
    pub(super) async fn write(
        self: &Arc<Self>,
        place: &Place,
        layout: &Arc<Layout>,
    ) -> Result<(), PlaceError> {
        let mut writing = self.writing.clone().lock_owned().await;
        let (part, place, layout) = (self.clone(), place.clone(), layout.clone());
        // The lock goes along: should nobody wait any more, the next one to write still finds things in order.
        let encode = spawn_blocking(move || {
            let outcome = part.encode(&mut writing, &place, &layout);
            (writing, outcome)
        });
        let (mut writing, outcome) = match encode.await {
            Ok(encoded) => encoded,
            Err(error) => {
                // It panicked: the row group is gone, so the file must not be finished.
                let error = PlaceError(error.to_string());
                *self.writing.lock().await = Writing::Failed(error.clone());
                return Err(error);
            }
        };
        let outcome = match (outcome, &mut *writing) {
            (Ok(()), Writing::Begun { unfinished, .. }) => unfinished.advance().await,
            (outcome, _) => outcome,
        };
        if let Err(error) = &outcome {
            *writing = Writing::Failed(error.clone());
        }
        outcome
    }

    /// Writes what is left and gives the file its name. `None` when there is not one row.
    pub(super) async fn finish(
        self: &Arc<Self>,
        place: &Place,
        layout: &Arc<Layout>,
    ) -> Result<Option<Finished>, PlaceError> {
        self.write(place, layout).await?;
        let mut writing = self.writing.lock().await;
        match std::mem::replace(&mut *writing, Writing::NotBegun) {
            Writing::NotBegun => Ok(None),
            Writing::Failed(error) => Err(error),
            Writing::Begun { unfinished, writer } => {
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

    fn encode(
        &self,
        writing: &mut Writing,
        place: &Place,
        layout: &Arc<Layout>,
    ) -> Result<(), PlaceError> {
        loop {
            let next = {
                let mut complete = self.complete.lock().unwrap_or_else(PoisonError::into_inner);
                complete.pop()
            };
            let Some((mut table, _charge)) = next else {
                return Ok(());
            };
            if matches!(writing, Writing::NotBegun) {
                let (unfinished, out) = place.begin(&self.path)?;
                let writer = FileWriter::new(self.key.kind, layout, out)?;
                *writing = Writing::Begun {
                    unfinished,
                    writer: Box::new(writer),
                };
            }
            match writing {
                Writing::Begun { writer, .. } => {
                    table.write(writer)?;
                    self.bytes.store(writer.bytes_written() as u64, Relaxed);
                }
                Writing::Failed(error) => return Err(error.clone()),
                Writing::NotBegun => {}
            }
        }
    }
}

impl From<WriteError> for PlaceError {
    fn from(error: WriteError) -> Self {
        PlaceError(error.to_string())
    }
}
