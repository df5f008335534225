//! Adds the rows of one batch to the open files.

use std::collections::{HashMap, HashSet};
use std::ops::DerefMut;
use std::sync::Arc;

use tokio::time::Instant;

use super::memory::Memory;
use super::part::Part;
use super::partition::Key;
use super::shelf::{BATCH_BYTES, FILE_BYTES, Limits, Open, SHARE_BYTES, Shelf};
use super::table::{GROUP_ENTRIES, Layout, Partition, Sink, Table, TableKind};
use super::ticket::{Share, Ticket};

/// Position of a step in its batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    pub(super) number: usize,
    /// Memory that the rows of the step may take in their tables, in bytes.
    pub(super) admitted: usize,
    /// Whether the rows of the step are in files already.
    pub(super) is_written: bool,
}

/// Work to do after rows were added.
pub(super) struct Todo {
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
