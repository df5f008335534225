//! What the collector says about bad configurations: every `*.yaml` here has its expected report beside it as `*.txt`.
//!
//! A file starts with comments that say how it is loaded: `# strict`, `# set: KEY=VALUE`, `# over: OTHER.yaml` (laid over
//! by that file). Files without a `.txt` of their own are such others. `UPDATE_EXPECTED=1` rewrites the reports.

use std::fs;
use std::path::{Path, PathBuf};

use tributary::config::{self, Sources};

const DIRECTORY: &str = "tests/config_errors";

#[test]
fn every_bad_file_is_explained_as_expected() {
    let update = std::env::var_os("UPDATE_EXPECTED").is_some();
    let mut wrong = Vec::new();
    let files = bad_files();
    assert!(files.len() >= 45, "only {} files were found", files.len());
    for file in files {
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
    assert!(
        wrong.is_empty(),
        "{count} reports differ:\n{}",
        wrong.join("\n")
    );
}

/// The files that are bad by themselves, in order.
fn bad_files() -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(DIRECTORY)
        .expect("tests run in the root of the package")
        .map(|entry| entry.expect("the directory can be listed").path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "yaml")
        })
        .filter(|path| !name(path).starts_with("over-"))
        .collect();
    files.sort();
    files
}

fn explain(file: &Path) -> String {
    let text = fs::read(file).expect("the file can be read");
    let text = String::from_utf8_lossy(&text);
    let mut sources = Sources {
        configs: vec![format!("{DIRECTORY}/{}", name(file))],
        sets: Vec::new(),
    };
    let mut strict = false;
    for directive in text.lines().map_while(|line| line.strip_prefix("# ")) {
        if directive == "strict" {
            strict = true;
        } else if let Some(set) = directive.strip_prefix("set: ") {
            sources.sets.push(set.to_owned());
        } else if let Some(over) = directive.strip_prefix("over: ") {
            sources.configs.push(format!("{DIRECTORY}/{over}"));
        }
    }
    let loaded = config::load(&sources, strict);
    let report = loaded.report.render();
    assert!(!report.is_empty(), "{}: nothing was found", file.display());
    assert_eq!(loaded.config.is_none(), loaded.report.has_errors());
    report.replace(&format!("{DIRECTORY}/"), "")
}

fn name(path: &Path) -> String {
    let name = path.file_name().expect("a file has a name");
    name.to_string_lossy().into_owned()
}
