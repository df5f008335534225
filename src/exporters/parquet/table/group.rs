//! Row groups: levels and values, column by column.

use bytes::Bytes;
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::ParquetError;
use parquet::schema::types::SchemaDescriptor;

use super::WriteError;
use super::chunk::Chunk;
use super::compress::Compressor;
use super::texts::{AttributeOwner, Texts};
use super::values::Encoder;

/// Consumer of finished chunks, in the order of the schema.
pub(super) type Sink<'s> = &'s mut dyn FnMut(Bytes, ColumnCloseResult) -> Result<(), ParquetError>;

/// The columns of one row group, written one after the other in the order of the schema.
pub(super) struct RowGroup<'g> {
    schema: &'g SchemaDescriptor,
    next: usize,
    rows: usize,
    compressor: &'g mut Compressor,
    bloom_filters: bool,
    page_index: bool,
    sink: Sink<'g>,
}

impl<'g> RowGroup<'g> {
    pub(super) fn new(
        schema: &'g SchemaDescriptor,
        rows: usize,
        compressor: &'g mut Compressor,
        bloom_filters: bool,
        page_index: bool,
        sink: Sink<'g>,
    ) -> Self {
        RowGroup {
            schema,
            next: 0,
            rows,
            compressor,
            bloom_filters,
            page_index,
            sink,
        }
    }

    pub(super) fn bloom_filters(&self) -> bool {
        self.bloom_filters
    }

    /// Writes a value for every row.
    pub(super) fn flat<E: Encoder>(
        &mut self,
        name: &str,
        encoder: E,
        rows: impl Iterator<Item = E::Item>,
    ) -> Result<(), WriteError> {
        let mut chunk = self.chunk(name, encoder)?;
        for value in rows {
            chunk.encoder.push(value);
            chunk.levels += 1;
            chunk.end_row(self.compressor)?;
        }
        self.finish(chunk)
    }

    /// Writes a value or null for every row.
    pub(super) fn optional<E: Encoder>(
        &mut self,
        name: &str,
        encoder: E,
        rows: impl Iterator<Item = Option<E::Item>>,
    ) -> Result<(), WriteError> {
        let mut chunk = self.chunk(name, encoder)?;
        for value in rows {
            match value {
                Some(value) => {
                    chunk.encoder.push(value);
                    chunk.definition.push(1);
                }
                None => {
                    chunk.definition.push(0);
                    chunk.nulls += 1;
                }
            }
            chunk.levels += 1;
            chunk.end_row(self.compressor)?;
        }
        self.finish(chunk)
    }

    /// Writes a value for every row; each value has the length of its run of rows.
    pub(super) fn flat_runs<E: Encoder>(
        &mut self,
        name: &str,
        encoder: E,
        runs: impl Iterator<Item = (E::Item, usize)>,
    ) -> Result<(), WriteError>
    where
        E::Item: Copy,
    {
        let mut chunk = self.chunk(name, encoder)?;
        for (value, mut times) in runs {
            while times > 0 {
                let rows = chunk.room(times, |encoder| encoder.size(value));
                chunk.encoder.push_run(value, rows);
                chunk.levels += rows;
                chunk.end_rows(rows, self.compressor)?;
                times -= rows;
            }
        }
        self.finish(chunk)
    }

    /// Writes a value or null for every row; each has the length of its run of rows.
    pub(super) fn optional_runs<E: Encoder>(
        &mut self,
        name: &str,
        encoder: E,
        runs: impl Iterator<Item = (Option<E::Item>, usize)>,
    ) -> Result<(), WriteError>
    where
        E::Item: Copy,
    {
        let mut chunk = self.chunk(name, encoder)?;
        for (value, mut times) in runs {
            while times > 0 {
                let rows = chunk.room(times, |encoder| {
                    value.map_or(0, |value| encoder.size(value))
                });
                match value {
                    Some(value) => chunk.encoder.push_run(value, rows),
                    None => chunk.nulls += rows,
                }
                chunk.definition.push_run(value.is_some().into(), rows);
                chunk.levels += rows;
                chunk.end_rows(rows, self.compressor)?;
                times -= rows;
            }
        }
        self.finish(chunk)
    }

    /// Writes a list of texts for every row; each list has the length of its run of rows.
    pub(super) fn list_runs<S: AttributeOwner, R>(
        &mut self,
        name: &str,
        encoder: Texts<'_, S>,
        runs: impl Iterator<Item = (R, usize)>,
    ) -> Result<(), WriteError>
    where
        R: ExactSizeIterator<Item = u32> + Clone,
    {
        let mut chunk = self.chunk(name, encoder)?;
        for (row, mut times) in runs {
            while times > 0 {
                let rows = chunk.room(times, |encoder| {
                    row.clone().map(|id| encoder.size(id)).sum()
                });
                match row.len() {
                    0 => (0..rows).for_each(|_| chunk.empty()),
                    count => {
                        for _ in 0..rows {
                            chunk.repetition.push(0);
                            chunk.repetition.push_run(1, count - 1);
                        }
                        chunk.definition.push_run(1, count * rows);
                        chunk.levels += count * rows;
                        chunk.encoder.push_row(row.clone(), rows);
                    }
                }
                chunk.end_rows(rows, self.compressor)?;
                times -= rows;
            }
        }
        self.finish(chunk)
    }

    /// Writes a list of values for every row. Maps are lists of keys and lists of values.
    pub(super) fn list<E: Encoder, R>(
        &mut self,
        name: &str,
        encoder: E,
        rows: impl Iterator<Item = R>,
    ) -> Result<(), WriteError>
    where
        R: ExactSizeIterator<Item = E::Item>,
    {
        let mut chunk = self.chunk(name, encoder)?;
        for row in rows {
            match row.len() {
                0 => chunk.empty(),
                count => {
                    chunk.repetition.push(0);
                    chunk.repetition.push_run(1, count - 1);
                    chunk.definition.push_run(1, count);
                    chunk.levels += count;
                    row.for_each(|value| chunk.encoder.push(value));
                }
            }
            chunk.end_row(self.compressor)?;
        }
        self.finish(chunk)
    }

    /// Writes a list of lists for every row, as needed for lists of maps.
    pub(super) fn nested<E: Encoder, R, L>(
        &mut self,
        name: &str,
        encoder: E,
        rows: impl Iterator<Item = R>,
    ) -> Result<(), WriteError>
    where
        R: Iterator<Item = L>,
        L: ExactSizeIterator<Item = E::Item>,
    {
        let mut chunk = self.chunk(name, encoder)?;
        for row in rows {
            let mut repetition = 0;
            for list in row {
                chunk.repetition.push(repetition);
                repetition = 1;
                match list.len() {
                    0 => {
                        chunk.definition.push(1);
                        chunk.levels += 1;
                        chunk.nulls += 1;
                    }
                    count => {
                        chunk.repetition.push_run(2, count - 1);
                        chunk.definition.push_run(2, count);
                        chunk.levels += count;
                        list.for_each(|value| chunk.encoder.push(value));
                    }
                }
            }
            if repetition == 0 {
                chunk.empty();
            }
            chunk.end_row(self.compressor)?;
        }
        self.finish(chunk)
    }

    /// Returns the chunk of the next column.
    fn chunk<E: Encoder>(&mut self, name: &str, encoder: E) -> Result<Chunk<E>, WriteError> {
        if self.next >= self.schema.num_columns() {
            return Err(WriteError::Schema(name.to_owned()));
        }
        let descriptor = self.schema.column(self.next);
        if descriptor
            .path()
            .parts()
            .first()
            .is_none_or(|first| first != name)
        {
            return Err(WriteError::Schema(name.to_owned()));
        }
        self.next += 1;
        Ok(Chunk::new(descriptor, encoder, self.compressor))
    }

    fn finish<E: Encoder>(&mut self, chunk: Chunk<E>) -> Result<(), WriteError> {
        let (bytes, result) = chunk.finish(self.page_index, self.compressor)?;
        if result.rows_written != self.rows as u64 {
            let path = result.metadata.column_path().string();
            return Err(WriteError::Schema(path));
        }
        Ok((self.sink)(bytes, result)?)
    }

    /// Whether every column was written.
    pub(super) fn is_complete(&self) -> bool {
        self.next == self.schema.num_columns()
    }
}
