//! Whether files have changed: by their metadata, which costs next to nothing, and by their content.
//!
//! Not by [`FileWatch`](crate::files::FileWatch), which tells that metadata have changed: certificates are also read
//! again where metadata lie, must fit each other, and a change that is none is not worth a line in the log.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::path::PathBuf;

use crate::files::{MAX_PEM_FILE, Stamp, read_regular};

/// The files of one TLS section.
pub(super) struct Files {
    /// Keys and paths.
    files: Vec<(&'static str, PathBuf)>,
    hasher: RandomState,
}

/// What the metadata of the files say. Equal ones mean that most likely nothing has changed.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Stamps(Vec<Option<Stamp>>);

/// Hashes of what is in the files; none where one cannot be read. Keys and certificates themselves are not kept.
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

    /// One stat(2) per file.
    pub(super) fn stamps(&self) -> Stamps {
        let stamp = |(_, path): &(_, PathBuf)| Stamp::of(path);
        Stamps(self.files.iter().map(stamp).collect())
    }

    /// Reads all files.
    pub(super) fn contents(&self) -> Contents {
        let hash = |(_, path): &(_, PathBuf)| {
            let content = read_regular(path, MAX_PEM_FILE).ok()?;
            Some(self.hasher.hash_one(content))
        };
        Contents(self.files.iter().map(hash).collect())
    }

    /// The keys whose files differ.
    pub(super) fn differing(&self, before: &Contents, after: &Contents) -> Vec<&'static str> {
        let pairs = before.0.iter().zip(&after.0);
        let keys = self.files.iter().map(|(key, _)| *key);
        keys.zip(pairs)
            .filter(|(_, (before, after))| before != after)
            .map(|(key, _)| key)
            .collect()
    }

    /// The paths of these keys, for people.
    pub(super) fn paths(&self, keys: &[&str]) -> String {
        let paths = self.files.iter().filter(|(key, _)| keys.contains(key));
        let paths: Vec<String> = paths.map(|(_, path)| path.display().to_string()).collect();
        paths.join(", ")
    }
}
