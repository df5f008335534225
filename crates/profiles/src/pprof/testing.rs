//! Generated pprof files for tests, and an independent reader by `profile.proto` and pprof's rules for labels.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    missing_docs,
    unreachable_pub,
    dead_code,
    reason = "helpers for tests of this crate and others: a panic is a finding"
)]

use std::collections::BTreeMap;

use proptest::prelude::*;

/// `Profile` of profile.proto; strings are bytes, because real strings are not always UTF-8.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PprofFile {
    #[prost(message, repeated, tag = "1")]
    pub sample_type: Vec<PprofValueType>,
    #[prost(message, repeated, tag = "2")]
    pub sample: Vec<PprofSample>,
    #[prost(message, repeated, tag = "3")]
    pub mapping: Vec<PprofMapping>,
    #[prost(message, repeated, tag = "4")]
    pub location: Vec<PprofLocation>,
    #[prost(message, repeated, tag = "5")]
    pub function: Vec<PprofFunction>,
    #[prost(bytes = "vec", repeated, tag = "6")]
    pub string_table: Vec<Vec<u8>>,
    #[prost(int64, tag = "7")]
    pub drop_frames: i64,
    #[prost(int64, tag = "8")]
    pub keep_frames: i64,
    #[prost(int64, tag = "9")]
    pub time_nanos: i64,
    #[prost(int64, tag = "10")]
    pub duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    pub period_type: Option<PprofValueType>,
    #[prost(int64, tag = "12")]
    pub period: i64,
    #[prost(int64, repeated, tag = "13")]
    pub comment: Vec<i64>,
    #[prost(int64, tag = "14")]
    pub default_sample_type: i64,
    #[prost(int64, tag = "15")]
    pub doc_url: i64,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct PprofValueType {
    #[prost(int64, tag = "1")]
    pub kind: i64,
    #[prost(int64, tag = "2")]
    pub unit: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct PprofSample {
    #[prost(uint64, repeated, tag = "1")]
    pub location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    pub value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    pub label: Vec<Label>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Label {
    #[prost(int64, tag = "1")]
    pub key: i64,
    #[prost(int64, tag = "2")]
    pub text: i64,
    #[prost(int64, tag = "3")]
    pub num: i64,
    #[prost(int64, tag = "4")]
    pub num_unit: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct PprofMapping {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(uint64, tag = "2")]
    pub memory_start: u64,
    #[prost(uint64, tag = "3")]
    pub memory_limit: u64,
    #[prost(uint64, tag = "4")]
    pub file_offset: u64,
    #[prost(int64, tag = "5")]
    pub filename: i64,
    #[prost(int64, tag = "6")]
    pub build_id: i64,
    #[prost(bool, tag = "7")]
    pub has_functions: bool,
    #[prost(bool, tag = "8")]
    pub has_filenames: bool,
    #[prost(bool, tag = "9")]
    pub has_line_numbers: bool,
    #[prost(bool, tag = "10")]
    pub has_inline_frames: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct PprofLocation {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(uint64, tag = "2")]
    pub mapping_id: u64,
    #[prost(uint64, tag = "3")]
    pub address: u64,
    #[prost(message, repeated, tag = "4")]
    pub line: Vec<PprofLine>,
    #[prost(bool, tag = "5")]
    pub is_folded: bool,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct PprofLine {
    #[prost(uint64, tag = "1")]
    pub function_id: u64,
    #[prost(int64, tag = "2")]
    pub line: i64,
    #[prost(int64, tag = "3")]
    pub column: i64,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct PprofFunction {
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

/// Content of a file.
#[derive(Debug, PartialEq)]
pub struct PprofContent {
    header: String,
    /// Values by stack and labels.
    pub samples: BTreeMap<(Vec<String>, String), Vec<i64>>,
}

impl PprofFile {
    fn text(&self, index: i64) -> String {
        let bytes = &self.string_table[usize::try_from(index).unwrap()];
        String::from_utf8_lossy(bytes).into_owned()
    }

    fn value_type(&self, from: &PprofValueType) -> (String, String) {
        (self.text(from.kind), self.text(from.unit))
    }

    fn frame(&self, id: u64) -> String {
        let location = self.location.iter().find(|location| location.id == id);
        let location = location.unwrap();
        let mapping = self
            .mapping
            .iter()
            .find(|mapping| mapping.id == location.mapping_id);
        let mapping = mapping.map(|mapping| {
            let mut nameless = mapping.clone();
            (nameless.id, nameless.filename, nameless.build_id) = (0, 0, 0);
            let names = (self.text(mapping.filename), self.text(mapping.build_id));
            (nameless, names)
        });
        let lines = location.line.iter().map(|line| {
            let function = self
                .function
                .iter()
                .find(|other| other.id == line.function_id);
            let function = function.unwrap();
            let names = [function.name, function.system_name, function.filename];
            let names = names.map(|name| self.text(name));
            (names, function.start_line, line.line, line.column)
        });
        let lines: Vec<_> = lines.collect();
        let (address, folded) = (location.address, location.is_folded);
        format!("{address:x} {folded} {lines:?} {mapping:?}")
    }

    fn labels(&self, sample: &PprofSample) -> String {
        let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut numbers: BTreeMap<String, Vec<(i64, String)>> = BTreeMap::new();
        for label in &sample.label {
            let key = self.text(label.key);
            if label.text != 0 {
                texts.entry(key).or_default().push(self.text(label.text));
            } else if label.num != 0 || label.num_unit != 0 {
                let number = (label.num, self.text(label.num_unit));
                numbers.entry(key).or_default().push(number);
            }
        }
        format!("{texts:?} {numbers:?}")
    }

    /// Returns the content as pprof sees it, with equal samples added up and samples of zeros removed.
    pub fn meaning(&self) -> PprofContent {
        let types: Vec<_> = self
            .sample_type
            .iter()
            .map(|kind| self.value_type(kind))
            .collect();
        let period = self.period_type.as_ref().map(|kind| self.value_type(kind));
        let texts = [
            self.drop_frames,
            self.keep_frames,
            self.default_sample_type,
            self.doc_url,
        ];
        let texts = texts.map(|index| self.text(index));
        let comments: Vec<_> = self.comment.iter().map(|index| self.text(*index)).collect();
        let numbers = (self.time_nanos, self.duration_nanos, self.period);
        let mut samples: BTreeMap<_, Vec<i64>> = BTreeMap::new();
        for sample in &self.sample {
            let stack: Vec<String> = sample
                .location_id
                .iter()
                .map(|id| self.frame(*id))
                .collect();
            let sums = samples.entry((stack, self.labels(sample))).or_default();
            sums.resize(types.len(), 0);
            for (sum, value) in sums.iter_mut().zip(&sample.value) {
                *sum += value;
            }
        }
        samples.retain(|_, sums| sums.iter().any(|sum| *sum != 0));
        PprofContent {
            header: format!("{types:?} {period:?} {texts:?} {comments:?} {numbers:?}"),
            samples,
        }
    }
}

const WORDS: [&str; 12] = [
    "",
    "main",
    "alloc",
    "a.go",
    "cpu",
    "bytes",
    "thread",
    "abcdef0123",
    "x/y/z",
    "trace_id",
    "span_id",
    "[vdso]",
];
/// A trace id and a span id, appended to the words.
const IDS: [&str; 2] = ["0102030405060708090a0b0c0d0e0f10", "00000000000000a1"];

/// Generates valid files that OTLP can represent without repairs.
pub fn files() -> impl Strategy<Value = PprofFile> {
    proptest::collection::vec(any::<u8>(), 0..600).prop_map(|bytes| file(&bytes))
}

fn file(bytes: &[u8]) -> PprofFile {
    let mut rest = bytes.iter().copied();
    let mut below = |bound: u8| rest.next().unwrap_or_default() % bound.max(1);
    let words = u8::try_from(WORDS.len()).unwrap();
    let mut file = PprofFile::default();
    let strings = WORDS.iter().chain(&IDS);
    file.string_table = strings.map(|word| word.as_bytes().to_vec()).collect();
    for at in 0..1 + below(3) {
        file.sample_type.push(PprofValueType {
            kind: i64::from(1 + at),
            unit: below(words).into(),
        });
    }
    // Ids need not be sorted or consecutive.
    let step = 1 + u64::from(below(3));
    for id in 1..=u64::from(below(4)) {
        let memory_start = 0x1_0000 * id;
        file.mapping.push(PprofMapping {
            id: id * step,
            memory_start,
            memory_limit: memory_start + 0x1000,
            file_offset: 0x1000 * u64::from(below(2)),
            filename: below(words).into(),
            build_id: 7 + i64::from(below(2)),
            has_functions: below(2) == 1,
            has_filenames: below(2) == 1,
            has_line_numbers: below(2) == 1,
            has_inline_frames: below(2) == 1,
        });
    }
    let functions = 1 + below(6);
    for id in 1..=functions {
        file.function.push(PprofFunction {
            id: u64::from(id) * step,
            name: 1 + i64::from(below(words - 1)),
            system_name: below(words).into(),
            filename: below(words).into(),
            start_line: below(3).into(),
        });
    }
    let locations = below(8);
    for id in 1..=locations {
        let mapping = file.mapping.get(usize::from(below(4)));
        let (mapping_id, start) = mapping.map_or((0, 0), |m| (m.id, m.memory_start));
        let lines = (0..below(3)).map(|_| PprofLine {
            function_id: u64::from(1 + below(functions)) * step,
            line: below(4).into(),
            column: below(2).into(),
        });
        let line = lines.collect();
        file.location.push(PprofLocation {
            id: u64::from(id) * step,
            mapping_id,
            address: start + u64::from(below(5)),
            line,
            is_folded: below(8) == 1,
        });
    }
    for _ in 0..1 + below(9) {
        let depth = if locations == 0 { 0 } else { below(5) };
        let location_id = (0..depth)
            .map(|_| u64::from(1 + below(locations)) * step)
            .collect();
        let value = (0..file.sample_type.len())
            .map(|_| i64::from(below(4)) - 1)
            .collect();
        let mut label: Vec<Label> = (0..below(5))
            .map(|_| Label {
                key: 1 + i64::from(below(words - 1)),
                text: below(3).into(),
                num: i64::from(below(4)) - 1,
                num_unit: below(3).into(),
            })
            .collect();
        if below(3) == 1 {
            let id = |key, text| Label {
                key,
                text,
                ..Label::default()
            };
            label.push(id(9, words.into()));
            label.push(id(10, i64::from(words) + 1));
        }
        file.sample.push(PprofSample {
            location_id,
            value,
            label,
        });
    }
    file.period_type = Some(PprofValueType {
        kind: 4,
        unit: below(words).into(),
    });
    file.period = below(100).into();
    file.time_nanos = below(100).into();
    file.duration_nanos = below(100).into();
    file.comment = (0..below(3)).map(|_| below(words).into()).collect();
    file.default_sample_type = below(3).into();
    file.drop_frames = below(2).into();
    file.keep_frames = below(2).into();
    file.doc_url = below(2).into();
    file
}
