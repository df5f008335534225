//! Parquet files of one kind of rows.

use std::io::Write;
use std::sync::Arc;

use parquet::file::writer::{SerializedFileWriter, TrackedWrite};
use parquet::schema::types::SchemaDescriptor;

use super::compress::Compressor;
use super::group::RowGroup;
use super::kind::TableKind;
use super::{Layout, PageCompression, WriteError};

/// Minimum number of rows in the first row group of a file with a page index. With fewer rows,
/// columns have a page or two, and the index would be as large as the columns.
const INDEXED_ROWS: usize = 4096;

/// Bytes of the library's metadata for a column in a schema, or for a chunk in a row group, indexes
/// included.
const COLUMN_BYTES: usize = 1 << 10;
/// Bytes of buffers: one of the library to count written bytes, and our own, which also counts the
/// footer.
const BUFFERS: usize = 16 << 10;

/// Writes a file, row group by row group.
pub struct FileWriter<W: Write> {
    kind: TableKind,
    schema: Arc<SchemaDescriptor>,
    /// The underlying writer also counts the bytes of the footer.
    writer: SerializedFileWriter<TrackedWrite<W>>,
    compression: PageCompression,
    bloom_filters: bool,
    /// Whether the file has page indexes; the first row group decides for all.
    page_index: Option<bool>,
    summary: FileSummary,
}

/// Summary of a finished file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileSummary {
    /// Number of rows.
    pub rows: u64,
    /// Number of row groups.
    pub row_groups: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// The first and the last `timestamp`, in nanoseconds since 1970 (UTC); `None` without rows.
    pub timestamps: Option<(i64, i64)>,
}

impl<W: Write + Send> FileWriter<W> {
    /// Begins a file for rows of that kind.
    ///
    /// # Errors
    /// If `out` reports an error.
    pub fn new(kind: TableKind, layout: &Layout, out: W) -> Result<Self, WriteError> {
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

    pub(super) fn kind(&self) -> TableKind {
        self.kind
    }

    /// Writes a row group; `write` provides its columns.
    pub(super) fn row_group(
        &mut self,
        rows: usize,
        times: &[i64],
        write: impl FnOnce(&mut RowGroup<'_>) -> Result<(), WriteError>,
    ) -> Result<(), WriteError> {
        let mut writer = self.writer.next_row_group()?;
        let mut sink = |bytes, close| writer.append_column(&bytes, close);
        // Created here, because its working memory of more than a megabyte is too much for a file
        // that waits for rows.
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

    /// Returns the approximate memory needed until the footer is written, in bytes.
    pub fn memory(&self) -> usize {
        let columns = self.schema.num_columns();
        let of_columns = columns * COLUMN_BYTES * (1 + self.summary.row_groups as usize);
        size_of::<Self>() + BUFFERS + of_columns
    }

    /// Returns the number of bytes written so far. The footer, some kilobytes, follows at the end.
    pub fn bytes_written(&self) -> usize {
        self.writer.bytes_written()
    }

    /// Writes the footer. Returns the output and a summary.
    ///
    /// # Errors
    /// If `out` reports an error.
    pub fn finish(self) -> Result<(W, FileSummary), WriteError> {
        let out = self.writer.into_inner()?;
        let summary = FileSummary {
            bytes: out.bytes_written() as u64,
            ..self.summary
        };
        Ok((out.into_inner()?, summary))
    }
}
