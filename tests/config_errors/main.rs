//! Messages about invalid configurations and command lines.
//!
//! Every `*.yaml` here has its expected report beside it as `*.txt`. A file starts with comments
//! that say how it is loaded: `# strict`, `# set: KEY=VALUE`, `# over: OTHER.yaml` (laid over by
//! that file), `# built with: FEATURE` and `# built without: FEATURE` (left out of other builds). Files called
//! `over-*` are such others. `UPDATE_EXPECTED=1` rewrites the reports.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod command_line;

use std::fs;
use std::path::{Path, PathBuf};

use tributary_config::Sources;

/// In it the tests run, so that reports name files without a path.
const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/config_errors");

#[test]
fn every_bad_file_is_explained_as_expected() {
    std::env::set_current_dir(DIRECTORY).expect("the directory is there");
    let update = std::env::var_os("UPDATE_EXPECTED").is_some();
    let mut wrong = Vec::new();
    let files = bad_files();
    assert!(files.len() >= 45, "only {} files were found", files.len());
    for file in files.into_iter().filter(|file| is_for_this_build(file)) {
        let expected_path = file.with_extension("txt");
        let report = explain(&file);
        if update {
            fs::write(&expected_path, &report).expect("the expected report can be written");
            continue;
        }
        let expected = fs::read_to_string(&expected_path).unwrap_or_default();
        if report != expected {
            let name = file.display();
            wrong.push(format!(
                "== {name}\n-- expected\n{expected}-- found\n{report}"
            ));
        }
    }
    let count = wrong.len();
    let all = wrong.join("\n");
    assert!(
        wrong.is_empty(),
        "{count} reports differ (UPDATE_EXPECTED=1 takes them over):\n{all}"
    );
}

/// The files that are bad by themselves, in order.
fn bad_files() -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(".")
        .expect("the directory can be listed")
        .map(|entry| PathBuf::from(entry.expect("the directory can be listed").file_name()))
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "yaml")
        })
        .filter(|path| !path.to_string_lossy().starts_with("over-"))
        .collect();
    files.sort();
    files
}

fn directives(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map_while(|line| line.strip_prefix("# "))
}

fn text_of(file: &Path) -> String {
    let text = fs::read(file).expect("the file can be read");
    String::from_utf8_lossy(&text).into_owned()
}

/// Some components say something else without a feature that they need.
fn is_for_this_build(file: &Path) -> bool {
    let is_there = |feature: &str| match feature {
        "object-store" => cfg!(feature = "object-store"),
        "kafka" => cfg!(feature = "kafka"),
        other => panic!("{}: there is no feature {other}", file.display()),
    };
    directives(&text_of(file)).all(|directive| {
        let with = directive.strip_prefix("built with: ");
        let without = directive.strip_prefix("built without: ");
        with.is_none_or(is_there) && !without.is_some_and(is_there)
    })
}

fn explain(file: &Path) -> String {
    let text = text_of(file);
    let mut sources = Sources {
        configs: vec![file.to_string_lossy().into_owned()],
        sets: Vec::new(),
    };
    let mut strict = false;
    for directive in directives(&text) {
        if directive == "strict" {
            strict = true;
        } else if let Some(set) = directive.strip_prefix("set: ") {
            sources.sets.push(set.to_owned());
        } else if let Some(over) = directive.strip_prefix("over: ") {
            sources.configs.push(over.to_owned());
        }
    }
    let loaded = tributary::app::config::load(&sources, strict);
    let report = loaded.report.render();
    assert!(!report.is_empty(), "{}: nothing was found", file.display());
    assert_eq!(loaded.config.is_none(), loaded.report.has_errors());
    report
}
