//! Tests of the exporter on paused time, with files in a directory.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::Field;
use prost::Message as _;
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

#[cfg(feature = "object-store")]
mod object_store;
#[cfg(feature = "object-store")]
mod s3;

use super::*;
use crate::pipeline::Consumer;
use crate::pipeline::batch::{Batch, Nack};
use crate::testing::{Recorded, context};
use tributary_config::{Problems, Validate as _};
use tributary_otlp::room::Unbounded;

const SECS: fn(u64) -> Duration = Duration::from_secs;
const HOUR: u64 = 3_600_000_000_000;

/// Returns a request of log records with these bodies, each at the given hour after 1970.
fn logs(records: &[(&str, u64)]) -> Batch {
    let record = |(body, hour): &(&str, u64)| LogRecord {
        time_unix_nano: hour * HOUR + 1,
        body: Some(AnyValue {
            value: Some(Value::StringValue((*body).to_owned())),
        }),
        ..LogRecord::default()
    };
    let request = ExportLogsServiceRequest {
        resource_logs: vec![ResourceLogs {
            scope_logs: vec![ScopeLogs {
                log_records: records.iter().map(record).collect(),
                ..ScopeLogs::default()
            }],
            ..ResourceLogs::default()
        }],
    };
    Batch::new(
        Signal::Logs,
        records.len(),
        Bytes::from(request.encode_to_vec()),
    )
}

struct Bench {
    directory: TempDir,
    recorded: Recorded,
    cx: BuildContext,
    terminal: Terminal,
}

impl Bench {
    /// An exporter with `more` in its configuration.
    fn new(more: &str) -> Self {
        let directory = TempDir::new().unwrap();
        let yaml = format!("{{path: '{}'{more}}}", directory.path().display());
        let config: Config = serde_yaml::from_str(&yaml).unwrap();
        let mut problems = Problems::default();
        config.validate(&mut problems);
        let mut found = problems.found().iter();
        let error = found.find(|problem| !problem.warning);
        assert!(error.is_none(), "{error:?}");
        Bench::of(&config, directory)
    }

    fn of(config: &Config, directory: TempDir) -> Self {
        let recorded = Recorded::new();
        let cx = context("parquet");
        let mut terminal = recorded.within(|| config.build(&cx, &Signal::ALL).unwrap());
        terminal.component.start();
        Bench {
            directory,
            recorded,
            cx,
            terminal,
        }
    }

    fn consumer(&self) -> Arc<dyn Consumer> {
        self.terminal.inputs.get(Signal::Logs).unwrap().clone()
    }

    async fn send(&self, records: &[(&str, u64)]) -> Result<(), Nack> {
        self.consumer().consume(logs(records)).await
    }

    /// The finished files, by name below the root, with the bodies in each.
    fn files(&self) -> BTreeMap<String, Vec<String>> {
        let mut files = BTreeMap::new();
        for path in all_files(self.directory.path()) {
            let name = path.strip_prefix(self.directory.path()).unwrap();
            if path
                .extension()
                .is_some_and(|extension| extension == "parquet")
            {
                files.insert(name.display().to_string(), bodies(&path));
            }
        }
        files
    }

    /// All bodies in finished files, in order.
    fn rows(&self) -> Vec<String> {
        let mut rows: Vec<String> = self.files().into_values().flatten().collect();
        rows.sort();
        rows
    }

    /// Returns this process's directory of unfinished files.
    fn unfinished(&self) -> PathBuf {
        let mut all = fs::read_dir(self.directory.path().join("_unfinished")).unwrap();
        let own = all.find(|entry| entry.as_ref().unwrap().path().is_dir());
        own.unwrap().unwrap().path()
    }

    async fn idle(&self) {
        let idle = async {
            while !self.terminal.component.idle() {
                sleep(Duration::from_millis(100)).await;
            }
        };
        timeout(SECS(3600), idle).await.unwrap();
    }

    async fn stop(&mut self) -> Undelivered {
        let component = std::mem::replace(
            &mut self.terminal.component,
            Box::new(crate::pipeline::Idle),
        );
        component.shutdown(Instant::now() + SECS(30)).await
    }
}

fn all_files(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let files = entries.flat_map(|path| match path.is_dir() {
        true => all_files(&path),
        false => vec![path],
    });
    files.collect()
}

fn bodies(path: &Path) -> Vec<String> {
    let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
    let rows = reader.get_row_iter(None).unwrap();
    let body = |row: parquet::record::Row| {
        let mut columns = row.get_column_iter();
        let (_, body) = columns.find(|(name, _)| *name == "body").unwrap();
        match body {
            Field::Str(body) => body.clone(),
            other => panic!("{other:?}"),
        }
    };
    rows.map(|row| body(row.unwrap())).collect()
}

#[tokio::test(start_paused = true)]
async fn client_without_queue_is_acknowledged_at_end_of_file() {
    let mut bench = Bench::new(", sending_queue: {enabled: false}, rotation: {interval: 2s}");
    let started = Instant::now();
    let consumer = bench.consumer();
    let early = tokio::spawn(async move { consumer.consume(logs(&[("a", 5)])).await });
    sleep(SECS(1)).await;
    assert!(bench.files().is_empty());
    // The rows go into the same file.
    bench.send(&[("b", 5)]).await.unwrap();
    assert_eq!(started.elapsed().as_secs(), 2);
    early.await.unwrap().unwrap();
    let files = bench.files();
    assert_eq!(files.len(), 1);
    let (name, rows) = files.first_key_value().unwrap();
    assert!(
        name.starts_with("signal=logs/date=1970-01-01/hour=05/part-"),
        "{name}"
    );
    assert_eq!(rows, &["a", "b"]);
    assert_eq!(bench.recorded.items("delivered", Signal::Logs), 2);
    assert_eq!(bench.stop().await, Undelivered::default());
    assert_eq!(bench.cx.budget.used(), 0);
}

#[tokio::test(start_paused = true)]
async fn batch_stays_queued_without_consumer_until_end_of_file() {
    let mut bench = Bench::new(", sending_queue: {num_consumers: 1}, rotation: {interval: 10s}");
    for number in 0..20 {
        bench.send(&[(&number.to_string(), 0)]).await.unwrap();
    }
    sleep(SECS(9)).await;
    assert!(!bench.terminal.component.idle());
    assert_eq!(bench.recorded.items("delivered", Signal::Logs), 0);
    assert!(bench.files().is_empty());
    sleep(SECS(2)).await;
    bench.idle().await;
    assert_eq!(bench.recorded.items("delivered", Signal::Logs), 20);
    assert_eq!(bench.files().len(), 1);
    assert_eq!(bench.rows().len(), 20);
    assert_eq!(bench.stop().await, Undelivered::default());
}

#[tokio::test(start_paused = true)]
async fn shutdown_finishes_files_at_once() {
    let mut bench = Bench::new(", rotation: {interval: 1h}");
    for hour in 0..3 {
        bench.send(&[("a", hour), ("b", hour)]).await.unwrap();
    }
    let started = Instant::now();
    assert_eq!(bench.stop().await, Undelivered::default());
    assert!(started.elapsed() < SECS(1));
    assert_eq!(bench.files().len(), 3);
    assert_eq!(bench.rows(), ["a", "a", "a", "b", "b", "b"]);
    assert_eq!(bench.recorded.items("delivered", Signal::Logs), 6);
    drop(bench.terminal);
    assert_eq!(
        fs::read_dir(bench.directory.path().join("_unfinished"))
            .unwrap()
            .count(),
        1
    );
}

#[tokio::test(start_paused = true)]
async fn shutdown_past_its_deadline_counts_unfinished_items() {
    let bench = Bench::new(", rotation: {interval: 1h}");
    bench.send(&[("a", 0), ("b", 1)]).await.unwrap();
    let started = Instant::now();
    let undelivered = bench.terminal.component.shutdown(started).await;
    assert_eq!(undelivered, Undelivered { items: 2 });
    assert!(started.elapsed() < SECS(1));
    assert_eq!(bench.recorded.items("delivered", Signal::Logs), 0);
}

#[tokio::test(start_paused = true)]
async fn batches_of_failed_file_are_written_once_to_another() {
    let mut bench = Bench::new(", rotation: {interval: 1s}");
    let unfinished = bench.unfinished();
    fs::remove_dir_all(&unfinished).unwrap();
    fs::write(&unfinished, "in its place").unwrap();
    for body in ["a", "b", "c"] {
        bench.send(&[(body, 0)]).await.unwrap();
    }
    sleep(SECS(3)).await;
    assert!(bench.files().is_empty());
    assert!(!bench.terminal.component.idle());
    fs::remove_file(&unfinished).unwrap();
    bench.idle().await;
    assert_eq!(bench.rows(), ["a", "b", "c"]);
    assert_eq!(bench.recorded.items("delivered", Signal::Logs), 3);
    assert_eq!(bench.stop().await, Undelivered::default());
}

#[tokio::test(start_paused = true)]
async fn finished_part_of_batch_is_not_rewritten_after_failure() {
    let mut bench = Bench::new(", rotation: {interval: 1s}");
    let day = bench.directory.path().join("signal=logs/date=1970-01-01");
    fs::create_dir_all(&day).unwrap();
    // A file where a directory must be.
    fs::write(day.join("hour=01"), "").unwrap();
    bench.send(&[("a", 0), ("b", 1), ("c", 2)]).await.unwrap();
    bench.send(&[("d", 1), ("e", 2)]).await.unwrap();
    sleep(SECS(2)).await;
    assert_eq!(bench.rows(), ["a", "c", "e"]);
    assert_eq!(bench.recorded.items("delivered", Signal::Logs), 0);
    fs::remove_file(day.join("hour=01")).unwrap();
    bench.idle().await;
    assert_eq!(bench.rows(), ["a", "b", "c", "d", "e"]);
    assert_eq!(bench.recorded.items("delivered", Signal::Logs), 5);
    assert_eq!(bench.stop().await, Undelivered::default());
}

#[tokio::test(start_paused = true)]
async fn unreadable_batch_does_not_affect_other_batches() {
    let mut bench = Bench::new(", rotation: {interval: 60s}");
    bench.send(&[("a", 0), ("b", 1)]).await.unwrap();
    sleep(SECS(1)).await;
    let mut bytes = logs(&[("half", 0)]).into_wire().to_bytes().to_vec();
    bytes.extend([1 << 3 | 2, 100, 0]);
    let half = Batch::new(Signal::Logs, 2, Bytes::from(bytes));
    bench.consumer().consume(half).await.unwrap();
    sleep(SECS(1)).await;
    bench.send(&[("c", 0)]).await.unwrap();
    sleep(SECS(1)).await;
    assert_eq!(bench.stop().await, Undelivered { items: 2 });
    assert_eq!(bench.rows(), ["a", "b", "c"]);
    assert_eq!(bench.recorded.items("delivered", Signal::Logs), 3);
    assert_eq!(bench.recorded.items("dropped", Signal::Logs), 2);
}

/// Part of a file, and the table that it was written with.
struct Writing {
    part: Arc<part::Part>,
    place: Place,
    layout: Arc<Layout>,
    memory: Arc<Memory>,
}

impl Writing {
    fn new(place: Place) -> Self {
        let partition = table::Partition {
            hour: 0,
            service: None,
        };
        Writing {
            part: part::Part::new(partition::Key::new(table::TableKind::Logs, &partition)),
            place,
            layout: Arc::new(Layout::new(&Config::default().layout_options())),
            memory: Memory::new(1 << 20, &tributary_memory::Budget::new(1 << 20)),
        }
    }

    /// A row group with one row.
    fn add(&self, body: &str) {
        struct One(table::Table);
        impl table::Sink for One {
            fn table(
                &mut self,
                _: table::TableKind,
                _: &table::Partition,
            ) -> Option<&mut table::Table> {
                Some(&mut self.0)
            }
        }
        let mut one = One(table::Table::new(table::TableKind::Logs, &self.layout));
        let request = logs(&[(body, 0)]).into_wire().to_bytes();
        table::append(
            Signal::Logs,
            &request,
            &self.layout,
            false,
            &Unbounded,
            &mut one,
        )
        .unwrap();
        self.part.add(one.0, self.memory.rows());
    }

    async fn write(&self) -> Result<(), place::PlaceError> {
        let Writing {
            part,
            place,
            layout,
            memory,
        } = self;
        part.write(place, layout, memory).await
    }

    async fn finish(&self) -> Result<Option<part::Finished>, place::PlaceError> {
        let Writing {
            part,
            place,
            layout,
            memory,
        } = self;
        part.finish(place, layout, memory).await
    }
}

/// More bytes than a writer buffers.
fn noise() -> String {
    (0..1 << 17).map(|_| fastrand::alphanumeric()).collect()
}

#[tokio::test]
async fn file_with_panicked_encoder_is_never_finished() {
    let directory = TempDir::new().unwrap();
    let place = Directory::open(directory.path(), 0o600).unwrap();
    let writing = Writing::new(Place::Trap(Arc::new(place)));
    writing.add(&noise());
    let error = writing.write().await.unwrap_err();
    assert!(error.to_string().contains("panic"), "{error}");
    writing.add(&noise());
    assert!(writing.write().await.is_err());
    assert!(writing.finish().await.is_err());
    drop(writing);
    let left = all_files(directory.path());
    assert!(left.iter().all(|path| path.ends_with("lock")), "{left:?}");
}

/// A row group without a waiting batch must be in the file before other batches are acknowledged.
#[test]
fn file_outcome_outlives_its_writer() {
    // With one blocking thread, nothing is written before the waiting batch is cancelled.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(1)
        .build();
    runtime.unwrap().block_on(async {
        let directory = TempDir::new().unwrap();
        let place = Arc::new(Directory::open(directory.path(), 0o600).unwrap());
        let panics = Writing::new(Place::Trap(place.clone()));
        let other = TempDir::new().unwrap();
        let place = Arc::new(Directory::open(other.path(), 0o600).unwrap());
        let fails = Writing::new(Place::Directory(place));
        fs::remove_dir_all(other.path().join("_unfinished")).unwrap();
        fs::write(other.path().join("_unfinished"), "in its place").unwrap();
        for writing in [panics, fails] {
            writing.add(&noise());
            let (gone, has_gone) = std::sync::mpsc::channel::<()>();
            let before = tokio::task::spawn_blocking(move || has_gone.recv());
            {
                let going = writing.write();
                tokio::pin!(going);
                assert!(futures_util::poll!(&mut going).is_pending());
            }
            gone.send(()).unwrap();
            before.await.unwrap().unwrap();
            assert!(writing.finish().await.is_err());
        }
    });
}

fn limits(most_open: usize) -> Limits {
    Limits {
        group_rows: 1 << 20,
        group_bytes: 1 << 30,
        file_rows: usize::MAX,
        file_bytes: u64::MAX,
        interval: SECS(3600),
        most_open,
        most_partitions: 1000,
    }
}

/// Continues with the next step whenever one is full, and finishes the opened files.
struct Stepping<'s> {
    signal_files: Arc<tokio::sync::Mutex<signal_files::SignalFiles>>,
    adding: Option<adding::Adding<'s, tokio::sync::OwnedMutexGuard<signal_files::SignalFiles>>>,
    begin:
        &'s dyn Fn(
            usize,
        )
            -> adding::Adding<'s, tokio::sync::OwnedMutexGuard<signal_files::SignalFiles>>,
    count: signal_files::OpenFiles,
    step: usize,
    asked: usize,
    /// The rows of each file, by step.
    rows: Vec<Vec<usize>>,
}

impl Stepping<'_> {
    fn end(&mut self) {
        let todo = self.adding.take().unwrap().done(1000, 0);
        assert!(self.count.get() <= 4, "{}", self.count.get());
        let mut signal_files = self.signal_files.try_lock().unwrap();
        let opened = todo.opened.iter().map(|part| {
            signal_files.take_part(part).unwrap().close();
            part.rows()
        });
        self.rows.push(opened.collect());
    }
}

impl table::Sink for Stepping<'_> {
    fn admits(&mut self, partition: &table::Partition, bytes: usize) -> Option<usize> {
        if let Some(admitted) = self.adding.as_mut().unwrap().admits(partition, bytes) {
            return Some(admitted);
        }
        self.end();
        self.step += 1;
        self.adding = Some((self.begin)(self.step));
        self.adding.as_mut().unwrap().admits(partition, bytes)
    }

    fn table(
        &mut self,
        kind: table::TableKind,
        of: &table::Partition,
    ) -> Option<&mut table::Table> {
        self.asked += 1;
        self.adding.as_mut().unwrap().table(kind, of)
    }
}

#[test]
fn batch_for_many_files_is_read_once_with_bounded_open_files() {
    let layout = Arc::new(Layout::new(&Config::default().layout_options()));
    let memory = Memory::new(1 << 30, &tributary_memory::Budget::new(1 << 30));
    let (ticket, _outcome) = ticket::Ticket::new(&Arc::default(), &Arc::default());
    let (count, limits) = (signal_files::OpenFiles::default(), limits(4));
    let signal_files = Arc::new(tokio::sync::Mutex::new(signal_files::SignalFiles::new(
        &count,
    )));
    // Hours repeat within their step and in later steps.
    let hours = [0, 1, 0, 1, 2, 3, 0, 4, 5, 4, 0, 6, 7, 8, 9, 9];
    let records: Vec<(&str, u64)> = hours.iter().map(|hour| ("a", *hour)).collect();
    let request = logs(&records).into_wire().to_bytes();
    let begin = |number| {
        let signal_files = signal_files.clone().try_lock_owned().unwrap();
        let step = adding::Step {
            number,
            admitted: 1 << 20,
            is_written: false,
        };
        adding::Adding::new(signal_files, &layout, &memory, &ticket, &limits, step)
    };
    let read = || {
        let mut stepping = Stepping {
            signal_files: signal_files.clone(),
            adding: Some(begin(0)),
            begin: &begin,
            count: count.clone(),
            step: 0,
            asked: 0,
            rows: Vec::new(),
        };
        table::append(
            Signal::Logs,
            &request,
            &layout,
            false,
            &Unbounded,
            &mut stepping,
        )
        .unwrap();
        stepping.end();
        (stepping.asked, stepping.rows)
    };
    let (asked, rows) = read();
    // Once for each change of the hour, and not once more for each step.
    assert_eq!(asked, 15);
    let sorted = rows.into_iter().map(|mut rows| {
        rows.sort_unstable();
        rows
    });
    let sorted: Vec<_> = sorted.collect();
    assert_eq!(sorted, [vec![1, 1, 2, 3], vec![1, 1, 1, 2], vec![1, 1, 2]]);
    // A retried batch has the same rows in each step, so written rows are recognized.
    assert_eq!(read().1, [[0_usize; 0]; 3].map(Vec::from));
}

#[tokio::test(start_paused = true)]
async fn batch_for_many_files_is_in_each_once_despite_failures() {
    let mut bench = Bench::new(", rotation: {interval: 1s}, max_open_files: 3");
    let day = bench.directory.path().join("signal=logs/date=1970-01-01");
    fs::create_dir_all(&day).unwrap();
    fs::write(day.join("hour=05"), "").unwrap();
    let bodies: Vec<String> = (10..40).map(|number| number.to_string()).collect();
    let records = bodies.iter().zip(0..);
    let records: Vec<(&str, u64)> = records.map(|(body, at)| (body.as_str(), at % 15)).collect();
    bench.send(&records).await.unwrap();
    sleep(SECS(2)).await;
    assert_eq!(bench.recorded.items("delivered", Signal::Logs), 0);
    fs::remove_file(day.join("hour=05")).unwrap();
    bench.idle().await;
    assert_eq!(bench.rows(), bodies);
    assert_eq!(bench.recorded.items("delivered", Signal::Logs), 30);
    assert_eq!(bench.stop().await, Undelivered::default());
    drop(bench.terminal);
    assert_eq!(bench.cx.budget.used(), 0);
}

#[tokio::test(start_paused = true)]
async fn stuck_file_does_not_block_other_files() {
    let directory = TempDir::new().unwrap();
    let place = Arc::new(Directory::open(directory.path(), 0o600).unwrap());
    let files = Files::new(Setup {
        id: "parquet".parse().unwrap(),
        place: Place::Stuck(place, Arc::default()),
        layout: Arc::new(Layout::new(&Config::default().layout_options())),
        limits: limits(64),
        queue: None,
        by_service: false,
        memory: Memory::new(1 << 20, &tributary_memory::Budget::new(1 << 30)),
        manifest: None,
    });
    let body = noise();
    for hour in 0..20 {
        let request = logs(&[(&body, hour)]).into_wire().to_bytes();
        let batch = Encoded {
            signal: Signal::Logs,
            items: 1,
            retained_bytes: request.len(),
            chunks: [request].into(),
            identity: Arc::default(),
        };
        let taken = files.take(&batch).await;
        assert!(taken.is_ok(), "{hour}: {taken:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn disconnected_client_does_not_block_file() {
    let mut bench = Bench::new(
        ", sending_queue: {enabled: false}, rotation: {interval: 2s}, row_group: {max_rows: 1}",
    );
    {
        let consumer = bench.consumer();
        let going = consumer.consume(logs(&[("a", 0)]));
        tokio::pin!(going);
        // The rows of the batch are in the file, which is being written.
        assert!(futures_util::poll!(&mut going).is_pending());
    }
    let waited = timeout(SECS(60), bench.send(&[("b", 0)])).await;
    waited.unwrap().unwrap();
    assert_eq!(bench.rows(), ["a", "b"]);
    assert_eq!(bench.stop().await, Undelivered::default());
}

#[tokio::test(start_paused = true)]
async fn client_without_queue_gets_write_error() {
    let mut bench = Bench::new(", sending_queue: {enabled: false}, rotation: {interval: 1s}");
    let unfinished = bench.unfinished();
    fs::remove_dir_all(&unfinished).unwrap();
    fs::write(&unfinished, "in its place").unwrap();
    let nack = bench.send(&[("a", 0)]).await.unwrap_err();
    assert!(nack.retryable);
    assert!(nack.reason.contains("cannot write"), "{}", nack.reason);
    assert_eq!(bench.stop().await, Undelivered::default());
}

#[tokio::test(start_paused = true)]
async fn full_queue_finishes_files_early() {
    let mut bench = Bench::new(
        ", rotation: {interval: 1h}, sending_queue: {queue_size: 10, block_on_overflow: true}",
    );
    let all = async {
        for number in 0..35 {
            bench.send(&[(&number.to_string(), 0)]).await.unwrap();
        }
    };
    timeout(SECS(60), all).await.unwrap();
    assert!(bench.rows().len() >= 25);
    assert_eq!(bench.stop().await, Undelivered::default());
    assert_eq!(bench.rows().len(), 35);
    assert!(bench.files().len() < 10);
}

#[tokio::test(start_paused = true)]
async fn full_memory_finishes_files_early() {
    const LIMIT: usize = 1 << 20;
    let mut bench = Bench::new(", rotation: {interval: 1h}, max_memory: 1MiB");
    let body = "x".repeat(50_000);
    let mut clients = JoinSet::new();
    for number in 0..100 {
        let (consumer, body) = (bench.consumer(), format!("{number} {body}"));
        clients.spawn(async move { consumer.consume(logs(&[(&body, number % 8)])).await });
        sleep(Duration::from_millis(10)).await;
        let used = bench.cx.budget.used();
        assert!(used <= LIMIT, "{used}");
    }
    while let Some(outcome) = clients.join_next().await {
        outcome.unwrap().unwrap();
    }
    assert_eq!(bench.stop().await, Undelivered::default());
    assert_eq!(bench.rows().len(), 100);
    assert!(bench.files().len() > 8);
    drop(bench.terminal);
    assert_eq!(bench.cx.budget.used(), 0);
}

/// Allocated column memory is counted, so a file with one or two rows takes some kilobytes.
#[tokio::test(start_paused = true)]
async fn many_open_files_stay_within_memory_limit() {
    const LIMIT: usize = 2 << 20;
    let mut bench = Bench::new(
        ", rotation: {interval: 1h}, max_memory: 2MiB, sending_queue: {queue_size: 10000}",
    );
    let open = "tributary_exporter_parquet_open_files";
    let (mut most_open, mut most_used) = (0.0_f64, 0);
    for round in 0..40 {
        for hour in 0..64 {
            let body = format!("{round} {}", "x".repeat(round * 10));
            bench.send(&[(&body, hour)]).await.unwrap();
        }
        sleep(SECS(1)).await;
        most_open = most_open.max(bench.recorded.sum(open));
        most_used = most_used.max(bench.cx.budget.used());
        assert!(most_used <= LIMIT, "{most_used} in round {round}");
    }
    assert!(most_open > 32.0, "{most_open}");
    assert!(most_used > LIMIT / 2, "{most_used}");
    assert_eq!(bench.stop().await, Undelivered::default());
    assert_eq!(bench.rows().len(), 40 * 64);
    drop(bench.terminal);
    assert_eq!(bench.cx.budget.used(), 0);
}

/// A request with a log record of each of so many services.
fn services(count: usize) -> Batch {
    let resource = |at: usize| ResourceLogs {
        resource: Some(Resource {
            attributes: vec![KeyValue {
                key: "service.name".to_owned(),
                value: Some(AnyValue {
                    value: Some(Value::StringValue(format!("service {at}"))),
                }),
                ..KeyValue::default()
            }],
            ..Resource::default()
        }),
        scope_logs: vec![ScopeLogs {
            log_records: vec![LogRecord {
                time_unix_nano: HOUR,
                body: Some(AnyValue {
                    value: Some(Value::StringValue("a".to_owned())),
                }),
                ..LogRecord::default()
            }],
            ..ScopeLogs::default()
        }],
        ..ResourceLogs::default()
    };
    let request = ExportLogsServiceRequest {
        resource_logs: (0..count).map(resource).collect(),
    };
    Batch::new(Signal::Logs, count, Bytes::from(request.encode_to_vec()))
}

#[tokio::test(start_paused = true)]
async fn services_beyond_the_partitions_share_a_file() {
    const SERVICES: usize = 5000;
    let mut bench = Bench::new(
        ", partition_by: service, max_partitions: 20, max_open_files: 8, rotation: {interval: 1h}",
    );
    bench.consumer().consume(services(SERVICES)).await.unwrap();
    // The queue has acknowledged all requests.
    assert_eq!(bench.stop().await, Undelivered::default());
    assert_eq!(bench.rows().len(), SERVICES);
    let files = bench.files();
    let (shared, own): (Vec<_>, Vec<_>) = files
        .iter()
        .partition(|(name, _)| name.contains("/service=__overflow__/"));
    assert_eq!(own.len(), 20);
    assert!(shared.len() < 20, "{} files", shared.len());
    assert!(shared.iter().all(|(name, _)| name.contains("/hour=01/")));
    let rows = bench
        .recorded
        .sum("tributary_exporter_parquet_overflow_rows");
    assert_eq!(rows, (SERVICES - 20) as f64);
}

/// Rows take many times the memory of their request.
#[tokio::test(start_paused = true)]
async fn rows_of_a_request_are_made_in_bounded_steps() {
    const ROWS: usize = 100_000;
    const LIMIT: usize = 16 << 20;
    let mut bench = Bench::new(", rotation: {interval: 1h}, max_memory: 16MiB");
    let message = |number: u8, content: &[u8]| {
        let mut field = vec![number << 3 | 2];
        prost::encoding::encode_varint(content.len() as u64, &mut field);
        [field.as_slice(), content].concat()
    };
    // A record with an empty text as body.
    let record = message(2, &message(5, &message(1, &[])));
    let request = message(1, &message(2, &record.repeat(ROWS)));
    let batch = Batch::new(Signal::Logs, ROWS, Bytes::from(request));
    // On a thread of its own, because the exporter makes and encodes rows without a pause.
    let (budget, is_done) = (bench.cx.budget.clone(), Arc::new(AtomicBool::new(false)));
    let until = is_done.clone();
    let sampling = std::thread::spawn(move || {
        let mut most = 0;
        while !until.load(Relaxed) {
            most = most.max(budget.used());
            std::thread::yield_now();
        }
        most
    });
    bench.consumer().consume(batch).await.unwrap();
    assert_eq!(bench.stop().await, Undelivered::default());
    is_done.store(true, Relaxed);
    let most = sampling.join().unwrap();
    assert_eq!(bench.recorded.items("delivered", Signal::Logs), ROWS as u64);
    assert!((2 << 20..=LIMIT).contains(&most), "{most}");
    assert_eq!(bench.rows().len(), ROWS);
}

#[tokio::test(start_paused = true)]
async fn too_many_open_files_are_finished_early() {
    let mut bench = Bench::new(", rotation: {interval: 1h}, max_open_files: 4");
    for hour in 0..10 {
        bench.send(&[("a", hour)]).await.unwrap();
        sleep(SECS(1)).await;
    }
    let expected: Vec<String> = (0..6).map(|hour| format!("hour=0{hour}")).collect();
    let files = bench.files();
    let hours: Vec<&str> = files
        .keys()
        .filter_map(|name| name.split('/').nth(2))
        .collect();
    assert_eq!(hours, expected);
    assert_eq!(bench.stop().await, Undelivered::default());
    assert_eq!(bench.files().len(), 10);
}

#[tokio::test(start_paused = true)]
async fn idle_file_makes_room_for_a_new_one() {
    let mut bench = Bench::new(", rotation: {interval: 1h}, max_open_files: 2");
    for hour in [0, 1, 0, 2] {
        bench.send(&[("a", hour)]).await.unwrap();
        sleep(SECS(1)).await;
    }
    let files = bench.files();
    let (name, rows) = files.first_key_value().unwrap();
    assert_eq!((files.len(), rows.len()), (1, 1));
    assert!(name.contains("hour=01"), "{name}");
    assert_eq!(bench.stop().await, Undelivered::default());
}

/// A queue requests room with each request while it is three quarters full.
#[tokio::test(start_paused = true)]
async fn full_queue_of_small_requests_leaves_no_slivers() {
    let mut bench = Bench::new(
        ", rotation: {interval: 1h}, sending_queue: {queue_size: 200, block_on_overflow: true}",
    );
    for number in 0..2000 {
        bench.send(&[(&number.to_string(), 0)]).await.unwrap();
    }
    let sizes: Vec<usize> = bench.files().values().map(Vec::len).collect();
    assert!(sizes.iter().all(|rows| *rows >= 50), "{sizes:?}");
    assert_eq!(bench.stop().await, Undelivered::default());
    assert_eq!(bench.rows().len(), 2000);
}

#[tokio::test(start_paused = true)]
async fn full_queue_finishes_files_of_its_own_signal() {
    let mut bench = Bench::new(
        ", rotation: {interval: 1h}, sending_queue: {queue_size: 8, block_on_overflow: true}",
    );
    let traces = bench.terminal.inputs.get(Signal::Traces).unwrap().clone();
    let request = ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            scope_spans: vec![ScopeSpans {
                spans: vec![Span::default(); 1000],
                ..ScopeSpans::default()
            }],
            ..ResourceSpans::default()
        }],
    };
    let bytes = Bytes::from(request.encode_to_vec());
    let large = Batch::new(Signal::Traces, 1000, bytes);
    traces.consume(large).await.unwrap();
    for number in 0..100 {
        bench.send(&[(&number.to_string(), 0)]).await.unwrap();
    }
    let names: Vec<String> = all_files(bench.directory.path())
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    assert!(names.iter().any(|name| name.contains("signal=logs")));
    assert!(!names.iter().any(|name| name.contains("signal=traces")));
    assert_eq!(bench.stop().await, Undelivered::default());
}

#[tokio::test(start_paused = true)]
async fn batches_at_shutdown_share_a_file() {
    let mut bench = Bench::new(", rotation: {interval: 1h}");
    bench.send(&[("a", 0)]).await.unwrap();
    bench.terminal.component.flush();
    for number in 0..30 {
        bench.send(&[(&number.to_string(), 0)]).await.unwrap();
        sleep(Duration::from_millis(20)).await;
    }
    bench.idle().await;
    assert_eq!(bench.rows().len(), 31);
    assert_eq!(bench.files().len(), 1);
    // A shutdown does not wait forever.
    for number in 0..300 {
        bench.send(&[(&number.to_string(), 1)]).await.unwrap();
        sleep(Duration::from_millis(20)).await;
    }
    bench.idle().await;
    let count = bench.files().len() - 1;
    assert!((5..=8).contains(&count), "{count}");
    assert_eq!(bench.stop().await, Undelivered::default());
}

#[tokio::test(start_paused = true)]
async fn file_is_full_with_enough_rows_in_row_groups() {
    let mut bench = Bench::new(
        ", rotation: {interval: 1h, max_rows: 6}, row_group: {max_rows: 3}, manifest: true",
    );
    for number in 0..14 {
        bench.send(&[(&number.to_string(), 0)]).await.unwrap();
        sleep(SECS(1)).await;
    }
    let sizes: Vec<usize> = bench.files().values().map(Vec::len).collect();
    assert_eq!(sizes, [6, 6]);
    assert_eq!(bench.stop().await, Undelivered::default());
    let groups = |name: &String| {
        let file = File::open(bench.directory.path().join(name)).unwrap();
        SerializedFileReader::new(file).unwrap().num_row_groups()
    };
    let files = bench.files();
    assert_eq!(files.keys().map(groups).collect::<Vec<_>>(), [2, 2, 1]);
    let manifest = fs::read_to_string(bench.directory.path().join("_manifest.jsonl")).unwrap();
    let mut listed = BTreeMap::new();
    for line in manifest.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["signal"], "logs");
        assert_eq!(line["hour"], "1970-01-01T00:00:00Z");
        let name = line["file"].as_str().unwrap().to_owned();
        let size = fs::metadata(bench.directory.path().join(&name))
            .unwrap()
            .len();
        assert_eq!(line["bytes"].as_u64(), Some(size));
        listed.insert(name, line["rows"].as_u64().unwrap() as usize);
    }
    let sizes: BTreeMap<String, usize> = files
        .into_iter()
        .map(|(name, rows)| (name, rows.len()))
        .collect();
    assert_eq!(listed, sizes);
}

#[test]
fn violated_rules_are_reported_at_their_keys() {
    let yaml = "{rotation: {max_bytes: 0, interval: 0s}, row_group: {max_rows: 0, max_bytes: 0}, max_open_files: 0, \
                max_partitions: 0, max_memory: 0, compression_level: 23, file_permissions: '9', \
                promote: {resource: [host.name, '', host-name], item: [types, host.name, ok]}}";
    let config: Config = serde_yaml::from_str(yaml).unwrap();
    let mut problems = Problems::default();
    config.validate(&mut problems);
    let found = problems.found().iter();
    let found = found.filter(|problem| !problem.warning);
    let found: Vec<String> = found.map(|problem| problem.path.join("::")).collect();
    assert_eq!(
        found,
        [
            "path",
            "file_permissions",
            "compression_level",
            "promote::resource::1",
            "promote::resource::2",
            "promote::item::0",
            "rotation::max_bytes",
            "rotation::interval",
            "row_group::max_rows",
            "row_group::max_bytes",
            "max_open_files",
            "max_partitions",
            "max_memory",
        ]
    );
}

#[test]
fn unreachable_file_sizes_cause_warnings() {
    for (yaml, expected) in [
        ("{path: a}", &[][..]),
        ("{path: a, rotation: {max_bytes: 48MiB}}", &[]),
        (
            "{path: a, rotation: {max_bytes: 128MiB}}",
            &["sending_queue::queue_size", "max_memory"],
        ),
        (
            "{path: a, rotation: {max_bytes: 64MiB}, sending_queue: {enabled: false}}",
            &[],
        ),
        (
            "{path: a, rotation: {max_bytes: 128MiB}, sending_queue: {enabled: false}}",
            &["max_memory"],
        ),
        // The requests are on disk.
        (
            "{path: a, rotation: {max_bytes: 128MiB}, \
             sending_queue: {sizer: bytes, queue_size: 1000000000, storage: file_storage}}",
            &[],
        ),
        ("{path: a, max_memory: 32MiB}", &["max_memory"]),
    ] {
        let config: Config = serde_yaml::from_str(yaml).unwrap();
        let mut problems = Problems::default();
        config.validate(&mut problems);
        let found = problems.found().iter();
        let found: Vec<String> = found.map(|problem| problem.path.join("::")).collect();
        assert_eq!(found, expected, "{yaml}");
        assert!(problems.found().iter().all(|problem| problem.warning));
    }
}

#[test]
fn store_options_are_masked() {
    let yaml =
        "{object_store: {url: s3://bucket, options: {secret_access_key: hush, region: somewhere}}}";
    let config: Config = serde_yaml::from_str(yaml).unwrap();
    for shown in [
        serde_yaml::to_string(&config).unwrap(),
        format!("{config:?}"),
    ] {
        assert!(shown.contains("secret_access_key"), "{shown}");
        assert!(
            !shown.contains("hush") && !shown.contains("somewhere"),
            "{shown}"
        );
    }
}
