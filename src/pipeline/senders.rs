//! Tracks which upstream senders are still waiting for the outcome of a buffered batch.

use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::sync::oneshot;

use crate::pipeline::batch::{Batch, Nack, PersistedUpstream};

/// Upstream senders of the items that a stage emits as one batch.
#[derive(Default)]
pub(crate) struct Senders {
    /// Senders that wait for the outcome and still have their data.
    waiting: SmallVec<[Waiter; 1]>,
    /// Whether any waiting sender can wait indefinitely.
    any_can_wait: bool,
    /// Whether any waiting sender cannot wait indefinitely.
    any_cannot_wait: bool,
    /// Whether the emitted data is a summary of the senders' data.
    is_summary: bool,
    /// Acknowledged items, which only this stage has.
    acknowledged: usize,
}

/// A sender waiting for the outcome of one part of its batch. A waiter that is dropped before [`report`](Self::report)
/// refuses the whole batch.
struct Waiter(Option<Arc<Waiting>>);

/// A sender waiting for the outcome of all parts of its batch.
struct Waiting {
    outcome_sender: Option<oneshot::Sender<Result<(), Nack>>>,
    refused: Mutex<Option<Nack>>,
}

pub(crate) struct PendingOutcome {
    outcome: Option<oneshot::Receiver<Result<(), Nack>>>,
    persisted_upstream: Option<Arc<PersistedUpstream>>,
}

impl Senders {
    /// Returns the sender of a batch and its pending outcome. The sender waits if it can wait indefinitely or if
    /// `must_wait` is set. Otherwise, the batch is acknowledged.
    pub(crate) fn of(batch: &mut Batch, must_wait: bool) -> (Self, PendingOutcome) {
        let persisted_upstream = batch.persisted_upstream.take();
        let any_can_wait = persisted_upstream.is_some();
        if !any_can_wait && !must_wait {
            return (
                Senders::acknowledged(batch.items()),
                PendingOutcome::immediate(),
            );
        }
        let (outcome_sender, outcome) = oneshot::channel();
        let waiter = Waiter(Some(Arc::new(Waiting {
            outcome_sender: Some(outcome_sender),
            refused: Mutex::default(),
        })));
        let senders = Senders {
            waiting: SmallVec::from_iter([waiter]),
            any_can_wait,
            any_cannot_wait: !any_can_wait,
            ..Senders::default()
        };
        let pending = PendingOutcome {
            outcome: Some(outcome),
            persisted_upstream,
        };
        (senders, pending)
    }

    /// Returns senders that have been acknowledged and do not wait.
    pub(crate) fn acknowledged(items: usize) -> Self {
        Senders {
            acknowledged: items,
            ..Senders::default()
        }
    }

    /// Returns the number of acknowledged items, which only this stage has.
    pub(crate) fn held(&self) -> usize {
        self.acknowledged
    }

    /// Records that the senders' data was summarized into `items` items. Unless all senders wait, this stage is
    /// responsible for the summary.
    pub(crate) fn became(&mut self, items: usize) {
        self.is_summary = true;
        if self.acknowledged > 0 {
            self.acknowledged = items;
        }
    }

    /// Records that `items` items were delivered or dropped. Returns the number of acknowledged items among them.
    pub(crate) fn passed(&mut self, items: usize) -> usize {
        let passed = items.min(self.acknowledged);
        self.acknowledged -= passed;
        passed
    }

    /// Whether all senders wait, and thus still have their data.
    pub(crate) fn all_wait(&self) -> bool {
        self.acknowledged == 0 && !self.waiting.is_empty()
    }

    /// Whether all senders wait and some of them cannot wait for long.
    pub(crate) fn need_outcome_soon(&self) -> bool {
        self.all_wait() && self.any_cannot_wait
    }

    /// Whether the batch is the unmodified data of exactly one waiting sender.
    pub(crate) fn is_single_waiting_sender(&self) -> bool {
        self.all_wait() && self.waiting.len() == 1 && !self.is_summary
    }

    /// Whether all senders were waiting and have stopped. Such senders still have their data and will retry.
    pub(crate) fn have_stopped_waiting(&self) -> bool {
        self.all_wait() && self.waiting.iter().all(Waiter::has_stopped_waiting)
    }

    /// Whether any sender can wait indefinitely.
    pub(crate) fn can_wait(&self) -> bool {
        self.any_can_wait
    }

    /// Returns the mark for the next stage, if any sender can wait indefinitely.
    pub(crate) fn persisted_upstream(&self) -> Option<Arc<PersistedUpstream>> {
        self.any_can_wait.then(Arc::default)
    }

    /// Splits off the senders of a part with `items` items.
    pub(crate) fn split(&mut self, items: usize) -> Self {
        Senders {
            waiting: self.waiting.iter().map(Waiter::another).collect(),
            any_can_wait: self.any_can_wait,
            any_cannot_wait: self.any_cannot_wait,
            is_summary: self.is_summary,
            acknowledged: self.passed(items),
        }
    }

    /// Merges two groups of senders whose items are emitted together.
    pub(crate) fn append(&mut self, mut others: Senders) {
        self.waiting.append(&mut others.waiting);
        self.any_can_wait |= others.any_can_wait;
        self.any_cannot_wait |= others.any_cannot_wait;
        self.is_summary |= others.is_summary;
        self.acknowledged += others.acknowledged;
    }

    /// Passes the outcome to the waiting senders.
    pub(crate) fn report(self, outcome: &Result<(), Nack>) {
        for waiter in self.waiting {
            waiter.report(outcome);
        }
    }
}

impl PendingOutcome {
    fn immediate() -> Self {
        PendingOutcome {
            outcome: None,
            persisted_upstream: None,
        }
    }

    /// Signals that the batch is buffered and, if the sender waits, waits for the outcome.
    ///
    /// # Errors
    /// The refusal by the next stage, or a refusal because this stage is shutting down.
    pub(crate) async fn outcome(self) -> Result<(), Nack> {
        if let Some(persisted_upstream) = self.persisted_upstream {
            persisted_upstream.mark_buffered();
        }
        match self.outcome {
            Some(outcome) => outcome.await.unwrap_or_else(|_| Err(closed())),
            None => Ok(()),
        }
    }
}

impl Waiter {
    fn another(&self) -> Self {
        Waiter(self.0.clone())
    }

    fn has_stopped_waiting(&self) -> bool {
        let outcome_sender = self
            .0
            .as_ref()
            .and_then(|waiting| waiting.outcome_sender.as_ref());
        outcome_sender.is_none_or(oneshot::Sender::is_closed)
    }

    fn report(mut self, outcome: &Result<(), Nack>) {
        if let Some(waiting) = self.0.take()
            && let Err(nack) = outcome
        {
            waiting.refuse(nack.clone());
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if let Some(waiting) = self.0.take() {
            waiting.refuse(closed());
        }
    }
}

impl Waiting {
    fn refuse(&self, nack: Nack) {
        let mut refused = self.refused.lock();
        refused.get_or_insert(nack);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let refused = self.refused.get_mut().take();
        if let Some(outcome_sender) = self.outcome_sender.take() {
            // The send fails if the sender has stopped waiting.
            let _ = outcome_sender.send(refused.map_or(Ok(()), Err));
        }
    }
}

fn closed() -> Nack {
    Nack::unavailable(CLOSED)
}

/// Refusal at the end of the processor's life.
pub(crate) const CLOSED: &str = "the collector is shutting down";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::testing::spans;

    #[tokio::test]
    async fn sender_gets_outcome_of_all_parts() {
        for (accepted, expected) in [(2, true), (1, false)] {
            let (mut senders, pending) = Senders::of(&mut spans(["a", "b"]), true);
            let part = senders.split(1);
            assert_eq!((senders.held(), part.held()), (0, 0));
            let mut parts = vec![senders, part];
            for part in parts.drain(..accepted) {
                part.report(&Ok(()));
            }
            drop(parts);
            assert_eq!(pending.outcome().await.is_ok(), expected);
        }
    }

    #[tokio::test]
    async fn acknowledged_sender_does_not_wait() {
        let (mut senders, pending) = Senders::of(&mut spans(["a", "b", "c"]), false);
        pending.outcome().await.unwrap();
        assert_eq!(senders.held(), 3);
        let part = senders.split(2);
        assert_eq!((senders.held(), part.held()), (1, 2));
        senders.append(part);
        assert_eq!((senders.passed(1), senders.held()), (1, 2));
    }

    #[tokio::test]
    async fn patient_sender_is_notified_of_buffering() {
        let persisted_upstream = Arc::new(PersistedUpstream::default());
        let mut batch = spans(["a"]);
        batch.persisted_upstream = Some(persisted_upstream.clone());
        let (senders, pending) = Senders::of(&mut batch, false);
        assert!(batch.persisted_upstream.is_none() && senders.persisted_upstream().is_some());
        assert!(!senders.need_outcome_soon());
        let outcome = tokio::spawn(pending.outcome());
        persisted_upstream.until_buffered().await;
        senders.report(&Err(Nack::invalid("bad")));
        assert!(!outcome.await.unwrap().unwrap_err().retryable);
    }
}
