//! Edits a request without decoding it.
//!
//! An [`Editor`] records removals and insertions in the order of the bytes, without copying. When the editor leaves a
//! message of changed size, it records the new length. A single copy applies all patches at the end. Without patches,
//! the request stays unchanged.

use std::ops::Range;

use super::Malformed;
use super::reader::{Field, Value, put_varint};
use super::room::{Room, RoomExhausted, Unbounded, reserve};

/// Records changes to one request.
pub struct Editor<'a> {
    request: &'a [u8],
    /// Budget for the memory of the patches and the output.
    room: &'a dyn Room,
    /// Whether the budget is exhausted; from then on no patch is recorded.
    is_full: bool,
    patches: Vec<Patch>,
    /// Bytes that the patches insert.
    fresh: Vec<u8>,
    /// Inserted bytes minus removed bytes.
    growth: isize,
}

/// A state of an [`Editor`], for detecting or undoing later changes.
#[derive(Debug, Clone, Copy)]
pub struct Mark {
    patches: usize,
    fresh: usize,
    growth: isize,
}

#[derive(Debug)]
struct Patch {
    out: Range<usize>,
    fresh: Range<usize>,
}

impl<'a> Editor<'a> {
    /// Creates an editor without a memory bound.
    pub fn new(request: &'a [u8]) -> Self {
        Editor::within(request, &Unbounded)
    }

    /// Creates an editor that takes its memory from `room`.
    pub fn within(request: &'a [u8], room: &'a dyn Room) -> Self {
        Editor {
            request,
            room,
            is_full: false,
            patches: Vec::new(),
            fresh: Vec::new(),
            growth: 0,
        }
    }

    /// Edits the message in `field`: `edit` makes changes within it.
    #[inline]
    pub fn message<R>(&mut self, field: &Field<'a>, edit: impl FnOnce(&mut Self) -> R) -> R {
        let place = self.patches.len();
        let growth = self.growth;
        let Value::Bytes(body) = field.value else {
            return edit(self);
        };
        // The length precedes the content, but is known only after the edit.
        let body_start = field.offset + field.raw.len() - body.len();
        if !self.reserve_patch() {
            return edit(self);
        }
        self.patches.push(Patch {
            out: field.offset..body_start,
            fresh: 0..0,
        });
        let result = edit(self);
        if self.patches.len() == place + 1 {
            self.patches.pop();
            return result;
        }
        let body_len = body.len().saturating_add_signed(self.growth - growth);
        let start = self.fresh.len();
        self.put_head(field.number, body_len);
        let fresh = start..self.fresh.len();
        if let Some(patch) = self.patches.get_mut(place) {
            self.growth += fresh.len().wrapping_sub(patch.out.len()).cast_signed();
            patch.fresh = fresh;
        }
        result
    }

    /// Returns the current state.
    #[inline]
    pub fn mark(&self) -> Mark {
        Mark {
            patches: self.patches.len(),
            fresh: self.fresh.len(),
            growth: self.growth,
        }
    }

    /// Whether there were changes since `mark`.
    #[inline]
    pub fn changed_since(&self, mark: &Mark) -> bool {
        self.patches.len() > mark.patches
    }

    /// Undoes all changes since `mark`.
    pub fn rollback(&mut self, mark: &Mark) {
        self.patches.truncate(mark.patches);
        self.fresh.truncate(mark.fresh);
        self.growth = mark.growth;
    }

    /// Records the new length of a message, if there were changes since `mark`. All changes must be in the body of the
    /// message. Use `enclose` instead of [`message`](Self::message) if the changes are known only afterwards. `head` is
    /// the range of the message's key and length.
    pub fn enclose(&mut self, mark: &Mark, number: u32, head: Range<usize>, body_len: usize) {
        if !self.changed_since(mark) {
            return;
        }
        let body_len = body_len.saturating_add_signed(self.growth - mark.growth);
        let start = self.fresh.len();
        self.put_head(number, body_len);
        self.insert(mark.patches, head, start..self.fresh.len());
    }

    /// Like [`splice`](Self::splice), for a range among or before changes made since `mark`.
    pub fn splice_since(
        &mut self,
        mark: &Mark,
        out: Range<usize>,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let start = self.fresh.len();
        self.put(write);
        let later = self.patches.get(mark.patches..).unwrap_or_default();
        let at = mark.patches + later.partition_point(|patch| patch.out.start < out.start);
        self.insert(at, out, start..self.fresh.len());
    }

    /// Like [`splice`](Self::splice), for a range anywhere. [`order`](Self::order) must follow before other changes.
    pub fn splice_anywhere(&mut self, out: Range<usize>, write: impl FnOnce(&mut Vec<u8>)) {
        if !self.reserve_patch() {
            return;
        }
        let start = self.fresh.len();
        self.put(write);
        let fresh = start..self.fresh.len();
        self.growth += fresh.len().wrapping_sub(out.len()).cast_signed();
        self.patches.push(Patch { out, fresh });
    }

    /// Puts the changes since `late` among the changes since `early`. Of two changes at the same position, the later
    /// one comes first. The cost grows with the number of changes, whereas a
    /// [`splice_since`](Self::splice_since) for each of them would move all later ones each time.
    pub fn order(&mut self, early: &Mark, late: &Mark) {
        let changes = self.patches.get_mut(early.patches..).unwrap_or_default();
        let scratch = size_of_val(changes);
        if self.room.take(scratch).is_err() {
            self.is_full = true;
            return;
        }
        changes.rotate_left(
            late.patches
                .saturating_sub(early.patches)
                .min(changes.len()),
        );
        changes.sort_by_key(|patch| patch.out.start);
        self.room.release(scratch);
    }

    fn insert(&mut self, at: usize, out: Range<usize>, fresh: Range<usize>) {
        if !self.reserve_patch() {
            return;
        }
        self.growth += fresh.len().wrapping_sub(out.len()).cast_signed();
        self.patches.insert(at, Patch { out, fresh });
    }

    /// Removes a field.
    #[inline]
    pub fn delete(&mut self, field: &Field<'a>) {
        self.splice(field.range(), |_| {});
    }

    /// Replaces a field by the output of `write`.
    #[inline]
    pub fn replace(&mut self, field: &Field<'a>, write: impl FnOnce(&mut Vec<u8>)) {
        self.splice(field.range(), write);
    }

    /// Appends the output of `write` to a message, which is given by its field.
    #[inline]
    pub fn append(&mut self, message: &Field<'a>, write: impl FnOnce(&mut Vec<u8>)) {
        let end = message.range().end;
        self.splice(end..end, write);
    }

    /// Replaces a range of the request by the output of `write`. Ranges must be ascending.
    #[inline]
    pub fn splice(&mut self, out: Range<usize>, write: impl FnOnce(&mut Vec<u8>)) {
        debug_assert!(
            self.patches
                .last()
                .is_none_or(|last| last.out.end <= out.start)
        );
        if !self.reserve_patch() {
            return;
        }
        let start = self.fresh.len();
        self.put(write);
        let fresh = start..self.fresh.len();
        self.growth += fresh.len().wrapping_sub(out.len()).cast_signed();
        self.patches.push(Patch { out, fresh });
    }

    /// Reserves space for one more patch. Returns false if the budget is exhausted.
    #[inline]
    fn reserve_patch(&mut self) -> bool {
        self.is_full = self.is_full || reserve(self.room, &mut self.patches, 1).is_err();
        !self.is_full
    }

    /// Takes `bytes` from the budget for the caller's own work. Returns false, and stops editing, if the
    /// budget is exhausted.
    pub fn reserve(&mut self, bytes: usize) -> bool {
        self.is_full = self.is_full || self.room.take(bytes).is_err();
        !self.is_full
    }

    /// Appends a small insertion, such as an attribute or a text.
    #[inline]
    fn put(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let before = self.fresh.capacity();
        write(&mut self.fresh);
        let more = self.fresh.capacity() - before;
        if more > 0 && self.room.take(more).is_err() {
            self.is_full = true;
        }
    }

    /// Appends key and length of a message.
    fn put_head(&mut self, number: u32, body_len: usize) {
        self.put(|fresh| {
            put_varint(u64::from(number << 3 | 2), fresh);
            put_varint(body_len as u64, fresh);
        });
    }

    /// Applies the changes; `None` if there are none. Only for editors without a memory bound.
    pub fn finish(self) -> Option<Vec<u8>> {
        self.finish_within().unwrap_or_default()
    }

    /// Applies the changes; `None` if there are none.
    ///
    /// # Errors
    /// Fails if the budget was exhausted before, or is too small for the output.
    pub fn finish_within(self) -> Result<Option<Vec<u8>>, RoomExhausted> {
        if self.is_full {
            return Err(RoomExhausted);
        }
        if self.patches.is_empty() {
            return Ok(None);
        }
        let len = self.request.len().saturating_add_signed(self.growth);
        self.room.take(len)?;
        let mut output = Vec::with_capacity(len);
        let mut kept = 0;
        for Patch { out, fresh } in self.patches {
            output.extend_from_slice(self.request.get(kept..out.start).unwrap_or_default());
            output.extend_from_slice(self.fresh.get(fresh).unwrap_or_default());
            kept = out.end;
        }
        output.extend_from_slice(self.request.get(kept..).unwrap_or_default());
        Ok(Some(output))
    }
}

/// The reason why a request was not edited.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// The request is invalid.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The budget is too small for the result.
    #[error(transparent)]
    RoomExhausted(#[from] RoomExhausted),
}

/// Appends a length-delimited field: a message, a string or bytes.
#[inline]
pub fn put_delimited(number: u32, body: &[u8], output: &mut Vec<u8>) {
    put_varint(u64::from(number << 3 | 2), output);
    put_varint(body.len() as u64, output);
    output.extend_from_slice(body);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reader::Fields;

    fn message(number: u32, body: &[u8]) -> Vec<u8> {
        let mut output = Vec::new();
        put_delimited(number, body, &mut output);
        output
    }

    #[test]
    fn lengths_of_all_levels_follow_grown_and_shrunk_content() {
        for (before, after) in [(5, 400), (400, 5), (120, 130), (130, 120), (7, 7)] {
            let nest = |text: usize| {
                let inner = [message(1, &vec![b'x'; text]), message(2, b"stays")].concat();
                [message(3, b"stays"), message(4, &message(4, &inner))].concat()
            };
            let request = nest(before);
            let mut editor = Editor::new(&request);
            for outer in Fields::new(&request).flatten().filter(|f| f.number == 4) {
                editor.message(&outer, |editor| {
                    for inner in outer.fields().flatten() {
                        editor.message(&inner, |editor| {
                            for text in inner.fields().flatten().filter(|f| f.number == 1) {
                                editor.replace(&text, |out| {
                                    put_delimited(1, &vec![b'x'; after], out);
                                });
                            }
                        });
                    }
                });
            }
            assert_eq!(editor.finish(), Some(nest(after)));
        }
    }

    #[test]
    fn late_changes_are_put_among_early_ones() {
        let request = b"abcdef";
        let mut editor = Editor::new(request);
        let early = editor.mark();
        editor.splice(1..2, |out| out.extend_from_slice(b"B"));
        editor.splice(4..5, |out| out.extend_from_slice(b"E"));
        let late = editor.mark();
        editor.splice_anywhere(1..1, |out| out.extend_from_slice(b"+"));
        editor.splice_anywhere(3..4, |_| {});
        editor.splice_anywhere(5..6, |out| out.extend_from_slice(b"FF"));
        editor.order(&early, &late);
        assert_eq!(editor.finish().as_deref(), Some(b"a+BcEFF".as_slice()));
    }

    #[test]
    fn edits_beyond_budget_fail_completely() {
        struct Little(std::cell::Cell<usize>);
        impl Room for Little {
            fn take(&self, bytes: usize) -> Result<(), RoomExhausted> {
                let left = self.0.get().checked_sub(bytes).ok_or(RoomExhausted)?;
                self.0.set(left);
                Ok(())
            }
            fn release(&self, bytes: usize) {
                self.0.set(self.0.get() + bytes);
            }
        }
        let request = message(1, &message(2, b"x").repeat(1000));
        let edited = |room: usize| {
            let room = Little(room.into());
            let mut editor = Editor::within(&request, &room);
            for outer in Fields::new(&request).flatten() {
                editor.message(&outer, |editor| {
                    for inner in outer.fields().flatten() {
                        editor.message(&inner, |editor| editor.append(&inner, |out| out.push(1)));
                    }
                });
            }
            editor.finish_within()
        };
        for room in [0, 100, 10_000, 50_000] {
            assert_eq!(edited(room), Err(RoomExhausted), "{room}");
        }
        assert!(edited(1 << 20).unwrap().is_some());
    }

    #[test]
    fn visit_without_edits_keeps_request_unchanged() {
        let request = message(1, &message(2, b"text"));
        let mut editor = Editor::new(&request);
        for outer in Fields::new(&request).flatten() {
            editor.message(&outer, |editor| {
                for inner in outer.fields().flatten() {
                    editor.message(&inner, |_| {});
                }
            });
        }
        assert_eq!(editor.finish(), None);
    }
}
