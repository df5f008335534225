//! What of a batch is done, over all attempts with it.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::queue::{Encoded, Fault, Identity, Outcome, Partly, SendError, most_extra_sends};
use tributary_otlp::{Limit, count, split};
use tributary_otlp::{Requests, Signal};

/// Some of a batch.
#[derive(Debug, Clone)]
pub(super) struct Work {
    /// Spans, data points, log records, samples.
    pub(super) items: usize,
    pub(super) requests: Requests,
}

/// What is done of a batch, and what is left.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Not taken by anybody yet; `None` once it is settled.
    left: Vec<Option<Work>>,
    accepted: bool,
    rejected_items: usize,
    message: String,
    /// The first refusal for good.
    refusal: Option<SendError>,
    /// By a member's seed.
    members: HashMap<u64, Sent>,
}

/// What became of the pieces that one member was sent.
#[derive(Debug, Default)]
struct Sent {
    any_accepted: bool,
    /// How many more there were because it refused larger ones for good.
    extra_sends: usize,
}

/// An attempt with a batch. When it ends before all is settled, however that comes, what is settled is remembered for
/// the next one.
pub(super) struct Attempt<'a> {
    signal: Signal,
    identity: &'a Arc<Identity>,
    partly: &'a Partly<Progress>,
    progress: Progress,
}

impl<'a> Attempt<'a> {
    pub(super) fn new(batch: &'a Encoded, partly: &'a Partly<Progress>) -> Self {
        let progress = partly.take(&batch.identity).unwrap_or_else(|| Progress {
            left: vec![Some(Work {
                items: batch.items,
                requests: batch.chunks.iter().cloned().collect(),
            })],
            ..Progress::default()
        });
        Attempt {
            signal: batch.signal,
            identity: &batch.identity,
            partly,
            progress,
        }
    }

    /// What is left.
    pub(super) fn left(&self) -> Vec<Work> {
        self.progress.left.iter().flatten().cloned().collect()
    }

    /// The same, in other pieces: those that are sent.
    pub(super) fn replace(&mut self, pieces: impl Iterator<Item = Work>) {
        self.progress.left = pieces.map(Some).collect();
    }

    /// A member took a piece, maybe but for some items.
    pub(super) fn taken(&mut self, at: usize, member: u64, outcome: Outcome) {
        let progress = &mut self.progress;
        progress.members.entry(member).or_default().any_accepted = true;
        if let Some(work) = progress.left.get_mut(at).and_then(Option::take) {
            let rejected = outcome.rejected_items.min(work.items);
            progress.accepted = true;
            progress.rejected_items += rejected;
            if progress.message.is_empty() {
                progress.message = outcome.message;
            }
        }
    }

    /// A member refused a piece for good. It is sent again in smaller pieces where that may help, so that one request's
    /// trouble does not take another's data with it: as often as an exporter to this member alone would, for each has
    /// its share of what is bad.
    pub(super) fn refused(&mut self, at: usize, member: u64, error: SendError) {
        let progress = &mut self.progress;
        let Some(work) = progress.left.get_mut(at).and_then(Option::take) else {
            return;
        };
        let sent = progress.members.entry(member).or_default();
        let most = most_extra_sends(error.fault, sent.any_accepted);
        if work.is_divisible(error.fault) && sent.extra_sends < most {
            sent.extra_sends += 2;
            let halves = work.halves(self.signal);
            progress.left.extend(halves.into_iter().map(Some));
            return;
        }
        progress.give_up(&work, error);
    }

    /// Nobody takes what is left, and nobody will.
    pub(super) fn refused_all(&mut self, error: &SendError) {
        for work in std::mem::take(&mut self.progress.left)
            .into_iter()
            .flatten()
        {
            self.progress.give_up(&work, error.clone());
        }
    }

    /// The outcome, once nothing is left.
    pub(super) fn outcome(mut self) -> Result<Outcome, SendError> {
        let progress = std::mem::take(&mut self.progress);
        match progress.refusal {
            Some(error) if !progress.accepted => Err(SendError {
                // It was taken apart as far as it can be.
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
            self.partly
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

impl Work {
    /// Whether some of it may be accepted when it comes alone, or in smaller pieces.
    fn is_divisible(&self, fault: Fault) -> bool {
        let parts = self.requests.parts().len();
        match fault {
            Fault::Elsewhere => false,
            Fault::Size => self.items > 1,
            // One client's request is one client's trouble.
            Fault::Content | Fault::Unclear => parts > 1,
        }
    }

    fn halves(self, signal: Signal) -> SmallVec<[Work; 2]> {
        let mut parts: Vec<Bytes> = self.requests.into_parts().collect();
        if let [one] = parts.as_slice() {
            let limit = Limit {
                items: self.items.div_ceil(2),
                bytes: usize::MAX,
            };
            let pieces = split(signal, one, limit).into_iter();
            return pieces
                .map(|(items, request)| Work {
                    items,
                    requests: request.into(),
                })
                .collect();
        }
        let second = parts.split_off(parts.len() / 2);
        let half = |parts: Vec<Bytes>| Work {
            items: parts.iter().map(|part| count(signal, part)).sum(),
            requests: parts.into_iter().collect(),
        };
        [half(parts), half(second)].into_iter().collect()
    }
}
