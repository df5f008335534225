//! Attack suite: sends what a hostile client would send to a running collector, and reports for each attack whether
//! the collector held. Only loopback addresses are attacked.
//!
//! Checks of every attack:
//!
//! - **Service.** Well-behaved clients send small requests during the attack, over existing and over new connections,
//!   and from another address than the attacker's if the system has one. None waits longer than `--max-wait-ms` until a
//!   request is accepted. Attacks that fill the memory budget are an exception: all clients share the budget, so a
//!   refusal with a retry delay counts as a response.
//! - **Memory**, with `--pid` and `--limit-mib`: the peak stays below the limit plus 48 MiB, as SECURITY.md states.
//!   Mapped files do not count. If the peak cannot be reset, the peak since the start of the process counts.
//! - **Log**, with `--log`: the file grows by at most 256 KiB.
//!
//! Each attack has additional checks, such as the end of a connection that floods.

#![allow(
    unreachable_pub,
    reason = "a part offers its items to the other parts, here and in the tests"
)]

#[allow(dead_code, clippy::unwrap_used, reason = "shared with the tests")]
#[path = "../../../tests/integration/harness/attacks.rs"]
mod attacks;
mod bombs;
mod bystander;
#[allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    reason = "shared with the tests"
)]
#[path = "../../../tests/integration/harness/codec.rs"]
mod codec;
mod connections;
#[allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    reason = "shared with the tests"
)]
#[path = "../../../tests/integration/harness/http2.rs"]
mod http2;
mod process;
mod protocol;
#[allow(dead_code, clippy::unwrap_used, reason = "shared with the tests")]
#[path = "../../../tests/integration/harness/raw.rs"]
mod raw;
mod report;
#[allow(dead_code, clippy::unwrap_used, reason = "shared with the tests")]
#[path = "../../../tests/integration/harness/status.rs"]
mod status;
mod target;

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
pub use tributary_otlp::Signal;

pub use report::Report;
use report::{Finding, Outcome};
use target::{Address, Target};

/// Attacks a collector on this machine and prints for each attack whether the collector held.
#[derive(Debug, Clone, clap::Parser)]
pub struct Options {
    /// OTLP/gRPC receiver: `127.0.0.1:4317`, or `https://127.0.0.1:4317` if it has TLS
    #[arg(long, value_name = "ADDRESS")]
    pub grpc: Option<Address>,
    /// OTLP/HTTP receiver
    #[arg(long, value_name = "ADDRESS")]
    pub http: Option<Address>,
    /// Server of the receiver `pprof`
    #[arg(long, value_name = "ADDRESS")]
    pub pprof: Option<Address>,
    /// Extension `health_check`
    #[arg(long, value_name = "ADDRESS")]
    pub health: Option<Address>,
    /// Own metrics
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<Address>,
    /// Certificate authorities of the servers (PEM), for addresses with `https://`
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// Client certificate (PEM), for mutual TLS
    #[arg(long, value_name = "FILE")]
    pub cert_file: Option<PathBuf>,
    /// Private key of the client certificate (PEM)
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// Process of the collector, to read its memory from /proc
    #[arg(long)]
    pub pid: Option<u32>,
    /// `limit_mib` of `memory_limiter`; the bound is 48 MiB above it
    #[arg(long, requires = "pid")]
    pub limit_mib: Option<u64>,
    /// Log file of the collector, to read its size
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Longest duration of an attack, in seconds. Ends of slow requests are checked from 13 on
    #[arg(long, default_value_t = 15)]
    pub seconds: u64,
    /// Items in a request of empty items, of two bytes each
    #[arg(long, default_value_t = 10_000_000)]
    pub items: usize,
    /// Connections of an attack that opens many
    #[arg(long, default_value_t = 250)]
    pub connections: usize,
    /// Longest time that a good client may wait, in milliseconds
    #[arg(long, default_value_t = 3000)]
    pub max_wait_ms: u64,
    /// Only attacks whose name contains this text
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,
    /// Print one JSON object for each attack instead of text
    #[arg(long)]
    pub json: bool,
}

/// Memory of the process beside `limit_mib`, in MiB, as SECURITY.md states.
const BESIDE_MIB: u64 = 48;
/// Growth of the log file in an attack, in bytes: samples of some ten kinds of lines.
const LOG_GROWTH: u64 = 256 << 10;
/// Most time for work that an attack has left behind; an eighth of the attack's, if that is less.
const SETTLE_TIME: Duration = Duration::from_secs(1);

/// The end of an attack. Attacks stop by themselves.
#[derive(Debug, Clone, Copy)]
pub struct Deadline(Instant);

impl Deadline {
    /// Starts the time of an attack.
    fn start(options: &Options) -> Self {
        Deadline(Instant::now() + Duration::from_secs(options.seconds))
    }

    /// Returns the output of `future`, or `None` at the deadline.
    async fn within<T>(self, future: impl Future<Output = T>) -> Option<T> {
        tokio::time::timeout_at(self.0, future).await.ok()
    }

    fn has_passed(self) -> bool {
        Instant::now() >= self.0
    }
}

/// Waits without a limit, because each attack has a deadline. The shared HTTP/2 client calls the method.
async fn within<T>(_what: &str, future: impl Future<Output = T>) -> T {
    future.await
}

/// Required service for well-behaved clients during an attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    /// Every request is accepted.
    Accepted,
    /// Every request is accepted, or refused because the memory is full.
    Answered,
}

/// The checks of one attack.
type Attack<'a> = Pin<Box<dyn Future<Output = Vec<Finding>> + 'a>>;

/// Runs all attacks. Returns `Err` if the suite could not run.
pub async fn run(options: Options) -> Result<Report, String> {
    process::raise_limit_on_files();
    let target = Arc::new(Target::find(&options).await?);
    let mut report = Report::new(options.json);
    for signal in target.signals.clone() {
        let name = format!("empty items, {signal}");
        run_one(&target, &mut report, &name, Expected::Answered, |_| {
            Box::pin(bombs::empty_items(&target, signal))
        })
        .await?;
    }
    if target.signals.contains(&Signal::Profiles) {
        run_one(
            &target,
            &mut report,
            "indices, profiles",
            Expected::Answered,
            |_| Box::pin(bombs::indices(&target)),
        )
        .await?;
    }
    if target.options.pprof.is_some() {
        run_one(
            &target,
            &mut report,
            "pprof files",
            Expected::Answered,
            |_| Box::pin(bombs::pprof_files(&target)),
        )
        .await?;
    }
    run_one(
        &target,
        &mut report,
        "compression bombs",
        Expected::Answered,
        |_| Box::pin(bombs::compressed(&target)),
    )
    .await?;
    for server in target.servers() {
        for (reads, what) in [(true, "no window"), (false, "unread socket")] {
            let name = format!("unread answers, {what}, {}", server.name);
            run_one(&target, &mut report, &name, Expected::Accepted, |end| {
                Box::pin(connections::unread(&target, server, reads, end))
            })
            .await?;
        }
        let name = format!("idle connections, {}", server.name);
        run_one(&target, &mut report, &name, Expected::Accepted, |end| {
            Box::pin(connections::idle(&target, server, end))
        })
        .await?;
        let name = format!("slow heads, {}", server.name);
        run_one(&target, &mut report, &name, Expected::Accepted, |end| {
            Box::pin(connections::slow_heads(&target, server, end))
        })
        .await?;
        for (what, flood) in protocol::FLOODS {
            let name = format!("{what}, {}", server.name);
            run_one(&target, &mut report, &name, Expected::Accepted, |end| {
                Box::pin(protocol::flood(&target, server, flood, end))
            })
            .await?;
        }
        let name = format!("header bomb, {}", server.name);
        run_one(&target, &mut report, &name, Expected::Accepted, |end| {
            Box::pin(protocol::header_bomb(&target, server, end))
        })
        .await?;
        if server.speaks_http1 {
            let name = format!("request smuggling, {}", server.name);
            run_one(&target, &mut report, &name, Expected::Accepted, |end| {
                Box::pin(protocol::smuggling(&target, server, end))
            })
            .await?;
            let name = format!("path traversal, {}", server.name);
            run_one(&target, &mut report, &name, Expected::Accepted, |end| {
                Box::pin(protocol::traversal(&target, server, end))
            })
            .await?;
            let name = format!("slow bodies, {}", server.name);
            run_one(&target, &mut report, &name, Expected::Accepted, |end| {
                Box::pin(connections::slow_bodies(&target, server, end))
            })
            .await?;
        }
    }
    report.print_summary();
    Ok(report)
}

/// Runs one attack beside well-behaved clients, and adds the outcome to the report.
async fn run_one<'a>(
    target: &'a Arc<Target>,
    report: &mut Report,
    name: &str,
    expected: Expected,
    attack: impl FnOnce(Deadline) -> Attack<'a>,
) -> Result<(), String> {
    let options = &target.options;
    let is_excluded = |only: &String| !name.contains(only.as_str());
    if options.only.as_ref().is_some_and(is_excluded) {
        return Ok(());
    }
    let memory = options.pid.map(process::Memory::watch).transpose()?;
    let log = options.log.as_deref().map(process::size).transpose()?;
    let began = Instant::now();
    let over = CancellationToken::new();
    let attacking = async {
        let findings = attack(Deadline::start(options)).await;
        let eighth = Duration::from_secs(options.seconds) / 8;
        tokio::time::sleep(SETTLE_TIME.min(eighth)).await;
        over.cancel();
        findings
    };
    // In separate threads: the attack must not delay well-behaved clients in this process.
    let bystanders = tokio::spawn(bystander::observe(target.clone(), over.clone()));
    let own = attacking.await;
    let service = bystanders.await.map_err(|error| error.to_string())?;
    let (what, waited) = match expected {
        Expected::Accepted => ("longest wait of a good client", service.longest),
        Expected::Answered => ("longest wait for an answer", service.longest_to_answer),
    };
    let mut findings = vec![Finding {
        what,
        figure: waited.as_millis() as u64,
        bound: options.max_wait_ms,
        unit: "ms",
    }];
    if let (Some(memory), Some(limit)) = (memory, options.limit_mib) {
        findings.push(Finding {
            what: "memory",
            figure: memory.peak()? >> 20,
            bound: limit + BESIDE_MIB,
            unit: "MiB",
        });
    }
    if let (Some(before), Some(path)) = (log, options.log.as_deref()) {
        findings.push(Finding {
            what: "log",
            figure: process::size(path)?.saturating_sub(before) >> 10,
            bound: LOG_GROWTH >> 10,
            unit: "KiB",
        });
    }
    findings.extend(own);
    report.add(Outcome {
        attack: name.to_owned(),
        seconds: began.elapsed().as_secs_f64(),
        accepted: service.accepted,
        refused: service.refused,
        findings,
    });
    Ok(())
}
