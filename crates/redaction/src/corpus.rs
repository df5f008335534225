//! How well the detectors do on texts that were labelled by hand and generated, and what the docs say of it.
//!
//! `tests/corpus/NAME.txt` has a line per text: `+ ` if it holds what the detector is for, `- ` if not, whether
//! the detector knows it or not. `<>` is taken out before (prefixes of tokens are written with it, so that tools that
//! look for leaked secrets do not report this repository), and `\n`, `\\` mean what they mean in JSON. All of them are
//! made up: reserved names and numbers, random bodies, right checksums. The near misses of a file are near to its detector;
//! what is near to none is in `harmless.txt`, for all of them, and counts nowhere.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use super::{Detector, DetectorConfig, Hits, Outcome, Scanner, Settings};
use tributary_config::Secret;

const BEGIN: &str = "<!-- measured: begin -->\n";
const END: &str = "<!-- measured: end -->\n";

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The texts of a detector, and whether each holds what it is for.
fn texts(detector: Detector) -> Vec<(bool, String)> {
    read(detector.name())
}

fn read(name: &str) -> Vec<(bool, String)> {
    let path = repository(&format!("tests/corpus/{name}.txt"));
    let lines = std::fs::read_to_string(path).unwrap();
    let read = |line: &str| {
        let (label, text) = line.split_once(' ').unwrap();
        let text = text
            .replace("<>", "")
            .replace("\\\\", "\u{0}")
            .replace("\\n", "\n");
        (label == "+", text.replace('\u{0}', "\\"))
    };
    lines.lines().map(read).collect()
}

fn scanner(detectors: &[DetectorConfig]) -> Scanner {
    Scanner::new(&Settings {
        detectors,
        custom: &[],
        hash_function: None,
        hmac_key: &Secret::default(),
        decode: false,
    })
    .unwrap()
}

fn finds(scanner: &Scanner, text: &str) -> bool {
    scanner.scan(text, &mut Hits::default()).unwrap() != Outcome::Clean
}

#[test]
fn the_docs_state_the_precision_and_recall_that_are_measured() {
    let mut table = String::from(
        "| detector | positives | found | near misses | left alone | precision | recall |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    let mut wrong = String::new();
    for detector in Detector::ALL {
        let alone = scanner(&[detector.into()]);
        let (mut positives, mut found, mut negatives, mut left) = (0, 0, 0, 0);
        for (private, text) in texts(detector) {
            let hit = finds(&alone, &text);
            positives += usize::from(private);
            found += usize::from(private && hit);
            negatives += usize::from(!private);
            left += usize::from(!private && !hit);
            if hit != private {
                let _ = writeln!(
                    wrong,
                    "{detector}: {} {text:?}",
                    if private { "missed" } else { "hit" }
                );
            }
        }
        assert!(positives >= 60 && negatives >= 60, "{detector}");
        let hits = found + negatives - left;
        let percent = |part: usize, of: usize| 100.0 * part as f64 / of as f64;
        let _ = writeln!(
            table,
            "| `{detector}` | {positives} | {found} | {negatives} | {left} | {:.1} % | {:.1} % |",
            percent(found, hits),
            percent(found, positives)
        );
    }
    let docs = repository("../../docs/redaction.md");
    let text = std::fs::read_to_string(&docs).unwrap();
    let (head, rest) = text.split_once(BEGIN).unwrap();
    let (stated, tail) = rest.split_once(END).unwrap();
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        println!("{wrong}");
        std::fs::write(docs, format!("{head}{BEGIN}{table}{END}{tail}")).unwrap();
        return;
    }
    assert_eq!(stated, table, "UPDATE_EXPECTED=1 writes it anew\n{wrong}");
}

#[test]
fn what_is_harmless_is_left_alone_by_every_detector_and_all_together() {
    let all: Vec<DetectorConfig> = Detector::ALL.map(DetectorConfig::from).to_vec();
    let texts = read("harmless");
    assert!(texts.len() >= 24);
    for (private, text) in texts {
        assert!(!private && !finds(&scanner(&all), &text), "{text}");
        for detector in Detector::ALL {
            assert!(
                !finds(&scanner(&[detector.into()]), &text),
                "{detector}: {text}"
            );
        }
    }
}

#[test]
fn what_one_detector_finds_all_together_take_out_so_that_nothing_is_left() {
    let usual: Vec<DetectorConfig> = Detector::usual().map(DetectorConfig::from).collect();
    let all = scanner(&usual);
    for detector in Detector::usual() {
        let alone = scanner(&[detector.into()]);
        for (_, text) in texts(detector) {
            if !finds(&alone, &text) {
                continue;
            }
            let Outcome::Rewritten(rewritten) = all.scan(&text, &mut Hits::default()).unwrap()
            else {
                panic!("{detector} finds something in {text:?}");
            };
            assert!(!finds(&alone, &rewritten), "{rewritten:?}");
            assert!(!finds(&all, &rewritten), "{rewritten:?}");
        }
    }
}
