//! Reads pprof files with a separate parser for tests, by `proto/profile.proto` of github.com/google/pprof.

use std::collections::{BTreeMap, HashMap};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use flate2::read::MultiGzDecoder;
use prost::Message;

use super::collector::BINARY;
use super::{Backend, Signal, Telemetry};

#[derive(Clone, PartialEq, Message)]
pub struct Profile {
    #[prost(message, repeated, tag = "1")]
    pub sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    pub sample: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    pub mapping: Vec<Mapping>,
    #[prost(message, repeated, tag = "4")]
    pub location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    pub function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    pub string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    pub time_nanos: i64,
    #[prost(int64, tag = "10")]
    pub duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    pub period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    pub period: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct ValueType {
    #[prost(int64, tag = "1")]
    pub kind: i64,
    #[prost(int64, tag = "2")]
    pub unit: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    pub location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    pub value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    pub label: Vec<Label>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Label {
    #[prost(int64, tag = "1")]
    pub key: i64,
    #[prost(int64, tag = "2")]
    pub text: i64,
    #[prost(int64, tag = "3")]
    pub number: i64,
    #[prost(int64, tag = "4")]
    pub unit: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Mapping {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(uint64, tag = "2")]
    pub start: u64,
    #[prost(uint64, tag = "3")]
    pub limit: u64,
    #[prost(uint64, tag = "4")]
    pub offset: u64,
    #[prost(int64, tag = "5")]
    pub filename: i64,
    #[prost(int64, tag = "6")]
    pub build_id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Location {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(uint64, tag = "2")]
    pub mapping_id: u64,
    #[prost(uint64, tag = "3")]
    pub address: u64,
    #[prost(message, repeated, tag = "4")]
    pub line: Vec<Line>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Line {
    #[prost(uint64, tag = "1")]
    pub function_id: u64,
    #[prost(int64, tag = "2")]
    pub line: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Function {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(int64, tag = "2")]
    pub name: i64,
    #[prost(int64, tag = "3")]
    pub system_name: i64,
    #[prost(int64, tag = "4")]
    pub filename: i64,
    #[prost(int64, tag = "5")]
    pub start_line: i64,
}

/// Sums of values by sample type, labels and stack, all by name. Zero sums are left out.
pub type Totals = BTreeMap<String, i64>;

/// A file, with or without gzip.
pub fn read(file: &[u8]) -> Profile {
    if !file.starts_with(&[0x1f, 0x8b]) {
        return Profile::decode(file).unwrap();
    }
    let mut bytes = Vec::new();
    MultiGzDecoder::new(file).read_to_end(&mut bytes).unwrap();
    Profile::decode(&*bytes).unwrap()
}

impl Profile {
    /// Adds the values of the file.
    pub fn add_to(&self, totals: &mut Totals) {
        let text = |index: i64| &*self.string_table[usize::try_from(index).unwrap()];
        let functions: HashMap<u64, &Function> =
            self.function.iter().map(|each| (each.id, each)).collect();
        let frame = |line: &Line| {
            let function = functions[&line.function_id];
            let (name, file) = (text(function.name), text(function.filename));
            format!("{name} {file}:{} {}", line.line, function.start_line)
        };
        let locations: HashMap<u64, String> = self
            .location
            .iter()
            .map(|location| {
                let lines: Vec<String> = location.line.iter().map(frame).collect();
                (
                    location.id,
                    format!("{:x} {}", location.address, lines.join(" < ")),
                )
            })
            .collect();
        let label = |label: &Label| {
            let (key, value, unit) = (text(label.key), text(label.text), text(label.unit));
            format!("{key}={value}{} {unit}", label.number)
        };
        for sample in &self.sample {
            let stack: Vec<&str> = sample
                .location_id
                .iter()
                .map(|id| &*locations[id])
                .collect();
            let mut labels: Vec<String> = sample.label.iter().map(label).collect();
            labels.sort();
            let key = format!("{} | {}", labels.join(", "), stack.join(" << "));
            assert_eq!(sample.value.len(), self.sample_type.len());
            for (kind, value) in self.sample_type.iter().zip(&sample.value) {
                let key = format!("{} {} | {key}", text(kind.kind), text(kind.unit));
                *totals.entry(key).or_default() += value;
            }
        }
    }
}

/// Returns the sums over all files.
pub fn totals<'f>(files: impl IntoIterator<Item = &'f [u8]>) -> Totals {
    let mut totals = Totals::new();
    for file in files {
        read(file).add_to(&mut totals);
    }
    totals.retain(|_, value| *value != 0);
    totals
}

/// Returns the profiles of a backend as pprof files, converted by `collector profiles convert`.
pub fn files_of(backend: &Backend) -> Vec<Vec<u8>> {
    let directory = tempfile::tempdir().unwrap();
    let mut files = Vec::new();
    let record = backend.record();
    for (number, telemetry) in record.telemetry(Signal::Profiles).enumerate() {
        let Telemetry::Profiles(request) = telemetry else {
            panic!("{telemetry:?}");
        };
        let place = |name: String| directory.path().join(name);
        let (data, out) = (place(format!("{number}.otlp")), place(number.to_string()));
        // A request has the fields of `ProfilesData`.
        std::fs::write(&data, request.encode_to_vec()).unwrap();
        std::fs::create_dir(&out).unwrap();
        let mut convert = Command::new(BINARY);
        convert.args(["profiles", "convert", "--to", "pprof", "-o"]);
        let output = convert.arg(&out).arg(&data).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        let mut written: Vec<PathBuf> = below(&out);
        written.sort();
        files.extend(written.iter().map(|file| std::fs::read(file).unwrap()));
    }
    files
}

fn below(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// The sum of all values a backend has.
pub fn sum(record: &super::backend::Record) -> i64 {
    let requests = record.telemetry(Signal::Profiles);
    let values = requests.map(|telemetry| match telemetry {
        Telemetry::Profiles(request) => {
            let scopes = request
                .resource_profiles
                .iter()
                .flat_map(|r| &r.scope_profiles);
            let samples = scopes.flat_map(|s| &s.profiles).flat_map(|p| &p.samples);
            samples.flat_map(|sample| &sample.values).sum()
        }
        _ => 0,
    });
    values.sum()
}
