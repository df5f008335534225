//! `parquet` without a queue: what is acknowledged is in a finished file, whatever happens to the collector.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use opentelemetry_proto::tonic::common::v1::AnyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::Field;
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::harness::telemetry::ID;
use crate::harness::{Client, Collector, Oracle, Signal, Telemetry, yaml};

/// A request of log records whose bodies are their ids.
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
        // In several files.
        record.time_unix_nano += number as u64 % 3 * 3_600_000_000_000;
    }
    Telemetry::Logs(request)
}

fn parquet_files(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let files = entries.flat_map(|path| match path.is_dir() {
        true => parquet_files(&path),
        false => vec![path],
    });
    files
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "parquet")
        })
        .collect()
}

/// How often each body is in the files.
fn bodies(directory: &Path) -> BTreeMap<String, usize> {
    let mut bodies = BTreeMap::new();
    for path in parquet_files(directory) {
        let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
        for row in reader.get_row_iter(None).unwrap() {
            let row = row.unwrap();
            let mut columns = row.get_column_iter();
            match columns.find(|(name, _)| *name == "body").unwrap().1 {
                Field::Str(body) => *bodies.entry(body.clone()).or_default() += 1,
                other => panic!("not a text: {other:?}"),
            }
        }
    }
    bodies
}

fn exporter(directory: &TempDir, more: &str) -> String {
    let path = directory.path().display();
    let parquet = format!("{{path: '{path}', sending_queue: {{enabled: false}}{more}}}");
    yaml(&[], &[("parquet", &parquet)])
}

/// Sends until the collector is gone. Returns the ids that were sent, and those that were acknowledged.
async fn send_until_the_end(client: Client, signal: Signal) -> (Vec<String>, Vec<String>) {
    let (mut sent, mut acknowledged) = (Vec::new(), Vec::new());
    loop {
        let request = match signal {
            Signal::Logs => logs(&client, 7),
            _ => client.request(signal, 7),
        };
        sent.extend(request.ids());
        match client.send(&request).await {
            Ok(()) => acknowledged.extend(request.ids()),
            Err(_) => return (sent, acknowledged),
        }
    }
}

/// How often each id is in the files of a signal, in the column that [`killed`] promotes it to.
fn ids(directory: &Path, signal: Signal) -> BTreeMap<String, usize> {
    let mut ids = BTreeMap::new();
    for path in parquet_files(&directory.join(format!("signal={signal}"))) {
        let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
        for row in reader.get_row_iter(None).unwrap() {
            let row = row.unwrap();
            let mut columns = row.get_column_iter();
            match columns
                .find(|(name, _)| *name == "attribute_test_id")
                .unwrap()
                .1
            {
                Field::Str(id) => *ids.entry(id.clone()).or_default() += 1,
                other => panic!("not a text: {other:?}"),
            }
        }
    }
    ids
}

/// Starts a collector several times while clients of all signals send, and kills it. Returns the ids that were sent and those that
/// were acknowledged, by signal.
async fn killed(
    rounds: usize,
    signals: &[Signal],
    config: &str,
) -> BTreeMap<Signal, (Vec<String>, Vec<String>)> {
    let mut all: BTreeMap<Signal, (Vec<String>, Vec<String>)> = BTreeMap::new();
    for round in 0..rounds {
        let collector = Collector::start(config).await;
        let mut clients = JoinSet::new();
        for number in 0..4 {
            for signal in signals.iter().copied() {
                let name = format!("{round}-{number}");
                let client = Client::grpc(&name, collector.grpc(), &Oracle::default()).await;
                clients.spawn(async move { (signal, send_until_the_end(client, signal).await) });
            }
        }
        // Any moment is a good one to be killed.
        tokio::time::sleep(Duration::from_millis(fastrand::u64(10..150))).await;
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
async fn every_acknowledged_row_is_in_a_finished_file_exactly_once_after_fifty_kills() {
    let directory = TempDir::new().unwrap();
    let config = exporter(
        &directory,
        ", rotation: {interval: 30ms}, row_group: {max_rows: 10}",
    );
    let mut all = killed(50, &[Signal::Logs], &config).await;
    let (mut sent, acknowledged) = all.remove(&Signal::Logs).unwrap();
    assert!(acknowledged.len() > 100, "{}", acknowledged.len());
    let found = bodies(directory.path());
    for id in &acknowledged {
        assert_eq!(found.get(id), Some(&1), "{id} of {}", acknowledged.len());
    }
    // What was not acknowledged may be there, whole batches of an hour at a time, but never twice.
    for (id, times) in &found {
        assert_eq!(*times, 1, "{id}");
    }
    sent.sort();
    assert!(found.keys().all(|id| sent.binary_search(id).is_ok()));
    // The next one clears up, and leaves nothing itself.
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
    let all = killed(5, &Signal::ALL, &config).await;
    for signal in Signal::ALL {
        let (sent, acknowledged) = &all[&signal];
        assert!(!acknowledged.is_empty(), "{signal}");
        let found = ids(directory.path(), signal);
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
async fn those_who_wait_are_answered_when_the_collector_is_told_to_end() {
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
    assert!(parquet_files(directory.path()).is_empty());
    assert!(collector.terminate().await.status.success());
    waiting.await.unwrap().unwrap();
    let found = bodies(directory.path());
    assert_eq!(found.len(), 6);
    assert!(ids.iter().all(|id| found.get(id) == Some(&1)));
}

#[tokio::test]
async fn a_reload_finishes_the_files_of_the_old_configuration_at_once() {
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
    assert_eq!(bodies(directory.path()).len(), 6);
    client.send(&logs(&client, 6)).await.unwrap();
    assert!(collector.terminate().await.status.success());
    assert_eq!(bodies(directory.path()).len(), 12);
}
