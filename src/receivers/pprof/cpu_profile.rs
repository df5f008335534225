//! CPU profiles of this process.
//!
//! A kernel timer of CPU time (`ITIMER_PROF`) interrupts the running thread. The signal handler
//! only copies the registers and the upper part of the stack (`signal`). Unwinding happens later,
//! with the call frame information that every binary contains for panics (`binaries`, and
//! `framehop`), so neither the program nor its libraries need frame pointers. Functions are not
//! symbolized here: mappings with build ids identify the addresses, as in all profiles.
//!
//! The crate `pprof` was considered and not used. It unwinds within the signal handler, by default
//! with a library that takes locks there. It writes to a temporary file, which a read-only
//! container cannot do. Its profiles have no mappings, so they cannot be symbolized later.

#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
mod binaries;
#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
mod elf;
#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
mod native;
#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
mod signal;

use std::collections::HashMap;
use std::io;

#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
pub use self::native::Profiler;

/// Sample count of each stack: instruction addresses, the innermost first.
pub type Stacks = HashMap<Vec<u64>, u64>;

/// A part of a file that is mapped as executable code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapped {
    /// First address of the mapping.
    pub start: u64,
    /// Address after the last one.
    pub limit: u64,
    /// Offset of the first address in the file.
    pub file_offset: u64,
    /// Path of the file.
    pub path: String,
    /// Build id of the file.
    pub build_id: BuildId,
}

/// Identity of a build, in lower-case hexadecimal digits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum BuildId {
    /// Build id written by the linker.
    Gnu(String),
    /// Hash of the beginning and end of the file, if the linker wrote no build id (OpenTelemetry
    /// semantic conventions, `process.executable.build_id.htlhash`).
    Hash(String),
    /// The file cannot be read.
    #[default]
    Unknown,
}

/// Profiler that samples while the value exists. Only one may exist at a time.
#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
#[derive(Debug)]
pub struct Profiler(std::convert::Infallible);

#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
impl Profiler {
    /// Starts sampling.
    ///
    /// # Errors
    /// Always returns an error on this system.
    pub fn start(_: u32) -> io::Result<Self> {
        Err(unsupported())
    }

    /// Never called: no value of this type exists.
    pub fn collect(&mut self, _: &mut Stacks) -> u64 {
        match self.0 {}
    }

    /// Never called: no value of this type exists.
    pub fn mapped(&self) -> &[Mapped] {
        match self.0 {}
    }
}

/// Checks that this system supports CPU profiles.
///
/// # Errors
/// Returns an error if it does not.
pub fn supported() -> io::Result<()> {
    match cfg!(all(
        target_os = "linux",
        any(target_arch = "x86_64", target_arch = "aarch64")
    )) {
        true => Ok(()),
        false => Err(unsupported()),
    }
}

fn unsupported() -> io::Error {
    let text = "profiling the process itself works on Linux only, on x86-64 and arm64";
    io::Error::new(io::ErrorKind::Unsupported, text)
}

/// Maximum number of distinct stacks between two collections; samples of further stacks are lost.
/// About 20 MB.
#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
const MOST_STACKS: usize = 1 << 16;
