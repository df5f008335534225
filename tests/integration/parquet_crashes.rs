//! `parquet` without a queue: acknowledged data is in a finished file even if the collector
//! crashes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use opentelemetry_proto::tonic::common::v1::AnyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tempfile::TempDir;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::harness::parquet::{files, texts};
use crate::harness::telemetry::ID;
use crate::harness::{Client, Collector, Oracle, Signal, Telemetry, within, yaml};

/// Returns a request of log records whose bodies are their ids.
fn logs(client: &Client, items: usize) -> Telemetry {
    let Telemetry::Logs(mut request) = client.request(Signal::Logs, items) else {
        panic!("not a request of logs");
    };
    let ids = Telemetry::Logs(request.clone()).ids();
    let scopes = request
        .resource_logs
        .iter_mut()
        .flat_map(|resource| &mut resource.scope_logs);
    let records = scopes.flat_map(|scope| &mut scope.log_records);
    for (number, (record, id)) in records.zip(ids).enumerate() {
        record.body = Some(AnyValue {
            value: Some(Value::StringValue(id)),
        });
        // Items go to several files.
        record.time_unix_nano += number as u64 % 3 * 3_600_000_000_000;
    }
    Telemetry::Logs(request)
}

fn exporter(directory: &TempDir, more: &str) -> String {
    let path = directory.path().display();
    let parquet = format!("{{path: '{path}', sending_queue: {{enabled: false}}{more}}}");
    yaml(&[], &[("parquet", &parquet)])
}

/// Moment at which a collector is killed.
#[derive(Debug, Clone, Copy)]
enum Moment {
    /// After so many requests were acknowledged.
    Acknowledged(usize),
    /// While a file is written.
    Writing,
}

impl Moment {
    /// Waits for this moment of the round.
    async fn come(self, directory: &Path, acknowledged: &mut watch::Receiver<usize>) {
        within(&format!("{self:?}"), async {
            match self {
                Moment::Acknowledged(least) => {
                    acknowledged
                        .wait_for(|count| *count >= least)
                        .await
                        .unwrap();
                }
                Moment::Writing => writing(directory).await,
            }
        })
        .await;
    }
}

/// Waits until a running collector has an unfinished file. The next start removes the unfinished files of a killed
/// collector.
#[allow(
    deprecated,
    reason = "an owned descriptor stays open as long as it is waited for"
)]
async fn writing(directory: &Path) {
    let own = fs::read_dir(directory.join("_unfinished")).unwrap();
    let own = own.map(|entry| entry.unwrap().path());
    // A file may be gone, but the directory exists while the collector runs.
    let own: Vec<_> = own.filter(|path| path.is_dir()).collect();
    let events = inotify::init(CreateFlags::NONBLOCK).unwrap();
    for path in &own {
        inotify::add_watch(&events, path, WatchFlags::CREATE).unwrap();
    }
    let has_file = |path| fs::read_dir(path).unwrap().count() > 1;
    if !own.iter().any(has_file) {
        let _ = AsyncFd::new(events).unwrap().readable().await.unwrap();
    }
}

/// Sends until the collector has ended. Returns the sent and the acknowledged ids.
async fn send_until_the_end(
    client: Client,
    signal: Signal,
    count: watch::Sender<usize>,
) -> (Vec<String>, Vec<String>) {
    let (mut sent, mut acknowledged) = (Vec::new(), Vec::new());
    loop {
        let request = match signal {
            Signal::Logs => logs(&client, 7),
            _ => client.request(signal, 7),
        };
        sent.extend(request.ids());
        match client.send(&request).await {
            Ok(()) => {
                acknowledged.extend(request.ids());
                count.send_modify(|count| *count += 1);
            }
            Err(_) => return (sent, acknowledged),
        }
    }
}

/// Starts a collector several times while clients of all signals send, and kills it at these moments. Returns the sent
/// and the acknowledged ids, by signal.
async fn killed(
    moments: &[Moment],
    signals: &[Signal],
    config: &str,
    directory: &Path,
) -> BTreeMap<Signal, (Vec<String>, Vec<String>)> {
    let mut all: BTreeMap<Signal, (Vec<String>, Vec<String>)> = BTreeMap::new();
    for (round, moment) in moments.iter().enumerate() {
        let (count, mut acknowledged) = watch::channel(0);
        let collector = Collector::start(config).await;
        let mut clients = JoinSet::new();
        for number in 0..4 {
            for signal in signals.iter().copied() {
                let name = format!("{round}-{number}");
                let client = Client::grpc(&name, collector.grpc(), &Oracle::default()).await;
                let count = count.clone();
                clients.spawn(async move {
                    let ids = send_until_the_end(client, signal, count).await;
                    (signal, ids)
                });
            }
        }
        moment.come(directory, &mut acknowledged).await;
        collector.signal("KILL");
        while let Some(outcome) = clients.join_next().await {
            let (signal, (of_client, taken)) = outcome.unwrap();
            let (sent, acknowledged) = all.entry(signal).or_default();
            sent.extend(of_client);
            acknowledged.extend(taken);
        }
    }
    all
}

#[tokio::test]
async fn rows_are_in_files_exactly_once_after_fifty_kills() {
    let directory = TempDir::new().unwrap();
    let config = exporter(
        &directory,
        ", rotation: {interval: 30ms}, row_group: {max_rows: 10}",
    );
    let moments: Vec<Moment> = (0..25)
        .flat_map(|count| [Moment::Acknowledged(count % 13), Moment::Writing])
        .collect();
    let mut all = killed(&moments, &[Signal::Logs], &config, directory.path()).await;
    let (mut sent, acknowledged) = all.remove(&Signal::Logs).unwrap();
    assert!(acknowledged.len() > 100, "{}", acknowledged.len());
    let found = texts(directory.path(), "body");
    for id in &acknowledged {
        assert_eq!(found.get(id), Some(&1), "{id} of {}", acknowledged.len());
    }
    // Data that was not acknowledged may be present, in whole batches of an hour, but never twice.
    for (id, times) in &found {
        assert_eq!(*times, 1, "{id}");
    }
    sent.sort();
    assert!(found.keys().all(|id| sent.binary_search(id).is_ok()));
    // The next collector removes the unfinished files, and leaves none itself.
    let collector = Collector::start(&config).await;
    assert!(collector.terminate().await.status.success());
    let left = fs::read_dir(directory.path().join("_unfinished")).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["lock"]);
}

#[tokio::test]
async fn acknowledged_rows_of_all_signals_survive_kills_exactly_once() {
    let directory = TempDir::new().unwrap();
    let more = format!(", rotation: {{interval: 50ms}}, promote: {{item: [{ID}]}}");
    let config = exporter(&directory, &more);
    let moments = [1, 5, 9, 20, 40].map(Moment::Acknowledged);
    let all = killed(&moments, &Signal::ALL, &config, directory.path()).await;
    for signal in Signal::ALL {
        let (sent, acknowledged) = &all[&signal];
        assert!(!acknowledged.is_empty(), "{signal}");
        let files = directory.path().join(format!("signal={signal}"));
        let found = texts(&files, "attribute_test_id");
        for id in acknowledged {
            assert_eq!(found.get(id), Some(&1), "{id}");
        }
        for (id, times) in &found {
            assert_eq!(*times, 1, "{id}");
            assert!(sent.contains(id), "{id}");
        }
    }
}

#[tokio::test]
async fn waiting_clients_get_outcome_at_shutdown() {
    let directory = TempDir::new().unwrap();
    let config = exporter(&directory, ", rotation: {interval: 1h}");
    let collector = Collector::start(&config).await;
    let client = Client::grpc("client", collector.grpc(), &Oracle::default()).await;
    let request = logs(&client, 6);
    let ids = request.ids();
    let waiting = tokio::spawn(async move { client.send(&request).await });
    let open = "tributary_exporter_parquet_open_files";
    collector
        .wait_for_metrics("three open files", |metrics| metrics.sum(open, &[]) == 3.0)
        .await;
    assert!(files(directory.path()).is_empty());
    assert!(collector.terminate().await.status.success());
    waiting.await.unwrap().unwrap();
    let found = texts(directory.path(), "body");
    assert_eq!(found.len(), 6);
    assert!(ids.iter().all(|id| found.get(id) == Some(&1)));
}

#[tokio::test]
async fn reload_finishes_files_of_old_configuration_at_once() {
    let directory = TempDir::new().unwrap();
    let queued = |interval: &str| {
        let path = directory.path().display();
        let parquet = format!("{{path: '{path}', rotation: {{interval: {interval}}}}}");
        yaml(&[], &[("parquet", &parquet)])
    };
    let collector = Collector::start(&queued("1h")).await;
    let client = Client::grpc("client", collector.grpc(), &Oracle::default()).await;
    client.send(&logs(&client, 6)).await.unwrap();
    collector.reload(&queued("2h")).await.unwrap();
    let files = "tributary_exporter_parquet_files";
    collector
        .wait_for_metrics("three finished files", |metrics| {
            metrics.sum(files, &[]) == 3.0
        })
        .await;
    assert_eq!(texts(directory.path(), "body").len(), 6);
    client.send(&logs(&client, 6)).await.unwrap();
    assert!(collector.terminate().await.status.success());
    assert_eq!(texts(directory.path(), "body").len(), 12);
}
