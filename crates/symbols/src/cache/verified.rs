//! Verifies the checksums of a symbol file when this process first opens the file. This detects damage on
//! disk before addresses get wrong names.

use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::LazyLock;

use parking_lot::{Mutex, MutexGuard};

use crate::file::{SymbolFile, SymbolFileError};

/// Device, inode and header checksum of a file. The checksum distinguishes files that reuse an inode; it covers the
/// checksums of all sections.
type Identity = (u64, u64, u32);

/// Maximum number of remembered files; a full table is cleared.
const MAX_VERIFIED: usize = 1 << 16;

static VERIFIED: LazyLock<Mutex<HashSet<Identity>>> = LazyLock::new(Mutex::default);

/// Opens a compiled file. Reads the whole file if this process has not verified it before.
///
/// # Errors
/// Fails if the file cannot be opened or is damaged.
pub fn open_verified(path: &Path) -> Result<SymbolFile, SymbolFileError> {
    let mut all = u64::MAX;
    let file = open_within(path, &mut all)?;
    file.ok_or(SymbolFileError::Damaged)
}

/// Like [`open_verified`], but returns `None` instead of verifying more than `bytes`. Subtracts the verified
/// bytes from `bytes`.
pub(super) fn open_within(
    path: &Path,
    bytes: &mut u64,
) -> Result<Option<SymbolFile>, SymbolFileError> {
    let opened = File::open(path)?;
    let metadata = opened.metadata()?;
    let file = SymbolFile::map(&opened)?;
    let identity = (metadata.dev(), metadata.ino(), file.header_sum());
    if verified().contains(&identity) {
        return Ok(Some(file));
    }
    let Some(left) = bytes.checked_sub(file.bytes()) else {
        return Ok(None);
    };
    *bytes = left;
    file.verify()?;
    let mut verified = verified();
    if verified.len() >= MAX_VERIFIED {
        verified.clear();
    }
    verified.insert(identity);
    Ok(Some(file))
}

fn verified() -> MutexGuard<'static, HashSet<Identity>> {
    VERIFIED.lock()
}
