//! Tables: OTLP requests as columns, from the bytes on the wire to row groups of Parquet files.
//!
//! - [`append`] reads a request once and distributes its items over [`Table`]s.
//! - A table keeps columns, not rows: numbers as they are; texts, attributes, resources and scopes once, with a
//!   number for each row (`strings`, `attributes`, `context`). An attribute that was seen before is found by the
//!   bytes it came as, and not read again.
//! - [`Table::write`] sorts the rows and writes a row group (`group`): `values`, `texts` and `encoding` make pages of
//!   columns, `chunk` makes column chunks of them. The numbers that texts have in memory become the indices of
//!   Parquet's dictionaries, so no text is looked up twice. The library `parquet` writes footers and indexes.
//! - `logs`, `traces`, `metrics`, `profiles`: the columns of each signal. `schema` has their names and types, and
//!   docs/parquet.md what they mean.

mod attributes;
mod bounds;
mod chunk;
mod columns;
mod compress;
mod context;
mod copies;
mod cost;
mod encoding;
mod exemplars;
mod expansion;
mod file;
mod frames;
mod gathered;
mod group;
mod items;
mod kind;
mod known;
mod layout;
mod logs;
mod metric_head;
mod metrics;
mod options;
mod order;
mod profiles;
mod ranges;
mod read;
mod resolve;
mod rows;
mod samples;
mod schema;
mod stack_expansion;
mod stacks;
mod strings;
#[cfg(test)]
mod tests;
mod text;
mod texts;
mod traces;
mod values;

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parquet::errors::ParquetError;

pub use self::cost::{RowError, TooMuch, rows_memory};
pub use self::file::{FileSummary, FileWriter};
use self::gathered::Gathered;
use self::group::RowGroup;
pub use self::kind::{Partition, TableKind};
pub use self::layout::Layout;
pub use self::options::{AttributeOwner, PageCompression, ProfilesLayout, Promoted, TableOptions};
use self::order::Rows;
use self::rows::Shared;
use tributary_otlp::Signal;
use tributary_otlp::room::Room;

/// Provides the tables for rows.
pub trait Sink {
    /// Returns the bytes that the next rows of this partition may take in their table until the next
    /// call, at least the `_bytes` of the first row. `None` ends [`append`]. By default, rows are not
    /// limited.
    fn admits(&mut self, _partition: &Partition, _bytes: usize) -> Option<usize> {
        Some(usize::MAX)
    }

    /// Records that admitted rows took at most that many bytes in their table.
    fn took(&mut self, _bytes: usize) {}

    /// Returns a number that changes when rows may go into other tables than before.
    fn step(&self) -> usize {
        0
    }

    /// Returns the maximum number of partitions with tables at a time. If a request has more
    /// partitions, each of them may get several tables, one after the other.
    fn tables(&self) -> usize {
        usize::MAX
    }

    /// Returns the table for rows of that kind and partition. Without a table the rows are left
    /// out. [`append`] calls this once for many rows.
    fn table(&mut self, kind: TableKind, partition: &Partition) -> Option<&mut Table>;
}

/// Distributes the items of one OTLP request over tables. For traces, metrics and logs, the bytes
/// may be several concatenated requests. Each item is read once. Memory for reading is taken from
/// `room`; memory in tables is what [`Sink::admits`] grants.
///
/// # Errors
/// If the request is malformed, which receivers do not accept; items before the fault may have been
/// appended. Or if the rows would be too large or `room` is full; then none has been appended.
pub fn append(
    signal: Signal,
    request: &[u8],
    layout: &Layout,
    by_service: bool,
    room: &dyn Room,
    sink: &mut dyn Sink,
) -> Result<(), RowError> {
    match signal {
        Signal::Profiles => profiles::append(request, layout, by_service, room, sink),
        _ => {
            let expansion = expansion::of_items(signal, request)?;
            expansion.check(signal, request, by_service, room, sink.tables())?;
            Ok(items::append(signal, request, by_service, sink)?)
        }
    }
}

/// Maximum number of list entries that the rows of a row group share; a single row may have more. A
/// column of that many entries takes 16 to 32 MiB before compression; usual row groups have half as
/// many.
pub const GROUP_ENTRIES: usize = 8 << 20;
/// Bytes of an entry in the largest column while a row group is written: its dictionary index.
pub(super) const ENTRY_BYTES: usize = 2;
/// Bytes of a row while rows are sorted (keys and position) or while a column of hashes is written.
const ROW_BYTES: usize = 64;
/// Bytes of a page, its encoder, and its compressed form.
const PAGES_BYTES: usize = 3 << 20;

/// Rows of one kind, gathered in memory as columns.
#[derive(Debug)]
pub struct Table {
    kind: TableKind,
    layout: Arc<Layout>,
    shared: Shared,
    columns: Columns,
    /// Identifies the contents: changes with every [`clear`](Self::clear) and differs from the
    /// numbers of all other tables.
    contents: u64,
}

/// Returns an unused number for the contents of a table.
fn new_contents() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

/// Columns that only some kinds have.
#[derive(Debug)]
enum Columns {
    Logs(Box<logs::Columns>),
    Traces(Box<traces::Columns>),
    Metrics(Box<metrics::Columns>),
    Profiles(Box<samples::Columns>),
    Stacks(Box<stacks::Stacks>),
}

/// Operations on the columns of every kind.
trait RowColumns: Gathered {
    /// Returns the rows in the order in which they are written.
    fn order(&self, shared: &Shared) -> Vec<u32> {
        shared.order(|_| 0)
    }

    /// Returns the number of list entries that the row shares with other rows, besides the entries
    /// of its resource and scope.
    fn entries_of(&self, _row: usize) -> usize {
        0
    }

    /// Returns the bytes needed for writing the rows, besides those of all kinds.
    fn memory_to_write(&self) -> usize {
        0
    }

    /// Writes these rows, up to the columns that all kinds have at the end.
    fn write(
        &self,
        shared: &Shared,
        layout: &Layout,
        rows: Rows<'_>,
        group: &mut RowGroup<'_>,
    ) -> Result<(), WriteError>;
}

impl Table {
    /// Returns a table without rows.
    pub fn new(kind: TableKind, layout: &Arc<Layout>) -> Self {
        Table {
            kind,
            layout: Arc::clone(layout),
            shared: Shared::default(),
            contents: new_contents(),
            columns: match kind {
                TableKind::Logs => Columns::Logs(Box::default()),
                TableKind::Traces => Columns::Traces(Box::default()),
                TableKind::Metrics => Columns::Metrics(Box::default()),
                TableKind::Profiles => Columns::Profiles(Box::default()),
                TableKind::Stacks => Columns::Stacks(Box::default()),
            },
        }
    }

    /// Returns the number that identifies the contents. Numbers of texts, stacks and attributes are
    /// valid for these contents only.
    fn contents(&self) -> u64 {
        self.contents
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.shared.rows()
    }

    /// Returns the number of list entries that the rows share, counted as often as they are
    /// written: attributes of resources, scopes, profiles and metrics, and frames. Shared entries
    /// take no memory in the table, but time and space when they are written.
    pub fn entries(&self) -> usize {
        self.shared.entries()
    }

    /// Returns the approximate memory for writing the rows in bytes, besides the table's own
    /// memory.
    pub fn memory_to_write(&self) -> usize {
        // The pages of a column are buffered; the largest column is assumed to have half of the
        // memory.
        let column = self.memory() / 2;
        compress::memory(self.layout.options.compression) + PAGES_BYTES + column + self.expanded()
    }

    /// Returns the part of [`memory_to_write`](Self::memory_to_write) in bytes that may be large
    /// while [`memory`](Self::memory) is small: data that rows share, and data that is only derived
    /// for writing.
    pub fn expanded(&self) -> usize {
        let entries = self.entries().min(GROUP_ENTRIES) * ENTRY_BYTES;
        self.rows() * ROW_BYTES + entries + self.columns().memory_to_write()
    }

    /// Returns the memory of the rows in bytes. Writing briefly takes more: the size of the largest
    /// column.
    pub fn memory(&self) -> usize {
        let columns = self.columns();
        size_of::<Self>() + self.shared.memory() + size_of_val(columns) + columns.memory()
    }

    /// Removes all rows. Memory is kept for further rows.
    pub fn clear(&mut self) {
        self.shared.clear();
        self.contents = new_contents();
        match &mut self.columns {
            Columns::Logs(columns) => columns.clear(),
            Columns::Traces(columns) => columns.clear(),
            Columns::Metrics(columns) => columns.clear(),
            Columns::Profiles(columns) => columns.clear(),
            Columns::Stacks(columns) => columns.clear(),
        }
    }

    /// Writes the rows to a file of the same kind, sorted, as one row group. If the lists of the
    /// rows have more than [`GROUP_ENTRIES`] entries, writes several row groups. Afterwards the
    /// table is empty. Without rows, does nothing.
    ///
    /// # Errors
    /// If the file cannot be written. The file must not be used any more; the table keeps its rows.
    pub fn write<W: Write + Send>(&mut self, file: &mut FileWriter<W>) -> Result<(), WriteError> {
        self.write_groups(file, GROUP_ENTRIES)
    }

    /// Like [`write`](Self::write), with at most `most_entries` entries in a row group.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_groups<W: Write + Send>(
        &mut self,
        file: &mut FileWriter<W>,
        most_entries: usize,
    ) -> Result<(), WriteError> {
        if self.rows() == 0 {
            return Ok(());
        }
        if file.kind() != self.kind {
            return Err(WriteError::Schema(self.kind.name().to_owned()));
        }
        let (shared, layout, columns) = (&self.shared, &self.layout, self.columns());
        let order = columns.order(shared);
        let mut left = &order[..];
        while !left.is_empty() {
            let (these, others) = left.split_at(self.first_group(left, most_entries));
            left = others;
            let rows = Rows(these);
            file.row_group(rows.len(), shared.times(), |group| {
                columns.write(shared, layout, rows, group)?;
                // Stacks have no such columns.
                match self.kind {
                    TableKind::Stacks => Ok(()),
                    _ => {
                        shared.write_context(rows, group)?;
                        shared.write_promoted(&layout.options.promoted, rows, group)
                    }
                }
            })?;
        }
        self.clear();
        Ok(())
    }

    fn columns(&self) -> &dyn RowColumns {
        match &self.columns {
            Columns::Logs(columns) => &**columns,
            Columns::Traces(columns) => &**columns,
            Columns::Metrics(columns) => &**columns,
            Columns::Profiles(columns) => &**columns,
            Columns::Stacks(columns) => &**columns,
        }
    }

    /// Returns the number of these rows that form the next row group.
    fn first_group(&self, rows: &[u32], most_entries: usize) -> usize {
        if self.entries() <= most_entries {
            return rows.len();
        }
        let mut entries = 0;
        let fit = rows.iter().take_while(|row| {
            let row = **row as usize;
            entries += self.shared.entries_of(row) + self.columns().entries_of(row);
            entries <= most_entries
        });
        fit.count().max(1)
    }
}

/// Reason why a file could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The storage reported an error.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The Parquet library reported an error.
    #[error(transparent)]
    Parquet(#[from] ParquetError),
    /// The file or column belongs to another table.
    #[error("the schema of the file has no column for {0}")]
    Schema(String),
}
