//! User options: the columns and their encoding.

use std::sync::{Arc, OnceLock};

use parquet::basic;
use parquet::errors::ParquetError;
use parquet::file::metadata::SortingColumn;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::schema::types::SchemaDescriptor;

use super::kind::TableKind;
use super::schema::{self, Column};

/// Options of a [`Layout`].
#[derive(Debug, Clone)]
pub struct TableOptions {
    /// Attributes with columns of their own, in addition to their entries in the maps.
    pub promoted: Vec<Promoted>,
    /// Layout of profiles.
    pub profiles: ProfilesLayout,
    /// Compression of pages.
    pub compression: PageCompression,
    /// Rows per row group in the writer's properties, for readers that use them. The owner of a
    /// table decides when it is written.
    pub row_group_rows: usize,
    /// Whether columns of ids have bloom filters.
    pub bloom_filters: bool,
}

impl Default for TableOptions {
    fn default() -> Self {
        TableOptions {
            promoted: Vec::new(),
            profiles: ProfilesLayout::Wide,
            compression: PageCompression::Zstd(3),
            row_group_rows: 128 * 1024,
            bloom_filters: true,
        }
    }
}

/// An attribute with a column of its own: a text, null in rows without the attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Promoted {
    /// Owner of the attribute.
    pub source: AttributeOwner,
    /// Key of the attribute.
    pub key: String,
}

/// Owner of an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttributeOwner {
    /// The resource.
    Resource,
    /// The log record, span, data point or sample.
    Item,
}

impl Promoted {
    /// Returns the name of the column: `resource_attribute_` or `attribute_`, followed by the key
    /// with `_` for all characters except letters and digits.
    pub fn column(&self) -> String {
        let prefix = match self.source {
            AttributeOwner::Resource => "resource_attribute_",
            AttributeOwner::Item => "attribute_",
        };
        let letter = |letter: char| match letter.is_ascii_alphanumeric() {
            true => letter.to_ascii_lowercase(),
            false => '_',
        };
        prefix.chars().chain(self.key.chars().map(letter)).collect()
    }

    /// Whether every row already has a column of that name.
    pub fn is_taken(&self) -> bool {
        schema::is_fixed(&self.column())
    }
}

/// Layout of profiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ProfilesLayout {
    /// A row per sample with all its frames.
    #[default]
    Wide,
    /// A row per sample with the hash of its stack, and a second table with a row per stack.
    Stacks,
}

/// Compression of pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageCompression {
    /// No compression.
    None,
    /// Zstandard at a level from 1 to 22.
    Zstd(i32),
    /// LZ4 blocks (`LZ4_RAW`).
    Lz4,
    /// Snappy blocks.
    Snappy,
}

impl PageCompression {
    pub(super) fn codec(self) -> basic::Compression {
        match self {
            PageCompression::None => basic::Compression::UNCOMPRESSED,
            PageCompression::Zstd(level) => {
                basic::Compression::ZSTD(basic::ZstdLevel::try_new(level).unwrap_or_default())
            }
            PageCompression::Lz4 => basic::Compression::LZ4_RAW,
            PageCompression::Snappy => basic::Compression::SNAPPY,
        }
    }
}

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
    /// first one wins. An attribute whose column [`is_taken`](Promoted::is_taken) is ignored.
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

    /// Returns the schema of files of that kind.
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
