//! Builds a graph, downstream first.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::graph::{Graph, GraphError, Part};
use super::{Chain, Consumer, Counted, Entry, Exit, FanOut, Processor, Switch};
use crate::batch::Signal;
use crate::component::{BuildError, Host, Next, Outputs, Stage, Terminal};
use crate::config::{ComponentId, Config, Configured, Endpoint, PipelineConfig, PipelineId};
use crate::telemetry::{Account, ProcessorMetrics};

pub(super) struct Builder<'a> {
    config: &'a Config,
    host: &'a Host,
    running: Option<&'a Graph>,
    entries: HashMap<&'a PipelineId, Arc<dyn Consumer>>,
    under_way: HashSet<&'a PipelineId>,
    connectors: HashMap<&'a ComponentId, Outputs>,
    graph: Graph,
}

impl<'a> Builder<'a> {
    pub(super) fn new(config: &'a Config, host: &'a Host, running: Option<&'a Graph>) -> Self {
        Builder {
            config,
            host,
            running,
            entries: HashMap::new(),
            under_way: HashSet::new(),
            connectors: HashMap::new(),
            graph: Graph::default(),
        }
    }

    pub(super) fn build(mut self) -> Result<Graph, GraphError> {
        self.extensions()?;
        for (id, _) in &self.config.service.pipelines {
            self.pipeline(id)?;
        }
        self.receivers()?;
        Ok(self.graph)
    }

    /// The running component of that name, when nothing about it has changed.
    fn unchanged(&self, name: &str, fingerprint: &str) -> Option<&'a Part> {
        let part = self.running?.part(name)?;
        (part.fingerprint == fingerprint).then_some(part)
    }

    /// A component that stays does not ask for its sockets again; without this they would look unused, and the next
    /// configuration that changes the component would find its own address in use.
    fn keep_sockets(&self, endpoints: Vec<(Vec<&'static str>, Endpoint)>) {
        for (_, endpoint) in endpoints {
            self.host.listeners.keep(&endpoint);
        }
    }

    fn extensions(&mut self) -> Result<(), GraphError> {
        for id in &self.config.service.extensions {
            let name = format!("extensions.{id}");
            let configured = lookup(&self.config.extensions, id, &name)?;
            let component = match self.unchanged(&name, &configured.fingerprint) {
                Some(_) => {
                    self.keep_sockets(configured.config.listens_on());
                    None
                }
                None => Some(
                    configured
                        .config
                        .build(&self.host.context(id))
                        .map_err(at(&name))?,
                ),
            };
            let fingerprint = configured.fingerprint.clone();
            self.graph.extensions.push(Part {
                fingerprint,
                component,
                ..Part::named(name)
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
                    let component = Some(component);
                    self.graph.middle.push(Part {
                        component,
                        ..Part::named(name)
                    });
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
        let name = format!("exporters.{id}");
        if let Some(part) = self.graph.part(&name) {
            return Ok(part.inputs.clone());
        }
        let configured = lookup(&self.config.exporters, id, &name)?;
        let signals = self.signals_of(|pipeline| &pipeline.exporters, id);
        let fingerprint = format!("{signals:?} {}", configured.fingerprint);
        let (inputs, component) = match self.unchanged(&name, &fingerprint) {
            Some(part) => (part.inputs.clone(), None),
            None => {
                let cx = self.host.context(id);
                let Terminal { inputs, component } =
                    configured.config.build(&cx, &signals).map_err(at(&name))?;
                (inputs, Some(component))
            }
        };
        let part = Part {
            fingerprint,
            component,
            inputs: inputs.clone(),
            ..Part::named(name)
        };
        self.graph.exporters.push(part);
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
            component: Some(component),
            ..Part::named(place)
        });
        self.connectors.insert(id, inputs.clone());
        Ok(inputs)
    }

    fn receivers(&mut self) -> Result<(), GraphError> {
        for (id, configured) in &self.config.receivers {
            let name = format!("receivers.{id}");
            let pipelines = self.outputs_to_pipelines(id)?;
            let mut outputs = Outputs::default();
            let mut switches = Vec::new();
            for signal in Signal::ALL {
                if let Some(consumer) = pipelines.get(signal) {
                    let switch = Switch::new(consumer.clone());
                    outputs.set(signal, switch.clone());
                    switches.push((signal, switch));
                }
            }
            if switches.is_empty() {
                continue; // Unused: the configuration check said so.
            }
            let signals: Vec<Signal> = outputs.signals().collect();
            let fingerprint = format!("{signals:?} {}", configured.fingerprint);
            let component = match self.unchanged(&name, &fingerprint) {
                Some(_) => {
                    self.keep_sockets(configured.config.listens_on());
                    None
                }
                None => {
                    let cx = self.host.context(id);
                    Some(configured.config.build(&cx, outputs).map_err(at(&name))?)
                }
            };
            let part = Part {
                fingerprint,
                component,
                switches,
                ..Part::named(name)
            };
            self.graph.receivers.push(part);
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
