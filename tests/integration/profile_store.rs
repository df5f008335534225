//! `profile_store`: acknowledged profiles are stored exactly once, however the collector ends.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use prost::Message as _;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tributary_profile_store::{ProfileStore, ProfileStoreOptions, Query};
use tributary_profiles::folded;

use crate::harness::collector::BINARY;
use crate::harness::{Client, Collector, Oracle, Telemetry, within};

fn config(directory: &Path, more: &str) -> String {
    let directory = directory.display();
    format!(
        "receivers:
  otlp:
    protocols:
      grpc: {{endpoint: '127.0.0.1:0'}}
      http: {{endpoint: '127.0.0.1:0'}}
exporters:
  profile_store: {{directory: '{directory}'{more}}}
service:
  pipelines:
    profiles: {{receivers: [otlp], exporters: [profile_store]}}
"
    )
}

/// Folded stacks of a request: a stack of all requests, and a stack of this request only.
fn stacks(number: &str) -> String {
    format!("main;work 2\nmain;request_{number} 3\n")
}

fn request(number: &str) -> Telemetry {
    let encoded = folded::read(&stacks(number)).unwrap().encode();
    Telemetry::Profiles(ExportProfilesServiceRequest::decode(encoded).unwrap())
}

/// Sends until the collector has ended. Returns the numbers of the sent and of the acknowledged requests.
async fn send_until_the_end(
    client: Client,
    name: String,
    count: watch::Sender<usize>,
) -> (Vec<String>, Vec<String>) {
    let (mut sent, mut acknowledged) = (Vec::new(), Vec::new());
    for at in 0.. {
        let number = format!("{name}_{at}");
        sent.push(number.clone());
        match client.send(&request(&number)).await {
            Ok(()) => {
                acknowledged.push(number);
                count.send_modify(|count| *count += 1);
            }
            Err(_) => break,
        }
    }
    (sent, acknowledged)
}

/// Folded stacks of all profiles in a store that no collector uses.
fn stored(directory: &Path) -> String {
    let (store, _) = ProfileStore::open(ProfileStoreOptions::new(directory)).unwrap();
    let query = Query {
        range: 0..u64::MAX,
        ..Query::default()
    };
    let answer = store.merge(&query).unwrap();
    answer.map_or(String::new(), |answer| answer.folded())
}

fn numbers(stacks: &str) -> BTreeMap<String, u64> {
    let lines = stacks.lines();
    let own = lines.filter_map(|line| line.strip_prefix("main;request_")?.split_once(' '));
    own.map(|(number, value)| (number.to_owned(), value.parse().unwrap()))
        .collect()
}

#[tokio::test]
async fn stored_profiles_survive_kills_with_exact_totals() {
    let directory = TempDir::new().unwrap();
    let place = directory.path().join("store");
    let config = config(&place, "");
    let (mut sent, mut acknowledged) = (BTreeSet::new(), BTreeSet::new());
    for (round, least) in [1, 20, 60, 7].into_iter().enumerate() {
        let (count, mut counted) = watch::channel(0);
        let collector = Collector::start(&config).await;
        let mut clients = JoinSet::new();
        for number in 0..4 {
            let name = format!("{round}_{number}");
            let client = Client::grpc(&name, collector.grpc(), &Oracle::default()).await;
            clients.spawn(send_until_the_end(client, name, count.clone()));
        }
        let enough = counted.wait_for(|count| *count >= least);
        within("acknowledged requests", enough).await.unwrap();
        collector.signal("KILL");
        while let Some(outcome) = clients.join_next().await {
            let (of_client, taken) = outcome.unwrap();
            sent.extend(of_client);
            acknowledged.extend(taken);
        }
    }
    let collector = Collector::start(&config).await;
    let client = Client::grpc("last", collector.grpc(), &Oracle::default()).await;
    client.send(&request("last")).await.unwrap();
    sent.insert("last".to_owned());
    acknowledged.insert("last".to_owned());
    let metrics = collector.assert_conservation().await;
    assert_eq!(metrics.sum("tributary_exporter_dropped_items", &[]), 0.0);
    assert!(collector.terminate().await.status.success());

    let found = stored(&place);
    let numbers = numbers(&found);
    for number in &acknowledged {
        assert_eq!(numbers.get(number), Some(&3), "{number}");
    }
    // A request whose acknowledgement was lost may be stored, at most once.
    assert!(numbers.values().all(|value| *value == 3));
    assert!(numbers.keys().all(|number| sent.contains(number)));
    let mut merge = Command::new(BINARY);
    merge.args(["profiles", "merge", "--to", "folded"]);
    for number in numbers.keys() {
        let file = directory.path().join(format!("{number}.otlp"));
        std::fs::write(&file, request(number).encode()).unwrap();
        merge.arg(file);
    }
    let merged = merge.output().unwrap();
    assert!(merged.status.success(), "{merged:?}");
    assert_eq!(String::from_utf8(merged.stdout).unwrap(), found);
}

#[tokio::test]
async fn reload_changes_settings_while_clients_send() {
    let directory = TempDir::new().unwrap();
    let place = directory.path().join("store");
    let collector = Collector::start(&config(&place, "")).await;
    let client = Client::grpc("a", collector.grpc(), &Oracle::default()).await;
    for round in 0..4 {
        for at in 0..5 {
            client
                .send_until_acknowledged(&request(&format!("{round}_{at}")))
                .await;
        }
        let more = format!(", max_disk: {}MiB, labels: [zone_{round}]", 100 + round);
        collector.reload(&config(&place, &more)).await.unwrap();
    }
    // A refused configuration leaves the store unchanged.
    let wrong = config(&place, ", labels: [service.name]");
    collector.reload(&wrong).await.unwrap_err();
    client.send_until_acknowledged(&request("last")).await;
    let metrics = collector.assert_conservation().await;
    assert_eq!(metrics.sum("tributary_exporter_dropped_items", &[]), 0.0);
    assert!(collector.terminate().await.status.success());
    let numbers = numbers(&stored(&place));
    assert_eq!(numbers.len(), 21);
    assert!(numbers.values().all(|value| *value == 3));
}

#[tokio::test]
async fn profiles_older_than_the_retention_are_counted_as_dropped() {
    let directory = TempDir::new().unwrap();
    let collector = Collector::start(&config(directory.path(), ", retention: 1h")).await;
    let client = Client::http("a", collector.http(), &Oracle::default());
    // The time of the profiles is in 2023.
    let old = client.request(crate::harness::Signal::Profiles, 7);
    client.send(&old).await.unwrap();
    client.send(&request("new")).await.unwrap();
    let counted = |metrics: &crate::harness::metrics::Metrics| {
        let name = "tributary_exporter_profile_store_dropped_samples";
        metrics.sum(name, &[("reason", "too_old")]) == 7.0
    };
    collector
        .wait_for_metrics("samples that are too old", counted)
        .await;
    let metrics = collector.assert_conservation().await;
    let dropped = metrics.sum("tributary_exporter_dropped_items", &[]);
    assert_eq!(dropped, 7.0);
    assert!(collector.terminate().await.status.success());
}
