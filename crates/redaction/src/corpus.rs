//! Measures the detectors on hand-labelled and generated texts, and compares the results with the docs.
//!
//! `tests/corpus/NAME.txt` has a line per text: `+ ` if it holds what the detector is for, `- ` if not, whether
//! the detector knows it or not. `<>` is taken out before (prefixes of tokens are written with it, so that tools that
//! look for leaked secrets do not report this repository), and `\n`, `\\` mean what they mean in JSON. All of them are
//! made up: reserved names and numbers, random bodies, right checksums. The near misses of a file are near to its detector;
//! what is near to none is in `harmless.txt`, for all of them, and counts nowhere.

mod generated;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::{Detector, DetectorConfig, Hits, Outcome, Scanner, Settings};
use tributary_config::Secret;

/// Between these two comments of the docs stands a table of this name that a test has made.
fn marks(name: &str) -> [String; 2] {
    [
        format!("<!-- {name}: begin -->\n"),
        format!("<!-- {name}: end -->\n"),
    ]
}

/// Compares a table with the one in the docs, or writes it there if `UPDATE_EXPECTED` is set.
fn check_docs(name: &str, table: &str, wrong: &str) {
    // Tests that write their tables at once would undo each other's.
    static DOCS: Mutex<()> = Mutex::new(());
    let _alone = DOCS.lock().unwrap_or_else(PoisonError::into_inner);
    let docs = repository("../../docs/redaction.md");
    let text = std::fs::read_to_string(&docs).unwrap();
    let [begin, end] = marks(name);
    let (head, rest) = text.split_once(&begin).unwrap();
    let (stated, tail) = rest.split_once(&end).unwrap();
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        println!("{wrong}");
        std::fs::write(docs, format!("{head}{begin}{table}{end}{tail}")).unwrap();
        return;
    }
    assert_eq!(stated, table, "UPDATE_EXPECTED=1 writes it anew\n{wrong}");
}

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The texts of a detector, and whether each holds what it is for.
fn texts(detector: Detector) -> Vec<(bool, String)> {
    read(detector.name())
}

fn read(name: &str) -> Vec<(bool, String)> {
    let path = repository(&format!("tests/corpus/{name}.txt"));
    // The younger detectors have generated texts only.
    let lines = std::fs::read_to_string(path).unwrap_or_default();
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

/// Some generated texts of all detectors, for other tests.
pub(super) fn some_texts() -> Vec<String> {
    let samples = Detector::ALL.into_iter().flat_map(generated::samples);
    samples.step_by(23).map(|sample| sample.text).collect()
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
        assert!(
            positives >= 60 && negatives >= 60 || positives == 0,
            "{detector}"
        );
        if positives == 0 {
            continue;
        }
        let hits = found + negatives - left;
        let percent = |part: usize, of: usize| 100.0 * part as f64 / of as f64;
        let _ = writeln!(
            table,
            "| `{detector}` | {positives} | {found} | {negatives} | {left} | {:.1} % | {:.1} % |",
            percent(found, hits),
            percent(found, positives)
        );
    }
    check_docs("measured", &table, &wrong);
}

/// Returns the text after redaction.
fn redacted(scanner: &Scanner, text: &str) -> String {
    match scanner.scan(text, &mut Hits::default()).unwrap() {
        Outcome::Rewritten(text) => text,
        _ => text.to_owned(),
    }
}

#[test]
fn generated_secrets_go_and_look_alikes_stay() {
    let mut table = String::from(
        "| detector | secrets | gone | recall | look-alikes | hit | false hits |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    let (mut wrong, mut missed_aim) = (String::new(), Vec::new());
    let percent = |part: usize, of: usize| 100.0 * part as f64 / of as f64;
    for detector in Detector::ALL {
        let alone = scanner(&[detector.into()]);
        let (mut secrets, mut gone, mut others, mut hit) = (0, 0, 0, 0);
        for sample in generated::samples(detector) {
            let left = redacted(&alone, &sample.text);
            match &sample.secret {
                Some(secret) => {
                    secrets += 1;
                    let is_gone = !left.contains(secret.as_str());
                    gone += usize::from(is_gone);
                    if !is_gone {
                        let _ = writeln!(wrong, "{detector}: left {:?}", sample.text);
                    }
                }
                None => {
                    others += 1;
                    let is_hit = left != sample.text;
                    hit += usize::from(is_hit);
                    if is_hit {
                        let _ = writeln!(wrong, "{detector}: hit {:?}", sample.text);
                    }
                }
            }
        }
        let (recall, false_hits) = (percent(gone, secrets), percent(hit, others));
        let _ = writeln!(
            table,
            "| `{detector}` | {secrets} | {gone} | {recall:.1} % | {others} | {hit} | {false_hits:.1} % |"
        );
        // A guess by letters alone: what finds more of these hits look-alikes of the labelled corpus, too.
        let least = match detector {
            Detector::HighEntropy => 97.0,
            _ => 99.0,
        };
        if recall < least || false_hits >= 0.5 {
            missed_aim.push(detector.name());
        }
    }
    check_docs("generated", &table, &wrong);
    assert!(missed_aim.is_empty(), "{missed_aim:?}\n{wrong}");
}

#[test]
fn docs_state_how_many_ambiguous_numbers_are_hit() {
    let mut table =
        String::from("| number | detector | texts | hit |\n| --- | --- | ---: | ---: |\n");
    for (name, detector, texts) in generated::ambiguous() {
        let alone = scanner(&[detector.into()]);
        let hit = texts.iter().filter(|text| finds(&alone, text)).count();
        let share = 100.0 * hit as f64 / texts.len() as f64;
        let _ = writeln!(
            table,
            "| {name} | `{detector}` | {} | {share:.1} % |",
            texts.len()
        );
    }
    check_docs("ambiguous", &table, "");
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
