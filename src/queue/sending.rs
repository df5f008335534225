//! The queue as a pipeline sees it: a consumer of one signal.

mod store;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::Sender;
use super::arrival::Arrival;
use super::batcher::Batcher;
use super::config::{HeldCompression, QueueConfig, Settings, Sizer};
use super::delivery::{Delivery, Logs};
use super::entry::{Entry, Job, Request};
use super::ledger::Ledger;
use super::payload::Payload;
use super::room::{FLUSH_REQUEST_INTERVAL, NoRoom, Reservation, Room};
use super::set_aside::SetAside;
use super::stored::Stored;
use crate::component::{BuildContext, BuildError};
use crate::pipeline::batch::{Batch, Nack};
use crate::pipeline::episode::Episode;
use crate::pipeline::{Consumer, FlushReason};
use crate::queue::metrics::ExporterMetrics;
use futures_util::future::BoxFuture;
use tributary_memory::Budget;
use tributary_otlp::Signal;

/// Retry delay for a refused sender: roughly the time in which a batch leaves the queue.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The queue of one exporter and signal.
pub(super) struct SendingQueue {
    /// `None` means no queue: the upstream sender waits for the delivery.
    pub(super) config: Option<QueueConfig>,
    budget: Arc<Budget>,
    pub(super) room: Room,
    /// The log of a queue on disk. If it is set, `room` is unused.
    pub(super) stored: Option<Arc<Stored>>,
    pub(super) batcher: Batcher,
    pub(super) delivery: Delivery,
}

impl SendingQueue {
    /// Creates the queue of one signal.
    ///
    /// # Errors
    /// A queue on disk cannot be opened.
    pub(super) fn new(
        cx: &BuildContext,
        signal: Signal,
        settings: &Settings,
        sender: Arc<dyn Sender>,
    ) -> Result<Self, BuildError> {
        let metrics = ExporterMetrics::new(cx, signal);
        let capacity = settings.queue.as_ref().map_or(0, |queue| queue.queue_size);
        let batcher = Batcher::new(settings.queue.as_ref(), sender.context_headers());
        let packs = sender.buffers()
            && settings
                .queue
                .as_ref()
                .is_some_and(|queue| queue.compression == HeldCompression::Lz4);
        let room = Room::new(capacity, metrics.queue_size.clone());
        let ledger = Arc::new(Ledger::new(metrics));
        let stored = match &settings.queue {
            Some(queue) => {
                let headers = batcher.keys().names().to_vec();
                Stored::open(cx, signal, queue, headers, &ledger)?
            }
            None => None,
        };
        let set_aside = stored.clone().filter(|_| !sender.buffers());
        let set_aside = set_aside.map(|stored| {
            let consumers = settings
                .queue
                .as_ref()
                .map_or(1, |queue| queue.num_consumers);
            SetAside::new(stored, consumers, ledger.metrics.set_aside.clone())
        });
        let retry = settings.retry.as_ref();
        let retry = retry.map(|retry| retry.of_queue(stored.is_some()));
        Ok(SendingQueue {
            config: settings.queue.clone(),
            budget: cx.budget.clone(),
            room,
            stored,
            delivery: Delivery {
                max_bytes: batcher.max().bytes,
                id: cx.id.clone(),
                signal,
                sender,
                retry,
                timeout: (!settings.timeout.is_zero()).then_some(settings.timeout),
                ledger,
                stopping: CancellationToken::new(),
                set_aside,
                without_consumer: Semaphore::new(1),
                outage: Episode::default(),
                full: Episode::default(),
                compression_budget: packs.then(|| cx.budget.clone()),
                budget: cx.budget.clone(),
                logs: Logs::default(),
            },
            batcher,
        })
    }

    /// Sends the batch while the upstream sender waits and keeps its data.
    async fn send_now(&self, batch: Batch, arrival: Arrival) -> Result<(), Nack> {
        let (tell, outcome) = oneshot::channel();
        let ledger = arrival.accepted();
        let context = self.delivery.context_of(&batch);
        let request = Request::new(None, Some(tell), ledger.metrics.arrived(), context);
        let entry = Entry::new(Payload::Plain(batch), request, ledger);
        self.delivery.deliver(Job::from_iter([entry]), None).await;
        outcome.await.unwrap_or_else(|_| Err(closed()))
    }

    async fn enqueue(
        &self,
        config: &QueueConfig,
        mut batch: Batch,
        arrival: Arrival,
    ) -> Result<(), Nack> {
        let persisted_upstream = batch.persisted_upstream.take();
        let context = self.delivery.context_of(&batch);
        let (partition, parts) = self.batcher.split(batch, &self.budget).await;
        let mut payloads = Vec::with_capacity(parts.len());
        for part in parts {
            payloads.push(if self.must_pack(config, &part) {
                Payload::pack(part, &self.budget).await
            } else {
                Payload::Plain(part)
            });
        }
        let units = match config.sizer() {
            Sizer::Requests => 1,
            Sizer::Items => payloads.iter().map(Payload::items).sum(),
            Sizer::Bytes => payloads.iter().map(Payload::stored_bytes).sum(),
        };
        // An empty request also takes memory.
        let units = units.max(1);
        let reservation = match self.reserve(config, units).await {
            Ok(reservation) => {
                self.delivery.log_room();
                reservation
            }
            Err(NoRoom::Full) if config.drop_on_overflow => {
                arrival.dropped(&self.delivery);
                return Ok(());
            }
            Err(no_room) => return Err(self.refusal(config, units, &arrival, no_room)),
        };
        let (tell, outcome) = match config.wait_for_result || persisted_upstream.is_some() {
            true => {
                let (tell, outcome) = oneshot::channel();
                (Some(tell), Some(outcome))
            }
            false => (None, None),
        };
        let ledger = arrival.accepted();
        let request = Request::new(Some(reservation), tell, ledger.metrics.arrived(), context);
        let entry = |payload| Entry::new(payload, request.clone(), ledger.clone());
        let entries: Job = payloads.into_iter().map(entry).collect();
        drop(request);
        if let Some(entries) = self.batcher.push(&partition, entries) {
            return Err(self.refuse_entries(entries));
        }
        if let Some(persisted_upstream) = persisted_upstream {
            persisted_upstream.mark_buffered();
        }
        match outcome {
            Some(outcome) => outcome.await.unwrap_or_else(|_| Err(closed())),
            None => Ok(()),
        }
    }

    /// Whether to compress the batch. Compression takes time, so only batches that have to wait are compressed. If even
    /// a sixteenth of the batch would not fit, the batch is not compressed, since LZ4 rarely compresses better.
    fn must_pack(&self, config: &QueueConfig, batch: &Batch) -> bool {
        if config.compression == HeldCompression::None {
            return false;
        }
        let in_bytes = config.sizer() == Sizer::Bytes;
        let is_nearly_full = in_bytes && self.room.free() < batch.bytes() / 16;
        let is_too_large = in_bytes && batch.bytes() > self.room.capacity();
        is_too_large || (!is_nearly_full && self.batcher.is_backlogged(config.num_consumers))
    }

    async fn reserve(&self, config: &QueueConfig, units: usize) -> Result<Reservation, NoRoom> {
        // A queue that drops on overflow must not block other exporters, so it must not use scarce memory either.
        let holds_some = self.room.free() < self.room.capacity();
        if config.drop_on_overflow && holds_some && self.budget.is_scarce() {
            return Err(NoRoom::Full);
        }
        let reservation = self.room.try_take(units);
        let sender = &self.delivery.sender;
        if !matches!(reservation, Err(NoRoom::Full)) {
            // Flush early enough to leave room for new requests while the sender finishes its batches.
            if sender.buffers() && self.room.free() < self.room.capacity() / 4 {
                sender.request_flush(FlushReason::Full);
            }
            return reservation;
        }
        sender.request_flush(FlushReason::Full);
        if !config.block_on_overflow {
            return reservation;
        }
        let taking = self.room.take(units);
        if !sender.buffers() {
            return taking.await;
        }
        tokio::pin!(taking);
        loop {
            match timeout(FLUSH_REQUEST_INTERVAL, &mut taking).await {
                Ok(reservation) => return reservation,
                // Repeat the request for batches that reached the sender after the previous request.
                Err(_) => sender.request_flush(FlushReason::Full),
            }
        }
    }

    fn refusal(
        &self,
        config: &QueueConfig,
        units: usize,
        arrival: &Arrival,
        no_room: NoRoom,
    ) -> Nack {
        match no_room {
            NoRoom::Full => {
                self.delivery.log_full(arrival.items(), false);
                Nack::exhausted("sending queue is full", RETRY_AFTER)
            }
            NoRoom::Closed => closed(),
            NoRoom::TooLarge => Nack::invalid(format!(
                "the request ({units} {unit}) is larger than the whole sending queue of exporter {id} \
                 (queue_size: {capacity}); send smaller requests or raise sending_queue.queue_size",
                unit = match config.sizer() {
                    Sizer::Requests => "requests",
                    Sizer::Items => "items",
                    Sizer::Bytes => "bytes",
                },
                id = self.delivery.id,
                capacity = self.room.capacity(),
            )),
        }
    }

    /// Refuses the entries, because the queue was closed in the meantime.
    fn refuse_entries(&self, entries: Job) -> Nack {
        for entry in entries {
            self.delivery.ledger.metrics.refused(entry.items());
            entry.delivered();
        }
        closed()
    }

    /// Delivers jobs until the queue is closed and empty. Each consumer of the queue runs this once.
    pub(super) async fn work(self: Arc<Self>) {
        // Batches that a sender buffers. If this task is dropped, the batches count as lost.
        let mut deliveries = JoinSet::new();
        while let Some(mut active) = self.batcher.next().await {
            let job = active.take_job();
            let metrics = &self.delivery.ledger.metrics;
            let items: usize = job.iter().map(Entry::items).sum();
            let bytes: usize = job.iter().map(Entry::bytes).sum();
            metrics.batch_send_size.record(items as f64);
            metrics.batch_send_bytes.record(bytes as f64);
            for entry in &job {
                metrics.queue_wait_seconds.record(entry.age().as_secs_f64());
            }
            if !self.delivery.sender.buffers() && self.delivery.set_aside.is_none() {
                self.delivery.deliver(job, None).await;
                continue;
            }
            let (consumer, released) = oneshot::channel();
            let queue = self.clone();
            deliveries.spawn(async move {
                for job in queue.delivery.deliver(job, Some(consumer)).await {
                    queue.batcher.push_job(job);
                }
            });
            // Always an error: the channel closes without a message.
            let _ = released.await;
            while deliveries.try_join_next().is_some() {}
        }
        self.delivery.sender.request_flush(FlushReason::Ending);
        while deliveries.join_next().await.is_some() {}
    }

    /// Refuses new requests and ends waits.
    pub(super) fn close(&self) {
        self.delivery.ledger.ending();
        self.room.close();
        self.batcher.close();
        self.delivery.stopping.cancel();
        if let Some(stored) = &self.stored {
            // Queued data is on disk and need not be sent now.
            stored.stop();
            self.batcher.clear();
        }
        // In these cases all remaining batches are in flight and all consumers may be waiting for the sender, so the
        // sender must not wait for more batches.
        if self.config.is_none() || self.stored.is_some() {
            self.delivery.sender.request_flush(FlushReason::Ending);
        }
    }
}

impl Consumer for SendingQueue {
    fn consume(&self, batch: Batch) -> BoxFuture<'_, Result<(), Nack>> {
        Box::pin(async move {
            let arrival = Arrival::new(&self.delivery.ledger, batch.items());
            let stopping = self.delivery.stopping.is_cancelled();
            match &self.config {
                // The log accepts data even if a replacement exporter already reads it.
                Some(config) if let Some(stored) = &self.stored => {
                    self.store(stored, config, batch, arrival).await
                }
                _ if stopping => Err(closed()),
                Some(config) => self.enqueue(config, batch, arrival).await,
                None => self.send_now(batch, arrival).await,
            }
        })
    }

    fn behind(&self) -> Vec<Arc<dyn Consumer>> {
        Vec::new()
    }

    fn stores(&self) -> bool {
        self.stored.is_some()
    }

    fn request_flush(&self, reason: FlushReason) {
        // A queue on disk has already acknowledged. The end of an upstream stage does not end this exporter.
        if self.stored.is_none() && reason == FlushReason::Full {
            self.delivery.sender.request_flush(reason);
        }
    }
}

fn closed() -> Nack {
    Nack::unavailable("the exporter is shutting down")
}
