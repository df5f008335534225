//! Memory of a translation, and texts that are valid UTF-8.

use std::borrow::Cow;
use std::cell::Cell;

use tributary_otlp::room::{Room, RoomExhausted};

/// The room of a translation. Copies of texts are charged until the span that contains them is complete, lists until
/// their owner drops them.
pub(crate) struct Memory<'r> {
    pub(crate) room: &'r dyn Room,
    copied: Cell<usize>,
    /// Bytes of lists.
    listed: Cell<usize>,
    is_full: Cell<bool>,
}

impl<'r> Memory<'r> {
    pub(crate) fn new(room: &'r dyn Room) -> Self {
        Memory {
            room,
            copied: Cell::new(0),
            listed: Cell::new(0),
            is_full: Cell::new(false),
        }
    }

    /// Takes memory for copied texts of the current span.
    pub(crate) fn copy(&self, bytes: usize) -> Result<(), RoomExhausted> {
        self.room
            .take(bytes)
            .inspect_err(|_| self.is_full.set(true))?;
        self.copied.set(self.copied.get() + bytes);
        Ok(())
    }

    /// Whether the room was exhausted; for code whose errors cannot tell.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full.get()
    }

    /// Reserves space for one more entry of a list.
    pub(crate) fn push<T>(&self, list: &mut Vec<T>, entry: T) -> Result<(), RoomExhausted> {
        let before = list.capacity();
        tributary_otlp::room::reserve(self.room, list, 1)
            .inspect_err(|_| self.is_full.set(true))?;
        list.push(entry);
        let grown = (list.capacity() - before) * size_of::<T>();
        self.listed.set(self.listed.get() + grown);
        Ok(())
    }

    /// Returns the memory for copied texts of the last span.
    pub(crate) fn end_span(&self) {
        self.room.release(self.copied.replace(0));
    }

    /// Returns the memory for the lists of the last span too; for decoders that keep no list for the next span.
    pub(crate) fn end_span_with_lists(&self) {
        self.end_span();
        self.room.release(self.listed.replace(0));
    }

    /// Returns the text in `bytes`. Bytes that are not UTF-8 become U+FFFD, because OTLP requires UTF-8 and the sender
    /// of a truncated text should not lose its spans.
    pub(crate) fn text<'a>(&self, bytes: &'a [u8]) -> Result<Cow<'a, str>, RoomExhausted> {
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Cow::Borrowed(text)),
            Err(_) => self.repaired(bytes).map(Cow::Owned),
        }
    }

    /// Like [`text`](Self::text), for bytes that do not outlive the call.
    pub(crate) fn owned_text(&self, bytes: &[u8]) -> Result<String, RoomExhausted> {
        match std::str::from_utf8(bytes) {
            Ok(text) => {
                self.copy(text.len())?;
                Ok(text.to_owned())
            }
            Err(_) => self.repaired(bytes),
        }
    }

    fn repaired(&self, bytes: &[u8]) -> Result<String, RoomExhausted> {
        // An invalid byte becomes three bytes.
        self.copy(bytes.len().saturating_mul(3))?;
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }
}

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        self.end_span_with_lists();
    }
}
