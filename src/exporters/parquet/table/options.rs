//! Options of tables.

use parquet::basic;

/// Options of a `Layout`.
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

/// Layout of profiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ProfilesLayout {
    /// A row per sample with all its frames.
    #[default]
    Wide,
    /// A row per sample with the hash of its stack, and a second table with a row per stack.
    Stacks,
}

/// An attribute with a column of its own: a text, null in rows without the attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Promoted {
    /// Owner of the attribute.
    pub source: AttributeOwner,
    /// Key of the attribute.
    pub key: String,
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

/// Owner of an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttributeOwner {
    /// The resource.
    Resource,
    /// The log record, span, data point or sample.
    Item,
}
