//! The table of stacks.

use super::frames::Frames;
use super::gathered::gathered;
use super::group::RowGroup;
use super::order::Rows;
use super::rows::Shared;
use super::strings::NONE;
use super::{Layout, RowColumns, WriteError};

gathered! {
    /// Columns of the table of stacks.
    pub(super) struct Stacks {
        pub(super) frames: Frames,
        /// Stack of each row.
        rows: Vec<u32>,
    }
}

impl Stacks {
    /// Adds a row for a stack without a row.
    pub(super) fn push(&mut self, shared: &mut Shared, time: i64, stack: u32) {
        // Stacks are numbered in order, and each gets its row at once.
        if stack as usize == self.rows.len() {
            self.rows.push(stack);
            shared.push(time, 0);
        }
    }
}

impl RowColumns for Stacks {
    fn memory_to_write(&self) -> usize {
        /// Bytes of a frame's keys and of the offset of its text.
        const FRAME_BYTES: usize = 96;
        // A text and its copy in the dictionary.
        2 * (self.frames.text_bytes + self.frames.frames.len() * FRAME_BYTES)
    }

    fn order(&self, _: &Shared) -> Vec<u32> {
        (0..self.rows.len() as u32).collect()
    }

    fn write(
        &self,
        shared: &Shared,
        _: &Layout,
        rows: Rows<'_>,
        group: &mut RowGroup<'_>,
    ) -> Result<(), WriteError> {
        shared.write_times(rows, group)?;
        let frames = &self.frames;
        let stacks = rows.of(&self.rows);
        let hashes = stacks.clone().map(|stack| frames.stack_hash(stack));
        group.hashes("stack_hash", hashes)?;
        let stacks = stacks.map(|stack| &frames.stacks[frames.ranges.get(stack as usize)]);
        let leaves = stacks.clone().map(|stack| match stack.first() {
            Some(leaf) => frames.frames[*leaf as usize].function,
            None => NONE,
        });
        group.optional_texts("leaf_function", &frames.texts, leaves)?;
        let stacks = stacks.map(|stack| stack.iter().copied());
        group.text_lists("frame", &frames.json(), stacks)
    }
}
