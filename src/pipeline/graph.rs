//! The graph of a configuration: built downstream first, started downstream first, shut down upstream first.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, timeout_at};
use tracing::{info, warn};

use super::{Chain, Component, Consumer, Counted, Entry, Exit, FanOut, Processor, Undelivered};
use crate::batch::Signal;
use crate::component::{BuildError, Host, Next, Outputs, Stage, Terminal};
use crate::config::{ComponentId, Config, Configured, PipelineConfig, PipelineId};
use crate::telemetry::{Account, ProcessorMetrics};

/// Why a graph could not be built.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {problem}")]
pub struct GraphError {
    /// The component or pipeline, as a path in the configuration.
    pub place: String,
    /// What went wrong there.
    pub problem: String,
}

/// All components of one configuration, connected.
pub struct Graph {
    extensions: Vec<Part>,
    exporters: Vec<ExporterPart>,
    /// Connectors and stages that hold batches, downstream first.
    middle: Vec<Part>,
    receivers: Vec<Part>,
}

struct Part {
    name: String,
    component: Box<dyn Component>,
}

/// An exporter, with what tells whether the next configuration can keep it and its queue.
struct ExporterPart {
    id: ComponentId,
    fingerprint: String,
    signals: Vec<Signal>,
    inputs: Outputs,
    /// `None` while the exporter still belongs to the graph before this one.
    component: Option<Box<dyn Component>>,
}

/// How long a graph that was replaced may take to answer the requests that it had begun.
const HANDOVER: Duration = Duration::from_secs(60);

impl Graph {
    /// Builds the graph of a valid configuration. Exporters that `running` already has with the same configuration
    /// are shared with it; [`adopt`](Self::adopt) takes them over.
    ///
    /// # Errors
    /// When a component cannot be built. What was built up to then is dropped; `running` is untouched.
    pub fn build(
        config: &Config,
        host: &Host,
        running: Option<&Graph>,
    ) -> Result<Graph, GraphError> {
        let mut builder = Builder {
            config,
            host,
            running,
            entries: HashMap::new(),
            under_way: HashSet::new(),
            connectors: HashMap::new(),
            graph: Graph {
                extensions: Vec::new(),
                exporters: Vec::new(),
                middle: Vec::new(),
                receivers: Vec::new(),
            },
        };
        builder.extensions()?;
        for (id, _) in &config.service.pipelines {
            builder.pipeline(id)?;
        }
        builder.receivers()?;
        Ok(builder.graph)
    }

    /// Takes over the exporters that [`build`](Self::build) shared with `previous`.
    pub fn adopt(&mut self, previous: &mut Graph) {
        for exporter in self
            .exporters
            .iter_mut()
            .filter(|part| part.component.is_none())
        {
            exporter.component = previous
                .exporters
                .iter_mut()
                .find(|part| part.id == exporter.id)
                .and_then(|part| part.component.take());
        }
        previous.exporters.retain(|part| part.component.is_some());
    }

    /// Starts every component, receivers last. Components that run already do not notice.
    pub fn start(&mut self) {
        for part in &mut self.extensions {
            part.component.start();
        }
        for component in self
            .exporters
            .iter_mut()
            .filter_map(|part| part.component.as_mut())
        {
            component.start();
        }
        for part in self.middle.iter_mut().chain(&mut self.receivers) {
            part.component.start();
        }
    }

    /// Shuts everything down, upstream first. Receivers get at most a third of the time, so that what they let in can
    /// still be flushed and delivered.
    pub async fn shutdown(self, deadline: Instant) -> Undelivered {
        let third = deadline.saturating_duration_since(Instant::now()) / 3;
        let receivers_until = (Instant::now() + third).min(deadline);
        let mut left = stop_all(self.receivers, receivers_until).await;
        for part in self.middle.into_iter().rev() {
            left += stop(part, deadline).await;
        }
        left += stop_all(
            self.exporters.into_iter().filter_map(ExporterPart::owned),
            deadline,
        )
        .await;
        left += stop_all(self.extensions, deadline).await;
        left
    }

    /// Lets go of a graph that another one has replaced: its receivers finish what they had begun and what it holds
    /// moves on to the exporters. Exporters that the new graph did not adopt are returned, still at work.
    pub async fn retire(self) -> Retired {
        let deadline = Instant::now() + HANDOVER;
        let mut left = stop_all(self.receivers, deadline).await;
        for part in self.middle.into_iter().rev() {
            left += stop(part, deadline).await;
        }
        left += stop_all(self.extensions, deadline).await;
        let exporters = self
            .exporters
            .into_iter()
            .filter_map(ExporterPart::owned)
            .collect();
        Retired { exporters, left }
    }
}

/// Exporters of a replaced configuration that still have something to deliver.
pub struct Retired {
    exporters: Vec<Part>,
    left: Undelivered,
}

impl Retired {
    /// Shuts down the exporters that have delivered everything; returns whether any is left.
    pub async fn sweep(&mut self) -> bool {
        let (idle, busy) = std::mem::take(&mut self.exporters)
            .into_iter()
            .partition(|part| part.component.idle());
        self.exporters = busy;
        self.left += stop_all(idle, Instant::now() + HANDOVER).await;
        !self.exporters.is_empty()
    }

    /// Shuts down the rest.
    pub async fn shutdown(self, deadline: Instant) -> Undelivered {
        let mut left = self.left;
        left += stop_all(self.exporters, deadline).await;
        left
    }
}

impl ExporterPart {
    fn owned(self) -> Option<Part> {
        let name = format!("exporters.{}", self.id);
        self.component.map(|component| Part { name, component })
    }
}

async fn stop(part: Part, deadline: Instant) -> Undelivered {
    // A component keeps to its deadline by itself; the margin is for one that does not.
    let margin = Duration::from_secs(2);
    match timeout_at(deadline + margin, part.component.shutdown(deadline)).await {
        Ok(left) => {
            if left.items > 0 {
                warn!(
                    component = part.name,
                    items = left.items,
                    "Not everything was delivered."
                );
            }
            left
        }
        Err(_) => {
            warn!(component = part.name, "Did not stop before the deadline.");
            Undelivered::default()
        }
    }
}

async fn stop_all(parts: impl IntoIterator<Item = Part>, deadline: Instant) -> Undelivered {
    join_all(parts.into_iter().map(|part| stop(part, deadline)))
        .await
        .into_iter()
        .sum()
}

struct Builder<'a> {
    config: &'a Config,
    host: &'a Host,
    running: Option<&'a Graph>,
    entries: HashMap<&'a PipelineId, Arc<dyn Consumer>>,
    under_way: HashSet<&'a PipelineId>,
    connectors: HashMap<&'a ComponentId, Outputs>,
    graph: Graph,
}

impl<'a> Builder<'a> {
    fn extensions(&mut self) -> Result<(), GraphError> {
        for id in &self.config.service.extensions {
            let place = format!("extensions.{id}");
            let extension = lookup(&self.config.extensions, id, &place)?;
            let component = extension
                .config
                .build(&self.host.context(id))
                .map_err(at(&place))?;
            self.graph.extensions.push(Part {
                name: place,
                component,
            });
        }
        Ok(())
    }

    /// The entry of a pipeline; builds it, and everything downstream of it, when it is first asked for.
    fn pipeline(&mut self, id: &PipelineId) -> Result<Arc<dyn Consumer>, GraphError> {
        let place = format!("service.pipelines.{id}");
        let Some((id, pipeline)) = self
            .config
            .service
            .pipelines
            .iter()
            .find(|(key, _)| key == id)
        else {
            return Err(GraphError {
                place,
                problem: "is not configured".to_owned(),
            });
        };
        if let Some(entry) = self.entries.get(id) {
            return Ok(entry.clone());
        }
        if !self.under_way.insert(id) {
            return Err(GraphError {
                place,
                problem: "is part of a cycle".to_owned(),
            });
        }
        let exporters = pipeline
            .exporters
            .iter()
            .map(|exporter| self.terminal(exporter, id.signal, &place))
            .collect::<Result<_, _>>()?;
        let account = Account::of_pipeline(&id.to_string());
        let exit = Arc::new(Exit::new(account.clone(), FanOut::over(exporters)));
        let first = self.stages(id, pipeline, &account, exit)?;
        let entry: Arc<dyn Consumer> = Arc::new(Entry::new(account, first));
        self.entries.insert(id, entry.clone());
        Ok(entry)
    }

    /// The processors of a pipeline, last to first: neighbours that edit in passing become one chain.
    fn stages(
        &mut self,
        id: &PipelineId,
        pipeline: &PipelineConfig,
        account: &Account,
        exit: Arc<dyn Consumer>,
    ) -> Result<Arc<dyn Consumer>, GraphError> {
        let mut next = exit;
        let mut pure: Vec<(Box<dyn Processor>, ProcessorMetrics)> = Vec::new();
        for processor in pipeline.processors.iter().rev() {
            let place = format!("processors.{processor}");
            let configured = lookup(&self.config.processors, processor, &place)?;
            let metrics = ProcessorMetrics::new(processor, id.signal);
            let cx = self.host.context(processor);
            match configured
                .config
                .build(&cx, id.signal)
                .map_err(at(&place))?
            {
                Stage::Pure(processor) => pure.push((processor, metrics)),
                Stage::Holding(connect) => {
                    let downstream = chain(std::mem::take(&mut pure), account, next);
                    let (consumer, component) = connect(Next {
                        consumer: Arc::new(Counted::outgoing(metrics.clone(), downstream)),
                        account: account.clone(),
                    });
                    next = Arc::new(Counted::incoming(metrics, consumer));
                    let name = format!("{place} in service.pipelines.{id}");
                    self.graph.middle.push(Part { name, component });
                }
            }
        }
        Ok(chain(pure, account, next))
    }

    /// What a pipeline of `signal` ends in: an exporter, or a connector.
    fn terminal(
        &mut self,
        id: &'a ComponentId,
        signal: Signal,
        pipeline: &str,
    ) -> Result<Arc<dyn Consumer>, GraphError> {
        let is_connector = self.config.connectors.iter().any(|(key, _)| key == id);
        let inputs = if is_connector {
            self.connector(id)?
        } else {
            self.exporter(id)?
        };
        inputs.get(signal).cloned().ok_or_else(|| GraphError {
            place: pipeline.to_owned(),
            problem: format!("`{id}` does not take {signal}"),
        })
    }

    fn exporter(&mut self, id: &'a ComponentId) -> Result<Outputs, GraphError> {
        if let Some(part) = self.graph.exporters.iter().find(|part| part.id == *id) {
            return Ok(part.inputs.clone());
        }
        let place = format!("exporters.{id}");
        let configured = lookup(&self.config.exporters, id, &place)?;
        let signals = self.signals_of(|pipeline| &pipeline.exporters, id);
        let running = self
            .running
            .into_iter()
            .flat_map(|graph| &graph.exporters)
            .find(|part| {
                part.id == *id
                    && part.fingerprint == configured.fingerprint
                    && part.signals == signals
            });
        let (inputs, component) = match running {
            Some(part) => (part.inputs.clone(), None),
            None => {
                let Terminal { inputs, component } = configured
                    .config
                    .build(&self.host.context(id), &signals)
                    .map_err(at(&place))?;
                (inputs, Some(component))
            }
        };
        self.graph.exporters.push(ExporterPart {
            id: id.clone(),
            fingerprint: configured.fingerprint.clone(),
            signals,
            inputs: inputs.clone(),
            component,
        });
        Ok(inputs)
    }

    fn connector(&mut self, id: &'a ComponentId) -> Result<Outputs, GraphError> {
        if let Some(inputs) = self.connectors.get(id) {
            return Ok(inputs.clone());
        }
        let place = format!("connectors.{id}");
        let configured = lookup(&self.config.connectors, id, &place)?;
        let outputs = self.outputs_to_pipelines(id)?;
        let signals = self.signals_of(|pipeline| &pipeline.exporters, id);
        let Terminal { inputs, component } = configured
            .config
            .build(&self.host.context(id), &signals, outputs)
            .map_err(at(&place))?;
        self.graph.middle.push(Part {
            name: place,
            component,
        });
        self.connectors.insert(id, inputs.clone());
        Ok(inputs)
    }

    fn receivers(&mut self) -> Result<(), GraphError> {
        for (id, configured) in &self.config.receivers {
            let place = format!("receivers.{id}");
            let outputs = self.outputs_to_pipelines(id)?;
            if outputs.signals().next().is_none() {
                continue; // Unused: the configuration check said so.
            }
            let component = configured
                .config
                .build(&self.host.context(id), outputs)
                .map_err(at(&place))?;
            self.graph.receivers.push(Part {
                name: place,
                component,
            });
        }
        Ok(())
    }

    /// For every signal, all pipelines that begin with the receiver or connector `id`.
    fn outputs_to_pipelines(&mut self, id: &ComponentId) -> Result<Outputs, GraphError> {
        let mut outputs = Outputs::default();
        for signal in Signal::ALL {
            let pipelines: Vec<_> = self
                .config
                .service
                .pipelines
                .iter()
                .filter(|(key, body)| key.signal == signal && body.receivers.contains(id))
                .map(|(key, _)| self.pipeline(key))
                .collect::<Result<_, _>>()?;
            if !pipelines.is_empty() {
                outputs.set(signal, FanOut::over(pipelines));
            }
        }
        Ok(outputs)
    }

    fn signals_of(
        &self,
        list: impl Fn(&PipelineConfig) -> &Vec<ComponentId>,
        id: &ComponentId,
    ) -> Vec<Signal> {
        let used = |signal: &Signal| {
            self.config
                .service
                .pipelines
                .iter()
                .any(|(key, body)| key.signal == *signal && list(body).contains(id))
        };
        Signal::ALL.into_iter().filter(used).collect()
    }
}

fn chain(
    mut last_to_first: Vec<(Box<dyn Processor>, ProcessorMetrics)>,
    account: &Account,
    next: Arc<dyn Consumer>,
) -> Arc<dyn Consumer> {
    if last_to_first.is_empty() {
        return next;
    }
    last_to_first.reverse();
    Arc::new(Chain::new(last_to_first, account.clone(), next))
}

fn lookup<'a, C: ?Sized>(
    configured: &'a [(ComponentId, Configured<C>)],
    id: &ComponentId,
    place: &str,
) -> Result<&'a Configured<C>, GraphError> {
    configured
        .iter()
        .find(|(key, _)| key == id)
        .map(|(_, body)| body)
        .ok_or_else(|| GraphError {
            place: place.to_owned(),
            problem: "is not configured".to_owned(),
        })
}

fn at(place: &str) -> impl Fn(BuildError) -> GraphError + '_ {
    move |error| GraphError {
        place: place.to_owned(),
        problem: error.0,
    }
}

/// Says what flows where, once per start and reload.
pub(crate) fn describe(config: &Config) {
    for (id, pipeline) in &config.service.pipelines {
        let list = |ids: &[ComponentId]| {
            ids.iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(", ")
        };
        info!(
            otelcol.pipeline.id = %id,
            receivers = list(&pipeline.receivers),
            processors = list(&pipeline.processors),
            exporters = list(&pipeline.exporters),
            "Pipeline is built."
        );
    }
}
