//! A queue between a connector and the following pipelines.
//!
//! With `storage`, data stays on disk until its outcome is known: stages that buffer for seconds
//! (see [`PersistedUpstream`]) leave the data in the queue, so `kill -9` loses none of it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;

use crate::component::{BuildContext, BuildError, Outputs, Terminal};
use crate::pipeline::FlushReason;
use crate::pipeline::batch::{Batch, Code, Nack, PersistedUpstream};
use crate::queue;
use crate::queue::{
    Encoded, Fault, Outcome, QueueConfig, RetryConfig, SendError, SendOutcome, Sender, Settings,
};
use futures_util::future::BoxFuture;
use tributary_config::units::Duration as Setting;
use tributary_memory::Budget;
use tributary_otlp::{Requests, Signal};

/// Initial retry delay.
const FIRST_WAIT: Setting = Setting::millis(100);

/// Builds a queue for each of `signals`, in front of `outputs`, which retries refused batches.
pub(super) fn queued(
    cx: &BuildContext,
    signals: &[Signal],
    queue: &QueueConfig,
    outputs: Outputs,
) -> Result<Terminal, BuildError> {
    let settings = Settings {
        queue: Some(queue.clone()),
        retry: Some(RetryConfig {
            // Without a limit, because the queued data was acknowledged.
            max_elapsed_time: Some(Default::default()),
            // A stage in the same process that is full is so for a short time.
            initial_interval: FIRST_WAIT,
            ..RetryConfig::default()
        }),
        // The following pipelines have the timeouts of their exporters.
        timeout: Duration::ZERO,
    };
    let sender: Arc<dyn Sender> = Arc::new(Offering {
        outputs,
        on_disk: queue.storage.is_some(),
        budget: cx.budget.clone(),
    });
    queue::terminal(cx, signals, &settings, &sender)
}

/// Consumer of the queue's batches.
struct Offering {
    outputs: Outputs,
    /// Whether the queue is on disk. Its batches get the mark [`PersistedUpstream`]. A batch of a queue in memory gets
    /// the mark only if its sender waits for the outcome.
    on_disk: bool,
    budget: Arc<Budget>,
}

impl Sender for Offering {
    fn send<'a>(&'a self, batch: &'a Encoded) -> BoxFuture<'a, Result<Outcome, SendError>> {
        Box::pin(async move {
            let Some(next) = self.outputs.get(batch.signal) else {
                return Ok(Outcome::default());
            };
            // The queue keeps its memory permit meanwhile.
            heard(next.consume(offered(batch)).await)
        })
    }

    fn buffers(&self) -> bool {
        true
    }

    fn send_or_buffer<'a>(
        &'a self,
        batch: &'a Encoded,
    ) -> BoxFuture<'a, Result<SendOutcome, SendError>> {
        Box::pin(async move {
            let next = self.outputs.get(batch.signal).cloned();
            let Some(next) = next.filter(|_| self.on_disk || batch.identity.is_awaited) else {
                return self.send(batch).await.map(SendOutcome::Delivered);
            };
            let mut offered = offered(batch);
            // The queue releases its memory once the batch is accepted. Without room for both copies, the batch is
            // sent without a permit: waiting for memory that the queue itself uses could take forever.
            let memory = self.budget.acquire(offered.bytes());
            offered.hold(memory.unwrap_or_else(|_| self.budget.empty_permit()));
            let persisted_upstream = Arc::new(PersistedUpstream::default());
            offered.persisted_upstream = Some(persisted_upstream.clone());
            let (tell, mut outcome) = oneshot::channel();
            let offering = tokio::spawn(async move {
                // The receiver was dropped, because the queue has stopped.
                let _ = tell.send(heard(next.consume(offered).await));
            });
            let offering = AbortOnDropHandle::new(offering);
            tokio::select! {
                biased;
                heard = &mut outcome => {
                    heard.unwrap_or_else(|_| Err(gone())).map(SendOutcome::Delivered)
                }
                () = persisted_upstream.until_buffered() => {
                    offering.detach();
                    Ok(SendOutcome::Buffered(outcome))
                }
            }
        })
    }

    fn request_flush(&self, reason: FlushReason) {
        for signal in self.outputs.signals() {
            if let Some(next) = self.outputs.get(signal) {
                next.request_flush(reason);
            }
        }
    }
}

fn offered(batch: &Encoded) -> Batch {
    let requests: Requests = batch.chunks.iter().cloned().collect();
    let mut offered = Batch::new(batch.signal, batch.items, requests);
    offered.progress = Some(batch.identity.progress.clone());
    offered
}

fn heard(taken: Result<(), Nack>) -> Result<Outcome, SendError> {
    let failed = |nack: Nack| SendError {
        retryable: nack.retryable,
        throttle: nack.retry_after,
        code: nack.code,
        fault: Fault::of(nack.code),
        reason: nack.reason.into_owned(),
    };
    taken.map(|()| Outcome::default()).map_err(failed)
}

fn gone() -> SendError {
    SendError::transient(
        Code::Unavailable,
        "the pipelines after the connector are shutting down",
    )
}
