//! The layout that ARCHITECTURE.md draws, the length of files, and the words in them.

// A test crate: a panic is a finding.
#![allow(clippy::unwrap_used, clippy::panic)]

mod circles;
mod lengths;
mod modules;
mod names;
mod prose;

use std::path::{Path, PathBuf};

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
