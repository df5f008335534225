//! Detects and redacts private data in texts: personal data, credentials, keys and tokens.
//!
//! A [`Scanner`] runs all detectors of a configuration in one pass. A prefilter over the bytes marks anchors, the
//! positions where a hit may begin. Hand-written matchers then confirm a candidate by its structure and checksum. A
//! text without hits costs some nanoseconds and is never copied.
//!
//! # Invariants
//!
//! - Overlapping hits become one hit that covers all of them. The leftmost hit decides the action. At the same
//!   position, custom detectors come first, in the order of the configuration; built-in detectors follow in the order
//!   of [`Detector::ALL`].
//! - A mark, the text that replaces a hit (`****`, `[EMAIL]`, `[EMAIL:3f1a...]`), is never a hit.
//! - Redaction is idempotent: a text is scanned until a scan finds nothing, at most [`Scanner::ROUNDS`] times.
//! - Every text is scanned in linear time. Searches of custom patterns have a bound, and fail beyond it.
//! - No error, count or debug output contains a text or a part of it.
//!
//! # Example
//!
//! ```
//! use tributary_config::Secret;
//! use tributary_redaction::{Detector, DetectorAction, DetectorConfig, Hits, ScanOutcome, Scanner, ScannerSettings};
//!
//! let detectors = [DetectorConfig { name: Detector::Email, action: DetectorAction::Replace }];
//! let scanner = Scanner::new(&ScannerSettings {
//!     detectors: &detectors,
//!     custom: &[],
//!     hash_function: None,
//!     hmac_key: &Secret::default(),
//!     decode: true,
//! })?;
//! let mut hits = Hits::default();
//! let outcome = scanner.scan("sent to jane.roe@example.org", &mut hits)?;
//! assert!(outcome == ScanOutcome::Rewritten("sent to [EMAIL]".to_owned()));
//! let (id, count) = hits.iter().next().expect("one detector has a hit");
//! assert_eq!((scanner.detector_name(id), count), ("email", 1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where to start reading
//!
//! - `settings`: the configuration of detectors and actions.
//! - `scanner`: the sequence of one redaction; `find`, `masks` and `anchors`: the prefilter.
//! - `detect`: one matcher per detector; `catalogue`: the list of detectors.
//! - `decode` and `folded`: encoded runs, JSON escapes and look-alike characters.
//! - `marks`, `hash` and `canonical`: the text that replaces a hit.
//! - [`sanitize`]: the Collector's sanitizers for URLs and database queries, independent of the scanner.

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

/// Settings from which a scanner is made.
#[derive(Debug, Clone, Copy)]
pub struct ScannerSettings<'a> {
    /// Enabled built-in detectors. Of two entries with the same name, the last entry takes effect.
    pub detectors: &'a [DetectorConfig],
    /// Custom detectors, at most [`DetectorId::CUSTOM`].
    pub custom: &'a [CustomDetectorConfig],
    /// Hash function of the actions `hash` and `hmac`.
    pub hash_function: Option<HashFunction>,
    /// Key of the action `hmac`.
    pub hmac_key: &'a Secret,
    /// Whether percent-encoded runs, base64 runs and JSON escapes are decoded and scanned too, one level deep.
    pub decode: bool,
}

/// A setting that prevents the scanner from being made, with its position.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// The key of a keyed hash function is missing or too short.
    #[error("hmac_key must be at least {least} bytes long for {function}, and has {actual}")]
    Key {
        /// Name of the function.
        function: &'static str,
        /// Minimum length of the key, in bytes.
        least: usize,
        /// Actual length of the key, in bytes.
        actual: usize,
    },
    /// A custom detector is invalid.
    #[error("custom[{position}].{key}: {problem}")]
    Custom {
        /// Position of the detector in the list, from 0.
        position: usize,
        /// Invalid key of the detector's settings.
        key: &'static str,
        /// Description of the problem.
        problem: String,
    },
    /// More than [`DetectorId::CUSTOM`] custom detectors.
    #[error("{0} custom detectors exceed the maximum of {max}", max = DetectorId::CUSTOM)]
    TooMany(usize),
}

/// Result of scanning a text.
#[derive(Clone, PartialEq, Eq)]
pub enum ScanOutcome {
    /// Nothing was found.
    Clean,
    /// The redacted text.
    Rewritten(String),
    /// The action `drop` removes the whole text.
    Drop,
}

/// Reason why a text cannot be redacted. Such a text must not be passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Unscannable {
    /// Every round of redaction finds new hits, because a custom pattern matches the marks of other detectors.
    #[error(
        "the redacted text still has private data after {} rounds",
        Scanner::ROUNDS
    )]
    Unsettled,
    /// The bytes are not UTF-8.
    #[error("the text is not UTF-8")]
    NotUtf8,
    /// A custom pattern has so many matches in a long text that the search would take seconds.
    #[error("a custom pattern has too many matches in a long string")]
    TooManyMatches,
}
