//! The file system under a store, as a trait, so that tests can stop it at any step.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::PathBuf;

pub(crate) trait Disk: fmt::Debug + Send + Sync {
    /// Creates a file. Fails if the file exists.
    fn create(&self, name: &str) -> io::Result<Box<dyn Output>>;
    fn open(&self, name: &str) -> io::Result<Box<dyn Input>>;
    /// Renames a file, replacing any file with the new name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Lists names and sizes.
    fn list(&self) -> io::Result<Vec<(String, u64)>>;
    /// Makes creations, renames and removals durable.
    fn sync_directory(&self) -> io::Result<()>;
}

/// A file that is written once.
pub(crate) trait Output: fmt::Debug + Send {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Forces the written bytes to disk.
    fn sync(&mut self) -> io::Result<()>;
}

pub(crate) trait Input {
    fn len(&self) -> io::Result<u64>;
    /// Reads `len` bytes at an offset. Fails if the file ends before.
    fn read(&self, at: u64, len: usize) -> io::Result<Vec<u8>>;
}

#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) directory: PathBuf,
}

/// Permissions of files: profiles name functions and hosts.
pub(crate) const FILE_MODE: u32 = 0o600;

impl Disk for Local {
    fn create(&self, name: &str) -> io::Result<Box<dyn Output>> {
        let mut options = OpenOptions::new();
        let options = options.write(true).create_new(true).mode(FILE_MODE);
        Ok(Box::new(options.open(self.directory.join(name))?))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Input>> {
        Ok(Box::new(File::open(self.directory.join(name))?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.directory.join(from), self.directory.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.directory.join(name))
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(&self.directory)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            if let (true, Some(name)) = (metadata.is_file(), entry.file_name().to_str()) {
                files.push((name.to_owned(), metadata.len()));
            }
        }
        Ok(files)
    }

    fn sync_directory(&self) -> io::Result<()> {
        File::open(&self.directory)?.sync_all()
    }
}

impl Output for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}

impl Input for File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read(&self, at: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.read_exact_at(&mut bytes, at)?;
        Ok(bytes)
    }
}
