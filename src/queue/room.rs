//! Capacity of a queue.

use std::sync::Arc;
use std::time::Duration;

use metrics::Gauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};

pub(super) const FLUSH_REQUEST_INTERVAL: Duration = Duration::from_millis(100);

/// A bounded number of units: requests, items or bytes. Waiting is fair and cancellation-safe.
#[derive(Debug)]
pub(super) struct Room {
    capacity: usize,
    free: Arc<Semaphore>,
    gauge: Gauge,
}

/// A share of the room, released on drop.
#[derive(Debug)]
pub(super) struct Reservation {
    units: u32,
    gauge: Gauge,
    _permit: OwnedSemaphorePermit,
}

/// Reason why there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoRoom {
    /// There is no room now.
    Full,
    /// The request is larger than the whole capacity.
    TooLarge,
    /// The queue is closed.
    Closed,
}

impl Room {
    /// Creates room for `capacity` units. `gauge` shows the units in use.
    pub(super) fn new(capacity: usize, gauge: Gauge) -> Self {
        let capacity = capacity.min(Semaphore::MAX_PERMITS);
        Room {
            capacity,
            free: Arc::new(Semaphore::new(capacity)),
            gauge,
        }
    }

    /// Returns the capacity in units.
    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    pub(super) fn free(&self) -> usize {
        self.free.available_permits()
    }

    /// Takes room, or fails at once.
    pub(super) fn try_take(&self, units: usize) -> Result<Reservation, NoRoom> {
        let units = self.checked(units)?;
        match self.free.clone().try_acquire_many_owned(units) {
            Ok(permit) => Ok(self.reserve(units, permit)),
            Err(TryAcquireError::NoPermits) => Err(NoRoom::Full),
            Err(TryAcquireError::Closed) => Err(NoRoom::Closed),
        }
    }

    /// Takes room, waiting until there is enough.
    pub(super) async fn take(&self, units: usize) -> Result<Reservation, NoRoom> {
        let units = self.checked(units)?;
        match self.free.clone().acquire_many_owned(units).await {
            Ok(permit) => Ok(self.reserve(units, permit)),
            Err(_) => Err(NoRoom::Closed),
        }
    }

    /// Refuses all requests from now on, including waiting requests.
    pub(super) fn close(&self) {
        self.free.close();
    }

    fn reserve(&self, units: u32, permit: OwnedSemaphorePermit) -> Reservation {
        self.gauge.increment(units);
        Reservation {
            units,
            gauge: self.gauge.clone(),
            _permit: permit,
        }
    }

    fn checked(&self, units: usize) -> Result<u32, NoRoom> {
        if units > self.capacity {
            return Err(NoRoom::TooLarge);
        }
        // The limit of 4 GiB is above the request limit of every receiver.
        u32::try_from(units).map_err(|_| NoRoom::TooLarge)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.gauge.decrement(self.units);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn room_is_bounded_and_released() {
        let room = Room::new(10, Gauge::noop());
        let held = room.try_take(7).unwrap();
        assert_eq!(room.try_take(4).unwrap_err(), NoRoom::Full);
        assert_eq!(room.try_take(11).unwrap_err(), NoRoom::TooLarge);
        assert_eq!(room.free(), 3);
        drop(held);
        assert_eq!(room.free(), 10);
    }

    #[tokio::test]
    async fn cancelled_wait_leaves_no_state() {
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
    async fn closing_refuses_waiting_senders() {
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
