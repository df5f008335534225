//! The output of decompression, within the memory budget.

use std::io::{self, Read};

use tributary_memory::{NoRoom, Permit};

/// Reason why a body was not decompressed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecompressError {
    /// The decompressed body is larger than this many bytes. A retry cannot succeed.
    #[error("the decompressed body is larger than {0} bytes")]
    TooLarge(usize),
    /// The memory budget has no room for the body.
    #[error("no memory to decompress the body: {0}")]
    NoMemory(#[from] NoRoom),
    /// The body is invalid or incomplete.
    #[error("{0}")]
    Corrupt(String),
}

pub(super) struct Output<'p> {
    pub(super) bytes: Vec<u8>,
    pub(super) limit: usize,
    pub(super) permit: &'p mut Permit,
}

impl Output<'_> {
    /// Makes room for at least one more byte. One byte above the limit may be written, to detect a body above the
    /// limit.
    pub(super) fn room(&mut self) -> Result<(), DecompressError> {
        if self.bytes.len() > self.limit {
            return Err(DecompressError::TooLarge(self.limit));
        }
        if self.bytes.len() < self.bytes.capacity() {
            return Ok(());
        }
        let most = self.limit.saturating_add(1);
        self.reserve((self.bytes.capacity() * 2).clamp(FIRST_ALLOCATION.min(most), most))
    }

    /// Grows the capacity to at least `capacity`, which exceeds the limit by one byte at most.
    pub(super) fn reserve(&mut self, capacity: usize) -> Result<(), DecompressError> {
        // A reallocation keeps the old allocation until the bytes are copied.
        let old = self.bytes.capacity();
        self.permit.grow(capacity)?;
        self.bytes.reserve_exact(capacity - self.bytes.len());
        self.permit.shrink_to(self.permit.bytes() - old);
        Ok(())
    }

    /// Allocates once for the declared size, if `ratio`, the maximum of the format, makes the size plausible.
    pub(super) fn expect(
        &mut self,
        declared: u64,
        input: usize,
        ratio: usize,
    ) -> Result<(), DecompressError> {
        let plausible = self.limit.min(input.saturating_mul(ratio));
        match usize::try_from(declared) {
            // With one more byte, the decoder's last call needs no allocation.
            Ok(declared) if declared <= plausible => self.reserve(declared + 1),
            _ => Ok(()),
        }
    }

    /// Takes budget for the decoder's own memory until the decompression ends.
    pub(super) fn scratch(&mut self, bytes: usize) -> Result<(), DecompressError> {
        Ok(self.permit.grow(bytes)?)
    }

    pub(super) fn fill(&mut self, reader: &mut impl Read) -> Result<(), DecompressError> {
        loop {
            self.room()?;
            let len = self.bytes.len();
            self.bytes
                .resize(self.bytes.capacity().min(len + READ_SIZE), 0);
            let read = reader.read(self.bytes.get_mut(len..).unwrap_or_default());
            self.bytes.truncate(len + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Err(truncated());
                }
                Err(error) => return Err(corrupt(error)),
            }
        }
    }
}

pub(super) fn corrupt(reason: impl std::fmt::Display) -> DecompressError {
    DecompressError::Corrupt(format!("the compressed body is corrupt: {reason}"))
}

pub(super) fn truncated() -> DecompressError {
    DecompressError::Corrupt("the compressed body is truncated".to_owned())
}

/// First allocation in bytes, if the size is unknown.
const FIRST_ALLOCATION: usize = 8 << 10;
/// Bytes per read from a decoder that needs initialized memory.
const READ_SIZE: usize = 64 << 10;
