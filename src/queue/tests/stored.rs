//! Tests of the guarantees of a queue on disk. The clock is paused but the log's thread is not, so tests poll for the
//! expected state.

use std::sync::atomic::Ordering::Relaxed;

use tempfile::TempDir;

use super::gathering::{Gatherer, done, failed};
use super::*;
use crate::component::{Extensions, Host, Services};
use crate::queue::config::Overflow;
use tributary_storage::{Options, Storage};

/// A process with a storage directory, which outlives the process.
pub(super) struct Process {
    pub(super) host: Host,
    recorder: PrometheusRecorder,
    pub(super) metrics: PrometheusHandle,
    pub(super) storage: Arc<Storage>,
}

pub(super) struct Exporter {
    pub(super) hop: Arc<Hop>,
    terminal: Option<Terminal>,
}

impl Process {
    pub(super) fn new(directory: &TempDir) -> Self {
        let recorder = PrometheusBuilder::new().build_recorder();
        Process {
            host: Host::for_tests(),
            metrics: recorder.handle(),
            recorder,
            storage: Arc::new(Storage {
                directory: directory.path().to_owned(),
                options: Options::default(),
            }),
        }
    }

    pub(super) fn exporter(
        &self,
        queue: QueueConfig,
        answer: impl FnMut(&[String]) -> Result<Outcome, SendError> + Send + 'static,
    ) -> Exporter {
        let hop = hop(answer);
        let sender: Arc<dyn Sender> = hop.clone();
        Exporter {
            hop,
            terminal: Some(self.terminal(queue, &sender)),
        }
    }

    fn terminal(&self, queue: QueueConfig, sender: &Arc<dyn Sender>) -> Terminal {
        self.terminal_with(settings(queue), sender)
    }

    /// Creates a terminal that waits for its next hop without a timer. While a test waits for the log's thread, the
    /// paused clock would jump to the timer.
    fn patient_terminal(&self, sender: &Arc<dyn Sender>) -> Terminal {
        let settings = Settings {
            timeout: SECS(0),
            ..settings(QueueConfig::default())
        };
        self.terminal_with(settings, sender)
    }

    fn terminal_with(&self, settings: Settings, sender: &Arc<dyn Sender>) -> Terminal {
        self.terminal_of("test", settings, sender)
    }

    /// Creates the terminal of an exporter with this name.
    pub(super) fn terminal_of(
        &self,
        id: &str,
        mut settings: Settings,
        sender: &Arc<dyn Sender>,
    ) -> Terminal {
        let mut cx = self.host.context(&id.parse().unwrap());
        let services = Services {
            storage: Some(self.storage.clone()),
            ..Services::default()
        };
        cx.extensions = Extensions::from_iter([("file_storage".parse().unwrap(), services)]);
        let queue = settings.queue.as_mut().unwrap();
        queue.storage = Some("file_storage".parse().unwrap());
        let mut terminal = ::metrics::with_local_recorder(&self.recorder, || {
            terminal(&cx, &[Signal::Traces], &settings, sender).unwrap()
        });
        ::metrics::with_local_recorder(&self.recorder, || terminal.component.start());
        terminal
    }

    pub(super) fn account(&self) -> BTreeMap<String, u64> {
        account_in(&self.metrics)
    }
}

impl Exporter {
    pub(super) async fn consume(&self, batch: Batch) -> Result<(), Nack> {
        let terminal = self.terminal.as_ref().unwrap();
        terminal
            .inputs
            .get(Signal::Traces)
            .unwrap()
            .consume(batch)
            .await
    }

    pub(super) fn accepted(&self) -> Vec<String> {
        let mut accepted = self.hop.accepted.lock().unwrap().clone();
        accepted.sort();
        accepted
    }

    pub(super) fn attempts(&self) -> usize {
        self.hop.attempts.lock().unwrap().len()
    }

    pub(super) fn idle(&self) -> bool {
        self.terminal.as_ref().unwrap().component.idle()
    }

    pub(super) async fn shutdown(&mut self) -> Undelivered {
        let terminal = self.terminal.take().unwrap();
        terminal.component.shutdown(Instant::now() + SECS(30)).await
    }
}

pub(super) fn hop(
    answer: impl FnMut(&[String]) -> Result<Outcome, SendError> + Send + 'static,
) -> Arc<Hop> {
    Arc::new(Hop {
        answer: Mutex::new(Box::new(answer)),
        latency: MS(0),
        attempts: Mutex::default(),
        accepted: Mutex::default(),
        encoded: Mutex::default(),
    })
}

pub(super) async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        sleep(MS(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn next_process_delivers_backlog() {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::new(&directory);
    let mut exporter = process.exporter(QueueConfig::default(), unavailable);
    for name in ["a", "b", "c"] {
        exporter.consume(request(name, 2)).await.unwrap();
    }
    until(|| exporter.attempts() > 0).await;
    let started = Instant::now();
    assert_eq!(exporter.shutdown().await, Undelivered::default());
    assert!(
        started.elapsed() < SECS(5),
        "nothing is lost, so nobody waits"
    );
    assert_eq!(process.account(), account(&[("received", 6), ("kept", 6)]));

    let process = Process::new(&directory);
    let mut exporter = process.exporter(QueueConfig::default(), accept);
    until(|| exporter.idle()).await;
    assert_eq!(
        exporter.accepted(),
        ["a-0", "a-1", "b-0", "b-1", "c-0", "c-1"]
    );
    exporter.shutdown().await;
    assert_eq!(
        process.account(),
        account(&[("recovered", 6), ("delivered", 6)])
    );

    let process = Process::new(&directory);
    let exporter = process.exporter(QueueConfig::default(), accept);
    until(|| exporter.idle()).await;
    assert_eq!(exporter.attempts(), 0);
}

/// A next hop that never responds.
pub(super) struct Deaf;

impl Sender for Deaf {
    fn send<'a>(&'a self, _: &'a Encoded) -> BoxFuture<'a, Result<Outcome, SendError>> {
        Box::pin(std::future::pending())
    }
}

/// Slightly less than a mebibyte, to leave room for the overhead that is counted.
fn of_a_mebibyte() -> Batch {
    request(&"x".repeat((1 << 20) - (20 << 10)), 1)
}

#[tokio::test(start_paused = true)]
async fn unresponsive_next_hop_delays_no_sender() {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::new(&directory);
    let sender: Arc<dyn Sender> = Arc::new(Deaf);
    let terminal = process.patient_terminal(&sender);
    let consumer = terminal.inputs.get(Signal::Traces).unwrap();
    let start = Instant::now();
    // More than the read-ahead and the recently written blocks, so that the reader falls behind.
    for _ in 0..40 {
        consumer.consume(of_a_mebibyte()).await.unwrap();
    }
    assert_eq!(start.elapsed(), MS(0));
}

#[tokio::test(start_paused = true)]
async fn disk_queue_retries_without_limit_unless_configured() {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::new(&directory);
    let back = Instant::now() + SECS(3 * 24 * 3600);
    let exporter = process.exporter(QueueConfig::default(), move |names| {
        match Instant::now() < back {
            true => unavailable(names),
            false => accept(names),
        }
    });
    exporter.consume(request("a", 2)).await.unwrap();
    tokio::time::sleep_until(back).await;
    assert!(exporter.accepted().is_empty());
    // The log reads the record again on its own thread, for which a paused clock does not wait.
    until(|| exporter.accepted() == ["a-0", "a-1"]).await;
}

#[tokio::test(start_paused = true)]
async fn replacing_exporter_delivers_backlog() {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::new(&directory);
    let mut old = process.exporter(QueueConfig::default(), unavailable);
    old.consume(request("before", 2)).await.unwrap();
    until(|| old.attempts() > 0).await;
    let batch = BatchConfig::default();
    let queue = QueueConfig {
        batch: Section(Some(batch)),
        ..QueueConfig::default()
    };
    let mut new = process.exporter(queue, accept);
    new.consume(request("new", 1)).await.unwrap();
    // The old pipeline may pass on more data until its receivers have ended.
    old.consume(request("late", 1)).await.unwrap();
    until(|| old.idle() && new.idle()).await;
    old.shutdown().await;
    assert_eq!(new.accepted(), ["before-0", "before-1", "late-0", "new-0"]);
    new.shutdown().await;
    assert_eq!(
        process.account(),
        account(&[("received", 4), ("delivered", 4)])
    );
}

#[tokio::test(start_paused = true)]
async fn full_disk_queue_refuses_until_room_is_free() {
    for (sizer, size, most) in [
        (Sizer::Requests, 3, 3),
        (Sizer::Items, 10, 5),
        (Sizer::Bytes, 4000, 80),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let process = Process::new(&directory);
        let queue = QueueConfig {
            queue_size: size,
            sizer: Some(sizer),
            num_consumers: 1,
            ..QueueConfig::default()
        };
        let open = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let gate = open.clone();
        let exporter = process.exporter(queue, move |names| {
            match gate.load(std::sync::atomic::Ordering::Relaxed) {
                true => accept(names),
                false => unavailable(names),
            }
        });
        let mut taken = 0;
        let nack = loop {
            match exporter.consume(request(&taken.to_string(), 2)).await {
                Ok(()) => taken += 1,
                Err(nack) => break nack,
            }
        };
        assert!(taken > 1 && taken <= most, "{sizer:?} {taken}");
        assert_eq!(
            (nack.retryable, &*nack.reason),
            (true, "sending queue is full")
        );
        open.store(true, std::sync::atomic::Ordering::Relaxed);
        until(|| exporter.idle()).await;
        // Nearly as large as the whole queue, so that files are removed for it.
        let more = if sizer == Sizer::Bytes { 150 } else { 10 };
        while exporter.consume(request("more", more)).await.is_err() {
            sleep(MS(1)).await;
        }
        until(|| exporter.idle()).await;
        assert_eq!(exporter.accepted().len(), 2 * taken + more);
    }
}

#[tokio::test(start_paused = true)]
async fn full_disk_queue_drops_oldest_and_counts() {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::new(&directory);
    let queue = QueueConfig {
        queue_size: 100,
        sizer: Some(Sizer::Requests),
        overflow: Overflow::DropOldest,
        num_consumers: 1,
        ..QueueConfig::default()
    };
    let mut exporter = process.exporter(queue, unavailable);
    // More than the read-ahead.
    let large = |name: &str| {
        let batch = request(name, 1);
        let mut bytes = batch.wire().to_bytes().to_vec();
        // Unknown fields are passed on.
        bytes.extend([0x82, 0x7d, 0x80, 0x80, 0x40]);
        bytes.resize(bytes.len() + (1 << 20), 0);
        Batch::new(Signal::Traces, 1, Bytes::from(bytes))
    };
    for number in 0..130 {
        exporter
            .consume(large(&format!("{number:03}")))
            .await
            .unwrap();
    }
    let dropped = process.account()["queue_full"];
    assert_eq!(dropped, 30);
    exporter.shutdown().await;
    assert_eq!(process.account()["kept"], 100);
    let process = Process::new(&directory);
    let exporter = process.exporter(QueueConfig::default(), accept);
    until(|| exporter.idle()).await;
    let accepted = exporter.accepted();
    assert_eq!(accepted.len(), 100);
    assert_eq!(accepted.last().unwrap(), "129-0", "what came last is there");
}

#[tokio::test(start_paused = true)]
async fn permanently_refused_record_is_counted_once() {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::new(&directory);
    let batch = BatchConfig::default();
    let queue = QueueConfig {
        batch: Section(Some(batch)),
        ..QueueConfig::default()
    };
    let bad = |names: &[String]| match names.iter().any(|name| name.starts_with("bad")) {
        true => Err(SendError::permanent(
            Code::InvalidArgument,
            Fault::Content,
            "no",
        )),
        false => accept(names),
    };
    let mut exporter = process.exporter(queue, bad);
    for name in ["a", "bad", "c"] {
        exporter.consume(request(name, 2)).await.unwrap();
    }
    until(|| exporter.idle()).await;
    assert_eq!(exporter.accepted(), ["a-0", "a-1", "c-0", "c-1"]);
    // The exit code depends on this.
    assert_eq!(exporter.shutdown().await, Undelivered { items: 2 });
    let expected = [("received", 6), ("delivered", 4), ("permanent", 2)];
    assert_eq!(process.account(), account(&expected));
    let process = Process::new(&directory);
    let exporter = process.exporter(QueueConfig::default(), accept);
    until(|| exporter.idle()).await;
    assert_eq!(exporter.attempts(), 0);
}

#[tokio::test(start_paused = true)]
async fn requests_of_different_tenants_stay_apart_over_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let batch = BatchConfig {
        partition: PartitionConfig {
            metadata_keys: vec!["Tenant".to_owned()],
        },
        ..BatchConfig::default()
    };
    let queue = QueueConfig {
        batch: Section(Some(batch)),
        ..QueueConfig::default()
    };
    let process = Process::new(&directory);
    let mut exporter = process.exporter(queue.clone(), unavailable);
    for tenant in [Some("a"), Some("b"), None, Some("a")] {
        let name = format!("{tenant:?}");
        exporter
            .consume(of_tenant(tenant, request(&name, 1)))
            .await
            .unwrap();
    }
    exporter.shutdown().await;
    let process = Process::new(&directory);
    let exporter = process.exporter(queue, accept);
    until(|| exporter.idle()).await;
    let attempts = exporter.hop.attempts.lock().unwrap();
    let mut sent: Vec<&Vec<String>> = attempts.iter().map(|(_, names)| names).collect();
    sent.sort();
    assert_eq!(sent.len(), 3);
    for names in sent {
        assert!(names.iter().all(|name| *name == names[0]), "{names:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn buffered_record_is_read_from_disk_for_retry() {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::new(&directory);
    let gatherer = Arc::new(Gatherer::stubborn());
    let sender: Arc<dyn Sender> = gatherer.clone();
    let queue = QueueConfig {
        num_consumers: 1,
        ..QueueConfig::default()
    };
    let terminal = process.terminal(queue, &sender);
    let consumer = terminal.inputs.get(Signal::Traces).unwrap();
    for number in 0..40 {
        // More than is read ahead at once.
        let name = format!("{number}{}", "x".repeat(1_000_000));
        consumer.consume(request(&name, 1)).await.unwrap();
    }
    let held = || gatherer.held.lock().unwrap().len();
    until(|| held() == 40 && process.host.budget.used() == 0).await;
    assert_eq!(gatherer.settle_all(&failed()), 40);
    until(|| held() == 40).await;
    assert!(!terminal.component.idle());
    assert_eq!(gatherer.settle_all(&done()), 40);
    assert_eq!(gatherer.waiting.load(Relaxed), 0);
    until(|| terminal.component.idle()).await;
    assert_eq!(
        process.account(),
        account(&[("received", 40), ("delivered", 40)])
    );
}

#[tokio::test(start_paused = true)]
async fn second_process_is_refused_with_owner() {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::new(&directory);
    let _exporter = process.exporter(QueueConfig::default(), accept);
    let name = tributary_storage::QueueName {
        exporter: "test".parse().unwrap(),
        signal: Signal::Traces,
    };
    // Clears the registry of open logs, as in another process.
    let opened = process.storage.open(&Default::default(), &name, None);
    let refused = opened.err().unwrap().to_string();
    assert!(refused.contains("in use by another process"), "{refused}");
}
