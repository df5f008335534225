//! Directories of logs.

use std::path::{Path, PathBuf};
use std::{fs, io};

use super::own_files;

/// Creates the directory of a log durably. Returns its canonical path.
pub(super) fn make(directory: &Path, file_mode: u32) -> io::Result<PathBuf> {
    if !directory.is_dir() {
        // Every reader of the files gets permission to search the directory.
        let mode = file_mode | ((file_mode & 0o444) >> 2);
        own_files::create_directories(directory, mode)?;
        if let Some(parent) = directory.parent() {
            fs::File::open(parent)?.sync_all()?;
        }
    }
    own_files::check(directory)?;
    directory.canonicalize()
}
