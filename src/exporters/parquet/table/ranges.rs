//! Lists of rows, one after the other.

use std::ops::Range;

/// Where the entries of each row are in columns that have the entries of all rows.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    ends: Vec<usize>,
}

impl Ranges {
    /// The row ends where the columns end now.
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

    /// Where the last row ends.
    pub(super) fn end(&self) -> usize {
        self.ends.last().copied().unwrap_or_default()
    }

    pub(super) fn clear(&mut self) {
        self.ends.clear();
    }

    pub(super) fn memory(&self) -> usize {
        self.ends.capacity() * size_of::<usize>()
    }
}

/// A list of numbers for each row.
#[derive(Debug, Default)]
pub(super) struct Lists<T> {
    rows: Ranges,
    /// Those of all rows, and then of the row that [`end`](Self::end) ends.
    pub(super) values: Vec<T>,
}

impl<T: Copy> Lists<T> {
    /// Ends a row.
    pub(super) fn end(&mut self) {
        self.rows.push(self.values.len());
    }

    /// The lists of these rows.
    pub(super) fn write<'s>(
        &'s self,
        rows: impl Iterator<Item = usize> + Clone + 's,
    ) -> impl Iterator<Item = impl ExactSizeIterator<Item = T> + 's> + 's {
        rows.map(|row| self.rows.get(row).map(|at| self.values[at]))
    }

    pub(super) fn clear(&mut self) {
        self.rows.clear();
        self.values.clear();
    }

    pub(super) fn memory(&self) -> usize {
        self.rows.memory() + self.values.capacity() * size_of::<T>()
    }
}
