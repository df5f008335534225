//! Tests of the queue's guarantees with a sender that buffers batches and reports their outcomes later.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tokio::sync::oneshot;

use super::*;

/// A sender that buffers every batch, and reports outcomes at the request of the test.
#[derive(Default)]
pub(super) struct Gatherer {
    pub(super) held: Mutex<Vec<Held>>,
    asked: Mutex<Vec<FlushReason>>,
    attempts: Mutex<Vec<Arc<Identity>>>,
    /// Whether the sender ignores requests to finish its batches.
    stubborn: bool,
    /// Sum over all attempts of the bytes that the queue keeps in memory, as reported to the sender.
    pub(super) waiting: AtomicUsize,
}

pub(super) struct Held {
    names: Vec<String>,
    tell: oneshot::Sender<Result<Outcome, SendError>>,
}

impl Gatherer {
    pub(super) fn stubborn() -> Self {
        Gatherer {
            stubborn: true,
            ..Gatherer::default()
        }
    }

    pub(super) fn settle_all(&self, outcome: &Result<Outcome, SendError>) -> usize {
        let held = std::mem::take(&mut *self.held.lock().unwrap());
        let settled = held
            .into_iter()
            .map(|held| held.tell.send(outcome.clone()).unwrap());
        settled.count()
    }

    /// Reports the outcome of the batch with the span `name`.
    fn settle_one(&self, name: &str, outcome: Result<Outcome, SendError>) {
        let mut all = self.held.lock().unwrap();
        let has = |held: &Held| held.names.iter().any(|other| other == name);
        let at = all.iter().position(has).unwrap();
        all.remove(at).tell.send(outcome).unwrap();
    }
}

impl Sender for Gatherer {
    fn send<'a>(&'a self, _: &'a Encoded) -> BoxFuture<'a, Result<Outcome, SendError>> {
        Box::pin(async { panic!("a buffering sender must not be called through send") })
    }

    fn buffers(&self) -> bool {
        true
    }

    fn send_or_buffer<'a>(
        &'a self,
        batch: &'a Encoded,
    ) -> BoxFuture<'a, Result<SendOutcome, SendError>> {
        Box::pin(async {
            let (tell, outcome) = oneshot::channel();
            let names = names(&batch.chunks.concat());
            self.waiting.fetch_add(batch.retained_bytes, Relaxed);
            self.held.lock().unwrap().push(Held { names, tell });
            self.attempts.lock().unwrap().push(batch.identity.clone());
            Ok(SendOutcome::Buffered(outcome))
        })
    }

    fn request_flush(&self, reason: FlushReason) {
        self.asked.lock().unwrap().push(reason);
        if !self.stubborn {
            self.settle_all(&Ok(Outcome::default()));
        }
    }
}

/// An exporter whose sender buffers batches.
struct Gathering {
    gatherer: Arc<Gatherer>,
    terminal: Terminal,
    metrics: PrometheusHandle,
    budget: Arc<Budget>,
}

impl Gathering {
    fn new(queue: QueueConfig) -> Self {
        Self::with(Gatherer::default(), settings(queue))
    }

    fn with(gatherer: Gatherer, settings: Settings) -> Self {
        let gatherer = Arc::new(gatherer);
        let cx = crate::component::Host::for_tests().context(&"test".parse().unwrap());
        let sender: Arc<dyn Sender> = gatherer.clone();
        let recorder = PrometheusBuilder::new().build_recorder();
        let metrics = recorder.handle();
        let mut terminal = ::metrics::with_local_recorder(&recorder, || {
            terminal(&cx, &[Signal::Traces], &settings, &sender).unwrap()
        });
        terminal.component.start();
        Gathering {
            gatherer,
            terminal,
            metrics,
            budget: cx.budget,
        }
    }

    fn consumer(&self) -> Arc<dyn Consumer> {
        self.terminal.inputs.get(Signal::Traces).unwrap().clone()
    }

    async fn consume(&self, batch: Batch) -> Result<(), Nack> {
        self.consumer().consume(batch).await
    }

    fn account(&self) -> BTreeMap<String, u64> {
        account_in(&self.metrics)
    }

    fn idle(&self) -> bool {
        self.terminal.component.idle()
    }
}

pub(super) fn failed() -> Result<Outcome, SendError> {
    Err(SendError::transient(Code::Unavailable, "lost"))
}

pub(super) fn done() -> Result<Outcome, SendError> {
    Ok(Outcome::default())
}

#[tokio::test(start_paused = true)]
async fn buffered_batch_stays_queued_without_consumer() {
    let bench = Gathering::new(QueueConfig {
        num_consumers: 1,
        ..QueueConfig::default()
    });
    let started = Instant::now();
    for number in 0..100 {
        let large = "x".repeat(500_000);
        bench
            .consume(request(&format!("{number}{large}"), 1))
            .await
            .unwrap();
        tokio::task::yield_now().await;
    }
    sleep(MS(1)).await;
    assert!(started.elapsed() < MS(50), "{:?}", started.elapsed());
    assert!(!bench.idle());
    assert_eq!(bench.gatherer.settle_all(&done()), 100);
    sleep(MS(1)).await;
    assert!(bench.idle());
    let expected = [("received", 100), ("delivered", 100)];
    assert_eq!(bench.account(), account(&expected));
}

#[tokio::test(start_paused = true)]
async fn failed_buffered_batch_is_retried_with_full_time() {
    let bench = Gathering::new(QueueConfig::default());
    bench.consume(request("a", 1)).await.unwrap();
    // Longer than the limit for retries.
    sleep(SECS(600)).await;
    assert_eq!(bench.gatherer.settle_all(&failed()), 1);
    sleep(SECS(8)).await;
    assert!(!bench.idle());
    assert_eq!(bench.gatherer.settle_all(&done()), 1);
    sleep(MS(1)).await;
    assert!(bench.idle());
    let attempts = bench.gatherer.attempts.lock().unwrap();
    assert!(Arc::ptr_eq(&attempts[0], &attempts[1]));
    assert_eq!(
        bench.account(),
        account(&[("received", 1), ("delivered", 1)])
    );
}

#[tokio::test(start_paused = true)]
async fn batch_dropped_by_sender_is_retried() {
    let bench = Gathering::new(QueueConfig::default());
    bench.consume(request("a", 1)).await.unwrap();
    sleep(MS(1)).await;
    bench.gatherer.held.lock().unwrap().clear();
    sleep(SECS(8)).await;
    assert_eq!(bench.gatherer.settle_all(&done()), 1);
    sleep(MS(1)).await;
    assert_eq!(
        bench.account(),
        account(&[("received", 1), ("delivered", 1)])
    );
}

#[tokio::test(start_paused = true)]
async fn failed_buffered_batch_without_retries_is_dropped_once() {
    let mut settings = settings(QueueConfig::default());
    settings.retry = None;
    let bench = Gathering::with(Gatherer::default(), settings);
    bench.consume(request("a", 3)).await.unwrap();
    sleep(MS(1)).await;
    assert_eq!(bench.gatherer.settle_all(&failed()), 1);
    sleep(SECS(60)).await;
    assert!(bench.idle());
    let expected = [("received", 3), ("retries_exhausted", 3)];
    assert_eq!(bench.account(), account(&expected));
}

#[tokio::test(start_paused = true)]
async fn buffering_sender_is_flushed_when_full_and_at_shutdown() {
    for block_on_overflow in [false, true] {
        let bench = Gathering::new(QueueConfig {
            queue_size: 2,
            block_on_overflow,
            ..QueueConfig::default()
        });
        for _ in 0..2 {
            bench.consume(request("a", 1)).await.unwrap();
        }
        let third = bench.consume(request("b", 1)).await;
        assert_eq!(third.is_ok(), block_on_overflow);
        assert!(
            bench
                .gatherer
                .asked
                .lock()
                .unwrap()
                .contains(&FlushReason::Full)
        );
        let component = bench.terminal.component;
        let left = component.shutdown(Instant::now() + SECS(10)).await;
        assert_eq!(left, Undelivered::default());
        assert!(
            bench
                .gatherer
                .asked
                .lock()
                .unwrap()
                .contains(&FlushReason::Ending)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn buffering_sender_is_flushed_before_queue_refuses() {
    let bench = Gathering::new(QueueConfig {
        queue_size: 8,
        ..QueueConfig::default()
    });
    for _ in 0..100 {
        bench.consume(request("a", 1)).await.unwrap();
        sleep(MS(1)).await;
    }
    let asked = bench.gatherer.asked.lock().unwrap().len();
    assert!((10..20).contains(&asked), "{asked}");
}

#[tokio::test(start_paused = true)]
async fn dropping_queue_keeps_buffered_batches() {
    let queue = QueueConfig {
        queue_size: 2,
        drop_on_overflow: true,
        ..QueueConfig::default()
    };
    let bench = Gathering::with(Gatherer::stubborn(), settings(queue));
    for _ in 0..5 {
        bench.consume(request("a", 2)).await.unwrap();
        sleep(MS(1)).await;
    }
    assert_eq!(bench.gatherer.settle_all(&done()), 2);
    sleep(MS(1)).await;
    assert!(bench.idle());
    let expected = [("received", 10), ("delivered", 4), ("queue_full", 6)];
    assert_eq!(bench.account(), account(&expected));
}

#[tokio::test(start_paused = true)]
async fn waiting_sender_gets_outcome_of_buffered_batch() {
    let queue = QueueConfig {
        wait_for_result: true,
        ..QueueConfig::default()
    };
    let bench = Gathering::new(queue);
    let send = |name: &'static str| {
        let consumer = bench.consumer();
        tokio::spawn(async move { consumer.consume(request(name, 2)).await })
    };
    let (good, bad) = (send("good"), send("bad"));
    sleep(SECS(60)).await;
    assert!(!good.is_finished() && !bad.is_finished());
    bench.gatherer.settle_one("good-0", done());
    let refusal = SendError::permanent(Code::InvalidArgument, Fault::Elsewhere, "bad");
    bench.gatherer.settle_one("bad-0", Err(refusal));
    good.await.unwrap().unwrap();
    assert!(!bad.await.unwrap().unwrap_err().retryable);
    sleep(MS(1)).await;
    assert!(bench.idle());
    let expected = [("received", 4), ("delivered", 2), ("refused", 2)];
    assert_eq!(bench.account(), account(&expected));
}

#[tokio::test(start_paused = true)]
async fn shutdown_refuses_senders_of_buffered_batches() {
    let queue = QueueConfig {
        wait_for_result: true,
        ..QueueConfig::default()
    };
    let bench = Gathering::with(Gatherer::stubborn(), settings(queue));
    let consumer = bench.consumer();
    let waiting = tokio::spawn(async move { consumer.consume(request("a", 2)).await });
    sleep(MS(1)).await;
    let metrics = bench.metrics.clone();
    let component = bench.terminal.component;
    let left = component.shutdown(Instant::now() + SECS(1)).await;
    assert_eq!(left, Undelivered::default());
    assert!(waiting.await.unwrap().unwrap_err().retryable);
    let expected = [("received", 2), ("refused", 2)];
    assert_eq!(account_in(&metrics), account(&expected));
}

#[tokio::test(start_paused = true)]
async fn undelivered_buffered_batch_is_lost_once() {
    let bench = Gathering::with(Gatherer::stubborn(), settings(QueueConfig::default()));
    for name in ["a", "b"] {
        bench.consume(request(name, 2)).await.unwrap();
    }
    sleep(MS(1)).await;
    let component = bench.terminal.component;
    let left = component.shutdown(Instant::now() + SECS(3)).await;
    assert_eq!(left, Undelivered { items: 4 });
    // The outcomes arrive after the deadline.
    for held in std::mem::take(&mut *bench.gatherer.held.lock().unwrap()) {
        assert!(held.tell.send(done()).is_err());
    }
    sleep(MS(1)).await;
    let expected = [("received", 4), ("shutdown", 4)];
    assert_eq!(account_in(&bench.metrics), account(&expected));
}

#[tokio::test(start_paused = true)]
async fn split_request_stays_queued_until_last_outcome() {
    let batch = BatchConfig {
        min_size: 2,
        max_size: 2,
        ..BatchConfig::default()
    };
    let bench = Gathering::with(Gatherer::default(), batching(batch));
    bench.consume(request("a", 5)).await.unwrap();
    sleep(SECS(1)).await;
    assert_eq!(bench.gatherer.held.lock().unwrap().len(), 3);
    bench.gatherer.settle_one("a-0", done());
    bench.gatherer.settle_one("a-2", failed());
    sleep(SECS(8)).await;
    bench.gatherer.settle_one("a-2", done());
    sleep(MS(1)).await;
    assert!(!bench.idle());
    bench.gatherer.settle_one("a-4", done());
    sleep(MS(1)).await;
    assert!(bench.idle());
    assert_eq!(
        bench.account(),
        account(&[("received", 5), ("delivered", 5)])
    );
}

#[tokio::test(start_paused = true)]
async fn buffered_batch_is_kept_compressed_for_retry() {
    let bench = Gathering::new(QueueConfig {
        compression: HeldCompression::Lz4,
        ..QueueConfig::default()
    });
    let mut batch = request("compressible-name-of-a-span", 50);
    let bytes = batch.bytes();
    batch.hold(bench.budget.acquire(bytes).unwrap());
    bench.consume(batch).await.unwrap();
    sleep(MS(1)).await;
    let used = bench.budget.used();
    assert!((1..bytes / 2).contains(&used), "{used} of {bytes}");
    assert_eq!(bench.gatherer.settle_all(&failed()), 1);
    sleep(SECS(8)).await;
    let names = bench.gatherer.held.lock().unwrap()[0].names.len();
    assert_eq!(names, 50);
    assert_eq!(bench.gatherer.settle_all(&done()), 1);
    sleep(MS(1)).await;
    assert_eq!(bench.budget.used(), 0);
    let expected = [("received", 50), ("delivered", 50)];
    assert_eq!(bench.account(), account(&expected));
}
