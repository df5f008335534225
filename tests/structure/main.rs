//! The layout that ARCHITECTURE.md draws: folders of a crate import each other in one direction only. Cargo sees to the
//! same between crates.

// A test crate: a panic is a finding.
#![allow(clippy::unwrap_used, clippy::panic)]

mod names;
mod prose;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Imports between the top-level modules of a crate.
type Imports = BTreeMap<String, BTreeSet<String>>;

#[test]
fn folders_of_a_crate_import_in_one_direction() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let crates = std::fs::read_dir(root.join("crates")).unwrap();
    let mut sources = vec![root.join("src")];
    sources.extend(crates.map(|one| one.unwrap().path().join("src")));
    let mut circles = Vec::new();
    for source in sources {
        let imports = imports(&source);
        assert!(!imports.is_empty(), "{}", source.display());
        for module in imports.keys() {
            if let Some(path) = way_back(&imports, module) {
                circles.push(format!("{}: {}", source.display(), path.join(" -> ")));
            }
        }
    }
    assert!(circles.is_empty(), "{circles:#?}");
}

#[test]
fn circle_of_three_modules_is_found() {
    let of = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let mut imports = Imports::from([
        ("a".to_owned(), of(&["b"])),
        ("b".to_owned(), of(&["c"])),
        ("c".to_owned(), of(&["a"])),
    ]);
    assert_eq!(way_back(&imports, "a").unwrap().join(" "), "a b c a");
    imports.insert("c".to_owned(), BTreeSet::new());
    assert_eq!(way_back(&imports, "a"), None);
}

/// The imports of all production code below a crate's `src`.
fn imports(source: &Path) -> Imports {
    let mut imports = Imports::new();
    for file in files(source) {
        let relative = file.strip_prefix(source).unwrap();
        let top = relative.iter().next().unwrap().to_str().unwrap();
        let module = top.trim_end_matches(".rs");
        let parts = || relative.iter().map(|part| part.to_str().unwrap());
        let is_test = parts().any(|part| {
            part.starts_with("tests") || part.starts_with("testing") || part.starts_with("fuzzing")
        });
        if is_test || matches!(module, "lib" | "main" | "fuzzing") {
            continue;
        }
        let text = std::fs::read_to_string(&file).unwrap();
        let production = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let named = production
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
            .flat_map(|line| line.split("crate::").skip(1))
            .map(|rest| {
                let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                rest.get(..end.unwrap_or(rest.len())).unwrap().to_owned()
            })
            .filter(|name| name != module && is_module(source, name));
        imports.entry(module.to_owned()).or_default().extend(named);
    }
    imports
}

fn is_module(source: &Path, name: &str) -> bool {
    !name.is_empty() && (source.join(format!("{name}.rs")).exists() || source.join(name).is_dir())
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .flat_map(|path| match path.is_dir() {
            true => files(&path),
            false if path.extension().is_some_and(|extension| extension == "rs") => vec![path],
            false => Vec::new(),
        })
        .collect()
}

/// A chain of imports from a module back to itself.
fn way_back(imports: &Imports, from: &str) -> Option<Vec<String>> {
    let mut seen = BTreeSet::new();
    let mut open = vec![vec![from.to_owned()]];
    while let Some(path) = open.pop() {
        for next in imports.get(path.last()?).into_iter().flatten() {
            let mut longer = path.clone();
            longer.push(next.clone());
            if next == from {
                return Some(longer);
            }
            if seen.insert(next.clone()) {
                open.push(longer);
            }
        }
    }
    None
}
