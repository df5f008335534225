//! One job's way to the next hop: encode once, send, retry, and take apart what was refused as a whole.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::backoff::Backoff;
use super::config::RetryConfig;
use super::entry::{Entry, Job, Ledger};
use super::held::BLOCKING_BYTES;
use super::sampled_log::SampledLog;
use super::{Encoded, Fault, Outcome, SendError, Sender};
use crate::batch::{Code, Requests, Signal};
use crate::config::ComponentId;
use crate::telemetry::DropReason;

/// How many more sends the parts of one refused batch may cost. Isolating one bad request among a thousand takes
/// twenty; a server that refuses everything must not be sent everything twice, one by one.
const EXTRA_SENDS: usize = 256;

/// What delivers the jobs of one queue.
pub(super) struct Delivery {
    pub(super) id: ComponentId,
    pub(super) signal: Signal,
    pub(super) sender: Arc<dyn Sender>,
    pub(super) retry: Option<RetryConfig>,
    /// Of one attempt.
    pub(super) timeout: Option<Duration>,
    pub(super) ledger: Arc<Ledger>,
    /// Cancelled when the queue shuts down: who sleeps wakes for a last attempt.
    pub(super) stopping: CancellationToken,
    pub(super) logs: Logs,
}

/// Log lines by kind, so that one does not use up the other's quota.
#[derive(Debug, Default)]
pub(super) struct Logs {
    retry: SampledLog,
    drop: SampledLog,
    partial: SampledLog,
}

/// The end of a batch that was not delivered.
struct Failure {
    reason: DropReason,
    error: SendError,
}

impl Delivery {
    /// Sends a job until every entry of it has its outcome.
    ///
    /// A batch that was refused for good although it was merged from several requests is sent again in halves, so that
    /// one request's trouble does not take another's data with it.
    pub(super) async fn deliver(&self, job: Job) {
        let _in_flight = InFlight::new(&self.ledger);
        let started = Instant::now();
        let mut extra_sends = EXTRA_SENDS;
        let mut todo = vec![job];
        while let Some(mut job) = todo.pop() {
            let Failure { reason, error } = match self.send(&mut job, started).await {
                Ok(outcome) => {
                    self.delivered(job, outcome);
                    continue;
                }
                Err(failure) => failure,
            };
            let (first, second) = take_apart(job, error.fault);
            if second.is_empty() || extra_sends < 2 {
                self.failed(first, reason, &error);
                self.failed(second, reason, &error);
                continue;
            }
            extra_sends -= 2;
            todo.push(second);
            todo.push(first);
        }
    }

    /// Sends one batch until it is accepted, refused for good, or its time is over.
    async fn send(&self, job: &mut Job, started: Instant) -> Result<Outcome, Failure> {
        let permanent = |error| Failure {
            reason: DropReason::Permanent,
            error,
        };
        let batch = self.encode(job).await.map_err(permanent)?;
        let mut backoff = self
            .retry
            .as_ref()
            .map(|retry| Backoff::new(retry, started));
        loop {
            let error = match self.attempt(&batch).await {
                Ok(outcome) => return Ok(outcome),
                Err(error) if !error.retryable => return Err(permanent(error)),
                Err(error) => error,
            };
            let wait = backoff
                .as_mut()
                .and_then(|backoff| backoff.next(error.throttle));
            let reason = match wait {
                _ if self.stopping.is_cancelled() => DropReason::Shutdown,
                None => DropReason::RetriesExhausted,
                Some(wait) => {
                    self.log_retry(&error, wait);
                    tokio::select! {
                        () = sleep(wait) => {}
                        () = self.stopping.cancelled() => {}
                    }
                    continue;
                }
            };
            return Err(Failure { reason, error });
        }
    }

    async fn encode(&self, job: &mut Job) -> Result<Encoded, SendError> {
        let mut requests = Requests::default();
        let mut items = 0;
        for entry in job.iter_mut() {
            items += entry.items();
            requests.append(entry.requests().map_err(|damaged| {
                SendError::permanent(Code::DataLoss, Fault::Content, damaged.to_string())
            })?);
        }
        let signal = self.signal;
        let chunks = if self.sender.encodes_every_byte() && requests.len() > BLOCKING_BYTES {
            let sender = self.sender.clone();
            tokio::task::spawn_blocking(move || sender.encode(signal, &requests))
                .await
                .map_err(|error| {
                    SendError::permanent(
                        Code::Internal,
                        Fault::Elsewhere,
                        format!("encoding the batch failed: {error}"),
                    )
                })??
        } else {
            self.sender.encode(signal, &requests)?
        };
        Ok(Encoded {
            signal,
            items,
            chunks: chunks.into(),
        })
    }

    async fn attempt(&self, batch: &Encoded) -> Result<Outcome, SendError> {
        let Some(limit) = self.timeout else {
            return self.sender.send(batch).await;
        };
        timeout(limit, self.sender.send(batch))
            .await
            .unwrap_or_else(|_| {
                let reason = format!("no answer within the timeout of {limit:?}");
                Err(SendError::transient(Code::DeadlineExceeded, reason))
            })
    }

    fn delivered(&self, job: Job, outcome: Outcome) {
        let items: usize = job.iter().map(Entry::items).sum();
        let rejected = outcome.rejected_items.min(items);
        self.ledger.metrics.delivered(items - rejected);
        if rejected > 0 {
            self.ledger
                .metrics
                .dropped(rejected, DropReason::PartialSuccess);
        }
        if (rejected > 0 || !outcome.message.is_empty())
            && let Some(suppressed) = self.logs.partial.admit()
        {
            tracing::warn!(
                otelcol.component.id = %self.id,
                otelcol.component.kind = "exporter",
                otelcol.signal = %self.signal,
                message_from_server = outcome.message,
                dropped_items = rejected,
                suppressed,
                "Partial success response"
            );
        }
        job.into_iter().for_each(Entry::delivered);
    }

    fn failed(&self, job: Job, reason: DropReason, error: &SendError) {
        if job.is_empty() {
            return;
        }
        if let Some(suppressed) = self.logs.drop.admit() {
            let why = match reason {
                DropReason::Permanent => "not retryable error",
                DropReason::Shutdown => "interrupted due to shutdown",
                _ if self.retry.is_none() => "retry_on_failure is off",
                _ => "no more retries left",
            };
            let dropped_items: usize = job.iter().map(Entry::items).sum();
            tracing::error!(
                otelcol.component.id = %self.id,
                otelcol.component.kind = "exporter",
                otelcol.signal = %self.signal,
                error = format!("{why}: {error}"),
                dropped_items,
                suppressed,
                "Exporting failed. Dropping data."
            );
        }
        for entry in job {
            entry.failed(reason, error.to_nack());
        }
    }

    fn log_retry(&self, error: &SendError, interval: Duration) {
        if let Some(suppressed) = self.logs.retry.admit() {
            tracing::info!(
                otelcol.component.id = %self.id,
                otelcol.component.kind = "exporter",
                otelcol.signal = %self.signal,
                %error,
                ?interval,
                suppressed,
                "Exporting failed. Will retry the request after interval."
            );
        }
    }
}

/// Two halves of what was refused, the second empty unless the refusal may be about a part of it only.
fn take_apart(mut job: Job, fault: Fault) -> (Job, Job) {
    if fault == Fault::Elsewhere {
        return (job, Job::new());
    }
    if job.len() == 1 && fault == Fault::Size {
        job = job.into_iter().flat_map(Entry::halves).collect();
    }
    let second = job.drain(job.len().div_ceil(2)..).collect();
    (job, second)
}

/// Counts a job as in flight while it is being sent, waits between attempts included.
struct InFlight<'a>(&'a Ledger);

impl<'a> InFlight<'a> {
    fn new(ledger: &'a Ledger) -> Self {
        ledger.metrics.in_flight_requests.increment(1);
        InFlight(ledger)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.metrics.in_flight_requests.decrement(1);
    }
}
