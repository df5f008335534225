use tempfile::TempDir;

use super::*;
use crate::component::Host;
use crate::pipeline::batch::{Batch, Nack};
use crate::testing::{Recorded, problems};
use tributary_profile_store::Query;
use tributary_profiles::folded;

const SECOND: u64 = 1_000_000_000;

/// A request of folded stacks, with a time in nanoseconds since 1970.
fn request(stacks: &str, time: u64) -> Bytes {
    let mut profiles = folded::read(stacks).unwrap();
    profiles.resources[0].scopes[0].profiles[0].header.time = time;
    profiles.encode()
}

fn batch(stacks: &str, time: u64) -> Batch {
    let items = stacks.lines().count();
    Batch::new(Signal::Profiles, items, request(stacks, time))
}

fn config(directory: &TempDir, more: &str) -> Config {
    let path = directory.path().join("store");
    let yaml = format!("{{directory: '{}'{more}}}", path.display());
    serde_yaml::from_str(&yaml).unwrap()
}

fn built(config: &Config, host: &Host) -> Terminal {
    let cx = host.context(&"profile_store".parse().unwrap());
    let mut terminal = config.build(&cx, &[Signal::Profiles]).unwrap();
    terminal.component.start();
    terminal
}

async fn send(terminal: &Terminal, batch: Batch) -> Result<(), Nack> {
    let consumer = terminal.inputs.get(Signal::Profiles).unwrap();
    consumer.consume(batch).await
}

async fn stop(terminal: Terminal) {
    let deadline = Instant::now() + Duration::from_secs(10);
    let undelivered = terminal.component.shutdown(deadline).await;
    assert_eq!(undelivered, Undelivered::default());
}

fn all() -> Query {
    Query {
        range: 0..u64::MAX,
        ..Query::default()
    }
}

fn stacks(host: &Host) -> String {
    let store = host.profile_stores.get("profile_store").unwrap();
    let answer = store.merge(&all()).unwrap();
    answer.map_or(String::new(), |answer| answer.folded())
}

#[tokio::test]
async fn acknowledged_profiles_survive_restart() {
    let directory = TempDir::new().unwrap();
    let host = Host::for_tests();
    let recorded = Recorded::new();
    let config = config(&directory, "");
    let terminal = recorded.within(|| built(&config, &host));
    send(&terminal, batch("main;a 1\n", 0)).await.unwrap();
    assert_eq!(stacks(&host), "main;a 1\n");
    send(&terminal, batch("main;a 2\nmain 3\n", 0))
        .await
        .unwrap();
    assert_eq!(stacks(&host), "main 3\nmain;a 3\n");
    assert_eq!(recorded.items("delivered", Signal::Profiles), 3);
    stop(terminal).await;
    assert!(host.profile_stores.get("profile_store").is_none());
    let terminal = built(&config, &host);
    assert_eq!(stacks(&host), "main 3\nmain;a 3\n");
    stop(terminal).await;
}

#[tokio::test]
async fn profiles_beyond_the_retention_are_dropped_and_counted() {
    let directory = TempDir::new().unwrap();
    let host = Host::for_tests();
    let recorded = Recorded::new();
    let config = config(&directory, ", retention: 1h");
    let terminal = recorded.within(|| built(&config, &host));
    let old = now() - 2 * 3600 * SECOND;
    send(&terminal, batch("main 1\nmain;a 1\n", old))
        .await
        .unwrap();
    assert_eq!(stacks(&host), "");
    assert_eq!(recorded.items("dropped", Signal::Profiles), 2);
    stop(terminal).await;
    assert_eq!(
        recorded.sum("tributary_exporter_profile_store_dropped_samples"),
        2.0
    );
}

#[tokio::test]
async fn reload_hands_the_open_store_on_with_new_settings() {
    let directory = TempDir::new().unwrap();
    let host = Host::for_tests();
    let before = built(&config(&directory, ""), &host);
    send(&before, batch("main;a 1\n", 0)).await.unwrap();
    let after = built(
        &config(&directory, ", retention: 2h, max_disk: 1GiB"),
        &host,
    );
    let store = host.profile_stores.get("profile_store").unwrap();
    assert_eq!(store.options().retention, Duration::from_secs(7200));
    // The old configuration finishes its backlog.
    send(&before, batch("main;a 2\n", 0)).await.unwrap();
    send(&after, batch("main;a 4\n", 0)).await.unwrap();
    stop(before).await;
    assert_eq!(stacks(&host), "main;a 7\n");
    send(&after, batch("main;a 8\n", 0)).await.unwrap();
    assert_eq!(stacks(&host), "main;a 15\n");
    stop(after).await;
}

#[tokio::test]
async fn unstarted_configuration_changes_no_setting() {
    let directory = TempDir::new().unwrap();
    let host = Host::for_tests();
    let running = built(&config(&directory, ""), &host);
    let cx = host.context(&"profile_store".parse().unwrap());
    let rejected = config(&directory, ", retention: 1h");
    drop(rejected.build(&cx, &[Signal::Profiles]).unwrap());
    let store = host.profile_stores.get("profile_store").unwrap();
    assert_eq!(store.options().retention, Duration::from_secs(24 * 3600));
    drop(store);
    stop(running).await;
}

#[tokio::test]
async fn request_without_memory_is_refused_before_decoding() {
    let directory = TempDir::new().unwrap();
    let host = Host {
        budget: Budget::new(1 << 20),
        ..Host::for_tests()
    };
    let terminal = built(&config(&directory, ""), &host);
    let store = host.profile_stores.get("profile_store").unwrap();
    assert_eq!(store.options().max_memory, LEAST_MEMORY);
    let held = host.budget.output_permit();
    let mut held = held;
    held.grow(host.budget.limit() + host.budget.output_reserve() - 100)
        .unwrap();
    let refused = send(&terminal, batch("main;a 1\n", 0)).await.unwrap_err();
    assert!(refused.retryable, "{refused:?}");
    drop(held);
    send(&terminal, batch("main;a 1\n", 0)).await.unwrap();
    drop(store);
    stop(terminal).await;
    assert_eq!(host.budget.used(), 0);
}

#[tokio::test]
async fn request_above_the_limit_of_the_store_is_split() {
    let directory = TempDir::new().unwrap();
    let host = Host::for_tests();
    let recorded = Recorded::new();
    let config = config(&directory, ", max_memory: 1MiB");
    let terminal = recorded.within(|| built(&config, &host));
    let stacks: String = (0..4000).map(|at| format!("main;f{at:050} 1\n")).collect();
    assert!(request(&stacks, 0).len() > 128 << 10);
    send(&terminal, batch(&stacks, 0)).await.unwrap();
    assert_eq!(recorded.items("delivered", Signal::Profiles), 4000);
    let store = host.profile_stores.get("profile_store").unwrap();
    let totals = store.totals(&all(), Duration::MAX, Some(&[])).unwrap();
    let sum: i64 = totals[0].points.iter().map(|(_, value)| value).sum();
    assert_eq!(sum, 4000);
    drop(store);
    stop(terminal).await;
}

#[tokio::test]
async fn disk_error_refuses_request() {
    let error = send_error(StoreAppendError::Disk("no space left on device".to_owned()));
    assert!(error.retryable, "{error:?}");
    let error = send_error(StoreAppendError::TooLarge(2, 1));
    assert!(!error.retryable && error.fault == Fault::Size, "{error:?}");
}

#[test]
fn unusable_settings_are_refused() {
    let wrong = [
        ("{}", "directory"),
        ("{directory: a, max_memory: 1KiB}", "max_memory"),
        ("{directory: a, max_disk: 1KiB}", "max_disk"),
        ("{directory: a, retention: 1s}", "retention"),
        ("{directory: a, labels: [a.b, a_b]}", "labels"),
        ("{directory: a, labels: [service.name]}", "labels"),
    ];
    for (yaml, key) in wrong {
        let found = problems::<Config>(yaml);
        assert!(
            found.len() == 1 && found[0].contains(key),
            "{yaml}: {found:?}"
        );
    }
    assert!(problems::<Config>("{directory: a, labels: [k8s.pod.name]}").is_empty());
}
