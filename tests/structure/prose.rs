//! The language of doc comments: docs/glossary.md has the words, and a summary begins with a noun or a verb.

use std::path::Path;

use crate::files;

/// Words that begin a riddle: a clause without its noun.
const RIDDLES: [&str; 9] = [
    "What", "Who", "Whose", "Whoever", "Whatever", "That", "Which", "How", "Where",
];

#[test]
fn doc_comments_begin_with_a_noun_or_a_verb() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = ["src", "crates", "tests", "benches", "examples", "fuzz/src"];
    let mut found = Vec::new();
    for file in folders.iter().flat_map(|folder| files(&root.join(folder))) {
        let text = std::fs::read_to_string(&file).unwrap();
        for (line, word) in riddles(&text) {
            found.push(format!("{}:{line}: {word} ...", file.display()));
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn riddle_is_found_only_at_the_beginning_of_a_comment() {
    let text = "/// What it has.\nfn a() {}\n/// A list:\n/// Which is longer.\nfn b() {}\n//! Whose it is.\n";
    let found: Vec<_> = riddles(text).collect();
    assert_eq!(found, [(1, "What"), (6, "Whose")]);
}

/// The lines and first words of comments that begin with one of [`RIDDLES`].
fn riddles(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_inside = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        let line = line.trim_start();
        let comment = line
            .strip_prefix("///")
            .or_else(|| line.strip_prefix("//!"));
        let begins = comment.is_some() && !is_inside;
        is_inside = comment.is_some();
        let word = comment?.split_whitespace().next()?;
        (begins && RIDDLES.contains(&word)).then_some((at + 1, word))
    })
}
