//! Reasons for refusing a request. The messages name the place of a value, and never contain the value.

use crate::pipeline::output_memory::OutputMemory;
use tributary_memory::NoRoom;
use tributary_otlp::strings::{RewriteError, StringLocation};
use tributary_redaction::Unscannable;

/// Reason why a string, or the data around it, is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    /// The scanner gave up.
    #[error("a string in {} cannot be scanned: {error}", place.name())]
    Unscannable {
        /// Place of the value.
        place: StringLocation,
        /// Reason of the scanner.
        error: Unscannable,
    },
    /// A string is not UTF-8.
    #[error("a string in {} is not UTF-8", .0.name())]
    NotUtf8(StringLocation),
    /// A body or an attribute's value is malformed.
    #[error("a value in {} is malformed", .0.name())]
    Unreadable(StringLocation),
    /// A value listed as an embedded request is not a request.
    #[error("bytes in {}, which `embedded_otlp` lists, are not a request of that signal: {reason}", place.name())]
    NoRequest {
        /// Place of the value.
        place: StringLocation,
        /// Reason why the bytes are not a request.
        reason: String,
    },
    /// Requests are nested too deeply in values.
    #[error("embedded requests nest more than {} levels deep", Refusal::LEVELS)]
    Nested,
    /// Tables of a dictionary do not fit together.
    #[error("{0}")]
    Broken(String),
    /// There is no memory for the redacted request.
    #[error(transparent)]
    NoRoom(NoRoom),
    /// The profiles have a layout that is no longer in use.
    #[error("{0}")]
    Layout(String),
}

/// Replaces a refusal for lack of memory with one that names the exhausted limit.
pub(super) fn with_reason(
    refused: RewriteError<Refusal>,
    output: &OutputMemory,
) -> RewriteError<Refusal> {
    match refused {
        RewriteError::RoomExhausted => RewriteError::Rewriter(Refusal::NoRoom(output.no_room())),
        refused => refused,
    }
}

impl Refusal {
    /// Converts a refusal of the scanner. Bytes that are not UTF-8 get a refusal of their own, because they were not
    /// scanned.
    pub(super) fn unscannable(place: StringLocation, error: Unscannable) -> Self {
        match error {
            Unscannable::NotUtf8 => Refusal::NotUtf8(place),
            error => Refusal::Unscannable { place, error },
        }
    }

    /// Maximum nesting depth of requests in values, which bounds the stack. Even one level of nesting is rare.
    pub(super) const LEVELS: u32 = 4;
}

/// The kinds of refusals, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    Malformed,
    Unscannable,
    Embedded,
    References,
    Layout,
    Memory,
}

impl Reason {
    pub(super) const ALL: [Reason; 6] = [
        Reason::Malformed,
        Reason::Unscannable,
        Reason::Embedded,
        Reason::References,
        Reason::Layout,
        Reason::Memory,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Reason::Malformed => "malformed",
            Reason::Unscannable => "unscannable",
            Reason::Embedded => "embedded",
            Reason::References => "references",
            Reason::Layout => "layout",
            Reason::Memory => "memory",
        }
    }

    pub(super) fn of(refused: &RewriteError<Refusal>) -> Self {
        match refused {
            RewriteError::Malformed(_) => Reason::Malformed,
            RewriteError::RoomExhausted => Reason::Memory,
            RewriteError::Rewriter(refusal) => match refusal {
                Refusal::NoRoom(_) => Reason::Memory,
                Refusal::NotUtf8(_) | Refusal::Unreadable(_) => Reason::Malformed,
                Refusal::Unscannable { .. } => Reason::Unscannable,
                Refusal::NoRequest { .. } | Refusal::Nested => Reason::Embedded,
                Refusal::Broken(_) => Reason::References,
                Refusal::Layout(_) => Reason::Layout,
            },
        }
    }
}
