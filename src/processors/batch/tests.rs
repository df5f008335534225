use std::time::Duration as StdDuration;
use tributary_config::units::ByteSize;
use tributary_config::units::Duration;

use super::*;
use crate::component::Host;
use crate::pipeline::Next;
use crate::pipeline::account::Account;
use crate::pipeline::batch::PersistedUpstream;
use crate::pipeline::testing::{Scripted, span_names, spans};
use crate::pipeline::{Component, Consumer, FanOut, FlushReason};
use crate::testing::named_batch;
use tributary_profiles::testing_requests::sample_names;

struct Fixture {
    consumer: Arc<dyn Consumer>,
    component: Box<dyn Component>,
    exporter: Arc<Scripted>,
}

fn fixture(config: &Config, exporter: Arc<Scripted>) -> Fixture {
    connected(config, exporter.clone(), exporter)
}

/// The processor in front of `consumer`.
fn connected(config: &Config, consumer: Arc<dyn Consumer>, exporter: Arc<Scripted>) -> Fixture {
    within(Host::for_tests(), config, consumer, exporter)
}

fn within(
    host: Host,
    config: &Config,
    consumer: Arc<dyn Consumer>,
    exporter: Arc<Scripted>,
) -> Fixture {
    let cx = host.context(&"batch".parse().unwrap());
    let Stage::Buffering(connect) = config.build(&cx, Signal::Traces).unwrap() else {
        panic!("batch holds data");
    };
    let next = Next {
        consumer,
        account: Account::of_pipeline("traces"),
    };
    let (consumer, mut component) = connect(next);
    component.start();
    Fixture {
        consumer,
        component,
        exporter,
    }
}

fn config() -> Config {
    Config {
        send_batch_size: 4,
        ..Config::default()
    }
}

async fn later(millis: u64) {
    tokio::time::sleep(StdDuration::from_millis(millis)).await;
}

#[tokio::test(start_paused = true)]
async fn small_batch_is_sent_one_timeout_after_first_request() {
    let f = fixture(&config(), Scripted::new([]));
    later(150).await;
    f.consumer.consume(spans(["a"])).await.unwrap();
    later(120).await;
    f.consumer.consume(spans(["b"])).await.unwrap();
    later(79).await;
    assert!(f.exporter.taken().is_empty());
    later(2).await;
    assert_eq!(f.exporter.span_names(), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn complete_batches_are_sent_at_once_in_order() {
    let f = fixture(&config(), Scripted::new([]));
    f.consumer.consume(spans(["a", "b", "c"])).await.unwrap();
    f.consumer.consume(spans(["d", "e"])).await.unwrap();
    later(1).await;
    assert_eq!(f.exporter.taken(), [5]);
    assert_eq!(f.exporter.span_names(), ["a", "b", "c", "d", "e"]);
}

#[tokio::test(start_paused = true)]
async fn batch_without_size_or_timeout_is_sent_at_once() {
    let no_size = Config {
        send_batch_size: 0,
        ..config()
    };
    let no_time = Config {
        timeout: Duration::secs(0),
        ..config()
    };
    for config in [no_size, no_time] {
        let f = fixture(&config, Scripted::new([]));
        f.consumer.consume(spans(["a"])).await.unwrap();
        later(1).await;
        assert_eq!(f.exporter.taken(), [1]);
    }
}

#[tokio::test(start_paused = true)]
async fn batches_stay_within_the_maximum() {
    let config = Config {
        send_batch_max_size: 4,
        ..config()
    };
    let f = fixture(&config, Scripted::new([]));
    f.consumer.consume(spans(["a", "b", "c"])).await.unwrap();
    f.consumer.consume(spans(["d", "e"])).await.unwrap();
    later(201).await;
    assert_eq!(f.exporter.taken(), [3, 2]);
}

#[tokio::test(start_paused = true)]
async fn buffered_batch_is_retried_until_accepted_once() {
    let busy = Err(Nack::unavailable("busy"));
    let f = fixture(&config(), Scripted::new(vec![busy; 5]));
    f.consumer
        .consume(spans(["a", "b", "c", "d"]))
        .await
        .unwrap();
    later(60_000).await;
    assert_eq!(f.exporter.span_names(), ["a", "b", "c", "d"]);
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
        match f.consumer.consume(spans(["a", "b", "c", "d"])).await {
            Ok(()) => accepted += 1,
            Err(nack) => break nack,
        }
    };
    assert!(nack.retryable);
    assert_eq!(accepted, MAX_DELIVERIES.count + MAX_READY);
}

#[tokio::test(start_paused = true)]
async fn permanently_refused_request_is_dropped_alone() {
    let f = fixture(
        &config(),
        Scripted::refusing(|batch| {
            let names = crate::pipeline::testing::span_names(batch);
            names
                .contains(&"bad".to_owned())
                .then(|| Nack::invalid("bad"))
        }),
    );
    for name in ["a", "bad", "c", "d"] {
        f.consumer.consume(spans([name])).await.unwrap();
    }
    later(1).await;
    assert_eq!(f.exporter.span_names(), ["c", "d", "a"]);
    assert!(f.component.idle());
}

#[tokio::test(start_paused = true)]
async fn shutdown_flushes_buffered_batches() {
    let f = fixture(&config(), Scripted::new([]));
    f.consumer.consume(spans(["a"])).await.unwrap();
    let left = f
        .component
        .shutdown(Instant::now() + StdDuration::from_secs(1))
        .await;
    assert_eq!((left.items, f.exporter.taken()), (0, vec![1]));
    assert!(
        f.consumer
            .consume(spans(["b"]))
            .await
            .unwrap_err()
            .retryable
    );
}

#[tokio::test(start_paused = true)]
async fn shutdown_reports_undelivered_items() {
    let f = fixture(&config(), Scripted::slow(StdDuration::from_secs(3600)));
    f.consumer.consume(spans(["a", "b"])).await.unwrap();
    let left = f
        .component
        .shutdown(Instant::now() + StdDuration::from_secs(1))
        .await;
    assert_eq!(left.items, 2);
}

#[tokio::test(start_paused = true)]
async fn different_metadata_never_share_a_batch() {
    let config = Config {
        metadata_keys: vec!["Tenant".to_owned()],
        metadata_cardinality_limit: 2,
        ..config()
    };
    let f = fixture(&config, Scripted::new([]));
    let from = |tenant: &str| {
        let mut batch = spans([tenant]);
        let headers = [("tenant".to_owned(), vec![tenant.to_owned()])];
        batch.metadata = Some(Arc::new(headers.into()));
        batch
    };
    for tenant in ["a", "b", "a"] {
        f.consumer.consume(from(tenant)).await.unwrap();
    }
    assert!(!f.consumer.consume(from("c")).await.unwrap_err().retryable);
    later(201).await;
    let mut taken = f.exporter.taken();
    taken.sort_unstable();
    assert_eq!(taken, [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn accepting_branch_gets_no_parts_of_refused_batch() {
    let picky = Scripted::refusing(|batch| {
        let bad = span_names(batch).contains(&"bad".to_owned());
        bad.then(|| Nack::invalid("bad"))
    });
    let good = Scripted::new([]);
    let both = FanOut::over(vec![good.clone(), picky.clone()]);
    let f = connected(&config(), both, good);
    for name in ["a", "bad", "c", "d"] {
        f.consumer.consume(spans([name])).await.unwrap();
    }
    later(1).await;
    assert_eq!(f.exporter.span_names(), ["a", "bad", "c", "d"]);
    assert_eq!(picky.span_names(), ["c", "d", "a"]);
}

#[tokio::test(start_paused = true)]
async fn shutdown_during_split_reports_remaining_items() {
    let f = fixture(
        &config(),
        Scripted::refusing(|batch| match span_names(batch).as_slice() {
            [name] if name == "stuck" => Some(Nack::unavailable("stuck")),
            [name] if name == "bad" => Some(Nack::invalid("bad")),
            [_] => None,
            _ => Some(Nack::invalid("too many")),
        }),
    );
    for name in ["a", "bad", "stuck", "d"] {
        f.consumer.consume(spans([name])).await.unwrap();
    }
    later(1).await;
    let deadline = Instant::now() + StdDuration::from_secs(1);
    let left = f.component.shutdown(deadline).await;
    assert_eq!(
        (left.items, f.exporter.span_names()),
        (2, vec!["a".to_owned()])
    );
}

#[tokio::test(start_paused = true)]
async fn shutdown_ignores_retry_delay() {
    let hour = StdDuration::from_secs(3600);
    let f = fixture(
        &config(),
        Scripted::new([Err(Nack::exhausted("later", hour))]),
    );
    f.consumer
        .consume(spans(["a", "b", "c", "d"]))
        .await
        .unwrap();
    later(1).await;
    let deadline = Instant::now() + StdDuration::from_secs(1);
    let left = f.component.shutdown(deadline).await;
    assert_eq!((left.items, f.exporter.taken()), (0, vec![4]));
}

#[tokio::test(start_paused = true)]
async fn maximum_size_completes_batch_despite_other_limit() {
    let request = spans(["a"]);
    let config = Config {
        send_batch_max_bytes: ByteSize(2 * request.bytes() as u64),
        ..config()
    };
    let f = fixture(&config, Scripted::new([]));
    for name in ["a", "b", "c"] {
        f.consumer.consume(spans([name])).await.unwrap();
    }
    later(1).await;
    assert_eq!(f.exporter.span_names(), ["a", "b"]);
}

/// Returns the samples of every accepted batch, each of which is one request.
fn taken_profiles(f: &Fixture) -> Vec<Vec<String>> {
    let taken = f.exporter.batches().into_iter().map(|batch| {
        let items = batch.items();
        let requests = batch.into_wire();
        assert_eq!(requests.parts().len(), 1);
        let names = sample_names(&requests.to_bytes());
        assert_eq!(names.len(), items);
        names
    });
    taken.collect()
}

#[tokio::test(start_paused = true)]
async fn merged_profiles_keep_every_sample() {
    let f = fixture(&config(), Scripted::new([]));
    for names in [["a", "both"], ["both", "b"]] {
        f.consumer.consume(named_batch("s", names)).await.unwrap();
    }
    later(1).await;
    assert_eq!(taken_profiles(&f), [["a", "both", "both", "b"]]);
    assert!(f.component.idle());
}

#[tokio::test(start_paused = true)]
async fn profiles_are_cut_between_their_samples() {
    let config = Config {
        send_batch_size: 2,
        send_batch_max_size: 2,
        ..config()
    };
    let f = fixture(&config, Scripted::new([]));
    let names = ["a", "b", "c", "d", "e"];
    f.consumer.consume(named_batch("s", names)).await.unwrap();
    later(201).await;
    assert_eq!(taken_profiles(&f), [&["a", "b"][..], &["c", "d"], &["e"]]);
}

#[tokio::test(start_paused = true)]
async fn batches_of_profiles_are_within_the_byte_limit() {
    let names: Vec<String> = (0..500).map(|at| format!("function-{at}")).collect();
    let config = Config {
        send_batch_max_bytes: ByteSize(2000),
        send_batch_bytes: ByteSize(2000),
        ..config()
    };
    let f = fixture(&config, Scripted::new([]));
    for chunk in names.chunks(100) {
        let batch = named_batch("s", chunk.iter().map(String::as_str));
        assert!(batch.bytes() > 2000);
        f.consumer.consume(batch).await.unwrap();
        later(1).await;
    }
    later(201).await;
    assert!(
        f.exporter
            .batches()
            .iter()
            .all(|batch| batch.bytes() <= 2000)
    );
    assert_eq!(taken_profiles(&f).concat(), names);
}

#[tokio::test(start_paused = true)]
async fn permanently_refused_profiles_are_dropped_alone() {
    let f = fixture(
        &config(),
        Scripted::refusing(|batch| {
            let names = sample_names(&batch.clone().into_wire().to_bytes());
            let bad = names.contains(&"bad".to_owned());
            bad.then(|| Nack::invalid("bad"))
        }),
    );
    for name in ["a", "bad", "c", "d"] {
        f.consumer.consume(named_batch("s", [name])).await.unwrap();
    }
    later(1).await;
    assert_eq!(taken_profiles(&f), [&["c", "d"][..], &["a"]]);
    assert!(f.component.idle());
}

#[tokio::test(start_paused = true)]
async fn merged_profiles_hold_exact_memory() {
    let budget = tributary_memory::Budget::new(1 << 20);
    let f = fixture(&config(), Scripted::new([]));
    for _ in 0..2 {
        let mut batch = named_batch("s", ["a", "b"]);
        batch.hold(budget.acquire(batch.bytes()).unwrap());
        f.consumer.consume(batch).await.unwrap();
    }
    later(1).await;
    let taken = f.exporter.batches();
    assert_eq!(taken.len(), 1);
    assert_eq!(budget.used(), taken[0].bytes());
}

#[tokio::test(start_paused = true)]
async fn profiles_without_decode_memory_are_sent_separately() {
    let budget = Budget::new(2_000);
    let mut others = budget.output_permit();
    others.grow(budget.output_reserve()).unwrap();
    let host = Host {
        budget,
        ..Host::for_tests()
    };
    let exporter = Scripted::new([]);
    let limits = Config {
        send_batch_size: 2,
        send_batch_max_size: 2,
        ..Config::default()
    };
    let f = within(host, &limits, exporter.clone(), exporter);
    for names in [&["a"][..], &["b"], &["c", "d", "e"]] {
        let batch = named_batch("s", names.iter().copied());
        f.consumer.consume(batch).await.unwrap();
    }
    later(1_000).await;
    assert_eq!(
        taken_profiles(&f),
        [vec!["a"], vec!["b"], vec!["c", "d", "e"]]
    );
}

#[tokio::test(start_paused = true)]
async fn sender_before_stored_queue_gets_its_refusal() {
    let full = || Err(Nack::unavailable("the disk is full"));
    let f = fixture(&config(), Scripted::storing([full(), full()]));
    let start = Instant::now();
    let (a, b) = tokio::join!(
        f.consumer.consume(spans(["a"])),
        f.consumer.consume(spans(["b"]))
    );
    // The stage keeps no data of the refused requests.
    assert!(a.unwrap_err().retryable && b.unwrap_err().retryable);
    assert!(f.component.idle());

    f.consumer.consume(spans(["a"])).await.unwrap();
    assert_eq!(f.exporter.span_names(), ["a"]);
    let deadline = Instant::now() + StdDuration::from_secs(1);
    assert_eq!(f.component.shutdown(deadline).await.items, 0);
    assert_eq!(start.elapsed(), StdDuration::ZERO);
}

/// The processor in front of a stage that takes `write` to persist a batch.
fn storing_within(write: StdDuration) -> Fixture {
    let mut storing = Scripted::slow(write);
    Arc::get_mut(&mut storing).unwrap().stores = true;
    fixture(&Config::default(), storing)
}

#[tokio::test(start_paused = true)]
async fn single_client_before_stored_queue_waits_for_no_timer() {
    let write = StdDuration::from_millis(8);
    let f = storing_within(write);
    let start = Instant::now();
    for _ in 0..10 {
        f.consumer.consume(spans(["a"])).await.unwrap();
    }
    assert_eq!(start.elapsed(), 10 * write);
    assert_eq!(f.exporter.taken(), [1; 10]);
}

#[tokio::test(start_paused = true)]
async fn requests_during_write_share_next_batch() {
    let write = StdDuration::from_millis(8);
    let f = storing_within(write);
    let start = Instant::now();
    let first = f.consumer.consume(spans(["a"]));
    let others = async {
        later(1).await;
        let others = ["b", "c", "d"].map(|name| f.consumer.consume(spans([name])));
        futures_util::future::join_all(others).await
    };
    let (first, others) = tokio::join!(first, others);
    assert!(first.is_ok() && others.into_iter().all(|outcome| outcome.is_ok()));
    assert_eq!(f.exporter.taken(), [1, 3]);
    assert_eq!(start.elapsed(), 2 * write);
}

#[tokio::test(start_paused = true)]
async fn slow_write_delays_other_requests_by_the_timeout() {
    let f = storing_within(StdDuration::from_secs(60));
    let _stuck = tokio::spawn({
        let consumer = f.consumer.clone();
        async move { consumer.consume(spans(["a"])).await }
    });
    later(1).await;
    let start = Instant::now();
    f.consumer.consume(spans(["b"])).await.unwrap();
    let (timeout, write) = (Config::default().timeout.0, StdDuration::from_secs(60));
    assert_eq!(start.elapsed(), timeout + write);
}

#[tokio::test(start_paused = true)]
async fn waiting_senders_are_not_awaited_before_disk_queue() {
    let config = Config {
        send_batch_size: 4,
        send_batch_max_size: 4,
        ..Config::default()
    };
    let f = fixture(&config, Scripted::storing([]));
    let start = Instant::now();
    for _ in 0..3 {
        let letters = ["a", "b", "c", "d", "e", "f"];
        f.consumer.consume(spans(letters)).await.unwrap();
    }
    // The remaining part of a request is complete when the first part is persisted.
    assert_eq!(f.exporter.taken(), [4, 2, 4, 2, 4, 2]);
    assert_eq!(start.elapsed(), StdDuration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn split_request_is_acknowledged_after_all_batches() {
    let config = Config {
        send_batch_max_size: 4,
        ..config()
    };
    let f = fixture(
        &config,
        Scripted::storing([Ok(()), Err(Nack::unavailable("full"))]),
    );
    let letters = ["a", "b", "c", "d", "e", "f"];
    assert!(f.consumer.consume(spans(letters)).await.is_err());
    assert_eq!(f.exporter.taken(), [4]);
    f.consumer.consume(spans(letters)).await.unwrap();
    assert_eq!(f.exporter.taken(), [4, 4, 2]);
}

#[tokio::test(start_paused = true)]
async fn one_bad_request_is_refused_and_its_neighbours_are_not() {
    let bad = |batch: &Batch| {
        let bad = span_names(batch).contains(&"bad".to_owned());
        bad.then(|| Nack::invalid("bad"))
    };
    let mut storing = Scripted::refusing(bad);
    let double = Arc::get_mut(&mut storing).unwrap();
    double.stores = true;
    double.delay = StdDuration::from_millis(8);
    let f = fixture(&config(), storing);
    let others = async {
        // While the first request is written, further requests form a batch.
        later(1).await;
        let others = ["good", "bad"].map(|name| f.consumer.consume(spans([name])));
        futures_util::future::join_all(others).await
    };
    let (first, others) = tokio::join!(f.consumer.consume(spans(["first"])), others);
    // The sender of the bad request is unknown, so the request is dropped, counted and logged.
    assert!(first.is_ok() && others.into_iter().all(|outcome| outcome.is_ok()));
    assert_eq!(f.exporter.span_names(), ["first", "good"]);
    // A request alone is refused.
    let alone = f.consumer.consume(spans(["bad"])).await;
    assert!(!alone.unwrap_err().retryable);
}

#[tokio::test(start_paused = true)]
async fn patient_sender_gets_outcome_after_retries() {
    let f = fixture(&config(), Scripted::new([Err(Nack::unavailable("later"))]));
    let persisted_upstream = Arc::new(PersistedUpstream::default());
    let mut batch = spans(["a"]);
    batch.persisted_upstream = Some(persisted_upstream.clone());
    let consumer = f.consumer.clone();
    let outcome = tokio::spawn(async move { consumer.consume(batch).await });
    persisted_upstream.until_buffered().await;
    assert!(f.exporter.taken().is_empty() && f.component.idle());
    f.consumer.request_flush(FlushReason::Full);
    outcome.await.unwrap().unwrap();
    assert_eq!(f.exporter.taken(), [1]);
}
