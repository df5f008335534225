//! The target for the tables of the `parquet` exporter.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::{Field, Row};
use prost::Message as _;
use tributary_otlp::Signal;
use tributary_otlp::room::Unbounded;
use tributary::exporters::parquet::table::{PageCompression, FileWriter, TableKind, Layout, TableOptions, Partition, ProfilesLayout, Promoted, Sink, AttributeOwner, Table, append};

use crate::generator::Entropy;
use crate::samples;
use crate::telemetry::request;

struct Tables {
    layout: Arc<Layout>,
    tables: BTreeMap<(TableKind, Partition), Table>,
}

impl Sink for Tables {
    fn table(&mut self, kind: TableKind, partition: &Partition) -> Option<&mut Table> {
        let table = self.tables.entry((kind, partition.clone()));
        Some(table.or_insert_with(|| Table::new(kind, &self.layout)))
    }
}

/// Every item of a valid request has a row in the file of its hour, by the reader of the library
/// `parquet`, and every referenced stack is present. An invalid request affects no other request.
pub fn parquet_table(input: &[u8]) {
    let (signal, valid, mut entropy) = request(input);
    let options = options(&mut entropy);
    let valid = match (signal, entropy.below(2)) {
        // Samples with stacks and names, which random requests seldom have.
        (Signal::Profiles, 1) => samples::request(input).encode_to_vec(),
        _ => valid,
    };
    let mut tables = Tables {
        layout: Arc::new(Layout::new(&options)),
        tables: BTreeMap::new(),
    };
    let layout = Arc::clone(&tables.layout);
    let by_service = entropy.below(2) == 1;
    // Rows of an invalid request may be in tables. Writing these tables must succeed.
    let before = match append(signal, input, &layout, by_service, &Unbounded, &mut tables) {
        Ok(()) if tributary_otlp::validate(signal, input).is_ok() => tributary_otlp::count(signal, input),
        _ => {
            read(&mut tables);
            0
        }
    };
    for _ in 0..2 {
        append(signal, &valid, &layout, by_service, &Unbounded, &mut tables).unwrap();
    }
    let read = read(&mut tables);
    let items = before + 2 * items(signal, &valid);
    let kind = match signal {
        Signal::Logs => TableKind::Logs,
        Signal::Traces => TableKind::Traces,
        Signal::Metrics => TableKind::Metrics,
        Signal::Profiles => TableKind::Profiles,
    };
    let rows = read.iter().filter(|row| row.kind == kind);
    assert_eq!(rows.count(), items, "{signal:?}");
    if options.profiles == ProfilesLayout::Stacks {
        let hashes = |kind| -> BTreeSet<&String> {
            let rows = read.iter().filter(|row| row.kind == kind);
            rows.filter_map(|row| row.stack.as_ref()).collect()
        };
        assert_eq!(hashes(TableKind::Profiles), hashes(TableKind::Stacks));
    }
}

fn items(signal: Signal, request: &[u8]) -> usize {
    match signal {
        Signal::Profiles => {
            let request = ExportProfilesServiceRequest::decode(request).unwrap();
            let scopes = request
                .resource_profiles
                .iter()
                .flat_map(|r| &r.scope_profiles);
            scopes
                .flat_map(|s| &s.profiles)
                .map(|p| p.samples.len())
                .sum()
        }
        _ => tributary_otlp::count(signal, request),
    }
}

fn options(entropy: &mut Entropy<'_>) -> TableOptions {
    let key = ["a", "service.name", ""][usize::from(entropy.below(3))];
    let source = [AttributeOwner::Item, AttributeOwner::Resource][usize::from(entropy.below(2))];
    let codecs = [
        PageCompression::None,
        PageCompression::Zstd(1),
        PageCompression::Lz4,
        PageCompression::Snappy,
    ];
    TableOptions {
        promoted: vec![Promoted {
            source,
            key: key.to_owned(),
        }],
        profiles: [ProfilesLayout::Wide, ProfilesLayout::Stacks][usize::from(entropy.below(2))],
        compression: codecs[usize::from(entropy.below(4))],
        bloom_filters: entropy.below(2) == 1,
        ..TableOptions::default()
    }
}

struct Found {
    kind: TableKind,
    stack: Option<String>,
}

/// Writes all tables, and reads them again.
fn read(tables: &mut Tables) -> Vec<Found> {
    let mut found = Vec::new();
    for ((kind, partition), table) in &mut tables.tables {
        let rows = table.rows();
        assert!(table.memory() >= rows);
        let mut file = FileWriter::new(*kind, &tables.layout, Vec::new()).unwrap();
        table.write(&mut file).unwrap();
        assert_eq!(table.rows(), 0);
        let (bytes, summary) = file.finish().unwrap();
        assert_eq!(
            (summary.rows, summary.bytes),
            (rows as u64, bytes.len() as u64)
        );
        let reader = SerializedFileReader::new(bytes::Bytes::from(bytes)).unwrap();
        let read: Vec<Row> = reader
            .get_row_iter(None)
            .unwrap()
            .map(Result::unwrap)
            .collect();
        assert_eq!(read.len(), rows);
        for row in read {
            let column = |name: &str| {
                row.get_column_iter()
                    .find(|(of, _)| *of == name)
                    .map(|(_, value)| value)
            };
            match (column("timestamp"), column("timestamp_nanos")) {
                (Some(Field::TimestampMicros(micros)), Some(Field::UInt(nanos))) => {
                    let time = i128::from(*micros) * 1000 + i128::from(*nanos);
                    // The time is written as signed and was sent as unsigned.
                    let time = (time as i64).cast_unsigned();
                    assert_eq!((time / 3_600_000_000_000).cast_signed(), partition.hour);
                }
                other => panic!("{other:?}"),
            }
            let stack = column("stack_hash").map(ToString::to_string);
            found.push(Found { kind: *kind, stack });
        }
    }
    found
}
