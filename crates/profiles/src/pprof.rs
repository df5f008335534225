//! Converts pprof files to and from OTLP profiles.
//!
//! A pprof file has one list of samples with a value for each of its sample types. In OTLP, the file becomes one
//! profile per sample type, all in one scope, which keeps the order of sample types and the default type. Converting a
//! file there and back keeps its content, except for details that readers do not see: ids, the order of tables,
//! unreferenced entries, samples of zeros only, and whether equal samples are merged.
//!
//! - [`read`](mod@read): from a file directly into a [`Dictionary`](super::Dictionary), without an intermediate
//!   copy.
//! - [`write`](mod@write): the opposite direction.
//!
//! The format is `proto/profile.proto` of github.com/google/pprof. Attribute names follow the semantic conventions:
//! see [`names`](super::names).

mod build_id;
mod error;
mod files;
mod labels;
mod legacy;
mod links;
pub mod read;
mod repairs;
mod source;
mod tables;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod texts;
pub mod write;

pub use self::error::{Error, FileTable};
pub use self::links::{IdFormat, IdLabel, LabelError, LinkLabels};
pub use self::read::{Converted, PprofReader, ReadOptions};
pub use self::repairs::Repairs;
pub use self::texts::all_texts;

/// Identifies bytes of another format that is often sent as pprof: legacy formats, files of other profilers, web pages.
pub fn foreign(bytes: &[u8]) -> Option<&'static str> {
    legacy::identify(bytes)
}
