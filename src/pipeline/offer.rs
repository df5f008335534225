//! Retries of a stage that delivers acknowledged data to the next stage.

use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::pipeline::Next;
use crate::pipeline::batch::{Batch, Nack};

/// Bounds of the wait between attempts. Waits double and are jittered.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy)]
pub(super) struct FinalRefusal {
    /// The first refusal is final if no branch has accepted the batch.
    pub(super) first: bool,
    /// A refusal is final once the stage is closing.
    pub(super) when_closing: bool,
}

/// Offers the batch until the next stage accepts it or refuses it permanently, or until a refusal is final by `last`.
/// All attempts share the batch's progress. Once the stage is `closing`, waits are short.
pub(super) async fn offer(
    next: &Next,
    closing: &CancellationToken,
    batch: &Batch,
    last: FinalRefusal,
) -> Result<(), Nack> {
    let is_partly_accepted = || {
        batch
            .progress
            .as_ref()
            .is_some_and(|progress| !progress.is_empty())
    };
    let mut wait = FIRST_WAIT;
    loop {
        match next.consumer.consume(batch.clone()).await {
            Err(nack) if nack.retryable => {
                let is_last = last.first && !is_partly_accepted()
                    || last.when_closing && closing.is_cancelled();
                if is_last {
                    return Err(nack);
                }
                let jitter = 0.5 + fastrand::f64();
                if closing.is_cancelled() {
                    // The shutdown deadline may leave no time for a longer wait.
                    sleep(FIRST_WAIT.mul_f64(jitter)).await;
                    continue;
                }
                let retry_delay = nack.retry_after.unwrap_or_default();
                tokio::select! {
                    () = sleep(wait.mul_f64(jitter).max(retry_delay)) => {}
                    () = closing.cancelled() => {}
                }
                wait = (wait * 2).min(LONGEST_WAIT);
            }
            outcome => return outcome,
        }
    }
}
