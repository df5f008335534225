//! Readers of profilers' file formats, as OTLP profiles.
//!
//! [`detect`] recognizes a format by the content of a file, never by its name. [`read`] converts a file to profiles over
//! a dictionary, with one profile for each sample type, like the pprof reader of `tributary-profiles`. Sample types and
//! units have the names of the producer's own tool. Equal samples are added up, so that totals stay exact.
//!
//! # Bounds
//!
//! Files come from strangers. [`FormatLimits`] bounds the input, the memory of the profiles, and the frames of a stack. A
//! permit of the memory budget grows before memory is used. No parser recurses deeper than a constant.
//!
//! # To add a format
//!
//! Write a module with `read(&[u8], &mut Builder) -> Result<(), Fault>` and `begins_like(&[u8]) -> bool`, add a variant
//! to [`Format`], a row to `docs/profile-formats.md`, a fixture, and a name to the fuzz target `profile_formats`.

mod builder;
mod callgrind;
mod column;
mod cpuprofile;
mod error;
mod folded;
mod format;
mod go_text;
mod gperftools;
mod heap_text;
mod jemalloc;
mod jfr;
mod json;
mod limits;
mod maps;
mod perf_script;
mod read;
mod speedscope;
#[cfg(test)]
mod tests;
mod text;
mod tree;

pub use self::error::{FormatError, Position};
pub use self::format::Format;
pub use self::jfr::CONTEXT as JFR_CONTEXT;
pub use self::limits::FormatLimits;
pub use self::read::{detect, read, read_profiles};
