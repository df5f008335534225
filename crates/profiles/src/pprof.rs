//! pprof files, to and from OTLP profiles.
//!
//! A pprof file has one list of samples with a value for each of its sample types; in OTLP that is one profile per
//! sample type, all in one scope, which keeps their order and which one is shown first. What a file says comes back
//! when it is converted there and back, but for what its readers do not see either: ids, the order of tables, entries
//! that nothing refers to, samples of zeros only, and whether equal samples are one or several.
//!
//! - [`read`](mod@read): from a file straight into a [`Dictionary`](super::Dictionary), without a copy in between.
//! - [`write`](mod@write): the other way.
//!
//! The format is that of `proto/profile.proto` of github.com/google/pprof, the names of attributes are those of the
//! semantic conventions: see [`names`](super::names).

mod build_id;
mod error;
mod labels;
mod legacy;
mod links;
pub mod read;
mod source;
mod tables;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod texts;
pub mod write;

pub use self::error::{Error, Table};
pub use self::links::{IdFormat, IdLabel, LabelError, LinkLabels};
pub use self::read::{Converted, Options, Reader, Repairs};
pub use self::texts::all_texts;

/// What these bytes are, if they are no pprof file but something else that comes where pprof files are expected: the
/// formats from before it, other profilers' files, web pages.
pub fn foreign(bytes: &[u8]) -> Option<&'static str> {
    legacy::recognise(bytes)
}
