//! Files as bytes, without reading them.

use std::fs::File;
use std::io;
use std::ops::Deref;

use memmap2::Mmap;

/// A file's bytes, mapped into memory.
///
/// Whoever can shorten the file can end this process with it (`SIGBUS`): so what is mapped is a file of this program's own
/// directory, which is only ever replaced as a whole, or it is mapped by a process that may end.
#[derive(Debug)]
pub(super) struct Map(Option<Mmap>);

impl Map {
    pub(super) fn of(file: &File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        // Mapping it would say that there is no such device.
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
    reason = "a mapping is only as good as its file; what could go wrong is said above, and nothing is believed that is read"
)]
mod memory {
    use std::fs::File;
    use std::io;

    use memmap2::Mmap;

    pub(super) fn map(file: &File) -> io::Result<Mmap> {
        // SAFETY: the mapping is private and read-only, and every use of its bytes checks what it reads. That nobody
        // writes to the file in the meantime is up to the callers, see above.
        unsafe { Mmap::map(file) }
    }
}
