//! Takes batches: makes rows in steps, and waits until their files are stored.

use std::sync::Arc;

use tokio::task::spawn_blocking;

use super::files::{BatchInProgress, Files, LARGE_BATCH, unreadable};
use super::steps::{Ended, Steps, first_step};
use super::ticket::Ticket;
use crate::queue::{Encoded, LaterOutcome, SendError};

impl Files {
    /// Makes rows of a batch. The returned value reports the delivery: the time when all files with
    /// rows of the batch are finished.
    ///
    /// # Errors
    /// If no row of the batch is in any file.
    pub(super) async fn take(self: &Arc<Self>, batch: &Encoded) -> Result<LaterOutcome, SendError> {
        let _taking = BatchInProgress::new(self);
        let (ticket, outcome) = Ticket::new(&batch.identity, &self.partial);
        let mut is_large = batch.bytes() > LARGE_BATCH;
        let mut has_first = false;
        loop {
            let ended = match self.make_room(batch, first_step(batch)).await {
                Ok(reserved) => {
                    let signal_files = self.signal_files(batch.signal).await;
                    let mut steps = Steps::new(
                        self.clone(),
                        batch,
                        &ticket,
                        signal_files,
                        reserved,
                        has_first,
                    );
                    let ended = match is_large {
                        true => spawn_blocking(move || steps.all()).await,
                        false => Ok(steps.first()),
                    };
                    ended.unwrap_or_else(|panicked| {
                        Ended::Failed(unreadable(&format!("making rows failed: {panicked}")))
                    })
                }
                Err(error) => Ended::Failed(error),
            };
            match ended {
                Ended::Complete(todo) => self.write(batch.signal, todo, false).await,
                Ended::More(todo, needs_files) => {
                    // The remaining steps take time. A repeated batch skips the rows that are in
                    // files already.
                    self.write(batch.signal, todo, needs_files).await;
                    (is_large, has_first) = (true, true);
                    continue;
                }
                Ended::Failed(error) => {
                    let spoiled = self.signal_files(batch.signal).await.take_spoiled();
                    self.give_up(spoiled);
                    if !ticket.has_rows() {
                        return Err(error);
                    }
                    // Some rows are in files, so the error is reported once these files are
                    // finished and their rows are known.
                    ticket.failed(&error);
                }
            }
            return Ok(outcome);
        }
    }
}
