//! The interface between components and the rest of the program: configuration, construction and registry entries.

pub mod auth;
pub mod identity;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crate::introspection::Introspection;
use crate::metric::Metric;
use crate::pipeline::health::Health;
use crate::pipeline::id::PipelineId;
use crate::pipeline::{Component, Consumer, Next, Processor};
use crate::profile_stores::ProfileStores;
use tributary_config::{Capability, ComponentId, Node, Problems, Report, Validate};
use tributary_memory::Budget;
use tributary_net::auth::{ClientAuthenticator, ServerAuthenticator};
use tributary_net::listeners::Listeners;
use tributary_otlp::Signal;
use tributary_storage::{LogRegistry, Storage};

/// State that all components of the process share across reloads.
#[derive(Clone)]
pub struct Host {
    /// The process-wide memory budget.
    pub budget: Arc<Budget>,
    /// Source of listening sockets. The sockets survive a reload.
    pub listeners: Listeners,
    /// Health of the process and of its exporters.
    pub health: Arc<Health>,
    /// Open stored queues, which survive a reload.
    pub stored_queues: LogRegistry,
    /// Open profile stores, which survive a reload.
    pub profile_stores: ProfileStores,
    /// State of the running pipelines, for display.
    pub introspection: Arc<Introspection>,
}

impl Host {
    /// Returns the build context of the component `id`.
    pub fn context(&self, id: &ComponentId) -> BuildContext {
        BuildContext {
            id: id.clone(),
            budget: self.budget.clone(),
            listeners: self.listeners.clone(),
            health: self.health.clone(),
            stored_queues: self.stored_queues.clone(),
            profile_stores: self.profile_stores.clone(),
            introspection: self.introspection.clone(),
            extensions: Extensions::default(),
            pipeline: String::new(),
        }
    }

    #[cfg(any(test, fuzzing))]
    pub(crate) fn for_tests() -> Self {
        Host {
            budget: Budget::new(1 << 30),
            listeners: Listeners::default(),
            health: Arc::default(),
            stored_queues: LogRegistry::default(),
            profile_stores: ProfileStores::default(),
            introspection: Arc::default(),
        }
    }
}

/// Inputs to the construction of one component.
#[derive(Clone)]
pub struct BuildContext {
    /// Id of the component in the configuration.
    pub id: ComponentId,
    /// The process-wide memory budget.
    pub budget: Arc<Budget>,
    /// Source of listening sockets. The sockets survive a reload.
    pub listeners: Listeners,
    /// Health of the process and of its exporters.
    pub health: Arc<Health>,
    /// Open stored queues, which survive a reload.
    pub stored_queues: LogRegistry,
    /// Open profile stores, which survive a reload.
    pub profile_stores: ProfileStores,
    /// State of the running pipelines, for display.
    pub introspection: Arc<Introspection>,
    /// Services of the extensions in the same configuration.
    pub extensions: Extensions,
    /// Pipeline that a processor is built for; empty for other components.
    pub pipeline: String,
}

/// Services of the running extensions, by extension id.
#[derive(Clone, Default)]
pub struct Extensions(Arc<HashMap<ComponentId, Services>>);

impl Extensions {
    /// Returns the services of the extension `id`, or no services if there is no such extension.
    pub fn get(&self, id: &ComponentId) -> Services {
        self.0.get(id).cloned().unwrap_or_default()
    }
}

impl FromIterator<(ComponentId, Services)> for Extensions {
    fn from_iter<I: IntoIterator<Item = (ComponentId, Services)>>(services: I) -> Self {
        Extensions(Arc::new(services.into_iter().collect()))
    }
}

/// Services of one extension for other components. There is one field per [`Capability`].
#[derive(Clone, Default)]
pub struct Services {
    /// Authenticates the clients of a server.
    pub server_auth: Option<Arc<dyn ServerAuthenticator>>,
    /// Adds credentials to the requests of a client.
    pub client_auth: Option<Arc<dyn ClientAuthenticator>>,
    /// Stores queues on disk.
    pub storage: Option<Arc<Storage>>,
}

/// An extension: its lifecycle and its services.
pub struct Extension {
    /// Lifecycle of the extension.
    pub component: Box<dyn Component>,
    /// Services for other components. Services work as soon as the extension is built, before it is started.
    pub services: Services,
}

/// Reason why a component could not be built, shown to the operator at start or reload.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BuildError(pub String);

/// Consumers by signal, for the signals that have a pipeline or an exporter.
#[derive(Clone, Default)]
pub struct Outputs {
    signals: [Option<Arc<dyn Consumer>>; 4],
    pipelines: Vec<(PipelineId, Arc<dyn Consumer>)>,
}

impl Outputs {
    /// Returns the consumer of a signal, which feeds all pipelines of that signal.
    pub fn get(&self, signal: Signal) -> Option<&Arc<dyn Consumer>> {
        self.signals[signal.index()].as_ref()
    }

    /// Sets the consumer of a signal.
    pub fn set(&mut self, signal: Signal, consumer: Arc<dyn Consumer>) {
        self.signals[signal.index()] = Some(consumer);
    }

    /// Returns the consumer of one pipeline, for components that route batches instead of copying them to all
    /// pipelines.
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

    /// Returns the signals that have a consumer.
    pub fn signals(&self) -> impl Iterator<Item = Signal> + '_ {
        Signal::ALL
            .into_iter()
            .filter(|signal| self.get(*signal).is_some())
    }
}

/// The two kinds of processor.
pub enum Stage {
    /// Edits batches as they pass.
    Pure(Box<dyn Processor>),
    /// Buffers batches or uses timers. The function connects the processor to the next stage.
    Buffering(Box<dyn FnOnce(Next) -> BufferingStage>),
}

/// A buffering processor connected to its next stage: its consumer and its lifecycle.
pub type BufferingStage = (Arc<dyn Consumer>, Box<dyn Component>);

/// An exporter or a connector, as the end of a pipeline.
pub struct Terminal {
    /// Consumers that batches enter, by signal.
    pub inputs: Outputs,
    /// Lifecycle of the exporter or connector.
    pub component: Box<dyn Component>,
}

/// Validation and printing of a configuration. Implemented for every configuration type that serializes.
pub trait PrintableConfig: Validate + fmt::Debug + Send + Sync {
    /// Returns the resolved configuration with its defaults. Secrets are masked.
    fn print(&self) -> serde_yaml::Value;
}

impl<T: Validate + fmt::Debug + serde::Serialize + Send + Sync> PrintableConfig for T {
    fn print(&self) -> serde_yaml::Value {
        serde_yaml::to_value(self).unwrap_or(serde_yaml::Value::Null)
    }
}

/// A receiver's configuration. One instance serves all signals.
pub trait ReceiverConfig: PrintableConfig {
    /// Builds the receiver and binds its sockets. The receiver accepts nothing before [`Component::start`].
    fn build(&self, cx: &BuildContext, outputs: Outputs) -> Result<Box<dyn Component>, BuildError>;
}

/// A processor's configuration. One instance per pipeline.
pub trait ProcessorConfig: PrintableConfig {
    /// Reports settings that have no meaning in a pipeline of `signal`.
    fn check_signal(&self, _signal: Signal, _problems: &mut Problems) {}

    /// Whether the processor remembers delivered batches. If so, a batch passes the whole pipeline even if the sender
    /// stops waiting. Otherwise the next hop could accept a cancelled batch that the processor does not remember, and
    /// the processor would not recognize the retry.
    fn remembers_deliveries(&self) -> bool {
        false
    }

    /// Builds the processor for a pipeline of `signal`.
    fn build(&self, cx: &BuildContext, signal: Signal) -> Result<Stage, BuildError>;
}

/// An exporter's configuration. One instance serves all signals.
pub trait ExporterConfig: PrintableConfig {
    /// Reports settings that have no meaning for `signal`, the signal of a pipeline that uses the exporter.
    fn check_signal(&self, _signal: Signal, _problems: &mut Problems) {}

    /// Builds the exporter for the signals of the pipelines that use it.
    fn build(&self, cx: &BuildContext, signals: &[Signal]) -> Result<Terminal, BuildError>;
}

/// A connector's configuration: the end of some pipelines and the start of others.
pub trait ConnectorConfig: PrintableConfig {
    /// Reports settings that have no meaning for the pipelines that end in the connector (`ends`) or start with it
    /// (`starts`).
    fn check_pipelines(
        &self,
        _ends: &[PipelineId],
        _starts: &[PipelineId],
        _problems: &mut Problems,
    ) {
    }

    /// Builds the connector for the incoming signals. `outputs` are the pipelines that start with the connector.
    fn build(
        &self,
        cx: &BuildContext,
        inputs: &[Signal],
        outputs: Outputs,
    ) -> Result<Terminal, BuildError>;
}

/// An extension's configuration.
pub trait ExtensionConfig: PrintableConfig {
    /// Returns the capabilities of the extension: the fields of [`Services`] that [`build`](Self::build) fills.
    fn provides(&self) -> Vec<Capability> {
        Vec::new()
    }

    /// Builds the extension.
    fn build(&self, cx: &BuildContext) -> Result<Extension, BuildError>;
}

/// Stability level of a component, as the Collector defines it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stability {
    /// Works; details of configuration or output may change.
    Alpha,
    /// Configuration will not break.
    Beta,
    /// Neither configuration nor output will break.
    Stable,
}

/// The support of most components: all signals. Profiles are alpha because OTLP profiles are.
pub const ALL_SIGNALS: &[(Signal, Stability)] = &[
    (Signal::Traces, Stability::Beta),
    (Signal::Metrics, Stability::Beta),
    (Signal::Logs, Stability::Beta),
    (Signal::Profiles, Stability::Alpha),
];

/// Source of a component's configuration schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The core repository of the OpenTelemetry Collector.
    Core,
    /// The contrib repository of the OpenTelemetry Collector.
    Contrib,
    /// This project: the Collector has no such component.
    Own,
}

/// A component in a registry. `C` is the configuration trait of its kind.
pub struct Entry<C: ?Sized + 'static> {
    /// The type in a component id.
    pub name: &'static str,
    /// Older spellings of the same type, accepted with a notice.
    pub aliases: &'static [&'static str],
    /// Purpose of the component, in one sentence.
    pub summary: &'static str,
    /// Supported signals, with their stability. For a connector: the incoming signals.
    pub signals: &'static [(Signal, Stability)],
    /// For a connector: the outgoing signals, the same for each incoming signal. `None` means that the outgoing signal
    /// is the incoming signal.
    pub emits: Option<&'static [Signal]>,
    /// Source of the configuration schema.
    pub collector: Origin,
    /// Metrics of the component, in groups.
    pub metrics: &'static [&'static [Metric]],
    /// Part of the reference page that is not derived from code: differences from the Collector, and a minimal example.
    pub notes: &'static str,
    /// Decodes the configuration. Errors go to the report.
    pub decode: fn(&Node, &mut Report) -> Option<Box<C>>,
    /// Returns the JSON Schema of the configuration.
    pub schema: fn(&mut schemars::SchemaGenerator) -> schemars::Schema,
}

impl<C: ?Sized> Entry<C> {
    /// Returns the Cargo feature that adds the component to a build; `None` if every build has the component.
    pub fn feature(&self) -> Option<&'static str> {
        (self.name == "kafka").then_some("kafka")
    }

    /// Whether this build contains the component. The registry also lists other components, for a helpful error message.
    pub fn is_built_in(&self) -> bool {
        self.feature().is_none() || cfg!(feature = "kafka")
    }

    /// Returns the names of the signals that a connector emits, if they differ from the incoming signals.
    pub fn emitted_names(&self) -> Vec<&'static str> {
        let signals = self.emits.unwrap_or_default();
        signals.iter().map(|signal| signal.name()).collect()
    }

    /// Whether the component supports the signal.
    pub fn supports(&self, signal: Signal) -> bool {
        self.signals
            .iter()
            .any(|(supported, _)| *supported == signal)
    }
}

/// Returns the entry with the name or alias `name`.
pub fn find<C: ?Sized>(registry: &'static [Entry<C>], name: &str) -> Option<&'static Entry<C>> {
    registry
        .iter()
        .find(|entry| entry.name == name || entry.aliases.contains(&name))
}

/// Fills in the parts of an [`Entry`] that follow from the configuration type and the name. The notes are the file
/// `NAME/reference.md` beside the file of the invocation.
#[macro_export]
macro_rules! entry {
    (
        $kind:ty, $config:ty, $name:literal, aliases: $aliases:expr, $summary:literal, $signals:expr,
        $(emits: $emits:expr,)? collector: $collector:expr, metrics: $metrics:expr
    ) => {
        $crate::component::Entry::<$kind> {
            name: $name,
            aliases: $aliases,
            summary: $summary,
            signals: $signals,
            emits: $crate::emitted!($($emits)?),
            collector: $collector,
            metrics: $metrics,
            notes: include_str!(concat!($name, "/reference.md")),
            decode: |node, report| {
                tributary_config::decode::<$config>(node, report)
                    .map(|config| Box::new(config) as Box<$kind>)
            },
            schema: |generator| generator.subschema_for::<$config>(),
        }
    };
}

/// Returns the signals that a connector emits, or `None` if the registry line names none.
#[macro_export]
macro_rules! emitted {
    () => {
        None
    };
    ($emits:expr) => {
        Some($emits)
    };
}
