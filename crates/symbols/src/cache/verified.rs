//! Files whose content is compared with its checksums when this process opens them first: what a disk, or a crash of
//! the machine, has made of them is noticed before addresses get wrong names.

use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use crate::file::{OpenError, SymbolFile};

/// A file by its device, its number there, which another one gets after it, and the checksum of its header, which has
/// those of all its content.
type Identity = (u64, u64, u32);

/// So many are remembered; then it begins anew.
const REMEMBERED: usize = 1 << 16;

static VERIFIED: LazyLock<Mutex<HashSet<Identity>>> = LazyLock::new(Mutex::default);

/// Opens a compiled file. Reads all of it if this process has not done so before.
///
/// # Errors
/// When it cannot be opened, or is damaged.
pub fn open_verified(path: &Path) -> Result<SymbolFile, OpenError> {
    let mut all = u64::MAX;
    let file = open_within(path, &mut all)?;
    // There is no longer one.
    file.ok_or(OpenError::Damaged)
}

/// The same; none if it was not read before and has more than so many bytes, which become fewer.
pub(super) fn open_within(path: &Path, bytes: &mut u64) -> Result<Option<SymbolFile>, OpenError> {
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
    if verified.len() >= REMEMBERED {
        verified.clear();
    }
    verified.insert(identity);
    Ok(Some(file))
}

fn verified() -> MutexGuard<'static, HashSet<Identity>> {
    VERIFIED.lock().unwrap_or_else(PoisonError::into_inner)
}
