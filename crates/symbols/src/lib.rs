//! Symbolizes addresses: turns the addresses of a binary into functions, source files and lines.
//!
//! A binary, with its separate debug files, is compiled once into a symbol file by [`compile()`]. A symbol file
//! ([`file`](mod@file)) is memory-mapped and serves lookups without decoding the whole file.
//!
//! # Invariants
//!
//! - ELF files are untrusted input. Only a sandboxed process reads them (see [`worker`]); a malicious file costs one
//!   symbol file, not the collector.
//! - Every index in a symbol file is checked at its use. A damaged file gives wrong or missing names, never a crash.
//! - A query to a source consists of a build id; no other telemetry becomes part of a path or URL.
//! - Lookups never wait for a source: a missing symbol file is fetched in the background.
//!
//! # Example
//!
//! ```
//! use std::io::Cursor;
//! use tributary_symbols::{CompileLimits, Inputs, SymbolFile, compile};
//!
//! let binary = std::env::current_exe()?;
//! let mut compiled = Cursor::new(Vec::new());
//! let inputs = Inputs { binary: &binary, supplementary: &[] };
//! let summary = compile(&inputs, &CompileLimits::default(), &mut compiled)?;
//! let file = SymbolFile::from_bytes(compiled.into_inner())?;
//! assert!(file.verify().is_ok());
//! assert_eq!(file.ranges(), summary.ranges);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where to start reading
//!
//! - [`library`]: the entry point, which returns the symbols of a build id, now or later.
//! - [`find`]: the sources of binaries: directories, an object store, debuginfod servers.
//! - [`worker`]: the sandboxed process that reads ELF files; [`compile()`] and [`describe`]: the work of that
//!   process.
//! - [`cache`]: symbol files on disk; [`failure`]: the reasons why a build id has no symbols.
//! - [`build_id`]: the identity of a binary.

pub mod build_id;
pub mod cache;
pub mod compile;
mod decompress;
pub mod describe;
mod elf;
mod elf_error;
pub mod failure;
pub mod file;
pub mod find;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod inspect;
pub mod library;
mod links;
mod map;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
pub mod worker;

pub use self::build_id::{BuildId, BuildIdError};
pub use self::compile::{CompileError, CompileLimits, CompileSummary, Inputs, compile};
pub use self::file::{
    Cursor, Frame, Frames, FunctionId, FunctionNames, MappingRange, NameSource, Names, RecentNames,
    SymbolFile, SymbolFileError,
};
pub use self::inspect::{Inspection, inspect};
