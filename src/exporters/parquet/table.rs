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
mod chunk;
mod columns;
mod compress;
mod context;
mod copies;
mod encoding;
mod exemplars;
mod expansion;
mod file;
mod frames;
mod gathered;
mod group;
mod layout;
mod logs;
mod metrics;
mod order;
mod profiles;
mod ranges;
mod read;
mod resolve;
mod rows;
mod schema;
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

pub use self::expansion::TooMuch;
pub use self::file::{FileSummary, FileWriter};
use self::gathered::Gathered;
use self::group::RowGroup;
pub use self::layout::{Compression, Layout, Options, ProfilesLayout, Promoted, Source};
use self::order::Rows;
use self::rows::Shared;
use tributary_otlp::Malformed;
use tributary_otlp::Signal;

/// What the rows of a table are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Log records.
    Logs,
    /// Spans.
    Traces,
    /// Data points.
    Metrics,
    /// Samples of profiles.
    Profiles,
    /// Stacks that samples refer to; only with [`ProfilesLayout::Stacks`].
    Stacks,
}

impl Kind {
    /// All of them, in the order of their discriminants.
    pub const ALL: [Kind; 5] = [
        Kind::Logs,
        Kind::Traces,
        Kind::Metrics,
        Kind::Profiles,
        Kind::Stacks,
    ];

    /// The signal whose requests have such rows.
    pub const fn signal(self) -> Signal {
        match self {
            Kind::Logs => Signal::Logs,
            Kind::Traces => Signal::Traces,
            Kind::Metrics => Signal::Metrics,
            Kind::Profiles | Kind::Stacks => Signal::Profiles,
        }
    }

    /// The name for directories: `logs`, `traces`, `metrics`, `profiles`, `stacks`.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Logs => "logs",
            Kind::Traces => "traces",
            Kind::Metrics => "metrics",
            Kind::Profiles => "profiles",
            Kind::Stacks => "stacks",
        }
    }
}

/// Which rows belong into one file.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Partition {
    /// Hours since 1970 (UTC) of the row's own time. A stack has that of the samples it came with.
    pub hour: i64,
    /// The service, when rows are partitioned by it; empty for rows without one.
    pub service: Option<Arc<str>>,
}

/// Gives out the tables that rows go to.
pub trait Sink {
    /// Whether rows of that partition may come next; [`append`] ends where they may not. By default all may.
    fn admits(&mut self, _partition: &Partition) -> bool {
        true
    }

    /// How many partitions may have tables at a time; where there are more, each may get several, one after the other.
    fn tables(&self) -> usize {
        usize::MAX
    }

    /// The table for rows of that kind and partition; without one they are left out. It is asked for once for many rows.
    fn table(&mut self, kind: Kind, partition: &Partition) -> Option<&mut Table>;
}

/// Distributes the items of one OTLP request over tables. Requests of traces, metrics and logs may be several, one
/// after the other. Each item is read once.
///
/// # Errors
/// The request is malformed, which receivers do not let in: what was before the fault may have been appended. Or there
/// is too much in its rows, and none has been appended.
pub fn append(
    signal: Signal,
    request: &[u8],
    layout: &Layout,
    by_service: bool,
    sink: &mut dyn Sink,
) -> Result<(), AppendError> {
    match signal {
        Signal::Profiles => profiles::append(request, layout, by_service, sink),
        _ => {
            let expansion = expansion::of_items(signal, request)?;
            expansion.check(signal, request, by_service, sink.tables())?;
            Ok(rows::append(signal, request, by_service, sink)?)
        }
    }
}

/// Why there are no rows of a request. It would be the same the next time.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// It is malformed.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// There would be too much in them.
    #[error(transparent)]
    TooMuch(#[from] TooMuch),
}

/// The most entries of lists that the rows of a row group share, one row aside. A column of so many takes 16 to 32 MiB
/// before it is compressed; usual row groups have half as many.
pub const GROUP_ENTRIES: usize = 8 << 20;
/// What an entry takes in the largest column of a row group that is being written: its place in a dictionary.
const ENTRY_BYTES: usize = 2;
/// What a row takes while rows are sorted, its keys and its place in the order, or while a column of hashes is written.
const ROW_BYTES: usize = 64;
/// A page, its encoder, and it compressed.
const PAGES_BYTES: usize = 3 << 20;

/// Rows of one kind, gathered in memory as columns.
#[derive(Debug)]
pub struct Table {
    kind: Kind,
    layout: Arc<Layout>,
    shared: Shared,
    columns: Columns,
    /// Another number after every [`clear`](Self::clear), different from those of all other tables.
    contents: u64,
}

/// A number that no contents of a table had before.
fn new_contents() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

/// The columns that not all kinds have.
#[derive(Debug)]
enum Columns {
    Logs(Box<logs::Columns>),
    Traces(Box<traces::Columns>),
    Metrics(Box<metrics::Columns>),
    Profiles(Box<profiles::Columns>),
    Stacks(Box<frames::Stacks>),
}

/// What the columns of every kind do.
trait RowColumns: Gathered {
    /// The rows in the order in which they are written.
    fn order(&self, shared: &Shared) -> Vec<u32> {
        shared.order(|_| 0)
    }

    /// How many entries of lists the row shares with others, besides those of resources and scopes.
    fn entries_of(&self, _row: usize) -> usize {
        0
    }

    /// The bytes that it takes to write the rows, besides what all kinds take.
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
    /// A table without rows.
    pub fn new(kind: Kind, layout: &Arc<Layout>) -> Self {
        Table {
            kind,
            layout: Arc::clone(layout),
            shared: Shared::default(),
            contents: new_contents(),
            columns: match kind {
                Kind::Logs => Columns::Logs(Box::default()),
                Kind::Traces => Columns::Traces(Box::default()),
                Kind::Metrics => Columns::Metrics(Box::default()),
                Kind::Profiles => Columns::Profiles(Box::default()),
                Kind::Stacks => Columns::Stacks(Box::default()),
            },
        }
    }

    /// What the numbers of texts, stacks and attributes hold for.
    fn contents(&self) -> u64 {
        self.contents
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.shared.rows()
    }

    /// How many entries of lists the rows share, each as often as it is written: attributes of resources, scopes,
    /// profiles and metrics, and frames. They take no memory here, and time and space when they are written.
    pub fn entries(&self) -> usize {
        self.shared.entries()
    }

    /// The memory that writing the rows takes besides the table's own, about, in bytes.
    pub fn memory_to_write(&self) -> usize {
        // The pages of a column wait for each other; the largest column has half of what there is.
        let column = self.memory() / 2;
        compress::memory(self.layout.options.compression) + PAGES_BYTES + column + self.expanded()
    }

    /// The part of [`memory_to_write`](Self::memory_to_write) that may be large while [`memory`](Self::memory) is small, in
    /// bytes: for what rows share, and for what is made of them only then.
    pub fn expanded(&self) -> usize {
        let entries = self.entries().min(GROUP_ENTRIES) * ENTRY_BYTES;
        self.rows() * ROW_BYTES + entries + self.columns().memory_to_write()
    }

    /// The memory the rows take, in bytes. Writing them takes some more for a moment: what the largest column has.
    pub fn memory(&self) -> usize {
        let columns = self.columns();
        size_of::<Self>() + self.shared.memory() + size_of_val(columns) + columns.memory()
    }

    /// Forgets all rows. Memory is kept for those to come.
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

    /// Appends what it has to a file of its kind, sorted, as one row group, or as several where there are more than
    /// [`GROUP_ENTRIES`] in their lists; then it is empty. Without rows it does nothing.
    ///
    /// # Errors
    /// The file cannot be written. It must not be used any more; the table still has its rows.
    pub fn write<W: Write + Send>(&mut self, file: &mut FileWriter<W>) -> Result<(), WriteError> {
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
            let (these, others) = left.split_at(self.first_group(left));
            left = others;
            let rows = Rows(these);
            file.row_group(rows.len(), shared.times(), |group| {
                columns.write(shared, layout, rows, group)?;
                // Stacks have neither.
                match self.kind {
                    Kind::Stacks => Ok(()),
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

    /// How many of these rows are the next row group.
    fn first_group(&self, rows: &[u32]) -> usize {
        if self.entries() <= GROUP_ENTRIES {
            return rows.len();
        }
        let mut entries = 0;
        let fit = rows.iter().take_while(|row| {
            let row = **row as usize;
            entries += self.shared.entries_of(row) + self.columns().entries_of(row);
            entries <= GROUP_ENTRIES
        });
        fit.count().max(1)
    }
}

/// Why a file could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The storage does not take it.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The library does not take it.
    #[error(transparent)]
    Parquet(#[from] ParquetError),
    /// A file or a column of another table.
    #[error("{0} has no place here in the schema of the file")]
    Schema(String),
}
