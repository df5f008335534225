//! How much a queue may hold.

use std::sync::Arc;

use metrics::Gauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};

/// A bounded number of units: requests, items or bytes. Waiting is fair, and giving up waiting leaks nothing.
#[derive(Debug)]
pub(super) struct Room {
    capacity: usize,
    free: Arc<Semaphore>,
    gauge: Gauge,
}

/// Some of the room; given back when dropped.
#[derive(Debug)]
pub(super) struct Place {
    units: u32,
    gauge: Gauge,
    _permit: OwnedSemaphorePermit,
}

/// Why there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoRoom {
    /// Not now.
    Full,
    /// Never: it is larger than all the room there is.
    TooLarge,
    /// The queue takes nothing any more.
    Closed,
}

impl Room {
    /// Room for `capacity` units; `gauge` shows how many are taken.
    pub(super) fn new(capacity: usize, gauge: Gauge) -> Self {
        let capacity = capacity.min(Semaphore::MAX_PERMITS);
        Room {
            capacity,
            free: Arc::new(Semaphore::new(capacity)),
            gauge,
        }
    }

    /// All the room there is.
    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Units that are not taken.
    pub(super) fn free(&self) -> usize {
        self.free.available_permits()
    }

    /// Takes some room, or fails at once.
    pub(super) fn try_take(&self, units: usize) -> Result<Place, NoRoom> {
        let units = self.checked(units)?;
        match self.free.clone().try_acquire_many_owned(units) {
            Ok(permit) => Ok(self.place(units, permit)),
            Err(TryAcquireError::NoPermits) => Err(NoRoom::Full),
            Err(TryAcquireError::Closed) => Err(NoRoom::Closed),
        }
    }

    /// Takes some room, waiting until there is.
    pub(super) async fn take(&self, units: usize) -> Result<Place, NoRoom> {
        let units = self.checked(units)?;
        match self.free.clone().acquire_many_owned(units).await {
            Ok(permit) => Ok(self.place(units, permit)),
            Err(_) => Err(NoRoom::Closed),
        }
    }

    /// Refuses everything from now on, who waits included.
    pub(super) fn close(&self) {
        self.free.close();
    }

    fn place(&self, units: u32, permit: OwnedSemaphorePermit) -> Place {
        self.gauge.increment(units);
        Place {
            units,
            gauge: self.gauge.clone(),
            _permit: permit,
        }
    }

    fn checked(&self, units: usize) -> Result<u32, NoRoom> {
        if units > self.capacity {
            return Err(NoRoom::TooLarge);
        }
        // A single request of 4 GiB is above every receiver's limit.
        u32::try_from(units).map_err(|_| NoRoom::TooLarge)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.gauge.decrement(self.units);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn room_is_bounded_and_comes_back() {
        let room = Room::new(10, Gauge::noop());
        let held = room.try_take(7).unwrap();
        assert_eq!(room.try_take(4).unwrap_err(), NoRoom::Full);
        assert_eq!(room.try_take(11).unwrap_err(), NoRoom::TooLarge);
        assert_eq!(room.free(), 3);
        drop(held);
        assert_eq!(room.free(), 10);
    }

    #[tokio::test]
    async fn who_gives_up_waiting_leaves_no_trace() {
        let room = Room::new(10, Gauge::noop());
        let held = room.try_take(7).unwrap();
        {
            let waiting = room.take(5);
            tokio::pin!(waiting);
            assert!(futures_util::poll!(&mut waiting).is_pending());
        }
        assert_eq!(room.free(), 3);
        drop(held);
        assert_eq!(room.free(), 10);
    }

    #[tokio::test]
    async fn closing_refuses_who_waits() {
        let room = Room::new(1, Gauge::noop());
        let _held = room.try_take(1).unwrap();
        let waiting = room.take(1);
        tokio::pin!(waiting);
        assert!(futures_util::poll!(&mut waiting).is_pending());
        room.close();
        assert_eq!(waiting.await.unwrap_err(), NoRoom::Closed);
        assert_eq!(room.try_take(1).unwrap_err(), NoRoom::Closed);
    }
}
