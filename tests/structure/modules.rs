//! The modules of a crate, read from its files.

use std::path::{Path, PathBuf};

use crate::files;

/// A file of a crate.
#[derive(Debug)]
pub(crate) struct Module {
    /// Path from the root of the crate, such as `["pipeline", "batch"]`; empty for `lib.rs`.
    pub(crate) path: Vec<String>,
    pub(crate) file: PathBuf,
    /// The text without inline tests.
    pub(crate) text: String,
}

/// The `src` folders of all crates.
pub(crate) fn sources() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let crates = std::fs::read_dir(root.join("crates")).unwrap();
    let mut sources = vec![root.join("src")];
    sources.extend(crates.map(|one| one.unwrap().path().join("src")));
    sources
}

/// The modules below a `src` folder that are not tests.
pub(crate) fn modules(source: &Path) -> Vec<Module> {
    let mut modules: Vec<Module> = Vec::new();
    let mut tests: Vec<Vec<String>> = Vec::new();
    for file in files(source) {
        let relative = file.strip_prefix(source).unwrap().with_extension("");
        let parts = relative
            .iter()
            .map(|part| part.to_str().unwrap().to_owned());
        let mut path: Vec<String> = parts.collect();
        if path == ["main"] || path.iter().any(|part| part.starts_with("tests")) {
            continue;
        }
        if path == ["lib"] {
            path.clear();
        }
        let text = std::fs::read_to_string(&file).unwrap();
        tests
            .extend(test_modules(&text).map(|name| [path.as_slice(), &[name.to_owned()]].concat()));
        modules.push(Module {
            path,
            file,
            text: without_tests(&text),
        });
    }
    modules.retain(|module| !tests.iter().any(|test| module.path.starts_with(test)));
    assert!(!modules.is_empty(), "{}", source.display());
    modules
}

/// Names of the files that a module declares for tests only.
fn test_modules(text: &str) -> impl Iterator<Item = &str> {
    after_cfg_test(text).filter_map(|(_, line)| line.strip_prefix("mod ")?.strip_suffix(';'))
}

/// Removes inline modules of tests.
fn without_tests(text: &str) -> String {
    let starts = after_cfg_test(text).filter(|(_, line)| line.ends_with(" {"));
    let starts: Vec<usize> = starts.map(|(at, _)| at).collect();
    let mut is_test = false;
    let lines = text.lines().enumerate().filter(|(at, line)| {
        is_test |= starts.contains(at);
        let is_kept = !is_test;
        is_test &= *line != "}";
        is_kept
    });
    lines.map(|(_, line)| format!("{line}\n")).collect()
}

/// Numbers and texts of the lines behind `#[cfg(test)]` and other attributes.
fn after_cfg_test(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_for_tests = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        let is_attribute = line.starts_with("#[");
        let found = (is_for_tests && !is_attribute).then_some((at, line));
        is_for_tests = line == "#[cfg(test)]" || (is_for_tests && is_attribute);
        found
    })
}

#[test]
fn tests_are_not_part_of_a_module() {
    let text = "fn a() {}\n#[cfg(test)]\nmod of_tests;\n#[cfg(test)]\n#[allow(x)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n";
    let kept = "fn a() {}\n#[cfg(test)]\nmod of_tests;\n#[cfg(test)]\n#[allow(x)]\nfn c() {}\n";
    assert_eq!(without_tests(text), kept);
    assert_eq!(test_modules(text).collect::<Vec<_>>(), ["of_tests"]);
}
