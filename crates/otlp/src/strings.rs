//! Rewrites strings in encoded requests.
//!
//! One walk shows a [`Rewriter`] every string in the chosen places. Strings that the rewriter keeps stay unchanged byte
//! by byte, and a request without changes is not copied. A change adapts only the lengths of the enclosing messages.
//!
//! The walk covers the encoded content, not its interpretation: all occurrences of a singular field, overridden members
//! of a `oneof`, fields in any order. Bytes values are searched for UTF-8: each text between other bytes is shown
//! separately. Bytes that the rewriter identifies as an embedded request are passed to the rewriter as a whole.

mod location;
mod tables;
mod walk;

use std::ops::Range;

pub use self::location::{StringLocation, StringLocations};
pub use self::tables::Tables;
pub use self::walk::rewrite;
use super::reader::WireFault;
use super::room::RoomExhausted;
use crate::Signal;

/// A decision about a string.
#[derive(Clone, PartialEq, Eq)]
pub enum TextDecision {
    /// Keeps the string.
    Keep,
    /// Replaces the string.
    Replace(String),
    /// Removes the string. A field becomes empty. An attribute or an entry of a list or map is removed with its value.
    Remove,
}

/// A decision about an attribute of a set, made before the strings in the attribute are examined.
#[derive(Clone, PartialEq, Eq)]
pub enum AttributeDecision {
    /// Inspects the strings in the value.
    Inspect,
    /// Keeps the attribute unchanged.
    Keep,
    /// Keeps the value unchanged and inspects the key.
    KeepValue,
    /// Removes the attribute.
    Remove,
    /// Replaces the value by this string.
    Replace(String),
    /// Defers the decision to the end of the set.
    Deferred,
}

/// A decision about the body of a log record.
#[derive(Clone, PartialEq, Eq)]
pub enum BodyDecision {
    /// Inspects the strings in the body.
    Inspect,
    /// Keeps the body unchanged.
    Keep,
    /// Removes the body.
    Remove,
    /// Replaces the body by this encoded `AnyValue`.
    Replace(Vec<u8>),
}

/// A change to a set of attributes, made after the whole set was read.
#[derive(Clone, PartialEq, Eq)]
pub struct Amendment {
    /// Range of the attribute to replace, for which the decision was [`AttributeDecision::Deferred`]. If
    /// `None`, the new attribute is appended to the set.
    pub place: Option<Range<usize>>,
    /// The new attribute, an encoded `KeyValue`.
    pub attribute: Vec<u8>,
}

/// An attribute of a set, as shown to a rewriter.
#[derive(Clone, Copy)]
pub struct SetAttribute<'a> {
    /// Key; the last key if there are several.
    pub key: &'a str,
    /// Value, an encoded `AnyValue`; several occurrences are merged.
    pub value: Option<&'a [u8]>,
    /// Whether the attribute consists of one key and one value in usual encoding, so that key and value show
    /// all of its content.
    pub plain: bool,
    /// Start and end of the attribute in the request, for [`Amendment::place`].
    pub at: (usize, usize),
}

/// Decides about strings.
pub trait Rewriter {
    /// The reason why a request is refused.
    type Refusal;

    /// Decides about one string, which may be invalid UTF-8.
    ///
    /// # Errors
    /// Refuses the request.
    fn text(&mut self, place: StringLocation, text: &[u8]) -> Result<TextDecision, Self::Refusal>;

    /// Whether an attribute value is quickly recognised as unchanged. If `false`, [`text`](Self::text) decides.
    fn is_clean(&self, _text: &[u8]) -> bool {
        false
    }

    /// Whether the rewriter decides about attributes and bodies. If not, the following methods are never
    /// called.
    fn decides_attributes(&self) -> bool {
        false
    }

    /// Whether every occurrence of a string must be shown. Otherwise a resource or scope that equals the
    /// previous one is skipped, if nothing changed in the previous one.
    fn needs_every_occurrence(&self) -> bool {
        false
    }

    /// Begins a message with a set of attributes. Sets nest: events are within a span.
    ///
    /// # Errors
    /// Refuses the request.
    fn open(&mut self, _place: StringLocation, _message: &[u8]) -> Result<(), Self::Refusal> {
        Ok(())
    }

    /// Decides about an attribute of the innermost set.
    ///
    /// # Errors
    /// Refuses the request.
    fn attribute(
        &mut self,
        _place: StringLocation,
        _seen: SetAttribute<'_>,
    ) -> Result<AttributeDecision, Self::Refusal> {
        Ok(AttributeDecision::Inspect)
    }

    /// Decides about a body: an encoded `AnyValue` in the message of the innermost set.
    ///
    /// # Errors
    /// Refuses the request.
    fn body(
        &mut self,
        _place: StringLocation,
        _value: &[u8],
    ) -> Result<BodyDecision, Self::Refusal> {
        Ok(BodyDecision::Inspect)
    }

    /// Whether bytes values may contain embedded requests. If not, the following methods are never called.
    fn has_embedded_requests(&self) -> bool {
        false
    }

    /// Returns the signal of the request that a bytes value claims to contain. `_key` is the key of the attribute or
    /// map entry that holds the value, directly or in a list; a body has no key. `None` means that the value is text if
    /// it is valid UTF-8.
    fn embedded_signal(&self, _place: StringLocation, _key: Option<&[u8]>) -> Option<Signal> {
        None
    }

    /// Rewrites an embedded request; `None` if it stays unchanged.
    ///
    /// # Errors
    /// Refuses the outer request.
    fn rewrite_embedded(
        &mut self,
        _place: StringLocation,
        _signal: Signal,
        _request: &[u8],
    ) -> Result<Option<Vec<u8>>, Self::Refusal> {
        Ok(None)
    }

    /// Ends the innermost set.
    fn close(&mut self, _place: StringLocation) -> Vec<Amendment> {
        Vec::new()
    }

    /// Inspects a dictionary string, which is not changed.
    ///
    /// # Errors
    /// Refuses the request.
    fn dictionary_string(&mut self, _text: &[u8]) -> Result<(), Self::Refusal> {
        Ok(())
    }

    /// Reports that a profile contains its original payload, which stays unchanged.
    fn original_payload(&mut self) {}
}

/// The reason why a request was not rewritten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RewriteError<R> {
    /// The request is invalid.
    Malformed(&'static str),
    /// The budget is too small for the result.
    RoomExhausted,
    /// The rewriter refused the request.
    Rewriter(R),
}

impl<R> From<RoomExhausted> for RewriteError<R> {
    fn from(_: RoomExhausted) -> Self {
        RewriteError::RoomExhausted
    }
}

impl<R> From<WireFault> for RewriteError<R> {
    fn from(fault: WireFault) -> Self {
        RewriteError::Malformed(fault.text())
    }
}
