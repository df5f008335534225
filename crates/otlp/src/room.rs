//! Memory for what is made of a request.
//!
//! An output may be many times larger than the request it is made of: a span of two bytes is a struct of 300. So
//! everything here whose memory grows with the number of messages, and not only with the bytes of a request, takes it from
//! a [`Room`] first, and stops where there is none.

/// Memory that may be had.
pub trait Room {
    /// Takes `bytes` more.
    ///
    /// # Errors
    /// When there are not so many; then none are taken.
    fn take(&self, bytes: usize) -> Result<(), Full>;

    /// Gives back `bytes` of what was taken.
    fn give_back(&self, bytes: usize);
}

/// There is no more room. Whoever gave the room knows why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there is no memory for it")]
pub struct Full;

/// As much memory as the process has: for inputs that are small by nature, and for tests.
#[derive(Debug, Clone, Copy)]
pub struct Unbounded;

impl Room for Unbounded {
    fn take(&self, _: usize) -> Result<(), Full> {
        Ok(())
    }

    fn give_back(&self, _: usize) {}
}

/// Makes place for `more` items in a list. Where the list moves, the old and the new place count until it has moved.
#[inline]
pub fn reserve<T>(room: &dyn Room, list: &mut Vec<T>, more: usize) -> Result<(), Full> {
    match list.capacity() - list.len() >= more {
        true => Ok(()),
        false => enlarge(room, list, more),
    }
}

#[cold]
fn enlarge<T>(room: &dyn Room, list: &mut Vec<T>, more: usize) -> Result<(), Full> {
    const FIRST: usize = 4;
    let old = list.capacity();
    let needed = list.len().saturating_add(more);
    let new = needed.max(old.saturating_mul(2)).max(FIRST);
    room.take(new.saturating_mul(size_of::<T>()))?;
    list.reserve_exact(new - list.len());
    room.give_back(old * size_of::<T>());
    Ok(())
}
