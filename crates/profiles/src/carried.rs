//! Records the copied entries of a table and their ids in a dictionary.

use std::marker::PhantomData;

use super::id::Id;

/// New id of an entry by its position in the source's table. The memory is reused for the next source.
#[derive(Debug)]
pub(super) struct IdMap<I> {
    ids: Vec<u32>,
    id: PhantomData<I>,
}

const NOT_YET: u32 = u32::MAX;

impl<I: Id> IdMap<I> {
    /// Forgets all entries; the next table has `entries` entries.
    pub(super) fn reset(&mut self, entries: usize) {
        self.ids.clear();
        self.ids.resize(entries, NOT_YET);
    }

    #[inline(always)]
    pub(super) fn get(&self, at: usize) -> Option<I> {
        match self.ids.get(at) {
            None | Some(&NOT_YET) => None,
            Some(id) => Some(I::new(*id)),
        }
    }

    #[inline]
    pub(super) fn insert(&mut self, at: usize, id: I) {
        if let Some(place) = self.ids.get_mut(at) {
            *place = u32::try_from(id.index()).unwrap_or(NOT_YET);
        }
    }
}

impl<I> Default for IdMap<I> {
    fn default() -> Self {
        IdMap {
            ids: Vec::new(),
            id: PhantomData,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::id::LocationId;
    use super::*;

    #[test]
    fn inserted_ids_are_found_until_reset() {
        let mut carried = IdMap::<LocationId>::default();
        carried.reset(2);
        assert_eq!(carried.get(1), None);
        carried.insert(1, LocationId::new(7));
        carried.insert(2, LocationId::new(8));
        assert_eq!(carried.get(1), Some(LocationId::new(7)));
        assert_eq!((carried.get(0), carried.get(2)), (None, None));
        carried.reset(3);
        assert_eq!(carried.get(1), None);
    }
}
