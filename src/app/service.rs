//! The life cycle of the process: start, reload, shutdown.

mod panics;
mod shutdown_report;
mod signals;

use std::collections::HashMap;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::OptionFuture;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_util::task::TaskTracker;
use tracing::{error, info, warn};

use self::panics::{Panicked, watch_for_panics};
use self::shutdown_report::{interruption_message, note_stored_queues, report_progress};
use self::signals::Signals;
use crate::app::config::{Config, Loaded, running_graph};
use crate::app::graph::{Graph, describe};
use crate::app::own_telemetry::{MetricsSource, OwnTelemetry};
use crate::app::reference::describe_metrics;
use crate::app::{allocator, code_pages};
use crate::component::Host;
use crate::introspection::Introspection;
use crate::pipeline::Undelivered;
use crate::pipeline::health::{Health, Phase};
use crate::telemetry::config::MetricsLevel;
use crate::telemetry::endpoint::MetricsEndpoint;
use crate::telemetry::exposition::Exposition;
use crate::telemetry::logs::LogHandle;
use crate::telemetry::terminal;
use tributary_config::{Level, Report, Sources};
use tributary_memory::{Budget, machine_memory};
use tributary_net::listeners::Listeners;

/// Options of a run, from the command line.
#[derive(Debug, Clone)]
pub struct ServiceOptions {
    /// Locations of the configuration; read again at every reload.
    pub sources: Sources,
    /// Whether warnings about the configuration are errors.
    pub strict: bool,
    /// Time limit of a shutdown; data not delivered by then is lost.
    pub drain_timeout: Duration,
}

/// Divisor of the machine's (or cgroup's) memory that gives the default budget for telemetry
/// without a `memory_limiter`.
const DEFAULT_BUDGET_SHARE: u64 = 2;

/// Runs until a signal or the panic of a stage ends the process.
///
/// The exit code is 0 if all acknowledged data has been delivered. It is 1 if the configuration is
/// invalid, a stage has panicked, or acknowledged data was lost.
pub async fn run(options: ServiceOptions) -> ExitCode {
    // Listen for signals first, so that a signal during the loading of the configuration causes an
    // orderly shutdown.
    let mut signals = match Signals::listen() {
        Ok(signals) => signals,
        Err(error) => {
            eprintln!("Error: cannot listen for signals: {error}");
            return ExitCode::FAILURE;
        }
    };
    let loaded = tokio::select! {
        loaded = load(options.clone()) => loaded,
        () = signals.end() => return ExitCode::SUCCESS,
    };
    let Some(config) = loaded.config else {
        say(&loaded.report, None);
        return ExitCode::FAILURE;
    };
    let introspection = Arc::new(Introspection::default());
    let warnings = introspection.warnings.clone();
    let logs = match LogHandle::install(&config.service.telemetry, warnings) {
        Ok(logs) => logs,
        Err(error) => {
            eprintln!("Error: {error}");
            return ExitCode::FAILURE;
        }
    };
    say(&loaded.report, Some(&logs));
    info!(
        version = env!("CARGO_PKG_VERSION"),
        cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        "Starting collector..."
    );
    warn_of_root();
    match Service::start(options, config, logs, introspection) {
        Ok(service) => service.serve(signals).await,
        Err(problem) => {
            error!(error = problem, "Cannot start the collector.");
            ExitCode::FAILURE
        }
    }
}

/// Loads the configuration on a thread for blocking tasks, because reading may block, for example on a FIFO.
async fn load(options: ServiceOptions) -> Loaded {
    let load = move || crate::app::config::load(&options.sources, options.strict);
    match tokio::task::spawn_blocking(load).await {
        Ok(loaded) => loaded,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// Warns if the process runs as root: the collector does not need root, and a defect would then
/// endanger the whole machine.
fn warn_of_root() {
    if rustix::process::geteuid().is_root() {
        warn!(
            "Running as root, which no feature needs. Run the collector as a dedicated user that can read its \
             configuration and keys and write to its directories"
        );
    }
}

/// Prints the diagnostics of a configuration. Text logs get the report with its source excerpts.
/// JSON logs get one log line per diagnostic, because parsers read them line by line.
fn say(report: &Report, logs: Option<&LogHandle>) {
    if !logs.is_some_and(LogHandle::is_json) {
        // A closed stderr must not end a process that works.
        let text = report.render_with_colours(terminal::has_colours());
        let _ = std::io::stderr().write_all(text.as_bytes());
        return;
    }
    for (found, place) in report.findings() {
        let (message, help) = (&found.message, found.help.join("; "));
        match found.level {
            Level::Error => error!(place, help, "{message}"),
            Level::Warning => warn!(place, help, "{message}"),
            Level::Notice => info!(place, help, "{message}"),
        }
    }
}

struct Service {
    options: ServiceOptions,
    host: Host,
    logs: LogHandle,
    exposition: Exposition,
    graph: Graph,
    endpoint: Option<MetricsEndpoint>,
    metrics: Arc<MetricsSource>,
    own_telemetry: OwnTelemetry,
    /// Graphs of earlier configurations that still have data to deliver.
    retired: JoinSet<Undelivered>,
    /// Data that earlier graphs could not deliver.
    lost: Undelivered,
    /// Earlier graphs whose stages may still pass data to exporters that now belong to the current
    /// graph.
    handing_over: TaskTracker,
    /// Deadline of the process, sent to earlier graphs.
    terminate: watch::Sender<Option<Instant>>,
    panicked: Arc<Panicked>,
    /// Exporters by id: whether their queues are on disk in this and all earlier configurations.
    stored: HashMap<String, bool>,
}

impl Service {
    fn start(
        options: ServiceOptions,
        config: Config,
        logs: LogHandle,
        introspection: Arc<Introspection>,
    ) -> Result<Service, String> {
        let config = Arc::new(config);
        let exposition = Exposition::install().map_err(|error| error.to_string())?;
        describe_metrics();
        tokio::spawn(exposition.clone().keep_up());
        let host = Host {
            budget: Budget::new(default_budget()),
            listeners: Listeners::default(),
            health: Arc::new(Health::default()),
            stored_queues: Default::default(),
            profile_stores: Default::default(),
            introspection,
        };
        tokio::spawn(allocator::keep_small(host.budget.clone()));
        let (metrics, budget) = (exposition.clone(), host.budget.clone());
        let render = move || metrics.render(MetricsLevel::Normal, &budget, &[]);
        host.introspection.set_metrics(render);
        let panicked = watch_for_panics(host.health.clone());
        let (mut graph, endpoint) = build(&config, &host, &exposition, None)?;
        let metrics = MetricsSource::new(exposition.clone(), host.budget.clone());
        let telemetry = &config.service.telemetry;
        let own_telemetry = OwnTelemetry::start(telemetry, &host, &metrics, logs.take_queues())?;
        graph.start();
        host.introspection.publish(running_graph(&config));
        describe(&config);
        let mut stored = HashMap::new();
        note_stored_queues(&config, &mut stored);
        host.health.set_phase(Phase::Ready);
        info!("Everything is ready. Begin running and processing data.");
        tokio::task::spawn_blocking(code_pages::release);
        Ok(Service {
            options,
            host,
            logs,
            exposition,
            graph,
            endpoint,
            metrics,
            own_telemetry,
            retired: JoinSet::new(),
            lost: Undelivered::default(),
            handing_over: TaskTracker::new(),
            terminate: watch::Sender::new(None),
            panicked,
            stored,
        })
    }

    async fn serve(mut self, mut signals: Signals) -> ExitCode {
        let panicked = self.panicked.clone();
        // The configuration that is being read for a reload.
        let mut reading = OptionFuture::default();
        // The signal that ends the process; `None` after a panic.
        let signal = loop {
            tokio::select! {
                _ = signals.hang_up.recv() => {
                    info!("Reloading the configuration.");
                    reading = Some(Box::pin(load(self.options.clone()))).into();
                }
                Some(loaded) = &mut reading => {
                    reading = None.into();
                    self.reload(loaded).await;
                }
                _ = signals.terminate.recv() => break Some("SIGTERM"),
                _ = signals.interrupt.recv() => break Some("SIGINT"),
                () = panicked.happened.notified() => break None,
                Some(left) = self.retired.join_next() => self.lost += left.unwrap_or_default(),
            }
        };
        if let Some(signal) = signal {
            // Change the health before the log line, so that a probe after the line finds no healthy process.
            self.host.health.set_phase(Phase::Stopping);
            info!(signal, "Received signal from OS. Starting shutdown...");
        } else {
            error!(
                place = panicked.place.get().map(String::as_str),
                "A stage has panicked. This is a defect of the collector; please report it. Shutting down; buffered \
                 items are delivered first."
            );
        }
        let health = self.host.health.clone();
        let (exposition, stored) = (self.exposition.clone(), std::mem::take(&mut self.stored));
        let waiting = report_progress(self.exposition.clone(), self.options.drain_timeout);
        // Counted before `select!` drops the shutdown together with the items in flight.
        let interrupted = async {
            signals.end().await;
            exposition.all_in_flight()
        };
        let left = tokio::select! {
            left = self.shut_down() => left,
            never = waiting => match never {},
            held = interrupted => {
                let (level, words) = interruption_message(&held, &stored);
                match level {
                    Level::Error => error!("{words}"),
                    _ => info!("{words}"),
                }
                return ExitCode::FAILURE;
            }
        };
        if left.items > 0 {
            error!(
                undelivered_items = left.items,
                "Shutdown complete, but some items were not delivered."
            );
        } else {
            info!("Shutdown complete.");
        }
        // Includes a stage that panicked during the shutdown.
        if health.phase() == Phase::Failed || left.items > 0 {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        }
    }

    /// Builds the new configuration beside the old one, and swaps them when the new graph is
    /// complete.
    async fn reload(&mut self, loaded: Loaded) {
        say(&loaded.report, Some(&self.logs));
        let Some(config) = loaded.config.map(Arc::new) else {
            error!("The new configuration is invalid; still running the previous one.");
            return;
        };
        let built = build(&config, &self.host, &self.exposition, Some(&self.graph));
        let (mut graph, endpoint) = match built {
            Ok(built) => built,
            Err(problem) => {
                error!(
                    error = problem,
                    "The new configuration cannot be started; still running the previous one."
                );
                return;
            }
        };
        graph.adopt(&mut self.graph);
        self.host.budget.reset_limit(default_budget());
        graph.start();
        if let Err(error) = self.logs.apply(&config.service.telemetry) {
            error!(%error, "Cannot apply the new log settings; still using the previous ones.");
        } else {
            self.restart_own_telemetry(&config);
        }
        if let Some(old) = std::mem::replace(&mut self.endpoint, endpoint) {
            old.shutdown().await;
        }
        // While the new graph serves, the old graph responds to its requests and delivers its data.
        let old = std::mem::replace(&mut self.graph, graph);
        let mut terminate = self.terminate.subscribe();
        let terminate = async move {
            let told = terminate.wait_for(Option::is_some).await;
            told.ok()
                .and_then(|deadline| *deadline)
                .unwrap_or_else(Instant::now)
        };
        let mut retired = Box::pin(old.retire(terminate, self.handing_over.token()));
        // The first poll stops the old receivers from accepting. The log reports them as replaced now, so no client
        // may be admitted by an old token or list of names afterwards.
        match futures_util::poll!(&mut retired) {
            Poll::Pending => self.retired.spawn(retired),
            Poll::Ready(left) => self.retired.spawn(async move { left }),
        };
        self.host.introspection.publish(running_graph(&config));
        describe(&config);
        note_stored_queues(&config, &mut self.stored);
        info!("Configuration reloaded.");
        tokio::task::spawn_blocking(code_pages::release);
    }

    /// Exports own telemetry as the new configuration says.
    fn restart_own_telemetry(&mut self, config: &Config) {
        let (telemetry, queues) = (&config.service.telemetry, self.logs.take_queues());
        match OwnTelemetry::start(telemetry, &self.host, &self.metrics, queues) {
            Ok(new) => {
                let old = std::mem::replace(&mut self.own_telemetry, new);
                tokio::spawn(old.shutdown());
            }
            Err(problem) => error!(
                error = problem,
                "Cannot export own telemetry with the new settings; own metrics are still exported with the previous \
                 ones, own logs are not exported."
            ),
        }
    }

    async fn shut_down(mut self) -> Undelivered {
        let deadline = Instant::now() + self.options.drain_timeout;
        self.terminate.send_replace(Some(deadline));
        // The exporters must stay open until earlier graphs have passed on their data.
        self.handing_over.close();
        let _ = timeout(self.options.drain_timeout / 3, self.handing_over.wait()).await;
        let retired = async {
            let mut left = self.lost;
            while let Some(ended) = self.retired.join_next().await {
                left += ended.unwrap_or_default();
            }
            left
        };
        let (mut left, of_retired) = tokio::join!(self.graph.shutdown(deadline), retired);
        left += of_retired;
        self.logs.end_export();
        self.own_telemetry.shutdown().await;
        if let Some(endpoint) = self.endpoint {
            endpoint.shutdown().await;
        }
        left
    }
}

fn build(
    config: &Config,
    host: &Host,
    exposition: &Exposition,
    running: Option<&Graph>,
) -> Result<(Graph, Option<MetricsEndpoint>), String> {
    let graph = Graph::build(config, host, running).map_err(|error| error.to_string())?;
    let extensions = graph.extensions();
    let endpoint = MetricsEndpoint::serve(&config.service.telemetry, host, extensions, exposition)?;
    Ok((graph, endpoint))
}

fn default_budget() -> usize {
    usize::try_from(machine_memory() / DEFAULT_BUDGET_SHARE).unwrap_or(usize::MAX)
}
