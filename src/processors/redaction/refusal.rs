//! Why a request is not passed on: where something in it stands, and never what it is.

use crate::pipeline::output_memory::OutputMemory;
use tributary_memory::NoRoom;
use tributary_otlp::strings::{RewriteError, StringPlace};
use tributary_redaction::Unscannable;

/// Why a string, or what is around it, is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    /// The scanner gave up.
    #[error("a string in {} cannot be scanned: {error}", place.name())]
    Unscannable {
        /// Place of the value.
        place: StringPlace,
        /// Why.
        error: Unscannable,
    },
    /// A string is none.
    #[error("a string in {} is not UTF-8", .0.name())]
    NotUtf8(StringPlace),
    /// A body or an attribute's value is not a value.
    #[error("a value in {} cannot be read", .0.name())]
    Unreadable(StringPlace),
    /// A value that is listed as an OTLP request is none.
    #[error("bytes in {} are listed in `embedded_otlp` and are no request of that kind: {reason}", place.name())]
    NoRequest {
        /// Place of the value.
        place: StringPlace,
        /// Reason why the bytes are not a request.
        reason: String,
    },
    /// Requests in requests in requests.
    #[error("requests in values nest more than {} levels deep", Refusal::LEVELS)]
    Nested,
    /// Tables of a dictionary do not fit together.
    #[error("{0}")]
    Broken(String),
    /// There is no memory for what it would become.
    #[error(transparent)]
    NoRoom(NoRoom),
    /// The layout of profiles is one that is no longer in use.
    #[error("{0}")]
    Layout(String),
}

/// Replaces a refusal for lack of memory with one that names the exhausted limit.
pub(super) fn with_reason(
    refused: RewriteError<Refusal>,
    output: &OutputMemory,
) -> RewriteError<Refusal> {
    match refused {
        RewriteError::Full => RewriteError::Rewriter(Refusal::NoRoom(output.no_room())),
        refused => refused,
    }
}

impl Refusal {
    /// Converts a refusal of the scanner. Bytes that are not UTF-8 get a refusal of their own, because they were not
    /// scanned.
    pub(super) fn unscannable(place: StringPlace, error: Unscannable) -> Self {
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
            RewriteError::Full => Reason::Memory,
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
