//! Delivery of one job: encode once, send, retry, and split a batch that was refused as a whole.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::aside::{Aside, Trial};
use super::backoff::Backoff;
use super::config::RetryConfig;
use super::entry::{Entry, Job, Ledger};
use super::held::Content;
use super::pace::Pace;
use super::{Encoded, Fault, Identity, Outcome, SendError, Sender, Taken};
use crate::pipeline::account::DropReason;
use crate::pipeline::batch::Code;
use crate::pipeline::episode::Episode;
use crate::pipeline::output_memory::OutputMemory;
use crate::pipeline::turns::BLOCKING_BYTES;
use tributary_config::ComponentId;
use tributary_memory::{Budget, Permit};
use tributary_net::sampled_log::SampledLog;
use tributary_otlp::{Requests, Signal};
use tributary_profiles::{decoded_bytes, join};

/// Maximum number of extra sends to find the bad parts of one refused batch. Isolating one bad request among a thousand
/// takes twenty sends. The limit protects a server that refuses everything from receiving every part separately.
const EXTRA_SENDS: usize = 256;
/// The same limit while no part was accepted, so that the data may not be at fault. The limit suffices to find a good
/// part unless at least every eighth part of the batch is bad.
const EXTRA_SENDS_UNCLEAR: usize = 16;

/// Returns the maximum number of extra sends for the parts of a permanently refused batch.
pub(crate) fn most_extra_sends(fault: Fault, any_accepted: bool) -> usize {
    match fault {
        Fault::Unclear if !any_accepted => EXTRA_SENDS_UNCLEAR,
        _ => EXTRA_SENDS,
    }
}

/// A job after encoding.
enum Ready {
    /// One request, and the permit for the bytes that encoding made.
    Whole(Encoded, Permit),
    /// The positions of the requests that can be sent as one, by group: all of them together cannot.
    Apart(Vec<Vec<usize>>),
}

/// Maximum wait between attempts during the shutdown, unless the server asks for a longer one.
const LAST_WAITS: Duration = Duration::from_millis(500);

/// Delivers the jobs of one queue.
pub(super) struct Delivery {
    pub(super) id: ComponentId,
    pub(super) signal: Signal,
    pub(super) sender: Arc<dyn Sender>,
    pub(super) retry: Option<RetryConfig>,
    /// Timeout of one attempt.
    pub(super) timeout: Option<Duration>,
    pub(super) ledger: Arc<Ledger>,
    /// Cancelled when the queue shuts down. This ends current waits and shortens later ones.
    pub(super) stopping: CancellationToken,
    pub(super) pace: Pace,
    /// Only for a queue on disk: jobs that fail repeatedly release their consumers.
    pub(super) aside: Option<Aside>,
    /// Jobs without a consumer are loaded and sent one at a time. Otherwise their number would determine the memory
    /// use.
    pub(super) alone: Semaphore,
    /// Episode in which the next hop accepts no data.
    pub(super) outage: Episode,
    /// Episode in which the queue has no room.
    pub(super) full: Episode,
    /// Budget for compressed copies of batches that a sender may take over. `None` means no compression.
    pub(super) packs_in: Option<Arc<Budget>>,
    /// Maximum size in bytes of requests of profiles after merging.
    pub(super) most_bytes: usize,
    pub(super) budget: Arc<Budget>,
    pub(super) logs: Logs,
}

/// Rate-limited log lines. Each kind has a quota of its own.
#[derive(Debug, Default)]
pub(super) struct Logs {
    retry: SampledLog,
    pub(super) credentials: SampledLog,
    pub(super) suspect: SampledLog,
    drop: SampledLog,
    partial: SampledLog,
}

/// Handle of the job's consumer. The consumer goes on when the handle is dropped.
pub(super) type Turn = Option<oneshot::Sender<Infallible>>;

/// Reason why a job was not delivered unchanged.
enum Stop {
    Failed(Failure),
    /// The requests cannot be sent as one. Each group, given as positions in the job, can be.
    Apart(Vec<Vec<usize>>),
    /// The job fails while other data is delivered, so one of its records may be the cause.
    Suspect,
    /// The job failed for so long while other data was delivered that it goes to the dead letters.
    Dead(SendError),
}

/// Outcome of a batch that was not delivered.
struct Failure {
    reason: DropReason,
    error: SendError,
}

impl Delivery {
    /// Sends a job until every entry of it has its outcome.
    ///
    /// A batch that was merged from several requests and refused permanently is sent again in halves. So one bad
    /// request does not take the data of the others with it.
    ///
    /// Returns jobs that the consumers should try instead: halves of a job that fails while other data is delivered.
    pub(super) async fn deliver(&self, job: Job, mut turn: Turn) -> Vec<Job> {
        let _in_flight = InFlight::new(&self.ledger);
        let started = Instant::now();
        let (mut extra_sends, mut any_accepted) = (0, false);
        let (mut trial, mut again) = (Trial::default(), Vec::new());
        // Large parts first: if the sends run out, most of the data has been delivered.
        let mut todo = VecDeque::from([job]);
        while let Some(mut job) = todo.pop_front() {
            let Failure { reason, error } =
                match self.send(&mut job, started, &mut turn, &mut trial).await {
                    Ok(outcome) => {
                        any_accepted = true;
                        self.succeeded();
                        self.delivered(job, outcome);
                        continue;
                    }
                    Err(Stop::Failed(failure)) => failure,
                    Err(Stop::Apart(groups)) => {
                        regroup(job, groups, &mut todo);
                        continue;
                    }
                    Err(Stop::Suspect) => {
                        let second = job.drain(job.len().div_ceil(2)..).collect();
                        again.extend([job, second]);
                        continue;
                    }
                    Err(Stop::Dead(error)) => {
                        trial.begin_again();
                        // Entries that could not be written to the dead letters stay in the queue.
                        let left = self.bury(job, &error).await;
                        todo.extend((!left.is_empty()).then_some(left));
                        continue;
                    }
                };
            let most = most_extra_sends(error.fault, any_accepted);
            if error.fault != Fault::Elsewhere {
                for entry in &mut job {
                    // Splitting a batch needs its content.
                    entry.reload().await;
                }
            }
            let memory = OutputMemory::new(&self.budget);
            let bytes = match (job.as_mut_slice(), error.fault) {
                ([entry], fault) if fault != Fault::Elsewhere => entry.bytes_to_split(),
                _ => 0,
            };
            let (first, second) = match memory.take(bytes) {
                Ok(()) => take_apart(job, error.fault),
                Err(_) => (job, Job::new()),
            };
            if second.is_empty() || extra_sends >= most {
                self.failed(first, reason, &error);
                self.failed(second, reason, &error);
                continue;
            }
            extra_sends += 2;
            todo.extend([first, second]);
        }
        again
    }

    /// Sends one batch until it is accepted, refused permanently, or its time is over.
    async fn send(
        &self,
        job: &mut Job,
        started: Instant,
        turn: &mut Turn,
        trial: &mut Trial,
    ) -> Result<Outcome, Stop> {
        let permanent = |error| {
            Stop::Failed(Failure {
                reason: DropReason::Permanent,
                error,
            })
        };
        let identity = Arc::new(Identity {
            is_awaited: job.iter().any(Entry::is_awaited),
            ..Identity::default()
        });
        let mut encoded: Option<(Encoded, Permit)> = None;
        let mut backoff = self
            .retry
            .as_ref()
            .map(|retry| Backoff::new(retry, started));
        // Starts at the first failure. The time of attempts counts, since attempts at an unresponsive next hop are
        // slow.
        let mut away = None;
        loop {
            // Held while the content is in memory, until it is unloaded again.
            let mut alone = match turn.is_none() && job.iter().any(Entry::is_unloaded) {
                true => self.alone.acquire().await.ok(),
                false => None,
            };
            if trial.is_aside() && self.stopping.is_cancelled() {
                return Err(Stop::Failed(Failure {
                    reason: DropReason::Shutdown,
                    error: given_up(),
                }));
            }
            let ready = match encoded.take() {
                Some(batch) => Ok(batch),
                None => match self.encode(job, &identity).await {
                    Ok(Ready::Whole(batch, permit)) => Ok((batch, permit)),
                    Ok(Ready::Apart(groups)) => return Err(Stop::Apart(groups)),
                    Err(error) => Err(error),
                },
            };
            let attempted = match &ready {
                Ok((batch, _)) => self.attempt(batch).await,
                Err(error) => Err(error.clone()),
            };
            let outcome = match attempted {
                Ok(Taken::Delivered(outcome)) => Ok(outcome),
                Ok(Taken::Over(outcome)) => {
                    job.iter_mut().for_each(Entry::taken_over);
                    *turn = None;
                    // The entries keep the content that another attempt needs.
                    drop((ready, alone.take()));
                    let since = Instant::now();
                    let outcome = outcome.await.unwrap_or_else(|_| Err(given_up()));
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
                    return Err(permanent(error));
                }
                Err(error) => error,
            };
            if let Some(aside) = &self.aside {
                trial.failed(aside, &error);
                if trial.is_suspect() && job.len() > 1 {
                    return Err(Stop::Suspect);
                }
                if trial.is_over(aside) {
                    return Err(Stop::Dead(error));
                }
            }
            let wait = backoff
                .as_mut()
                .and_then(|backoff| backoff.next(error.throttle));
            let stopping = self.stopping.is_cancelled();
            // An upstream sender that waits still has the data and can send it elsewhere. A record on disk is kept as
            // well.
            let returned = stopping && job.iter().all(Entry::is_kept);
            let reason = match wait {
                _ if returned => DropReason::Shutdown,
                None if stopping => DropReason::Shutdown,
                None => DropReason::RetriesExhausted,
                // Data in memory is lost when the process ends, so retry until then.
                Some(wait) if stopping => {
                    drop(alone.take());
                    sleep(wait.min(LAST_WAITS).max(error.throttle.unwrap_or_default())).await;
                    continue;
                }
                Some(wait) => {
                    self.will_retry(job, &error, wait, trial);
                    if self.make_way(job, turn, trial) {
                        encoded = None;
                    }
                    drop(alone.take());
                    away.get_or_insert_with(|| self.pace.failing());
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

    /// Encodes the requests of a job.
    async fn encode(&self, job: &mut Job, identity: &Arc<Identity>) -> Result<Ready, SendError> {
        for entry in job.iter_mut() {
            entry.reload().await;
        }
        let items = job.iter().map(Entry::items).sum();
        let bytes: usize = job.iter().map(Entry::bytes).sum();
        let content: Vec<Content> = job.iter_mut().filter_map(Entry::content).collect();
        let packed = content.iter().any(Content::is_packed);
        let (sender, signal, most_bytes) = (self.sender.clone(), self.signal, self.most_bytes);
        let joins = signal == Signal::Profiles && content.len() > 1;
        let budget = self.budget.clone();
        let work = move || {
            let memory = OutputMemory::new(&budget);
            let take = |bytes| {
                memory
                    .take(bytes)
                    .map_err(|_| SendError::no_memory(&memory))
            };
            let mut requests = Requests::default();
            for content in content {
                take(content.bytes_to_expand())?;
                requests.append(content.requests().map_err(|damaged| {
                    SendError::permanent(Code::DataLoss, Fault::Content, damaged.to_string())
                })?);
            }
            if joins {
                let parts = requests.parts().iter();
                let structs = parts.map(|part| decoded_bytes(part));
                let structs = structs.fold(requests.len(), usize::saturating_add);
                take(structs)?;
                let mut joined = join(requests.parts(), most_bytes);
                if joined.len() != 1 {
                    let groups = joined.into_iter().map(|joined| joined.parts);
                    return Ok(Err(groups.collect()));
                }
                requests = joined.drain(..).map(|joined| joined.request).collect();
            }
            let chunks = sender.encode(signal, &requests, &memory)?;
            // Chunks that are parts of the requests are counted with them.
            let is_part = |chunk: &Bytes| {
                let end = |bytes: &Bytes| bytes.as_ptr().addr() + bytes.len();
                requests
                    .parts()
                    .iter()
                    .any(|part| part.as_ptr() <= chunk.as_ptr() && end(chunk) <= end(part))
            };
            let made = chunks
                .iter()
                .filter(|chunk| packed || joins || !is_part(chunk));
            let made = made.map(Bytes::len).sum();
            Ok(Ok((chunks, memory.keep(made))))
        };
        let heavy = packed || joins || self.sender.encodes_every_byte();
        let chunks = if bytes > BLOCKING_BYTES && heavy {
            tokio::task::spawn_blocking(work).await.map_err(|error| {
                let reason = format!("encoding the batch failed: {error}");
                SendError::permanent(Code::Internal, Fault::Elsewhere, reason)
            })??
        } else {
            work()?
        };
        if let Some(budget) = &self.packs_in {
            for entry in job.iter_mut() {
                entry.pack(budget).await;
            }
        }
        Ok(match chunks {
            Ok((chunks, permit)) => {
                let encoded = Encoded {
                    signal,
                    items,
                    chunks: chunks.into(),
                    held: job.iter().map(Entry::held_bytes).sum(),
                    identity: identity.clone(),
                };
                Ready::Whole(encoded, permit)
            }
            Err(groups) => Ready::Apart(groups),
        })
    }

    async fn attempt(&self, batch: &Encoded) -> Result<Taken, SendError> {
        let begun = Instant::now();
        let sending = self.sender.take(batch);
        let outcome = match self.timeout {
            None => sending.await,
            Some(limit) => timeout(limit, sending).await.unwrap_or_else(|_| {
                let reason = format!("no answer within the timeout of {limit:?}");
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

    fn failed(&self, job: Job, reason: DropReason, error: &SendError) {
        if job.is_empty() {
            return;
        }
        let stays = reason == DropReason::Shutdown && job.iter().all(Entry::is_on_disk);
        if !stays && let Some(suppressed) = self.logs.drop.admit() {
            let why = match reason {
                DropReason::Permanent => "not retryable error",
                DropReason::Shutdown => "interrupted due to shutdown",
                _ if self.retry.is_none() => "retry_on_failure is off",
                _ => "no more retries left",
            };
            let items = |returned: bool| -> usize {
                let those = job.iter().filter(|entry| entry.is_awaited() == returned);
                those.map(Entry::items).sum()
            };
            let (dropped_items, rejected_items) = (items(false), items(true));
            let outcome = match dropped_items {
                0 => "Exporting failed. Rejecting data.",
                _ => "Exporting failed. Dropping data.",
            };
            tracing::error!(
                otelcol.component.id = %self.id,
                otelcol.component.kind = "exporter",
                otelcol.signal = %self.signal,
                error = format!("{why}: {error}"),
                dropped_items = (dropped_items > 0).then_some(dropped_items),
                rejected_items = (rejected_items > 0).then_some(rejected_items),
                suppressed = (suppressed > 0).then_some(suppressed),
                "{outcome}"
            );
        }
        for entry in job {
            entry.failed(reason, error.to_nack());
        }
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
                "The time for shutdown is over. What the queue still holds is lost."
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

/// The error if a sender took a batch over and dropped it without an outcome.
fn given_up() -> SendError {
    SendError::transient(Code::Unavailable, "the exporter gave the batch up")
}

/// Rounds for log lines.
fn millis(interval: Duration) -> u64 {
    u64::try_from(interval.as_millis()).unwrap_or(u64::MAX)
}

/// Turns each group of a job's entries into a job, at the front of `todo`.
fn regroup(job: Job, groups: Vec<Vec<usize>>, todo: &mut VecDeque<Job>) {
    let mut entries: Vec<Option<Entry>> = job.into_iter().map(Some).collect();
    for group in groups.into_iter().rev() {
        let taken = group
            .into_iter()
            .filter_map(|at| entries.get_mut(at)?.take());
        todo.push_front(taken.collect());
    }
}

/// Splits a refused job into halves. The second half is empty if a part of the job cannot fare better than the whole.
fn take_apart(mut job: Job, fault: Fault) -> (Job, Job) {
    if fault == Fault::Elsewhere {
        return (job, Job::new());
    }
    if job.len() == 1 {
        let cut = match fault {
            Fault::Size => Entry::halves,
            _ => Entry::requests,
        };
        job = job.into_iter().flat_map(cut).collect();
    }
    let second = job.drain(job.len().div_ceil(2)..).collect();
    (job, second)
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
