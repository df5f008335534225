//! Damaged files: the commands must end with a clear error or with a valid result.
//!
//! A violation that does not prevent reading, such as a resource attribute without a key, loses no
//! data. The result may violate the same rules as the input, but no further rule.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser as _;
use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::strategy::{Strategy, ValueTree as _};
use proptest::test_runner::TestRunner;
use prost::Message as _;

use super::tests::Line;
use super::{EXIT_SUCCESS, Outcome, run};
use tributary_profiles::pprof::testing::files;
use tributary_profiles::testing_requests::requests;

/// Number of damaged files made of each good file, for each kind of damage.
const FILES_PER_DAMAGE: usize = 6;
/// Upper bound of the size of any output, in bytes.
const MAX_OUTPUT_BYTES: usize = 4 << 20;

struct Place(tempfile::TempDir);

impl Place {
    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    fn run(&self, line: &[&str]) -> Outcome {
        let line = Line::try_parse_from([&["profiles"], line].concat()).unwrap();
        run(&line.command, false)
    }
}

/// Files recorded from a Go program, uncompressed.
fn recorded() -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/profiles");
    let entries = fs::read_dir(directory).unwrap();
    let files = entries.map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = files
        .filter(|file| file.extension().is_some_and(|ending| ending == "gz"))
        .collect();
    files.sort();
    assert!(files.len() >= 4);
    let fetching = crate::app::cli::fetch::Fetching::default();
    let read = |file: &PathBuf| super::input::read(file, &fetching).unwrap();
    files.iter().map(read).collect()
}

fn generated<T>(strategy: impl Strategy<Value = T>, count: usize) -> Vec<T> {
    let mut runner = TestRunner::deterministic();
    let mut value = || strategy.new_tree(&mut runner).unwrap().current();
    (0..count).map(|_| value()).collect()
}

/// Good files: recorded and generated pprof files, converted and generated OTLP files.
fn good(place: &Place) -> Vec<Vec<u8>> {
    let mut all = recorded();
    all.extend(
        generated(files(), 6)
            .iter()
            .map(|file| file.encode_to_vec()),
    );
    let (from, to) = (place.path("good"), place.path("good.otlp"));
    let mut converted = Vec::new();
    for file in &all {
        fs::write(&from, file).unwrap();
        let outcome = place.run(&["convert", &from, "-o", &to]);
        assert_eq!(outcome.code, EXIT_SUCCESS, "{}", outcome.notes);
        converted.push(fs::read(&to).unwrap());
    }
    all.append(&mut converted);
    let requests = generated(requests(), 6);
    all.extend(requests.iter().map(|request| request.encode_to_vec()));
    all
}

/// Damages a file: truncates it, flips bits, and replaces, removes and inserts bytes.
fn damaged(file: &[u8], random: &mut fastrand::Rng) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let at = |random: &mut fastrand::Rng| random.usize(..file.len().max(1));
    for cut in 0..FILES_PER_DAMAGE {
        all.push(file[..file.len() * cut / FILES_PER_DAMAGE].to_vec());
        all.push(file[..at(random).min(file.len())].to_vec());
    }
    for count in 0..2 * FILES_PER_DAMAGE {
        let mut flipped = file.to_vec();
        for _ in 0..=count % 3 {
            let at = at(random);
            flipped[at] ^= 1 << random.u8(..8);
        }
        all.push(flipped);
    }
    for _ in 0..FILES_PER_DAMAGE {
        let (from, to) = (at(random), at(random));
        let mut moved = file.to_vec();
        moved[to] = random.u8(..);
        all.push(moved);
        let mut shorter = file.to_vec();
        shorter.remove(from);
        all.push(shorter);
        let mut longer = file.to_vec();
        longer.insert(to, random.u8(..));
        all.push(longer);
    }
    all
}

fn bounded(outcome: &Outcome) {
    let (output, notes) = (outcome.output.len(), outcome.notes.len());
    assert!(output < MAX_OUTPUT_BYTES, "{output} bytes of output");
    assert!(notes < 64 << 10, "{notes} bytes of notes");
}

/// Returns the rules that a file violates; none if the file cannot be read as OTLP.
fn broken(outcome: &Outcome) -> BTreeSet<String> {
    bounded(outcome);
    let text = String::from_utf8_lossy(&outcome.output);
    let errors = text.lines().filter(|line| line.contains(": error: "));
    let rules = errors.filter_map(|line| line.rsplit_once('[')?.1.strip_suffix(']'));
    rules.map(str::to_owned).collect()
}

/// Whether the command succeeded; if it failed, the error must name the file.
fn done(outcome: &Outcome, file: &str) -> bool {
    bounded(outcome);
    if outcome.code == EXIT_SUCCESS {
        return true;
    }
    assert!(outcome.notes.contains("error: "), "{}", outcome.notes);
    assert!(outcome.notes.contains(file), "{}", outcome.notes);
    false
}

#[test]
fn damaged_file_causes_error_or_valid_result() {
    let place = Place(tempfile::tempdir().unwrap());
    let (file, to) = (place.path("damaged"), place.path("result.otlp"));
    let pprof = place.path("result.pb.gz");
    let mut random = fastrand::Rng::with_seed(7);
    let (mut refused, mut accepted) = (0, 0);
    for good in good(&place) {
        for damaged in damaged(&good, &mut random) {
            fs::write(&file, &damaged).unwrap();
            let before = broken(&place.run(&["check", &file]));
            for line in [
                &["convert", &file, "-o", &to][..],
                &["merge", &file, &file, "--to", "otlp", "-o", &to],
            ] {
                if !done(&place.run(line), &file) {
                    refused += 1;
                    continue;
                }
                accepted += 1;
                let after = broken(&place.run(&["check", &to]));

                assert!(after.is_subset(&before), "{line:?}: {before:?} {after:?}");
            }
            for line in [
                &["convert", &file, "--to", "folded"][..],
                &["top", &file, "-n", "0"],
                &["diff", &file, &file, "--fail-above", "0", "--each-function"],
            ] {
                done(&place.run(line), &file);
            }
            let directory = place.path("many");
            fs::create_dir_all(&directory).unwrap();
            done(
                &place.run(&["convert", &file, "--to", "pprof", "-o", &directory]),
                &file,
            );
            if fs::read_dir(&directory).unwrap().count() > 0 {
                let first = format!("{directory}/profile-1.pb.gz");
                let read = place.run(&["convert", &first, "-o", &pprof]);
                assert_eq!(read.code, EXIT_SUCCESS, "{}", read.notes);
                fs::remove_dir_all(&directory).unwrap();
            }
        }
    }
    assert!(refused > 200, "{refused}");
    assert!(accepted > 200, "{accepted}");
}

#[test]
fn damaged_archive_is_reported() {
    let place = Place(tempfile::tempdir().unwrap());
    let file = place.path("damaged.gz");
    let mut random = fastrand::Rng::with_seed(8);
    for good in recorded() {
        let mut archive = GzEncoder::new(Vec::new(), Compression::default());
        std::io::Write::write_all(&mut archive, &good).unwrap();
        let archive = archive.finish().unwrap();
        for damaged in damaged(&archive, &mut random) {
            fs::write(&file, &damaged).unwrap();
            for line in [&["top", &file][..], &["convert", &file, "--to", "folded"]] {
                done(&place.run(line), &file);
            }
        }
    }
}
