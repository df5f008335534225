//! Appending of requests to a queue on disk.

use std::sync::Arc;

use tokio::time::timeout;

use super::{RETRY_AFTER, SendingQueue, closed};
use crate::pipeline::FlushReason;
use crate::pipeline::batch::{Batch, Nack};
use crate::queue::arrival::Arrival;
use crate::queue::config::QueueConfig;
use crate::queue::room::{FLUSH_REQUEST_INTERVAL, NoRoom};
use crate::queue::stored::{LogReservation, Stored};
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
        let reservation = match self.reserve_in_log(stored, units).await {
            Ok(reservation) => {
                self.delivery.log_room();
                reservation
            }
            Err(NoRoom::Full) if config.drop_on_overflow => {
                arrival.dropped(&self.delivery);
                return Ok(());
            }
            Err(no_room) => return Err(self.refusal(config, units, &arrival, no_room)),
        };
        // Spawn a task, so that the append completes and is counted even if the sender stops waiting.
        let log = stored.clone();
        let appended = tokio::spawn(async move {
            let outcome = log.append(record).await;
            // Release the batch and its reservation only after the append, which needs them.
            drop((batch, reservation));
            if outcome.is_ok() {
                arrival.accepted();
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
            Ok(Err(AppendError::Closed)) | Err(_) => Err(closed()),
        }
    }

    /// Waits for room in the log, and repeatedly requests a flush from a buffering sender.
    async fn reserve_in_log(
        &self,
        stored: &Arc<Stored>,
        units: usize,
    ) -> Result<LogReservation, NoRoom> {
        let sender = &self.delivery.sender;
        let reserving = stored.reserve(units);
        if !sender.buffers() {
            return reserving.await;
        }
        tokio::pin!(reserving);
        loop {
            match timeout(FLUSH_REQUEST_INTERVAL, &mut reserving).await {
                Ok(reservation) => return reservation,
                Err(_) => sender.request_flush(FlushReason::Full),
            }
        }
    }
}
