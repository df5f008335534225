//! The unit of responsibility of the queue: one request, or a piece of one, with its outcome.

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

/// Entries that are sent as one batch.
pub(super) type Job = SmallVec<[Entry; 1]>;

/// Outcome counters of one queue.
pub(super) struct Ledger {
    /// The exporter's metrics.
    pub(super) metrics: ExporterMetrics,
    /// Whether the process is ending. From then on, dropped items are reported as undelivered.
    ending: AtomicBool,
    /// Items lost because the process ended.
    undelivered_items: AtomicUsize,
    /// Acknowledged items lost for any other reason.
    lost_items: AtomicUsize,
}

/// A request that the queue accepted. Its pieces share it; the last piece reports the outcome to a waiting sender.
pub(super) struct Request {
    /// Time at which the queue accepted the request, or read it from disk.
    since: Instant,
    /// Record that the request was read from. Dropped together with the request.
    kept: Option<Kept>,
    _place: Option<Place>,
    step: Mutex<Option<Step>>,
    waiting: Option<oneshot::Sender<Result<(), Nack>>>,
    failed: Mutex<Option<Nack>>,
}

/// A request or a piece of one, which must end as delivered, dropped or returned. Dropping an entry without an outcome
/// counts it as lost in the shutdown. If the sender still waits, it counts as returned instead.
pub(super) struct Entry {
    held: Option<Held>,
    items: usize,
    request: Arc<Request>,
    ledger: Arc<Ledger>,
}

impl Ledger {
    /// Creates a ledger without counts.
    pub(super) fn new(metrics: ExporterMetrics) -> Self {
        Ledger {
            metrics,
            ending: AtomicBool::new(false),
            undelivered_items: AtomicUsize::new(0),
            lost_items: AtomicUsize::new(0),
        }
    }

    /// Records that the process, or at least this exporter, is ending.
    pub(super) fn ending(&self) {
        self.ending.store(true, Relaxed);
    }

    /// Counts persisted items that cannot be read.
    pub(super) fn damaged(&self, items: usize) {
        self.metrics.dropped(items, DropReason::Damaged);
        self.lost_items.fetch_add(items, Relaxed);
    }

    /// Counts acknowledged items that are dropped.
    pub(super) fn dropped(&self, items: usize, reason: DropReason) {
        self.metrics.dropped(items, reason);
        match reason {
            // The dead letters have the data, so it is not lost.
            DropReason::DeadLetter => {}
            _ if self.ending.load(Relaxed) => {
                self.undelivered_items.fetch_add(items, Relaxed);
            }
            _ => {
                self.lost_items.fetch_add(items, Relaxed);
            }
        }
    }

    /// Returns the number of items lost because the process ended.
    pub(super) fn undelivered_items(&self) -> usize {
        self.undelivered_items.load(Relaxed)
    }

    /// Returns the number of acknowledged items that are lost.
    pub(super) fn undelivered(&self) -> Undelivered {
        Undelivered {
            items: self.undelivered_items() + self.lost_items.load(Relaxed),
        }
    }
}

impl Request {
    /// Creates a request with its `place` in the queue and its share of the bytes in flight. The sender of `waiting`
    /// gets the outcome and keeps the data until then.
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

    /// Creates a request that was read from a log. The log keeps the record until the request has its outcome.
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
            // The send fails if the sender stopped waiting; then it still has the data.
            let _ = waiting.send(failed.take().map_or(Ok(()), Err));
        }
    }
}

impl Entry {
    /// Creates an entry of `request`.
    pub(super) fn new(held: Held, request: Arc<Request>, ledger: Arc<Ledger>) -> Self {
        Entry {
            items: held.items(),
            held: Some(held),
            request,
            ledger,
        }
    }

    /// Returns the time since the queue accepted the request.
    pub(super) fn age(&self) -> Duration {
        self.request.since.elapsed()
    }

    /// Returns the number of spans, data points, log records or samples.
    pub(super) fn items(&self) -> usize {
        self.items
    }

    /// Returns the bytes of the encoded requests.
    pub(super) fn bytes(&self) -> usize {
        self.held.as_ref().map_or(0, Held::bytes)
    }

    /// Returns the content, to be decompressed by the caller.
    pub(super) fn content(&mut self) -> Option<Content> {
        self.held.as_mut().map(Held::content)
    }

    /// Returns the bytes that the entry keeps in memory once it is [taken over](Self::taken_over).
    pub(super) fn held_bytes(&self) -> usize {
        let held = self.held.as_ref().filter(|_| !self.unloads());
        held.map_or(0, Held::stored_bytes)
    }

    /// Whether the content can be unloaded from memory because all of it is on disk.
    fn unloads(&self) -> bool {
        let kept = self.request.kept.as_ref();
        kept.is_some_and(|kept| kept.items() == self.items)
    }

    /// Compresses the content in memory.
    pub(super) async fn pack(&mut self, budget: &Arc<Budget>) {
        if let Some(Held::Plain(batch)) = &self.held {
            // A clone is compressed, so that the entry still has its content if the future is dropped.
            self.held = Some(Held::pack(batch.clone(), budget).await);
        }
    }

    /// Records that a sender took the entry over. It no longer counts as in flight. If the content is on disk, it is
    /// unloaded.
    pub(super) fn taken_over(&mut self) {
        let step = self.request.step.lock();
        step.unwrap_or_else(PoisonError::into_inner).take();
        if self.unload()
            && let Some(kept) = &self.request.kept
        {
            kept.unloaded();
        }
    }

    /// Unloads the content if all of it is on disk. The read-ahead credit stays taken, so no other record is read
    /// instead.
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

    /// Returns the batch, which shares its bytes with the entry.
    pub(super) fn batch(&self) -> Option<Batch> {
        match &self.held {
            Some(Held::Plain(batch)) => Some(batch.clone()),
            _ => None,
        }
    }

    /// Reads the content from disk again if it was unloaded.
    pub(super) async fn reload(&mut self) {
        if let Some(Held::OnDisk { .. }) = &self.held
            && let Some(kept) = &self.request.kept
            && let Some(batch) = kept.reload().await
        {
            self.held = Some(Held::Plain(batch));
        }
    }

    /// Records the delivery. The caller counts the items, because it knows about partial successes.
    pub(super) fn delivered(mut self) {
        self.held = None;
        if let Some(kept) = &self.request.kept {
            kept.settle(self.items);
        }
    }

    /// Drops the entry for `reason`, or returns it if the sender waits.
    pub(super) fn failed(mut self, reason: DropReason, nack: Nack) {
        self.fail(reason, nack);
    }

    /// Splits the entry into pieces of at most half its items. An indivisible entry is returned as it is.
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

    /// Splits a merged batch into its original requests. If these became one request, it is split in halves: profiles
    /// between profiles, other signals between items. The entry is returned as it is if it is a single request, or if
    /// the sender waits: the sender still has the data and can retry the requests one by one.
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

    /// Whether the waiting sender or the log keeps the data if it is not delivered.
    pub(super) fn is_kept(&self) -> bool {
        self.is_awaited() || self.is_on_disk()
    }

    /// Whether a log keeps the data until the outcome is known.
    pub(super) fn is_on_disk(&self) -> bool {
        self.request.kept.is_some()
    }

    /// Whether the sender waits for the outcome and so keeps the data.
    pub(super) fn is_awaited(&self) -> bool {
        self.request.waiting.is_some()
    }

    /// Creates an entry for a piece of this one.
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

/// Splits a batch into pieces within `limit` that share its memory permits. Pieces of profiles take more memory than
/// the original bytes, so they get permits of their own if the budget has room.
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
