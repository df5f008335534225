//! Delivery of one job: encode once, send, retry, and split a batch that was refused permanently.

mod encoding;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use self::encoding::Ready;
use super::backoff::Backoff;
use super::config::RetryConfig;
use super::entry::{Entry, Job};
use super::ledger::Ledger;
use super::set_aside::{FailureHistory, SetAside};
use super::{Encoded, Fault, Identity, Outcome, SendError, SendOutcome, Sender, entry};
use crate::pipeline::account::DropReason;
use crate::pipeline::batch::Code;
use crate::pipeline::episode::Episode;
use crate::pipeline::split::Search;
use tributary_config::ComponentId;
use tributary_memory::{Budget, Permit};
use tributary_net::sampled_log::SampledLog;
use tributary_otlp::Signal;

/// Maximum wait between attempts during the shutdown, unless the server asks for a longer wait.
const MAX_WAIT_AT_SHUTDOWN: Duration = Duration::from_millis(500);

/// Delivers the jobs of one queue.
pub(super) struct Delivery {
    pub(super) id: ComponentId,
    pub(super) signal: Signal,
    pub(super) sender: Arc<dyn Sender>,
    pub(super) retry: Option<RetryConfig>,
    pub(super) timeout: Option<Duration>,
    pub(super) ledger: Arc<Ledger>,
    /// Cancelled when the queue shuts down, which ends current waits and shortens later waits.
    pub(super) stopping: CancellationToken,
    /// Only for a queue on disk: jobs that fail repeatedly release their consumers.
    pub(super) set_aside: Option<SetAside>,
    /// Permit to load and send a job without a consumer. A single permit bounds the memory of all such jobs.
    pub(super) without_consumer: Semaphore,
    /// Episode in which the next hop accepts no data.
    pub(super) outage: Episode,
    /// Episode in which the queue has no room.
    pub(super) full: Episode,
    /// Budget for compressed copies of batches that a sender buffers. `None` means no compression.
    pub(super) compression_budget: Option<Arc<Budget>>,
    /// Maximum size in bytes of requests of profiles after merging.
    pub(super) max_bytes: usize,
    pub(super) budget: Arc<Budget>,
    pub(super) logs: Logs,
}

/// Rate-limited log lines. Each kind has a quota of its own.
#[derive(Debug, Default)]
pub(super) struct Logs {
    retry: SampledLog,
    pub(super) credentials: SampledLog,
    pub(super) suspect: SampledLog,
    pub(super) drop: SampledLog,
    partial: SampledLog,
}

/// Handle of the consumer that waits for a job. When the handle is dropped, the consumer continues with the next job.
pub(super) type ConsumerHandle = Option<oneshot::Sender<Infallible>>;

/// Reason why a job was not delivered unchanged.
enum Stop {
    Failed(Failure),
    /// The requests cannot be merged into one. The requests of each group (positions in the job) can.
    Groups(Vec<Vec<usize>>),
    /// The job fails while other data is delivered, so one of its records may be the cause.
    Suspect,
    /// The job has failed for too long while other data was delivered, and goes to the dead letters.
    DeadLetter(SendError),
}

/// Outcome of a batch that was not delivered.
struct Failure {
    reason: DropReason,
    error: SendError,
}

impl Delivery {
    /// Sends a job until each of its entries has an outcome.
    ///
    /// If a merged batch is refused permanently, its halves are sent separately, so that one bad request does not cause
    /// the loss of the other requests.
    ///
    /// Returns new jobs for the consumers: the halves of a job that fails while other data is delivered.
    pub(super) async fn deliver(&self, job: Job, mut consumer: ConsumerHandle) -> Vec<Job> {
        let _in_flight = InFlight::new(&self.ledger);
        let started = Instant::now();
        let mut search = Search::default();
        let (mut history, mut again) = (FailureHistory::default(), Vec::new());
        // Send large parts first: when the search has used up its sends, most of the data has been delivered.
        let mut todo = VecDeque::from([job]);
        while let Some(mut job) = todo.pop_front() {
            let Failure { reason, error } = match self
                .send(&mut job, started, &mut consumer, &mut history)
                .await
            {
                Ok(outcome) => {
                    search.accepted();
                    self.succeeded();
                    self.delivered(job, outcome);
                    continue;
                }
                Err(Stop::Failed(failure)) => failure,
                Err(Stop::Groups(groups)) => {
                    encoding::regroup(job, groups, &mut todo);
                    continue;
                }
                Err(Stop::Suspect) => {
                    again.extend(entry::halves(job));
                    continue;
                }
                Err(Stop::DeadLetter(error)) => {
                    history.reset();
                    // Entries that could not be written to the dead letters stay in the queue.
                    let left = self.move_to_dead_letters(job, &error).await;
                    todo.extend((!left.is_empty()).then_some(left));
                    continue;
                }
            };
            if error.fault != Fault::Elsewhere {
                for entry in &mut job {
                    // Splitting a batch needs its content.
                    entry.reload().await;
                }
            }
            match search.refused(job, error.fault, Some(&self.budget)) {
                Ok(parts) => todo.extend(parts),
                Err(job) => self.failed(job, reason, &error),
            }
        }
        again
    }

    /// Sends one batch until it is accepted, refused permanently, or out of time.
    async fn send(
        &self,
        job: &mut Job,
        started: Instant,
        consumer: &mut ConsumerHandle,
        history: &mut FailureHistory,
    ) -> Result<Outcome, Stop> {
        let identity = Arc::new(Identity {
            is_awaited: job.iter().any(Entry::is_awaited),
            ..Identity::default()
        });
        let mut encoded: Option<(Encoded, Permit)> = None;
        let mut backoff = self
            .retry
            .as_ref()
            .map(|retry| Backoff::new(retry, started));
        loop {
            // Keep the permit while the content is in memory.
            let mut without_consumer =
                match consumer.is_none() && job.iter().any(Entry::is_unloaded) {
                    true => self.without_consumer.acquire().await.ok(),
                    false => None,
                };
            if history.is_set_aside() && self.stopping.is_cancelled() {
                return Err(Stop::Failed(Failure {
                    reason: DropReason::Shutdown,
                    error: dropped_by_sender(),
                }));
            }
            let ready = match encoded.take() {
                Some(batch) => Ok(batch),
                None => match self.encode(job, &identity).await {
                    Ok(Ready::Whole(batch, permit)) => Ok((batch, permit)),
                    Ok(Ready::Groups(groups)) => return Err(Stop::Groups(groups)),
                    Err(error) => Err(error),
                },
            };
            let (attempted, refused) = match &ready {
                Ok((batch, _)) => (self.attempt(batch).await, DropReason::Permanent),
                // No attempt was made: the file of a queue is damaged or was removed.
                Err(error) if error.code == Code::DataLoss => {
                    (Err(error.clone()), DropReason::Damaged)
                }
                Err(error) => (Err(error.clone()), DropReason::Permanent),
            };
            let outcome = match attempted {
                Ok(SendOutcome::Delivered(outcome)) => Ok(outcome),
                Ok(SendOutcome::Buffered(outcome)) => {
                    job.iter_mut().for_each(Entry::release_memory);
                    *consumer = None;
                    // The entries keep the content that another attempt needs.
                    drop((ready, without_consumer.take()));
                    let since = Instant::now();
                    let outcome = outcome.await.unwrap_or_else(|_| Err(dropped_by_sender()));
                    if let Some(backoff) = &mut backoff {
                        backoff.pause(since.elapsed());
                    }
                    outcome
                }
                Err(error) => {
                    encoded = ready.ok();
                    Err(error)
                }
            };
            let error = match outcome {
                Ok(outcome) => return Ok(outcome),
                Err(error) if !error.retryable && !self.may_be_renewed(job, &error) => {
                    return Err(Stop::Failed(Failure {
                        reason: refused,
                        error,
                    }));
                }
                Err(error) => error,
            };
            if let Some(set_aside) = &self.set_aside {
                history.failed(set_aside, &error);
                if history.is_suspect() && job.len() > 1 {
                    return Err(Stop::Suspect);
                }
                if history.is_dead_letter(set_aside) {
                    return Err(Stop::DeadLetter(error));
                }
            }
            let wait = backoff
                .as_mut()
                .and_then(|backoff| backoff.next(error.throttle));
            let stopping = self.stopping.is_cancelled();
            // A waiting upstream sender still has the data and can send it elsewhere, and the log keeps a record.
            let returned = stopping && job.iter().all(Entry::is_kept);
            let reason = match wait {
                _ if returned => DropReason::Shutdown,
                None if stopping => DropReason::Shutdown,
                None => DropReason::RetriesExhausted,
                // Data in memory is lost when the process ends, so retry until then.
                Some(wait) if stopping => {
                    drop(without_consumer.take());
                    sleep(
                        wait.min(MAX_WAIT_AT_SHUTDOWN)
                            .max(error.throttle.unwrap_or_default()),
                    )
                    .await;
                    continue;
                }
                Some(wait) => {
                    self.will_retry(job, &error, wait, history);
                    if self.release_resources(job, consumer, history) {
                        encoded = None;
                    }
                    drop(without_consumer.take());
                    tokio::select! {
                        () = sleep(wait) => {}
                        () = self.stopping.cancelled() => {}
                    }
                    continue;
                }
            };
            return Err(Stop::Failed(Failure { reason, error }));
        }
    }

    async fn attempt(&self, batch: &Encoded) -> Result<SendOutcome, SendError> {
        let begun = Instant::now();
        let sending = self.sender.send_or_buffer(batch);
        let outcome = match self.timeout {
            None => sending.await,
            Some(limit) => timeout(limit, sending).await.unwrap_or_else(|_| {
                let reason = format!(
                    "no response within the timeout of {limit:?}; check the next hop, or raise \
                                      `timeout`"
                );
                Err(SendError::transient(Code::DeadlineExceeded, reason))
            }),
        };
        let metrics = &self.ledger.metrics;
        metrics.attempted(begun.elapsed(), outcome.is_ok());
        outcome
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
                suppressed = (suppressed > 0).then_some(suppressed),
                "Partial success response"
            );
        }
        job.into_iter().for_each(Entry::delivered);
    }

    /// Logs the number of items lost at the end of the process.
    pub(super) fn log_loss(&self) {
        let undelivered_items = self.ledger.undelivered_items();
        if undelivered_items > 0 {
            tracing::error!(
                otelcol.component.id = %self.id,
                otelcol.component.kind = "exporter",
                otelcol.signal = %self.signal,
                undelivered_items,
                "Shutdown ended before the sending queue was delivered; its items are lost. Raise \
                 `--drain-timeout`, or set `sending_queue.storage` to persist the queue."
            );
        }
    }

    pub(super) fn log_retry(&self, error: &SendError, interval: Duration) {
        if let Some(suppressed) = self.logs.retry.admit() {
            tracing::info!(
                otelcol.component.id = %self.id,
                otelcol.component.kind = "exporter",
                otelcol.signal = %self.signal,
                %error,
                interval = ?Duration::from_millis(millis(interval)),
                suppressed = (suppressed > 0).then_some(suppressed),
                "Exporting failed. Will retry the request after interval."
            );
        }
    }
}

/// Returns the error for a batch that a buffering sender dropped without an outcome.
fn dropped_by_sender() -> SendError {
    SendError::transient(
        Code::Unavailable,
        "the exporter ended without sending the batch",
    )
}

/// Rounds an interval for log lines.
fn millis(interval: Duration) -> u64 {
    u64::try_from(interval.as_millis()).unwrap_or(u64::MAX)
}

/// Counts a job as in flight while it is being sent, including waits between attempts.
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
