//! What a component is to the rest of the program: how it is configured, built and listed.

pub mod auth;
pub mod identity;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use crate::pipeline::health::Health;
use crate::pipeline::id::PipelineId;
use crate::pipeline::{Component, Consumer, Next, Processor};
use tributary_config::{Capability, ComponentId, Node, Problems, Report, Validate};
use tributary_memory::Budget;
use tributary_net::auth::{ClientAuthenticator, ServerAuthenticator};
use tributary_net::listeners::Listeners;
use tributary_otlp::Signal;
use tributary_storage::{Logs, Storage};

/// What all components of the process share, over all reloads.
#[derive(Clone)]
pub struct Host {
    /// The process-wide memory budget.
    pub budget: Arc<Budget>,
    /// Where to get listening sockets from; they survive a reload.
    pub listeners: Listeners,
    /// How the process and its exporters fare.
    pub health: Arc<Health>,
    /// The stored queues that are open; they survive a reload.
    pub stored_queues: Logs,
}

impl Host {
    /// What the component `id` is given when it is built.
    pub fn context(&self, id: &ComponentId) -> BuildContext {
        BuildContext {
            id: id.clone(),
            budget: self.budget.clone(),
            listeners: self.listeners.clone(),
            health: self.health.clone(),
            stored_queues: self.stored_queues.clone(),
            extensions: Extensions::default(),
            pipeline: String::new(),
            resource: Arc::default(),
        }
    }

    #[cfg(any(test, fuzzing))]
    pub(crate) fn for_tests() -> Self {
        Host {
            budget: Budget::new(1 << 30),
            listeners: Listeners::default(),
            health: Arc::default(),
            stored_queues: Logs::default(),
        }
    }
}

/// What a component is given when it is built.
#[derive(Clone)]
pub struct BuildContext {
    /// Its id in the configuration.
    pub id: ComponentId,
    /// The process-wide memory budget.
    pub budget: Arc<Budget>,
    /// Where to get listening sockets from; they survive a reload.
    pub listeners: Listeners,
    /// How the process and its exporters fare.
    pub health: Arc<Health>,
    /// The stored queues that are open; they survive a reload.
    pub stored_queues: Logs,
    /// What the extensions of its configuration do for it.
    pub extensions: Extensions,
    /// The pipeline that a processor is built for; empty for other components.
    pub pipeline: String,
    /// What `service.telemetry.resource` says of this process: attributes to set, and those to leave out.
    pub resource: Arc<BTreeMap<String, Option<String>>>,
}

/// What running extensions do for other components, by id.
#[derive(Clone, Default)]
pub struct Extensions(Arc<HashMap<ComponentId, Services>>);

impl Extensions {
    /// What the extension does; nothing when there is none of that id.
    pub fn get(&self, id: &ComponentId) -> Services {
        self.0.get(id).cloned().unwrap_or_default()
    }
}

impl FromIterator<(ComponentId, Services)> for Extensions {
    fn from_iter<I: IntoIterator<Item = (ComponentId, Services)>>(services: I) -> Self {
        Extensions(Arc::new(services.into_iter().collect()))
    }
}

/// What an extension does for other components. One field per [`Capability`].
#[derive(Clone, Default)]
pub struct Services {
    /// Tells who the clients of a server are.
    pub server_auth: Option<Arc<dyn ServerAuthenticator>>,
    /// Says to servers who we are.
    pub client_auth: Option<Arc<dyn ClientAuthenticator>>,
    /// Keeps queues on disk.
    pub storage: Option<Arc<Storage>>,
}

/// An extension: its life, and what it does for others.
pub struct Extension {
    /// Its life.
    pub component: Box<dyn Component>,
    /// What it does for others; works from when it is built, before it is started.
    pub services: Services,
}

/// Why a component could not be built: said to the operator, at start or reload.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BuildError(pub String);

/// A consumer per signal, where there is a pipeline (or an exporter) for it.
#[derive(Clone, Default)]
pub struct Outputs {
    signals: [Option<Arc<dyn Consumer>>; 4],
    pipelines: Vec<(PipelineId, Arc<dyn Consumer>)>,
}

impl Outputs {
    /// The consumer of a signal: all pipelines of that signal at once.
    pub fn get(&self, signal: Signal) -> Option<&Arc<dyn Consumer>> {
        self.signals[signal.index()].as_ref()
    }

    /// Sets the consumer of a signal.
    pub fn set(&mut self, signal: Signal, consumer: Arc<dyn Consumer>) {
        self.signals[signal.index()] = Some(consumer);
    }

    /// One of the pipelines, for who does not give everything to all.
    pub fn pipeline(&self, id: &PipelineId) -> Option<&Arc<dyn Consumer>> {
        let mut pipelines = self.pipelines.iter();
        pipelines
            .find(|(other, _)| other == id)
            .map(|(_, consumer)| consumer)
    }

    /// Sets the consumers of the pipelines.
    pub fn set_pipelines(&mut self, pipelines: Vec<(PipelineId, Arc<dyn Consumer>)>) {
        self.pipelines = pipelines;
    }

    /// The signals that have a consumer.
    pub fn signals(&self) -> impl Iterator<Item = Signal> + '_ {
        Signal::ALL
            .into_iter()
            .filter(|signal| self.get(*signal).is_some())
    }
}

/// What a processor is inside its pipeline.
pub enum Stage {
    /// Edits batches as they pass.
    Pure(Box<dyn Processor>),
    /// Holds batches, or has timers: connected to what comes next, it is a consumer with a life of its own.
    Holding(Box<dyn FnOnce(Next) -> Held>),
}

/// A holding processor in its place: where batches enter, and its life.
pub type Held = (Arc<dyn Consumer>, Box<dyn Component>);

/// An exporter or a connector, seen from the pipelines that end in it.
pub struct Terminal {
    /// Where batches enter, by signal.
    pub inputs: Outputs,
    /// Its life.
    pub component: Box<dyn Component>,
}

/// Everything a configuration can do besides being built. Implemented for every configuration type that serializes.
pub trait Settings: Validate + fmt::Debug + Send + Sync {
    /// The resolved configuration with its defaults, secrets masked.
    fn print(&self) -> serde_yaml::Value;
}

impl<T: Validate + fmt::Debug + serde::Serialize + Send + Sync> Settings for T {
    fn print(&self) -> serde_yaml::Value {
        serde_yaml::to_value(self).unwrap_or(serde_yaml::Value::Null)
    }
}

/// A receiver's configuration. One instance serves all signals.
pub trait ReceiverConfig: Settings {
    /// Builds it; sockets are bound here, and nothing is accepted before [`Component::start`].
    fn build(&self, cx: &BuildContext, outputs: Outputs) -> Result<Box<dyn Component>, BuildError>;
}

/// A processor's configuration. One instance per pipeline.
pub trait ProcessorConfig: Settings {
    /// Reports what has no meaning in a pipeline of `signal`.
    fn check_signal(&self, _signal: Signal, _problems: &mut Problems) {}

    /// Whether it notes what was delivered: then what has entered the pipeline gets to its end, though the sender may have
    /// gone meanwhile. Otherwise it would arrive, and pass as new when it comes again.
    fn notes_deliveries(&self) -> bool {
        false
    }

    /// Builds it for a pipeline of `signal`.
    fn build(&self, cx: &BuildContext, signal: Signal) -> Result<Stage, BuildError>;
}

/// An exporter's configuration. One instance serves all signals.
pub trait ExporterConfig: Settings {
    /// Reports what has no meaning for `signal`, which a pipeline brings.
    fn check_signal(&self, _signal: Signal, _problems: &mut Problems) {}

    /// Builds it for the signals of the pipelines that use it.
    fn build(&self, cx: &BuildContext, signals: &[Signal]) -> Result<Terminal, BuildError>;
}

/// A connector's configuration: the end of some pipelines and the start of others.
pub trait ConnectorConfig: Settings {
    /// Reports what has no meaning between the pipelines that end in it and those that start with it.
    fn check_pipelines(
        &self,
        _ends: &[PipelineId],
        _starts: &[PipelineId],
        _problems: &mut Problems,
    ) {
    }

    /// Builds it for the signals that flow in; `outputs` are the pipelines that start with it.
    fn build(
        &self,
        cx: &BuildContext,
        inputs: &[Signal],
        outputs: Outputs,
    ) -> Result<Terminal, BuildError>;
}

/// An extension's configuration.
pub trait ExtensionConfig: Settings {
    /// What it will do for other components: the fields of [`Services`] that [`build`](Self::build) fills.
    fn provides(&self) -> Vec<Capability> {
        Vec::new()
    }

    /// Builds it.
    fn build(&self, cx: &BuildContext) -> Result<Extension, BuildError>;
}

/// How far a component can be relied on, in the Collector's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stability {
    /// Works; details of configuration or output may change.
    Alpha,
    /// Configuration will not break.
    Beta,
    /// Neither configuration nor output will break.
    Stable,
}

/// What most components support: all signals. Profiles are alpha because OTLP's are.
pub const ALL_SIGNALS: &[(Signal, Stability)] = &[
    (Signal::Traces, Stability::Beta),
    (Signal::Metrics, Stability::Beta),
    (Signal::Logs, Stability::Beta),
    (Signal::Profiles, Stability::Alpha),
];

/// One component in a registry: `C` is the kind's configuration trait.
pub struct Entry<C: ?Sized + 'static> {
    /// The type in a component id.
    pub name: &'static str,
    /// Older spellings of the same type, accepted with a notice.
    pub aliases: &'static [&'static str],
    /// What the component does, in one sentence.
    pub summary: &'static str,
    /// Signals it takes, with their stability. For a connector: the signals that flow in.
    pub signals: &'static [(Signal, Stability)],
    /// For a connector: the signals that flow out, each of them whatever flows in. `None`: what flows in flows out.
    pub emits: Option<&'static [Signal]>,
    /// Reads its configuration; errors go to the report.
    pub decode: fn(&Node, &mut Report) -> Option<Box<C>>,
    /// The JSON Schema of its configuration.
    pub schema: fn(&mut schemars::SchemaGenerator) -> schemars::Schema,
}

impl<C: ?Sized> Entry<C> {
    /// Whether this build has it. One that has not knows the name all the same, to say what is missing.
    pub fn is_built_in(&self) -> bool {
        self.name != "kafka" || cfg!(feature = "kafka")
    }

    /// Whether it takes the signal.
    pub fn supports(&self, signal: Signal) -> bool {
        self.signals
            .iter()
            .any(|(supported, _)| *supported == signal)
    }
}

/// The entry of that name or alias.
pub fn find<C: ?Sized>(registry: &'static [Entry<C>], name: &str) -> Option<&'static Entry<C>> {
    registry
        .iter()
        .find(|entry| entry.name == name || entry.aliases.contains(&name))
}

/// Fills in the parts of an [`Entry`] that follow from the configuration type.
#[macro_export]
macro_rules! entry {
    ($kind:ty, $config:ty, $name:literal, aliases: $aliases:expr, $summary:literal, $signals:expr) => {
        $crate::entry!($kind, $config, $name, aliases: $aliases, $summary, $signals, emits: None)
    };
    (
        $kind:ty, $config:ty, $name:literal, aliases: $aliases:expr, $summary:literal, $signals:expr,
        emits: $emits:expr
    ) => {
        $crate::component::Entry::<$kind> {
            name: $name,
            aliases: $aliases,
            summary: $summary,
            signals: $signals,
            emits: $emits,
            decode: |node, report| {
                tributary_config::decode::<$config>(node, report)
                    .map(|config| Box::new(config) as Box<$kind>)
            },
            schema: |generator| generator.subschema_for::<$config>(),
        }
    };
}
