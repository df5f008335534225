//! Appending of requests to a queue on disk.

use std::sync::Arc;

use tokio::time::timeout;

use super::{RETRY_AFTER, SendingQueue, gone};
use crate::pipeline::FlushReason;
use crate::pipeline::batch::{Batch, Nack};
use crate::queue::arrival::Arrival;
use crate::queue::config::QueueConfig;
use crate::queue::room::{NoRoom, URGE};
use crate::queue::stored::{Place, Stored};
use tributary_storage::AppendError;

impl SendingQueue {
    /// Appends a batch to the log.
    pub(super) async fn store(
        &self,
        stored: &Arc<Stored>,
        config: &QueueConfig,
        mut batch: Batch,
        arrival: Arrival,
    ) -> Result<(), Nack> {
        let record = stored.record(&mut batch);
        let units = stored.units(record.items, record.len());
        let sender = &self.delivery.sender;
        if sender.buffers() && stored.is_scarce(units) {
            sender.request_flush(FlushReason::Full);
        }
        let place = match self.stored_place(stored, units).await {
            Ok(place) => {
                self.delivery.has_room();
                place
            }
            Err(NoRoom::Full) if config.drop_on_overflow => {
                arrival.dropped(&self.delivery);
                return Ok(());
            }
            Err(no_room) => return Err(self.refusal(config, units, &arrival, no_room)),
        };
        // Spawned, so that the append completes and is accounted for even if the sender stops waiting.
        let log = stored.clone();
        let appended = tokio::spawn(async move {
            let outcome = log.append(record).await;
            // Dropped after the append: until then the batch and its place count in the memory budget and in the queue.
            drop((batch, place));
            if outcome.is_ok() {
                arrival.taken();
            }
            outcome
        });
        match appended.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error @ AppendError::TooLarge(_))) => Err(Nack::invalid(error.to_string())),
            Ok(Err(error @ AppendError::Disk { .. })) => Err(Nack::exhausted(
                format!("sending queue: {error}"),
                RETRY_AFTER,
            )),
            Ok(Err(AppendError::Closed)) | Err(_) => Err(gone()),
        }
    }

    /// Waits for room in the log. Meanwhile, a sender that buffers is asked repeatedly to flush.
    async fn stored_place(&self, stored: &Arc<Stored>, units: usize) -> Result<Place, NoRoom> {
        let sender = &self.delivery.sender;
        let placing = stored.place(units);
        if !sender.buffers() {
            return placing.await;
        }
        tokio::pin!(placing);
        loop {
            match timeout(URGE, &mut placing).await {
                Ok(place) => return place,
                Err(_) => sender.request_flush(FlushReason::Full),
            }
        }
    }
}
