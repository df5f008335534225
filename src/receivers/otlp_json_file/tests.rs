use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::sync::{Arc, Mutex};
use tokio::time::Instant;

use tempfile::TempDir;
use tokio::sync::mpsc;

use super::*;
use crate::component::{Extensions, Host, Services};
use crate::pipeline::Consumer;
use crate::pipeline::batch::{Batch, Nack};
use futures_util::future::BoxFuture;
use tributary_config::{Problems, Validate as _};
use tributary_storage::Storage;

/// Records accepted requests; refuses configured ones, temporarily or permanently.
struct Sink {
    taken: mpsc::UnboundedSender<(Signal, usize)>,
    refusals: Mutex<Vec<Nack>>,
}

impl Consumer for Sink {
    fn consume(&self, batch: Batch) -> BoxFuture<'_, Result<(), Nack>> {
        Box::pin(async move {
            if let Some(nack) = self.refusals.lock().unwrap().pop() {
                return Err(nack);
            }
            self.taken.send((batch.signal(), batch.items())).unwrap();
            Ok(())
        })
    }

    fn behind(&self) -> Vec<Arc<dyn Consumer>> {
        Vec::new()
    }
}

struct Trial {
    directory: TempDir,
    receiver: Box<dyn Component>,
    taken: mpsc::UnboundedReceiver<(Signal, usize)>,
}

impl Trial {
    fn new(directory: TempDir, more: &str, signals: &[Signal], refusals: Vec<Nack>) -> Self {
        let yaml = format!(
            "{{include: ['{}/*.json']{more}}}",
            directory.path().display()
        );
        let config: Config = serde_yaml::from_str(&yaml).unwrap();
        let (tell, taken) = mpsc::unbounded_channel();
        let sink = Arc::new(Sink {
            taken: tell,
            refusals: Mutex::new(refusals),
        });
        let mut outputs = Outputs::default();
        for signal in signals {
            outputs.set(*signal, sink.clone());
        }
        let mut cx = Host::for_tests().context(&"otlp_json_file".parse().unwrap());
        let services = Services {
            storage: Some(Arc::new(Storage {
                directory: directory.path().to_owned(),
                options: tributary_storage::Options::default(),
            })),
            ..Services::default()
        };
        cx.extensions = Extensions::from_iter([("file_storage".parse().unwrap(), services)]);
        let mut receiver = config.build(&cx, outputs).unwrap();
        receiver.start();
        Trial {
            directory,
            receiver,
            taken,
        }
    }

    fn append(&self, file: &str, content: &[u8]) {
        append(&self.directory, file, content);
    }

    async fn next(&mut self) -> (Signal, usize) {
        self.taken.recv().await.unwrap()
    }

    /// Stops, and keeps the files.
    async fn stop(self) -> TempDir {
        self.receiver
            .shutdown(Instant::now() + Duration::from_secs(60))
            .await;
        self.directory
    }

    /// Stops the receiver; returns the remaining accepted requests.
    async fn rest(mut self) -> Vec<(Signal, usize)> {
        self.receiver
            .shutdown(Instant::now() + Duration::from_secs(60))
            .await;
        let mut rest = Vec::new();
        while let Ok(one) = self.taken.try_recv() {
            rest.push(one);
        }
        rest
    }
}

fn append(directory: &TempDir, file: &str, content: &[u8]) {
    let path = directory.path().join(file);
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .unwrap();
    file.write_all(content).unwrap();
}

fn logs(records: usize) -> Vec<u8> {
    let records = vec![r#"{"body":{"stringValue":"x"}}"#; records].join(",");
    format!(r#"{{"resourceLogs":[{{"scopeLogs":[{{"logRecords":[{records}]}}]}}]}}"#).into_bytes()
}

fn line(mut json: Vec<u8>) -> Vec<u8> {
    json.push(b'\n');
    json
}

fn message(content: &[u8]) -> Vec<u8> {
    let len = u32::try_from(content.len()).unwrap();
    [&len.to_be_bytes(), content].concat()
}

const BEGINNING: &str = ", start_at: beginning";

#[tokio::test(start_paused = true)]
async fn every_line_is_taken_once_and_a_bad_one_costs_no_other() {
    let directory = TempDir::new().unwrap();
    append(&directory, "a.json", &line(logs(1)));
    append(
        &directory,
        "a.json",
        b"{\"resourceLogs\": 7}\nno JSON\n{}\n{\"else\":[]}\n",
    );
    append(&directory, "a.json", &line(logs(2)));
    append(
        &directory,
        "a.json",
        b"{\"resourceSpans\":[{\"scopeSpans\":[{\"spans\":[{}]}]}]}\n",
    );
    let mut trial = Trial::new(directory, BEGINNING, &Signal::ALL, Vec::new());
    assert_eq!(trial.next().await, (Signal::Logs, 1));
    assert_eq!(trial.next().await, (Signal::Logs, 2));
    assert_eq!(trial.next().await, (Signal::Traces, 1));
    // Half a line, and its rest.
    let half = logs(3);
    let (one, other) = half.split_at(20);
    trial.append("a.json", one);
    trial.append("b.json", &line(logs(4)));
    assert_eq!(trial.next().await, (Signal::Logs, 4));
    trial.append("a.json", &line(other.to_vec()));
    assert_eq!(trial.next().await, (Signal::Logs, 3));
    assert_eq!(trial.rest().await, []);
}

#[tokio::test(start_paused = true)]
async fn temporarily_refused_record_is_retried() {
    let directory = TempDir::new().unwrap();
    for records in 1..=3 {
        append(&directory, "a.json", &line(logs(records)));
    }
    let mut not_now = Nack::unavailable("not now");
    not_now.retry_after = Some(Duration::from_millis(1));
    let never = Nack::invalid("never");
    // From the last to the first.
    let refusals = vec![never, not_now.clone(), not_now];
    let mut trial = Trial::new(directory, BEGINNING, &[Signal::Logs], refusals);
    assert_eq!(trial.next().await, (Signal::Logs, 2));
    assert_eq!(trial.next().await, (Signal::Logs, 3));
    assert_eq!(trial.rest().await, []);
}

#[tokio::test(start_paused = true)]
async fn renamed_file_is_read_to_its_end() {
    let directory = TempDir::new().unwrap();
    append(&directory, "a.json", &line(logs(9)));
    let mut trial = Trial::new(directory, "", &[Signal::Logs], Vec::new());
    // After the first poll, because earlier content is not read by default.
    tokio::time::sleep(Duration::from_millis(100)).await;
    trial.append("b.json", &line(logs(1)));
    assert_eq!(trial.next().await, (Signal::Logs, 1));
    let path = |name: &str| trial.directory.path().join(name);
    fs::rename(path("b.json"), path("b.old")).unwrap();
    trial.append("b.old", &line(logs(2)));
    trial.append("b.json", &line(logs(3)));
    let mut two = [trial.next().await.1, trial.next().await.1];
    two.sort_unstable();
    assert_eq!(two, [2, 3]);
    assert_eq!(trial.rest().await, []);
}

#[tokio::test(start_paused = true)]
async fn messages_behind_their_lengths_are_read_in_all_formats() {
    let json = logs(2);
    let proto = tributary_otlp::json::to_wire(Signal::Logs, &json).unwrap();
    let zstd = |bytes: &[u8]| zstd::encode_all(bytes, 1).unwrap();
    for (more, content) in [
        (", format: proto", proto.clone()),
        (", format: proto, compression: zstd", zstd(&proto)),
        (", compression: zstd", zstd(&json)),
    ] {
        let directory = TempDir::new().unwrap();
        append(&directory, "a.json", &message(&content));
        append(&directory, "a.json", &message(b"\xffbad"));
        append(&directory, "a.json", &message(&content));
        let more = format!("{more}{BEGINNING}");
        let mut trial = Trial::new(directory, &more, &[Signal::Logs], Vec::new());
        assert_eq!(trial.next().await, (Signal::Logs, 2));
        assert_eq!(trial.next().await, (Signal::Logs, 2));
        assert_eq!(trial.rest().await, []);
    }
}

#[tokio::test(start_paused = true)]
async fn files_are_replayed_if_configured() {
    let directory = TempDir::new().unwrap();
    append(&directory, "a.json", &line(logs(1)));
    append(&directory, "b.json", &line(logs(2)));
    let more = format!(
        ", replay_file: true, exclude: ['{}/b*']",
        directory.path().display()
    );
    let mut trial = Trial::new(directory, &more, &[Signal::Logs], Vec::new());
    for _ in 0..3 {
        assert_eq!(trial.next().await, (Signal::Logs, 1));
    }
    assert!(
        trial
            .rest()
            .await
            .iter()
            .all(|one| *one == (Signal::Logs, 1))
    );
}

#[test]
fn protobuf_of_several_signals_is_an_error() {
    let config: Config = serde_yaml::from_str("{include: [a], format: proto}").unwrap();
    let (tell, _taken) = mpsc::unbounded_channel();
    let sink = Arc::new(Sink {
        taken: tell,
        refusals: Mutex::default(),
    });
    let mut outputs = Outputs::default();
    outputs.set(Signal::Logs, sink.clone());
    outputs.set(Signal::Traces, sink);
    let cx = Host::for_tests().context(&"otlp_json_file".parse().unwrap());
    let error = config.build(&cx, outputs).err().unwrap().to_string();
    assert!(error.contains("traces and logs"), "{error}");
}

#[test]
fn violated_rules_are_reported_at_their_keys() {
    let problems = |yaml: &str| {
        let config: Config = serde_yaml::from_str(yaml).unwrap();
        let mut problems = Problems::default();
        config.validate(&mut problems);
        let found = problems.found().iter();
        found
            .map(|problem| problem.path.join("::"))
            .collect::<Vec<_>>()
    };
    assert_eq!(problems("{include: [a]}"), Vec::<String>::new());
    assert_eq!(problems("{}"), ["include"]);
    let yaml = "{include: ['a['], exclude: ['', b], poll_interval: 0s, max_log_size: 0, storage: x, replay_file: true}";
    assert_eq!(
        problems(yaml),
        [
            "include::0",
            "exclude::0",
            "poll_interval",
            "max_log_size",
            "storage"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_last_line_without_its_newline_is_tried_again_too() {
    let directory = TempDir::new().unwrap();
    append(&directory, "a.json", &logs(1));
    let refusals = vec![Nack::unavailable("not now")];
    let mut trial = Trial::new(directory, BEGINNING, &[Signal::Logs], refusals);
    assert_eq!(trial.next().await, (Signal::Logs, 1));
    assert_eq!(trial.rest().await, []);
}

#[tokio::test(start_paused = true)]
async fn matching_pipes_and_directories_are_skipped() {
    let directory = TempDir::new().unwrap();
    fs::create_dir(directory.path().join("a.json")).unwrap();
    let pipe = directory.path().join("b.json");
    let made = std::process::Command::new("mkfifo").arg(pipe).status();
    assert!(made.unwrap().success());
    append(&directory, "c.json", &line(logs(2)));
    let mut trial = Trial::new(directory, BEGINNING, &[Signal::Logs], Vec::new());
    assert_eq!(trial.next().await, (Signal::Logs, 2));
    assert_eq!(trial.rest().await, []);
}

#[tokio::test]
async fn restart_with_storage_continues_where_reading_ended() {
    for start_at in ["beginning", "end"] {
        let more = format!(", start_at: {start_at}, storage: file_storage, poll_interval: 5ms");
        let start = |directory| Trial::new(directory, &more, &[Signal::Logs], Vec::new());
        let directory = TempDir::new().unwrap();
        append(&directory, "first.json", b"");
        let mut trial = start(directory);
        let stored = trial
            .directory
            .path()
            .join("receiver_otlp_json_file_positions");
        while !stored.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        trial.append("later.json", &line(logs(1)));
        // Files that appear later are read from the beginning.
        assert_eq!(trial.next().await, (Signal::Logs, 1));
        let directory = trial.stop().await;

        append(&directory, "later.json", &line(logs(2)));
        append(&directory, "new.json", &line(logs(3)));
        let mut trial = start(directory);
        assert_eq!(trial.next().await, (Signal::Logs, 2));
        assert_eq!(trial.next().await, (Signal::Logs, 3));
        let directory = trial.stop().await;

        // Another file, perhaps with the same inode.
        std::fs::remove_file(directory.path().join("later.json")).unwrap();
        append(&directory, "later.json", &line(line(logs(4))));
        let mut trial = start(directory);
        assert_eq!(trial.next().await, (Signal::Logs, 4));
        assert_eq!(trial.rest().await, []);
    }
}
