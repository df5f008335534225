//! Reasons why a page cannot be read.

use std::fmt;

/// A mistake in a page. The entries before the mistake were read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {reason}")]
pub struct PageFault {
    place: Place,
    reason: String,
}

/// Position of a mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    /// Line, counted from 1.
    Line(usize),
    /// Name of a metric family.
    Family(String),
    /// Byte, counted from 0.
    Byte(usize),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Line(line) => write!(f, "line {line}"),
            Place::Family(name) => write!(f, "metric family `{name}`"),
            Place::Byte(byte) => write!(f, "byte {byte}"),
        }
    }
}

impl PageFault {
    /// A mistake at a byte of a text.
    pub(crate) fn in_text(text: &[u8], at: usize, reason: impl Into<String>) -> Self {
        let before = text.get(..at).unwrap_or(text);
        PageFault {
            place: Place::Line(memchr::memchr_iter(b'\n', before).count() + 1),
            reason: reason.into(),
        }
    }

    /// A mistake in a metric family.
    pub(crate) fn in_family(name: &str, reason: impl Into<String>) -> Self {
        PageFault {
            place: Place::Family(shortened(name)),
            reason: reason.into(),
        }
    }

    /// A mistake at a byte of a binary page.
    pub(crate) fn at_byte(byte: usize, reason: impl Into<String>) -> Self {
        PageFault {
            place: Place::Byte(byte),
            reason: reason.into(),
        }
    }
}

/// Returns the beginning of a text from outside, without control characters.
pub(crate) fn shortened(text: &str) -> String {
    const LONGEST: usize = 80;
    let visible = text.chars().map(|letter| match letter.is_control() {
        true => char::REPLACEMENT_CHARACTER,
        false => letter,
    });
    let mut shown: String = visible.take(LONGEST).collect();
    if text.chars().nth(LONGEST).is_some() {
        shown.push_str("...");
    }
    shown
}
