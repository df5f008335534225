//! Facts of a configuration for the semantic checks.

use crate::component::Stability;
use tributary_config::source::Span;
use tributary_config::{Capability, ComponentId, Endpoint, ExtensionUse};
use tributary_otlp::Signal;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    Receiver,
    Processor,
    Exporter,
    Connector,
    Extension,
}

/// A component in the configuration, even if its settings are invalid.
pub(super) struct Declared {
    pub(super) id: ComponentId,
    pub(super) kind: Kind,
    /// Position of its id.
    pub(super) span: Span,
    /// Signals that the component accepts; `None` for an unknown type, which is already reported.
    pub(super) signals: Option<&'static [(Signal, Stability)]>,
    /// Signals that a connector emits, if they differ from the accepted signals.
    pub(super) emits: Option<&'static [Signal]>,
}

/// An id in a list of the `service` section.
pub(super) struct Reference {
    pub(super) id: ComponentId,
    pub(super) span: Span,
    pub(super) path: Vec<String>,
}

/// A dependency on an extension.
pub(super) struct Need {
    /// Owner of the dependency, as in an error message.
    pub(super) owner: String,
    /// The component with the dependency; a component that does not run needs nothing. `None` if
    /// the owner always runs.
    pub(super) component: Option<(Kind, ComponentId)>,
    pub(super) reference: Reference,
    pub(super) capability: Capability,
}

impl Need {
    /// `path` is the path of the owner's configuration, `span` the position of the extension's
    /// name.
    pub(super) fn new(
        owner: String,
        component: Option<(Kind, ComponentId)>,
        path: &[&str],
        span: Span,
        needed: ExtensionUse,
    ) -> Self {
        let full = path.iter().map(|key| (*key).to_owned()).chain(needed.path);
        Need {
            owner,
            component,
            reference: Reference {
                id: needed.extension,
                span,
                path: full.collect(),
            },
            capability: needed.capability,
        }
    }
}

/// An address that a component listens on.
pub(super) struct Listening {
    pub(super) owner: String,
    pub(super) endpoint: Endpoint,
    pub(super) span: Span,
    pub(super) path: Vec<String>,
    /// Whether the address is configured explicitly rather than by default.
    pub(super) written: bool,
    /// The component that listens; only running components can conflict.
    pub(super) component: Option<(Kind, ComponentId)>,
}

/// A file that a component writes to.
pub(super) struct Writing {
    pub(super) kind: Kind,
    pub(super) id: ComponentId,
    pub(super) file: std::path::PathBuf,
    pub(super) span: Span,
    pub(super) path: Vec<String>,
}

/// Facts for the checks, with positions.
#[derive(Default)]
pub(super) struct Facts {
    pub(super) declared: Vec<Declared>,
    pub(super) listening: Vec<Listening>,
    pub(super) writing: Vec<Writing>,
    /// Components whose pipelines refuse data while they cannot take it.
    pub(super) holding_up: Vec<(Kind, ComponentId)>,
    pub(super) pipelines: Vec<Draft>,
    pub(super) extensions: Vec<Reference>,
    pub(super) needs: Vec<Need>,
    /// Capabilities of the extensions; unreadable extensions are missing.
    pub(super) provided: Vec<(ComponentId, Vec<Capability>)>,
    /// Position of `service.pipelines`, or of the nearest parent.
    pub(super) pipelines_span: Span,
    /// Unreadable sections; missing components of these sections are not reported.
    pub(super) unreadable: Vec<Kind>,
    /// Values in `${...}` that the environment did not select, such as defaults.
    pub(super) not_taken: Vec<String>,
    /// Whether `service` is unreadable; unused components are then not reported.
    pub(super) service_broken: bool,
}

impl Kind {
    /// Returns the name for error messages.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Kind::Receiver => "receiver",
            Kind::Processor => "processor",
            Kind::Exporter => "exporter",
            Kind::Connector => "connector",
            Kind::Extension => "extension",
        }
    }

    /// Returns the indefinite article of the name.
    pub(super) const fn article(self) -> &'static str {
        match self {
            Kind::Exporter | Kind::Extension => "an",
            _ => "a",
        }
    }

    /// Returns the section of the configuration file.
    pub(super) const fn section(self) -> &'static str {
        match self {
            Kind::Receiver => "receivers",
            Kind::Processor => "processors",
            Kind::Exporter => "exporters",
            Kind::Connector => "connectors",
            Kind::Extension => "extensions",
        }
    }
}

/// A pipeline as configured, before the checks.
pub(super) struct Draft {
    pub(super) id: crate::pipeline::id::PipelineId,
    pub(super) span: Span,
    pub(super) receivers: Vec<Reference>,
    pub(super) processors: Vec<Reference>,
    pub(super) exporters: Vec<Reference>,
    /// Whether parts of the pipeline are unreadable; missing parts are then not reported.
    pub(super) broken: bool,
}
