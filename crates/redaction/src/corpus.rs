//! Measures the detectors on labelled and generated texts, and compares the results with the docs.
//!
//! `tests/corpus/NAME.txt` has one text per line: `+ ` if the text contains private data of this kind, `- ` if not,
//! whether or not the detector decides correctly. `<>` is removed first (token prefixes contain it, so that secret
//! scanners do not report this repository), and `\n`, `\\` have their meaning in JSON. All texts are invented: reserved
//! names and numbers, random bodies, valid checksums. Near misses are specific to their detector. General harmless
//! texts for all detectors are in `harmless.txt`; the measurements ignore them.

mod generated;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::{Detector, DetectorConfig, Hits, ScanOutcome, Scanner, ScannerSettings};
use tributary_config::Secret;

/// Returns the two comments in the docs that enclose the generated table with this name.
fn marks(name: &str) -> [String; 2] {
    [
        format!("<!-- {name}: begin -->\n"),
        format!("<!-- {name}: end -->\n"),
    ]
}

/// Compares a table with the table in the docs, or writes it to the docs if `UPDATE_EXPECTED` is set.
fn check_docs(name: &str, table: &str, wrong: &str) {
    // Tests write their tables into the same file, one at a time.
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

fn texts(detector: Detector) -> Vec<(bool, String)> {
    read(detector.name())
}

fn read(name: &str) -> Vec<(bool, String)> {
    let path = repository(&format!("tests/corpus/{name}.txt"));
    // Newer detectors have only generated texts.
    let lines = std::fs::read_to_string(path).unwrap_or_default();
    lines.lines().map(labelled).collect()
}

/// Reads a line of a corpus: the label, and the text.
fn labelled(line: &str) -> (bool, String) {
    let (label, text) = line.split_once(' ').unwrap();
    let text = text
        .replace("<>", "")
        .replace("\\\\", "\u{0}")
        .replace("\\n", "\n");
    (label == "+", text.replace('\u{0}', "\\"))
}

fn held_out() -> Vec<(Detector, bool, String)> {
    let lines = std::fs::read_to_string(repository("tests/held_out.txt")).unwrap();
    let read = |line: &str| {
        let (name, rest) = line.split_once(' ').unwrap();
        let named = |detector: &Detector| detector.name() == name;
        let (private, text) = labelled(rest);
        (
            Detector::ALL.into_iter().find(named).unwrap(),
            private,
            text,
        )
    };
    lines.lines().map(read).collect()
}

/// Returns some generated texts of all detectors, for other tests.
pub(super) fn some_texts() -> Vec<String> {
    let samples = Detector::ALL.into_iter().flat_map(generated::samples);
    samples.step_by(23).map(|sample| sample.text).collect()
}

fn scanner(detectors: &[DetectorConfig]) -> Scanner {
    Scanner::new(&ScannerSettings {
        detectors,
        custom: &[],
        hash_function: None,
        hmac_key: &Secret::default(),
        decode: false,
    })
    .unwrap()
}

fn finds(scanner: &Scanner, text: &str) -> bool {
    scanner.scan(text, &mut Hits::default()).unwrap() != ScanOutcome::Clean
}

/// Texts of a detector, and the results for them.
#[derive(Default)]
struct Counts {
    positives: usize,
    found: usize,
    negatives: usize,
    left: usize,
}

impl Counts {
    /// Scans texts with one detector. Wrong decisions are added to `wrong`.
    fn of(detector: Detector, texts: &[(bool, String)], wrong: &mut String) -> Self {
        let alone = scanner(&[detector.into()]);
        let mut counts = Counts::default();
        for (private, text) in texts {
            let hit = finds(&alone, text);
            counts.positives += usize::from(*private);
            counts.found += usize::from(*private && hit);
            counts.negatives += usize::from(!private);
            counts.left += usize::from(!private && !hit);
            if hit != *private {
                let decision = if *private { "missed" } else { "hit" };
                let _ = writeln!(wrong, "{detector}: {decision} {text:?}");
            }
        }
        counts
    }

    fn and(self, other: Counts) -> Counts {
        Counts {
            positives: self.positives + other.positives,
            found: self.found + other.found,
            negatives: self.negatives + other.negatives,
            left: self.left + other.left,
        }
    }

    /// A row of a table in the docs.
    fn row(&self, name: &str) -> String {
        let Counts {
            positives,
            found,
            negatives,
            left,
        } = self;
        let percent = |part: usize, of: usize| 100.0 * part as f64 / of as f64;
        format!(
            "| {name} | {positives} | {found} | {negatives} | {left} | {:.1} % | {:.1} % |\n",
            percent(*found, found + negatives - left),
            percent(*found, *positives)
        )
    }
}

/// The first lines of a table of [`Counts`].
const COUNTS: &str = "| detector | positives | found | near misses | left alone | precision | recall |\n\
     | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n";

#[test]
fn documented_precision_and_recall_are_current() {
    let (mut table, mut wrong) = (COUNTS.to_owned(), String::new());
    for detector in Detector::ALL {
        let counts = Counts::of(detector, &texts(detector), &mut wrong);
        let enough = counts.positives >= 60 && counts.negatives >= 60;
        assert!(enough || counts.positives == 0, "{detector}");
        if counts.positives > 0 {
            table += &counts.row(&format!("`{detector}`"));
        }
    }
    check_docs("measured", &table, &wrong);
}

#[test]
fn docs_state_the_results_for_the_held_out_corpus() {
    let (mut table, mut wrong) = (COUNTS.to_owned(), String::new());
    let texts = held_out();
    let mut all = Counts::default();
    for detector in Detector::ALL {
        let own = texts.iter().filter(|(of, _, _)| *of == detector);
        let own: Vec<_> = own.map(|(_, label, text)| (*label, text.clone())).collect();
        let counts = Counts::of(detector, &own, &mut wrong);
        table += &counts.row(&format!("`{detector}`"));
        all = all.and(counts);
    }
    table += &all.row("all");
    check_docs("held out", &table, &wrong);
}

/// Returns the text after redaction.
fn redacted(scanner: &Scanner, text: &str) -> String {
    match scanner.scan(text, &mut Hits::default()).unwrap() {
        ScanOutcome::Rewritten(text) => text,
        _ => text.to_owned(),
    }
}

#[test]
fn generated_secrets_are_removed_and_look_alikes_stay() {
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
        // `high_entropy` uses only the letters: finding more of these secrets would also hit look-alikes of the corpus.
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
fn docs_state_the_share_of_ambiguous_numbers_hit() {
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
fn harmless_texts_have_no_hits() {
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
fn all_detectors_together_remove_hits_of_each() {
    let usual: Vec<DetectorConfig> = Detector::usual().map(DetectorConfig::from).collect();
    let all = scanner(&usual);
    for detector in Detector::usual() {
        let alone = scanner(&[detector.into()]);
        for (_, text) in texts(detector) {
            if !finds(&alone, &text) {
                continue;
            }
            let ScanOutcome::Rewritten(rewritten) = all.scan(&text, &mut Hits::default()).unwrap()
            else {
                panic!("{detector} finds something in {text:?}");
            };
            assert!(!finds(&alone, &rewritten), "{rewritten:?}");
            assert!(!finds(&all, &rewritten), "{rewritten:?}");
        }
    }
}
