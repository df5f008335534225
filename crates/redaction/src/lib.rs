//! Finds what is private in a text, and takes it out.
//!
//! A [`Scanner`] looks at each text once for all its detectors together: a prefilter over the bytes marks where something
//! could begin, and matchers written by hand confirm it with checksums and structure. A text without hits costs some
//! nanoseconds and is never copied. The rules:
//!
//! - Hits that overlap become one: the leftmost (at the same place: a custom detector in the order of the configuration,
//!   then a built-in one in the order of [`Detector::ALL`]) decides what happens, and all that any of them covers goes.
//! - What was written in place of a hit (a mark: `****`, `[EMAIL]`, `[EMAIL:3f1a...]`) is never a hit, and texts are
//!   scanned until nothing more is found: redacting twice changes nothing more.
//! - No text, and no part of one, is in any error, count or debug output.

mod anchors;
mod canonical;
mod catalogue;
#[cfg(test)]
mod corpus;
mod decode;
mod detect;
mod find;
mod folded;
mod hash;
mod marks;
mod masks;
mod pattern;
pub mod sanitize;
mod scanner;
mod settings;

use thiserror::Error;

pub use catalogue::{Detector, DetectorId, Hits};
pub use hash::Hasher;
pub use pattern::{Pattern, PatternSet};
pub use scanner::Scanner;
pub use settings::{Checksum, CustomDetectorConfig, DetectorAction, DetectorConfig, HashFunction};

use tributary_config::Secret;

/// What a scanner is made of.
#[derive(Debug, Clone, Copy)]
pub struct Settings<'a> {
    /// The built-in detectors; of two entries with the same name the last one counts.
    pub detectors: &'a [DetectorConfig],
    /// The user's own, at most [`DetectorId::CUSTOM`].
    pub custom: &'a [CustomDetectorConfig],
    /// What the actions `hash` and `hmac` compute.
    pub hash_function: Option<HashFunction>,
    /// The key of `hmac`.
    pub hmac_key: &'a Secret,
    /// Whether percent-encoded and base64 runs, and the escapes of JSON, are decoded and scanned too, one level deep.
    pub decode: bool,
}

/// Why a scanner cannot be made. Says which entry is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// A hash function with a key, and none or a short one.
    #[error("hmac_key must be at least {least} bytes long for {function}, and has {actual}")]
    Key {
        /// The function.
        function: &'static str,
        /// The fewest bytes.
        least: usize,
        /// How many it has.
        actual: usize,
    },
    /// A custom detector is not usable.
    #[error("custom[{position}].{key}: {problem}")]
    Custom {
        /// Which one, from 0.
        position: usize,
        /// Which of its keys.
        key: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// More than [`DetectorId::CUSTOM`] custom detectors.
    #[error("there are {0} custom detectors, and at most {max} are possible", max = DetectorId::CUSTOM)]
    TooMany(usize),
}

/// What became of a text.
#[derive(Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing was found.
    Clean,
    /// The text without what was found.
    Rewritten(String),
    /// An action `drop` says that the whole text goes.
    Drop,
}

/// A text that cannot be made free of hits. It must not be passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Unscannable {
    /// What is written in place of a hit is found again and again, by a custom pattern that matches what other detectors
    /// leave behind.
    #[error(
        "it still has something private after {} rounds of redaction",
        Scanner::ROUNDS
    )]
    Unsettled,
    /// The bytes are no text.
    #[error("it is not UTF-8")]
    NotUtf8,
    /// A pattern of the user's matches so often in so long a text that searching on would take seconds.
    #[error("a pattern matches too often in a text of its length")]
    TooManyMatches,
}
