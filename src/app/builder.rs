//! Builds a graph, downstream first.

mod extensions;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::graph::{Graph, GraphError, Part};
use crate::app::config::{Config, Configured};
use crate::component::{BuildContext, BuildError, Extensions, Host, Outputs, Stage, Terminal};
use crate::introspection::graph::{NodeKind, node_name, processor_name};
use crate::pipeline::Next;
use crate::pipeline::account::{Account, ProcessorMetrics};
use crate::pipeline::flow::{Flow, Metered};
use crate::pipeline::id::{PipelineConfig, PipelineId};
use crate::pipeline::{Chain, Consumer, Counted, Exit, FanOut, PipelineEntry, Processor, Switch};
use tributary_config::{ComponentId, ExtensionUse, Validate};
use tributary_otlp::Signal;

pub(super) struct Builder<'a> {
    config: &'a Config,
    host: &'a Host,
    running: Option<&'a Graph>,
    entries: HashMap<&'a PipelineId, Leveled<Arc<dyn Consumer>>>,
    in_progress: HashSet<&'a PipelineId>,
    connectors: HashMap<&'a ComponentId, Leveled<Outputs>>,
    /// Services of the extensions that are built.
    extensions: Extensions,
    graph: Graph,
}

/// An entry for data, and the largest number of buffering stages and connectors between the entry
/// and an exporter.
type Leveled<T> = (T, usize);

impl<'a> Builder<'a> {
    pub(super) fn new(config: &'a Config, host: &'a Host, running: Option<&'a Graph>) -> Self {
        Builder {
            config,
            host,
            running,
            entries: HashMap::new(),
            in_progress: HashSet::new(),
            connectors: HashMap::new(),
            extensions: Extensions::default(),
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

    /// Returns the running component with this name if its configuration has not changed.
    fn unchanged(&self, name: &str, fingerprint: &str) -> Option<&'a Part> {
        let part = self.running?.part(name)?;
        (part.fingerprint == fingerprint).then_some(part)
    }

    fn context(&self, id: &ComponentId) -> BuildContext {
        BuildContext {
            extensions: self.extensions.clone(),
            ..self.host.context(id)
        }
    }

    /// Returns the fingerprint of a component's configuration, including the fingerprints of the
    /// extensions that it uses. A component keeps a reference to its extensions' services, so it
    /// must be rebuilt when an extension changes.
    fn fingerprint<C: ?Sized + Validate>(&self, configured: &Configured<C>) -> String {
        let mut fingerprint = configured.fingerprint.clone();
        for ExtensionUse { extension, .. } in configured.config.uses_extensions() {
            let used = self.config.extensions.iter();
            for (_, used) in used.filter(|(id, _)| *id == extension) {
                fingerprint.push_str(" with ");
                fingerprint.push_str(&used.fingerprint);
            }
        }
        fingerprint
    }

    /// Returns the entry of a pipeline. Builds the pipeline and everything downstream of it on the
    /// first call.
    fn pipeline(&mut self, id: &PipelineId) -> Result<Leveled<Arc<dyn Consumer>>, GraphError> {
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
        if !self.in_progress.insert(id) {
            return Err(GraphError {
                place,
                problem: "is part of a cycle".to_owned(),
            });
        }
        let mut exporters = Vec::with_capacity(pipeline.exporters.len());
        let mut level = 0;
        for exporter in &pipeline.exporters {
            let (input, below) = self.terminal(exporter, id, &place)?;
            exporters.push(input);
            level = level.max(below);
        }
        let account = Account::of_pipeline(&id.to_string());
        let exit = Arc::new(Exit::new(account.clone(), FanOut::over(exporters)));
        let (first, level) = self.stages(id, pipeline, &account, (exit, level))?;
        let notes = |id: &&ComponentId| {
            let mut all = self.config.processors.iter();
            all.any(|(key, body)| key == *id && body.config.remembers_deliveries())
        };
        let finishes = pipeline.processors.iter().any(|id| notes(&id));
        let entry: Arc<dyn Consumer> = Arc::new(PipelineEntry::new(account, first, finishes));
        self.entries.insert(id, (entry.clone(), level));
        Ok((entry, level))
    }

    /// Builds the processors of a pipeline, last to first. Neighbouring processors that edit
    /// without buffering become one chain.
    fn stages(
        &mut self,
        id: &PipelineId,
        pipeline: &PipelineConfig,
        account: &Account,
        (exit, mut level): Leveled<Arc<dyn Consumer>>,
    ) -> Result<Leveled<Arc<dyn Consumer>>, GraphError> {
        let mut next = exit;
        let flows = &self.host.introspection.flows;
        let pipeline_name = id.to_string();
        let mut pure: Vec<(Box<dyn Processor>, ProcessorMetrics)> = Vec::new();
        for processor in pipeline.processors.iter().rev() {
            let place = format!("processors.{processor}");
            let configured = lookup(&self.config.processors, processor, &place)?;
            let node = processor_name(&pipeline_name, &processor.to_string());
            let flow = flows.edge(&pipeline_name, &node);
            let metrics = ProcessorMetrics::new(processor, id.signal, flow);
            let cx = BuildContext {
                pipeline: id.to_string(),
                ..self.context(processor)
            };
            match configured
                .config
                .build(&cx, id.signal)
                .map_err(at(&place))?
            {
                Stage::Pure(processor) => pure.push((processor, metrics)),
                Stage::Buffering(connect) => {
                    let downstream = chain(std::mem::take(&mut pure), account, next);
                    let (consumer, component) = connect(Next {
                        consumer: Arc::new(Counted::outgoing(metrics.clone(), downstream)),
                        account: account.clone(),
                    });
                    next = Arc::new(Counted::incoming(metrics, consumer));
                    let name = format!("{place} in service.pipelines.{id}");
                    let component = Some(component);
                    level += 1;
                    self.graph.middle.push(Part {
                        component,
                        level,
                        ..Part::named(name)
                    });
                }
            }
        }
        Ok((chain(pure, account, next), level))
    }

    /// Returns the end of a pipeline: an exporter or a connector.
    fn terminal(
        &mut self,
        id: &'a ComponentId,
        pipeline: &PipelineId,
        place: &str,
    ) -> Result<Leveled<Arc<dyn Consumer>>, GraphError> {
        let is_connector = self.config.connectors.iter().any(|(key, _)| key == id);
        let (inputs, level, kind) = if is_connector {
            let (inputs, level) = self.connector(id)?;
            (inputs, level, NodeKind::Connector)
        } else {
            (self.exporter(id)?, 0, NodeKind::Exporter)
        };
        let signal = pipeline.signal;
        let input = inputs.get(signal).cloned().ok_or_else(|| GraphError {
            place: place.to_owned(),
            problem: format!("`{id}` does not take {signal}"),
        })?;
        let flow = self.flow(pipeline, kind, id);
        Ok((Arc::new(Metered::new(flow, input)), level))
    }

    fn exporter(&mut self, id: &'a ComponentId) -> Result<Outputs, GraphError> {
        let name = format!("exporters.{id}");
        if let Some(part) = self.graph.part(&name) {
            return Ok(part.inputs.clone());
        }
        let configured = lookup(&self.config.exporters, id, &name)?;
        let signals = self.signals_of(|pipeline| &pipeline.exporters, id);
        let fingerprint = format!("{signals:?} {}", self.fingerprint(configured));
        let (inputs, component) = match self.unchanged(&name, &fingerprint) {
            Some(part) => (part.inputs.clone(), None),
            None => {
                let cx = self.context(id);
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

    fn connector(&mut self, id: &'a ComponentId) -> Result<Leveled<Outputs>, GraphError> {
        if let Some(known) = self.connectors.get(id) {
            return Ok(known.clone());
        }
        let place = format!("connectors.{id}");
        let configured = lookup(&self.config.connectors, id, &place)?;
        let (outputs, below) = self.outputs_to_pipelines(NodeKind::Connector, id)?;
        let level = below + 1;
        let signals = self.signals_of(|pipeline| &pipeline.exporters, id);
        let Terminal { inputs, component } = configured
            .config
            .build(&self.context(id), &signals, outputs)
            .map_err(at(&place))?;
        self.graph.middle.push(Part {
            component: Some(component),
            level,
            ..Part::named(place)
        });
        self.connectors.insert(id, (inputs.clone(), level));
        Ok((inputs, level))
    }

    fn receivers(&mut self) -> Result<(), GraphError> {
        for (id, configured) in &self.config.receivers {
            let name = format!("receivers.{id}");
            let (pipelines, _) = self.outputs_to_pipelines(NodeKind::Receiver, id)?;
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
            let fingerprint = format!("{signals:?} {}", self.fingerprint(configured));
            let component = match self.unchanged(&name, &fingerprint) {
                Some(_) => None,
                None => {
                    let cx = self.context(id);
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

    /// Returns, for every signal, the entries of all pipelines that begin with the receiver or
    /// connector `id`.
    fn outputs_to_pipelines(
        &mut self,
        kind: NodeKind,
        id: &ComponentId,
    ) -> Result<Leveled<Outputs>, GraphError> {
        let mut outputs = Outputs::default();
        let mut level = 0;
        let mut each = Vec::new();
        for signal in Signal::ALL {
            let mut entries = Vec::new();
            for (key, body) in &self.config.service.pipelines {
                if key.signal == signal && body.receivers.contains(id) {
                    let (entry, below) = self.pipeline(key)?;
                    let flow = self.flow(key, kind, id);
                    let entry: Arc<dyn Consumer> = Arc::new(Metered::new(flow, entry));
                    each.push((key.clone(), entry.clone()));
                    entries.push(entry);
                    level = level.max(below);
                }
            }
            if !entries.is_empty() {
                outputs.set(signal, FanOut::over(entries));
            }
        }
        outputs.set_pipelines(each);
        Ok((outputs, level))
    }

    /// Returns the counters of the edge between a pipeline and a component outside it.
    fn flow(&self, pipeline: &PipelineId, kind: NodeKind, id: &ComponentId) -> Arc<Flow> {
        let node = node_name(kind, &id.to_string());
        let flows = &self.host.introspection.flows;
        flows.edge(&pipeline.to_string(), &node)
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
