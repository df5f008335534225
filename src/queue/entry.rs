//! What the queue is responsible for: one request, or a piece of one, with its outcome.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use smallvec::SmallVec;
use tokio::sync::oneshot;
use tokio::time::{Duration, Instant};

use super::held::{Content, Held};
use super::pace::Step;
use super::room::Place;
use super::stored::Kept;
use crate::pipeline::Undelivered;
use crate::pipeline::account::DropReason;
use crate::pipeline::batch::{Batch, Nack};
use crate::queue::metrics::ExporterMetrics;
use tributary_memory::Budget;
use tributary_otlp::{Limit, Requests, Signal};
use tributary_profiles::decoded_bytes;

/// What is sent in one go: entries whose requests are concatenated.
pub(super) type Job = SmallVec<[Entry; 1]>;

/// Where outcomes are counted: one per queue.
pub(super) struct Ledger {
    /// The exporter's metrics.
    pub(super) metrics: ExporterMetrics,
    /// Whether the process ends: from then on, whatever is dropped is reported.
    ending: AtomicBool,
    /// Items that the end of the process cost.
    undelivered_items: AtomicUsize,
    /// Items that were acknowledged and are lost for any other reason.
    lost_items: AtomicUsize,
}

/// A request the queue took in. Its pieces share it; the last one tells whoever waits.
pub(super) struct Request {
    /// When the queue took it, or read it from the disk.
    since: Instant,
    /// Where it was read from; dropped with this.
    kept: Option<Kept>,
    _place: Option<Place>,
    step: Mutex<Option<Step>>,
    waiting: Option<oneshot::Sender<Result<(), Nack>>>,
    failed: Mutex<Option<Nack>>,
}

/// A request, or a piece of one, that must end as delivered, dropped or given back. Dropping it without an outcome
/// counts as lost in the shutdown (or given back, if the sender still waits and so still has it).
pub(super) struct Entry {
    held: Option<Held>,
    items: usize,
    request: Arc<Request>,
    ledger: Arc<Ledger>,
}

impl Ledger {
    /// An empty ledger.
    pub(super) fn new(metrics: ExporterMetrics) -> Self {
        Ledger {
            metrics,
            ending: AtomicBool::new(false),
            undelivered_items: AtomicUsize::new(0),
            lost_items: AtomicUsize::new(0),
        }
    }

    /// The process, or at least this exporter, ends.
    pub(super) fn ending(&self) {
        self.ending.store(true, Relaxed);
    }

    /// Items that were on a disk cannot be read.
    pub(super) fn damaged(&self, items: usize) {
        self.metrics.dropped(items, DropReason::Damaged);
        self.lost_items.fetch_add(items, Relaxed);
    }

    /// Items that were acknowledged are dropped for this reason.
    pub(super) fn dropped(&self, items: usize, reason: DropReason) {
        self.metrics.dropped(items, reason);
        match reason {
            // The dead letters have them.
            DropReason::DeadLetter => {}
            _ if self.ending.load(Relaxed) => {
                self.undelivered_items.fetch_add(items, Relaxed);
            }
            _ => {
                self.lost_items.fetch_add(items, Relaxed);
            }
        }
    }

    /// Items that the end of the process cost.
    pub(super) fn undelivered_items(&self) -> usize {
        self.undelivered_items.load(Relaxed)
    }

    /// Everything that was acknowledged to the sender and is lost.
    pub(super) fn undelivered(&self) -> Undelivered {
        Undelivered {
            items: self.undelivered_items() + self.lost_items.load(Relaxed),
        }
    }
}

impl Request {
    /// A request that takes up `place` and is part of what is under way; `waiting` hears the outcome, and has the data until then.
    pub(super) fn new(
        place: Option<Place>,
        step: Option<Step>,
        waiting: Option<oneshot::Sender<Result<(), Nack>>>,
    ) -> Arc<Self> {
        Arc::new(Request {
            since: Instant::now(),
            kept: None,
            _place: place,
            step: Mutex::new(step),
            waiting,
            failed: Mutex::new(None),
        })
    }

    /// A request that was read from a log, which has it until it is settled, and that is part of what is under way.
    pub(super) fn of_record(kept: Kept, step: Option<Step>) -> Arc<Self> {
        Arc::new(Request {
            since: Instant::now(),
            kept: Some(kept),
            _place: None,
            step: Mutex::new(step),
            waiting: None,
            failed: Mutex::default(),
        })
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let failed = self
            .failed
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(waiting) = self.waiting.take() {
            // Nobody listens any more when the sender gave up; it still has the data then.
            let _ = waiting.send(failed.take().map_or(Ok(()), Err));
        }
    }
}

impl Entry {
    /// An entry of `request`.
    pub(super) fn new(held: Held, request: Arc<Request>, ledger: Arc<Ledger>) -> Self {
        Entry {
            items: held.items(),
            held: Some(held),
            request,
            ledger,
        }
    }

    /// How long its request has been in the queue.
    pub(super) fn age(&self) -> Duration {
        self.request.since.elapsed()
    }

    /// Spans, data points, log records, samples.
    pub(super) fn items(&self) -> usize {
        self.items
    }

    /// Bytes of the encoded requests.
    pub(super) fn bytes(&self) -> usize {
        self.held.as_ref().map_or(0, Held::bytes)
    }

    /// The encoded requests, to be unpacked elsewhere.
    pub(super) fn content(&mut self) -> Option<Content> {
        self.held.as_mut().map(Held::content)
    }

    /// Bytes it takes in memory once it is [taken over](Self::taken_over).
    pub(super) fn held_bytes(&self) -> usize {
        let held = self.held.as_ref().filter(|_| !self.unloads());
        held.map_or(0, Held::stored_bytes)
    }

    /// Whether it need not be in memory while somebody else has it: all of it is on disk.
    fn unloads(&self) -> bool {
        let kept = self.request.kept.as_ref();
        kept.is_some_and(|kept| kept.items() == self.items)
    }

    /// Keeps the content compressed from now on.
    pub(super) async fn pack(&mut self, budget: &Arc<Budget>) {
        if let Some(Held::Plain(batch)) = &self.held {
            // A clone goes, so that this still counts as held should nobody wait for it.
            self.held = Some(Held::pack(batch.clone(), budget).await);
        }
    }

    /// It has been taken over: it is not on its way any more, only held. What is on disk need not be in memory.
    pub(super) fn taken_over(&mut self) {
        let step = self.request.step.lock();
        step.unwrap_or_else(PoisonError::into_inner).take();
        if self.unload()
            && let Some(kept) = &self.request.kept
        {
            kept.unloaded();
        }
    }

    /// Drops the content from memory if all of it is on disk. Nothing else is read in its place.
    pub(super) fn unload(&mut self) -> bool {
        if self.unloads()
            && let Some(held) = &mut self.held
        {
            held.unload();
        }
        self.is_unloaded()
    }

    /// Whether the content is on disk only.
    pub(super) fn is_unloaded(&self) -> bool {
        matches!(self.held, Some(Held::OnDisk { .. }))
    }

    /// The batch, shared.
    pub(super) fn batch(&self) -> Option<Batch> {
        match &self.held {
            Some(Held::Plain(batch)) => Some(batch.clone()),
            _ => None,
        }
    }

    /// Reads it from the disk again, if it is only there.
    pub(super) async fn reload(&mut self) {
        if let Some(Held::OnDisk { .. }) = &self.held
            && let Some(kept) = &self.request.kept
            && let Some(batch) = kept.reload().await
        {
            self.held = Some(Held::Plain(batch));
        }
    }

    /// The next hop has it. The items are counted by the caller, who knows of partial successes.
    pub(super) fn delivered(mut self) {
        self.held = None;
        if let Some(kept) = &self.request.kept {
            kept.settle(self.items);
        }
    }

    /// It is given up: dropped for `reason`, or given back if the sender waits.
    pub(super) fn failed(mut self, reason: DropReason, nack: Nack) {
        self.fail(reason, nack);
    }

    /// Cuts it into pieces of at most half its items; itself when it is not divisible.
    pub(super) fn halves(mut self) -> Job {
        if self.items < 2 {
            return Job::from_iter([self]);
        }
        let Some(Ok(batch)) = self.held.take().map(Held::into_batch) else {
            return Job::from_iter([self]);
        };
        let limit = Limit {
            items: self.items.div_ceil(2),
            bytes: usize::MAX,
        };
        cut(batch, limit)
            .into_iter()
            .map(|piece| self.piece(piece))
            .collect()
    }

    /// Bytes of memory that [`halves`](Self::halves) takes: the parts, and the structs of profiles.
    pub(super) fn bytes_to_split(&mut self) -> usize {
        let parts = self.bytes().saturating_mul(2);
        if self.held.as_ref().map(Held::signal) != Some(Signal::Profiles) {
            return parts;
        }
        let requests = self.content().and_then(|content| content.requests().ok());
        let structs = requests
            .iter()
            .flat_map(Requests::parts)
            .map(|part| decoded_bytes(part));
        structs.fold(parts, usize::saturating_add)
    }

    /// Cuts a batch that was merged on its way here into the requests it was merged from, or in halves where these became
    /// one: profiles between profiles, others between items. Itself when it is a single one, and when the sender waits: it has the data still, and offers the requests one by one itself.
    pub(super) fn requests(mut self) -> Job {
        let merged = |content: Content| content.requests().map(|requests| requests.parts().len());
        let several = matches!(self.content().map(merged), Some(Ok(2..)));
        let joined = self.held.as_ref().is_some_and(Held::is_joined);
        if self.is_awaited() || !(several || joined) {
            return Job::from_iter([self]);
        }
        if !several {
            return self.apart();
        }
        let Some(Ok(mut batch)) = self.held.take().map(Held::into_batch) else {
            return Job::from_iter([self]);
        };
        let parts = batch.wire().clone().into_parts();
        parts
            .map(|part| {
                let items = tributary_otlp::count(batch.signal(), &part);
                self.piece(batch.clone().with_wire(items, part))
            })
            .collect()
    }

    fn apart(mut self) -> Job {
        if self.held.as_ref().map(Held::signal) != Some(Signal::Profiles) {
            return self.halves();
        }
        let Some(Ok(mut batch)) = self.held.take().map(Held::into_batch) else {
            return Job::from_iter([self]);
        };
        let pieces = match tributary_profiles::halve(&batch.wire().to_bytes()) {
            Some(pieces) => pieces
                .map(|(items, piece)| batch.remade(items, piece))
                .into(),
            None => vec![batch],
        };
        pieces.into_iter().map(|piece| self.piece(piece)).collect()
    }

    /// Whether somebody has the data still, should it not be delivered: the sender who waits, or the disk.
    pub(super) fn is_kept(&self) -> bool {
        self.is_awaited() || self.is_on_disk()
    }

    /// Whether a log has the data until it is settled.
    pub(super) fn is_on_disk(&self) -> bool {
        self.request.kept.is_some()
    }

    /// Whether the sender waits for the outcome, and so has the data still.
    pub(super) fn is_awaited(&self) -> bool {
        self.request.waiting.is_some()
    }

    /// An entry for a part of what this one had.
    fn piece(&self, piece: Batch) -> Entry {
        Entry::new(
            Held::Plain(piece),
            self.request.clone(),
            self.ledger.clone(),
        )
    }

    fn fail(&mut self, reason: DropReason, nack: Nack) {
        self.held = None;
        if let Some(kept) = &self.request.kept {
            if reason == DropReason::Shutdown {
                return kept.give_back();
            }
            kept.settle(self.items);
        }
        if self.is_awaited() {
            self.ledger.metrics.returned(self.items);
        } else {
            self.ledger.dropped(self.items, reason);
        }
        let failed = self.request.failed.lock();
        failed
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert(nack);
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if self.held.is_some() {
            let nack = Nack::unavailable("the exporter stopped before this was delivered");
            self.fail(DropReason::Shutdown, nack);
        }
    }
}

/// Cuts a batch into pieces within `limit` that share its memory permits; those of profiles, which take more than the
/// bytes they are cut from, have permits of their own where there is room.
pub(super) fn cut(mut batch: Batch, limit: Limit) -> Vec<Batch> {
    let whole = batch.wire().to_bytes();
    let pieces = crate::pipeline::split(batch.signal(), &whole, limit);
    let items: usize = pieces.iter().map(|(items, _)| items).sum();
    debug_assert_eq!(items, batch.items());
    if pieces.len() < 2 {
        return vec![batch];
    }
    let piece = |(items, bytes)| match batch.signal() {
        Signal::Profiles => batch.remade(items, bytes),
        _ => batch.clone().with_wire(items, bytes),
    };
    pieces.into_iter().map(piece).collect()
}
