//! Bounds the memory of operations on a request.
//!
//! An output may be many times larger than its request: a span of two bytes becomes a struct of 300 bytes. Operations
//! whose memory grows with the number of messages take memory from a [`Room`] first, and stop when the room is
//! exhausted.

/// A source of memory for one operation.
pub trait Room {
    /// Takes `bytes` more from the room.
    ///
    /// # Errors
    /// Fails if fewer bytes are available, and then takes no memory.
    fn take(&self, bytes: usize) -> Result<(), RoomExhausted>;

    /// Returns `bytes` of the taken memory.
    fn release(&self, bytes: usize);
}

/// The room is exhausted. Only the owner of the [`Room`] can tell the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the memory budget is exhausted")]
pub struct RoomExhausted;

/// Unlimited memory, for small inputs and for tests.
#[derive(Debug, Clone, Copy)]
pub struct Unbounded;

impl Room for Unbounded {
    fn take(&self, _: usize) -> Result<(), RoomExhausted> {
        Ok(())
    }

    fn release(&self, _: usize) {}
}

/// Reserves space for `more` items in a list. While a growing list is copied, the old and the new allocation both
/// count.
#[inline]
pub fn reserve<T>(room: &dyn Room, list: &mut Vec<T>, more: usize) -> Result<(), RoomExhausted> {
    match list.capacity() - list.len() >= more {
        true => Ok(()),
        false => enlarge(room, list, more),
    }
}

#[cold]
fn enlarge<T>(room: &dyn Room, list: &mut Vec<T>, more: usize) -> Result<(), RoomExhausted> {
    const FIRST: usize = 4;
    let old = list.capacity();
    let needed = list.len().saturating_add(more);
    let new = needed.max(old.saturating_mul(2)).max(FIRST);
    room.take(new.saturating_mul(size_of::<T>()))?;
    list.reserve_exact(new - list.len());
    room.release(old * size_of::<T>());
    Ok(())
}
