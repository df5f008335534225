//! Chaos test: sidecars, a rack and a zone as real processes with the configurations of the examples, under load, with
//! faults drawn from a seed, in front of a backend of this program. In the end no data may be lost.
//!
//! The same seed and options give the same faults in the same order and at the same times since the load began. The
//! timing of the processes varies, so two runs are similar but not equal.
//!
//! Checks after all faults are undone, the load has stopped and all tiers have drained:
//!
//! - **No loss.** Every acknowledged item is at the backend's gRPC sink, at its HTTP sink and in the zone's Parquet
//!   files. Exceptions: a sink may lack items that it permanently refused by OTLP's specification (`--permanent`).
//!   Every place may lack as many items as were in the blocks that this program damaged (`--damage`), if the collector
//!   reported the loss. Profiles that sidecars scrape are not acknowledged; only those scraped after the last fault
//!   must arrive.
//! - **No invented or mixed-up items.** Each item contains its number twice; both must agree and be assigned.
//! - **No duplicates without a cause.** A tier may resend data without a response. `dedup` on the rack and in the zone
//!   drops such duplicates if it saw the first delivery succeed; behind the zone there is no `dedup`. A sink may get an
//!   item twice if the connection of the first delivery broke, because the response was lost. Any place may get an
//!   item twice if one of these events happened between its creation and the duplicate: a life of the zone ended
//!   (`dedup` forgot its memory, and the last deliveries were not recorded), a connection from the rack to the zone
//!   ended, or the zone's disk was full (some exporters had accepted the item, but the rack was not told). With
//!   `--once`, only faults without these causes occur, exporters wait a minute for a response, and there must be no
//!   duplicates.
//! - **Item counts balance**: for every tier's last life, received + recovered = passed on + dropped + refused + kept,
//!   and nothing is in flight. All dropped items are duplicates, or points of metrics older than the point that
//!   `prometheus` shows. Counts of killed lives are lost; the check for lost data covers them.
//! - **Memory**: no process exceeded the limit of `memory_limiter` plus the 48 MiB of docs/deployment.md.
//! - **Ends and starts**: every SIGTERM ends with 0 (with 0 or 1 if data was damaged or permanently refused), and only
//!   damaged data is reported as lost. Every start succeeds unless the disk was full or a key was replaced before its
//!   certificate (the start is then repeated). Valid configurations are accepted, invalid ones are refused. Nothing
//!   panics, and no client is permanently refused.

#![allow(
    unreachable_pub,
    reason = "what a part offers is for the other parts, here and in the tests"
)]

mod arrivals;
mod backend;
mod disk;
mod faults;
mod kept;
mod link;
mod load;
#[allow(dead_code, clippy::unwrap_used, reason = "that of the tests")]
#[path = "../../../tests/integration/harness/metrics.rs"]
mod metrics;
mod plan;
mod scraped;
mod site;
#[allow(clippy::unwrap_used, reason = "that of the tests")]
#[path = "../../../tests/integration/harness/status.rs"]
mod status;
mod telemetry;
mod tier;
mod verdict;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy;
use hyper_util::rt::TokioExecutor;
use rustix::process::Signal as Kill;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tributary_otlp::Signal;

use arrivals::Arrivals;
use backend::Mood;
use load::{Client, Ledger, Transport};
use site::{Scratch, Site};
pub use verdict::Report;

/// Starts three tiers, injects faults, and checks that no data is lost.
#[derive(Debug, Clone, clap::Parser)]
pub struct Options {
    /// Seed of the faults
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Duration of load and faults, in seconds
    #[arg(long, default_value_t = 60)]
    pub seconds: u64,
    /// Number of sidecars
    #[arg(long, default_value_t = 2)]
    pub sidecars: usize,
    /// Items per second, of all signals and clients together
    #[arg(long, default_value_t = 1000)]
    pub rate: u32,
    /// Only inject faults that cause no duplicates: none in the zone or on its links
    #[arg(long)]
    pub once: bool,
    /// The backend also refuses permanently; the refused items need not arrive
    #[arg(long)]
    pub permanent: bool,
    /// Also flip bits in persistent queues; at most the damaged data may be lost
    #[arg(long)]
    pub damage: bool,
    /// No faults: the backend accepts `rate` items per second, and 120 % of that is sent. Memory
    /// must stay flat
    #[arg(long)]
    pub soak: bool,
    /// Keep the directory with configurations, logs and queues
    #[arg(long)]
    pub keep: bool,
    /// Collector binary. Default: the binary built beside this program
    #[arg(long)]
    pub collector: Option<PathBuf>,
}

/// Time without a new item after which draining counts as stuck.
const STUCK: Duration = Duration::from_secs(90);
/// Duration of scraping without faults at the end.
const CALM: Duration = Duration::from_secs(3);
const COLLECT: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_secs(10);

/// Runs the test. Returns `Err` if the test could not run.
pub async fn run(options: Options) -> Result<Report, String> {
    let binary = binary(&options)?;
    let ledger = Arc::new(Ledger::new(std::time::Instant::now()));
    let site = Arc::new(Site::lay_out(&options, &binary, &ledger).await?);
    println!(
        "seed {}, in {}",
        options.seed,
        site.scratch.path().display()
    );
    if !site.may_fill_disks() {
        println!("no disk is filled: this user may not mount a tmpfs");
    }
    let plan = plan::draw(
        &options,
        plan::Targets {
            tiers: site.tiers.len(),
            links: site.links.len(),
            sinks: site.sinks.len(),
            disks: site.may_fill_disks(),
        },
    );
    for tier in site.tiers.iter().rev() {
        tier.start(&mut *tier.life.lock().await).await?;
    }
    if options.soak {
        for sink in &site.sinks {
            sink.mood.send_replace(Mood::Limited { rate: options.rate });
        }
    }

    let kept = Arc::new(Arrivals::new(site.began));
    let collecting = collect(&site, &kept);
    let stop = CancellationToken::new();
    let clients = clients(&options, &site, &ledger, &stop)?;
    let memory = Arc::new(Mutex::new(Memory::default()));
    let looking = tokio::spawn(look(site.clone(), ledger.clone(), memory.clone()));
    let load_began = tokio::time::Instant::now();
    let faults = plan.len();
    let outcome = faults::play(&site, plan).await;
    tokio::time::sleep_until(load_began + Duration::from_secs(options.seconds)).await;
    stop.cancel();
    clients.join_all().await;
    site.scraped.set(scraped::Mood::Idle);
    println!("{:>8.1?}  the load has stopped", load_began.elapsed());

    let mut report = Report {
        failures: outcome.failures,
    };
    drain(&site, &kept, &ledger, &mut report).await;
    let owed = ledger.owed();
    site.scraped.set(scraped::Mood::Counts);
    tokio::time::sleep(CALM).await;
    site.scraped.set(scraped::Mood::Idle);
    drain(&site, &kept, &ledger, &mut report).await;
    if ledger.owed() == owed {
        let failure = format!("nothing was scraped in {CALM:?}, though all was well");
        report.failures.push(failure);
    }
    looking.abort();
    for tier in &site.tiers {
        report.accounts(tier, &options).await;
    }
    for tier in &site.tiers {
        let ended = tier.end(&mut *tier.life.lock().await, Kill::TERM).await;
        if let Err(failure) = ended.and_then(|status| tier.expect_success(status)) {
            report.failures.push(failure);
        }
    }
    collecting.cancel();
    let directory = site.files.clone();
    let (books, began) = (kept.clone(), start_time(&site));
    let last = move || kept::collect(&directory, &books, began);
    let _ = tokio::task::spawn_blocking(last).await;

    println!(
        "\n{faults} faults, {} of them damage to a queue",
        outcome.damaged
    );
    report.judge(&options, &site, &ledger, &kept, &locked(&memory));
    if let (false, Scratch::Kept(path)) = (report.failures.is_empty(), &site.scratch) {
        println!("everything is in {}", path.display());
    }
    Ok(report)
}

fn binary(options: &Options) -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let beside = own.parent().and_then(|examples| examples.parent());
    let built = beside.map(|directory| directory.join("collector"));
    let binary = options.collector.clone().or(built).unwrap_or_default();
    match binary.canonicalize() {
        Ok(path) => Ok(path),
        Err(error) => Err(format!(
            "{}: {error}; build it (cargo build --bin collector) or name one with --collector",
            binary.display()
        )),
    }
}

/// Returns clients for all signals over both protocols, for each sidecar.
fn clients(
    options: &Options,
    site: &Site,
    ledger: &Arc<Ledger>,
    stop: &CancellationToken,
) -> Result<JoinSet<()>, String> {
    let rate = match options.soak {
        true => f64::from(options.rate) * 1.2,
        false => f64::from(options.rate),
    };
    let mut clients = JoinSet::new();
    let sidecars = site.tiers.len() - 2;
    for (number, tier) in site.tiers.iter().take(sidecars).enumerate() {
        let http = tier.http.as_ref().ok_or("a sidecar without HTTP")?;
        for signal in Signal::ALL {
            for transport in [Transport::grpc(&tier.grpc)?, Transport::http(http)] {
                let client = Client {
                    signal,
                    service: format!("service-{number}"),
                    transport,
                    ledger: ledger.clone(),
                    rate: rate / (sidecars * Signal::ALL.len() * 2) as f64,
                };
                clients.spawn(client.run(stop.clone()));
            }
        }
    }
    Ok(clients)
}

fn start_time(site: &Site) -> SystemTime {
    SystemTime::now() - site.began.elapsed()
}

/// Reads and removes finished Parquet files until cancelled.
fn collect(site: &Site, kept: &Arc<Arrivals>) -> CancellationToken {
    let (stop, began) = (CancellationToken::new(), start_time(site));
    let (directory, kept, stopped) = (site.files.clone(), kept.clone(), stop.clone());
    tokio::spawn(async move {
        while !stopped.is_cancelled() {
            let (directory, kept) = (directory.clone(), kept.clone());
            let collect = move || kept::collect(&directory, &kept, began);
            let _ = tokio::task::spawn_blocking(collect).await;
            stopped
                .run_until_cancelled(tokio::time::sleep(COLLECT))
                .await;
        }
    });
    stop
}

/// Memory of each tier over time.
#[derive(Default)]
pub struct Memory(Vec<Vec<Option<u64>>>);

/// Logs the progress periodically.
async fn look(site: Arc<Site>, ledger: Arc<Ledger>, seen: Arc<Mutex<Memory>>) {
    loop {
        tokio::time::sleep(LOOK).await;
        let sinks = site.sinks.each_ref().map(|sink| sink.arrivals.counts().0);
        let owed = ledger.owed();
        let mut now = Vec::new();
        for tier in &site.tiers {
            // A fault may hold the lock of the tier.
            let memory = tokio::time::timeout(Duration::from_millis(200), tier.memory()).await;
            now.push(memory.unwrap_or_default());
        }
        let mib = |memory: &Option<u64>| memory.map(|bytes| bytes >> 20).unwrap_or_default();
        println!(
            "{:>8.1?}  {owed} acknowledged, {} requests refused, at the sinks {sinks:?}, MiB {:?}",
            site.began.elapsed(),
            ledger.refusals.load(Relaxed),
            now.iter().map(mib).collect::<Vec<_>>(),
        );
        locked(&seen).0.push(now);
    }
}

/// Waits until no data is in flight anywhere.
async fn drain(site: &Site, kept: &Arrivals, ledger: &Ledger, report: &mut Report) {
    for sink in &site.sinks {
        sink.mood.send_if_modified(|mood| {
            !matches!(mood, Mood::Limited { .. }) && {
                *mood = Mood::Fine;
                true
            }
        });
    }
    let began = site.began.elapsed();
    let mut quiet = 0;
    while quiet < 2 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let mut waiting = None;
        for tier in &site.tiers {
            match tier.metrics().await {
                Ok(metrics) if metrics.balance() == Ok(0.0) => {}
                Ok(metrics) => {
                    waiting.get_or_insert(format!("{}: {:?}", tier.name, metrics.balance()));
                }
                Err(error) => {
                    waiting.get_or_insert(format!("{}: {error}", tier.name));
                }
            }
        }
        quiet = if waiting.is_none() { quiet + 1 } else { 0 };
        let news = site.sinks.iter().map(|sink| sink.arrivals.news());
        let news = news.chain([kept.news(), began]).max().unwrap_or_default();
        if let (Some(waiting), true) = (waiting, site.began.elapsed() > news + STUCK) {
            let failure = format!("it does not drain: nothing new for {STUCK:?}, and {waiting}");
            report.failures.push(failure);
            break;
        }
    }
    let took = site.began.elapsed().saturating_sub(began);
    println!(
        "{took:>8.1?}  to drain; {} items were acknowledged",
        ledger.owed()
    );
}

/// Returns the OTLP/HTTP path of a signal.
fn path(signal: Signal) -> &'static str {
    match signal {
        Signal::Traces => "/v1/traces",
        Signal::Metrics => "/v1/metrics",
        Signal::Logs => "/v1/logs",
        Signal::Profiles => "/v1development/profiles",
    }
}

/// Fetches a page over HTTP.
async fn page(address: SocketAddr, path: &str) -> Result<String, String> {
    let client: legacy::Client<_, Full<Bytes>> =
        legacy::Client::builder(TokioExecutor::new()).build_http();
    let uri = format!("http://{address}{path}").parse();
    let uri = uri.map_err(|_| "no such address".to_owned())?;
    let answer = client.get(uri).await.map_err(|error| error.to_string())?;
    let body = answer.into_body().collect().await;
    let body = body.map_err(|error| error.to_string())?.to_bytes();
    String::from_utf8(body.to_vec()).map_err(|error| error.to_string())
}

/// Locks a mutex even if a holder panicked: its data is only appended to and never partial.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
