//! Reservation of room for new records.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::{Read, Stored};
use crate::pipeline::account::DropReason;
use crate::queue::config::Overflow;
use crate::queue::room::NoRoom;

/// Room for a record while it is being appended. Dropped when the log counts the record or the append has failed.
pub(in crate::queue) struct LogReservation {
    stored: Arc<Stored>,
    units: usize,
}

impl Stored {
    /// Reserves room for a batch. Depending on the configuration, a full queue drops older data, waits, or refuses.
    pub(in crate::queue) async fn reserve(
        self: &Arc<Self>,
        units: usize,
    ) -> Result<LogReservation, NoRoom> {
        loop {
            let freed = self.log().freed();
            tokio::pin!(freed);
            // Register before the check, so that no notification is lost.
            freed.as_mut().enable();
            let no_room = match self.try_reserve(units) {
                Ok(reservation) => {
                    self.log_room();
                    return Ok(reservation);
                }
                Err(no_room) => no_room,
            };
            match no_room {
                NoRoom::Full if self.config.overflow == Overflow::DropOldest => {
                    if self.log().is_stuck() {
                        // Dropping data would not make room.
                        return Err(NoRoom::Full);
                    } else if self.log().is_freeing() {
                        freed.await;
                    } else if !self.drop_oldest().await {
                        return Err(NoRoom::Full);
                    }
                }
                NoRoom::Full if self.config.block_on_overflow => freed.await,
                no_room => return Err(no_room),
            }
        }
    }

    /// Logs that the queue has room again, with the total of dropped data.
    fn log_room(&self) {
        if let Some(ended) = self.dropping.over() {
            tracing::info!(
                directory = %self.log().directory().display(),
                lasted = ?ended.lasted,
                dropped_items = ended.items,
                "The queue on disk has room again and stops dropping data."
            );
        }
    }

    /// Whether less than a quarter of the queue would remain free after `units` more.
    pub(in crate::queue) fn is_scarce(&self, units: usize) -> bool {
        let size = self.config.queue_size;
        self.used_units().saturating_add(units) > size - size / 4
    }

    fn try_reserve(self: &Arc<Self>, units: usize) -> Result<LogReservation, NoRoom> {
        if self.closed.load(Relaxed) {
            return Err(NoRoom::Closed);
        }
        if units > self.config.queue_size {
            return Err(NoRoom::TooLarge);
        }
        let mut reserved = self.reserved.lock();
        let taken = self.used_units().saturating_add(*reserved);
        if taken.saturating_add(units) > self.config.queue_size {
            self.log().make_room();
            return Err(NoRoom::Full);
        }
        *reserved += units;
        Ok(LogReservation {
            stored: self.clone(),
            units,
        })
    }

    /// Drops the oldest record. Returns false if there is no record.
    async fn drop_oldest(self: &Arc<Self>) -> bool {
        let Ok(Read::Records(records)) = self.next(1).await else {
            return false;
        };
        for (mut handle, record) in records {
            self.ledger.dropped(record.items, DropReason::QueueFull);
            if self.dropping.occurs(record.items) {
                tracing::error!(
                    directory = %self.log().directory().display(),
                    "The queue on disk is full; dropping its oldest data until it has room. Check the next hop, or \
                     raise `sending_queue.queue_size`."
                );
            }
            handle.begin();
        }
        true
    }
}

impl Drop for LogReservation {
    fn drop(&mut self) {
        let mut reserved = self.stored.reserved.lock();
        *reserved -= self.units;
        drop(reserved);
        self.stored.log().notify_room();
    }
}
