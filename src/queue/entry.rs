//! The unit of responsibility of the queue: one request, or a part of one, with its outcome.

use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::sync::oneshot;
use tokio::time::{Duration, Instant};

pub(super) use super::ledger::Ledger;
use super::payload::{Content, Payload};
use super::room::Reservation;
use super::stored::RecordHandle;
use crate::pipeline::account::DropReason;
use crate::pipeline::batch::{Batch, Nack};
use crate::pipeline::health::Arrived;
use crate::pipeline::split;
use crate::pipeline::split::{Divisible, Fault, Parts};
use tributary_memory::Budget;

/// Entries that are sent as one batch.
pub(super) type Job = SmallVec<[Entry; 1]>;

/// A request that the queue accepted, shared by its entries. The last entry reports the outcome to a waiting sender.
pub(super) struct Request {
    /// Time at which the queue accepted the request, or read it from disk.
    since: Instant,
    /// Handle of the record that the request was read from.
    handle: Option<RecordHandle>,
    _reservation: Option<Reservation>,
    waiting: Option<oneshot::Sender<Result<(), Nack>>>,
    _arrived: Arc<Arrived>,
    failed: Mutex<Option<Nack>>,
}

/// A request or a part of a request, which must end as delivered, dropped or returned. An entry that is dropped without
/// an outcome counts as returned if the sender still waits, and otherwise as lost in the shutdown.
pub(super) struct Entry {
    payload: Option<Payload>,
    items: usize,
    request: Arc<Request>,
    ledger: Arc<Ledger>,
}

impl Request {
    /// Creates a request with its `reservation` in the queue. The sender of `waiting` gets the outcome and keeps the data until
    /// then.
    pub(super) fn new(
        reservation: Option<Reservation>,
        waiting: Option<oneshot::Sender<Result<(), Nack>>>,
        arrived: Arc<Arrived>,
    ) -> Arc<Self> {
        Arc::new(Request {
            since: Instant::now(),
            handle: None,
            _reservation: reservation,
            waiting,
            _arrived: arrived,
            failed: Mutex::new(None),
        })
    }

    /// Creates a request that was read from a log. The log keeps the record until the request has its outcome.
    pub(super) fn of_record(handle: RecordHandle, arrived: Arc<Arrived>) -> Arc<Self> {
        Arc::new(Request {
            since: Instant::now(),
            handle: Some(handle),
            _reservation: None,
            waiting: None,
            _arrived: arrived,
            failed: Mutex::default(),
        })
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let failed = self.failed.get_mut();
        if let Some(waiting) = self.waiting.take() {
            // The send fails if the sender has stopped waiting and thus still has the data.
            let _ = waiting.send(failed.take().map_or(Ok(()), Err));
        }
    }
}

impl Entry {
    /// Creates an entry of `request`.
    pub(super) fn new(payload: Payload, request: Arc<Request>, ledger: Arc<Ledger>) -> Self {
        Entry {
            items: payload.items(),
            payload: Some(payload),
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
        self.payload.as_ref().map_or(0, Payload::bytes)
    }

    /// Returns the content, to be decompressed by the caller.
    pub(super) fn content(&mut self) -> Option<Content> {
        self.payload.as_mut().map(Payload::content)
    }

    /// Returns the bytes that the entry keeps in memory while the sender [buffers](Self::release_memory) the batch.
    pub(super) fn retained_bytes(&self) -> usize {
        let payload = self.payload.as_ref().filter(|_| !self.unloads());
        payload.map_or(0, Payload::stored_bytes)
    }

    /// Whether the content can be unloaded from memory because all of it is on disk.
    fn unloads(&self) -> bool {
        let handle = self.request.handle.as_ref();
        handle.is_some_and(|handle| handle.items() == self.items)
    }

    /// Compresses the content in memory.
    pub(super) async fn pack(&mut self, budget: &Arc<Budget>) {
        if let Some(Payload::Plain(batch)) = &self.payload {
            // A clone is compressed, so that the entry still has its content if the future is dropped.
            self.payload = Some(Payload::pack(batch.clone(), budget).await);
        }
    }

    /// Releases the memory and the read-ahead credit of an entry that needs no content for now, if the content is on
    /// disk.
    pub(super) fn release_memory(&mut self) {
        if self.unload()
            && let Some(handle) = &self.request.handle
        {
            handle.unloaded();
        }
    }

    /// Unloads the content if all of it is on disk. The entry keeps its read-ahead credit, so no other record is read
    /// instead.
    pub(super) fn unload(&mut self) -> bool {
        if self.unloads()
            && let Some(payload) = &mut self.payload
        {
            payload.unload();
        }
        self.is_unloaded()
    }

    /// Whether the content is on disk only.
    pub(super) fn is_unloaded(&self) -> bool {
        matches!(self.payload, Some(Payload::OnDisk { .. }))
    }

    /// Returns the batch, which shares its bytes with the entry.
    pub(super) fn batch(&self) -> Option<Batch> {
        match &self.payload {
            Some(Payload::Plain(batch)) => Some(batch.clone()),
            _ => None,
        }
    }

    /// Reads the content from disk again if it was unloaded.
    pub(super) async fn reload(&mut self) {
        if let Some(Payload::OnDisk { .. }) = &self.payload
            && let Some(handle) = &self.request.handle
            && let Some(batch) = handle.reload().await
        {
            self.payload = Some(Payload::Plain(batch));
        }
    }

    /// Records the delivery. The caller counts the items, because some may have been rejected (partial success).
    pub(super) fn delivered(mut self) {
        self.payload = None;
        if let Some(handle) = &self.request.handle {
            handle.add_finished(self.items);
        }
    }

    /// Drops the entry for `reason`, or returns it if the sender waits.
    pub(super) fn failed(mut self, reason: DropReason, nack: Nack) {
        self.fail(reason, nack);
    }

    /// Bytes of memory that [`halve`](Self::halve) takes, including the content if it is compressed.
    fn bytes_to_halve(&mut self, fault: Fault) -> usize {
        let joined = self.payload.as_ref().is_some_and(Payload::is_joined);
        let (signal, items) = (self.payload.as_ref().map(Payload::signal), self.items);
        let Some(content) = self.content() else {
            return 0;
        };
        let expanded = content.bytes_to_expand();
        let halves = match (signal, content.requests()) {
            (Some(signal), Ok(requests)) => {
                split::bytes_to_halve(signal, items, &requests, joined, fault)
            }
            _ => 0,
        };
        expanded.saturating_add(halves)
    }

    /// Splits the entry into entries that can be sent separately. Returns the entry unchanged if it cannot be split.
    /// If the sender waits, only a too large entry is split, because the sender still has the data and can retry its
    /// requests separately.
    fn halve(mut self, fault: Fault) -> Job {
        if fault != Fault::Size && self.is_awaited() {
            return Job::from_iter([self]);
        }
        let Some(Ok(batch)) = self.payload.take().map(Payload::into_batch) else {
            return Job::from_iter([self]);
        };
        match batch.halve(fault) {
            Ok(parts) => parts.into_iter().map(|part| self.part(part)).collect(),
            Err(batch) => {
                self.payload = Some(Payload::Plain(batch));
                Job::from_iter([self])
            }
        }
    }

    /// Whether the waiting sender or the log keeps the data if it is not delivered.
    pub(super) fn is_kept(&self) -> bool {
        self.is_awaited() || self.is_on_disk()
    }

    /// Whether a log keeps the data until the outcome is known.
    pub(super) fn is_on_disk(&self) -> bool {
        self.request.handle.is_some()
    }

    /// Whether the sender waits for the outcome and thus keeps the data.
    pub(super) fn is_awaited(&self) -> bool {
        self.request.waiting.is_some()
    }

    fn part(&self, part: Batch) -> Entry {
        Entry::new(
            Payload::Plain(part),
            self.request.clone(),
            self.ledger.clone(),
        )
    }

    fn fail(&mut self, reason: DropReason, nack: Nack) {
        self.payload = None;
        if let Some(handle) = &self.request.handle {
            if reason == DropReason::Shutdown {
                return handle.return_to_log();
            }
            handle.add_finished(self.items);
        }
        if self.is_awaited() {
            self.ledger.metrics.returned(self.items);
        } else {
            self.ledger.dropped(self.items, reason);
        }
        let mut failed = self.request.failed.lock();
        failed.get_or_insert(nack);
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if self.payload.is_some() {
            let nack = Nack::unavailable("the exporter stopped before it delivered the request");
            self.fail(DropReason::Shutdown, nack);
        }
    }
}

impl Divisible for Job {
    fn bytes_to_halve(&mut self, fault: Fault) -> usize {
        match self.as_mut_slice() {
            [entry] => entry.bytes_to_halve(fault),
            _ => 0,
        }
    }

    fn halve(mut self, fault: Fault) -> Result<Parts<Self>, Self> {
        if self.len() == 1 {
            self = self
                .into_iter()
                .flat_map(|entry| entry.halve(fault))
                .collect();
        }
        match self.len() {
            ..2 => Err(self),
            _ => Ok(halves(self).into()),
        }
    }
}

/// Splits a job between its entries.
pub(super) fn halves(mut job: Job) -> [Job; 2] {
    let second = job.drain(job.len().div_ceil(2)..).collect();
    [job, second]
}
