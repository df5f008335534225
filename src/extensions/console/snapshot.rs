//! Snapshots of the running pipelines as JSON. At most one snapshot is created per second, for all clients.

mod counters;
mod nodes;
mod rates;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use parking_lot::Mutex;
use serde::Serialize;

use self::counters::Counters;
use self::nodes::Node;
use self::rates::{Rate, Rates};
use crate::component::BuildContext;
use crate::component::identity::host_name;
use crate::introspection::Introspection;
use crate::introspection::clients::{ClientCounts, ClientKey};
use crate::introspection::graph::RunningGraph;
use crate::pipeline::health::{Health, Phase};
use crate::profile_stores::ProfileStores;
use tributary_memory::Budget;

/// Minimum time between two snapshots.
const INTERVAL: Duration = Duration::from_millis(950);
/// Maximum number of clients in a snapshot. The clients with the most bytes are included.
const MAX_CLIENTS: usize = 100;

pub(super) struct Snapshots {
    introspection: Arc<Introspection>,
    health: Arc<Health>,
    budget: Arc<Budget>,
    profile_stores: ProfileStores,
    last: Mutex<Last>,
}

#[derive(Default)]
struct Last {
    made: Option<(Instant, Bytes)>,
    rates: Rates,
}

#[derive(Serialize)]
struct Snapshot<'a> {
    time: u64,
    started: u64,
    version: &'static str,
    host: &'static str,
    phase: &'static str,
    generation: u64,
    interval_seconds: f64,
    process: Process,
    nodes: Vec<Node<'a>>,
    pipelines: Vec<Pipeline<'a>>,
    edges: Vec<Edge<'a>>,
    clients: Vec<Client>,
    clients_omitted: usize,
    events: Vec<LogLine>,
    profile_stores: Vec<String>,
}

#[derive(Serialize)]
struct Process {
    cores: f64,
    cpu_seconds: f64,
    resident_bytes: f64,
    memory_limit_bytes: usize,
    memory_used_bytes: usize,
    open_connections: f64,
}

#[derive(Serialize)]
struct Pipeline<'a> {
    id: &'a str,
    signal: &'static str,
    #[serde(flatten)]
    counters: Counters,
    #[serde(flatten)]
    rate: Rate,
}

#[derive(Serialize)]
struct Edge<'a> {
    from: &'a str,
    to: &'a str,
    pipeline: &'a str,
    signal: &'static str,
    items: u64,
    #[serde(flatten)]
    rate: Rate,
}

#[derive(Serialize)]
struct Client {
    identity: String,
    address: String,
    receiver: String,
    signal: &'static str,
    requests: u64,
    items: u64,
    bytes: u64,
    last: u64,
    #[serde(flatten)]
    rate: Rate,
}

#[derive(Serialize)]
struct LogLine {
    time: u64,
    level: &'static str,
    message: String,
    count: u64,
}

impl Snapshots {
    /// Creates the source in the context of the extension.
    pub(super) fn new(cx: &BuildContext) -> Self {
        Snapshots {
            introspection: cx.introspection.clone(),
            health: cx.health.clone(),
            budget: cx.budget.clone(),
            profile_stores: cx.profile_stores.clone(),
            last: Mutex::default(),
        }
    }

    /// Returns the latest snapshot as JSON, a new one if the latest is older than a second.
    pub(super) fn latest(&self) -> Bytes {
        let mut last = self.last.lock();
        if let Some((made, snapshot)) = &last.made
            && made.elapsed() < INTERVAL
        {
            return snapshot.clone();
        }
        let snapshot = Bytes::from(self.make(&mut last.rates));
        last.made = Some((Instant::now(), snapshot.clone()));
        snapshot
    }

    fn make(&self, rates: &mut Rates) -> Vec<u8> {
        let metrics = self.introspection.metrics();
        let graph = self.introspection.graph();
        rates.begin();
        let cpu_seconds = metrics.sum("otelcol_process_cpu_seconds", &[]);
        let process = Process {
            cores: rates.of_seconds("process", cpu_seconds),
            cpu_seconds,
            resident_bytes: metrics.sum("otelcol_process_memory_rss", &[]),
            memory_limit_bytes: self.budget.limit(),
            memory_used_bytes: self.budget.used(),
            open_connections: metrics.sum("tributary_server_connections", &[]),
        };
        let edges = self.edges(&graph, rates);
        let inputs = nodes::Inputs {
            metrics: &metrics,
            flows: &self.introspection.flows,
            edges: &graph.edges,
            exporters: self.health.exporters(),
            certificates: tributary_net::tls::rotation::in_use(),
        };
        let each = graph.nodes.iter();
        let nodes = each.map(|node| inputs.node(node, rates)).collect();
        let pipelines = graph.pipelines.iter().map(|(id, signal)| {
            let counters = Counters::of_pipeline(&metrics, id);
            Pipeline {
                id,
                signal: signal.name(),
                rate: inputs.pipeline_rate(id, counters.received(), rates),
                counters,
            }
        });
        let pipelines = pipelines.collect();
        let (clients, clients_omitted) = self.clients(rates);
        let (started, _) = self.health.started();
        let snapshot = Snapshot {
            time: milliseconds(SystemTime::now()),
            started: milliseconds(started),
            version: env!("CARGO_PKG_VERSION"),
            host: host_name().unwrap_or_default(),
            phase: phase_name(self.health.phase()),
            generation: graph.generation,
            interval_seconds: rates.interval(),
            process,
            nodes,
            pipelines,
            edges,
            clients,
            clients_omitted,
            events: self.log_lines(),
            profile_stores: self
                .profile_stores
                .all()
                .into_iter()
                .map(|(id, _)| id)
                .collect(),
        };
        rates.end();
        serde_json::to_vec(&snapshot).unwrap_or_default()
    }

    fn edges<'a>(&self, graph: &'a RunningGraph, rates: &mut Rates) -> Vec<Edge<'a>> {
        let each = graph.edges.iter().map(|edge| {
            let flow = self.introspection.flows.get(&edge.key).unwrap_or_default();
            let name = format!("edge {} {} {}", edge.from, edge.to, edge.key.pipeline);
            Edge {
                from: &edge.from,
                to: &edge.to,
                pipeline: &edge.key.pipeline,
                signal: edge.signal.name(),
                items: flow.items(),
                rate: rates.of(&name, flow.items(), flow.bytes()),
            }
        });
        each.collect()
    }

    fn clients(&self, rates: &mut Rates) -> (Vec<Client>, usize) {
        let (mut clients, _) = self.introspection.clients.all();
        clients.sort_unstable_by_key(|(_, counts)| std::cmp::Reverse(counts.bytes));
        let omitted = clients.len().saturating_sub(MAX_CLIENTS);
        clients.truncate(MAX_CLIENTS);
        let each = clients
            .into_iter()
            .map(|(key, counts)| client(&key, counts, rates));
        (each.collect(), omitted)
    }

    fn log_lines(&self) -> Vec<LogLine> {
        let warnings = self.introspection.warnings.latest().into_iter();
        let line = warnings.map(|warning| LogLine {
            time: milliseconds(warning.time),
            level: if warning.is_error { "error" } else { "warn" },
            message: warning.text,
            count: warning.count,
        });
        line.collect()
    }
}

fn client(key: &ClientKey, counts: ClientCounts, rates: &mut Rates) -> Client {
    let identity = key.identity.as_deref().unwrap_or_default();
    let name = format!(
        "client {identity} {} {} {}",
        key.address, key.receiver, key.signal
    );
    Client {
        identity: identity.to_owned(),
        address: key.address.to_string(),
        receiver: key.receiver.to_string(),
        signal: key.signal.name(),
        requests: counts.requests,
        items: counts.items,
        bytes: counts.bytes,
        last: milliseconds(counts.last),
        rate: rates.of(&name, counts.items, counts.bytes),
    }
}

fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Starting => "starting",
        Phase::Ready => "ready",
        Phase::Failed => "failed",
        Phase::Stopping => "stopping",
    }
}

/// Returns a time in milliseconds since 1970.
fn milliseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
