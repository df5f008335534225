//! A small disk for each tier, which can be filled.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A directory; a file system of its own if the user may mount, unmounted on drop.
pub struct Disk {
    pub path: PathBuf,
    /// Whether the directory is a file system of its own, which may be filled.
    pub is_small: bool,
}

const BALLAST: &str = "ballast";

impl Disk {
    /// Creates the directory, and mounts a tmpfs of this size in bytes on it.
    pub fn mount(path: PathBuf, bytes: u64) -> std::io::Result<Self> {
        fs::create_dir_all(&path)?;
        let mut mount = Command::new("mount");
        mount.args([
            "-t",
            "tmpfs",
            "-o",
            &format!("size={bytes},mode=0700"),
            "tmpfs",
        ]);
        let mounted = mount.arg(&path).output();
        let is_small = mounted.is_ok_and(|output| output.status.success());
        Ok(Disk { path, is_small })
    }

    /// Fills the remaining space.
    pub fn fill(&self) -> std::io::Result<()> {
        let mut file = File::options()
            .create(true)
            .append(true)
            .open(self.path.join(BALLAST))?;
        for piece in [1 << 20, 1 << 12, 1] {
            let zeros = vec![0; piece];
            loop {
                match file.write_all(&zeros) {
                    Ok(()) => {}
                    Err(error) if error.kind() == ErrorKind::StorageFull => break,
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Frees the space.
    pub fn free(&self) -> std::io::Result<()> {
        fs::remove_file(self.path.join(BALLAST))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.is_small {
            let _ = Command::new("umount").arg("-l").arg(&self.path).output();
        }
    }
}

/// Returns the segments of persistent queues with records below a directory, largest first.
pub fn segments(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|end| end == "segment") {
                let size = entry.metadata().map_or(0, |metadata| metadata.len());
                found.push((size, path));
            }
        }
    }
    found.sort();
    found.into_iter().rev().map(|(_, path)| path).collect()
}

/// Flips one bit in the last half of a file; records at the beginning are already delivered.
pub fn flip(file: &Path) -> std::io::Result<u64> {
    let mut bytes = fs::read(file)?;
    let length = bytes.len();
    let at = length / 2 + fastrand::usize(0..(length / 2).max(1));
    if let Some(byte) = bytes.get_mut(at) {
        *byte ^= 1 << fastrand::u8(0..8);
    }
    fs::write(file, bytes)?;
    Ok(at as u64)
}
