//! Memory-mapped files.

use std::fs::File;
use std::io;
use std::ops::Deref;

use memmap2::Mmap;

/// The bytes of a memory-mapped file.
///
/// Truncating a mapped file ends the process (`SIGBUS`). Therefore a mapped file is in a directory of this program,
/// where files are only replaced as a whole, or is mapped by a worker process that may crash.
#[derive(Debug)]
pub(super) struct Map(Option<Mmap>);

impl Map {
    pub(super) fn of(file: &File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        // Mapping a directory would report a missing device.
        if metadata.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        // An empty file cannot be mapped.
        if metadata.len() == 0 {
            return Ok(Map(None));
        }
        memory::map(file).map(|map| Map(Some(map)))
    }
}

impl Deref for Map {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }
}

#[allow(
    unsafe_code,
    reason = "another process could change a mapped file; `Map` states the conditions under which files are mapped"
)]
mod memory {
    use std::fs::File;
    use std::io;

    use memmap2::Mmap;

    pub(super) fn map(file: &File) -> io::Result<Mmap> {
        // SAFETY: the mapping is private and read-only, and every use of its bytes checks the values read. The callers
        // must ensure that the file is not modified during its use, see above.
        unsafe { Mmap::map(file) }
    }
}
