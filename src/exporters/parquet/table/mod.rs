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
mod encoding;
mod exemplars;
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

pub use self::file::{FileSummary, FileWriter};
use self::gathered::Gathered as _;
pub use self::layout::{Compression, Layout, Options, ProfilesLayout, Promoted, Source};
use self::order::Rows;
use self::rows::Shared;
use crate::batch::Signal;
use crate::wire::Malformed;

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
    /// The table for rows of that kind and partition. It is asked for once for many rows.
    fn table(&mut self, kind: Kind, partition: &Partition) -> &mut Table;
}

/// Distributes the items of one OTLP request over tables. Requests of traces, metrics and logs may be several, one
/// after the other.
///
/// # Errors
/// The request is malformed, which receivers do not let in. What was before the fault may have been appended.
pub fn append(
    signal: Signal,
    request: &[u8],
    layout: &Layout,
    by_service: bool,
    sink: &mut dyn Sink,
) -> Result<(), Malformed> {
    match signal {
        Signal::Profiles => profiles::append(request, layout, by_service, sink),
        _ => rows::append(signal, request, by_service, sink),
    }
}

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

macro_rules! each_kind {
    ($table:expr, $columns:ident => $do:expr) => {
        match $table {
            Columns::Logs($columns) => $do,
            Columns::Traces($columns) => $do,
            Columns::Metrics($columns) => $do,
            Columns::Profiles($columns) => $do,
            Columns::Stacks($columns) => $do,
        }
    };
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

    /// The memory the rows take, in bytes. Writing them takes some more for a moment: what the largest column has.
    pub fn memory(&self) -> usize {
        let columns = each_kind!(&self.columns, columns => {
            size_of_val(&**columns) + columns.memory()
        });
        size_of::<Self>() + self.shared.memory() + columns
    }

    /// Forgets all rows. Memory is kept for those to come.
    pub fn clear(&mut self) {
        self.shared.clear();
        self.contents = new_contents();
        each_kind!(&mut self.columns, columns => columns.clear());
    }

    /// Appends what it has to a file of its kind, sorted, as one row group; then it is empty. Without rows it does
    /// nothing.
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
        let (shared, layout) = (&self.shared, &self.layout);
        let order = each_kind!(&self.columns, columns => columns.order(shared));
        let rows = Rows(&order);
        file.row_group(rows.len(), shared.times(), |group| {
            each_kind!(&self.columns, columns => columns.write(shared, layout, rows, group))?;
            if self.kind != Kind::Stacks {
                shared.write_context(rows, group)?;
            }
            each_kind!(&self.columns, columns => {
                shared.write_promoted(&layout.options.promoted, rows, columns.attributes(), group)
            })
        })?;
        self.clear();
        Ok(())
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
