//! The site: three tiers with the configurations of the examples, their links, disks and certificates, and a backend.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::Options;
use super::backend::Sink;
use super::disk::Disk;
use super::link::Link;
use super::load::Ledger;
use super::locked;
use super::scraped::Service;
use super::tier::Tier;

/// All components that faults can affect.
pub struct Site {
    pub began: Instant,
    /// Sidecars, then the rack, then the zone, in the direction of the data.
    pub tiers: Vec<Arc<Tier>>,
    /// Links: two for each sidecar's clients; one from each sidecar to the rack; rack to zone; zone
    /// to each sink.
    pub links: Vec<Arc<Link>>,
    pub sinks: [Arc<Sink>; 2],
    /// The service that sidecars scrape.
    pub scraped: Arc<Service>,
    pub disks: Vec<Disk>,
    /// Directory of the zone's Parquet files.
    pub files: PathBuf,
    /// Directory of the certificates; the lock is held while they are renewed.
    pub certificates: tokio::sync::Mutex<PathBuf>,
    pub scratch: Scratch,
    /// Number of items that this program damaged in queues.
    pub damaged_items: AtomicU64,
    /// Times at which the zone's disk was full, recorded repeatedly while it was.
    pub zone_disk_full: Mutex<Vec<Duration>>,
}

/// Directory of all files.
pub enum Scratch {
    Temporary(TempDir),
    Kept(PathBuf),
}

impl Scratch {
    pub fn path(&self) -> &Path {
        match self {
            Scratch::Temporary(directory) => directory.path(),
            Scratch::Kept(path) => path,
        }
    }
}

/// Memory that a process needs besides the limit of `memory_limiter`, from docs/deployment.md.
const BESIDE_TELEMETRY: u64 = 48 << 20;
const MIB: u64 = 1 << 20;

/// Properties of a tier: the name of its example, its memory limit in MiB, and the size of its disk
/// in MiB.
struct Kind {
    example: &'static str,
    limit: u64,
    disk: u64,
}

const SIDECAR: Kind = Kind {
    example: "sidecar",
    limit: 48,
    disk: 48,
};
const RACK: Kind = Kind {
    example: "rack",
    limit: 96,
    disk: 64,
};
const ZONE: Kind = Kind {
    example: "zone",
    limit: 160,
    disk: 128,
};

impl Site {
    /// Creates all files, links and the backend. No tier runs yet.
    pub async fn lay_out(
        options: &Options,
        binary: &Path,
        ledger: &Arc<Ledger>,
    ) -> Result<Self, String> {
        let temporary =
            TempDir::with_prefix("tributary-chaos-").map_err(|error| error.to_string())?;
        let scratch = match options.keep {
            true => Scratch::Kept(temporary.keep()),
            false => Scratch::Temporary(temporary),
        };
        let root = scratch.path().to_owned();
        let began = ledger.began;
        let certificates = root.join("certificates");
        make_certificates(&certificates, false)?;
        let failed = |error: std::io::Error| error.to_string();
        let sinks = [
            Sink::grpc(began).await.map_err(failed)?,
            Sink::http(began).await.map_err(failed)?,
        ];
        let scraped = Service::start(ledger).await.map_err(failed)?;
        let mut links = Vec::new();
        let mut tiers = Vec::new();
        let mut disks = Vec::new();
        let link = async |name: &str| Link::open(name, began).await.map(Arc::new).map_err(failed);

        let to_rack = link("to the rack").await?;
        let to_zone = link("rack to zone").await?;
        let to_grpc = link("zone to backend (grpc)").await?;
        let to_http = link("zone to backend (http)").await?;
        to_grpc.lead_to(Some(sinks[0].address));
        to_http.lead_to(Some(sinks[1].address));

        let mut add = |name: &str, kind: Kind, grpc, http, next: Vec<(&'static str, String)>| {
            let disk = Disk::mount(root.join(name), kind.disk * MIB).map_err(failed)?;
            let mut variables = BTreeMap::from([
                ("LISTEN", "127.0.0.1".to_owned()),
                ("TLS_DIR", certificates.display().to_string()),
                ("QUEUE_DIR", disk.path.join("queues").display().to_string()),
                ("CACHE_DIR", disk.path.join("cache").display().to_string()),
                (
                    "PARQUET_DIR",
                    disk.path.join("parquet").display().to_string(),
                ),
            ]);
            variables.extend(next);
            let own = root.join(format!("{name}.yaml"));
            let yaml = overlay(kind.example, kind.limit, options, &variables);
            std::fs::write(&own, yaml).map_err(failed)?;
            tiers.push(Arc::new(Tier {
                name: name.to_owned(),
                memory_bound: kind.limit * MIB + BESIDE_TELEMETRY,
                may_lose: options.damage || (options.permanent && name == "zone"),
                binary: binary.to_owned(),
                configurations: vec![example(kind.example), own],
                variables,
                log_file: root.join(format!("{name}.log")),
                grpc,
                http,
                life: tokio::sync::Mutex::default(),
                history: std::sync::Mutex::default(),
                start_troubles: AtomicUsize::new(0),
                began,
            }));
            disks.push(disk);
            Ok::<_, String>(())
        };
        for number in 0..options.sidecars.max(1) {
            let name = format!("sidecar{number}");
            let grpc = link(&format!("clients to {name} (grpc)")).await?;
            let http = link(&format!("clients to {name} (http)")).await?;
            links.extend([grpc.clone(), http.clone()]);
            let next = vec![
                ("RACK", to_rack.address.to_string()),
                ("SCRAPED", format!("http://{}", scraped.address)),
            ];
            add(&name, SIDECAR, grpc, Some(http), next)?;
        }
        let next = vec![("ZONE", to_zone.address.to_string())];
        add("rack", RACK, to_rack.clone(), None, next)?;
        let next = vec![
            ("BACKEND", to_grpc.address.to_string()),
            ("BACKEND_HTTP", format!("http://{}", to_http.address)),
        ];
        add("zone", ZONE, to_zone.clone(), None, next)?;
        links.extend([to_rack, to_zone, to_grpc, to_http]);
        let files = root.join("zone/parquet");
        Ok(Site {
            began,
            tiers,
            links,
            sinks,
            scraped,
            disks,
            files,
            certificates: tokio::sync::Mutex::new(certificates),
            scratch,
            damaged_items: AtomicU64::new(0),
            zone_disk_full: Mutex::default(),
        })
    }

    pub fn zone(&self) -> &Arc<Tier> {
        &self.tiers[self.tiers.len() - 1]
    }

    /// Returns the ends of the zone's lives.
    pub fn zone_ends(&self) -> Vec<Duration> {
        locked(&self.zone().history).ends.clone()
    }

    /// Returns the times at which the zone may have accepted a request partly, or without an
    /// answer: ends of connections from the rack, and times with a full disk.
    pub fn zone_interruptions(&self) -> Vec<Duration> {
        let mut interruptions = self.zone().grpc.ends();
        interruptions.extend(locked(&self.zone_disk_full).iter());
        interruptions
    }

    pub fn may_fill_disks(&self) -> bool {
        self.disks.iter().all(|disk| disk.is_small)
    }
}

fn manifest_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn example(name: &str) -> PathBuf {
    manifest_directory().join(format!("examples/configs/{name}.yaml"))
}

/// Creates keys and certificates for all tiers; the authority stays.
pub fn make_certificates(directory: &Path, renew: bool) -> Result<(), String> {
    let mut script = Command::new("sh");
    script.arg(manifest_directory().join("examples/tls/make-certificates.sh"));
    if renew {
        script.arg("--renew");
    }
    let output = script
        .arg(directory)
        .output()
        .map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!(
            "no certificates: {}",
            String::from_utf8_lossy(&output.stderr)
        )),
    }
}

/// Returns the differences from the example: addresses, limits, and shorter intervals.
fn overlay(
    example: &str,
    limit: u64,
    options: &Options,
    variables: &BTreeMap<&'static str, String>,
) -> String {
    let backend_http = variables.get("BACKEND_HTTP").cloned().unwrap_or_default();
    let any = "'127.0.0.1:0'";
    let retries =
        "retry_on_failure: {initial_interval: 100ms, max_interval: 1s, max_elapsed_time: 0s}";
    // A timeout causes a retry; on a busy machine that is no planned fault.
    let hop = match options.once {
        true => format!("timeout: 60s\n    {retries}"),
        false => retries.to_owned(),
    };
    // Small, so that a soak soon reaches its limits.
    let (bound, http_bound) = match options.soak {
        true => (", queue_size: 2097152", 2 << 20),
        false => ("", 256 << 20),
    };
    let server_tls = match example {
        "sidecar" => "",
        _ => ", tls: {reload_interval: 1s}",
    };
    let client_tls = match example {
        "zone" => "",
        _ => "    tls: {reload_interval: 1s}\n",
    };
    let scraper = match variables.get("SCRAPED") {
        Some(endpoint) => format!(
            "  pprof:
    targets:
      - endpoint: {endpoint}
        profiles: [{{name: work, path: /work, collection_interval: 1s}}]
        resource: {{service.name: scraped}}
"
        ),
        None => String::new(),
    };
    let mut yaml = format!(
        "extensions:
  health_check: {{endpoint: {any}}}
  file_storage: {{fsync: always}}
receivers:
  otlp:
    protocols:
      grpc: {{endpoint: {any}{server_tls}}}
      http: {{endpoint: {any}{server_tls}}}
{scraper}processors:
  memory_limiter: {{limit_mib: {limit}}}
exporters:
  otlp_grpc:
{client_tls}    {hop}
    sending_queue: {{batch: {{flush_timeout: {FLUSH}}}{bound}}}
"
    );
    let mut pipelines = String::new();
    if example == "sidecar" {
        pipelines = "  pipelines:\n    profiles: {receivers: [otlp, pprof]}\n".to_owned();
    }
    if example == "zone" {
        yaml += &format!(
            "  otlp_http:
    endpoint: {backend_http}
    {hop}
    sending_queue: {{storage: file_storage, sizer: bytes, queue_size: {http_bound}}}
  parquet:
    promote: {{item: [test.id]}}
    rotation: {{interval: 2s}}
    max_memory: 48MiB
    {retries}
    sending_queue: {{sizer: bytes{bound}}}
  prometheus: {{endpoint: {any}}}
  debug: {{verbosity: basic}}
"
        );
        pipelines = ["traces", "metrics", "logs", "profiles"]
            .map(|signal| {
                let more = match signal {
                    "metrics" => "prometheus, profile_metrics, ",
                    "logs" => "",
                    _ => "profile_metrics, ",
                };
                format!(
                    "    {signal}: {{exporters: [otlp_grpc, otlp_http, parquet, {more}debug]}}\n"
                )
            })
            .concat();
        pipelines = format!("  pipelines:\n{pipelines}");
    }
    format!(
        "{yaml}service:
  telemetry: {{logs: {{encoding: json}}, metrics: {{address: {any}}}}}
{pipelines}"
    )
}

/// Value that reloads switch on and off.
pub const FLUSH: &str = "100ms";
pub const OTHER_FLUSH: &str = "150ms";
