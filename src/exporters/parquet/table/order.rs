//! Order of the written rows.

use std::ops::Range;

/// The rows of a row group, in the order in which they are written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rows<'o>(pub(super) &'o [u32]);

impl<'o> Rows<'o> {
    /// Returns the number of rows.
    pub(super) fn len(self) -> usize {
        self.0.len()
    }

    /// Returns the indices of the rows.
    pub(super) fn iter(self) -> impl Iterator<Item = usize> + Clone + 'o {
        self.0.iter().map(|row| *row as usize)
    }

    /// Returns the rows' values in a column.
    pub(super) fn of<'c, T: Copy>(
        self,
        column: &'c [T],
    ) -> impl Iterator<Item = T> + Clone + use<'o, 'c, T> {
        self.iter().map(move |row| column[row])
    }
}

pub(super) fn values<'c, T: Copy>(
    lists: impl Iterator<Item = Range<usize>> + Clone + 'c,
    column: &'c [T],
) -> impl Iterator<Item = impl ExactSizeIterator<Item = T> + 'c> + Clone + 'c {
    lists.map(move |list| list.map(move |at| column[at]))
}
