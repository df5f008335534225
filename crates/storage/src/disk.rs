//! The writer's interface to the file system. It is a trait so that tests can inject failures.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::Path;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::{Errno, pwritev};

/// A file system that a log writes to.
pub(super) trait Disk: fmt::Debug + Send + Sync {
    /// Creates a file. Fails if the file exists.
    fn create(&self, path: &Path) -> io::Result<Box<dyn Output>>;
    /// Opens an existing file to overwrite it from its beginning.
    fn reuse(&self, path: &Path) -> io::Result<Box<dyn Output>>;
    fn sync_directory(&self, directory: &Path) -> io::Result<()>;
    fn remove(&self, path: &Path) -> io::Result<()>;
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Truncates a file that has no writer any more, and makes that durable.
    fn cut(&self, path: &Path, len: u64) -> io::Result<()>;
    /// Replaces a file atomically. Later replacements reuse the disk space of earlier ones, unless
    /// the content grows.
    fn replace(&self, path: &Path, content: &[u8], durable: bool) -> io::Result<()>;
}

/// A file that is written sequentially.
pub(super) trait Output: fmt::Debug + Send {
    /// Writes all slices in order. After an error, the file may contain any part of them, so the caller has to truncate
    /// the file.
    fn write(&mut self, slices: &mut [IoSlice<'_>]) -> io::Result<()>;
    fn sync(&mut self) -> io::Result<()>;
    /// Discards the data behind `len`. The next write continues there.
    fn truncate(&mut self, len: u64) -> io::Result<()>;
    /// Returns false if the file was removed. Data written to a removed file is lost when the file
    /// is closed.
    fn has_name(&self) -> io::Result<bool>;
}

/// The local file system.
#[derive(Debug)]
pub(super) struct Local {
    pub(super) mode: u32,
}

impl Disk for Local {
    fn create(&self, path: &Path) -> io::Result<Box<dyn Output>> {
        let mut options = OpenOptions::new();
        let options = options.write(true).create_new(true).mode(self.mode);
        let file = options.open(path)?;
        Ok(Box::new(Sequential { file, at: 0 }))
    }

    fn reuse(&self, path: &Path) -> io::Result<Box<dyn Output>> {
        let file = OpenOptions::new().write(true).open(path)?;
        Ok(Box::new(Sequential { file, at: 0 }))
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        File::open(directory)?.sync_all()
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn cut(&self, path: &Path, len: u64) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(path)?;
        file.set_len(len)?;
        file.sync_all()
    }

    fn replace(&self, path: &Path, content: &[u8], durable: bool) -> io::Result<()> {
        let mut beside = path.as_os_str().to_owned();
        beside.push(".new");
        let beside = Path::new(&beside);
        let mut options = OpenOptions::new();
        // Overwritten without truncation, so that the file keeps its disk space.
        options
            .write(true)
            .create(true)
            .truncate(false)
            .mode(self.mode);
        let mut file = options.open(beside)?;
        // Keeps the owner: after root drains a queue, the queue still belongs to the user of the
        // collector.
        let owner = std::fs::metadata(path).or_else(|_| match path.parent() {
            Some(directory) => std::fs::metadata(directory),
            None => file.metadata(),
        })?;
        if (owner.uid(), owner.gid()) != (file.metadata()?.uid(), file.metadata()?.gid()) {
            fchown(&file, Some(owner.uid()), Some(owner.gid()))?;
        }
        file.write_all(content)?;
        file.set_len(content.len() as u64)?;
        if durable {
            file.sync_all()?;
        }
        // Swaps the files, so that the old file keeps its disk space for the next call. A full disk
        // has no other space.
        if renameat_with(CWD, beside, CWD, path, RenameFlags::EXCHANGE).is_err() {
            // The old file does not exist, or the file system does not support the swap.
            std::fs::rename(beside, path)?;
        }
        match path.parent() {
            Some(directory) if durable => self.sync_directory(directory),
            _ => Ok(()),
        }
    }
}

/// Maximum number of slices per system call (`IOV_MAX`).
const MAX_SLICES: usize = 1024;

#[derive(Debug)]
struct Sequential {
    file: File,
    at: u64,
}

impl Output for Sequential {
    fn write(&mut self, mut slices: &mut [IoSlice<'_>]) -> io::Result<()> {
        // Equivalent to `File::write_all_vectored_at`, which is not stable.
        while slices.iter().any(|slice| !slice.is_empty()) {
            let few = slices.get(..MAX_SLICES).unwrap_or(slices);
            let written = match pwritev(&self.file, few, self.at) {
                Err(Errno::INTR) => continue,
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                written => written?,
            };
            self.at += written as u64;
            IoSlice::advance_slices(&mut slices, written);
        }
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.file.set_len(len)?;
        self.at = len;
        Ok(())
    }

    fn has_name(&self) -> io::Result<bool> {
        Ok(self.file.metadata()?.nlink() > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_above_iov_max_are_written_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("segment");
        let content: Vec<u8> = (0..4 * MAX_SLICES).map(|at| at as u8).collect();
        let empty_in_between = content.chunks(2).flat_map(|two| [two, &[]]);
        let mut slices: Vec<_> = empty_in_between.map(IoSlice::new).collect();
        let mut output = Local { mode: 0o600 }.create(&path).unwrap();
        output.write(&mut [IoSlice::new(b"before")]).unwrap();
        output.write(&mut slices).unwrap();
        output.write(&mut []).unwrap();
        let written = std::fs::read(&path).unwrap();
        assert_eq!(written, [b"before", content.as_slice()].concat());
    }

    #[test]
    fn replacing_a_file_needs_no_additional_space() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("position");
        let disk = Local { mode: 0o600 };
        let files = || {
            let entries = std::fs::read_dir(directory.path()).unwrap();
            let mut files: Vec<u64> = entries
                .map(|entry| entry.unwrap().metadata().unwrap().ino())
                .collect();
            files.sort_unstable();
            files
        };
        disk.replace(&path, b"the first", true).unwrap();
        disk.replace(&path, b"another", true).unwrap();
        let before = files();
        for content in ["shorter", "as long", "x"] {
            disk.replace(&path, content.as_bytes(), true).unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), content.as_bytes());
            assert_eq!(files(), before);
        }
    }
}
