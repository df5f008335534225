use super::super::Config;
use super::*;
use crate::component::{Host, ProcessorConfig as _};
use crate::pipeline::Next;
use crate::pipeline::account::Account;
use crate::pipeline::batch::PersistedUpstream;
use crate::pipeline::testing::Scripted;
use crate::pipeline::{Component, Consumer};
use crate::testing::named_batch;
use tributary_config::units::ByteSize;
use tributary_otlp::Signal;
use tributary_profiles::testing_requests::sample_names;

struct Fixture {
    consumer: Arc<dyn Consumer>,
    component: Box<dyn Component>,
    exporter: Arc<Scripted>,
    budget: Arc<Budget>,
}

fn fixture(config: &Config, exporter: Arc<Scripted>) -> Fixture {
    let host = Host::for_tests();
    let cx = host.context(&"compression".parse().unwrap());
    let Stage::Buffering(connect) = config.build(&cx, Signal::Profiles).unwrap() else {
        panic!("summaries take time");
    };
    let next = Next {
        consumer: exporter.clone(),
        account: Account::of_pipeline("profiles"),
    };
    let (consumer, mut component) = connect(next);
    component.start();
    Fixture {
        consumer,
        component,
        exporter,
        budget: host.budget.clone(),
    }
}

fn config() -> Config {
    Config {
        mode: super::super::MergeScope::Aggregate,
        ..Config::default()
    }
}

impl Fixture {
    async fn send(&self, service: &str, names: &[&str]) -> Result<(), Nack> {
        let mut batch = named_batch(service, names.iter().copied());
        let permit = self.budget.acquire(batch.bytes()).unwrap();
        batch.hold(permit);
        self.consumer.consume(batch).await
    }

    /// Returns the names of the samples of each accepted batch.
    fn taken(&self) -> Vec<Vec<String>> {
        let taken = self.exporter.batches().into_iter().map(|batch| {
            let names = sample_names(&batch.clone().into_wire().to_bytes());
            assert_eq!(names.len(), batch.items());
            names
        });
        taken.collect()
    }

    async fn shutdown(self, within: u64) -> (usize, Vec<Vec<String>>) {
        let deadline = Instant::now() + Duration::from_secs(within);
        let (exporter, budget) = (self.exporter.clone(), self.budget.clone());
        let left = self.component.shutdown(deadline).await.items;
        let taken = Fixture {
            consumer: self.consumer,
            component: Box::new(crate::pipeline::Idle),
            exporter,
            budget,
        }
        .taken();
        (left, taken)
    }
}

async fn later(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

#[tokio::test(start_paused = true)]
async fn quiet_series_passes_and_busy_series_is_summarized() {
    let f = fixture(&config(), Scripted::new([]));
    f.send("s", &["a"]).await.unwrap();
    later(1).await;
    assert_eq!(f.taken(), [["a"]]);
    f.send("s", &["a", "b"]).await.unwrap();
    later(5_000).await;
    f.send("s", &["b", "c"]).await.unwrap();
    f.send("other", &["x"]).await.unwrap();
    later(4_998).await;
    assert_eq!(f.taken(), [vec!["a"], vec!["x"]]);
    later(3).await;
    assert_eq!(f.taken()[2..], [["a", "b", "c"]]);
    assert!(f.component.idle());
    later(20_000).await;
    f.send("s", &["d"]).await.unwrap();
    later(1).await;
    assert_eq!(f.taken()[3..], [["d"]]);
}

#[tokio::test(start_paused = true)]
async fn summary_holds_exact_memory() {
    let f = fixture(&config(), Scripted::new([]));
    for _ in 0..5 {
        f.send("s", &["a", "b"]).await.unwrap();
    }
    later(1).await;
    assert!(f.budget.used() > 0);
    later(10_000).await;
    let taken: usize = f.exporter.batches().iter().map(Batch::bytes).sum();
    assert_eq!(f.budget.used(), taken);
}

#[tokio::test(start_paused = true)]
async fn summary_is_retried_until_accepted() {
    let busy = Err(Nack::unavailable("busy"));
    let f = fixture(&config(), Scripted::new(vec![busy; 6]));
    f.send("s", &["a"]).await.unwrap();
    f.send("s", &["b"]).await.unwrap();
    later(60_000).await;
    let mut taken = f.taken();
    taken.sort();
    assert_eq!(taken, [["a"], ["b"]]);
    assert!(f.component.idle());
}

#[tokio::test(start_paused = true)]
async fn blocked_next_stage_refuses_clients() {
    let f = fixture(
        &config(),
        Scripted::refusing(|_| Some(Nack::unavailable("stopped"))),
    );
    let mut accepted = 0;
    let nack = loop {
        later(1).await;
        match f.send(&format!("service-{accepted}"), &["a"]).await {
            Ok(()) => accepted += 1,
            Err(nack) => break nack,
        }
        assert!(accepted < 100);
    };
    assert!(nack.retryable);
    let (left, _) = f.shutdown(1).await;
    assert_eq!(left, accepted);
}

#[tokio::test(start_paused = true)]
async fn window_is_flushed_early_at_memory_limit() {
    let config = Config {
        max_bytes: Some(ByteSize(64 << 10)),
        ..config()
    };
    let f = fixture(&config, Scripted::new([]));
    let mut sent = Vec::new();
    for at in 0..20 {
        let names: Vec<String> = (0..100).map(|n| format!("function-{at}-{n}")).collect();
        let words: Vec<&str> = names.iter().map(String::as_str).collect();
        f.send("s", &words).await.unwrap();
        later(1).await;
        sent.extend(names);
    }
    assert!(f.taken().len() > 2, "{}", f.taken().len());
    later(10_000).await;
    let mut taken = f.taken().concat();
    taken.sort();
    sent.sort();
    assert_eq!(taken, sent);
}

#[tokio::test(start_paused = true)]
async fn disk_queue_gets_outcome_of_summary() {
    let f = fixture(&config(), Scripted::new([]));
    // The first profile of a series passes.
    f.send("cart", &["a"]).await.unwrap();
    let mut waiting = Vec::new();
    for name in ["b", "c"] {
        let persisted_upstream = Arc::new(PersistedUpstream::default());
        let mut batch = named_batch("cart", [name]);
        batch.persisted_upstream = Some(persisted_upstream.clone());
        let consumer = f.consumer.clone();
        waiting.push(tokio::spawn(async move { consumer.consume(batch).await }));
        persisted_upstream.until_buffered().await;
    }
    later(9000).await;
    assert!(waiting.iter().all(|waiting| !waiting.is_finished()));
    // Only the passing request was acknowledged before the flush.
    assert_eq!(f.taken().len(), 1);
    assert!(f.component.idle());
    later(1001).await;
    for waiting in waiting {
        waiting.await.unwrap().unwrap();
    }
    assert_eq!(f.taken().last().unwrap(), &["b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn disk_queue_is_refused_undelivered_summary_at_shutdown() {
    let f = fixture(&config(), Scripted::slow(Duration::from_secs(3600)));
    let mut batch = named_batch("cart", ["a"]);
    batch.persisted_upstream = Some(Arc::default());
    let consumer = f.consumer.clone();
    let outcome = tokio::spawn(async move { consumer.consume(batch).await });
    later(1).await;
    let (left, _) = f.shutdown(5).await;
    assert_eq!(left, 0);
    assert!(outcome.await.unwrap().unwrap_err().retryable);
}

#[tokio::test(start_paused = true)]
async fn shutdown_flushes_the_window() {
    let f = fixture(&config(), Scripted::new([]));
    for name in ["a", "b", "c"] {
        f.send("s", &[name]).await.unwrap();
    }
    let (left, taken) = f.shutdown(1).await;
    assert_eq!(left, 0);
    assert_eq!(taken, [vec!["a"], vec!["b", "c"]]);
}

#[tokio::test(start_paused = true)]
async fn shutdown_reports_undelivered_items() {
    let f = fixture(&config(), Scripted::slow(Duration::from_secs(3600)));
    f.send("s", &["a"]).await.unwrap();
    f.send("s", &["b", "c"]).await.unwrap();
    let (left, taken) = f.shutdown(1).await;
    assert_eq!((left, taken.len()), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_taken_in_after_the_end() {
    let f = fixture(&config(), Scripted::new([]));
    let consumer = f.consumer.clone();
    f.shutdown(1).await;
    let nack = consumer.consume(named_batch("s", ["a"])).await.unwrap_err();
    assert!(nack.retryable);
}

#[tokio::test(start_paused = true)]
async fn unreadable_request_passes_unchanged() {
    let f = fixture(&config(), Scripted::new([]));
    f.send("s", &["a"]).await.unwrap();
    let broken = Batch::new(Signal::Profiles, 1, Bytes::from_static(b"\xff"));
    f.consumer.consume(broken).await.unwrap();
    f.send("s", &["b"]).await.unwrap();
    later(10_001).await;
    let requests: Vec<Bytes> = f
        .exporter
        .batches()
        .into_iter()
        .map(|batch| batch.into_wire().to_bytes())
        .collect();
    assert_eq!(requests[1], &b"\xff"[..]);
    assert_eq!(sample_names(&requests[2]), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn permanently_refused_summary_is_split() {
    let f = fixture(
        &config(),
        Scripted::refusing(|batch| {
            let names = sample_names(&batch.clone().into_wire().to_bytes());
            let bad = names.contains(&"bad".to_owned());
            bad.then(|| Nack::invalid("bad"))
        }),
    );
    f.send("s", &["a"]).await.unwrap();
    f.send("s", &["b", "bad"]).await.unwrap();
    f.send("s", &["c"]).await.unwrap();
    later(10_001).await;
    let mut taken = f.taken().concat();
    taken.sort_unstable();
    assert_eq!(taken, ["a", "b", "c"]);
    assert!(f.component.idle());
}

#[tokio::test(start_paused = true)]
async fn profiles_without_decode_memory_are_refused_temporarily() {
    let f = fixture(&config(), Scripted::new([]));
    let free = f.budget.limit() - f.budget.used();
    let others = f.budget.acquire(free - 2_000).unwrap();
    let nack = f.send("s", &["a"]).await.unwrap_err();
    assert!(nack.retryable && nack.retry_after.is_some(), "{nack:?}");
    drop(others);
    f.send("s", &["a"]).await.unwrap();
    later(1).await;
    assert_eq!(f.taken(), [["a"]]);
}

fn gatherer(max_bytes: usize) -> Gatherer {
    Gatherer {
        settings: Settings {
            options: SummaryOptions::default(),
            interval: Duration::from_secs(10),
            max_bytes,
        },
        metrics: Metrics::new("compression"),
        budget: Host::for_tests().budget,
        hashes: RandomState::default(),
        window: Arc::default(),
        buffer: Buffer::new(Next {
            consumer: Scripted::new([]),
            account: Account::of_pipeline("profiles"),
        }),
    }
}

#[test]
fn series_list_is_bounded() {
    let mut window = Window::default();
    let series: Vec<u64> = (0..2 * MAX_SERIES as u64 + 10).collect();
    gatherer(1 << 20).note(&mut window, &series);
    assert!(window.seen.len() <= MAX_SERIES, "{}", window.seen.len());
}

#[test]
fn requests_of_disconnected_clients_are_dropped() {
    const MAX: usize = 256 << 10;
    let gatherer = gatherer(MAX);
    let mut window = Window::default();
    let mut joined = 0;
    for number in 0..200 {
        let names: Vec<String> = (0..50).map(|at| format!("{number} {at}")).collect();
        let batch = named_batch("s", names.iter().map(String::as_str));
        let reading = gatherer.read(&mut window, &batch.wire().to_bytes());
        joined += usize::from(matches!(reading, Reading::Joins(_)));
        let bytes = window
            .pending
            .as_ref()
            .map_or(0, |pending| pending.aggregator.bytes());
        assert!(bytes < 2 * MAX, "{bytes}");
    }
    assert_eq!(joined, 199);
    assert_eq!(gatherer.buffer.state().acknowledged, 0);
}
