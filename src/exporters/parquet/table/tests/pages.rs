//! How columns are written: what readers rely on, and what keeps small files small.

use parquet::basic::{Compression as Codec, Encoding};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};
use parquet::file::statistics::Statistics;

use super::super::chunk::PAGE_ROWS;
use super::super::texts::SORTED_ENTRIES;
use super::*;

fn metadata(file: &Bytes) -> ParquetMetaData {
    let reader = ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Optional);
    reader.parse_and_finish(file).unwrap()
}

fn column<'m>(metadata: &'m ParquetMetaData, name: &str) -> &'m ColumnChunkMetaData {
    let columns = metadata.row_group(0).columns();
    let found = columns
        .iter()
        .find(|column| column.column_path().string().split('.').next() == Some(name));
    found.unwrap()
}

/// A file of so many log records.
fn file(count: u64, record: impl Fn(u64) -> LogRecord) -> Bytes {
    let mut tables = Tables::new(&Options::default());
    let records = (0..count).map(|at| LogRecord {
        time_unix_nano: START + at,
        ..record(at)
    });
    tables.append(Signal::Logs, &logs("a", records.collect()));
    tables.file(Kind::Logs)
}

fn body(text: String) -> LogRecord {
    LogRecord {
        body: Some(any(Value::StringValue(text))),
        ..LogRecord::default()
    }
}

fn bounds(statistics: Option<&Statistics>) -> Option<(&[u8], &[u8])> {
    let statistics = statistics?;
    statistics.min_bytes_opt().zip(statistics.max_bytes_opt())
}

#[test]
fn files_of_many_rows_say_where_pages_are_and_small_ones_do_not() {
    for (rows, is_indexed) in [(4095, false), (4096, true), (45_000, true)] {
        let metadata = metadata(&file(rows, |at| body(at.to_string())));
        let time = column(&metadata, "timestamp");
        assert_eq!(time.offset_index_offset().is_some(), is_indexed, "{rows}");
        assert_eq!(time.column_index_offset().is_some(), is_indexed, "{rows}");
        if is_indexed {
            let index = metadata.page_index_for_row_group(0);
            let pages = index.page_locations(0).unwrap();
            assert_eq!(pages.len(), (rows as usize).div_ceil(PAGE_ROWS));
            let first_rows = pages.iter().map(|page| page.first_row_index);
            let expected = (0..pages.len()).map(|page| (page * PAGE_ROWS) as i64);
            assert!(first_rows.eq(expected));
        }
    }
}

#[test]
fn chunks_that_compression_does_not_make_smaller_are_not_compressed() {
    let file = file(5000, |at| LogRecord {
        trace_id: xxhash_rust::xxh3::xxh3_128(&at.to_le_bytes())
            .to_le_bytes()
            .to_vec(),
        ..body(format!("request {at} of the same client"))
    });
    let metadata = metadata(&file);
    let codec = |name| column(&metadata, name).compression();
    assert!(matches!(codec("body"), Codec::ZSTD(_)));
    assert_eq!(codec("trace_id"), Codec::UNCOMPRESSED);
    assert_eq!(codec("severity_number"), Codec::UNCOMPRESSED);
    // Readers are told chunk by chunk.
    let rows = rows(file);
    assert_eq!(rows.len(), 5000);
    assert_eq!(rows[4999]["body"], "\"request 4999 of the same client\"");
}

#[test]
fn texts_that_repeat_have_a_sorted_dictionary_and_bounds() {
    let metadata = metadata(&file(5000, |at| body(format!("message {}", 9 - at % 10))));
    let column = column(&metadata, "body");
    assert!(column.dictionary_page_offset().is_some());
    let expected = (&b"message 0"[..], &b"message 9"[..]);
    assert_eq!(bounds(column.statistics()), Some(expected));
}

#[test]
fn large_dictionaries_are_not_sorted_and_have_no_bounds() {
    // Each name in two rows: worth a dictionary, and more than are sorted.
    let names = SORTED_ENTRIES as u64 + 1;
    let name = |at: u64| format!("a rather long name with the number {}", at % names);
    let file = file(2 * names, |at| LogRecord {
        event_name: name(at),
        ..LogRecord::default()
    });
    let metadata = metadata(&file);
    let column = column(&metadata, "event_name");
    assert!(column.dictionary_page_offset().is_some());
    assert_eq!(bounds(column.statistics()), None);
    for (at, row) in rows(file).iter().enumerate() {
        assert_eq!(row["event_name"], format!("\"{}\"", name(at as u64)));
    }
}

#[test]
fn texts_that_do_not_repeat_are_written_as_they_are() {
    let metadata = metadata(&file(2000, |at| body(format!("message {at}"))));
    let column = column(&metadata, "body");
    assert_eq!(column.dictionary_page_offset(), None);
    assert!(
        column
            .encodings()
            .any(|encoding| encoding == Encoding::PLAIN)
    );
}

#[test]
fn bounds_longer_than_they_are_worth_are_left_out() {
    let metadata = metadata(&file(10, |at| body(format!("{at}{}", "x".repeat(200)))));
    assert_eq!(bounds(column(&metadata, "body").statistics()), None);
}

#[test]
fn ids_of_traces_have_bloom_filters_if_wanted() {
    for bloom_filters in [true, false] {
        let mut tables = Tables::new(&Options {
            bloom_filters,
            ..Options::default()
        });
        let record = LogRecord {
            trace_id: vec![7; 16],
            ..LogRecord::default()
        };
        tables.append(Signal::Logs, &logs("a", vec![record]));
        let metadata = metadata(&tables.file(Kind::Logs));
        let offset = column(&metadata, "trace_id").bloom_filter_offset();
        assert_eq!(offset.is_some(), bloom_filters);
        assert_eq!(column(&metadata, "span_id").bloom_filter_offset(), None);
    }
}
