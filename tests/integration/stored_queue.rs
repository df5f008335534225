//! Persistent queue: acknowledged data arrives despite failures of the process, the next hop and
//! the disk.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::harness::collector::BINARY;
use crate::harness::parquet;
use crate::harness::{
    Answer, Backend, Client, Collector, Oracle, Refusal, Signal, grpc_to, http_to, yaml,
};

/// All signals to one exporter with a queue in `directory`.
fn stored(directory: &Path, exporter: (&str, &str), more: &str) -> String {
    let directory = directory.display();
    let storage = format!("extensions:\n  file_storage: {{directory: '{directory}'{more}}}\n");
    let yaml = yaml(&[], &[exporter]);
    storage + &yaml.replace("service:\n", "service:\n  extensions: [file_storage]\n")
}

const QUEUE: &str = "sending_queue: {storage: file_storage, sizer: bytes, queue_size: 50000000}";

fn queue(arguments: &[&str]) -> Output {
    let mut command = Command::new(BINARY);
    command.arg("queue").args(arguments).output().unwrap()
}

fn text(output: &Output) -> String {
    let both = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    String::from_utf8(both).unwrap()
}

fn traces(directory: &TempDir, exporter: &str) -> PathBuf {
    directory.path().join(format!("exporter_{exporter}_traces"))
}

fn segments(queue: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(queue)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut segments: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|end| end == "segment"))
        .collect();
    segments.sort();
    segments
}

/// Sends all signals until the collector is gone.
async fn send_until_the_end(client: Client) {
    for round in 0.. {
        let signal = Signal::ALL[round % Signal::ALL.len()];
        if client.send(&client.request(signal, 5)).await.is_err() {
            return;
        }
    }
}

/// Repeatedly kills collectors of this configuration, while they receive all signals and the next hop refuses most
/// requests.
async fn kill_often(config: &str, backend: &Backend) -> Oracle {
    let oracle = Oracle::default();
    for round in 0..5 {
        let collector = Collector::start(config).await;
        let mut clients = JoinSet::new();
        for number in 0..4 {
            let client =
                Client::grpc(&format!("{round}-{number}"), collector.grpc(), &oracle).await;
            clients.spawn(send_until_the_end(client));
        }
        // The kill may happen at any time after an acknowledgement.
        let before = oracle.acknowledged_count();
        while oracle.acknowledged_count() <= before + fastrand::usize(0..200) {
            tokio::task::yield_now().await;
        }
        collector.signal("KILL");
        while clients.join_next().await.is_some() {}
    }
    backend.always(Answer::Accept);
    oracle
}

#[tokio::test]
async fn acknowledged_items_survive_kills_and_dead_next_hop() {
    for fsync in ["always", "interval", "never"] {
        let (backend, directory) = (Backend::start().await, TempDir::new().unwrap());
        backend.always(Answer::Refuse(Refusal::UNAVAILABLE));
        let exporter = grpc_to(&backend, QUEUE);
        let config = stored(
            directory.path(),
            ("otlp_grpc", &exporter),
            &format!(", fsync: {fsync}"),
        );
        let oracle = kill_often(&config, &backend).await;
        let collector = Collector::start(&config).await;
        oracle.wait_for_delivery(&backend).await;
        let metrics = collector.assert_conservation().await;
        assert!(
            metrics.sum("tributary_exporter_recovered_items", &[])
                >= oracle.acknowledged_count() as f64
        );
        assert_eq!(metrics.sum("tributary_exporter_dropped_items", &[]), 0.0);
        assert_eq!(metrics.sum("tributary_storage_damaged_blocks", &[]), 0.0);
        assert!(collector.terminate().await.status.success());
    }
}

#[tokio::test]
async fn batch_before_queue_on_disk_acknowledges_after_persist() {
    let (backend, directory) = (Backend::start().await, TempDir::new().unwrap());
    backend.always(Answer::Refuse(Refusal::UNAVAILABLE));
    let exporter = grpc_to(&backend, QUEUE);
    let directory = directory.path().display();
    let config = yaml(&[("batch", "{timeout: 10s}")], &[("otlp_grpc", &exporter)]);
    let config = format!("extensions:\n  file_storage: {{directory: '{directory}'}}\n")
        + &config.replace("service:\n", "service:\n  extensions: [file_storage]\n");
    let oracle = kill_often(&config, &backend).await;
    let collector = Collector::start(&config).await;
    oracle.wait_for_delivery(&backend).await;
    collector.assert_conservation().await;
}

#[tokio::test]
async fn connector_queue_keeps_batches_until_forwarded() {
    let (backend, directory) = (Backend::start().await, TempDir::new().unwrap());
    // Some records are delivered before the kill, and must not be delivered again.
    let mut requests = 0;
    backend.script(move |_| {
        requests += 1;
        match requests % 5 {
            0 => Answer::Accept,
            _ => Answer::Refuse(Refusal::UNAVAILABLE),
        }
    });
    let exporter = grpc_to(&backend, "");
    let directory = directory.path().display();
    let config = format!(
        "extensions:
  file_storage: {{directory: '{directory}'}}
receivers:
  otlp:
    protocols:
      grpc: {{endpoint: '127.0.0.1:0'}}
      http: {{endpoint: '127.0.0.1:0'}}
connectors:
  forward: {{{QUEUE}}}
processors:
  compression: {{mode: aggregate, interval: 300ms}}
  log_dedup: {{interval: 300ms}}
  batch: {{timeout: 300ms}}
exporters:
  otlp_grpc: {exporter}
service:
  extensions: [file_storage]
  pipelines:
    traces/in: {{receivers: [otlp], exporters: [forward]}}
    metrics/in: {{receivers: [otlp], exporters: [forward]}}
    logs/in: {{receivers: [otlp], exporters: [forward]}}
    profiles/in: {{receivers: [otlp], exporters: [forward]}}
    traces: {{receivers: [forward], processors: [batch], exporters: [otlp_grpc]}}
    metrics: {{receivers: [forward], exporters: [otlp_grpc]}}
    logs: {{receivers: [forward], processors: [log_dedup, batch], exporters: [otlp_grpc]}}
    profiles: {{receivers: [forward], processors: [compression, batch], exporters: [otlp_grpc]}}
"
    );
    let oracle = kill_often(&config, &backend).await;
    // Data in windows of an hour is forwarded at once when the collector shuts down.
    let long = config.replace("300ms", "1h");
    let collector = Collector::start(&long).await;
    let client = Client::grpc("last", collector.grpc(), &oracle).await;
    for signal in Signal::ALL {
        client.send(&client.request(signal, 5)).await.unwrap();
    }
    let ended = collector.terminate().await;
    assert!(ended.status.success(), "nothing is lost");
    let collector = Collector::start(&config).await;
    oracle.wait_for_delivery(&backend).await;
    let metrics = collector.assert_conservation().await;
    assert_eq!(metrics.sum("tributary_exporter_dropped_items", &[]), 0.0);
    assert!(collector.terminate().await.status.success());
    let left = queue(&["inspect", &directory.to_string()]);
    assert!(left.status.success());
    let left = text(&left);
    assert_eq!(left.matches("waiting: 0 records").count(), 4, "{left}");
}

#[tokio::test]
async fn stop_with_dead_next_hop_loses_and_duplicates_nothing() {
    let (backend, directory) = (Backend::start().await, TempDir::new().unwrap());
    let exporter = http_to(&backend, QUEUE);
    let config = stored(directory.path(), ("otlp_http", &exporter), "");
    let oracle = Oracle::default();
    for round in 0..3 {
        let collector = Collector::start(&config).await;
        let client = Client::http(&round.to_string(), collector.http(), &oracle);
        backend.always(Answer::Accept);
        client
            .send(&client.request(Signal::Logs, 10))
            .await
            .unwrap();
        oracle.wait_for_delivery(&backend).await;
        collector.assert_conservation().await;
        backend.always(Answer::Refuse(Refusal::UNAVAILABLE));
        client
            .send(&client.request(Signal::Logs, 10))
            .await
            .unwrap();
        let ended = collector.terminate().await;
        assert!(ended.status.success(), "nothing is lost");
    }
    backend.always(Answer::Accept);
    let collector = Collector::start(&config).await;
    assert_eq!(
        oracle.wait_for_delivery(&backend).await,
        0,
        "nothing came twice"
    );
    assert!(collector.terminate().await.status.success());
}

#[tokio::test]
async fn reload_keeps_queue_and_unused_queue_is_drained() {
    let (backend, directory) = (Backend::start().await, TempDir::new().unwrap());
    backend.always(Answer::Refuse(Refusal::UNAVAILABLE));
    let other = Backend::start().await;
    let oracle = Oracle::default();
    let config = |name, backend: &Backend| {
        let exporter = grpc_to(backend, QUEUE);
        stored(directory.path(), (name, &exporter), "")
    };
    let collector = Collector::start(&config("otlp_grpc", &backend)).await;
    let client = Client::grpc("client", collector.grpc(), &oracle).await;
    client
        .send(&client.request(Signal::Traces, 10))
        .await
        .unwrap();
    collector
        .reload(&config("otlp_grpc", &other))
        .await
        .unwrap();
    oracle.wait_for_delivery(&other).await;
    collector.assert_conservation().await;

    other.always(Answer::Refuse(Refusal::UNAVAILABLE));
    client
        .send(&client.request(Signal::Traces, 7))
        .await
        .unwrap();
    assert!(collector.terminate().await.status.success());
    let collector = Collector::start(&config("otlp_grpc/renamed", &other)).await;
    let message = "This queue on disk has a backlog, but no exporter uses it.";
    let line = collector
        .wait_for_line(message, 0, |line| line.message().starts_with(message))
        .await;
    assert_eq!(line.field("otelcol.component.id"), "otlp_grpc");
    assert_eq!(line.number("items"), 7);
    other.always(Answer::Accept);
    let path = traces(&directory, "otlp_grpc");
    let endpoint = format!("http://{}", collector.http());
    let drained = queue(&["drain", path.to_str().unwrap(), "--endpoint", &endpoint]);
    assert!(drained.status.success(), "{}", text(&drained));
    assert!(
        text(&drained).contains("with 7 items; 0 records"),
        "{}",
        text(&drained)
    );
    oracle.wait_for_delivery(&other).await;
    assert!(collector.terminate().await.status.success());
}

#[tokio::test]
async fn drain_uses_the_exporter_of_a_configuration() {
    let (backend, directory) = (Backend::start().await, TempDir::new().unwrap());
    backend.always(Answer::Refuse(Refusal::UNAVAILABLE));
    let oracle = Oracle::default();
    let exporter = grpc_to(&backend, QUEUE);
    let config = stored(directory.path(), ("otlp_grpc/old", &exporter), "");
    let collector = Collector::start(&config).await;
    let client = Client::grpc("client", collector.grpc(), &oracle).await;
    for items in [3, 4] {
        let request = client.request(Signal::Traces, items);
        client.send(&request).await.unwrap();
    }
    assert!(collector.terminate().await.status.success());

    let file = directory.path().join("collector.yaml");
    fs::write(&file, &config).unwrap();
    let path = traces(&directory, "otlp_grpc~002Fold");
    // The backend runs on this thread.
    let drain = |exporter: &'static str| {
        let (path, file) = (path.clone(), file.clone());
        tokio::task::spawn_blocking(move || {
            let (path, file) = (path.to_str().unwrap(), file.to_str().unwrap());
            queue(&["drain", path, "--config", file, "--exporter", exporter])
        })
    };
    let unknown = drain("otlp_grpc/new").await.unwrap();
    assert!(!unknown.status.success());
    let message = "the configuration has no exporter `otlp_grpc/new`";
    assert!(text(&unknown).contains(message), "{}", text(&unknown));

    backend.always(Answer::Accept);
    let drained = drain("otlp_grpc/old").await.unwrap();
    assert!(drained.status.success(), "{}", text(&drained));
    assert!(text(&drained).contains("7 items; 0 records"));
    assert_eq!(oracle.wait_for_delivery(&backend).await, 0);
}

#[tokio::test]
async fn reload_delivers_more_than_the_read_ahead_at_once() {
    let (backend, directory) = (Backend::start().await, TempDir::new().unwrap());
    backend.always(Answer::Refuse(Refusal::UNAVAILABLE));
    let other = Backend::start().await;
    let oracle = Oracle::default();
    let config = |backend: &Backend| {
        // At most ten requests of this queue are read ahead.
        let queue = "sending_queue: {storage: file_storage, queue_size: 20, overflow: drop_oldest}";
        stored(
            directory.path(),
            ("otlp_grpc", &grpc_to(backend, queue)),
            "",
        )
    };
    let collector = Collector::start(&config(&backend)).await;
    let client = Client::grpc("client", collector.grpc(), &oracle).await;
    for _ in 0..20 {
        client
            .send(&client.request(Signal::Traces, 5))
            .await
            .unwrap();
    }
    collector.reload(&config(&other)).await.unwrap();
    oracle.wait_for_delivery(&other).await;
    collector.assert_conservation().await;
    assert!(collector.terminate().await.status.success());
}

#[tokio::test]
async fn flipped_bit_on_disk_loses_its_block_and_is_reported() {
    let (backend, directory) = (Backend::start().await, TempDir::new().unwrap());
    backend.always(Answer::Refuse(Refusal::UNAVAILABLE));
    let exporter = grpc_to(&backend, QUEUE);
    let config = stored(directory.path(), ("otlp_grpc", &exporter), "");
    let oracle = Oracle::default();
    let collector = Collector::start(&config).await;
    let client = Client::grpc("client", collector.grpc(), &oracle).await;
    for _ in 0..20 {
        // Sent one by one, so that each is a block.
        client
            .send(&client.request(Signal::Traces, 5))
            .await
            .unwrap();
    }
    assert!(collector.terminate().await.status.success());
    let queue_path = traces(&directory, "otlp_grpc");
    let segment = segments(&queue_path).remove(0);
    let mut bytes = fs::read(&segment).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&segment, bytes).unwrap();
    let inspected = queue(&["inspect", directory.path().to_str().unwrap()]);
    assert_eq!(inspected.status.code(), Some(1));
    assert!(
        text(&inspected).contains("lost: 1 records"),
        "{}",
        text(&inspected)
    );
    let inspected = queue(&["inspect", "--json", directory.path().to_str().unwrap()]);
    assert_eq!(inspected.status.code(), Some(1));
    let described: serde_json::Value = serde_json::from_slice(&inspected.stdout).unwrap();
    let mut all = described.as_array().unwrap().iter();
    let described = all.find(|queue| queue["signal"] == "traces").unwrap();
    assert_eq!(described["exporter"], "otlp_grpc");
    assert_eq!(
        (
            &described["records"],
            &described["items"],
            &described["lost_records"]
        ),
        (&19.into(), &95.into(), &1.into())
    );
    assert_eq!(described["damaged"].as_array().unwrap().len(), 1);
    assert!(described["oldest_age_seconds"].is_u64(), "{described}");
    let exported = directory.path().join("export.json");
    let arguments = [
        "export",
        queue_path.to_str().unwrap(),
        "--output",
        exported.to_str().unwrap(),
    ];
    let said = queue(&arguments);
    assert_eq!(said.status.code(), Some(1));
    assert!(
        text(&said).contains("1 records in 1 damaged blocks are lost"),
        "{}",
        text(&said)
    );
    assert_eq!(fs::read_to_string(&exported).unwrap().lines().count(), 19);
    backend.always(Answer::Accept);
    let collector = Collector::start(&config).await;
    collector
        .wait_for("Skipped a damaged block of a queue on disk.")
        .await;
    let metrics = collector.assert_conservation().await;
    assert_eq!(metrics.sum("tributary_storage_damaged_blocks", &[]), 1.0);
    assert_eq!(oracle.missing(&backend), 5);
    assert_lost(&collector, 1.0).await;
    assert_eq!(collector.terminate().await.status.code(), Some(1));
}

/// Checks that records lost to damage at the start are counted, each as one item.
async fn assert_lost(collector: &Collector, records: f64) {
    let metrics = collector.assert_conservation().await;
    let lost = metrics.sum("tributary_storage_lost_records", &[]);
    let damaged = [("reason", "damaged")];
    let dropped = metrics.sum("tributary_exporter_dropped_items", &damaged);
    assert_eq!((lost, dropped), (records, records));
}

#[tokio::test]
async fn tail_lost_after_a_clean_stop_is_counted() {
    let (backend, directory) = (Backend::start().await, TempDir::new().unwrap());
    backend.always(Answer::Refuse(Refusal::UNAVAILABLE));
    let exporter = grpc_to(&backend, QUEUE);
    let config = stored(directory.path(), ("otlp_grpc", &exporter), "");
    let oracle = Oracle::default();
    let collector = Collector::start(&config).await;
    let client = Client::grpc("client", collector.grpc(), &oracle).await;
    for _ in 0..20 {
        client
            .send(&client.request(Signal::Traces, 5))
            .await
            .unwrap();
    }
    assert!(collector.terminate().await.status.success());
    let segment = segments(&traces(&directory, "otlp_grpc")).pop().unwrap();
    let file = fs::OpenOptions::new().write(true).open(&segment).unwrap();
    file.set_len(file.metadata().unwrap().len() / 2).unwrap();
    backend.always(Answer::Accept);
    let collector = Collector::start(&config).await;
    collector.assert_conservation().await;
    let missing = oracle.missing(&backend);
    assert!(missing > 0, "nothing was cut off");
    assert_lost(&collector, (missing / 5) as f64).await;
    assert_eq!(collector.terminate().await.status.code(), Some(1));
}

#[tokio::test]
async fn second_collector_with_same_directory_is_refused() {
    let (backend, directory) = (Backend::start().await, TempDir::new().unwrap());
    let exporter = grpc_to(&backend, QUEUE);
    let config = stored(
        directory.path(),
        ("otlp_grpc", &exporter),
        ", timeout: 50ms",
    );
    let collector = Collector::start(&config).await;
    let path = directory.path().join("second.yaml");
    fs::write(&path, &config).unwrap();
    let second = Command::new(BINARY)
        .arg("--config")
        .arg(&path)
        .output()
        .unwrap();
    assert_eq!(second.status.code(), Some(1));
    let said = text(&second);
    let owner = format!("in use by another process (process {})", collector.pid());
    assert!(said.contains(&owner), "{said}");
    let drained = queue(&[
        "drain",
        traces(&directory, "otlp_grpc").to_str().unwrap(),
        "--endpoint=http://localhost:1",
    ]);
    assert!(text(&drained).contains(&owner), "{}", text(&drained));
}

/// A separate file system, which the drop unmounts.
struct SmallDisk(TempDir);

impl SmallDisk {
    /// `None` where this user may not mount.
    fn mount(bytes: usize) -> Option<Self> {
        let directory = TempDir::new().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"]);
        let mounted = mount.arg(directory.path()).output();
        mounted
            .is_ok_and(|output| output.status.success())
            .then_some(SmallDisk(directory))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).output();
    }
}

#[tokio::test]
async fn full_disk_refuses_and_loses_nothing_acknowledged() {
    let Some(disk) = SmallDisk::mount(1 << 20) else {
        eprintln!("skipped: this user may not mount a tmpfs");
        return;
    };
    let backend = Backend::start().await;
    backend.always(Answer::Refuse(Refusal::UNAVAILABLE));
    let exporter = grpc_to(&backend, QUEUE);
    let config = stored(
        disk.0.path(),
        ("otlp_grpc", &exporter),
        ", compression: none",
    );
    let oracle = Oracle::default();
    let collector = Collector::start(&config).await;
    let client = Client::grpc("client", collector.grpc(), &oracle).await;
    let refused = loop {
        if let Err(refused) = client.send(&client.request(Signal::Traces, 200)).await {
            break refused;
        }
    };
    assert!(refused.is_retryable(), "{refused:?}");
    assert!(
        refused.message.contains("No space left on device"),
        "{refused:?}"
    );
    backend.always(Answer::Accept);
    oracle.wait_for_delivery(&backend).await;
    client
        .send_until_acknowledged(&client.request(Signal::Traces, 200))
        .await;
    oracle.wait_for_delivery(&backend).await;
    collector.assert_conservation().await;
    assert!(collector.terminate().await.status.success());
}

/// Configuration of a Parquet exporter with a stored queue, whose files stay open.
fn parquet_behind_a_queue(queue: &TempDir, files: &TempDir) -> String {
    let body = format!(
        "{{path: '{}', {QUEUE}, rotation: {{interval: 1h}}}}",
        files.path().display()
    );
    stored(queue.path(), ("parquet", &body), "")
}

/// Number of rows in finished files.
fn finished_rows(files: &TempDir) -> usize {
    parquet::texts(files.path(), "body_type").values().sum()
}

async fn file_is_open(collector: &Collector) {
    let open = "tributary_exporter_parquet_open_files";
    collector
        .wait_for_metrics("the record in an open file", |metrics| {
            metrics.sum(open, &[]) == 1.0
        })
        .await;
}

#[tokio::test]
async fn parquet_acknowledges_stored_record_at_end_of_file() {
    let (directory, files) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let config = parquet_behind_a_queue(&directory, &files);
    let oracle = Oracle::default();
    let collector = Collector::start(&config).await;
    let client = Client::grpc("client", collector.grpc(), &oracle).await;
    client
        .send(&client.request(Signal::Logs, 10))
        .await
        .unwrap();
    collector.signal("KILL");
    collector.ended().await;
    let collector = Collector::start(&config).await;
    file_is_open(&collector).await;
    let ended = collector.terminate().await;
    assert!(ended.status.success());
    let inspected = queue(&["inspect", directory.path().to_str().unwrap()]);
    assert!(
        !text(&inspected).contains("10 log_records"),
        "{}",
        text(&inspected)
    );
    // Acknowledged records are in files at least once. Here they are there exactly once, because no file was finished
    // before the kill.
    assert_eq!(finished_rows(&files), 10);
}

#[tokio::test]
async fn parquet_file_unfinished_at_the_deadline_is_written_later() {
    let (directory, files) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let config = parquet_behind_a_queue(&directory, &files);
    let oracle = Oracle::default();
    let collector = Collector::start_with(&config, &["--drain-timeout=0"]).await;
    let client = Client::grpc("client", collector.grpc(), &oracle).await;
    client
        .send(&client.request(Signal::Logs, 10))
        .await
        .unwrap();
    file_is_open(&collector).await;
    collector.terminate().await;
    // A process may finish the file after the deadline, during its end. Then the next process has nothing to write.
    let is_finished = finished_rows(&files) >= 10;
    let collector = Collector::start(&config).await;
    if !is_finished {
        file_is_open(&collector).await;
    }
    assert!(collector.terminate().await.status.success());
    let rows = finished_rows(&files);
    assert!(rows >= 10, "{rows}");
}
