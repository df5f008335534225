//! The files of one signal that rows are added to.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tokio::time::{Duration, Instant};

use super::memory::{Charge, Memory};
use super::part::Part;
use super::partition::Key;
use super::table::{Kind, Layout, Partition, Sink, Table};
use super::ticket::Ticket;

/// The open files of a signal, by what their rows have in common.
pub(super) struct Shelf {
    count: OpenFiles,
    open: HashMap<Key, Open>,
    /// Files with some rows of a batch and not all of them: they must not be finished.
    spoiled: Vec<Open>,
}

/// A file that rows are added to.
pub(super) struct Open {
    pub(super) part: Arc<Part>,
    /// The next row group.
    table: Table,
    rows: Charge,
    /// The batches with rows in it, and their share of the requests.
    pub(super) tickets: Vec<Arc<Ticket>>,
    requests: Charge,
    /// What the file and its batches take besides.
    besides: Charge,
    since: Instant,
    _counted: Counted,
}

/// How many files are open, on all shelves.
#[derive(Clone, Default)]
pub(super) struct OpenFiles(Arc<AtomicUsize>);

/// One of them.
struct Counted(OpenFiles);

/// What a file takes before it has a row: its name, places in tables, and tasks.
const FILE_BYTES: usize = 1 << 10;
/// What a batch takes besides its requests while it waits: its ticket, its place in the queue, and the task that would
/// try again.
pub(super) const BATCH_BYTES: usize = 4 << 10;

/// When row groups and files are complete.
#[derive(Debug, Clone)]
pub(super) struct Limits {
    pub(super) group_rows: usize,
    pub(super) group_bytes: usize,
    pub(super) file_rows: usize,
    pub(super) file_bytes: u64,
    pub(super) interval: Duration,
    /// Files that one batch may open at once.
    pub(super) most_open: usize,
}

/// What is to be done after rows were added.
pub(super) struct Todo {
    /// A file was begun.
    pub(super) begun: bool,
    /// Files with complete row groups.
    pub(super) write: Vec<Arc<Part>>,
    /// The batch has rows for further files, which are still to be added. These are the ones that it opened: they are
    /// to be finished before that.
    pub(super) surplus: Option<Vec<Arc<Part>>>,
}

/// Takes the rows of one batch in, as far as there are files for them. Should something about the batch be wrong, the
/// files that have some of it are spoiled.
pub(super) struct Adding<'a> {
    shelf: &'a mut Shelf,
    layout: &'a Arc<Layout>,
    memory: &'a Arc<Memory>,
    ticket: &'a Arc<Ticket>,
    limits: &'a Limits,
    touched: HashSet<Key>,
    /// Rows that are in a file already, or are left for later.
    dropped: Option<(Kind, Table)>,
    /// What of `touched` was not open before.
    opened: Vec<Key>,
    left: bool,
}

impl<'a> Adding<'a> {
    /// For the batch of `ticket`.
    pub(super) fn new(
        shelf: &'a mut Shelf,
        layout: &'a Arc<Layout>,
        memory: &'a Arc<Memory>,
        ticket: &'a Arc<Ticket>,
        limits: &'a Limits,
    ) -> Self {
        Adding {
            shelf,
            layout,
            memory,
            ticket,
            limits,
            touched: HashSet::new(),
            dropped: None,
            opened: Vec::new(),
            left: false,
        }
    }

    /// All rows of a batch that takes `bytes` while it waits were offered.
    pub(super) fn done(mut self, bytes: usize) -> Todo {
        let limits = self.limits;
        let opened = self.opened.iter();
        let opened = opened.filter_map(|key| Some(self.shelf.open.get(key)?.part.clone()));
        let mut todo = Todo {
            begun: !self.opened.is_empty(),
            write: Vec::new(),
            surplus: self.left.then(|| opened.collect()),
        };
        let files = self.touched.len().max(1);
        let share = bytes / files;
        for key in std::mem::take(&mut self.touched) {
            let Some(open) = self.shelf.open.get_mut(&key) else {
                continue;
            };
            open.tickets.push(self.ticket.clone());
            open.requests.set(open.requests.bytes() + share);
            let besides = open.besides.bytes() + BATCH_BYTES / files;
            open.besides.set(besides);
            open.rows.set(open.table.memory());
            let is_complete =
                open.table.rows() >= limits.group_rows || open.rows.bytes() >= limits.group_bytes;
            if is_complete {
                let table = Table::new(key.kind, self.layout);
                let table = std::mem::replace(&mut open.table, table);
                let rows = std::mem::replace(&mut open.rows, self.memory.rows());
                open.part.add(table, rows);
                todo.write.push(open.part.clone());
            }
            self.ticket.add_file(key);
        }
        todo
    }
}

impl Sink for Adding<'_> {
    fn table(&mut self, kind: Kind, partition: &Partition) -> &mut Table {
        let key = Key::new(kind, partition);
        let is_left = !self.shelf.open.contains_key(&key)
            && self.opened.len() >= self.limits.most_open
            && !self.ticket.has(&key);
        self.left |= is_left;
        if is_left || self.ticket.has(&key) {
            let dropped = self.dropped.take().filter(|(other, _)| *other == kind);
            let dropped = dropped.unwrap_or_else(|| (kind, Table::new(kind, self.layout)));
            return &mut self.dropped.insert(dropped).1;
        }
        if !self.touched.contains(&key) {
            self.touched.insert(key.clone());
        }
        let (layout, memory, opened) = (self.layout, self.memory, &mut self.opened);
        let count = &self.shelf.count;
        let open = self.shelf.open.entry(key);
        let open = open.or_insert_with_key(|key| {
            opened.push(key.clone());
            let mut besides = memory.rows();
            besides.set(FILE_BYTES);
            Open {
                part: Part::new(key.clone()),
                table: Table::new(kind, layout),
                rows: memory.rows(),
                tickets: Vec::new(),
                requests: memory.requests(),
                besides,
                since: Instant::now(),
                _counted: count.count(),
            }
        });
        &mut open.table
    }
}

impl Drop for Adding<'_> {
    fn drop(&mut self) {
        let shelf = &mut *self.shelf;
        let touched = self.touched.drain();
        shelf
            .spoiled
            .extend(touched.filter_map(|key| shelf.open.remove(&key)));
    }
}

impl Shelf {
    /// An empty one.
    pub(super) fn new(count: &OpenFiles) -> Self {
        Shelf {
            count: count.clone(),
            open: HashMap::new(),
            spoiled: Vec::new(),
        }
    }

    /// Takes out what is spoiled.
    pub(super) fn take_spoiled(&mut self) -> Vec<Open> {
        std::mem::take(&mut self.spoiled)
    }

    /// The memory of the largest file, and which it is.
    pub(super) fn largest(&self) -> Option<(usize, &Key)> {
        let sizes = self.open.iter().map(|(key, open)| (open.memory(), key));
        sizes.max_by_key(|(size, _)| *size)
    }

    /// Since when the oldest file is open, and which it is.
    pub(super) fn oldest(&self) -> Option<(Instant, &Key)> {
        let ages = self.open.iter().map(|(key, open)| (open.since, key));
        ages.min_by_key(|(since, _)| *since)
    }

    /// Takes the file out: no more rows come to it.
    pub(super) fn take(&mut self, key: &Key) -> Option<Open> {
        self.open.remove(key)
    }

    /// Takes this very file out, unless it is not open any more.
    pub(super) fn take_part(&mut self, part: &Arc<Part>) -> Option<Open> {
        let is_open = |open: &Open| Arc::ptr_eq(&open.part, part);
        self.open
            .get(&part.key)
            .is_some_and(is_open)
            .then_some(())?;
        self.open.remove(&part.key)
    }

    /// Takes out what is due by then: everything when `all`.
    pub(super) fn take_due(&mut self, now: Instant, limits: &Limits, all: bool) -> Vec<Open> {
        let due = |open: &Open| all || open.since + limits.interval <= now;
        let due = self.open.extract_if(|_, open| due(open));
        due.map(|(_, open)| open).collect()
    }
}

impl OpenFiles {
    /// How many there are.
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

impl Open {
    /// No rows come any more: what there is is the last row group.
    pub(super) fn close(self) -> (Arc<Part>, Vec<Arc<Ticket>>, [Charge; 2]) {
        self.part.add(self.table, self.rows);
        (self.part, self.tickets, [self.requests, self.besides])
    }

    fn memory(&self) -> usize {
        self.rows.bytes() + self.requests.bytes() + self.besides.bytes()
    }
}
