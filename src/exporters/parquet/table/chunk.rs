//! Column chunks: levels and values in pages, with dictionaries, statistics, page indexes and bloom
//! filters.
//!
//! Pages have version 1, which every reader supports. A page consists of whole rows.

use bytes::Bytes;
use parquet::basic::{BoundaryOrder, Compression as Codec, Encoding, PageType, Type as Physical};
use parquet::bloom_filter::Sbbf;
use parquet::column::page::{CompressedPage, Page, PageWriter as _};
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::{ByteArray, FixedLenByteArray};
use parquet::file::metadata::{
    ColumnChunkMetaData, ColumnIndexBuilder, OffsetIndexBuilder, PageEncodingStats,
};
use parquet::file::statistics::{Statistics, ValueStatistics};
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;

use super::WriteError;
use super::bounds::Bounds;
use super::compress::Compressor;
use super::encoding::Hybrid;
use super::values::Encoder;

/// Maximum number of rows of a page: 20000 as in other writers, rounded down to a multiple of
/// [`LOOK_ROWS`].
pub(super) const PAGE_ROWS: usize = 20_000 / LOOK_ROWS * LOOK_ROWS;
/// Size before compression, in bytes, at which a page ends.
const PAGE_BYTES: usize = 1 << 20;
/// Compression must save at least one byte in this many.
const MIN_COMPRESSION_GAIN: usize = 32;
/// Rows between two checks of a page's total size, its levels included.
const LOOK_ROWS: usize = 64;

/// One column of one row group. The caller adds levels and values, and marks the ends of rows.
pub(super) struct Chunk<E> {
    descriptor: ColumnDescPtr,
    pub(super) encoder: E,
    /// The dictionary, until the first page is written.
    dictionary: Option<(Vec<u8>, u32)>,
    codec: Codec,
    output: TrackedWrite<Vec<u8>>,
    pub(super) repetition: Hybrid,
    pub(super) definition: Hybrid,
    /// Counts of the current page: rows, entries of the levels, and entries without a value.
    page_rows: usize,
    pub(super) levels: usize,
    pub(super) nulls: usize,
    /// Counts of the whole chunk.
    all_rows: usize,
    all_levels: usize,
    all_nulls: usize,
    uncompressed: usize,
    data_pages: i32,
    dictionary_offset: Option<i64>,
    first_data_page: Option<i64>,
    bounds: Option<Bounds>,
    /// Bounds of the last page, and whether the bounds have only grown so far.
    last: Option<Bounds>,
    ascending: bool,
    pages: OffsetIndexBuilder,
    index: ColumnIndexBuilder,
    scratch: Vec<u8>,
}

impl<E: Encoder> Chunk<E> {
    pub(super) fn new(descriptor: ColumnDescPtr, encoder: E, compressor: &Compressor) -> Self {
        let width = |level: i16| match level {
            0 => 0,
            1 => 1,
            _ => 2,
        };
        let mut chunk = Chunk {
            dictionary: encoder.dictionary(),
            codec: compressor.codec(),
            encoder,
            output: TrackedWrite::new(Vec::new()),
            repetition: Hybrid::new(width(descriptor.max_rep_level())),
            definition: Hybrid::new(width(descriptor.max_def_level())),
            page_rows: 0,
            levels: 0,
            nulls: 0,
            all_rows: 0,
            all_levels: 0,
            all_nulls: 0,
            uncompressed: 0,
            data_pages: 0,
            dictionary_offset: None,
            first_data_page: None,
            bounds: None,
            last: None,
            ascending: true,
            pages: OffsetIndexBuilder::new(),
            index: ColumnIndexBuilder::new(descriptor.physical_type()),
            scratch: Vec::new(),
            descriptor,
        };
        // Statistics of list elements do not help readers to skip data.
        if chunk.descriptor.max_rep_level() > 0 {
            chunk.index.to_invalid();
        }
        chunk
    }

    /// Compresses the first page. If compression saves nothing (random ids, columns with one
    /// value), the whole chunk stays uncompressed, which saves time when writing and reading.
    fn first_page(
        &mut self,
        page: &[u8],
        compressor: &mut Compressor,
    ) -> Result<Bytes, WriteError> {
        let dictionary = self.dictionary.take();
        let mut compressed = compressor.compress(page)?;
        let mut buf = match &dictionary {
            Some((dictionary, _)) => compressor.compress(dictionary)?,
            None => Bytes::new(),
        };
        let plain = page.len() + dictionary.as_ref().map_or(0, |(bytes, _)| bytes.len());
        if compressed.len() + buf.len() > plain - plain / MIN_COMPRESSION_GAIN {
            self.codec = Codec::UNCOMPRESSED;
            compressed = Bytes::copy_from_slice(page);
        }
        if let Some((dictionary, num_values)) = dictionary {
            let length = dictionary.len();
            if self.codec == Codec::UNCOMPRESSED {
                buf = dictionary.into();
            }
            let page = Page::DictionaryPage {
                buf,
                num_values,
                encoding: Encoding::PLAIN,
                is_sorted: false,
            };
            self.dictionary_offset = Some(self.write(page, length)?.0);
        }
        Ok(compressed)
    }

    /// A list without entries.
    pub(super) fn empty(&mut self) {
        self.repetition.push(0);
        self.definition.push(0);
        self.levels += 1;
        self.nulls += 1;
    }

    /// Returns how many equal rows may be added before the next check of the page's size; `bytes`
    /// returns the size of one row's values in the page.
    #[inline]
    pub(super) fn room(&self, rows: usize, bytes: impl FnOnce(&E) -> usize) -> usize {
        if rows == 1 {
            return 1;
        }
        let fit = PAGE_BYTES.saturating_sub(self.encoder.len()) / bytes(&self.encoder).max(1);
        let before_look = LOOK_ROWS - self.page_rows % LOOK_ROWS;
        rows.min(before_look).min(fit.max(1))
    }

    #[inline]
    pub(super) fn end_row(&mut self, compressor: &mut Compressor) -> Result<(), WriteError> {
        self.end_rows(1, compressor)
    }

    /// Ends as many rows as there is [`room`](Self::room) for, or fewer.
    #[inline]
    pub(super) fn end_rows(
        &mut self,
        rows: usize,
        compressor: &mut Compressor,
    ) -> Result<(), WriteError> {
        self.page_rows += rows;
        // Even a few rows may have megabytes each.
        let is_large = self.encoder.len() >= PAGE_BYTES;
        if is_large || self.page_rows.is_multiple_of(LOOK_ROWS) && self.is_full() {
            self.end_page(compressor)?;
        }
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.page_rows >= PAGE_ROWS
            || self.encoder.len() + self.repetition.len() + self.definition.len() >= PAGE_BYTES
    }

    fn end_page(&mut self, compressor: &mut Compressor) -> Result<(), WriteError> {
        if self.page_rows == 0 {
            return Ok(());
        }
        let mut page = std::mem::take(&mut self.scratch);
        page.clear();
        let levels = [
            (self.descriptor.max_rep_level(), &mut self.repetition),
            (self.descriptor.max_def_level(), &mut self.definition),
        ];
        for (max, levels) in levels {
            if max > 0 {
                let start = page.len();
                page.extend_from_slice(&[0; 4]);
                levels.finish(&mut page);
                let length = (page.len() - start - 4) as u32;
                page[start..start + 4].copy_from_slice(&length.to_le_bytes());
            }
        }
        self.encoder.finish(&mut page);
        let buf = match (self.data_pages, self.codec) {
            (0, _) => self.first_page(&page, compressor)?,
            (_, Codec::UNCOMPRESSED) => Bytes::copy_from_slice(&page),
            _ => compressor.compress(&page)?,
        };
        let data = Page::DataPage {
            buf,
            num_values: self.levels as u32,
            encoding: self.encoder.encoding(),
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        };
        let (offset, length) = self.write(data, page.len())?;
        self.scratch = page;
        self.data_pages += 1;
        self.first_data_page.get_or_insert(offset);
        self.pages.append_offset_and_size(offset, length);
        self.pages.append_row_count(self.page_rows as i64);
        let bounds = self.encoder.bounds();
        self.add_bounds(bounds);
        self.all_rows += self.page_rows;
        self.all_levels += self.levels;
        self.all_nulls += self.nulls;
        (self.page_rows, self.levels, self.nulls) = (0, 0, 0);
        Ok(())
    }

    /// Adds the smallest and the largest value of a page.
    fn add_bounds(&mut self, bounds: Option<Bounds>) {
        let null = self.nulls == self.levels;
        match &bounds {
            Some(bounds) if bounds.is_short() => {
                let (mut min, mut max) = bounds.to_bytes();
                if self.descriptor.physical_type() == Physical::INT32 {
                    min.truncate(4);
                    max.truncate(4);
                }
                self.index.append(null, min, max, self.nulls as i64, None);
            }
            None if null => {
                self.index
                    .append(true, Vec::new(), Vec::new(), self.nulls as i64, None);
            }
            _ => self.index.to_invalid(),
        }
        if let Some(bounds) = bounds {
            self.ascending &= self
                .last
                .as_ref()
                .is_none_or(|last| last.is_before(&bounds));
            match &mut self.bounds {
                Some(all) => all.add(&bounds),
                none => *none = Some(bounds.clone()),
            }
            self.last = Some(bounds);
        }
    }

    fn write(&mut self, page: Page, uncompressed: usize) -> Result<(i64, i32), WriteError> {
        let page = CompressedPage::new(page, uncompressed);
        let spec = SerializedPageWriter::new(&mut self.output).write_page(page)?;
        self.uncompressed += spec.uncompressed_size;
        Ok((spec.offset as i64, spec.bytes_written as i32))
    }

    pub(super) fn finish(
        mut self,
        page_index: bool,
        compressor: &mut Compressor,
    ) -> Result<(Bytes, ColumnCloseResult), WriteError> {
        self.end_page(compressor)?;
        let bytes = Bytes::from(self.output.into_inner()?);
        let encoding = self.encoder.encoding();
        let mut encodings = vec![encoding, Encoding::RLE];
        let mut stats = Vec::new();
        if self.dictionary_offset.is_some() {
            encodings.push(Encoding::PLAIN);
            stats.push(PageEncodingStats {
                page_type: PageType::DICTIONARY_PAGE,
                encoding: Encoding::PLAIN,
                count: 1,
            });
        }
        stats.push(PageEncodingStats {
            page_type: PageType::DATA_PAGE,
            encoding,
            count: self.data_pages,
        });
        let flat = self.descriptor.max_rep_level() == 0;
        let physical = self.descriptor.physical_type();
        let mut metadata = ColumnChunkMetaData::builder(self.descriptor)
            .set_compression(self.codec)
            .set_encodings(encodings)
            .set_total_compressed_size(bytes.len() as i64)
            .set_total_uncompressed_size(self.uncompressed as i64)
            .set_num_values(self.all_levels as i64)
            .set_data_page_offset(self.first_data_page.unwrap_or_default())
            .set_dictionary_page_offset(self.dictionary_offset);
        // The statistics say whether a dictionary contains all values, which readers use to skip
        // row groups. Small row groups are read as quickly.
        if page_index {
            metadata = metadata.set_page_encoding_stats(stats);
        }
        // The number of nulls is useful without bounds, too: the column of a missing attribute has
        // nothing else.
        if flat {
            let bounds = self.bounds.filter(Bounds::is_short);
            metadata = metadata.set_statistics(statistics(physical, bounds, self.all_nulls as u64));
        }
        if self.ascending {
            self.index.set_boundary_order(BoundaryOrder::ASCENDING);
        }
        let column_index = match self.index.valid() && page_index {
            true => Some(self.index.build()?),
            false => None,
        };
        let result = ColumnCloseResult {
            bytes_written: bytes.len() as u64,
            rows_written: self.all_rows as u64,
            metadata: metadata.build()?,
            bloom_filter: self.encoder.bloom_filter(),
            column_index,
            offset_index: page_index.then(|| self.pages.build()),
        };
        Ok((bytes, result))
    }
}

fn statistics(physical: Physical, bounds: Option<Bounds>, nulls: u64) -> Statistics {
    let (min, max) = bounds.map(|bounds| bounds.to_bytes()).unzip();
    let long = |bytes: &Vec<u8>| {
        let mut value = [0; 8];
        value
            .iter_mut()
            .zip(bytes)
            .for_each(|(to, from)| *to = *from);
        i64::from_le_bytes(value)
    };
    let double = |bytes: &Vec<u8>| f64::from_bits(long(bytes).cast_unsigned());
    let bytes = |bytes: Vec<u8>| ByteArray::from(bytes);
    match physical {
        Physical::INT32 => Statistics::Int32(ValueStatistics::new(
            min.as_ref().map(|min| long(min) as i32),
            max.as_ref().map(|max| long(max) as i32),
            None,
            Some(nulls),
            false,
        )),
        Physical::INT64 => Statistics::Int64(ValueStatistics::new(
            min.as_ref().map(long),
            max.as_ref().map(long),
            None,
            Some(nulls),
            false,
        )),
        Physical::FIXED_LEN_BYTE_ARRAY => Statistics::FixedLenByteArray(ValueStatistics::new(
            min.map(|min| FixedLenByteArray::from(bytes(min))),
            max.map(|max| FixedLenByteArray::from(bytes(max))),
            None,
            Some(nulls),
            false,
        )),
        Physical::DOUBLE => Statistics::Double(ValueStatistics::new(
            min.as_ref().map(double),
            max.as_ref().map(double),
            None,
            Some(nulls),
            false,
        )),
        Physical::BOOLEAN => {
            Statistics::Boolean(ValueStatistics::new(None, None, None, Some(nulls), false))
        }
        _ => Statistics::ByteArray(ValueStatistics::new(
            min.map(bytes),
            max.map(bytes),
            None,
            Some(nulls),
            false,
        )),
    }
}

/// Returns a bloom filter for that many values.
pub(super) fn bloom_filter(values: usize) -> Option<Sbbf> {
    /// Rate of false positives for absent values.
    const FALSE_POSITIVES: f64 = 0.01;
    Sbbf::new_with_ndv_fpp(values.max(1) as u64, FALSE_POSITIVES).ok()
}
