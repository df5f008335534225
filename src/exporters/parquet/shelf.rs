//! The open files of one signal.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use tokio::time::{Duration, Instant};

use super::memory::Charge;
use super::part::Part;
use super::partition::Key;
use super::partitions::Partitions;
use super::table::Table;
use super::ticket::{Share, Ticket};
use crate::queue::SendError;

/// The open files of a signal, by partition key.
pub(super) struct Shelf {
    pub(super) count: OpenFiles,
    pub(super) open: HashMap<Key, Open>,
    pub(super) partitions: Partitions,
    /// Files with a partial batch; they must not be finished.
    pub(super) spoiled: Vec<Open>,
}

/// A file that accepts rows.
pub(super) struct Open {
    pub(super) part: Arc<Part>,
    /// The next row group.
    pub(super) table: Table,
    pub(super) rows: Charge,
    /// The batches with rows in the file, each with its step, and their share of the requests'
    /// memory.
    pub(super) tickets: Vec<(Arc<Ticket>, usize)>,
    pub(super) requests: Charge,
    /// Other memory of the file and its batches.
    pub(super) besides: Charge,
    /// The file's share of the room that its batches take in the sending queue.
    pub(super) room: usize,
    pub(super) since: Instant,
    /// Time at which rows were last added.
    pub(super) touched: Instant,
    pub(super) _counted: Counted,
}

#[derive(Clone, Default)]
pub(super) struct OpenFiles(Arc<AtomicUsize>);

pub(super) struct Counted(OpenFiles);

/// Memory of a file without rows in bytes: its name, table entries, and tasks.
pub(super) const FILE_BYTES: usize = 1 << 10;
/// Memory of a waiting batch in addition to its requests, in bytes: its ticket, its queue entry, and the
/// task that retries it.
pub(super) const BATCH_BYTES: usize = 4 << 10;

/// Memory of each file of a batch, in bytes: its entries in the sets of written and finished rows.
pub(super) const SHARE_BYTES: usize = 256;

/// Conditions that complete row groups and files.
#[derive(Debug, Clone)]
pub(super) struct Limits {
    pub(super) group_rows: usize,
    pub(super) group_bytes: usize,
    pub(super) file_rows: usize,
    pub(super) file_bytes: u64,
    pub(super) interval: Duration,
    /// Maximum number of files that one batch may open at once.
    pub(super) most_open: usize,
    /// Maximum number of partitions of a signal with files of their own.
    pub(super) most_partitions: usize,
}

/// State of an exporter that ends: files are finished once no more rows come for them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ending {
    /// Time at which the end began.
    pub(super) since: Instant,
    /// Whether rows of a batch are being made.
    pub(super) is_busy: bool,
}

/// Idle time after which an ending exporter finishes a file, so that not every batch gets a file of
/// its own.
const GATHERING_TIME: Duration = Duration::from_millis(50);
/// Time after which an ending exporter finishes a file in any case, because the shutdown has a
/// deadline.
const LONGEST_GATHER: Duration = Duration::from_secs(1);

/// A file that accepts no more rows, with the batches that wait for it.
pub(super) struct Closed {
    pub(super) part: Arc<Part>,
    /// The batches with rows in the file, each with its step.
    tickets: Vec<(Arc<Ticket>, usize)>,
    /// Room in the sending queue that is released when the file is finished.
    pub(super) room: usize,
    /// Memory of the requests, and other memory of the file and its batches.
    _charges: [Charge; 2],
}

impl Shelf {
    /// Returns an empty shelf.
    pub(super) fn new(count: &OpenFiles) -> Self {
        Shelf {
            count: count.clone(),
            open: HashMap::new(),
            partitions: Partitions::default(),
            spoiled: Vec::new(),
        }
    }

    /// Removes and returns the files with a partial batch.
    pub(super) fn take_spoiled(&mut self) -> Vec<Open> {
        std::mem::take(&mut self.spoiled)
    }

    /// Returns the memory of the largest file and its key.
    pub(super) fn largest(&self) -> Option<(usize, &Key)> {
        let sizes = self.open.iter().map(|(key, open)| (open.memory(), key));
        sizes.max_by_key(|(size, _)| *size)
    }

    /// Returns the file without new rows for the longest time, and the time of its last rows.
    pub(super) fn idlest(&self) -> Option<(Instant, &Key)> {
        let ages = self.open.iter().map(|(key, open)| (open.touched, key));
        ages.min_by_key(|(touched, _)| *touched)
    }

    /// Returns the room in the queue that the batches of all files take.
    pub(super) fn room(&self) -> usize {
        let rooms = self.open.values().map(|open| open.room);
        rooms.fold(0, usize::saturating_add)
    }

    /// Returns the file whose batches take the most room in the queue.
    pub(super) fn roomiest(&self) -> Option<&Key> {
        let rooms = self.open.iter().map(|(key, open)| (open.room, key));
        rooms.max_by_key(|(room, _)| *room).map(|(_, key)| key)
    }

    /// Removes and returns all files.
    pub(super) fn take_all(&mut self) -> Vec<Open> {
        self.open.drain().map(|(_, open)| open).collect()
    }

    /// Removes and returns a file, which then gets no more rows.
    pub(super) fn take(&mut self, key: &Key) -> Option<Open> {
        self.open.remove(key)
    }

    /// Removes and returns exactly this file if it is still open.
    pub(super) fn take_part(&mut self, part: &Arc<Part>) -> Option<Open> {
        let is_open = |open: &Open| Arc::ptr_eq(&open.part, part);
        self.open
            .get(&part.key)
            .is_some_and(is_open)
            .then_some(())?;
        self.open.remove(&part.key)
    }

    /// Removes and returns the files that are due by then.
    pub(super) fn take_due(
        &mut self,
        now: Instant,
        limits: &Limits,
        ending: Option<Ending>,
    ) -> Vec<Open> {
        let is_due = |open: &Open| open.due(limits, ending) <= now;
        let due = self.open.extract_if(|_, open| is_due(open));
        due.map(|(_, open)| open).collect()
    }

    /// Returns when the next file is due if no file gets further rows.
    pub(super) fn next_due(&self, limits: &Limits, ending: Option<Ending>) -> Option<Instant> {
        let due = self.open.values().map(|open| open.due(limits, ending));
        due.min()
    }
}

impl OpenFiles {
    /// Returns the number of open files.
    pub(super) fn get(&self) -> usize {
        self.0.load(Relaxed)
    }

    pub(super) fn count(&self) -> Counted {
        self.0.fetch_add(1, Relaxed);
        Counted(self.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Relaxed);
    }
}

impl Closed {
    /// Reports that the file is finished, or lost for the given reason.
    pub(super) fn tell(&self, outcome: Result<(), &SendError>) {
        for (ticket, step) in &self.tickets {
            match outcome {
                Ok(()) => ticket.finished(Share {
                    key: self.part.key.clone(),
                    step: *step,
                }),
                Err(error) => ticket.failed(error),
            }
        }
    }
}

impl Open {
    /// Closes the file; the rows in memory are its last row group.
    pub(super) fn close(mut self) -> Closed {
        self.part.add(self.table, self.rows);
        self.requests.ends();
        self.besides.ends();
        Closed {
            part: self.part,
            tickets: self.tickets,
            room: self.room,
            _charges: [self.requests, self.besides],
        }
    }

    fn due(&self, limits: &Limits, ending: Option<Ending>) -> Instant {
        let due = self.since + limits.interval;
        let Some(Ending { since, is_busy }) = ending else {
            return due;
        };
        let due = due.min(self.since.max(since) + LONGEST_GATHER);
        match is_busy {
            true => due,
            false => due.min(self.touched + GATHERING_TIME),
        }
    }

    fn memory(&self) -> usize {
        self.rows.bytes() + self.requests.bytes() + self.besides.bytes()
    }
}
