//! A tier: the real binary with the real configuration, over several process lives.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;

use super::link::Link;
use super::locked;
use super::metrics::Metrics;

/// Time limit of any step of a process on a busy machine. It only matters if something is broken.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// Delay before a failed start is repeated, as an orchestrator would do.
const RESTART: Duration = Duration::from_secs(1);
const READY: &str = "Everything is ready. Begin running and processing data.";

/// A tier: its command line and its history.
pub struct Tier {
    pub name: String,
    /// Memory limit in bytes: the limit of `memory_limiter` plus the overhead in
    /// docs/deployment.md.
    pub memory_bound: u64,
    /// Whether data was removed from the tier's queue, or permanently refused behind it; the tier
    /// must then report a loss when it ends.
    pub may_lose: bool,
    pub binary: PathBuf,
    /// Configuration files in order. The last one is this program's own and changes with reloads.
    pub configurations: Vec<PathBuf>,
    pub variables: BTreeMap<&'static str, String>,
    /// File with all log output.
    pub log_file: PathBuf,
    /// Links to the receiver: over gRPC, and over HTTP if used.
    pub grpc: Arc<Link>,
    pub http: Option<Arc<Link>>,
    /// Lock of the process: only one fault at a time acts on it.
    pub life: tokio::sync::Mutex<Option<Life>>,
    pub history: Mutex<History>,
    /// Number of current faults that may make a start fail: a full disk, or partly renewed
    /// certificates.
    pub start_troubles: AtomicUsize,
    pub began: Instant,
}

/// Results of past lives and the current one.
#[derive(Debug, Default)]
pub struct History {
    pub starts: usize,
    pub failed_starts: usize,
    /// Ends of lives, since the beginning of the run.
    pub ends: Vec<Duration>,
    /// Peak memory of all lives, in bytes.
    pub peak: u64,
    /// Warnings and errors, by text.
    pub complaints: BTreeMap<String, usize>,
    /// Number of records reported as lost.
    pub lost_records: u64,
    /// Log lines that must not occur.
    pub defects: Vec<String>,
}

/// A running process.
pub struct Life {
    child: Child,
    pid: Pid,
    log: watch::Receiver<Log>,
}

/// Log events of a life for waiting tasks.
#[derive(Debug, Default)]
struct Log {
    ready: bool,
    /// Number of finished reloads, successful and failed.
    reloaded: usize,
    rejected: usize,
    grpc: Option<SocketAddr>,
    http: Option<SocketAddr>,
    metrics: Option<SocketAddr>,
    ended: bool,
    last: String,
}

impl Tier {
    /// Starts the process and waits until it is ready. Repeats a failed start while starts may
    /// fail.
    pub async fn start(self: &Arc<Self>, life: &mut Option<Life>) -> Result<(), String> {
        let began = Instant::now();
        loop {
            let mut new = self.spawn()?;
            let ready = new.wait(|log| log.ready).await;
            if ready.is_ok() {
                self.lead_to(Some(&new));
                *life = Some(new);
                return Ok(());
            }
            let status = new.child.try_wait();
            let said = new.log.borrow().last.clone();
            locked(&self.history).failed_starts += 1;
            if self.start_troubles.load(Relaxed) == 0 || began.elapsed() > PATIENCE {
                let name = &self.name;
                return Err(format!(
                    "{name} did not start ({status:?}); it said last: {said}"
                ));
            }
            new.end(Signal::KILL).await?;
            tokio::time::sleep(RESTART).await;
        }
    }

    /// Starts the process without waiting.
    pub fn spawn(self: &Arc<Self>) -> Result<Life, String> {
        let mut command = Command::new(&self.binary);
        for path in &self.configurations {
            command.arg(format!("--config={}", path.display()));
        }
        command.envs(&self.variables);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(Stdio::piped()).kill_on_drop(true);
        let failed = |error| format!("cannot start {}: {error}", self.binary.display());
        let mut child = command.spawn().map_err(failed)?;
        let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let (Some(pid), Some(stderr)) = (pid, child.stderr.take()) else {
            return Err(format!("{} ended at once", self.name));
        };
        locked(&self.history).starts += 1;
        let (write, log) = watch::channel(Log::default());
        let file = File::options()
            .create(true)
            .append(true)
            .open(&self.log_file);
        let file = file.map_err(|error| format!("{}: {error}", self.log_file.display()))?;
        tokio::spawn(self.clone().follow(stderr, file, write));
        tokio::spawn(self.clone().watch_memory(pid, log.clone()));
        Ok(Life { child, pid, log })
    }

    /// Ends a life with this signal, and waits for the end. Connected peers are not informed.
    pub async fn end(&self, life: &mut Option<Life>, signal: Signal) -> Result<ExitStatus, String> {
        let Some(ending) = life.as_mut() else {
            return Err(format!("{} does not run", self.name));
        };
        locked(&self.history).ends.push(self.began.elapsed());
        if signal == Signal::KILL {
            self.lead_to(None);
        }
        let status = ending.end(signal).await;
        self.lead_to(None);
        // Requests may have been in flight until here.
        locked(&self.history).ends.push(self.began.elapsed());
        *life = None;
        status.map_err(|error| format!("{}: {error}", self.name))
    }

    /// Reloads the configuration; returns whether it was accepted.
    pub async fn reload(&self, life: &mut Life) -> Result<bool, String> {
        let before = {
            let log = life.log.borrow();
            (log.reloaded, log.rejected)
        };
        life.signal(Signal::HUP)?;
        life.wait(|log| (log.reloaded, log.rejected) != before)
            .await
            .map_err(|error| format!("{}: no outcome of a reload: {error}", self.name))?;
        self.lead_to(Some(life));
        Ok(life.log.borrow().reloaded > before.0)
    }

    /// Checks that an orderly shutdown reported no loss.
    pub fn expect_success(&self, status: ExitStatus) -> Result<(), String> {
        match status.code() {
            Some(0) => Ok(()),
            Some(1) if self.may_lose => Ok(()),
            _ => Err(format!("{} ended with {status} after SIGTERM", self.name)),
        }
    }

    /// Returns the process's current metrics.
    pub async fn metrics(&self) -> Result<Metrics, String> {
        let life = self.life.lock().await;
        let address = life.as_ref().and_then(|life| life.log.borrow().metrics);
        let address = address.ok_or("it does not run")?;
        let page = tokio::time::timeout(PATIENCE, super::page(address, "/metrics"));
        let page = page.await.map_err(|_| "no answer in time".to_owned())??;
        Ok(Metrics::parse(&page))
    }

    /// Returns the current memory in bytes; `None` between lives.
    pub async fn memory(&self) -> Option<u64> {
        let life = self.life.lock().await;
        status(life.as_ref()?.pid, "VmRSS:")
    }

    fn lead_to(&self, life: Option<&Life>) {
        let [grpc, http] = match life {
            Some(life) => {
                let log = life.log.borrow();
                [log.grpc, log.http]
            }
            None => [None, None],
        };
        self.grpc.lead_to(grpc);
        if let Some(link) = &self.http {
            link.lead_to(http);
        }
    }

    /// Reads the log of a life until its end.
    async fn follow(
        self: Arc<Self>,
        stderr: tokio::process::ChildStderr,
        mut file: File,
        log: watch::Sender<Log>,
    ) {
        let mut lines = BufReader::new(stderr).lines();
        while let Ok(Some(text)) = lines.next_line().await {
            let _ = writeln!(file, "{text}");
            let line: Value = serde_json::from_str(&text).unwrap_or_default();
            self.note(&text, &line);
            log.send_if_modified(|log| log.take(text, &line));
        }
        log.send_modify(|log| log.ended = true);
    }

    fn note(&self, text: &str, line: &Value) {
        let mut history = locked(&self.history);
        if text.contains("panicked at") {
            history.defects.push(format!("{} said: {text}", self.name));
        }
        let message = line["msg"].as_str().unwrap_or_default();
        if matches!(
            line["level"].as_str(),
            Some("warn" | "error" | "WARN" | "ERROR")
        ) {
            *history.complaints.entry(message.to_owned()).or_default() += 1;
        }
        if message == "Records of a stored queue were in damaged blocks. They are lost." {
            history.lost_records += line["records"].as_u64().unwrap_or_default();
        }
    }

    /// Records the peak memory of a life until its end.
    async fn watch_memory(self: Arc<Self>, pid: Pid, log: watch::Receiver<Log>) {
        while !log.borrow().ended {
            if let Some(peak) = status(pid, "VmHWM:") {
                let mut history = locked(&self.history);
                history.peak = history.peak.max(peak);
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }
}

impl Life {
    /// Sends a signal.
    pub fn signal(&self, signal: Signal) -> Result<(), String> {
        rustix::process::kill_process(self.pid, signal).map_err(|error| error.to_string())
    }

    /// Sends a signal and waits for the end.
    pub async fn end(&mut self, signal: Signal) -> Result<ExitStatus, String> {
        // The process may have ended by itself.
        let _ = self.signal(signal);
        let status = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        let status = status.map_err(|_| format!("did not end within {PATIENCE:?}"))?;
        status.map_err(|error| error.to_string())
    }

    async fn wait(&mut self, seen: impl Fn(&Log) -> bool) -> Result<(), String> {
        let waiting = self.log.wait_for(|log| log.ended || seen(log));
        match tokio::time::timeout(PATIENCE, waiting).await {
            Err(_) => Err(format!("nothing within {PATIENCE:?}")),
            Ok(Ok(log)) if seen(&log) => Ok(()),
            Ok(_) => Err("it has ended".to_owned()),
        }
    }
}

impl Log {
    /// Whether the line is relevant for waiting tasks.
    fn take(&mut self, text: String, line: &Value) -> bool {
        let message = line["msg"].as_str().unwrap_or_default();
        let endpoint = line["endpoint"]
            .as_str()
            .and_then(|endpoint| endpoint.parse().ok());
        let is_otlp = line["otelcol.component.id"] == "otlp";
        match message {
            READY => self.ready = true,
            "Starting GRPC server" if is_otlp => self.grpc = endpoint,
            "Starting HTTP server" if is_otlp => self.http = endpoint,
            "Starting metrics server" => self.metrics = endpoint,
            "Configuration reloaded." => self.reloaded += 1,
            message if message.ends_with("The old one keeps running.") => self.rejected += 1,
            _ => {
                self.last = text;
                return false;
            }
        }
        true
    }
}

/// Returns a value of /proc/PID/status in bytes.
fn status(pid: Pid, name: &str) -> Option<u64> {
    let path = format!("/proc/{}/status", pid.as_raw_nonzero());
    let status = std::fs::read_to_string(Path::new(&path)).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kib = line.trim().trim_end_matches(" kB");
    Some(kib.parse::<u64>().ok()? * 1024)
}
