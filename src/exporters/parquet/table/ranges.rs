//! Lists of rows, one after the other.

use std::ops::Range;

use super::gathered::{Gathered, gathered};
use super::order::{Rows, values};

gathered! {
    /// Ranges of each row's entries in columns that hold the entries of all rows.
    pub(super) struct Ranges {
        ends: Vec<usize>,
    }
}

impl Ranges {
    /// Ends the row at the current end of the columns.
    #[inline]
    pub(super) fn push(&mut self, end: usize) {
        self.ends.push(end);
    }

    #[inline]
    pub(super) fn get(&self, row: usize) -> Range<usize> {
        let start = match row {
            0 => 0,
            row => self.ends.get(row - 1).copied().unwrap_or_default(),
        };
        start..self.ends.get(row).copied().unwrap_or(start)
    }

    /// Returns the end of the last row.
    pub(super) fn end(&self) -> usize {
        self.ends.last().copied().unwrap_or_default()
    }
}

/// A list of numbers for each row.
#[derive(Debug, Default)]
pub(super) struct Lists<T> {
    rows: Ranges,
    /// Values of all rows, then of the row that [`end`](Self::end) ends.
    pub(super) values: Vec<T>,
}

impl<T: Copy> Lists<T> {
    /// Ends a row.
    pub(super) fn end(&mut self) {
        self.rows.push(self.values.len());
    }

    /// Returns the lists of these rows.
    pub(super) fn of<'s>(
        &'s self,
        rows: Rows<'s>,
    ) -> impl Iterator<Item = impl ExactSizeIterator<Item = T> + 's> + Clone + 's {
        values(rows.lists(&self.rows), &self.values)
    }
}

impl<T: Copy> Gathered for Lists<T> {
    fn clear(&mut self) {
        self.rows.clear();
        self.values.clear();
    }

    fn memory(&self) -> usize {
        self.rows.memory() + self.values.memory()
    }
}

impl<'o> Rows<'o> {
    pub(super) fn lists<'r>(
        self,
        lists: &'r Ranges,
    ) -> impl Iterator<Item = Range<usize>> + Clone + use<'o, 'r> {
        self.iter().map(move |row| lists.get(row))
    }
}
