//! Cost of a persistent queue: appends per second, processor time per append, and the speed of
//! recovery at the start and of reading.
//!
//! `cargo bench --bench storage` prints a line for each; `cargo bench --bench storage -- DIRECTORY`
//! works in that directory, to measure its disk. `cargo test --benches` runs it over a few records.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tributary_storage::StorageMetrics;
use tributary_storage::{Fsync, LogRegistry, NewRecord, Options, ReadResult};

/// Bytes of a record: a batch of some thirty spans.
const RECORD: usize = 10_000;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let measured = arguments.iter().any(|argument| argument == "--bench");
    let given = arguments
        .iter()
        .find(|argument| !argument.starts_with("--"));
    let parent = given.map_or_else(std::env::temp_dir, PathBuf::from);
    let directory = tempfile::tempdir_in(parent)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()?;
    let records = records();
    let modes = [
        ("always", Fsync::Always),
        ("interval of 1s", Fsync::Interval(Duration::from_secs(1))),
        ("never", Fsync::Never),
    ];
    for (name, fsync) in modes {
        for appenders in [1, 16, 64] {
            let time = Duration::from_millis(if measured { 3000 } else { 10 });
            let path = directory.path().join(format!("{appenders}"));
            runtime.block_on(append(&path, name, fsync, appenders, time, &records))?;
            std::fs::remove_dir_all(path)?;
        }
    }
    let backlog = if measured { 100_000 } else { 100 };
    runtime.block_on(recover(
        &directory.path().join("backlog"),
        backlog,
        &records,
    ))?;
    Ok(())
}

fn options(fsync: Fsync) -> Options {
    Options {
        fsync,
        ..Options::default()
    }
}

async fn append(
    path: &Path,
    name: &str,
    fsync: Fsync,
    appenders: usize,
    time: Duration,
    records: &[Bytes],
) -> Result<(), Box<dyn Error>> {
    let (lease, _) =
        LogRegistry::default().open(path, &options(fsync), StorageMetrics::new(&[]))?;
    let (began, cpu) = (Instant::now(), cpu_time());
    let tasks: Vec<_> = (0..appenders)
        .map(|first| {
            let (log, records) = (lease.log().clone(), records.to_vec());
            tokio::spawn(async move {
                let mut appended = 0_usize;
                while began.elapsed() < time {
                    let record = &records[(first * 7 + appended) % records.len()];
                    let record = NewRecord {
                        parts: vec![record.clone()],
                        items: 30,
                        memory: Default::default(),
                    };
                    log.append(record).await?;
                    appended += 1;
                }
                Ok::<_, tributary_storage::AppendError>(appended)
            })
        })
        .collect();
    let mut appended = 0;
    for task in tasks {
        appended += task.await??;
    }
    let (took, cpu) = (began.elapsed(), cpu_time() - cpu);
    let bytes = lease.log().usage().bytes;
    println!(
        "append, fsync {name}, {appenders} at once: {:.0} a second, {:.1} MB/s, {:.1} us of CPU and {} bytes on disk \
         each",
        appended as f64 / took.as_secs_f64(),
        (appended * RECORD) as f64 / took.as_secs_f64() / 1e6,
        cpu.as_secs_f64() * 1e6 / appended as f64,
        bytes as usize / appended.max(1),
    );
    Ok(())
}

async fn recover(path: &Path, count: usize, records: &[Bytes]) -> Result<(), Box<dyn Error>> {
    let open =
        || LogRegistry::default().open(path, &options(Fsync::Never), StorageMetrics::new(&[]));
    let (lease, _) = open()?;
    let mut sent = 0;
    while sent < count {
        let some = (0..1000.min(count - sent)).map(|at| {
            let record = NewRecord {
                parts: vec![records[(sent + at) % records.len()].clone()],
                items: 30,
                memory: Default::default(),
            };
            lease.log().append(record)
        });
        let some: Vec<_> = some.collect();
        sent += some.len();
        for appended in futures_util::future::join_all(some).await {
            appended?;
        }
    }
    lease.close();
    let (lease, found) = open()?;
    let found = found.unwrap_or_default();
    println!(
        "recovery: {} records, {:.0} MB in {:.2} s, {:.0} MB/s",
        found.records,
        found.bytes as f64 / 1e6,
        found.took.as_secs_f64(),
        found.bytes as f64 / 1e6 / found.took.as_secs_f64(),
    );
    lease.become_reader();
    let (began, cpu) = (Instant::now(), cpu_time());
    let mut drained = 0;
    while let ReadResult::Records(some) = lease.next(256 << 10, true)? {
        for record in some {
            drained += record.bytes();
            lease.log().acknowledge(record.sequence, record.items);
        }
    }
    let (took, cpu) = (began.elapsed(), cpu_time() - cpu);
    println!(
        "drain: {:.0} MB of records in {:.2} s, {:.0} MB/s, {:.1} us of CPU each; resident memory {} MB",
        drained as f64 / 1e6,
        took.as_secs_f64(),
        drained as f64 / 1e6 / took.as_secs_f64(),
        cpu.as_secs_f64() * 1e6 / count as f64,
        resident() >> 20,
    );
    Ok(())
}

/// Records with about as much repetition as telemetry has, within and between records.
fn records() -> Vec<Bytes> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let record = |_| {
        let mut record = Vec::with_capacity(RECORD + 500);
        while record.len() < RECORD {
            record.extend((0..24).map(|_| random.next() as u8));
            let route = random.next() % 40;
            record.extend(format!("GET /api/v1/orders/{route}").as_bytes());
            for attribute in [
                "http.request.method",
                "server.address",
                "url.path",
                "http.response.status_code",
            ] {
                record.extend(attribute.as_bytes());
                record.extend(format!("{}-{}", attribute.len(), random.next() % 1000).as_bytes());
            }
        }
        record.truncate(RECORD);
        Bytes::from(record)
    };
    (0..200).map(record).collect()
}

/// Xorshift.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Of all threads of this process, in steps of 10 ms.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let ticks = |at: usize| {
        fields
            .get(at)
            .and_then(|field| field.parse::<u64>().ok())
            .unwrap_or(0)
    };
    Duration::from_millis((ticks(11) + ticks(12)) * 10)
}

/// Bytes of memory that this process has.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm
        .split_whitespace()
        .nth(1)
        .and_then(|field| field.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}
