//! Rewriting strings wherever they stand in a request, on the wire.
//!
//! One walk shows a [`Rewriter`] every string of the places that were chosen. What it leaves alone stays as it is, byte by
//! byte; a request in which it changes nothing is not copied. Where it changes something, the lengths of the messages
//! around it follow, and nothing else.
//!
//! The walk sees what is on the wire, not what a reader makes of it: all strings of a field that occurs twice, values of a
//! `oneof` that a later one overrides, fields in any order. Bytes values are looked into where they are UTF-8: text with
//! some other bytes in it is shown in the pieces between them. Those that the rewriter takes for requests of their own are
//! left to it as a whole.

mod place;
mod tables;
mod walk;

use std::ops::Range;

pub use self::place::{Place, Places};
pub use self::tables::Tables;
pub use self::walk::rewrite;
use super::reader::Fault;
use super::room::Full;
use crate::Signal;

/// A decision about a string.
#[derive(Clone, PartialEq, Eq)]
pub enum Change {
    /// Keeps the string.
    Keep,
    /// Replaces the string.
    Replace(String),
    /// Removes the string. A field becomes empty. An attribute or an entry of a list or map is removed with its value.
    Remove,
}

/// A decision about an attribute of a set, made before the strings in the attribute are examined.
#[derive(Clone, PartialEq, Eq)]
pub enum Attribute {
    /// The strings in its value are looked at one by one.
    Look,
    /// It stays, whatever is in it.
    Keep,
    /// Its value stays, whatever is in it; its key is looked at.
    KeepValue,
    /// It goes.
    Remove,
    /// Its value becomes this string.
    Replace(String),
    /// Its fate is known when the set is closed.
    Later,
}

/// A decision about the body of a log record.
#[derive(Clone, PartialEq, Eq)]
pub enum Body {
    /// The strings in it are looked at one by one.
    Look,
    /// It stays, whatever is in it.
    Keep,
    /// It goes.
    Remove,
    /// It becomes this, an encoded `AnyValue`.
    Replace(Vec<u8>),
}

/// A change to a set of attributes, made when the whole set has been read.
#[derive(Clone, PartialEq, Eq)]
pub struct Amendment {
    /// Range of the attribute to replace, for which the decision was [`Attribute::Later`]. If `None`, the new attribute
    /// is appended to the set.
    pub place: Option<Range<usize>>,
    /// The new attribute, an encoded `KeyValue`.
    pub attribute: Vec<u8>,
}

/// An attribute of a set.
#[derive(Clone, Copy)]
pub struct Seen<'a> {
    /// Its key: the last one if there are several.
    pub key: &'a str,
    /// Its value, an encoded `AnyValue`: what a reader makes of several, if there are.
    pub value: Option<&'a [u8]>,
    /// Whether it is an attribute as writers make them, so that nothing can be hidden in it from who looks at the key and
    /// the value only.
    pub plain: bool,
    /// Start and end of the attribute in the request, for [`Amendment::place`].
    pub at: (usize, usize),
}

/// Decides about strings.
pub trait Rewriter {
    /// Why a request is refused.
    type Refusal;

    /// Decides about one string. That it is UTF-8 is for the rewriter to see, who reads it anyway.
    ///
    /// # Errors
    /// Refuses the request.
    fn text(&mut self, place: Place, text: &[u8]) -> Result<Change, Self::Refusal>;

    /// Whether it leaves a string alone that is the value of an attribute, as seen at a glance. `false` only means that
    /// it is asked by way of [`text`](Self::text).
    fn passes(&self, _text: &[u8]) -> bool {
        false
    }

    /// Whether it decides about attributes and bodies too: if not, what follows is never called.
    fn rules(&self) -> bool {
        false
    }

    /// Whether every occurrence of a string must be shown, although nothing is changed: otherwise a resource or scope that
    /// is equal to the one before, in which nothing changed, is passed over.
    fn counts(&self) -> bool {
        false
    }

    /// A message that has a set of attributes begins. Sets nest: events are in a span.
    ///
    /// # Errors
    /// Refuses the request.
    fn open(&mut self, _place: Place, _message: &[u8]) -> Result<(), Self::Refusal> {
        Ok(())
    }

    /// Decides about an attribute of the innermost set.
    ///
    /// # Errors
    /// Refuses the request.
    fn attribute(&mut self, _place: Place, _seen: Seen<'_>) -> Result<Attribute, Self::Refusal> {
        Ok(Attribute::Look)
    }

    /// Decides about a body, an encoded `AnyValue` in the message of the innermost set.
    ///
    /// # Errors
    /// Refuses the request.
    fn body(&mut self, _place: Place, _value: &[u8]) -> Result<Body, Self::Refusal> {
        Ok(Body::Look)
    }

    /// Whether there are bytes values that claim to be requests: if not, what follows is never called.
    fn embeds(&self) -> bool {
        false
    }

    /// Returns the signal of the request that a bytes value claims to contain. `_key` is the key of the attribute or
    /// map entry that holds the value, alone or in a list; a body has no key. `None` means that the value is text if it
    /// is UTF-8.
    fn claims(&self, _place: Place, _key: Option<&[u8]>) -> Option<Signal> {
        None
    }

    /// Decides about a bytes value that claims to be a request: what it becomes, or none when it stays as it is.
    ///
    /// # Errors
    /// Refuses the request around it.
    fn embedded(
        &mut self,
        _place: Place,
        _signal: Signal,
        _request: &[u8],
    ) -> Result<Option<Vec<u8>>, Self::Refusal> {
        Ok(None)
    }

    /// The innermost set ends.
    fn close(&mut self, _place: Place) -> Vec<Amendment> {
        Vec::new()
    }

    /// A string of a dictionary. It is not changed.
    ///
    /// # Errors
    /// Refuses the request.
    fn shared(&mut self, _text: &[u8]) -> Result<(), Self::Refusal> {
        Ok(())
    }

    /// A profile has a copy of what it was converted from. It is not changed.
    fn original(&mut self) {}
}

/// Why a request was not rewritten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused<R> {
    /// It is not valid.
    Malformed(&'static str),
    /// There is no memory for what it would become.
    Full,
    /// The rewriter refused it.
    By(R),
}

impl<R> From<Full> for Refused<R> {
    fn from(_: Full) -> Self {
        Refused::Full
    }
}

impl<R> From<Fault> for Refused<R> {
    fn from(fault: Fault) -> Self {
        Refused::Malformed(fault.text())
    }
}
