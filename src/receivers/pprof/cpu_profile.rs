//! Where this process spends its CPU time.
//!
//! A timer of the kernel that counts CPU time (`ITIMER_PROF`) interrupts whichever thread runs. What happens then is no
//! more than must: registers and the upper part of the stack are copied (`signal`). Unwinding is done later, by the
//! call frame information that every binary has for panics (`binaries`, and `framehop`), so that neither the program nor
//! its libraries need frame pointers. Functions get no names here: mappings with their build ids say where addresses
//! belong, as in all profiles.
//!
//! The crate `pprof` was looked at and does it otherwise: it unwinds inside the signal handler, by default with a
//! library that takes locks there; it spills to a temporary file, which a read-only container has no place for; and its
//! profiles have no mappings, so that nobody can symbolize them later.

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

/// How often each stack was seen: addresses of instructions, the innermost first.
pub type Stacks = HashMap<Vec<u64>, u64>;

/// A part of a file that is in memory as code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapped {
    /// The first address.
    pub start: u64,
    /// The address behind the last one.
    pub limit: u64,
    /// Where in the file the first address is.
    pub file_offset: u64,
    /// The file.
    pub path: String,
    /// Which build of it.
    pub build_id: BuildId,
}

/// What tells builds of a file apart, in lower-case hexadecimal digits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum BuildId {
    /// What its linker wrote into it.
    Gnu(String),
    /// A hash of its ends, where the linker wrote nothing (semantic conventions of OpenTelemetry,
    /// `process.executable.build_id.htlhash`).
    Hash(String),
    /// It cannot be read.
    #[default]
    Unknown,
}

/// Takes samples while it lives; there is no other one meanwhile.
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
    /// Begins.
    ///
    /// # Errors
    /// Always, on this system.
    pub fn start(_: u32) -> io::Result<Self> {
        Err(unsupported())
    }

    /// Cannot be called: there is none.
    pub fn collect(&mut self, _: &mut Stacks) -> u64 {
        match self.0 {}
    }

    /// Cannot be called: there is none.
    pub fn mapped(&self) -> &[Mapped] {
        match self.0 {}
    }
}

/// Whether this system can do it.
///
/// # Errors
/// When it cannot.
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

/// Stacks that are told apart at most until they are taken away; the samples of others are lost. About 20 MB.
#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
const MOST_STACKS: usize = 1 << 16;
