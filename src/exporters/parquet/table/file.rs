//! Files of one kind of rows.

use std::io::Write;
use std::sync::Arc;

use parquet::file::writer::{SerializedFileWriter, TrackedWrite};
use parquet::schema::types::SchemaDescriptor;

use super::compress::Compressor;
use super::group::RowGroup;
use super::{Compression, Kind, Layout, WriteError};

/// Files that begin with a smaller row group have no page index: their columns are a page or two each, and an index
/// would be as large as those.
const INDEXED_ROWS: usize = 4096;

/// What the library knows of a column in a schema, or of its chunk in a row group, indexes included.
const COLUMN_BYTES: usize = 1 << 10;
/// The buffers of the library: one for counting what is written to it, and ours, which counts the footer too.
const BUFFERS: usize = 16 << 10;

/// Writes a file, row group by row group.
pub struct FileWriter<W: Write> {
    kind: Kind,
    schema: Arc<SchemaDescriptor>,
    /// What is below counts the footer too.
    writer: SerializedFileWriter<TrackedWrite<W>>,
    compression: Compression,
    bloom_filters: bool,
    /// As the first row group has it, all others do.
    page_index: Option<bool>,
    summary: FileSummary,
}

/// What is in a finished file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileSummary {
    /// How many rows.
    pub rows: u64,
    /// How many row groups.
    pub row_groups: u64,
    /// How many bytes.
    pub bytes: u64,
    /// The first and the last `timestamp`, in nanoseconds since 1970 (UTC); none without rows.
    pub timestamps: Option<(i64, i64)>,
}

impl<W: Write + Send> FileWriter<W> {
    /// Begins a file of rows of that kind.
    ///
    /// # Errors
    /// `out` does not take it.
    pub fn new(kind: Kind, layout: &Layout, out: W) -> Result<Self, WriteError> {
        let schema = layout.schema(kind)?;
        let properties = Arc::new(layout.writer_properties(kind));
        let root = schema.root_schema_ptr();
        Ok(FileWriter {
            kind,
            schema,
            writer: SerializedFileWriter::new(TrackedWrite::new(out), root, properties)?,
            compression: layout.options.compression,
            page_index: None,
            bloom_filters: layout.options.bloom_filters,
            summary: FileSummary::default(),
        })
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    /// Writes a row group whose columns `write` gives.
    pub(super) fn row_group(
        &mut self,
        rows: usize,
        times: &[i64],
        write: impl FnOnce(&mut RowGroup<'_>) -> Result<(), WriteError>,
    ) -> Result<(), WriteError> {
        let mut writer = self.writer.next_row_group()?;
        let mut sink = |bytes, close| writer.append_column(&bytes, close);
        // Its working memory is more than a megabyte: too much for a file to have while it waits for rows.
        let mut compressor = Compressor::new(self.compression)?;
        let mut group = RowGroup::new(
            &self.schema,
            rows,
            &mut compressor,
            self.bloom_filters,
            *self.page_index.get_or_insert(rows >= INDEXED_ROWS),
            &mut sink,
        );
        write(&mut group)?;
        if !group.is_complete() {
            return Err(WriteError::Schema(self.kind.name().to_owned()));
        }
        writer.close()?;
        self.summary.rows += rows as u64;
        self.summary.row_groups += 1;
        for time in times {
            let (first, last) = self.summary.timestamps.unwrap_or((*time, *time));
            self.summary.timestamps = Some((first.min(*time), last.max(*time)));
        }
        Ok(())
    }

    /// The memory that it takes until the footer is written, about, in bytes.
    pub fn memory(&self) -> usize {
        let columns = self.schema.num_columns();
        let of_columns = columns * COLUMN_BYTES * (1 + self.summary.row_groups as usize);
        size_of::<Self>() + BUFFERS + of_columns
    }

    /// How many bytes were written so far. The footer, some kilobytes, comes at the end.
    pub fn bytes_written(&self) -> usize {
        self.writer.bytes_written()
    }

    /// Writes the footer. Returns what was written to, and what is in it.
    ///
    /// # Errors
    /// `out` does not take it.
    pub fn finish(self) -> Result<(W, FileSummary), WriteError> {
        let out = self.writer.into_inner()?;
        let summary = FileSummary {
            bytes: out.bytes_written() as u64,
            ..self.summary
        };
        Ok((out.into_inner()?, summary))
    }
}
