//! Tests of the log's guarantees, with failing disks, flipped bits and torn writes.

mod reuse;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::{FutureExt as _, LocalBoxFuture};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use proptest::prelude::*;
use tempfile::TempDir;

use super::disk::{Disk, Local};
use super::format::{BLOCK_HEADER, SEGMENT_HEADER};
use super::log::Log;
use super::testing::{Fault, Faulty};
use super::*;
use crate::metrics::StorageMetrics;
use tributary_memory::Budget;

struct Bench {
    directory: TempDir,
    log: Option<Log>,
    recovered: Recovered,
    options: Options,
    disk: Faulty,
}

const LEASE: u64 = 1;
const MOST: usize = 1 << 20;

fn options() -> Options {
    Options {
        compress: false,
        segment_bytes: 1 << 20,
        busy_segment_bytes: 0,
        ..Options::default()
    }
}

fn record(text: &str) -> NewRecord {
    NewRecord {
        parts: vec![Bytes::copy_from_slice(text.as_bytes())],
        items: text.len(),
        memory: Default::default(),
    }
}

impl Bench {
    fn new(options: Options) -> Self {
        let mut bench = Bench {
            directory: tempfile::tempdir().unwrap(),
            log: None,
            recovered: Recovered::default(),
            options,
            disk: Faulty::default(),
        };
        bench.open();
        bench
    }

    fn open(&mut self) {
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        let metrics = StorageMetrics::new(&[]);
        let path = self.directory.path();
        let (log, recovered) = Log::open(path, self.options.clone(), disk, metrics).unwrap();
        log.set_reader(LEASE, self.options.clone());
        (self.log, self.recovered) = (Some(log), recovered);
    }

    fn log(&self) -> &Log {
        self.log.as_ref().unwrap()
    }

    fn close(&mut self) {
        self.log.take().unwrap().close();
    }

    /// Reopens a copy of the directory, as it would be after a crash.
    fn crash(&mut self) {
        let copy = self.copy();
        self.close();
        self.directory = copy;
        self.disk.recover();
        self.open();
    }

    fn copy(&self) -> tempfile::TempDir {
        let copy = tempfile::tempdir().unwrap();
        let _held = self.disk.hold();
        for entry in std::fs::read_dir(self.directory.path()).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
        }
        copy
    }

    fn append(&self, text: &str) -> Result<(), AppendError> {
        block_on(self.log().append(record(text)))
    }

    fn fill(&self, texts: &[&str]) {
        for text in texts {
            self.append(text).unwrap();
        }
    }

    /// Appends each text, with retries: a record may be refused right after a failed fsync.
    fn insist(&self, texts: &[&str]) {
        for text in texts {
            wait_until(|| self.append(text).is_ok());
        }
    }

    /// Returns all records that can be handed out now.
    fn take(&self) -> Vec<Record> {
        let mut taken = Vec::new();
        loop {
            match self.log().next(LEASE, MOST, true).unwrap() {
                ReadResult::Records(records) => taken.extend(records),
                ReadResult::Empty => return taken,
                other => panic!("{other:?}"),
            }
        }
    }

    /// Waits until the writer is idle.
    fn settle(&self) {
        wait_until(|| self.log().is_idle());
    }

    fn texts(&self) -> Vec<String> {
        texts(&self.take())
    }

    fn acknowledge(&self, records: &[Record]) {
        for record in records {
            self.log().acknowledge(record.sequence, record.items);
        }
    }

    fn segments(&self) -> Vec<PathBuf> {
        segments(self.directory.path())
    }
}

fn wait_until(happened: impl Fn() -> bool) {
    let began = Instant::now();
    while !happened() {
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "it never happens"
        );
        std::thread::yield_now();
    }
}

fn segments(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "segment"));
    paths.sort();
    paths
}

fn texts(records: &[Record]) -> Vec<String> {
    let text = |record: &Record| String::from_utf8(record.parts.concat()).unwrap();
    records.iter().map(text).collect()
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(future)
}

#[test]
fn records_are_read_in_order_until_acknowledged() {
    let mut bench = Bench::new(options());
    bench.fill(&["a", "b", "c"]);
    assert_eq!(bench.texts(), ["a", "b", "c"]);
    assert!(bench.take().is_empty());
    bench.crash();
    assert_eq!(bench.recovered.records, 3);
    assert_eq!(bench.recovered.items, 3);
    bench.fill(&["d"]);
    let records = bench.take();
    assert_eq!(texts(&records), ["a", "b", "c", "d"]);
    bench.acknowledge(&records);
    assert_eq!(bench.log().usage().records, 0);
    bench.close();
    assert!(bench.segments().is_empty(), "nothing is left to be kept");
    bench.open();
    assert!(bench.take().is_empty());
}

#[test]
fn clean_stop_repeats_no_acknowledged_record() {
    let mut bench = Bench::new(options());
    bench.fill(&["a", "b", "c", "d", "e"]);
    let records = bench.take();
    bench.acknowledge(&[records[3].clone(), records[1].clone()]);
    bench.close();
    bench.open();
    assert_eq!(bench.recovered.records, 3);
    assert_eq!(bench.log().usage().items, 3);
    assert_eq!(bench.texts(), ["a", "c", "e"]);
}

#[test]
fn returned_records_are_read_before_new_ones() {
    let bench = Bench::new(options());
    bench.fill(&["a", "b"]);
    let records = bench.take();
    bench.fill(&["c"]);
    bench
        .log()
        .requeue(records[1].sequence, records[1].location);
    assert_eq!(bench.texts(), ["b", "c"]);
    let (log, first) = (bench.log(), &records[0]);
    let again = log.reread(first.sequence, first.location).unwrap().unwrap();
    assert_eq!(
        (again.sequence, again.items, &again.parts),
        (first.sequence, first.items, &first.parts)
    );
}

#[test]
fn segment_is_deleted_after_last_acknowledgement() {
    let mut bench = Bench::new(Options {
        segment_bytes: 200,
        ..options()
    });
    let texts: Vec<String> = (0..20).map(|number| format!("{number:0100}")).collect();
    bench.fill(&texts.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(bench.segments().len() >= 10);
    let records = bench.take();
    let (last, others) = records.split_last().unwrap();
    bench.acknowledge(others);
    bench.acknowledge(&others[..1]);
    assert_eq!(bench.log().usage().records, 1);
    bench.settle();
    assert_eq!(bench.segments().len(), 1);
    bench.crash();
    assert_eq!(
        bench.recovered.lost_records, 0,
        "what was deleted is not missed"
    );
    bench.close();
    assert_eq!(bench.segments().len(), 1);
    bench.open();
    assert_eq!(
        bench.texts(),
        [String::from_utf8(last.parts.concat()).unwrap()]
    );
}

#[test]
fn disk_usage_is_reported_and_released() {
    let bench = Bench::new(Options {
        segment_bytes: 500,
        ..options()
    });
    let large = "x".repeat(600);
    bench.fill(&[&large, &large, "small"]);
    let on_disk = |bench: &Bench| -> u64 {
        let spare = std::fs::read_dir(bench.directory.path()).unwrap();
        let spare = spare.map(|entry| entry.unwrap().path());
        let spare = spare.filter(|path| path.to_str().unwrap().ends_with(".segment.new"));
        let files = bench.segments().into_iter().chain(spare);
        files.map(|path| path.metadata().unwrap().len()).sum()
    };
    assert_eq!(bench.log().usage().bytes, on_disk(&bench));
    let records = bench.take();
    for record in &records[..2] {
        bench.acknowledge(std::slice::from_ref(record));
        bench.settle();
    }
    assert!(bench.log().usage().bytes < 1000);
    assert_eq!(
        bench.log().usage(),
        Usage {
            records: 1,
            items: 5,
            bytes: on_disk(&bench)
        }
    );
}

#[test]
fn make_room_removes_partly_filled_last_segment() {
    let bench = Bench::new(options());
    bench.fill(&["a", "b"]);
    let records = bench.take();
    bench.acknowledge(&records[..1]);
    bench.log().make_room();
    bench.acknowledge(&records[1..]);
    assert!(bench.log().usage().bytes > 0);
    bench.log().make_room();
    bench.settle();
    assert_eq!(bench.log().usage().bytes, 0);
    assert!(bench.segments().is_empty());
    bench.fill(&["c"]);
    assert_eq!(bench.texts(), ["c"]);
}

#[test]
fn files_are_removed_during_constant_appends() {
    let bench = Bench::new(Options {
        segment_bytes: 200,
        ..options()
    });
    let text = "x".repeat(100);
    block_on(async {
        let mut waiting = std::collections::VecDeque::new();
        for _ in 0..500 {
            let mut append = Box::pin(bench.log().append(record(&text)));
            match futures_poll(append.as_mut()) {
                Poll::Pending => waiting.push_back(append),
                Poll::Ready(answer) => answer.unwrap(),
            }
            if waiting.len() > 4 {
                waiting.pop_front().unwrap().await.unwrap();
            }
            bench.acknowledge(&bench.take());
        }
    });
    assert!(bench.segments().len() < 50, "{}", bench.segments().len());
}

#[test]
fn torn_write_loses_only_its_records() {
    let mut bench = Bench::new(options());
    bench.fill(&["first", "second"]);
    let path = bench.segments().remove(0);
    let whole = std::fs::read(&path).unwrap();
    let kept = whole.len() - "second".len() - 8 - BLOCK_HEADER;
    bench.close();
    for len in 0..whole.len() {
        std::fs::write(&path, &whole[..len]).unwrap();
        bench.open();
        let expected: &[&str] = if len >= kept { &["first"] } else { &[] };
        assert_eq!(bench.texts(), expected, "{len}");
        if len >= SEGMENT_HEADER {
            let cut = if len >= kept {
                len - kept
            } else {
                len - SEGMENT_HEADER
            };
            assert_eq!(bench.recovered.cut_bytes, cut as u64);
        }
        bench.fill(&["later"]);
        assert_eq!(bench.texts(), ["later"]);
        let rest = bench.log.take().unwrap();
        rest.close();
        for path in bench.segments() {
            std::fs::remove_file(path).unwrap();
        }
        std::fs::remove_file(bench.directory.path().join("position")).unwrap();
    }
}

#[test]
fn flipped_bit_loses_only_its_block_and_is_reported() {
    let mut bench = Bench::new(Options {
        segment_bytes: 150,
        ..options()
    });
    bench.fill(&["aaaa", "bbbb", "cccc"]);
    bench.close();
    let path = bench.segments().remove(0);
    assert!(bench.segments().len() >= 2);
    let position = bench.directory.path().join("position");
    let saved = std::fs::read(&position).unwrap();
    let whole = std::fs::read(&path).unwrap();
    let last = std::fs::read(bench.segments().last().unwrap()).unwrap();
    let last_path = bench.segments().last().unwrap().clone();
    for at in 0..whole.len() {
        for other in bench.segments() {
            if other > last_path {
                std::fs::remove_file(other).unwrap();
            }
        }
        std::fs::write(&position, &saved).unwrap();
        std::fs::write(&last_path, &last).unwrap();
        let mut damaged = whole.clone();
        damaged[at] ^= 4;
        std::fs::write(&path, damaged).unwrap();
        bench.open();
        let second = whole.len() - (BLOCK_HEADER + 12);
        let expected: &[&str] = match at {
            _ if at < SEGMENT_HEADER => &["aaaa", "bbbb", "cccc"],
            _ if at < second => &["bbbb", "cccc"],
            _ => &["aaaa", "cccc"],
        };
        assert_eq!(bench.recovered.damaged.len(), 1, "{at}");
        assert_eq!(
            bench.recovered.lost_records,
            3 - expected.len() as u64,
            "{at}"
        );
        assert_eq!(bench.log().usage().items, 4 * expected.len() as u64);
        assert_eq!(bench.texts(), expected, "{at}");
        bench.close();
    }
}

#[test]
fn damage_at_runtime_is_skipped_and_reported_once() {
    let mut bench = Bench::new(Options {
        segment_bytes: 100,
        ..options()
    });
    bench.fill(&["aaaa", "bbbb", "cccc"]);
    // Read from disk instead of memory.
    bench.crash();
    let path = bench.segments().remove(0);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[SEGMENT_HEADER + BLOCK_HEADER + 9] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let records = bench.take();
    assert_eq!(texts(&records), ["bbbb", "cccc"]);
    bench.acknowledge(&records);
    assert_eq!(bench.log().take_lost_items(), 4);
    assert_eq!(bench.log().take_lost_items(), 0, "once");
    let usage = bench.log().usage();
    assert_eq!((usage.records, usage.items), (0, 0));
}

#[test]
fn lost_position_repeats_but_loses_nothing() {
    for content in [None, Some(b"garbage".to_vec())] {
        let mut bench = Bench::new(options());
        bench.fill(&["a", "b"]);
        let records = bench.take();
        bench.acknowledge(&records[..1]);
        bench.close();
        let position = bench.directory.path().join("position");
        match &content {
            None => std::fs::remove_file(position).unwrap(),
            Some(content) => std::fs::write(position, content).unwrap(),
        }
        bench.open();
        assert_eq!(bench.texts(), ["a", "b"]);
        assert_eq!(bench.recovered.position_lost, content.is_some());
        assert_eq!(bench.recovered.lost_records, 0);
    }
}

#[test]
fn full_disk_refuses_and_recovers() {
    for fault in [
        Fault::Write(0),
        Fault::Write(1),
        Fault::Write(70),
        Fault::Create,
    ] {
        for truncates in [true, false] {
            let mut bench = Bench::new(options());
            if fault != Fault::Create {
                bench.fill(&["before"]);
            }
            bench.disk.fail(fault, 2);
            if !truncates {
                bench.disk.fail(Fault::Truncate, 2);
            }
            for _ in 0..2 {
                let refused = bench.append("refused").unwrap_err();
                assert!(matches!(refused, AppendError::Disk { .. }), "{refused}");
                let text = refused.to_string();
                assert!(text.contains("No space left"), "{text}");
            }
            bench.fill(&["after", "later"]);
            let mut expected = vec!["after", "later"];
            if fault != Fault::Create {
                expected.insert(0, "before");
            }
            assert_eq!(bench.texts(), expected);
            bench.crash();
            assert_eq!(bench.recovered.lost_records, 0);
            assert_eq!(bench.recovered.damaged, []);
            assert_eq!(bench.texts(), expected, "{fault:?}");
        }
    }
}

#[test]
fn full_disk_removes_small_files() {
    let bench = Bench::new(options());
    bench.fill(&["before"]);
    bench.disk.fail(Fault::Write(0), 1);
    assert!(bench.append("refused").is_err());
    bench.acknowledge(&bench.take());
    bench.settle();
    assert!(bench.segments().is_empty());
    bench.fill(&["after"]);
    assert_eq!(bench.texts(), ["after"]);
}

#[test]
fn failed_position_write_is_retried() {
    let mut bench = Bench::new(Options {
        segment_bytes: 60,
        ..options()
    });
    bench.fill(&["a", "b", "c"]);
    let records = bench.take();
    bench.disk.fail(Fault::Replace, 1000);
    bench.acknowledge(&records[..2]);
    bench.disk.recover();
    bench.close();
    bench.open();
    assert_eq!(bench.texts(), ["c"]);
}

#[test]
fn segments_removed_for_position_are_not_lost_after_crash() {
    let mut bench = Bench::new(Options {
        segment_bytes: 60,
        ..options()
    });
    bench.fill(&["a", "b", "c", "d"]);
    let records = bench.take();
    bench.acknowledge(&records[..1]);
    bench.settle();
    assert_eq!(bench.segments().len(), 3);
    bench.disk.fail(Fault::Replace, 1);
    bench.acknowledge(&records[1..3]);
    bench.settle();
    assert_eq!(bench.segments().len(), 1);
    bench.crash();
    assert_eq!(bench.recovered.lost_records, 0);
    assert_eq!(bench.texts(), ["d"]);
}

#[test]
fn blocks_of_failed_fsync_are_rewritten_before_acknowledgment() {
    let mut bench = Bench::new(options());
    bench.fill(&["before"]);
    bench.disk.fail(Fault::Sync, 1);
    bench.fill(&["doubtful", "after"]);
    assert_eq!(bench.segments().len(), 2);
    assert_eq!(bench.texts(), ["before", "doubtful", "after"]);
    assert_eq!(bench.log().usage().records, 3);
    bench.disk.power_fails();
    bench.crash();
    assert_eq!(bench.texts(), ["before", "doubtful", "after"]);
    assert_eq!(bench.recovered.lost_records, 0);
}

#[test]
fn nothing_is_acknowledged_while_fsync_fails() {
    for truncates in [true, false] {
        let mut bench = Bench::new(options());
        bench.fill(&["before"]);
        bench.disk.fail(Fault::Sync, 4);
        if !truncates {
            bench.disk.fail(Fault::Truncate, 9);
        }
        assert!(bench.append("refused").is_err());
        assert!(bench.append("refused").is_err());
        bench.disk.recover();
        bench.fill(&["after"]);
        assert_eq!(bench.texts(), ["before", "after"]);
        bench.crash();
        assert_eq!(bench.texts(), ["before", "after"]);
        assert_eq!(bench.recovered.lost_records, 0);
    }
}

#[test]
fn blocks_acknowledged_before_failed_fsync_are_rewritten() {
    let interval = Fsync::Interval(Duration::from_millis(1));
    let mut bench = Bench::new(Options {
        fsync: interval,
        ..options()
    });
    bench.disk.fail(Fault::Sync, 3);
    bench.insist(&["a", "b"]);
    let records = bench.take();
    bench.acknowledge(&records[..1]);
    // The fourth fsync succeeds, whichever append requested it.
    wait_until(|| bench.disk.syncs() > 0);
    bench.fill(&["c"]);
    bench.close();
    bench.disk.power_fails();
    bench.open();
    assert_eq!(bench.recovered.lost_records, 0);
    assert_eq!(bench.texts(), ["b", "c"]);
}

#[test]
fn crash_during_rewrite_loses_nothing() {
    let mut bench = Bench::new(Options {
        fsync: Fsync::Interval(Duration::from_millis(1)),
        ..options()
    });
    bench.disk.fail(Fault::Sync, 1);
    bench.disk.fail(Fault::Rename, 1);
    bench.disk.fail(Fault::Remove, 9);
    bench.insist(&["a", "b"]);
    wait_until(|| bench.disk.syncs() > 0);
    bench.crash();
    assert_eq!(bench.texts(), ["a", "b"]);
    assert_eq!(bench.recovered.lost_records, 0);
}

#[test]
fn unremovable_file_is_retried_and_counts_as_used() {
    let mut bench = Bench::new(Options {
        segment_bytes: 100,
        ..options()
    });
    bench.disk.fail(Fault::Remove, usize::MAX);
    bench.fill(&["x".repeat(200).as_str(), "next"]);
    let records = bench.take();
    let before = bench.log().usage().bytes;
    bench.acknowledge(&records[..1]);
    bench.settle();
    assert!(bench.log().is_stuck());
    assert_eq!(bench.log().usage().bytes, before);
    bench.disk.recover();
    bench.close();
    assert_eq!(bench.segments().len(), 1);
}

#[test]
fn only_unread_backlog_is_compressed() {
    let text = "all alike ".repeat(1 << 17);
    let bench = Bench::new(Options {
        compress: true,
        ..options()
    });
    bench.log().keep_recent(10 << 20);
    let grows = |by: &str| {
        let before = bench.log().usage().bytes;
        bench.fill(&[by]);
        bench.log().usage().bytes - before
    };
    assert!(grows(&text) > text.len() as u64);
    // Seven blocks stay in memory for a reader that is about to read. The eighth exceeds the limit.
    for _ in 0..7 {
        assert!(grows(&text) > text.len() as u64);
    }
    assert!(grows(&text) < text.len() as u64 / 20);
    assert_eq!(bench.take().len(), 9);
    assert!(grows(&text) > text.len() as u64);
    let larger = text.repeat(3);
    for _ in 0..3 {
        assert!(grows(&larger) > larger.len() as u64);
        bench.take();
    }
    let largest = text.repeat(9);
    grows(&largest);
    assert!(grows(&text) < text.len() as u64 / 20);
}

#[test]
fn records_in_memory_keep_their_permits() {
    let bench = Bench::new(options());
    bench.log().keep_recent(10 << 20);
    let budget = Budget::new(1 << 20);
    let taken = || budget.used();
    let append = |bytes| {
        let permit = budget.acquire(1).unwrap();
        let record = NewRecord {
            memory: Permits::from_iter([Arc::new(permit)]),
            ..record(&"x".repeat(bytes))
        };
        block_on(bench.log().append(record)).unwrap();
    };
    append(10);
    append(10);
    assert_eq!(taken(), 2);
    let given_out = bench.take();
    assert_eq!((given_out.len(), taken()), (2, 2));
    drop(given_out);
    assert_eq!(taken(), 0);
    assert!(bench.log().keeps_up());
    // Without a reader, data on disk needs no memory.
    for _ in 0..9 {
        append(1 << 20);
    }
    assert_eq!(taken(), 9);
    assert!(bench.log().keeps_up());
    append(1 << 20);
    // Half of the limit, because the reader is behind.
    assert_eq!(taken(), 4);
    assert!(!bench.log().keeps_up());
    let from_disk = bench.take();
    assert!(from_disk[0].memory.is_empty() && !from_disk[9].memory.is_empty());
    assert!(bench.log().keeps_up());
}

#[test]
fn options_apply_when_new_lease_starts() {
    let directory = tempfile::tempdir().unwrap();
    let logs = LogRegistry::default();
    let open = |fsync| {
        let options = Options { fsync, ..options() };
        let opened = logs.open(directory.path(), &options, StorageMetrics::new(&[]));
        opened.unwrap().0
    };
    let running = open(Fsync::Always);
    running.become_reader();
    let fsync = || running.log().shared.lock().options.fsync;
    let rejected = open(Fsync::Never);
    assert_eq!(fsync(), Fsync::Always);
    drop(rejected);
    assert_eq!(fsync(), Fsync::Always);
    let new = open(Fsync::Never);
    new.become_reader();
    assert_eq!(fsync(), Fsync::Never);
}

#[test]
fn one_fsync_acknowledges_all_waiting_appends() {
    let bench = Bench::new(options());
    let texts: Vec<String> = (0..500).map(|number| number.to_string()).collect();
    let held = bench.disk.hold();
    let queued = |text: &String| {
        let mut append = Box::pin(bench.log().append(record(text)));
        // The first poll queues the record for the writer.
        assert!(futures_poll(append.as_mut()).is_pending());
        append
    };
    let waiting: Vec<_> = texts.iter().map(queued).collect();
    drop(held);
    for append in waiting {
        block_on(append).unwrap();
    }
    // One fsync for the first record, and one for the rest.
    assert!(bench.disk.syncs() <= 2, "{}", bench.disk.syncs());
    assert_eq!(bench.texts(), texts);
}

#[test]
fn append_is_acknowledged_before_reader_wakes() {
    let bench = Bench::new(options());
    let log = bench.log();
    let order = std::cell::RefCell::new(Vec::new());
    // Waits before the append, like a delivery task.
    let readable = log.readable();
    tokio::pin!(readable);
    readable.as_mut().enable();
    let reading = async {
        readable.await;
        order.borrow_mut().push("read");
    };
    let appending = async {
        log.append(record("a")).await.unwrap();
        order.borrow_mut().push("answered");
    };
    // Each future is polled only after a wake-up, in wake-up order.
    let mut both = FuturesUnordered::<LocalBoxFuture<'_, ()>>::new();
    both.extend([reading.boxed_local(), appending.boxed_local()]);
    block_on(async { while both.next().await.is_some() {} });
    assert_eq!(*order.borrow(), ["answered", "read"]);
}

fn futures_poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut std::task::Context::from_waker(std::task::Waker::noop()))
}

#[test]
fn record_larger_than_segment_round_trips() {
    let mut bench = Bench::new(Options {
        segment_bytes: 1000,
        compress: true,
        ..options()
    });
    let large: String = (0..300_000).map(|_| fastrand::alphanumeric()).collect();
    bench.fill(&["before", &large, "after"]);
    assert_eq!(bench.texts(), ["before", large.as_str(), "after"]);
    bench.crash();
    assert_eq!(bench.texts(), ["before", large.as_str(), "after"]);
}

#[test]
fn closed_log_reopens_despite_other_references() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("queue");
    let logs = LogRegistry::default();
    let open = || logs.open(&path, &options(), StorageMetrics::new(&[]));
    for _ in 0..20 {
        let (lease, found) = open().unwrap();
        assert!(found.is_some());
        let held = lease.log().clone();
        assert!(lease.close());
        assert!(!logs.is_open(&path));
        assert_eq!(
            block_on(held.append(record("late"))),
            Err(AppendError::Closed)
        );
    }
}

#[test]
fn new_lease_gets_unacknowledged_records() {
    let directory = tempfile::tempdir().unwrap();
    let logs = LogRegistry::default();
    let open = || {
        logs.open(directory.path(), &options(), StorageMetrics::new(&[]))
            .unwrap()
    };
    let (old, _) = open();
    old.become_reader();
    for text in ["a", "b", "c"] {
        block_on(old.log().append(record(text))).unwrap();
    }
    let ReadResult::Records(first) = old.next(1, true).unwrap() else {
        panic!()
    };
    let (new, found) = open();
    assert!(found.is_none());
    let ReadResult::Records(second) = old.next(1, true).unwrap() else {
        panic!()
    };
    new.become_reader();
    assert!(matches!(old.next(1, true).unwrap(), ReadResult::Ended));
    old.log().acknowledge(first[0].sequence, first[0].items);
    old.log().requeue(second[0].sequence, second[0].location);
    assert!(!old.close());
    let mut rest = Vec::new();
    while let ReadResult::Records(records) = new.next(1, true).unwrap() {
        rest.extend(records);
    }
    assert_eq!(texts(&rest), ["b", "c"]);
    assert!(new.close());
}

#[test]
fn cancelled_waiting_append_is_not_written() {
    let bench = Bench::new(options());
    let held = bench.disk.hold();
    let mut first = Box::pin(bench.log().append(record("first")));
    assert!(futures_poll(first.as_mut()).is_pending());
    // The writer stays busy with the first record.
    wait_until(|| bench.log().waiting() == 0);
    let mut given_up = Box::pin(bench.log().append(record("given up")));
    assert!(futures_poll(given_up.as_mut()).is_pending());
    drop(given_up);
    drop(held);
    block_on(first).unwrap();
    bench.fill(&["after"]);
    assert_eq!(bench.texts(), ["first", "after"]);
}

#[test]
fn newer_format_version_is_an_error_naming_the_file() {
    let mut bench = Bench::new(options());
    bench.fill(&["a"]);
    bench.close();
    let path = bench.segments().remove(0);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[12] = 9;
    let crc = super::format::crc(&bytes[12..SEGMENT_HEADER]).to_le_bytes();
    bytes[8..12].copy_from_slice(&crc);
    std::fs::write(&path, bytes).unwrap();
    let disk = Arc::new(Local { mode: 0o600 });
    let error = Log::open(
        bench.directory.path(),
        options(),
        disk,
        StorageMetrics::new(&[]),
    )
    .unwrap_err();
    assert!(error.to_string().contains("version 9"), "{error}");
}

#[test]
fn inspection_changes_nothing_and_sees_backlog() {
    let mut bench = Bench::new(Options {
        segment_bytes: 100,
        ..options()
    });
    bench.fill(&["aaaa", "bbbb", "cccc", "dddd"]);
    let records = bench.take();
    bench.acknowledge(&records[1..2]);
    bench.close();
    let before: Vec<_> = bench
        .segments()
        .iter()
        .map(|path| std::fs::read(path).unwrap())
        .collect();
    let contents = inspect(bench.directory.path()).unwrap();
    assert_eq!((contents.found.records, contents.found.items), (3, 12));
    assert!(!contents.in_use);
    let records = backlog(bench.directory.path()).unwrap().records;
    let read: Vec<_> = records.map(Result::unwrap).collect();
    let expected = ["aaaa", "cccc", "dddd"].map(|text| (4, Bytes::from(text)));
    assert_eq!(read, expected);
    let after: Vec<_> = bench
        .segments()
        .iter()
        .map(|path| std::fs::read(path).unwrap())
        .collect();
    assert_eq!(before, after);
    bench.open();
    assert!(inspect(bench.directory.path()).unwrap().in_use);
}

#[derive(Debug, Clone)]
enum Move {
    Append(usize),
    Take(usize),
    Acknowledge(usize),
    GiveBack(usize),
    Restart,
    Crash,
    FailWrite(usize),
    FailSync,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        6 => (0_usize..400).prop_map(Move::Append),
        4 => (0_usize..500).prop_map(Move::Take),
        4 => any::<usize>().prop_map(Move::Acknowledge),
        1 => any::<usize>().prop_map(Move::GiveBack),
        1 => Just(Move::Restart),
        1 => Just(Move::Crash),
        1 => (0_usize..300).prop_map(Move::FailWrite),
        1 => Just(Move::FailSync),
    ];
    prop::collection::vec(one, 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Each appended record is handed out in order until it is acknowledged. After a crash, acknowledged records may be
    /// repeated; refused records never appear.
    #[test]
    fn log_behaves_like_in_memory_list(moves in moves(), compress in any::<bool>()) {
        let mut bench = Bench::new(Options { segment_bytes: 300, compress, ..options() });
        // Text; whether the record is acknowledged; whether the acknowledgement may be in memory only.
        let mut model: BTreeMap<String, bool> = BTreeMap::new();
        let mut out: Vec<Record> = Vec::new();
        let mut unsaved: BTreeSet<String> = BTreeSet::new();
        // Records acknowledged before a crash that may have lost the acknowledgement.
        let mut repeated: BTreeSet<String> = BTreeSet::new();
        for (number, one) in moves.into_iter().enumerate() {
            match one {
                Move::Append(len) => {
                    let text = format!("{number:06}{}", "x".repeat(len));
                    if bench.append(&text).is_ok() {
                        model.insert(text, false);
                    }
                }
                Move::Take(most) => {
                    if let ReadResult::Records(records) = bench.log().next(LEASE, most, true).unwrap() {
                        out.extend(records);
                    }
                }
                Move::Acknowledge(which) if !out.is_empty() => {
                    let record = out.remove(which % out.len());
                    bench.log().acknowledge(record.sequence, record.items);
                    let text = texts(&[record]).remove(0);
                    unsaved.insert(text.clone());
                    model.insert(text, true);
                }
                Move::GiveBack(which) if !out.is_empty() => {
                    let record = out.remove(which % out.len());
                    bench.log().requeue(record.sequence, record.location);
                }
                Move::Restart => {
                    bench.close();
                    bench.disk.recover();
                    bench.open();
                    out.clear();
                    unsaved.clear();
                }
                Move::Crash => {
                    bench.disk.power_fails();
                    bench.crash();
                    out.clear();
                    repeated.append(&mut unsaved);
                }
                Move::FailWrite(len) => bench.disk.fail(Fault::Write(len), 1),
                Move::FailSync => bench.disk.fail(Fault::Sync, 1),
                _ => {}
            }
            prop_assert_eq!(bench.recovered.lost_records, 0);
            prop_assert_eq!(&bench.recovered.damaged, &[]);
        }
        bench.close();
        bench.disk.recover();
        bench.open();
        let rest = bench.texts();
        let mut sorted = rest.clone();
        sorted.sort();
        prop_assert_eq!(&rest, &sorted);
        let waiting: BTreeSet<&String> = model.iter().filter(|(_, done)| !**done).map(|(text, _)| text).collect();
        let rest: BTreeSet<&String> = rest.iter().collect();
        prop_assert!(rest.is_superset(&waiting), "{rest:?} {waiting:?}");
        for text in rest.difference(&waiting) {
            prop_assert!(repeated.contains(*text), "{text}");
        }
    }
}

#[test]
fn queue_continues_after_its_directory_was_removed() {
    let mut bench = Bench::new(options());
    bench.fill(&["before"]);
    std::fs::remove_dir_all(bench.directory.path()).unwrap();
    bench.fill(&["after"]);
    bench.crash();
    assert_eq!(bench.texts(), ["after"], "it is on the disk");
    bench.log().acknowledge(1, 5);
    bench.log().make_room();
    bench.settle();
    std::fs::remove_dir_all(bench.directory.path()).unwrap();
    bench.fill(&["more"]);
    assert_eq!(bench.texts(), ["more"]);
}

#[test]
fn records_in_removed_files_are_lost_and_counted() {
    let mut bench = Bench::new(options());
    bench.fill(&["abc", "de"]);
    std::fs::remove_dir_all(bench.directory.path()).unwrap();
    let log = bench.log.take().unwrap();
    log.close();
    assert_eq!((log.usage().records, log.take_lost_items()), (0, 5));
}

#[test]
fn removed_backlog_files_do_not_block() {
    let mut bench = Bench::new(options());
    bench.fill(&["abc", "de"]);
    bench.crash();
    for segment in bench.segments() {
        std::fs::remove_file(segment).unwrap();
    }
    bench.fill(&["new"]);
    assert_eq!(bench.texts(), ["new"]);
    assert_eq!(bench.log().take_lost_items(), 5);
}

#[test]
fn damaged_tail_after_a_clean_stop_is_counted() {
    let mut bench = Bench::new(options());
    bench.fill(&["a", "b", "c"]);
    bench.close();
    let segment = bench.segments().remove(0);
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(&segment)
        .unwrap();
    file.set_len(file.metadata().unwrap().len() - 1).unwrap();
    bench.open();
    assert_eq!(
        (bench.recovered.records, bench.recovered.lost_records),
        (2, 1)
    );
    assert_eq!(bench.texts(), ["a", "b"]);
}
