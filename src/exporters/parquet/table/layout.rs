//! User options: the columns and their encoding.

use std::sync::{Arc, OnceLock};

use parquet::errors::ParquetError;
use parquet::file::metadata::SortingColumn;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::schema::types::SchemaDescriptor;

use super::kind::TableKind;
use super::options::TableOptions;
use super::schema::{self, Column};

/// The columns of all tables and their encoding.
#[derive(Debug)]
pub struct Layout {
    pub(super) options: TableOptions,
    columns: [Arc<[Column]>; TableKind::ALL.len()],
    /// Shared by all files, because there may be many files and a schema is as large as a few rows.
    schemas: [OnceLock<Arc<SchemaDescriptor>>; TableKind::ALL.len()],
}

impl Layout {
    /// Returns the layout for these options. If two promoted attributes share a column name, the
    /// first one wins. An attribute whose column `Promoted::is_taken` is ignored.
    pub fn new(options: &TableOptions) -> Self {
        let mut options = options.clone();
        let mut names = std::collections::HashSet::new();
        options
            .promoted
            .retain(|promoted| !promoted.is_taken() && names.insert(promoted.column()));
        let columns = TableKind::ALL.map(|kind| schema::columns(kind, &options).into());
        Layout {
            options,
            columns,
            schemas: Default::default(),
        }
    }

    pub(super) fn schema(&self, kind: TableKind) -> Result<Arc<SchemaDescriptor>, ParquetError> {
        let known = &self.schemas[kind as usize];
        if let Some(schema) = known.get() {
            return Ok(Arc::clone(schema));
        }
        let schema = schema::file_schema(self.columns(kind))?;
        let schema = Arc::new(SchemaDescriptor::new(schema));
        Ok(Arc::clone(known.get_or_init(|| schema)))
    }

    pub(super) fn columns(&self, kind: TableKind) -> &[Column] {
        &self.columns[kind as usize]
    }

    /// Returns the properties of files of that kind for the parts that the library writes: footers
    /// and indexes.
    pub fn writer_properties(&self, kind: TableKind) -> WriterProperties {
        let metadata = vec![
            ("tributary.schema.kind", kind.name()),
            ("tributary.schema.version", schema::VERSION),
        ];
        let sorted_by = schema::sorted_by(kind, self.columns(kind)).into_iter();
        let sorted_by: Vec<SortingColumn> = sorted_by
            .map(|leaf| SortingColumn {
                column_idx: leaf as i32,
                descending: false,
                nulls_first: false,
            })
            .collect();
        let metadata = metadata.into_iter().map(|(key, value)| {
            parquet::file::metadata::KeyValue::new(key.to_owned(), value.to_owned())
        });
        WriterProperties::builder()
            .set_writer_version(WriterVersion::PARQUET_1_0)
            .set_compression(self.options.compression.codec())
            .set_statistics_enabled(EnabledStatistics::Page)
            .set_created_by(concat!("tributary version ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_key_value_metadata(Some(metadata.collect()))
            .set_sorting_columns((!sorted_by.is_empty()).then_some(sorted_by))
            .set_max_row_group_row_count(Some(self.options.row_group_rows.max(1)))
            .build()
    }
}
