//! Tests of files that are reused for later segments.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;

use super::*;

fn small() -> Options {
    Options {
        segment_bytes: 1000,
        ..options()
    }
}

/// Options with segments of enough disk blocks for direct I/O.
fn large() -> Options {
    Options {
        segment_bytes: 1000 * LARGE as u64,
        ..options()
    }
}

/// Factor between the sizes of large and other segments.
const LARGE: usize = 50;

/// Returns nine records. One record varies in length, so that old data in a file ends at any offset.
fn round(number: usize) -> Vec<String> {
    round_of(1, number)
}

fn round_of(scale: usize, number: usize) -> Vec<String> {
    (0..9)
        .map(|at| format!("{number} {at} {}", "x".repeat(scale * (90 + number * at))))
        .collect()
}

/// Fills more than a segment and takes all but the last record, which the next turn takes.
fn turn(bench: &Bench, number: usize, left: &mut Vec<Record>) -> Vec<String> {
    let scale = bench.options.segment_bytes as usize / 1000;
    let texts = round_of(scale, number);
    bench.fill(&texts.iter().map(String::as_str).collect::<Vec<_>>());
    left.extend(bench.take());
    let last = left.pop().unwrap();
    bench.acknowledge(left);
    *left = vec![last];
    texts
}

/// Returns all files with records, and the file kept for the next segment.
fn files(bench: &Bench) -> Vec<std::fs::Metadata> {
    let entries = std::fs::read_dir(bench.directory.path()).unwrap();
    let entries = entries.map(|entry| entry.unwrap());
    let entries = entries.filter(|entry| {
        let name = entry.file_name().into_string().unwrap();
        name.ends_with(".segment") || name.ends_with(".segment.new")
    });
    entries.filter_map(|entry| entry.metadata().ok()).collect()
}

fn keeps(bench: &Bench) -> bool {
    files(bench).len() > bench.segments().len()
}

#[test]
fn fast_reader_reuses_files_with_known_usage() {
    let bench = Bench::new(small());
    let mut left = Vec::new();
    let mut used = BTreeSet::new();
    for text in (0..30).flat_map(round) {
        bench.fill(&[&text]);
        left.extend(bench.take());
        let last = left.pop().unwrap();
        bench.acknowledge(&left);
        left = vec![last];
        bench.settle();
        used.extend(files(&bench).iter().map(|file| file.ino()));
        let on_disk: u64 = files(&bench).iter().map(|file| file.len()).sum();
        assert_eq!(bench.log().usage().bytes, on_disk, "{text}");
    }
    assert!(used.len() <= 3, "{} files", used.len());
}

#[test]
fn crash_ignores_earlier_content_of_reused_file() {
    crash_in_each_turn(&small());
    crash_in_each_turn(&large());
}

fn crash_in_each_turn(options: &Options) {
    let scale = options.segment_bytes as usize / 1000;
    let bench = Bench::new(options.clone());
    let mut left = Vec::new();
    for number in 0..30 {
        let texts = turn(&bench, number, &mut left);
        bench.settle();
        // The position is at most a second old. Records acknowledged later are repeated.
        let mut crashed = copy(&bench);
        crashed.open();
        let found = &crashed.recovered;
        assert_eq!((found.cut_bytes, found.lost_records), (0, 0), "{number}");
        assert!(found.damaged.is_empty(), "{number}: {:?}", found.damaged);
        let given_out = crashed.texts();
        assert_eq!(given_out.last(), texts.last(), "{number}");
        let all: Vec<String> = (0..=number)
            .flat_map(|number| round_of(scale, number))
            .collect();
        assert!(all.ends_with(&given_out), "{number}: {given_out:?}");
        crashed.fill(&["one more"]);
        assert_eq!(crashed.texts(), ["one more"]);
    }
}

fn copy(bench: &Bench) -> Bench {
    Bench {
        directory: bench.copy(),
        log: None,
        recovered: Recovered::default(),
        options: bench.options.clone(),
        disk: Faulty::default(),
    }
}

/// Returns a log that has just begun to reuse a file, with at least the record "the first".
fn begun(options: Options) -> Bench {
    let bench = Bench::new(options);
    let mut left = Vec::new();
    for number in 0..3 {
        turn(&bench, number, &mut left);
        bench.settle();
    }
    assert!(keeps(&bench));
    while keeps(&bench) {
        bench.fill(&["the first"]);
    }
    bench
}

#[test]
fn torn_write_in_reused_file_is_no_damage() {
    let torn = "torn".repeat(2000);
    for lost in [1, 5, 4096, 7999] {
        let bench = begun(large());
        bench.fill(&["whole", &torn]);
        let mut crashed = copy(&bench);
        let path = crashed.segments().pop().unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        let at = memchr::memmem::rfind(&bytes, torn.as_bytes()).unwrap();
        assert!(bytes.len() > at + torn.len(), "the file goes on");
        bytes[at + torn.len() - lost..at + torn.len()].fill(0xff);
        std::fs::write(&path, bytes).unwrap();
        crashed.open();
        assert_eq!(crashed.recovered.damaged, [], "{lost}");
        assert_eq!(crashed.texts().last().unwrap(), "whole", "{lost}");
        crashed.fill(&["one more"]);
        assert_eq!(crashed.texts(), ["one more"]);
    }
}

#[test]
fn end_of_reused_file_is_no_unfinished_write() {
    let mut bench = begun(small());
    let path = bench.segments().pop().unwrap();
    assert!(path.metadata().unwrap().len() > 500, "it was cut");
    bench.crash();
    assert_eq!(bench.recovered.lost_records, 0);
    assert_eq!(bench.recovered.cut_bytes, 0, "that was another segment's");
    assert_eq!(bench.texts().last().unwrap(), "the first");
}

#[test]
fn unusable_reused_file_is_replaced() {
    for fault in [Fault::Reuse, Fault::Sync, Fault::Write(3), Fault::Rename] {
        let mut bench = Bench::new(small());
        turn(&bench, 1, &mut Vec::new());
        bench.settle();
        // The next segment reuses the kept file.
        assert!(keeps(&bench));
        let texts = round(2);
        let mut begun = false;
        for text in &texts {
            let segments = bench.segments();
            let last = segments.last().unwrap().metadata().unwrap().len();
            if last >= bench.options.segment_bytes && !begun {
                bench.disk.fail(fault, 1);
            }
            bench
                .append(text)
                .unwrap_or_else(|error| panic!("{fault:?}: {error}"));
            begun |= bench.segments() != segments;
        }
        assert!(begun, "{fault:?}");
        bench.crash();
        let given_out = bench.texts();
        assert!(given_out.ends_with(&texts), "{fault:?}: {given_out:?}");
        assert_eq!(bench.recovered.lost_records, 0, "{fault:?}");
    }
}

/// In the middle of a block and in the middle of a record.
#[test]
fn failed_write_to_reused_file_leaves_no_trace() {
    for fault in [0, 3, 4096, 6000].map(Fault::Write) {
        let mut bench = begun(large());
        let record = "a".repeat(7000);
        bench.fill(&[&record, "c"]);
        bench.disk.fail(fault, 1);
        bench.append(&"b".repeat(7000)).unwrap_err();
        bench.fill(&[&record, "d"]);
        bench.crash();
        assert_eq!(bench.recovered.lost_records, 0);
        let given_out = bench.texts();
        let expected = ["the first", &record, "c", &record, "d"].map(str::to_owned);
        assert!(given_out.ends_with(&expected), "{fault:?}: {given_out:?}");
    }
}

#[test]
fn full_and_closed_queues_keep_no_spare_file() {
    let mut bench = Bench::new(small());
    let mut left = Vec::new();
    for ends in [false, true] {
        turn(&bench, 1, &mut left);
        bench.settle();
        assert!(keeps(&bench));
        if ends {
            bench.close();
        } else {
            bench.log().make_room();
            bench.settle();
        }
        assert!(!keeps(&bench));
    }
}
