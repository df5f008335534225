//! Tests of a stored queue while its next hop, other queues or some of its records fail.

use super::stored::{Deaf, Process, hop, until};
use super::*;
use tributary_memory::Budget;
use tributary_storage::{QueueName, inspect};

const MIB: usize = 1 << 20;

/// Returns a batch with one span of nearly half a mebibyte.
fn large(name: &str) -> Batch {
    request(&format!("{name}{}", "x".repeat(MIB / 2 - 1000)), 1)
}

fn with_budget(directory: &tempfile::TempDir, bytes: usize) -> Process {
    let mut process = Process::new(directory);
    process.host.budget = Budget::new(bytes);
    process
}

/// Settings without a timeout of attempts.
fn without_timeout() -> Settings {
    Settings {
        timeout: SECS(0),
        ..settings(QueueConfig::default())
    }
}

#[tokio::test(start_paused = true)]
async fn dead_stored_exporter_does_not_stall_its_neighbour() {
    let directory = tempfile::tempdir().unwrap();
    let process = with_budget(&directory, 8 * MIB);
    let deaf: Arc<dyn Sender> = Arc::new(Deaf);
    let dead = process.terminal_of("dead", without_timeout(), &deaf);
    let next_hop = hop(accept);
    let sender: Arc<dyn Sender> = next_hop.clone();
    let alive = process.terminal_of("alive", without_timeout(), &sender);
    for number in 0..32 {
        for terminal in [&dead, &alive] {
            let consumer = terminal.inputs.get(Signal::Traces).unwrap();
            consumer.consume(large(&number.to_string())).await.unwrap();
        }
    }
    until(|| next_hop.accepted.lock().unwrap().len() == 32).await;
    until(|| alive.component.idle()).await;
    // The queue with the unresponsive next hop uses only its part of the reserved quarter.
    assert!(process.host.budget.used() <= MIB);
    process.host.budget.acquire(6 * MIB).unwrap();
}

#[tokio::test(start_paused = true)]
async fn full_budget_does_not_stall_disk_queue() {
    let directory = tempfile::tempdir().unwrap();
    let process = with_budget(&directory, 4 * MIB);
    let next_hop = hop(accept);
    let sender: Arc<dyn Sender> = next_hop.clone();
    let terminal = process.terminal_of("alive", without_timeout(), &sender);
    let _others = process.host.budget.acquire(3 * MIB).unwrap();
    assert!(process.host.budget.acquire(1).is_err());
    let consumer = terminal.inputs.get(Signal::Traces).unwrap();
    for number in 0..20 {
        consumer.consume(large(&number.to_string())).await.unwrap();
    }
    // A record larger than the read-ahead is read alone.
    consumer
        .consume(request(&"y".repeat(3 * MIB), 1))
        .await
        .unwrap();
    until(|| next_hop.accepted.lock().unwrap().len() == 21).await;
}

#[tokio::test(start_paused = true)]
async fn bytes_shared_by_disk_queues_count_once() {
    let directory = tempfile::tempdir().unwrap();
    let process = with_budget(&directory, 64 * MIB);
    let deaf: Arc<dyn Sender> = Arc::new(Deaf);
    let terminals = ["one", "other"].map(|id| process.terminal_of(id, without_timeout(), &deaf));
    let mut batch = large("a");
    batch.hold(process.host.budget.acquire(batch.bytes()).unwrap());
    let bytes = batch.bytes();
    for terminal in &terminals {
        let consumer = terminal.inputs.get(Signal::Traces).unwrap();
        consumer.consume(batch.clone()).await.unwrap();
    }
    drop(batch);
    until(|| terminals.iter().all(|one| !one.component.idle())).await;
    assert_eq!(process.host.budget.used(), bytes);
}

#[tokio::test(start_paused = true)]
async fn full_budget_makes_dropping_queue_drop() {
    let queue = QueueConfig {
        queue_size: 1 << 30,
        sizer: Some(Sizer::Bytes),
        drop_on_overflow: true,
        ..QueueConfig::default()
    };
    let bench = Bench::new(settings(queue), SECS(0), unavailable);
    bench.budget.reset_limit(4 * MIB);
    for number in 0..40 {
        let mut batch = large(&number.to_string());
        batch.hold(bench.budget.acquire(batch.bytes()).unwrap());
        bench.consume(batch).await.unwrap();
    }
    assert!(bench.account()["queue_full"] > 30);
}

#[tokio::test(start_paused = true)]
async fn failing_records_become_dead_letters() {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::new(&directory);
    let queue = QueueConfig {
        num_consumers: 2,
        ..QueueConfig::default()
    };
    let mut exporter = process.exporter(queue, |names| {
        match names.iter().any(|name| name.starts_with("poison")) {
            true => unavailable(names),
            false => accept(names),
        }
    });
    let began = Instant::now();
    // More records than consumers.
    for number in 0..5 {
        let batch = request(&format!("poison{number}"), 2);
        exporter.consume(batch).await.unwrap();
    }
    exporter.consume(request("good", 1)).await.unwrap();
    until(|| exporter.accepted() == ["good-0"]).await;
    let buried = || process.account().get("dead_letter").copied();
    let mut good = 1;
    while buried() != Some(10) {
        assert!(good < 10_000, "{:?}", process.account());
        exporter.consume(request("more", 1)).await.unwrap();
        good += 1;
        sleep(SECS(10)).await;
    }
    assert!(
        began.elapsed() >= SECS(3600),
        "not before they have failed for long"
    );
    until(|| exporter.idle()).await;
    // The records are on disk, so nothing is lost.
    assert_eq!(exporter.shutdown().await, Undelivered::default());
    let expected = [
        ("received", 10 + good),
        ("delivered", good),
        ("dead_letter", 10),
    ];
    assert_eq!(process.account(), account(&expected));
    let name = QueueName {
        exporter: "test".parse().unwrap(),
        signal: Signal::Traces,
    };
    let letters = directory.path().join(name.directory() + ".dead_letters");
    let found = inspect(&letters).unwrap().found;
    assert_eq!((found.records, found.items), (5, 10));
}

#[tokio::test(start_paused = true)]
async fn bad_record_of_merged_batch_is_dropped_alone() {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::new(&directory);
    let queue = QueueConfig {
        batch: Section(Some(BatchConfig::default())),
        ..QueueConfig::default()
    };
    let exporter = process.exporter(queue, |names| {
        match names.iter().any(|name| name.starts_with("poison")) {
            true => unavailable(names),
            false => accept(names),
        }
    });
    for name in ["a", "poison", "b", "c"] {
        exporter.consume(request(name, 1)).await.unwrap();
    }
    let missing = || {
        let accepted = exporter.accepted();
        ["a-0", "b-0", "c-0"]
            .iter()
            .any(|name| !accepted.contains(&(*name).to_owned()))
    };
    let mut more = 0;
    while missing() {
        assert!(more < 10_000, "{:?}", exporter.accepted());
        exporter.consume(request("more", 1)).await.unwrap();
        more += 1;
        sleep(SECS(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn total_outage_creates_no_dead_letters() {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::new(&directory);
    let back = Instant::now() + SECS(6 * 3600);
    let queue = QueueConfig {
        num_consumers: 1,
        ..QueueConfig::default()
    };
    let exporter = process.exporter(queue, move |names| match Instant::now() < back {
        true => unavailable(names),
        false => accept(names),
    });
    for number in 0..20 {
        exporter
            .consume(request(&number.to_string(), 1))
            .await
            .unwrap();
    }
    sleep(SECS(7 * 3600)).await;
    until(|| exporter.idle()).await;
    assert_eq!(
        process.account(),
        account(&[("received", 20), ("delivered", 20)])
    );
}

#[tokio::test(start_paused = true)]
async fn refused_credentials_drop_no_data() {
    for code in [Code::Unauthenticated, Code::PermissionDenied] {
        let directory = tempfile::tempdir().unwrap();
        let process = Process::new(&directory);
        let renewed = Instant::now() + SECS(900);
        let exporter = process.exporter(QueueConfig::default(), move |names| {
            match Instant::now() < renewed {
                true => Err(SendError::permanent(code, Fault::Elsewhere, "who?")),
                false => accept(names),
            }
        });
        exporter.consume(request("a", 2)).await.unwrap();
        until(|| exporter.idle()).await;
        assert_eq!(exporter.accepted(), ["a-0", "a-1"]);
    }
}

#[tokio::test(start_paused = true)]
async fn exporter_is_unhealthy_from_first_failed_attempt() {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::new(&directory);
    let back = Instant::now() + SECS(60);
    let exporter = process.exporter(QueueConfig::default(), move |names| {
        match Instant::now() < back {
            true => unavailable(names),
            false => accept(names),
        }
    });
    let failing = || process.host.health.failing(Duration::ZERO).len();
    assert_eq!(failing(), 0);
    exporter.consume(request("a", 1)).await.unwrap();
    until(|| exporter.attempts() == 1).await;
    sleep(MS(1)).await;
    assert_eq!(failing(), 1);
    until(|| exporter.idle()).await;
    assert_eq!(failing(), 0);
    let failed = format!(
        "tributary_exporter_failed_attempts{{exporter=\"test\",data_type=\"traces\"}} {}",
        exporter.attempts() - 1
    );
    let rendered = process.metrics.render();
    assert!(rendered.lines().any(|line| line == failed), "{rendered}");
}
