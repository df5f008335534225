//! Properties of all pprof files, and errors for invalid ones.

use flate2::Compression;
use flate2::write::GzEncoder;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use proptest::prelude::*;
use prost::Message as _;
use std::io::Write as _;

use super::super::check::check;
use super::super::dictionary::Dictionary;
use super::super::ingest::ingest;
use super::super::merge::{self, Merger};
use super::super::model::{Profiles, ResourceProfiles};
use super::super::reindex::CopiedEntries;
use super::testing::{
    Label, PprofFile, PprofFunction, PprofLine, PprofLocation, PprofSample, PprofValueType, files,
};
use super::write::write;
use super::{Converted, Error, FileTable, LinkLabels, PprofReader, ReadOptions, Repairs};
use tributary_memory::Budget;

fn read_with(bytes: &[u8], options: &ReadOptions) -> Result<(Profiles, Converted), Error> {
    let mut dictionary = Dictionary::new();
    let budget = Budget::new(1 << 24);
    let mut permit = budget.acquire(7).unwrap();
    let read = PprofReader::new().read(bytes, options, &mut permit, &mut dictionary, None);
    assert_eq!(permit.bytes(), 7);
    let converted = read?;
    let profiles = Profiles {
        dictionary,
        resources: vec![resource(&converted)],
    };
    Ok((profiles, converted))
}

fn resource(converted: &Converted) -> ResourceProfiles {
    ResourceProfiles {
        scopes: vec![converted.profiles.clone()],
        ..ResourceProfiles::default()
    }
}

fn read(file: &PprofFile) -> Result<(Profiles, Converted), Error> {
    read_with(&file.encode_to_vec(), &ReadOptions::default())
}

fn error(file: &PprofFile) -> Error {
    read(file).unwrap_err()
}

/// Converts to a file through encoded OTLP.
fn back(profiles: &Profiles) -> PprofFile {
    let mut dictionary = Dictionary::new();
    let memo = &mut CopiedEntries::default();
    let ingested = ingest(&profiles.encode(), &mut dictionary, memo, None).unwrap();
    let resources = ingested.resources;
    let resource = &resources[0];
    let files = write(
        &dictionary,
        resource,
        &resource.scopes[0],
        &LinkLabels::default(),
    );
    assert_eq!(files.len(), 1);
    PprofFile::decode(files[0].as_slice()).unwrap()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Returns a file with two samples of one stack.
fn small() -> PprofFile {
    let strings = ["", "cpu", "nanoseconds", "main", "key", "one", "two"];
    PprofFile {
        sample_type: vec![PprofValueType { kind: 1, unit: 2 }],
        sample: vec![sample(&[5], &[]), sample(&[6], &[])],
        location: vec![PprofLocation {
            id: 1,
            line: vec![PprofLine {
                function_id: 1,
                line: 3,
                column: 0,
            }],
            ..PprofLocation::default()
        }],
        function: vec![PprofFunction {
            id: 1,
            name: 3,
            ..PprofFunction::default()
        }],
        string_table: strings.map(|text| text.as_bytes().to_vec()).to_vec(),
        period_type: Some(PprofValueType { kind: 1, unit: 2 }),
        ..PprofFile::default()
    }
}

fn sample(value: &[i64], label: &[Label]) -> PprofSample {
    PprofSample {
        location_id: vec![1],
        value: value.to_vec(),
        label: label.to_vec(),
    }
}

#[test]
fn location_hint_is_used_only_if_content_is_equal() {
    let mut base = small();
    base.location[0].address = 0x1234;
    let mut variants = vec![base.clone()];
    let mut variant = |change: fn(&mut PprofFile)| {
        let mut file = base.clone();
        change(&mut file);
        variants.push(file);
    };
    variant(|file| file.location[0].address = 0x1235);
    variant(|file| file.location[0].is_folded = true);
    variant(|file| file.location[0].line.clear());
    variant(|file| file.location[0].line[0].line = 4);
    variant(|file| file.location[0].line[0].column = 1);
    variant(|file| {
        let line = file.location[0].line[0];
        file.location[0].line.push(line);
    });
    variant(|file| file.function[0].name = 4);
    variant(|file| file.function[0].system_name = 3);
    variant(|file| file.function[0].filename = 3);
    variant(|file| file.function[0].start_line = 2);
    variant(|file| file.string_table[3] = b"maim".to_vec());
    variant(|file| file.string_table[3] = b"mai".to_vec());
    let budget = Budget::new(1 << 24);
    for first in &variants {
        for second in &variants {
            let mut merger = Merger::new(merge::MergeOptions::default());
            let mut encoded = Merger::new(merge::MergeOptions::default());
            let mut reader = PprofReader::new();
            for file in [first, second] {
                let (dictionary, relocations) = merger.dictionary();
                let mut permit = budget.acquire(0).unwrap();
                let (bytes, options) = (file.encode_to_vec(), ReadOptions::default());
                let read =
                    reader.read(&bytes, &options, &mut permit, dictionary, Some(relocations));
                merger.add_profiles(&[resource(&read.unwrap())]);
                let alone = read_with(&bytes, &options).unwrap().0.encode();
                encoded.add_encoded(&alone).unwrap();
            }
            let mut expected = first.meaning().samples;
            for (key, values) in second.meaning().samples {
                let sums = expected.entry(key).or_insert_with(|| vec![0]);
                sums[0] += values[0];
            }
            assert_eq!(back(&merger.finish()).meaning().samples, expected);
            assert_eq!(back(&encoded.finish()).meaning().samples, expected);
        }
    }
}

proptest! {
    #[test]
    fn file_round_trips_without_broken_rules(file in files()) {
        let (profiles, converted) = read(&file).unwrap();
        prop_assert!(converted.repairs.is_empty());
        let meaning = file.meaning();
        // A file without samples leaves no profile to compare.
        if !meaning.samples.is_empty() {
            let request = ExportProfilesServiceRequest::decode(profiles.encode()).unwrap();
            let report = check(&request);
            prop_assert!(report.is_clean(), "{:?}", report.findings());
        }
        prop_assert_eq!(back(&profiles).meaning(), meaning);
    }

    #[test]
    fn merge_adds_values_of_files(file in files(), times in 1..4_i64) {
        let mut merger = Merger::new(merge::MergeOptions::default());
        let mut reader = PprofReader::new();
        let budget = Budget::new(1 << 24);
        let bytes = gzip(&file.encode_to_vec());
        for _ in 0..times {
            let (dictionary, relocations) = merger.dictionary();
            let mut permit = budget.acquire(0).unwrap();
            let options = ReadOptions::default();
            let read = reader.read(&bytes, &options, &mut permit, dictionary, Some(relocations));
            merger.add_profiles(&[resource(&read.unwrap())]);
        }
        let merged: i64 = back(&merger.finish()).meaning().samples.values().flatten().sum();
        let one: i64 = file.meaning().samples.values().flatten().sum();
        prop_assert_eq!(merged, one * times);
    }

    #[test]
    fn damaged_request_is_refused_or_well_formed(
        file in files(),
        damage in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..4),
        cut in any::<usize>(),
    ) {
        let mut bytes = file.encode_to_vec();
        for (at, mask) in damage {
            let at = at % bytes.len();
            bytes[at] ^= mask;
        }
        for bytes in [&bytes[..], &bytes[..cut % bytes.len()]] {
            if let Ok((profiles, _)) = read_with(bytes, &ReadOptions::default()) {
                // With debug assertions, encoding checks the structure.
                let _ = profiles.encode();
                let scope = &profiles.resources[0].scopes[0];
                let links = LinkLabels::default();
                for file in write(&profiles.dictionary, &profiles.resources[0], scope, &links) {
                    prop_assert!(read_with(&file, &ReadOptions::default()).is_ok());
                }
            }
        }
    }
}

#[test]
fn equal_samples_are_added_with_saturation() {
    let (profiles, _) = read(&small()).unwrap();
    let values: Vec<_> = profiles.iter().flat_map(|p| p.samples.iter()).collect();
    assert_eq!(values.len(), 1);
    assert_eq!(values[0].values, [11]);
    let mut file = small();
    file.sample = vec![sample(&[i64::MAX], &[]), sample(&[1], &[])];
    let (_, converted) = read(&file).unwrap();
    assert_eq!(converted.repairs.saturated, 1);
}

#[test]
fn sample_type_without_values_is_kept() {
    let mut file = small();
    file.sample_type.push(PprofValueType { kind: 3, unit: 2 });
    file.sample = vec![sample(&[5, 0], &[])];
    let (profiles, _) = read(&file).unwrap();
    assert_eq!(
        profiles.iter().map(|p| p.samples.len()).collect::<Vec<_>>(),
        [1, 1]
    );
    assert_eq!(back(&profiles).meaning(), file.meaning());
}

#[test]
fn link_needs_both_trace_and_span_label() {
    let mut file = small();
    let strings = [
        "trace_id",
        "span_id",
        "0102030405060708090a0b0c0d0e0f10",
        "00000000000000a1",
    ];
    file.string_table
        .extend(strings.map(|text| text.as_bytes().to_vec()));
    let label = |key, text| Label {
        key,
        text,
        ..Label::default()
    };
    let links = |labels: &[Label]| {
        let mut file = file.clone();
        file.sample = vec![sample(&[5], labels)];
        let (profiles, _) = read(&file).unwrap();
        assert_eq!(back(&profiles).meaning(), file.meaning());
        let sample = profiles
            .iter()
            .next()
            .unwrap()
            .samples
            .iter()
            .next()
            .unwrap();
        profiles.dictionary.get_link(sample.key.link).span_id[7]
    };
    assert_eq!(links(&[label(7, 9), label(8, 10)]), 0xa1);
    assert_eq!(links(&[label(8, 10)]), 0);
    // Two span ids, and an invalid one.
    assert_eq!(links(&[label(7, 9), label(8, 10), label(8, 10)]), 0);
    assert_eq!(links(&[label(7, 9), label(8, 5)]), 0);
}

#[test]
fn invalid_utf8_and_negative_numbers_are_repaired() {
    let mut file = small();
    file.string_table[3] = b"ma\xffin".to_vec();
    file.period = -1;
    file.time_nanos = i64::MIN;
    file.location[0].line[0].line = -7;
    file.sample[0].label = vec![Label {
        text: 5,
        ..Label::default()
    }];
    let (profiles, converted) = read(&file).unwrap();
    let expected = Repairs {
        strings: 1,
        negative: 3,
        labels: 1,
        ..Repairs::default()
    };
    assert_eq!(converted.repairs, expected);
    let file = back(&profiles);
    assert!(
        file.string_table
            .contains(&"ma\u{fffd}in".as_bytes().to_vec())
    );
}

#[test]
fn integers_may_be_packed_or_not() {
    let mut file = small();
    file.sample.clear();
    let mut bytes = file.encode_to_vec();
    // Location 1 twice and the value 5, as separate fields.
    bytes.extend_from_slice(&[0x12, 6, 0x08, 1, 0x08, 1, 0x10, 5]);
    let (profiles, _) = read_with(&bytes, &ReadOptions::default()).unwrap();
    let sample = profiles
        .iter()
        .next()
        .unwrap()
        .samples
        .iter()
        .next()
        .unwrap();
    assert_eq!(profiles.dictionary.locations(sample.key.stack).len(), 2);
    assert_eq!(sample.values, [5]);
}

#[test]
fn original_file_is_kept_on_request_only() {
    let bytes = gzip(&small().encode_to_vec());
    let original = |keep_original| {
        let options = ReadOptions {
            keep_original,
            ..ReadOptions::default()
        };
        let (profiles, _) = read_with(&bytes, &options).unwrap();
        profiles.iter().next().unwrap().header.original.clone()
    };
    assert_eq!(original(false), None);
    assert_eq!(original(true), Some(("pprof".to_owned(), bytes.clone())));
}

#[test]
fn every_wrong_index_is_named() {
    let broken = |change: &dyn Fn(&mut PprofFile)| {
        let mut file = small();
        change(&mut file);
        error(&file)
    };
    let dangling = |table, id| Error::Dangling { table, id };
    assert_eq!(
        broken(&|f| f.sample[0].location_id[0] = 9),
        dangling(FileTable::Location, 9)
    );
    assert_eq!(
        broken(&|f| f.location[0].line[0].function_id = 8),
        dangling(FileTable::Function, 8)
    );
    assert_eq!(
        broken(&|f| f.function[0].name = 70),
        dangling(FileTable::String, 70)
    );
    assert_eq!(
        broken(&|f| f.function[0].name = -1),
        dangling(FileTable::String, u64::MAX)
    );
    assert_eq!(
        broken(&|f| f.location[0].id = 0),
        Error::NoId(FileTable::Location)
    );
    let same = Error::SameId {
        table: FileTable::Function,
        id: 1,
    };
    assert_eq!(broken(&|f| f.function.push(f.function[0])), same);
    let values = Error::Values {
        values: 2,
        types: 1,
    };
    assert_eq!(broken(&|f| f.sample[1].value.push(1)), values);
    assert_eq!(broken(&|f| f.sample_type.clear()), Error::NoSampleTypes);
    assert_eq!(
        broken(&|f| f.string_table[0] = b"x".to_vec()),
        Error::FirstString
    );
}

#[test]
fn concatenated_files_are_refused() {
    let mut file = small();
    file.time_nanos = 1;
    let twice = [file.encode_to_vec(), file.encode_to_vec()].concat();
    let read = read_with(&twice, &ReadOptions::default());
    assert!(matches!(
        read,
        Err(Error::SameId { .. } | Error::Concatenated)
    ));
}

#[test]
fn oversized_or_foreign_file_is_refused() {
    let bytes = small().encode_to_vec();
    let options = ReadOptions {
        limit: bytes.len() - 1,
        ..ReadOptions::default()
    };
    let too_large = read_with(&bytes, &options).unwrap_err();
    assert_eq!(too_large, Error::TooLarge(options.limit));
    let too_large = read_with(&gzip(&bytes), &options).unwrap_err();
    assert!(matches!(too_large, Error::Compressed(_)), "{too_large}");
    let read = |bytes: &[u8]| read_with(bytes, &ReadOptions::default()).unwrap_err();
    assert_eq!(read(b""), Error::Empty);
    assert_eq!(read(&gzip(b"")), Error::Empty);
    assert!(matches!(
        read(b"<!DOCTYPE html><title>404</title>"),
        Error::Foreign(_)
    ));
    assert!(matches!(
        read(b"hello, world"),
        Error::Wire { .. } | Error::FieldType { .. }
    ));
}

#[test]
fn lists_of_long_strings_are_bounded() {
    let mut file = small();
    file.string_table.push(vec![b'x'; 1 << 20]);
    let long = i64::try_from(file.string_table.len()).unwrap() - 1;
    file.comment = vec![long; 65];
    assert!(matches!(error(&file), Error::Expansion(_)));
    file.comment.clear();
    let label = Label {
        key: 4,
        text: long,
        ..Label::default()
    };
    file.sample = vec![sample(&[1], &[label; 65])];
    assert!(matches!(error(&file), Error::Expansion(_)));
}

#[test]
fn many_tiny_entries_are_charged_before_allocation() {
    let budget = Budget::new(4 << 20);
    let refused = |plain: &[u8]| {
        let file = gzip(plain);
        assert!(file.len() < 20_000, "{}", file.len());
        let mut permit = budget.acquire(file.len()).unwrap();
        let mut dictionary = Dictionary::new();
        let options = ReadOptions::default();
        let read = PprofReader::new().read(&file, &options, &mut permit, &mut dictionary, None);
        assert_eq!(permit.bytes(), file.len());
        assert!(dictionary.bytes() < 64 << 10);
        read.unwrap_err()
    };
    let many = |entry: &[u8]| entry.repeat((1 << 20) / entry.len());
    let of_one_type = |rest: &[u8]| [&[0x0a, 0], rest].concat();
    // Sample types; samples, mappings, locations and strings; comments, single and packed.
    let error = refused(&many(&[0x0a, 0]));
    // Many of these fields may also look like OTLP.
    let is_bounded = matches!(error, Error::SampleTypes(64) | Error::Foreign(_));
    assert!(is_bounded, "{error}");
    for entry in [[0x12, 0], [0x32, 0], [0x68, 0]] {
        let error = refused(&of_one_type(&many(&entry)));
        assert!(matches!(error, Error::NoRoom(_)), "{entry:?}: {error}");
    }
    let mut packed = vec![0x6a];
    tributary_otlp::reader::put_varint(1 << 20, &mut packed);
    packed.resize(packed.len() + (1 << 20), 0);
    let error = refused(&of_one_type(&packed));
    assert!(matches!(error, Error::NoRoom(_)), "{error}");
}

#[test]
fn file_with_65_sample_types_is_refused() {
    let of = |types: usize| {
        let mut file = small();
        file.sample_type = vec![PprofValueType { kind: 1, unit: 2 }; types];
        for sample in &mut file.sample {
            sample.value = vec![1; types];
        }
        read(&file).map(|(_, converted)| converted.profiles.profiles.len())
    };
    assert_eq!(of(64), Ok(64));
    assert_eq!(of(65), Err(Error::SampleTypes(64)));
}

#[test]
fn empty_comments_are_not_free() {
    let mut file = small();
    file.comment = vec![0; (64 << 20) / 16];
    let bytes = file.encode_to_vec();
    let mut permit = Budget::new(1 << 30).acquire(0).unwrap();
    let mut dictionary = Dictionary::new();
    let options = ReadOptions::default();
    let read = PprofReader::new().read(&bytes, &options, &mut permit, &mut dictionary, None);
    assert!(matches!(read, Err(Error::Expansion(_))), "{read:?}");
}

/// Returns a file with a location that has two ids.
fn twice(first: u64, last: u64) -> Vec<u8> {
    let mut file = small();
    file.mapping.clear();
    let mut bytes = Vec::new();
    for id in [first, last] {
        bytes.push(0x08);
        tributary_otlp::reader::put_varint(id, &mut bytes);
    }
    let mut location = std::mem::take(&mut file.location);
    location.truncate(1);
    location[0].id = 0;
    bytes.extend(location[0].encode_to_vec());
    let mut encoded = file.encode_to_vec();
    tributary_otlp::edit::put_delimited(4, &bytes, &mut encoded);
    encoded
}

#[test]
fn last_id_of_an_entry_counts() {
    let plain = small();
    assert_eq!(plain.location.len(), 1);
    let (expected, _) = read(&plain).unwrap();
    let id = plain.location[0].id;
    // Wrong id first; right id first; right id only.
    let read = |first, last| read_with(&twice(first, last), &ReadOptions::default());
    let (profiles, _) = read(id + 6, id).unwrap();
    assert_eq!(back(&profiles), back(&expected));
    let table = FileTable::Location;
    let dangling = Error::Dangling { table, id };
    assert_eq!(read(id, id + 6).unwrap_err(), dangling);
    assert_eq!(read(id, 0).unwrap_err(), Error::NoId(table));
}

#[test]
fn concatenated_files_are_reported_as_such() {
    let mut file = small();
    file.time_nanos = 0;
    let one = file.encode_to_vec();
    let two = [one.as_slice(), &one].concat();
    let read = |bytes: &[u8]| read_with(bytes, &ReadOptions::default()).unwrap_err();
    assert_eq!(read(&two), Error::Concatenated);
    assert_eq!(read(&two[..two.len() - 3]), Error::Concatenated);
    assert_eq!(read(&gzip(&two)), Error::Concatenated);
}

fn read_leniently(file: &PprofFile) -> (Profiles, Converted) {
    let options = ReadOptions {
        lenient: true,
        ..ReadOptions::default()
    };
    read_with(&file.encode_to_vec(), &options).unwrap()
}

#[test]
fn lenient_reader_repairs_what_strict_reader_refuses() {
    let mut file = small();
    let (strict, _) = read(&file).unwrap();
    let (same, converted) = read_leniently(&file);
    assert!(converted.repairs.is_empty());
    assert_eq!(same.encode(), strict.encode());
    // A missing location, function and string, and a wrong number of values.
    file.sample[0].location_id.push(99);
    file.location[0].line[0].function_id = 98;
    file.function[0].filename = 97;
    let mut short = file.sample[0].clone();
    short.value.pop();
    file.sample.push(short);
    error(&file);
    let (read, converted) = read_leniently(&file);
    let Repairs {
        references,
        samples,
        ..
    } = converted.repairs;
    assert_eq!(samples, 1);
    // The sample of too few values has the missing location too, and the function is unused without its line.
    assert_eq!(references, 3);
    let total = |profiles: &Profiles| {
        let first = profiles.iter().next().unwrap();
        first
            .samples
            .iter()
            .map(|sample| sample.total().0)
            .sum::<i64>()
    };
    assert_eq!(total(&read), total(&strict));
}

#[test]
fn lenient_reader_accepts_entries_without_id() {
    let mut file = small();
    let id = file.location[0].id;
    file.location[0].id = 0;
    for sample in &mut file.sample {
        for location in sample.location_id.iter_mut().filter(|of| **of == id) {
            *location = 0;
        }
    }
    assert_eq!(error(&file), Error::NoId(FileTable::Location));
    let (lenient, converted) = read_leniently(&file);
    assert_eq!(converted.repairs.ids, 1);
    assert_eq!(converted.repairs.references, 0);
    assert_eq!(lenient.encode(), read(&small()).unwrap().0.encode());
}
