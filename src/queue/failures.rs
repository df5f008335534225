//! Handling, counting and logging of delivery failures.

use std::time::Duration;

use super::SendError;
use super::delivery::{ConsumerHandle, Delivery};
use super::entry::{Entry, Job};
use super::set_aside::FailureHistory;
use crate::pipeline::account::DropReason;
use crate::pipeline::batch::Code;

impl Delivery {
    /// Whether the next hop refuses the exporter's credentials, which may be renewed later. A waiting sender is refused
    /// at once, because its own credentials may be at fault.
    pub(super) fn may_be_renewed(&self, job: &Job, error: &SendError) -> bool {
        let is_about_them = matches!(error.code, Code::Unauthenticated | Code::PermissionDenied);
        is_about_them && self.retry.is_some() && !job.iter().any(Entry::is_awaited)
    }

    /// Releases the resources that a failed job does not need until its next attempt. Returns true if the content has
    /// to be loaded again.
    pub(super) fn release_resources(
        &self,
        job: &mut Job,
        consumer: &mut ConsumerHandle,
        history: &mut FailureHistory,
    ) -> bool {
        let Some(set_aside) = &self.set_aside else {
            return false;
        };
        if history.try_set_aside(set_aside) {
            *consumer = None;
            job.iter_mut().for_each(Entry::release_memory);
            return true;
        }
        if history.failed_repeatedly() {
            for entry in job {
                entry.unload();
            }
            return true;
        }
        false
    }

    /// Moves a job to the dead letters of its queue. Returns the entries that could not be moved.
    pub(super) async fn move_to_dead_letters(&self, job: Job, error: &SendError) -> Job {
        let Some(set_aside) = &self.set_aside else {
            return job;
        };
        let mut left = Job::new();
        for mut entry in job {
            let items = entry.items();
            entry.reload().await;
            let Some(batch) = entry.batch() else {
                left.push(entry);
                continue;
            };
            match set_aside.stored.add_dead_letter(batch).await {
                Ok(directory) => {
                    tracing::error!(
                        otelcol.component.id = %self.id,
                        otelcol.component.kind = "exporter",
                        otelcol.signal = %self.signal,
                        directory = %directory.display(),
                        items,
                        %error,
                        "Moved a record to the dead letters: it failed repeatedly while other records were \
                         delivered. Inspect it with `collector queue export`, or send it with `collector queue \
                         drain`."
                    );
                    entry.failed(DropReason::DeadLetter, error.to_nack());
                }
                Err(why) => {
                    tracing::error!(
                        otelcol.component.id = %self.id,
                        otelcol.component.kind = "exporter",
                        otelcol.signal = %self.signal,
                        items,
                        error = why,
                        "Cannot move a record to the dead letters; it stays in the queue and is retried. Check the \
                         disk."
                    );
                    entry.unload();
                    left.push(entry);
                }
            }
        }
        left
    }

    /// Records a delivered job.
    pub(super) fn succeeded(&self) {
        if let Some(set_aside) = &self.set_aside {
            set_aside.delivered();
        }
        if let Some(ended) = self.outage.over() {
            tracing::info!(
                otelcol.component.id = %self.id,
                otelcol.component.kind = "exporter",
                otelcol.signal = %self.signal,
                outage = ?ended.lasted,
                failed_attempts = ended.times,
                "The next hop accepts data again."
            );
        }
    }

    /// Counts and logs a failed attempt that will be retried.
    pub(super) fn will_retry(
        &self,
        job: &Job,
        error: &SendError,
        wait: Duration,
        history: &FailureHistory,
    ) {
        self.ledger.metrics.attempt_failed();
        self.ledger.metrics.failed_with(error);
        let items = job.iter().map(Entry::items).sum();
        if !history.is_suspect() {
            self.ledger.metrics.not_accepted();
            if self.outage.occurs(items) {
                tracing::warn!(
                    otelcol.component.id = %self.id,
                    otelcol.component.kind = "exporter",
                    otelcol.signal = %self.signal,
                    %error,
                    "The next hop does not accept data; retrying. Another line reports the recovery. Check the next \
                     hop and the connection to it."
                );
            }
        } else if let Some(suppressed) = self.logs.suspect.admit() {
            tracing::error!(
                otelcol.component.id = %self.id,
                otelcol.component.kind = "exporter",
                otelcol.signal = %self.signal,
                items,
                %error,
                suppressed = (suppressed > 0).then_some(suppressed),
                "Set a record aside: it failed repeatedly while other records were delivered. It is retried for an \
                 hour, then moved to the dead letters."
            );
        }
        if !error.retryable
            && let Some(suppressed) = self.logs.credentials.admit()
        {
            tracing::error!(
                otelcol.component.id = %self.id,
                otelcol.component.kind = "exporter",
                otelcol.signal = %self.signal,
                %error,
                suppressed = (suppressed > 0).then_some(suppressed),
                "The next hop refuses the credentials of this exporter; the data stays in the queue and is retried. \
                 Check `auth`, `headers` or `tls`."
            );
        }
        self.log_retry(error, wait);
    }

    /// Logs the beginning of an episode in which the queue is full.
    pub(super) fn log_full(&self, items: usize, drops: bool) {
        if !self.full.occurs(items) {
            return;
        }
        if drops {
            tracing::error!(
                otelcol.component.id = %self.id,
                otelcol.component.kind = "exporter",
                otelcol.signal = %self.signal,
                dropped_items = items,
                "Dropping data because sending_queue is full. Try increasing queue_size."
            );
        } else {
            tracing::warn!(
                otelcol.component.id = %self.id,
                otelcol.component.kind = "exporter",
                otelcol.signal = %self.signal,
                "The sending queue is full; refusing requests until it has room. Check the next hop, or raise \
                 `sending_queue.queue_size`."
            );
        }
    }

    /// Logs that the queue has room again, with the totals of refused or dropped data.
    pub(super) fn log_room(&self) {
        if let Some(ended) = self.full.over() {
            tracing::info!(
                otelcol.component.id = %self.id,
                otelcol.component.kind = "exporter",
                otelcol.signal = %self.signal,
                lasted = ?ended.lasted,
                requests = ended.times,
                items = ended.items,
                "The sending queue has room again. The fields count the requests and items refused or dropped \
                 meanwhile."
            );
        }
    }

    /// Ends the entries of a job that is not retried, and logs the error.
    pub(super) fn failed(&self, job: Job, reason: DropReason, error: &SendError) {
        if job.is_empty() {
            return;
        }
        self.ledger.metrics.failed_with(error);
        let stays = reason == DropReason::Shutdown && job.iter().all(Entry::is_on_disk);
        if !stays && let Some(suppressed) = self.logs.drop.admit() {
            let why = match reason {
                DropReason::Permanent => "not retryable error",
                DropReason::Damaged => "the stored record is damaged or was removed",
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
}
