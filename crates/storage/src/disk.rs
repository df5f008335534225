//! What a log asks of the file system when it writes: behind a trait, so that tests can make it fail.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::Path;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::{Errno, pwritev};

use super::direct::Direct;

/// Where a log writes.
pub(super) trait Disk: fmt::Debug + Send + Sync {
    /// A new file; an error if there is one of that name.
    fn create(&self, path: &Path) -> io::Result<Box<dyn Output>>;
    /// A file that is there, to be written over from its beginning. If every write is followed by a `sync`, the page cache
    /// is of no use.
    fn reuse(&self, path: &Path, synced: bool) -> io::Result<Box<dyn Output>>;
    /// Makes the creation and removal of files in a directory durable.
    fn sync_directory(&self, directory: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Gives a file another name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Cuts a file that nobody writes to any more, and makes that durable.
    fn cut(&self, path: &Path, len: u64) -> io::Result<()>;
    /// Replaces a file by another with this content, as a whole. From the second time on it takes no new room on the
    /// disk, unless the content is longer than any before.
    fn replace(&self, path: &Path, content: &[u8], durable: bool) -> io::Result<()>;
}

/// A file that is written to in order.
pub(super) trait Output: fmt::Debug + Send {
    /// Writes all of it, one behind the other. It may be held back until the next `flush` or `sync`. After an error of any of
    /// these any part of what was not flushed before may be there, and the file has to be truncated.
    fn write(&mut self, slices: &mut [IoSlice<'_>]) -> io::Result<()>;
    /// Has written what was held back, so that it can be read.
    fn flush(&mut self) -> io::Result<()>;
    /// Forces what was written to the disk.
    fn sync(&mut self) -> io::Result<()>;
    /// Takes back what is behind `len`; the next write goes there.
    fn truncate(&mut self, len: u64) -> io::Result<()>;
    /// Returns false if the file was removed: what is written to it is gone once it is closed.
    fn has_name(&self) -> io::Result<bool>;
}

/// The file system of this machine.
#[derive(Debug)]
pub(super) struct Local {
    /// Permissions of new files.
    pub(super) mode: u32,
}

impl Disk for Local {
    fn create(&self, path: &Path) -> io::Result<Box<dyn Output>> {
        let mut options = OpenOptions::new();
        let options = options.write(true).create_new(true).mode(self.mode);
        Ok(Box::new(Sequential::Cached(options.open(path)?, 0)))
    }

    fn reuse(&self, path: &Path, synced: bool) -> io::Result<Box<dyn Output>> {
        // Some file systems cannot do it.
        if synced && let Ok(direct) = Direct::open(path) {
            return Ok(Box::new(Sequential::Direct(direct, 0)));
        }
        let file = OpenOptions::new().write(true).open(path)?;
        Ok(Box::new(Sequential::Cached(file, 0)))
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
        // It is written over, so that it keeps the room it has.
        options
            .write(true)
            .create(true)
            .truncate(false)
            .mode(self.mode);
        let mut file = options.open(beside)?;
        // Whoever it is written by: a queue that root drains is the collector's still.
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
        // The old one stays beside it, with its room: on a full disk there may be no other.
        if renameat_with(CWD, beside, CWD, path, RenameFlags::EXCHANGE).is_err() {
            // There is no old one, or the file system cannot do it.
            std::fs::rename(beside, path)?;
        }
        match path.parent() {
            Some(directory) if durable => self.sync_directory(directory),
            _ => Ok(()),
        }
    }
}

/// How many the system takes at once (`IOV_MAX`).
const MOST_SLICES: usize = 1024;

/// A file, and where it is written to next.
#[derive(Debug)]
enum Sequential {
    Cached(File, u64),
    /// For as long as the file has its place on the disk.
    Direct(Direct, u64),
    /// Nobody knows how to write to it any more.
    Lost,
}

impl Sequential {
    /// By way of the page cache from now on.
    fn cached(&mut self) -> io::Result<(&mut File, &mut u64)> {
        *self = match std::mem::replace(self, Sequential::Lost) {
            Sequential::Direct(direct, at) => Sequential::Cached(direct.leave()?, at),
            other => other,
        };
        match self {
            Sequential::Cached(file, at) => Ok((file, at)),
            _ => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

impl Output for Sequential {
    fn write(&mut self, mut slices: &mut [IoSlice<'_>]) -> io::Result<()> {
        if let Sequential::Direct(direct, at) = self {
            let mut taken = 0;
            for slice in slices.iter() {
                if !direct.write(slice)? {
                    direct.flush()?;
                    break;
                }
                *at += slice.len() as u64;
                taken += 1;
            }
            slices = &mut slices[taken..];
            if slices.is_empty() {
                return Ok(());
            }
        }
        let (file, at) = self.cached()?;
        // The same as `File::write_all_vectored_at`, which is not stable.
        while slices.iter().any(|slice| !slice.is_empty()) {
            let few = slices.get(..MOST_SLICES).unwrap_or(slices);
            let written = match pwritev(&*file, few, *at) {
                Err(Errno::INTR) => continue,
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                written => written?,
            };
            *at += written as u64;
            IoSlice::advance_slices(&mut slices, written);
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Sequential::Direct(direct, _) => direct.flush(),
            _ => Ok(()),
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        match self {
            Sequential::Direct(direct, _) => direct.sync(),
            _ => self.cached()?.0.sync_data(),
        }
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        let (file, at) = self.cached()?;
        file.set_len(len)?;
        *at = len;
        Ok(())
    }

    fn has_name(&self) -> io::Result<bool> {
        let links = match self {
            Sequential::Cached(file, _) => file.metadata()?.nlink(),
            Sequential::Direct(direct, _) => direct.metadata()?.nlink(),
            Sequential::Lost => 0,
        };
        Ok(links > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_slices_than_the_system_takes_at_once_are_written_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("segment");
        let content: Vec<u8> = (0..4 * MOST_SLICES).map(|at| at as u8).collect();
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
    fn replacing_a_file_needs_no_room_for_another_one() {
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
