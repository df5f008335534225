//! Names for addresses: from ELF files to functions, files and lines.
//!
//! A binary is compiled once, by [`compile()`], into a file of our own ([`file`](mod@file)) that is mapped into memory and
//! answers at once. Where binaries come from, and where compiled files are kept:
//!
//! - [`build_id`]: what a binary is known by; [`describe`]: what it says of itself.
//! - [`find`]: where its file is: directories, an object store, debuginfod servers.
//! - [`worker`]: the process in which strangers' files are read; what they do there costs nothing but themselves.
//! - [`cache`]: what came of it, on disk; [`failure`]: why nothing came of it.
//! - [`library`]: all of this behind one question: the symbols of a build id, now or later.

pub mod build_id;
pub mod cache;
pub mod compile;
mod decompress;
pub mod describe;
mod elf;
pub mod failure;
pub mod file;
pub mod find;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod inspect;
pub mod library;
mod map;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
pub mod worker;

pub use self::build_id::{BuildId, BuildIdError};
pub use self::compile::{CompileError, Inputs, Limits, Summary, compile};
pub use self::file::{
    Cursor, Frame, Frames, Function, FunctionId, MappingRange, Names, OpenError, RecentNames,
    Source, SymbolFile,
};
pub use self::inspect::{Inspection, inspect};
