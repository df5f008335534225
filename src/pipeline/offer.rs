//! How a processor that has acknowledged data hands it on: again and again.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::pipeline::Next;
use crate::pipeline::batch::{Batch, Nack, Progress};

/// Waits between attempts: jittered, doubling.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// When a refusal that may pass is the last word.
#[derive(Debug, Clone, Copy)]
pub(super) struct Last {
    /// At the first one, as long as no branch has the batch.
    pub(super) first: bool,
    /// Once the stage is closing.
    pub(super) at_the_end: bool,
}

/// Offers until the batch is taken, or refused for good, or for the last time. Once it is `closing`, waits are short.
pub(super) async fn offer(
    next: &Next,
    closing: &CancellationToken,
    mut batch: Batch,
    progress: Arc<Progress>,
    last: Last,
) -> Result<(), Nack> {
    batch.progress = Some(progress.clone());
    let mut wait = FIRST_WAIT;
    loop {
        match next.consumer.consume(batch.clone()).await {
            Err(nack) if nack.retryable => {
                let is_last =
                    last.first && progress.is_empty() || last.at_the_end && closing.is_cancelled();
                if is_last {
                    return Err(nack);
                }
                let jitter = 0.5 + fastrand::f64();
                if closing.is_cancelled() {
                    // There may be no later.
                    sleep(FIRST_WAIT.mul_f64(jitter)).await;
                    continue;
                }
                let asked = nack.retry_after.unwrap_or_default();
                tokio::select! {
                    () = sleep(wait.mul_f64(jitter).max(asked)) => {}
                    () = closing.cancelled() => {}
                }
                wait = (wait * 2).min(LONGEST_WAIT);
            }
            taken => return taken,
        }
    }
}
