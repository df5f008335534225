//! Detection of changed files, cheaply by metadata and reliably by content.
//!
//! [`FileWatch`](crate::files::FileWatch) is not sufficient, because it only detects changed metadata. Certificates
//! must also be read again where metadata are unreliable, must match each other, and are not logged as changed if their
//! content is the same.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::path::PathBuf;

use crate::files::{FileStamp, MAX_PEM_FILE, read_regular};

pub(super) struct Files {
    files: Vec<(&'static str, PathBuf)>,
    hasher: RandomState,
}

/// Metadata of the files. Equal stamps mean that the files are most likely unchanged.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Stamps(Vec<Option<FileStamp>>);

/// Hashes of the files' contents; `None` for an unreadable file. Keys and certificates themselves are not kept.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Contents(Vec<Option<u64>>);

impl Files {
    pub(super) fn new(files: Vec<(&'static str, PathBuf)>) -> Self {
        let hasher = RandomState::new();
        Files { files, hasher }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Returns the current stamps. Costs one stat(2) per file.
    pub(super) fn stamps(&self) -> Stamps {
        let stamp = |(_, path): &(_, PathBuf)| FileStamp::of(path);
        Stamps(self.files.iter().map(stamp).collect())
    }

    /// Reads all files and returns the hashes of their contents.
    pub(super) fn contents(&self) -> Contents {
        let hash = |(_, path): &(_, PathBuf)| {
            let content = read_regular(path, MAX_PEM_FILE).ok()?;
            Some(self.hasher.hash_one(content))
        };
        Contents(self.files.iter().map(hash).collect())
    }

    /// Returns the configuration keys of the files that differ.
    pub(super) fn differing(&self, before: &Contents, after: &Contents) -> Vec<&'static str> {
        let pairs = before.0.iter().zip(&after.0);
        let keys = self.files.iter().map(|(key, _)| *key);
        keys.zip(pairs)
            .filter(|(_, (before, after))| before != after)
            .map(|(key, _)| key)
            .collect()
    }

    pub(super) fn paths(&self, keys: &[&str]) -> String {
        let paths = self.files.iter().filter(|(key, _)| keys.contains(key));
        let paths: Vec<String> = paths.map(|(_, path)| path.display().to_string()).collect();
        paths.join(", ")
    }
}
