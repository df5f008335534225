//! Tests of the columns' encoding: guarantees for readers, and the size of small files.

use parquet::basic::{Compression as Codec, Encoding};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};
use parquet::file::statistics::Statistics;

use super::super::chunk::PAGE_ROWS;
use super::super::columns::FILTERED_IDS;
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

/// Writes a file with the given number of log records.
fn file(count: u64, record: impl Fn(u64) -> LogRecord) -> Bytes {
    let mut tables = Tables::new(&TableOptions::default());
    let records = (0..count).map(|at| LogRecord {
        time_unix_nano: START + at,
        ..record(at)
    });
    tables.append(Signal::Logs, &logs("a", records.collect()));
    tables.file(TableKind::Logs)
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
fn only_large_files_have_page_index() {
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
fn incompressible_chunks_are_not_compressed() {
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
    // Readers get the setting for each column chunk.
    let rows = rows(file);
    assert_eq!(rows.len(), 5000);
    assert_eq!(rows[4999]["body"], "\"request 4999 of the same client\"");
}

#[test]
fn repeated_texts_have_sorted_dictionary_and_bounds() {
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
fn unique_texts_are_written_plain() {
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
fn long_bounds_are_left_out() {
    let metadata = metadata(&file(10, |at| body(format!("{at}{}", "x".repeat(200)))));
    assert_eq!(bounds(column(&metadata, "body").statistics()), None);
}

#[test]
fn ids_of_traces_have_bloom_filters_if_wanted() {
    for bloom_filters in [true, false] {
        let mut tables = Tables::new(&TableOptions {
            bloom_filters,
            ..TableOptions::default()
        });
        let record = LogRecord {
            trace_id: vec![7; 16],
            ..LogRecord::default()
        };
        // With few ids, a search without a filter is as fast.
        for (rows, filtered) in [(FILTERED_IDS - 1, false), (FILTERED_IDS, bloom_filters)] {
            tables.append(Signal::Logs, &logs("a", vec![record.clone(); rows]));
            let metadata = metadata(&tables.file(TableKind::Logs));
            let offset = column(&metadata, "trace_id").bloom_filter_offset();
            assert_eq!(offset.is_some(), filtered);
            assert_eq!(column(&metadata, "span_id").bloom_filter_offset(), None);
        }
    }
}

/// The size of a long text in a file does not depend on the number of rows that share it.
#[test]
fn long_shared_texts_are_stored_once() {
    let mut tables = Tables::new(&TableOptions {
        compression: PageCompression::None,
        ..TableOptions::default()
    });
    const LENGTH: usize = 7 << 19;
    for number in 0..5 {
        let mut request = logs("a", vec![LogRecord::default(); 500]);
        let long = format!("{number}{}", "x".repeat(LENGTH));
        let resource = request.resource_logs[0].resource.as_mut().unwrap();
        resource.attributes.push(text("long", &long));
        tables.append(Signal::Logs, &request);
    }
    let file = tables.file(TableKind::Logs);
    assert!(file.len() < 6 * LENGTH, "{}", file.len());
}

#[test]
fn pages_of_long_texts_have_few_rows() {
    const LENGTH: usize = 200_000;
    let file = file(20, |at| body(format!("{at}{}", "x".repeat(LENGTH))));
    let reader = SerializedFileReader::new(file).unwrap();
    let group = reader.get_row_group(0).unwrap();
    let mut columns = group.metadata().columns().iter();
    let at = columns.position(|column| column.column_path().string() == "body");
    let mut pages = group.get_column_page_reader(at.unwrap()).unwrap();
    let mut rows = Vec::new();
    while let Some(page) = pages.get_next_page().unwrap() {
        rows.push(page.num_values());
    }
    // With the sixth text, the page has a mebibyte.
    assert_eq!(rows, [6, 6, 6, 2]);
}

#[test]
fn float_bounds_exclude_nan() {
    let points = |values: &[f64]| {
        let point = |value: &f64| metrics_proto::NumberDataPoint {
            time_unix_nano: START,
            value: Some(metrics_proto::number_data_point::Value::AsDouble(*value)),
            ..metrics_proto::NumberDataPoint::default()
        };
        let data = metrics_proto::metric::Data::Gauge(metrics_proto::Gauge {
            data_points: values.iter().map(point).collect(),
        });
        let request = ExportMetricsServiceRequest {
            resource_metrics: vec![metrics_proto::ResourceMetrics {
                resource: resource("a"),
                scope_metrics: vec![metrics_proto::ScopeMetrics {
                    metrics: vec![metrics_proto::Metric {
                        name: "m".to_owned(),
                        data: Some(data),
                        ..metrics_proto::Metric::default()
                    }],
                    ..metrics_proto::ScopeMetrics::default()
                }],
                ..metrics_proto::ResourceMetrics::default()
            }],
        };
        let mut tables = Tables::new(&TableOptions::default());
        tables.append(Signal::Metrics, &request);
        let metadata = metadata(&tables.file(TableKind::Metrics));
        let value = column(&metadata, "value");
        let bounds = bounds(value.statistics());
        bounds.map(|(min, max)| {
            let double = |bytes: &[u8]| f64::from_le_bytes(bytes.try_into().unwrap());
            (double(min), double(max))
        })
    };
    assert_eq!(points(&[2.5, f64::NAN, -1.5]), Some((-1.5, 2.5)));
    assert_eq!(points(&[f64::NAN]), None);
    // Readers tell zeros apart, so the bounds have both.
    let (min, max) = points(&[0.0]).unwrap();
    assert!(min.is_sign_negative() && max.is_sign_positive());
}

#[test]
fn empty_columns_have_null_counts() {
    let options = TableOptions {
        promoted: vec![Promoted {
            source: AttributeOwner::Item,
            key: "nobody.sends.it".to_owned(),
        }],
        ..TableOptions::default()
    };
    let mut tables = Tables::new(&options);
    tables.append(Signal::Logs, &logs("a", vec![LogRecord::default(); 3]));
    let metadata = metadata(&tables.file(TableKind::Logs));
    for name in ["attribute_nobody_sends_it", "body", "trace_id"] {
        let nulls = column(&metadata, name).statistics().unwrap();
        assert_eq!(nulls.null_count_opt(), Some(3), "{name}");
    }
}

#[test]
fn files_declare_sort_order() {
    let layout = Layout::new(&TableOptions::default());
    for (kind, expected) in [
        (TableKind::Logs, &["service_name", "timestamp"][..]),
        (TableKind::Traces, &["service_name", "timestamp"]),
        (
            TableKind::Metrics,
            &["service_name", "metric_name", "timestamp"],
        ),
        (
            TableKind::Profiles,
            &["service_name", "sample_type", "timestamp"],
        ),
    ] {
        let properties = layout.writer_properties(kind);
        let schema = layout.schema(kind).unwrap();
        let sorted = properties.sorting_columns().unwrap().iter();
        let names = sorted.map(|by| schema.column(by.column_idx as usize).name().to_owned());
        assert_eq!(names.collect::<Vec<_>>(), expected, "{kind:?}");
    }
    assert!(
        layout
            .writer_properties(TableKind::Stacks)
            .sorting_columns()
            .is_none()
    );
}
