//! Makes the rows of a batch in steps, each with at most as many partitions as files may be open and
//! with rows of bounded memory.
//!
//! A batch is read once from its first to its last item, in any number of steps; the reader waits
//! between two steps. Reading the batch again for each step was rejected: a small request may have
//! items of 100000 hours.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::OwnedMutexGuard;

use super::adding::{Adding, Step, Todo};
use super::closing::Reserved;
use super::files::{Files, unreadable};
use super::shelf::Shelf;
use super::table::{self, Partition, RowError, Sink, Table, TableKind};
use super::ticket::Ticket;
use crate::queue::{Encoded, SendError};
use tributary_otlp::Requests;

/// Progress of a batch after a step.
pub(super) enum Ended {
    /// All rows are in files.
    Complete(Todo),
    /// The batch has rows for further steps. The flag: it needs more files than may be open.
    More(Todo, bool),
    /// No more rows come from the batch: it cannot be read, or there was no memory.
    Failed(SendError),
}

/// A batch whose rows are being made.
pub(super) struct Steps {
    files: Arc<Files>,
    batch: Encoded,
    ticket: Arc<Ticket>,
    /// Shelf and memory for the next step.
    room: Option<(OwnedMutexGuard<Shelf>, Reserved)>,
    /// Whether the rows of the first step are in files already.
    has_first: bool,
}

/// Maximum memory of the rows of a step in their tables, in bytes; a step of a single row may have
/// more. Large enough for most batches, and small enough for the least memory budgets.
const STEP_BYTES: usize = 4 << 20;

/// Returns the memory of the rows of a batch's first step, in bytes. It depends on the batch alone.
pub(super) fn first_step(batch: &Encoded) -> usize {
    table::rows_memory(batch.signal, batch.items.max(1), batch.bytes()).min(STEP_BYTES)
}

impl Steps {
    /// Starts at the first row of the batch, with the shelf of its signal and memory for its rows.
    pub(super) fn new(
        files: Arc<Files>,
        batch: &Encoded,
        ticket: &Arc<Ticket>,
        shelf: OwnedMutexGuard<Shelf>,
        reserved: Reserved,
        has_first: bool,
    ) -> Self {
        Steps {
            files,
            batch: batch.clone(),
            ticket: ticket.clone(),
            room: Some((shelf, reserved)),
            has_first,
        }
    }

    /// Makes the first step.
    pub(super) fn first(&mut self) -> Ended {
        self.run(None)
    }

    /// Makes all steps. Waits for files that are finished between steps, so this must not be called
    /// on a thread that polls other tasks.
    pub(super) fn all(&mut self) -> Ended {
        self.run(Some(Handle::current()))
    }

    fn run(&mut self, runtime: Option<Handle>) -> Ended {
        let Steps {
            files,
            batch,
            ticket,
            room,
            has_first,
        } = self;
        let mut stepping = Stepping {
            files,
            batch,
            ticket,
            runtime,
            step: 0,
            current: None,
            has_more: None,
            failed: None,
        };
        if let Some((shelf, reserved)) = room.take() {
            let first = Step {
                number: 0,
                admitted: first_step(batch),
                is_written: *has_first,
            };
            stepping.begin(shelf, reserved, first);
        }
        let setup = &files.setup;
        let requests = batch.chunks.iter().cloned().collect::<Requests>();
        let (layout, by_service) = (&setup.layout, setup.by_service);
        let requests = requests.to_bytes();
        let memory = setup.memory.output();
        let (signal, sink) = (batch.signal, &mut stepping);
        match table::append(signal, &requests, layout, by_service, &memory, sink) {
            Ok(()) => {}
            Err(RowError::RoomExhausted(_)) => return Ended::Failed(SendError::no_memory(&memory)),
            Err(error) => {
                return Ended::Failed(unreadable(&format!(
                    "cannot make rows of the batch: {error}"
                )));
            }
        }
        if let Some(error) = stepping.failed.take() {
            return Ended::Failed(error);
        }
        match (stepping.end(), stepping.has_more) {
            (Some(todo), None) => Ended::Complete(todo),
            (Some(todo), Some(needs_files)) => Ended::More(todo, needs_files),
            (None, _) => Ended::Failed(unreadable("the batch was discarded")),
        }
    }
}

/// Accepts the rows of the batch, and continues with the next step when a step is full.
struct Stepping<'s> {
    files: &'s Arc<Files>,
    batch: &'s Encoded,
    ticket: &'s Arc<Ticket>,
    /// Runtime to wait on between two steps; without it there is only one step.
    runtime: Option<Handle>,
    step: usize,
    current: Option<(Adding<'s, OwnedMutexGuard<Shelf>>, Reserved)>,
    /// Set if there is a further step: whether it needs more files than may be open.
    has_more: Option<bool>,
    failed: Option<SendError>,
}

impl Stepping<'_> {
    fn begin(&mut self, shelf: OwnedMutexGuard<Shelf>, reserved: Reserved, step: Step) {
        let setup = &self.files.setup;
        let (layout, memory, limits) = (&setup.layout, &setup.memory, &setup.limits);
        let adding = Adding::new(shelf, layout, memory, self.ticket, limits, step);
        self.current = Some((adding, reserved));
    }

    /// Releases the shelf.
    fn end(&mut self) -> Option<Todo> {
        let (adding, reserved) = self.current.take()?;
        // From now on, the tables account for the memory of the rows.
        drop(reserved);
        let todo = adding.done(self.batch.retained_bytes, self.files.room_of(self.batch));
        // Done here, because the caller may be cancelled with its client, while other batches have
        // rows in the file.
        if todo.begun {
            self.files.begun();
        }
        Some(todo)
    }

    /// Waits until there is room for another step, whose first row takes `bytes`.
    fn next_step(&mut self, bytes: usize) -> bool {
        let adding = self.current.as_ref().map(|(adding, _)| adding);
        let needs_files = adding.is_some_and(Adding::has_all_partitions);
        let Some(runtime) = self.runtime.clone() else {
            self.has_more = Some(needs_files);
            return false;
        };
        let Some(todo) = self.end() else {
            return false;
        };
        let (files, batch) = (self.files, self.batch);
        let admitted = STEP_BYTES.max(bytes);
        let room = runtime.block_on(async {
            files.write(batch.signal, todo, needs_files).await;
            let reserved = files.make_room(batch, admitted).await?;
            Ok((files.shelf(batch.signal).await, reserved))
        });
        match room {
            Ok((shelf, reserved)) => {
                self.step += 1;
                let step = Step {
                    number: self.step,
                    admitted,
                    is_written: false,
                };
                self.begin(shelf, reserved, step);
                true
            }
            Err(error) => {
                self.failed = Some(error);
                false
            }
        }
    }
}

impl Sink for Stepping<'_> {
    fn admits(&mut self, partition: &Partition, bytes: usize) -> Option<usize> {
        let (adding, _) = self.current.as_mut()?;
        if let Some(admitted) = adding.admits(partition, bytes) {
            return Some(admitted);
        }
        if !self.next_step(bytes) {
            return None;
        }
        let (adding, _) = self.current.as_mut()?;
        adding.admits(partition, bytes)
    }

    fn took(&mut self, bytes: usize) {
        if let Some((adding, _)) = &mut self.current {
            adding.took(bytes);
        }
    }

    fn step(&self) -> usize {
        self.step
    }

    fn tables(&self) -> usize {
        self.files.setup.limits.most_open
    }

    fn table(&mut self, kind: TableKind, partition: &Partition) -> Option<&mut Table> {
        let (adding, _) = self.current.as_mut()?;
        adding.table(kind, partition)
    }
}
