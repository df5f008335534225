//! `collector queue drain`: sends the records of a queue through an exporter, one after the other.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use tokio::time::Instant;

use super::{Outcome, name_of};
use crate::app::cli::options::Locations;
use crate::app::config::Config;
use crate::component::{Extensions, Host, Terminal};
use crate::pipeline::health::Health;
use crate::pipeline::{Component, Consumer};
use crate::queue::decode_record;
use crate::telemetry::terminal::Progress;
use tributary_config::{ComponentId, Sources};
use tributary_memory::{Budget, machine_memory};
use tributary_net::listeners::Listeners;
use tributary_otlp::Signal;
use tributary_storage::{Lease, LogRegistry, Options, ReadResult, StorageMetrics};

/// Time limit for the exporter to shut down.
const LAST: std::time::Duration = std::time::Duration::from_secs(5);
/// Bytes of records read at once.
const CHUNK: usize = 256 << 10;

#[derive(Debug, Args)]
pub(in crate::app::cli) struct Arguments {
    /// Directory of the queue.
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,
    /// Endpoint for OTLP over HTTP, such as `http://localhost:4318` of a running collector.
    #[arg(
        long,
        value_name = "URL",
        required_unless_present = "exporter",
        conflicts_with = "exporter"
    )]
    endpoint: Option<String>,
    /// Exporter to send through, with its TLS settings and credentials, from the configuration
    /// given by `--config`.
    #[arg(long, value_name = "ID")]
    exporter: Option<ComponentId>,
    #[command(flatten)]
    locations: Locations,
}

impl Arguments {
    /// Combines the configuration options before and after the sub-command.
    pub(super) fn sources(&self, before: &Locations) -> Sources {
        Sources {
            configs: [&before.config[..], &self.locations.config].concat(),
            sets: [&before.set[..], &self.locations.set].concat(),
        }
    }
}

pub(super) fn run(arguments: &Arguments, sources: &Sources) -> Result<Outcome, String> {
    let name = name_of(&arguments.directory)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| format!("cannot start: {error}"))?;
    runtime.block_on(async {
        let (config, id) = configuration(arguments, name.signal, sources)?;
        let terminal = exporter(&config, &id, name.signal)?;
        let metrics = StorageMetrics::new(&[]);
        let opened = LogRegistry::default().open(&arguments.directory, &Options::default(), metrics);
        let (lease, recovered) = opened.map_err(|error| error.to_string())?;
        lease.become_reader();
        let before = lease.log().usage();
        let mut sent = Sent::default();
        let mut progress = Progress::new("records", Some(before.records));
        let outcome = send_all(&lease, terminal, name.signal, &mut sent, &mut progress).await;
        drop(progress);
        let left = lease.log().usage();
        lease.close();
        outcome?;
        // Damage found while opening and while reading the queue.
        let lost = recovered.map_or(0, |recovered| recovered.lost_records)
            + before.records.saturating_sub(sent.records + left.records);
        let mut outcome = Outcome {
            notes: format!(
                "delivered {} records with {} items; {} records with {} items remain in the queue\n",
                sent.records, sent.items, left.records, left.items,
            ),
            ..Outcome::default()
        };
        if lost > 0 {
            outcome.notes +=
                &format!("error: {lost} records in damaged blocks are lost\n");
            outcome.code = 1;
        }
        if let Some(why) = sent.refused {
            outcome.notes += &format!("error: the remaining records were not accepted: {why}\n");
            outcome.code = 1;
        }
        Ok(outcome)
    })
}

/// Returns the configuration of the exporter without its own queue, which is not needed here.
fn configuration(
    arguments: &Arguments,
    signal: Signal,
    sources: &Sources,
) -> Result<(Config, ComponentId), String> {
    let load = |sources: &Sources| {
        let loaded = crate::app::config::load(sources, false);
        loaded.config.ok_or_else(|| loaded.report.render())
    };
    let Some(id) = &arguments.exporter else {
        let endpoint = arguments.endpoint.as_deref().unwrap_or_default();
        // JSON is valid YAML and quotes special characters.
        let endpoint = serde_json::Value::from(endpoint);
        let text = format!(
            "yaml:{{receivers: {{nop: {{}}}}, exporters: {{otlp_http: {{endpoint: {endpoint}, \
             sending_queue: {{enabled: false}}}}}}, \
             service: {{pipelines: {{{signal}: {{receivers: [nop], exporters: [otlp_http]}}}}}}}}"
        );
        let config = load(&Sources {
            configs: vec![text],
            sets: Vec::new(),
        })?;
        let id = "otlp_http".parse().map_err(|error| format!("{error}"))?;
        return Ok((config, id));
    };
    if sources.configs.is_empty() {
        return Err("--exporter needs --config, the configuration with the exporter".to_owned());
    }
    let mut sources = sources.clone();
    let config = load(&sources)?;
    let found = config.exporters.iter().find(|(other, _)| other == id);
    let (_, configured) =
        found.ok_or_else(|| format!("the configuration has no exporter `{id}`"))?;
    if configured.config.print().get("sending_queue").is_none() {
        return Ok((config, id.clone()));
    }
    let key = serde_json::Value::from(id.to_string());
    sources.configs.push(format!(
        "yaml:{{exporters: {{{key}: {{sending_queue: {{enabled: false}}}}}}}}"
    ));
    Ok((load(&sources)?, id.clone()))
}

fn exporter(config: &Config, id: &ComponentId, signal: Signal) -> Result<Terminal, String> {
    let memory = usize::try_from(machine_memory() / 2).unwrap_or(usize::MAX);
    let host = Host {
        budget: Budget::new(memory),
        listeners: Listeners::default(),
        health: Arc::new(Health::default()),
        stored_queues: LogRegistry::default(),
        profile_stores: Default::default(),
        introspection: Default::default(),
    };
    let found = config.exporters.iter().find(|(other, _)| other == id);
    let (_, configured) =
        found.ok_or_else(|| format!("the configuration has no exporter `{id}`"))?;
    let mut services = Vec::new();
    for needed in configured.config.uses_extensions() {
        let extension = config
            .extensions
            .iter()
            .find(|(other, _)| *other == needed.extension);
        if let Some((id, extension)) = extension {
            let built = extension.config.build(&host.context(id));
            let built = built.map_err(|error| format!("extensions.{id}: {error}"))?;
            services.push((id.clone(), built.services));
        }
    }
    let mut context = host.context(id);
    context.extensions = Extensions::from_iter(services);
    let terminal = configured.config.build(&context, &[signal]);
    let mut terminal = terminal.map_err(|error| format!("exporters.{id}: {error}"))?;
    terminal.component.start();
    Ok(terminal)
}

/// Result of draining.
#[derive(Debug, Default)]
struct Sent {
    records: u64,
    items: u64,
    /// Reason for which the remaining records stay in the queue.
    refused: Option<String>,
}

/// Sends records until the queue is empty or the next hop refuses one.
async fn send_all(
    lease: &Lease,
    terminal: Terminal,
    signal: Signal,
    sent: &mut Sent,
    progress: &mut Progress,
) -> Result<(), String> {
    let Terminal { inputs, component } = terminal;
    let consumer = inputs
        .get(signal)
        .ok_or_else(|| format!("the exporter does not take {signal}"))?;
    let outcome = send_each(lease, consumer.as_ref(), sent, progress).await;
    Component::shutdown(component, Instant::now() + LAST).await;
    outcome
}

async fn send_each(
    lease: &Lease,
    consumer: &dyn Consumer,
    sent: &mut Sent,
    progress: &mut Progress,
) -> Result<(), String> {
    // Blocking on the disk delays no other task here.
    while let ReadResult::Records(records) =
        lease.next(CHUNK, true).map_err(|error| error.to_string())?
    {
        for record in records {
            progress.add(1);
            let Some(batch) = decode_record(record.parts, record.items) else {
                sent.refused = Some("a record is not a valid batch".to_owned());
                continue;
            };
            match consumer.consume(batch).await {
                Ok(()) => {
                    lease.log().acknowledge(record.sequence, record.items);
                    sent.records += 1;
                    sent.items += record.items as u64;
                }
                Err(nack) => {
                    sent.refused = Some(nack.reason.into_owned());
                    if nack.retryable {
                        return Ok(());
                    }
                    // The following records may be accepted.
                }
            }
        }
    }
    Ok(())
}
