//! Progress of a batch over all attempts to send it.

use std::collections::HashMap;
use std::sync::Arc;

use crate::pipeline::split;
use crate::pipeline::split::{Divisible, Fault, Parts, Search};
use crate::queue::{Encoded, Identity, Outcome, PartialDeliveries, SendError};
use tributary_memory::Budget;
use tributary_otlp::{Requests, Signal};

/// A part of a batch.
#[derive(Debug, Clone)]
pub(super) struct Work {
    /// Number of spans, data points, log records or samples.
    pub(super) items: usize,
    pub(super) requests: Requests,
}

/// The delivered and the remaining parts of a batch.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Parts that no member has accepted yet; `None` once the outcome is known.
    left: Vec<Option<Work>>,
    accepted: bool,
    rejected_items: usize,
    message: String,
    /// The first permanent refusal.
    refusal: Option<SendError>,
    /// Searches for the data at fault, by a member's seed.
    members: HashMap<u64, Search>,
}

/// An attempt to send a batch. If the attempt ends early, for any reason, the next attempt
/// continues with the remaining parts.
pub(super) struct Attempt<'a> {
    signal: Signal,
    identity: &'a Arc<Identity>,
    partial: &'a PartialDeliveries<Progress>,
    /// Budget for the memory of splitting.
    budget: &'a Arc<Budget>,
    progress: Progress,
}

impl<'a> Attempt<'a> {
    pub(super) fn new(
        batch: &'a Encoded,
        partial: &'a PartialDeliveries<Progress>,
        budget: &'a Arc<Budget>,
    ) -> Self {
        let progress = partial.take(&batch.identity).unwrap_or_else(|| Progress {
            left: vec![Some(Work {
                items: batch.items,
                requests: batch.chunks.iter().cloned().collect(),
            })],
            ..Progress::default()
        });
        Attempt {
            signal: batch.signal,
            identity: &batch.identity,
            partial,
            budget,
            progress,
        }
    }

    /// Returns the remaining parts.
    pub(super) fn left(&self) -> Vec<Work> {
        self.progress.left.iter().flatten().cloned().collect()
    }

    pub(super) fn replace(&mut self, shares: impl Iterator<Item = Work>) {
        self.progress.left = shares.map(Some).collect();
    }

    /// Records that a member accepted a share, except for rejected items in the outcome.
    pub(super) fn taken(&mut self, at: usize, member: u64, outcome: Outcome) {
        let progress = &mut self.progress;
        progress.members.entry(member).or_default().accepted();
        if let Some(work) = progress.left.get_mut(at).and_then(Option::take) {
            let rejected = outcome.rejected_items.min(work.items);
            progress.accepted = true;
            progress.rejected_items += rejected;
            if progress.message.is_empty() {
                progress.message = outcome.message;
            }
        }
    }

    /// Records a permanent refusal of a share. The share is split if that may help, so that an
    /// invalid request does not take other data with it. Each member has the same number of splits
    /// as an exporter with a single destination.
    pub(super) fn refused(&mut self, at: usize, member: u64, error: SendError) {
        let progress = &mut self.progress;
        let Some(work) = progress.left.get_mut(at).and_then(Option::take) else {
            return;
        };
        let search = progress.members.entry(member).or_default();
        let work = SignalWork(self.signal, work);
        match search.refused(work, error.fault, Some(self.budget)) {
            Ok(parts) => progress
                .left
                .extend(parts.into_iter().map(|SignalWork(_, part)| Some(part))),
            Err(SignalWork(_, work)) => progress.give_up(&work, error),
        }
    }

    /// Records that no member will ever accept the remaining parts.
    pub(super) fn refused_all(&mut self, error: &SendError) {
        for work in std::mem::take(&mut self.progress.left)
            .into_iter()
            .flatten()
        {
            self.progress.give_up(&work, error.clone());
        }
    }

    /// Returns the outcome once no parts remain.
    pub(super) fn outcome(mut self) -> Result<Outcome, SendError> {
        let progress = std::mem::take(&mut self.progress);
        match progress.refusal {
            Some(error) if !progress.accepted => Err(SendError {
                // The share was split as far as possible.
                fault: Fault::Elsewhere,
                ..error
            }),
            _ => Ok(Outcome {
                rejected_items: progress.rejected_items,
                message: progress.message,
            }),
        }
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        let progress = std::mem::take(&mut self.progress);
        let begun = progress.accepted || progress.refusal.is_some();
        if begun && progress.left.iter().any(Option::is_some) {
            self.partial
                .remember(&Arc::downgrade(self.identity), progress);
        }
    }
}

impl Progress {
    fn give_up(&mut self, work: &Work, error: SendError) {
        self.rejected_items += work.items;
        if self.message.is_empty() {
            self.message.clone_from(&error.reason);
        }
        self.refusal.get_or_insert(error);
    }
}

struct SignalWork(Signal, Work);

impl Divisible for SignalWork {
    fn bytes_to_halve(&mut self, fault: Fault) -> usize {
        let SignalWork(signal, work) = self;
        split::bytes_to_halve(*signal, work.items, &work.requests, false, fault)
    }

    fn halve(self, fault: Fault) -> Result<Parts<Self>, Self> {
        let SignalWork(signal, work) = &self;
        match split::halve(*signal, work.items, &work.requests, false, fault) {
            Some(parts) => Ok(parts
                .into_iter()
                .map(|(items, requests)| SignalWork(*signal, Work { items, requests }))
                .collect()),
            None => Err(self),
        }
    }
}
