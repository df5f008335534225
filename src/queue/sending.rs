//! The queue as a pipeline sees it: a consumer per signal, and a component that starts and stops it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::Sender;
use super::aside::Aside;
use super::batcher::{Batcher, Merging};
use super::config::{BatchSizer, HeldCompression, QueueConfig, RetryConfig, Sizer};
use super::delivery::{Delivery, Logs};
use super::entry::{Entry, Job, Ledger, Request, cut};
use super::held::Held;
use super::pace::Pace;
use super::room::{NoRoom, Place, Room};
use super::stored::{Place as StoredPlace, Stored, feed};
use crate::component::{BuildContext, BuildError, Outputs, Terminal};
use crate::pipeline::account::DropReason;
use crate::pipeline::batch::{Batch, Nack};
use crate::pipeline::episode::Episode;
use crate::pipeline::turns::BLOCKING_BYTES;
use crate::pipeline::{Component, Consumer, Settle, Undelivered};
use crate::queue::metrics::ExporterMetrics;
use futures_util::future::BoxFuture;
use tributary_memory::Budget;
use tributary_otlp::{Limit, Signal};
use tributary_profiles::decoded_bytes;
use tributary_storage::AppendError;

/// Retry delay for a refused sender: roughly the time in which the queue drains by a batch.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Bytes that a persisted request occupies besides its content until it is delivered, as counted by [`Pace`]:
/// connection buffers, tasks, and bookkeeping of the log. All of these should still be in the processor's cache when
/// they are used again. Without this allowance, throughput of 128 clients with 47 KB requests was 5% lower.
const BESIDE_RECORD: usize = 16 << 10;
/// Interval at which a sender that gathers is asked again to make room.
pub(super) const URGE: Duration = Duration::from_millis(100);

/// Queue settings of an exporter.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `sending_queue`. Without it, the upstream sender waits while its data is sent.
    pub queue: Option<QueueConfig>,
    /// `retry_on_failure`. Without it, the first failure is final.
    pub retry: Option<RetryConfig>,
    /// `timeout` of one attempt. Zero means no timeout.
    pub timeout: Duration,
}

/// Creates the terminal of an exporter that sends through `sender`. Each signal has a queue of its own.
///
/// # Errors
/// A queue on disk cannot be opened.
pub fn terminal(
    cx: &BuildContext,
    signals: &[Signal],
    settings: &Settings,
    sender: &Arc<dyn Sender>,
) -> Result<Terminal, BuildError> {
    let mut queues = Vec::with_capacity(signals.len());
    for signal in signals {
        queues.push(Arc::new(SendingQueue::new(
            cx,
            *signal,
            settings,
            sender.clone(),
        )?));
    }
    let mut inputs = Outputs::default();
    for queue in &queues {
        inputs.set(queue.delivery.signal, queue.clone());
    }
    let component = Box::new(Queues {
        queues,
        tasks: JoinSet::new(),
    });
    Ok(Terminal { inputs, component })
}

/// The queue of one exporter and signal.
struct SendingQueue {
    /// `None` means no queue: the upstream sender waits for the delivery.
    config: Option<QueueConfig>,
    budget: Arc<Budget>,
    room: Room,
    /// The log of a queue on disk. If it is set, `room` is unused.
    stored: Option<Arc<Stored>>,
    batcher: Batcher,
    delivery: Delivery,
}

/// The queues of one exporter, as a component.
struct Queues {
    queues: Vec<Arc<SendingQueue>>,
    tasks: JoinSet<()>,
}

impl SendingQueue {
    fn new(
        cx: &BuildContext,
        signal: Signal,
        settings: &Settings,
        sender: Arc<dyn Sender>,
    ) -> Result<Self, BuildError> {
        let metrics = ExporterMetrics::new(cx, signal);
        let capacity = settings.queue.as_ref().map_or(0, |queue| queue.queue_size);
        let batch = settings.queue.as_ref().and_then(merging);
        let packs = sender.gathers()
            && settings
                .queue
                .as_ref()
                .is_some_and(|queue| queue.compression == HeldCompression::Lz4);
        let room = Room::new(capacity, metrics.queue_size.clone());
        let ledger = Arc::new(Ledger::new(metrics));
        let headers = batch
            .as_ref()
            .map_or_else(Vec::new, |batch| batch.metadata_keys.clone());
        let stored = match &settings.queue {
            Some(queue) => Stored::open(cx, signal, queue, headers, &ledger)?,
            None => None,
        };
        let aside = stored.clone().filter(|_| !sender.gathers());
        let aside = aside.map(|stored| {
            let consumers = settings
                .queue
                .as_ref()
                .map_or(1, |queue| queue.num_consumers);
            Aside::new(stored, consumers, ledger.metrics.set_aside.clone())
        });
        let retry = settings.retry.as_ref();
        let retry = retry.map(|retry| retry.of_queue(stored.is_some()));
        Ok(SendingQueue {
            config: settings.queue.clone(),
            budget: cx.budget.clone(),
            room,
            stored,
            delivery: Delivery {
                most_bytes: batch
                    .as_ref()
                    .map_or(usize::MAX, |batch| batch.limit().bytes),
                id: cx.id.clone(),
                signal,
                sender,
                retry,
                timeout: (!settings.timeout.is_zero()).then_some(settings.timeout),
                ledger,
                stopping: CancellationToken::new(),
                pace: Pace::new(),
                aside,
                alone: Semaphore::new(1),
                outage: Episode::default(),
                full: Episode::default(),
                packs_in: packs.then(|| cx.budget.clone()),
                budget: cx.budget.clone(),
                logs: Logs::default(),
            },
            batcher: Batcher::new(batch),
        })
    }

    /// Sends the batch while the upstream sender waits and keeps its data.
    async fn send_now(&self, batch: Batch, arrival: Arrival) -> Result<(), Nack> {
        let (tell, outcome) = oneshot::channel();
        let request = Request::new(None, None, Some(tell));
        let entry = Entry::new(Held::Plain(batch), request, arrival.taken());
        self.delivery.deliver(Job::from_iter([entry]), None).await;
        outcome.await.unwrap_or_else(|_| Err(gone()))
    }

    async fn enqueue(
        &self,
        config: &QueueConfig,
        mut batch: Batch,
        arrival: Arrival,
    ) -> Result<(), Nack> {
        let patience = batch.patience.take();
        let merging = self.batcher.merging();
        // With merging there is no wait here: a buffered batch may need more requests to complete.
        let step = match merging {
            None => self.delivery.pace.step(batch.bytes()).await,
            Some(_) => None,
        };
        let partition = merging.map_or_else(Vec::new, |merging| merging.partition_of(&batch));
        let pieces = match merging {
            Some(merging) => merging.pieces(batch, &self.budget).await,
            None => vec![batch],
        };
        let mut held = Vec::with_capacity(pieces.len());
        for piece in pieces {
            held.push(if self.must_pack(config, &piece) {
                Held::pack(piece, &self.budget).await
            } else {
                Held::Plain(piece)
            });
        }
        let units = match config.sizer() {
            Sizer::Requests => 1,
            Sizer::Items => held.iter().map(Held::items).sum(),
            Sizer::Bytes => held.iter().map(Held::stored_bytes).sum(),
        };
        // An empty request has a cost too.
        let units = units.max(1);
        let place = match self.place(config, units).await {
            Ok(place) => {
                self.delivery.has_room();
                place
            }
            Err(NoRoom::Full) if config.drop_on_overflow => {
                arrival.dropped(&self.delivery);
                return Ok(());
            }
            Err(no_room) => return Err(self.refusal(config, units, &arrival, no_room)),
        };
        let (tell, outcome) = match config.wait_for_result || patience.is_some() {
            true => {
                let (tell, outcome) = oneshot::channel();
                (Some(tell), Some(outcome))
            }
            false => (None, None),
        };
        let request = Request::new(Some(place), step, tell);
        let ledger = arrival.taken();
        let entry = |held| Entry::new(held, request.clone(), ledger.clone());
        let entries: Job = held.into_iter().map(entry).collect();
        drop(request);
        if let Some(entries) = self.batcher.push(partition, entries) {
            return Err(self.give_back(entries));
        }
        if let Some(patience) = patience {
            patience.taken_in();
        }
        match outcome {
            Some(outcome) => outcome.await.unwrap_or_else(|_| Err(gone())),
            None => Ok(()),
        }
    }

    /// Appends a batch to the log.
    async fn store(
        &self,
        stored: &Arc<Stored>,
        config: &QueueConfig,
        mut batch: Batch,
        arrival: Arrival,
    ) -> Result<(), Nack> {
        let mut record = stored.record(&mut batch);
        let units = stored.units(record.items, record.len());
        let sender = &self.delivery.sender;
        if sender.gathers() && stored.is_scarce(units) {
            sender.settle(Settle::Full);
        }
        let place = match self.stored_place(stored, units).await {
            Ok(place) => {
                self.delivery.has_room();
                place
            }
            Err(NoRoom::Full) if config.drop_on_overflow => {
                arrival.dropped(&self.delivery);
                return Ok(());
            }
            Err(no_room) => return Err(self.refusal(config, units, &arrival, no_room)),
        };
        let (pace, bytes) = (&self.delivery.pace, record.len() + BESIDE_RECORD);
        // A record that is only on disk does not count as in flight.
        record.permit = match stored.log().keeps_up() {
            true => pace.step(bytes).await,
            false => pace.try_step(bytes),
        };
        // Spawned, so that the append completes and is accounted for even if the sender stops waiting.
        let log = stored.clone();
        let appended = tokio::spawn(async move {
            let outcome = log.append(record).await;
            // Dropped after the append: until then the batch and its place count in the memory budget and in the queue.
            drop((batch, place));
            if outcome.is_ok() {
                arrival.taken();
            }
            outcome
        });
        match appended.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error @ AppendError::TooLarge(_))) => Err(Nack::invalid(error.to_string())),
            Ok(Err(error @ AppendError::Disk { .. })) => Err(Nack::exhausted(
                format!("sending queue: {error}"),
                RETRY_AFTER,
            )),
            Ok(Err(AppendError::Closed)) | Err(_) => Err(gone()),
        }
    }

    /// Waits for room in the log. A sender that gathers is asked repeatedly to make room.
    async fn stored_place(
        &self,
        stored: &Arc<Stored>,
        units: usize,
    ) -> Result<StoredPlace, NoRoom> {
        let sender = &self.delivery.sender;
        let placing = stored.place(units);
        if !sender.gathers() {
            return placing.await;
        }
        tokio::pin!(placing);
        loop {
            match timeout(URGE, &mut placing).await {
                Ok(place) => return place,
                Err(_) => sender.settle(Settle::Full),
            }
        }
    }

    /// Whether to compress the batch. Compression costs time, so only batches that have to wait are compressed. It is
    /// pointless if the queue is nearly full, since LZ4 rarely compresses to a sixteenth.
    fn must_pack(&self, config: &QueueConfig, batch: &Batch) -> bool {
        if config.compression == HeldCompression::None {
            return false;
        }
        let in_bytes = config.sizer() == Sizer::Bytes;
        let hopeless = in_bytes && self.room.free() < batch.bytes() / 16;
        let too_large = in_bytes && batch.bytes() > self.room.capacity();
        too_large || (!hopeless && self.batcher.is_backlogged(config.num_consumers))
    }

    async fn place(&self, config: &QueueConfig, units: usize) -> Result<Place, NoRoom> {
        // A queue that drops on overflow must not block others, so it must not use scarce memory either.
        let holds_some = self.room.free() < self.room.capacity();
        if config.drop_on_overflow && holds_some && self.budget.is_scarce() {
            return Err(NoRoom::Full);
        }
        let place = self.room.try_take(units);
        let sender = &self.delivery.sender;
        if !matches!(place, Err(NoRoom::Full)) {
            // Early enough to leave room for new requests while the sender finishes its batches.
            if sender.gathers() && self.room.free() < self.room.capacity() / 4 {
                sender.settle(Settle::Full);
            }
            return place;
        }
        sender.settle(Settle::Full);
        if !config.block_on_overflow {
            return place;
        }
        let taking = self.room.take(units);
        if !sender.gathers() {
            return taking.await;
        }
        tokio::pin!(taking);
        loop {
            match timeout(URGE, &mut taking).await {
                Ok(place) => return place,
                // Batches that had not reached the sender at the previous call have arrived by now.
                Err(_) => sender.settle(Settle::Full),
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
                self.delivery
                    .is_full(arrival.items.unwrap_or_default(), false);
                Nack::exhausted("sending queue is full", RETRY_AFTER)
            }
            NoRoom::Closed => gone(),
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

    /// Returns entries to the sender, because the queue was closed meanwhile.
    fn give_back(&self, entries: Job) -> Nack {
        for entry in entries {
            self.delivery.ledger.metrics.refused(entry.items());
            entry.delivered();
        }
        gone()
    }

    async fn work(self: Arc<Self>) {
        // Batches that a sender took over are tracked here. If this task is dropped, they count themselves as lost.
        let mut held = JoinSet::new();
        while let Some(mut taken) = self.batcher.next().await {
            let job = taken.take();
            let metrics = &self.delivery.ledger.metrics;
            let items: usize = job.iter().map(Entry::items).sum();
            let bytes: usize = job.iter().map(Entry::bytes).sum();
            metrics.batch_send_size.record(items as f64);
            metrics.batch_send_bytes.record(bytes as f64);
            for entry in &job {
                metrics.queue_wait_seconds.record(entry.age().as_secs_f64());
            }
            if !self.delivery.sender.gathers() && self.delivery.aside.is_none() {
                self.delivery.deliver(job, None).await;
                continue;
            }
            let (turn, over) = oneshot::channel();
            let queue = self.clone();
            held.spawn(async move {
                for job in queue.delivery.deliver(job, Some(turn)).await {
                    queue.batcher.push_job(job);
                }
            });
            // Always an error: the channel closes without a message.
            let _ = over.await;
            while held.try_join_next().is_some() {}
        }
        self.delivery.sender.settle(Settle::Ending);
        while held.join_next().await.is_some() {}
    }

    fn close(&self) {
        self.delivery.ledger.ending();
        self.room.close();
        self.batcher.close();
        self.delivery.stopping.cancel();
        if let Some(stored) = &self.stored {
            // Queued data is on disk and need not be sent now.
            stored.stop();
            self.batcher.clear();
        }
        // In these cases all remaining batches are in flight, and all consumers may be waiting for the sender. So the
        // sender must not wait for more.
        if self.config.is_none() || self.stored.is_some() {
            self.delivery.sender.settle(Settle::Ending);
        }
    }
}

impl Consumer for SendingQueue {
    fn consume(&self, mut batch: Batch) -> BoxFuture<'_, Result<(), Nack>> {
        Box::pin(async move {
            let arrival = Arrival::new(&self.delivery.ledger, batch.items());
            let stopping = self.delivery.stopping.is_cancelled();
            batch.wire();
            match &self.config {
                // Also correct if a replacement exporter already reads the log.
                Some(config) if let Some(stored) = &self.stored => {
                    self.store(stored, config, batch, arrival).await
                }
                _ if stopping => Err(gone()),
                Some(config) => self.enqueue(config, batch, arrival).await,
                None => self.send_now(batch, arrival).await,
            }
        })
    }

    fn stores(&self) -> bool {
        self.stored.is_some()
    }

    fn settle(&self, why: Settle) {
        // A queue on disk has already acknowledged. The end of an upstream stage does not end this exporter.
        if self.stored.is_none() && why == Settle::Full {
            self.delivery.sender.settle(why);
        }
    }
}

impl Component for Queues {
    fn start(&mut self) {
        for queue in &self.queues {
            let Some(config) = &queue.config else {
                continue;
            };
            // Set only at start, so that an exporter that is built but never started does not change the metrics of a
            // running one.
            let metrics = &queue.delivery.ledger.metrics;
            metrics.queue_capacity.set(queue.room.capacity() as f64);
            if let Some(stored) = &queue.stored {
                stored.start();
                let queue = queue.clone();
                let stored = stored.clone();
                self.tasks.spawn(async move {
                    feed(&stored, &queue.batcher, &queue.delivery).await;
                });
            }
            for _ in 0..config.num_consumers {
                self.tasks.spawn(queue.clone().work());
            }
            if queue.batcher.merging().is_some() {
                let queue = queue.clone();
                self.tasks.spawn(async move {
                    tokio::select! {
                        () = queue.batcher.run_timers() => {}
                        () = queue.delivery.stopping.cancelled() => {}
                    }
                });
            }
        }
    }

    fn idle(&self) -> bool {
        self.queues.iter().all(|queue| match &queue.stored {
            Some(stored) => stored.idle(),
            None => queue.room.free() >= queue.room.capacity(),
        })
    }

    fn shutdown(mut self: Box<Self>, deadline: Instant) -> BoxFuture<'static, Undelivered> {
        Box::pin(async move {
            for queue in &self.queues {
                queue.close();
            }
            let finished = async { while self.tasks.join_next().await.is_some() {} };
            if timeout_at(deadline, finished).await.is_err() {
                // Dropping the tasks drops their entries, which count themselves as lost.
                self.tasks.shutdown().await;
            }
            let mut total = Undelivered::default();
            for queue in &self.queues {
                queue.batcher.clear();
                if let Some(stored) = &queue.stored {
                    stored.close().await;
                }
                queue.delivery.log_loss();
                total += queue.delivery.ledger.undelivered();
            }
            total
        })
    }
}

/// Incoming items, counted as refused on drop unless [`taken`](Self::taken) was called.
struct Arrival {
    ledger: Arc<Ledger>,
    items: Option<usize>,
}

impl Arrival {
    fn new(ledger: &Arc<Ledger>, items: usize) -> Self {
        ledger.metrics.received(items);
        Arrival {
            ledger: ledger.clone(),
            items: Some(items),
        }
    }

    /// Counts the items as dropped, because the queue is full and configured to drop.
    fn dropped(mut self, delivery: &Delivery) {
        if let Some(items) = self.items.take() {
            self.ledger.dropped(items, DropReason::QueueFull);
            delivery.is_full(items, true);
        }
    }

    fn taken(mut self) -> Arc<Ledger> {
        self.items = None;
        self.ledger.clone()
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        if let Some(items) = self.items {
            self.ledger.metrics.refused(items);
        }
    }
}

impl Merging {
    /// Splits a batch that is larger than one may be. Profiles stay whole if `budget` has no room for their structs.
    pub(super) async fn pieces(&self, mut batch: Batch, budget: &Arc<Budget>) -> Vec<Batch> {
        if !self.is_too_large(&batch) {
            return vec![batch];
        }
        let mut structs = budget.for_output();
        if batch.signal() == Signal::Profiles {
            let parts = batch.wire().parts().iter().map(|part| decoded_bytes(part));
            if structs.grow(parts.fold(0, usize::saturating_add)).is_err() {
                return vec![batch];
            }
        }
        let limit = self.limit();
        // Splitting profiles works on every byte.
        if batch.signal() == Signal::Profiles && batch.bytes() > BLOCKING_BYTES {
            let whole = batch.clone();
            let cut = tokio::task::spawn_blocking(move || cut(batch, limit)).await;
            // Only if the runtime shuts down.
            return cut.unwrap_or_else(|_| vec![whole]);
        }
        cut(batch, limit)
    }

    fn is_too_large(&self, batch: &Batch) -> bool {
        let size = match self.sizer {
            BatchSizer::Items => batch.items(),
            BatchSizer::Bytes => batch.bytes(),
        };
        size > self.max_size
    }

    fn limit(&self) -> Limit {
        let mut limit = Limit {
            items: usize::MAX,
            bytes: usize::MAX,
        };
        match self.sizer {
            BatchSizer::Items => limit.items = self.max_size,
            BatchSizer::Bytes => limit.bytes = self.max_size,
        }
        limit
    }
}

fn merging(queue: &QueueConfig) -> Option<Merging> {
    let batch = queue.batch.as_ref()?;
    let keys = batch.partition.metadata_keys.iter();
    Some(Merging {
        flush_timeout: *batch.flush_timeout,
        min_size: batch.min_size,
        max_size: match batch.max_size {
            0 => usize::MAX,
            size => size,
        },
        sizer: queue.batch_sizer(batch),
        metadata_keys: keys.map(|key| key.to_ascii_lowercase()).collect(),
    })
}

fn gone() -> Nack {
    Nack::unavailable("the exporter is shutting down")
}
