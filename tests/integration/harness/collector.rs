//! The collector under test: the real binary with the configuration of the test.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::watch;

use super::metrics::Metrics;
use super::{POLL_INTERVAL, WAIT_LIMIT, raw, within};

/// The binary of this build. Empty in examples, which cannot get its path.
pub const BINARY: &str = match option_env!("CARGO_BIN_EXE_collector") {
    Some(path) => path,
    None => "",
};

/// The binary under test: the binary of this build, or another binary (for example a release build) in the variable
/// `COLLECTOR`.
pub fn binary() -> String {
    std::env::var("COLLECTOR").unwrap_or_else(|_| match BINARY {
        "" => {
            let example = std::env::current_exe().unwrap();
            let target = example.parent().and_then(Path::parent).unwrap();
            target.join("collector").display().to_string()
        }
        path => path.to_owned(),
    })
}

/// A running collector. The drop kills it. If the test has failed, its log is printed.
pub struct Collector {
    child: Child,
    log: watch::Receiver<Log>,
    reader: Option<JoinHandle<()>>,
    config: PathBuf,
    _directory: TempDir,
}

/// Lines from stderr.
#[derive(Debug, Default)]
pub struct Log {
    pub lines: Vec<Line>,
    /// Whether the output has ended.
    ended: bool,
}

/// A line of the log.
#[derive(Debug, Clone)]
pub struct Line {
    pub text: String,
    /// `Null` for a line that is not JSON: reports on the configuration.
    json: Value,
}

impl Line {
    /// The text of a field; empty if the line lacks the field.
    pub fn field(&self, name: &str) -> &str {
        self.json[name].as_str().unwrap_or_default()
    }

    /// The number in a field.
    pub fn number(&self, name: &str) -> u64 {
        self.json[name].as_u64().unwrap()
    }

    pub fn message(&self) -> &str {
        self.field("msg")
    }
}

/// A collector that has ended.
pub struct Ended {
    pub status: ExitStatus,
    pub lines: Vec<Line>,
}

impl Ended {
    /// The line with that message.
    pub fn line(&self, message: &str) -> &Line {
        let found = self.lines.iter().find(|line| line.message() == message);
        found.unwrap_or_else(|| panic!("no line says: {message}"))
    }
}

impl Collector {
    /// Starts a collector with this configuration and waits until it is ready. Endpoints of servers are
    /// `127.0.0.1:0`.
    pub async fn start(yaml: &str) -> Self {
        Collector::start_with(yaml, &[]).await
    }

    /// The same with more arguments.
    pub async fn start_with(yaml: &str, arguments: &[&str]) -> Self {
        Collector::run(Command::new(binary()), yaml, arguments).await
    }

    /// The same by this command, which ends where the arguments begin.
    pub async fn run(command: Command, yaml: &str, arguments: &[&str]) -> Self {
        Collector::run_foreign(command, yaml, &[&OWN_TELEMETRY, arguments].concat()).await
    }

    /// Starts a collector without the settings that the harness needs for metrics. Also for the collectors of other
    /// projects.
    pub async fn run_foreign(mut command: Command, yaml: &str, arguments: &[&str]) -> Self {
        let directory = TempDir::new().unwrap();
        let config = directory.path().join("collector.yaml");
        std::fs::write(&config, yaml).unwrap();
        // The command may run the collector as another user.
        std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let mut child = command
            .arg(format!("--config={}", config.display()))
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (write, log) = watch::channel(Log::default());
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let reader = std::thread::spawn(move || {
            for text in stderr.lines().map_while(Result::ok) {
                let json = serde_json::from_str(&text).unwrap_or_default();
                write.send_modify(|log| log.lines.push(Line { text, json }));
            }
            write.send_modify(|log| log.ended = true);
        });
        let collector = Collector {
            child,
            log,
            reader: Some(reader),
            config,
            _directory: directory,
        };
        collector
            .wait_for("Everything is ready. Begin running and processing data.")
            .await;
        collector
    }

    /// The address of the gRPC server of the receiver `otlp`.
    pub fn grpc(&self) -> SocketAddr {
        self.server("Starting GRPC server", "otlp")
    }

    /// The address of the HTTP server of the receiver `otlp`.
    pub fn http(&self) -> SocketAddr {
        self.server("Starting HTTP server", "otlp")
    }

    /// The address of the last server that logged `message` when it began to listen.
    pub fn server(&self, message: &str, component: &str) -> SocketAddr {
        let log = self.log.borrow();
        let line = log.lines.iter().rev().find(|line| {
            line.message() == message && line.field("otelcol.component.id") == component
        });
        let line = line.unwrap_or_else(|| panic!("{component} has not said: {message}"));
        line.field("endpoint").parse().unwrap()
    }

    /// Waits for a line with this message.
    pub async fn wait_for(&self, message: &str) -> Line {
        self.wait_for_line(message, 0, |line| line.message() == message)
            .await
    }

    /// Waits for such a line from the line number `from` on.
    pub async fn wait_for_line(
        &self,
        what: &str,
        from: usize,
        is_it: impl Fn(&Line) -> bool,
    ) -> Line {
        let mut log = self.log.clone();
        let found = |log: &Log| {
            log.lines
                .iter()
                .skip(from)
                .find(|line| is_it(line))
                .cloned()
        };
        within(&format!("the log line: {what}"), async {
            let log = log.wait_for(|log| log.ended || found(log).is_some()).await;
            found(&log.unwrap()).unwrap_or_else(|| panic!("the collector ended without: {what}"))
        })
        .await
    }

    /// All lines logged by the collector.
    pub fn lines(&self) -> Vec<Line> {
        self.log.borrow().lines.clone()
    }

    /// Changes the configuration, and reloads it. If the collector refuses it, `Err` has the lines logged since then.
    pub async fn reload(&self, yaml: &str) -> Result<(), Vec<Line>> {
        let from = self.log.borrow().lines.len();
        std::fs::write(&self.config, yaml).unwrap();
        self.signal("HUP");
        let done = "Configuration reloaded.";
        let outcome = self
            .wait_for_line("the outcome of a reload", from, |line| {
                line.message() == done
                    || line.message().ends_with("still running the previous one.")
            })
            .await;
        if outcome.message() == done {
            return Ok(());
        }
        Err(self.lines().split_off(from))
    }

    /// Returns the path of the configuration.
    pub fn config(&self) -> &Path {
        &self.config
    }

    /// Sends a signal, by its name without `SIG`.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill")
            .args([format!("-{name}"), self.child.id().to_string()])
            .status();
        assert!(status.unwrap().success());
    }

    /// Sends SIGTERM and waits until the process has ended.
    pub async fn terminate(self) -> Ended {
        self.signal("TERM");
        self.ended().await
    }

    /// Waits until the process has ended.
    pub async fn ended(mut self) -> Ended {
        let mut log = self.log.clone();
        within("the end of the process", async {
            log.wait_for(|log| log.ended).await.unwrap();
        })
        .await;
        Ended {
            // Its stderr is closed, so the process ends at once.
            status: self.child.wait().unwrap(),
            lines: self.lines(),
        }
    }

    /// Scrapes the own metrics.
    pub async fn metrics(&self) -> Metrics {
        let address = self.server("Starting metrics server", "service");
        let page = raw::http(address, Method::GET, "/metrics", &[], "").await;
        assert_eq!(page.status, StatusCode::OK);
        let metrics = Metrics::parse(page.text());
        let undocumented = metrics.undocumented();
        assert!(
            undocumented.is_empty(),
            "declare these metrics in the registry entry of their component: {undocumented:#?}"
        );
        metrics
    }

    /// Waits until the own metrics are as expected.
    pub async fn wait_for_metrics(
        &self,
        what: &str,
        expected: impl Fn(&Metrics) -> bool,
    ) -> Metrics {
        let began = tokio::time::Instant::now();
        loop {
            let metrics = self.metrics().await;
            if expected(&metrics) {
                return metrics;
            }
            assert!(
                began.elapsed() < WAIT_LIMIT,
                "waited {WAIT_LIMIT:?} in vain for metrics: {what}\n{metrics}"
            );
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Waits until the accounts of every pipeline and every exporter balance: received = passed + dropped + refused +
    /// in flight, with nothing in flight.
    pub async fn assert_conservation(&self) -> Metrics {
        let balanced = |metrics: &Metrics| metrics.balance() == Ok(0.0);
        let metrics = self
            .wait_for_metrics("all accounts balance, nothing in flight", balanced)
            .await;
        assert!(
            !metrics
                .labels("tributary_pipeline_received_items")
                .is_empty()
        );
        assert!(
            !metrics
                .labels("tributary_exporter_received_items")
                .is_empty()
        );
        metrics
    }

    /// Waits until items are in flight and every account balances.
    pub async fn assert_conservation_in_flight(&self) -> Metrics {
        let balanced = |metrics: &Metrics| metrics.balance().is_ok_and(|in_flight| in_flight > 0.0);
        self.wait_for_metrics("all accounts balance, something in flight", balanced)
            .await
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Peak memory of the process, in bytes. [`memory`](Self::memory) defines the counted memory; the current number of
    /// file pages is assumed for the peak.
    pub fn peak_memory(&self) -> u64 {
        self.status("VmHWM:").saturating_sub(self.file_pages())
    }

    /// The memory the process has now, in bytes, without [pages of files](Self::file_pages).
    pub fn memory(&self) -> u64 {
        self.status("VmRSS:").saturating_sub(self.file_pages())
    }

    /// Resident memory of mapped files, mostly of the program itself, in bytes. The same program may have three times
    /// as much for the same work: since Linux 6.18, one access maps a whole cached folio, and the size of folios
    /// depends on how the file was written or read. The kernel can reclaim all of this memory at any time.
    pub fn file_pages(&self) -> u64 {
        self.status("RssFile:")
    }

    fn status(&self, name: &str) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.unwrap().trim().trim_end_matches(" kB");
        kib.parse::<u64>().unwrap() * 1024
    }

    /// Processor time of the process, in user and kernel mode.
    pub fn processor_time(&self) -> Duration {
        // proc_pid_stat(5): fields 14 and 15, in ticks of 10 ms. The second field may have spaces, and ends with `)`.
        let path = format!("/proc/{}/stat", self.child.id());
        let stat = std::fs::read_to_string(path).unwrap();
        let (_, fields) = stat.rsplit_once(')').unwrap();
        let ticks = fields.split_whitespace().skip(11).take(2);
        Duration::from_millis(ticks.map(|field| field.parse::<u64>().unwrap() * 10).sum())
    }
}

/// Configuration that the harness always needs.
const OWN_TELEMETRY: [&str; 2] = [
    "--set=service.telemetry.logs.encoding=json",
    "--set=service.telemetry.metrics.address=127.0.0.1:0",
];

impl Drop for Collector {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
        if std::thread::panicking() {
            let pid = self.child.id();
            for line in &self.log.borrow().lines {
                eprintln!("collector {pid}: {}", line.text);
            }
        }
    }
}
