//! Read positions on disk, so that a restart continues where reading ended.

use std::collections::HashMap;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use tributary_storage::own_files;

/// Number of bytes at the beginning of a file that distinguish files with the same inode, as in the Collector. A stored
/// position is used only if these bytes are unchanged.
const HEAD: usize = 1 << 10;

/// Position in one file at which reading continues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Position {
    pub(super) path: PathBuf,
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(super) offset: u64,
    pub(super) number: u64,
    pub(super) in_skipped: bool,
    /// Checksum of the bytes before `offset`, at most [`HEAD`].
    pub(super) head: u64,
}

/// The stored positions of one receiver, by device and inode.
#[derive(Debug)]
pub(super) struct Positions {
    path: PathBuf,
    known: HashMap<(u64, u64), Position>,
    is_loaded: bool,
}

impl Positions {
    pub(super) fn new(path: PathBuf) -> Self {
        Positions {
            path,
            known: HashMap::new(),
            is_loaded: false,
        }
    }

    /// Loads the positions at the first call. Returns whether there are any positions.
    ///
    /// # Errors
    /// The file exists and cannot be read.
    pub(super) fn load(&mut self) -> io::Result<bool> {
        if !std::mem::replace(&mut self.is_loaded, true) {
            let text = match fs::read(&self.path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
                text => text?,
            };
            let positions: Vec<Position> = serde_json::from_slice(&text)?;
            let keyed = |position: Position| ((position.device, position.inode), position);
            self.known = positions.into_iter().map(keyed).collect();
        }
        Ok(!self.known.is_empty())
    }

    /// Returns the stored position of a file, if the file is the same as when the position was stored.
    pub(super) fn of(&self, file: &File) -> io::Result<Option<&Position>> {
        let metadata = file.metadata()?;
        let Some(position) = self.known.get(&identity_of(&metadata)) else {
            return Ok(None);
        };
        let is_same =
            metadata.len() >= position.offset && head(file, position.offset)? == position.head;
        Ok(is_same.then_some(position))
    }

    /// Stores changed positions. Keeps the positions of files that exist and are not open.
    ///
    /// # Errors
    /// The positions cannot be written; the previously stored positions stay.
    pub(super) fn store(&mut self, open: Vec<Position>) -> io::Result<()> {
        let mut next: HashMap<(u64, u64), Position> = HashMap::new();
        for (identity, position) in &self.known {
            let metadata = fs::metadata(&position.path);
            if metadata.is_ok_and(|metadata| identity_of(&metadata) == *identity) {
                next.insert(*identity, position.clone());
            }
        }
        next.extend(
            open.into_iter()
                .map(|position| ((position.device, position.inode), position)),
        );
        if next == self.known {
            return Ok(());
        }
        let mut positions: Vec<&Position> = next.values().collect();
        positions.sort_unstable_by(|one, other| one.path.cmp(&other.path));
        let text = serde_json::to_vec(&positions)?;
        // After a crash, either the old or the new file exists.
        let temporary = self.path.with_extension("tmp");
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        let mut file = own_files::open(&options, &temporary)?;
        file.write_all(&text)?;
        file.sync_data()?;
        fs::rename(&temporary, &self.path)?;
        self.known = next;
        Ok(())
    }
}

/// Returns the checksum (FNV-1a) of a file's bytes before `offset`, at most [`HEAD`] bytes. The checksum detects reused
/// inodes, not forgery.
pub(super) fn head(file: &File, offset: u64) -> io::Result<u64> {
    let length = usize::try_from(offset).unwrap_or(HEAD).min(HEAD);
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, 0)?;
    let step = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    Ok(bytes.iter().fold(0xcbf2_9ce4_8422_2325, step))
}

/// Returns the device and the inode.
pub(super) fn identity_of(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}
