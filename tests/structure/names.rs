//! Names of types and tests: one public type per name, and test names that fit on a line.

use std::collections::BTreeMap;
use std::path::Path;

use crate::files;

/// Names that several public types may share.
const SHARED: [&str; 3] = [
    // The configuration of each component, which is always written with its module.
    "Config",
    // The next stage of a pipeline, and the next record of a log, which no module uses together.
    "Next", // One type per platform.
    "Profiler",
];

/// Maximum length of a test's name: a longer name is a sentence.
const LONGEST: usize = 60;

#[test]
fn public_types_have_distinct_names() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let sources = files(&root.join("src"));
    for file in sources.into_iter().chain(files(&root.join("crates"))) {
        let part_of_tests = |part: &str| matches!(part, "tests" | "tests.rs" | "benches");
        if file
            .iter()
            .any(|part| part_of_tests(part.to_str().unwrap()))
        {
            continue;
        }
        let text = std::fs::read_to_string(&file).unwrap();
        for (line, name) in public_types(&text) {
            let place = format!("{}:{line}", file.display());
            places.entry(name.to_owned()).or_default().push(place);
        }
    }
    assert!(places.len() > 100, "only {} types", places.len());
    places.retain(|name, places| places.len() > 1 && !SHARED.contains(&name.as_str()));
    assert!(places.is_empty(), "{places:#?}");
}

#[test]
fn test_names_are_short() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    for folder in ["src", "crates", "tests", "benches", "examples", "fuzz/src"] {
        for file in files(&root.join(folder)) {
            let text = std::fs::read_to_string(&file).unwrap();
            let long = functions(&text).filter(|name| name.len() > LONGEST);
            found.extend(long.map(|name| format!("{}: {name}", file.display())));
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn public_types_and_functions_are_found_by_their_lines() {
    let text = "pub struct A {\n    pub struct: B,\n}\npub(crate) enum C {}\n    pub unsafe trait D<T> {}\nfn e() {}\n    async fn f() {}\n";
    assert_eq!(public_types(text).collect::<Vec<_>>(), [(1, "A"), (5, "D")]);
    assert_eq!(functions(text).collect::<Vec<_>>(), ["e", "f"]);
}

/// Lines and names of the public types in a source file.
fn public_types(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().filter_map(|(at, line)| {
        let line = line.trim_start().strip_prefix("pub ")?;
        let line = line.strip_prefix("unsafe ").unwrap_or(line);
        let (keyword, rest) = line.split_once(' ')?;
        let is_type = matches!(keyword, "struct" | "enum" | "trait" | "type" | "union");
        // A macro has a variable instead of a name.
        let name = identifier(rest);
        (is_type && !name.is_empty()).then_some((at + 1, name))
    })
}

/// Names of the functions in a source file.
fn functions(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let line = line.trim_start();
        let line = line.strip_prefix("async ").unwrap_or(line);
        line.strip_prefix("fn ").map(identifier)
    })
}

fn identifier(text: &str) -> &str {
    let end = text.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
    text.get(..end.unwrap_or(text.len())).unwrap_or_default()
}
