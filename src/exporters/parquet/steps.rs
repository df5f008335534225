//! Makes the rows of a batch in steps, each with at most as many partitions as files may be open.
//!
//! A batch is read once from its first to its last item, in any number of steps; the reader waits
//! between two steps. Reading the batch again for each step was rejected: a small request may have
//! items of 100000 hours.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::OwnedMutexGuard;

use super::files::{Files, unreadable};
use super::memory::Charge;
use super::shelf::{Adding, Shelf, Todo};
use super::table::{self, Kind, Partition, Sink, Table};
use super::ticket::Ticket;
use crate::queue::{Encoded, SendError};
use tributary_otlp::Requests;

/// Progress of a batch after a step.
pub(super) enum Ended {
    /// All rows are in files.
    Complete(Todo),
    /// The batch has rows for further steps.
    More(Todo),
    /// No more rows come from the batch: it cannot be read, or there was no memory.
    Failed(SendError),
}

/// A batch whose rows are being made.
pub(super) struct Steps {
    files: Arc<Files>,
    batch: Encoded,
    ticket: Arc<Ticket>,
    /// Shelf and memory for the next step.
    room: Option<(OwnedMutexGuard<Shelf>, Charge)>,
}

impl Steps {
    /// Starts at the first row of the batch, with the shelf of its signal and memory for its rows.
    pub(super) fn new(
        files: Arc<Files>,
        batch: &Encoded,
        ticket: &Arc<Ticket>,
        shelf: OwnedMutexGuard<Shelf>,
        reserved: Charge,
    ) -> Self {
        Steps {
            files,
            batch: batch.clone(),
            ticket: ticket.clone(),
            room: Some((shelf, reserved)),
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
        } = self;
        let mut stepping = Stepping {
            files,
            batch,
            ticket,
            runtime,
            step: 0,
            current: None,
            has_more: false,
            failed: None,
        };
        if let Some((shelf, reserved)) = room.take() {
            stepping.begin(shelf, reserved);
        }
        let setup = &files.setup;
        let requests = batch.chunks.iter().cloned().collect::<Requests>();
        let (layout, by_service) = (&setup.layout, setup.by_service);
        let requests = requests.to_bytes();
        if let Err(error) =
            table::append(batch.signal, &requests, layout, by_service, &mut stepping)
        {
            return Ended::Failed(unreadable(&format!(
                "cannot make rows of the batch: {error}"
            )));
        }
        if let Some(error) = stepping.failed.take() {
            return Ended::Failed(error);
        }
        match (stepping.end(), stepping.has_more) {
            (Some(todo), false) => Ended::Complete(todo),
            (Some(todo), true) => Ended::More(todo),
            (None, _) => Ended::Failed(unreadable("the batch was given up")),
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
    current: Option<(Adding<'s, OwnedMutexGuard<Shelf>>, Charge)>,
    has_more: bool,
    failed: Option<SendError>,
}

impl Stepping<'_> {
    fn begin(&mut self, shelf: OwnedMutexGuard<Shelf>, reserved: Charge) {
        let setup = &self.files.setup;
        let (layout, memory, limits) = (&setup.layout, &setup.memory, &setup.limits);
        let adding = Adding::new(shelf, layout, memory, self.ticket, limits, self.step);
        self.current = Some((adding, reserved));
    }

    /// Releases the shelf.
    fn end(&mut self) -> Option<Todo> {
        let (adding, reserved) = self.current.take()?;
        let todo = adding.done(self.batch.held, self.files.room_of(self.batch));
        drop(reserved);
        // Done here, because the caller may be cancelled with its client, while other batches have
        // rows in the file.
        if todo.begun {
            self.files.begun();
        }
        Some(todo)
    }

    /// Waits until there is room for another step.
    fn next_step(&mut self) -> bool {
        let Some(runtime) = self.runtime.clone() else {
            self.has_more = true;
            return false;
        };
        let Some(todo) = self.end() else {
            return false;
        };
        let (files, batch) = (self.files, self.batch);
        let room = runtime.block_on(async {
            files.write(batch.signal, todo, true).await;
            let reserved = files.make_room(batch).await?;
            Ok((files.shelf(batch.signal).await, reserved))
        });
        match room {
            Ok((shelf, reserved)) => {
                self.step += 1;
                self.begin(shelf, reserved);
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
    fn admits(&mut self, partition: &Partition) -> bool {
        let admits = |stepping: &mut Self| {
            let current = stepping.current.as_mut();
            current.is_some_and(|(adding, _)| adding.admits(partition))
        };
        admits(self) || self.next_step() && admits(self)
    }

    fn tables(&self) -> usize {
        self.files.setup.limits.most_open
    }

    fn table(&mut self, kind: Kind, partition: &Partition) -> Option<&mut Table> {
        let (adding, _) = self.current.as_mut()?;
        adding.table(kind, partition)
    }
}
