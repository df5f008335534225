//! A collector that ends in every way and restarts with the same files.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use fastrand::Rng;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use tempfile::TempDir;
use tokio::sync::watch;

use super::plan::{Plan, Topology};
use super::topology;
use crate::harness::collector::{Line, binary};
use crate::harness::{Collector, POLL_INTERVAL, WAIT_LIMIT};

/// Program under test.
#[derive(Debug, Clone)]
pub enum Program {
    /// The collector of this repository.
    Own,
    /// The OpenTelemetry Collector.
    Peer(PathBuf),
}

/// Losses that the collector counted. Losses found at the start count records instead of items.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lost {
    pub items: usize,
    pub records: usize,
}

/// The collector, with the files that survive its ends.
pub struct Service {
    program: Program,
    yaml: String,
    directory: TempDir,
    /// Library that records the fsynced content; `None` where power cuts are not simulated.
    recorder: Option<PathBuf>,
    life: Option<Collector>,
    /// Addresses of the gRPC and HTTP servers; `None` while the process is down.
    addresses: watch::Sender<Option<[SocketAddr; 2]>>,
    fixed: [SocketAddr; 2],
    /// The most memory that any life had, in bytes.
    pub peak: u64,
    pub lives: usize,
    /// Exit codes of orderly ends.
    codes: Vec<Option<i32>>,
    lost: Lost,
}

impl Service {
    /// Prepares the service of a plan, and starts it.
    pub async fn start(program: &Program, plan: &Plan, hops: &[SocketAddr]) -> Self {
        let directory = TempDir::new().unwrap();
        let is_own = matches!(program, Program::Own);
        let fixed = match is_own {
            true => [(); 2].map(|()| "127.0.0.1:0".parse().unwrap()),
            false => free_addresses(),
        };
        let yaml = topology::yaml(plan, &directory.path().join("queues"), hops, fixed);
        let recorder = (is_own && plan.topology != Topology::Memory)
            .then(|| compile_recorder(directory.path()))
            .flatten();
        let mut service = Service {
            program: program.clone(),
            yaml,
            recorder,
            directory,
            life: None,
            addresses: watch::Sender::new(None),
            fixed,
            peak: 0,
            lives: 0,
            codes: Vec::new(),
            lost: Lost::default(),
        };
        service.begin().await;
        service
    }

    /// Returns the running process, if any.
    pub fn process(&self) -> Option<&Collector> {
        self.life.as_ref()
    }

    pub fn addresses(&self) -> watch::Receiver<Option<[SocketAddr; 2]>> {
        self.addresses.subscribe()
    }

    /// Directory of all queues.
    pub fn queues(&self) -> PathBuf {
        self.directory.path().join("queues")
    }

    /// Starts the process, and waits until it is ready.
    pub async fn begin(&mut self) {
        let (program, flags) = match &self.program {
            Program::Own => (binary(), None),
            Program::Peer(path) => (path.display().to_string(), Some(PEER_TELEMETRY)),
        };
        // With the signal ignored, a write beyond the limit of file sizes fails with an error.
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\"", &program]);
        if let Some(recorder) = &self.recorder {
            command
                .env("LD_PRELOAD", recorder)
                .env("POWER_SHADOW", self.shadow());
        }
        let life = match flags {
            None => Collector::run(command, &self.yaml, &[]).await,
            Some(flags) => Collector::run_foreign(command, &self.yaml, &flags).await,
        };
        let addresses = match &self.program {
            Program::Own => [life.grpc(), life.http()],
            Program::Peer(_) => self.fixed,
        };
        self.life = Some(life);
        self.lives += 1;
        self.addresses.send_replace(Some(addresses));
    }

    /// Ends the process with SIGKILL.
    pub async fn kill(&mut self) {
        if let Some(life) = self.take().await {
            life.signal("KILL");
            life.ended().await;
        }
    }

    /// Ends the process with SIGTERM.
    pub async fn stop(&mut self) {
        if let Some(life) = self.take().await {
            self.codes.push(life.terminate().await.status.code());
        }
    }

    /// Changes the configuration, and reloads it.
    pub async fn reload(&mut self) -> Result<(), Vec<Line>> {
        const INTERVALS: [&str; 2] = ["check_interval: 1s", "check_interval: 2s"];
        let now = INTERVALS.iter().position(|now| self.yaml.contains(now));
        let now = now.unwrap();
        self.yaml = self.yaml.replace(INTERVALS[now], INTERVALS[1 - now]);
        let Some(life) = &self.life else {
            return Ok(());
        };
        life.reload(&self.yaml).await?;
        // The reload may have replaced the servers.
        let addresses = [life.grpc(), life.http()];
        self.addresses.send_replace(Some(addresses));
        Ok(())
    }

    /// Takes the process, before its end.
    async fn take(&mut self) -> Option<Collector> {
        self.addresses.send_replace(None);
        let life = self.life.take()?;
        self.peak = self.peak.max(life.peak_memory());
        if let Program::Own = self.program {
            let metrics = life.metrics().await;
            let damaged = [("reason", "damaged")];
            self.lost.items += ["exporter", "connector"]
                .map(|what| metrics.sum(&format!("tributary_{what}_dropped_items"), &damaged))
                .iter()
                .sum::<f64>() as usize;
            self.lost.records += metrics.sum("tributary_storage_lost_records", &[]) as usize;
        }
        Some(life)
    }

    /// Waits until nothing is in flight and every account balances.
    pub async fn wait_until_idle(&self) -> Result<(), String> {
        let Some(life) = &self.life else {
            return Err("the process is down".to_owned());
        };
        let began = Instant::now();
        loop {
            let balance = life.metrics().await.balance();
            if balance == Ok(0.0) {
                return Ok(());
            }
            if began.elapsed() > 2 * WAIT_LIMIT {
                return Err(format!("the accounts are not settled: {balance:?}"));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Returns the reported losses of all ended processes.
    pub fn lost(&self) -> Lost {
        self.lost
    }

    /// Returns the exit codes of orderly ends that are neither 0 nor, after a reported loss, 1.
    pub fn wrong_codes(&self) -> Vec<Option<i32>> {
        let codes = self.codes.iter().copied();
        codes
            .filter(|code| !(*code == Some(0) || *code == Some(1) && self.lost != Lost::default()))
            .collect()
    }

    /// Ends the process as a power failure does. Each page of a file keeps at random its fsynced version or its current
    /// version.
    pub async fn cut_power(&mut self, random: &mut Rng) {
        self.kill().await;
        for file in files(&self.queues()) {
            let copy = self.shadow().join(identity(&file));
            match fs::read(&copy) {
                Ok(forced) => {
                    let current = fs::read(&file).unwrap();
                    fs::write(&file, mixed(&forced, &current, random)).unwrap();
                    // Writing in place keeps the inode of the file.
                    fs::copy(&file, &copy).unwrap();
                }
                // The file was never fsynced, so it may be missing.
                Err(_) if random.bool() => fs::remove_file(&file).unwrap(),
                Err(_) => {}
            }
        }
    }

    /// Program under test.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Whether power cuts can be simulated here.
    pub fn has_power(&self) -> bool {
        self.recorder.is_some()
    }

    /// Makes every later write to a file fail, or ends the failures.
    pub fn fail_writes(&self, fail: bool) {
        let Some(life) = &self.life else { return };
        let limit = Rlimit {
            current: fail.then_some(0),
            maximum: None,
        };
        let pid = Pid::from_raw(i32::try_from(life.pid()).unwrap());
        prlimit(pid, Resource::Fsize, limit).unwrap();
    }

    fn shadow(&self) -> PathBuf {
        self.directory.path().join("shadow")
    }
}

/// Returns free addresses. Another process could bind them in the meantime, which is unlikely.
fn free_addresses() -> [SocketAddr; 2] {
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap())
}

/// Compiles the recorder; `None` without a C compiler.
fn compile_recorder(directory: &Path) -> Option<PathBuf> {
    fs::create_dir(directory.join("shadow")).unwrap();
    let source = directory.join("power.c");
    fs::write(&source, include_str!("power.c")).unwrap();
    let library = directory.join("power.so");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let output = Command::new(compiler)
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .args([&library, &source])
        .output()
        .ok()?;
    assert!(output.status.success(), "{output:?}");
    Some(library)
}

/// The name of the recorder's copy of a file.
fn identity(file: &Path) -> String {
    use std::os::unix::fs::MetadataExt as _;
    let metadata = fs::metadata(file).unwrap();
    let born = metadata
        .created()
        .ok()
        .and_then(|born| born.duration_since(std::time::UNIX_EPOCH).ok())
        .unwrap_or_default();
    format!(
        "{}-{}.{:09}",
        metadata.ino(),
        born.as_secs(),
        born.subsec_nanos()
    )
}

/// Returns all files below a directory, sorted by name.
pub fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut todo = vec![directory.to_owned()];
    while let Some(directory) = todo.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let path = entry.path();
            match path.is_dir() {
                true => todo.push(path),
                false => found.push(path),
            }
        }
    }
    found.sort();
    found
}

/// Mixes the pages of both versions. The length is the length of one version.
fn mixed(forced: &[u8], current: &[u8], random: &mut Rng) -> Vec<u8> {
    const PAGE: usize = 4096;
    let shorter = forced.len().min(current.len());
    let longer = forced.len().max(current.len());
    let mut mixed = match forced.len() < current.len() {
        true => current.to_vec(),
        false => forced.to_vec(),
    };
    for at in (0..longer).step_by(PAGE) {
        let version = if random.bool() { forced } else { current };
        let page = at..(at + PAGE).min(longer);
        let have = version.get(at..page.end.min(version.len()).max(at));
        let have = have.unwrap_or_default();
        // Beyond the end of the shorter version, a page that did not reach the disk has zeros.
        let written = &mut mixed[page];
        written.fill(0);
        written[..have.len()].copy_from_slice(have);
    }
    // The fsynced content is always kept.
    mixed.truncate(random.usize(forced.len().max(shorter)..=longer));
    mixed
}

/// Settings for the collector of another project.
const PEER_TELEMETRY: [&str; 2] = [
    "--set=service.telemetry.logs.encoding=json",
    "--set=service.telemetry.metrics.level=none",
];
