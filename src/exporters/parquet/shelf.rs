//! The open files of one signal.

use std::collections::{HashMap, HashSet};
use std::ops::DerefMut;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tokio::time::{Duration, Instant};

use super::memory::{Charge, Memory};
use super::part::Part;
use super::partition::Key;
use super::partitions::Partitions;
use super::table::{GROUP_ENTRIES, Layout, Partition, Sink, Table, TableKind};
use super::ticket::{Share, Ticket};
use crate::queue::SendError;

/// The open files of a signal, by partition key.
pub(super) struct Shelf {
    count: OpenFiles,
    open: HashMap<Key, Open>,
    partitions: Partitions,
    /// Files with a partial batch; they must not be finished.
    spoiled: Vec<Open>,
}

/// A file that accepts rows.
pub(super) struct Open {
    pub(super) part: Arc<Part>,
    /// The next row group.
    table: Table,
    rows: Charge,
    /// The batches with rows in the file, each with its step, and their share of the requests'
    /// memory.
    tickets: Vec<(Arc<Ticket>, usize)>,
    requests: Charge,
    /// Other memory of the file and its batches.
    besides: Charge,
    /// The file's share of the room that its batches take in the sending queue.
    room: usize,
    since: Instant,
    /// Time at which rows were last added.
    touched: Instant,
    _counted: Counted,
}

/// Number of open files on all shelves.
#[derive(Clone, Default)]
pub(super) struct OpenFiles(Arc<AtomicUsize>);

/// One counted open file.
struct Counted(OpenFiles);

/// Memory of a file without rows in bytes: its name, table entries, and tasks.
const FILE_BYTES: usize = 1 << 10;
/// Memory of a waiting batch besides its requests, in bytes: its ticket, its queue entry, and the
/// task that retries it.
pub(super) const BATCH_BYTES: usize = 4 << 10;

/// Memory of each file of a batch, in bytes: its entries in the sets of written and finished rows.
const SHARE_BYTES: usize = 256;

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

/// Position of a step in its batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    pub(super) number: usize,
    /// Memory that the rows of the step may take in their tables, in bytes.
    pub(super) admitted: usize,
    /// Whether the rows of the step are in files already.
    pub(super) is_written: bool,
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
const GATHER: Duration = Duration::from_millis(50);
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

/// Work to do after rows were added.
pub(super) struct Todo {
    /// Whether a file was begun.
    pub(super) begun: bool,
    /// Files with complete row groups.
    pub(super) write: Vec<Arc<Part>>,
    /// Files that the batch opened. They are finished first if the batch has rows for further
    /// files.
    pub(super) opened: Vec<Arc<Part>>,
    /// Number of rows in shared partitions.
    pub(super) overflow_rows: usize,
}

/// Accepts the rows of one step of a batch. A step has at most as many partitions as there may be
/// open files. If the batch turns out to be invalid, the files with some of its rows are discarded.
pub(super) struct Adding<'a, S: DerefMut<Target = Shelf>> {
    shelf: S,
    layout: &'a Arc<Layout>,
    memory: &'a Arc<Memory>,
    ticket: &'a Arc<Ticket>,
    limits: &'a Limits,
    step: Step,
    /// Memory that the rows take, in bytes.
    taken: usize,
    /// The partitions of the rows, and the partitions whose files get these rows.
    partitions: HashMap<Partition, Partition>,
    touched: HashSet<Key>,
    /// Shared partitions in `touched`, with the rows that they had before.
    shared: Vec<(Key, usize)>,
    /// Keys in `touched` whose files this step opened.
    opened: Vec<Key>,
}

impl<'a, S: DerefMut<Target = Shelf>> Adding<'a, S> {
    /// Begins a step of the batch of `ticket`.
    pub(super) fn new(
        shelf: S,
        layout: &'a Arc<Layout>,
        memory: &'a Arc<Memory>,
        ticket: &'a Arc<Ticket>,
        limits: &'a Limits,
        step: Step,
    ) -> Self {
        Adding {
            shelf,
            layout,
            memory,
            ticket,
            limits,
            step,
            taken: 0,
            partitions: HashMap::new(),
            touched: HashSet::new(),
            shared: Vec::new(),
            opened: Vec::new(),
        }
    }

    /// Whether the step has as many partitions as there may be open files.
    pub(super) fn has_all_partitions(&self) -> bool {
        self.partitions.len() >= self.limits.most_open
    }

    /// Ends the step after all its rows were offered. The batch takes `bytes` of memory and `room`
    /// in the queue while it waits.
    pub(super) fn done(mut self, bytes: usize, room: usize) -> Todo {
        let limits = self.limits;
        let opened = self.opened.iter();
        let opened = opened.filter_map(|key| Some(self.shelf.open.get(key)?.part.clone()));
        let mut todo = Todo {
            begun: !self.opened.is_empty(),
            write: Vec::new(),
            opened: opened.collect(),
            overflow_rows: 0,
        };
        for (key, before) in &self.shared {
            let open = self.shelf.open.get(key);
            let rows = open.map_or(0, |open| open.table.rows());
            todo.overflow_rows += rows.saturating_sub(*before);
        }
        let group_bytes = limits.group_bytes.min(self.memory.largest_group());
        let files = self.touched.len().max(1);
        let share = bytes / files;
        let now = Instant::now();
        for key in std::mem::take(&mut self.touched) {
            let Some(open) = self.shelf.open.get_mut(&key) else {
                continue;
            };
            open.tickets.push((self.ticket.clone(), self.step.number));
            open.requests.set(open.requests.bytes() + share);
            let besides = open.besides.bytes() + BATCH_BYTES / files + SHARE_BYTES;
            open.besides.set(besides);
            open.room = open.room.saturating_add(room / files);
            open.touched = now;
            open.rows.set(open.table.memory());
            let is_complete = open.table.rows() >= limits.group_rows
                || open.table.entries() >= GROUP_ENTRIES
                || open.rows.bytes().max(open.table.expanded()) >= group_bytes;
            if is_complete {
                let table = Table::new(key.kind, self.layout);
                let table = std::mem::replace(&mut open.table, table);
                let rows = std::mem::replace(&mut open.rows, self.memory.rows());
                open.part.add(table, rows);
                todo.write.push(open.part.clone());
            }
            let step = self.step.number;
            self.ticket.written(Share { key, step });
        }
        todo
    }
}

impl<S: DerefMut<Target = Shelf>> Sink for Adding<'_, S> {
    // Independent of the open files and of free memory, so that a repeated batch has the same rows in
    // each step.
    fn admits(&mut self, partition: &Partition, bytes: usize) -> Option<usize> {
        let left = self.step.admitted.checked_sub(self.taken)?;
        if left < bytes {
            return None;
        }
        if !self.partitions.contains_key(partition) {
            if self.partitions.len() >= self.limits.most_open {
                return None;
            }
            let (most, window) = (self.limits.most_partitions, self.limits.interval);
            let place = self.shelf.partitions.place(partition, most, window);
            self.partitions.insert(partition.clone(), place);
        }
        Some(left)
    }

    fn took(&mut self, bytes: usize) {
        self.taken = self.taken.saturating_add(bytes);
    }

    fn table(&mut self, kind: TableKind, partition: &Partition) -> Option<&mut Table> {
        let share = |partition| Share {
            key: Key::new(kind, partition),
            step: self.step.number,
        };
        let own = share(partition);
        if self.step.is_written || self.ticket.has(&own) {
            return None;
        }
        let place = self.partitions.get(partition).unwrap_or(partition);
        let is_shared = place != partition;
        let key = match is_shared {
            true => share(place).key,
            false => own.key,
        };
        if !self.touched.contains(&key) {
            self.touched.insert(key.clone());
            if is_shared {
                self.ticket.overflows();
                let open = self.shelf.open.get(&key);
                let rows = open.map_or(0, |open| open.table.rows());
                self.shared.push((key.clone(), rows));
            }
        }
        let (layout, memory, opened) = (self.layout, self.memory, &mut self.opened);
        let Shelf { count, open, .. } = &mut *self.shelf;
        let open = open.entry(key);
        let open = open.or_insert_with_key(|key| {
            opened.push(key.clone());
            let mut besides = memory.rows();
            besides.set(FILE_BYTES);
            let now = Instant::now();
            Open {
                part: Part::new(key.clone()),
                table: Table::new(kind, layout),
                rows: memory.rows(),
                tickets: Vec::new(),
                requests: memory.requests(),
                besides,
                room: 0,
                since: now,
                touched: now,
                _counted: count.count(),
            }
        });
        Some(&mut open.table)
    }
}

impl<S: DerefMut<Target = Shelf>> Drop for Adding<'_, S> {
    fn drop(&mut self) {
        let shelf = &mut *self.shelf;
        let touched = self.touched.drain();
        shelf
            .spoiled
            .extend(touched.filter_map(|key| shelf.open.remove(&key)));
    }
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

    fn count(&self) -> Counted {
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
            false => due.min(self.touched + GATHER),
        }
    }

    fn memory(&self) -> usize {
        self.rows.bytes() + self.requests.bytes() + self.besides.bytes()
    }
}
