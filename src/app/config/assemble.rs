//! Converts the tree to the typed configuration, and collects the facts for the semantic checks.

mod components;
mod service;

use super::check;
use super::check::signals::Checked;
use super::load::Registries;
use crate::app::config::Config;
use crate::component::Stability;
use tributary_config::node::{Content, Node};
use tributary_config::report::{Diagnostic, Level, Report};
use tributary_config::source::Span;
use tributary_config::suggest;
use tributary_config::{Capability, ComponentId, Endpoint, ExtensionUse};
use tributary_otlp::Signal;

/// All top-level keys of a configuration file.
pub(super) const SECTIONS: [&str; 6] = [
    "receivers",
    "processors",
    "exporters",
    "connectors",
    "extensions",
    "service",
];

/// Kind of a component.
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

/// Reads and checks the whole configuration. Returns `None` if nothing is readable.
pub(super) fn assemble(
    registries: &Registries,
    tree: &Node,
    not_taken: Vec<String>,
    report: &mut Report,
) -> Option<Config> {
    if tree.is_null() || (tree.pairs().is_empty() && matches!(tree.content, Content::Mapping(_))) {
        let message = "the configuration is empty";
        let help = "add at least a receiver, an exporter and a pipeline";
        report.push(Diagnostic::error(message, tree.span).help(help));
        return None;
    }
    let Content::Mapping(pairs) = &tree.content else {
        let message = format!("expected a mapping of sections, found {}", tree.kind());
        report.push(Diagnostic::error(message, tree.span).help(suggest::list(&SECTIONS)));
        return None;
    };
    for pair in pairs {
        if !SECTIONS.contains(&pair.name.as_str()) {
            let span = pair.value.key.unwrap_or(pair.value.span);
            report.push(unknown("section", &pair.name, &SECTIONS, span));
        }
    }
    let mut facts = Facts {
        not_taken,
        ..Facts::default()
    };
    let section = |kind: Kind| tree.child(kind.section());
    let receivers = components::read(
        Kind::Receiver,
        registries.receivers,
        section(Kind::Receiver),
        &mut facts,
        report,
    );
    let processors = components::read(
        Kind::Processor,
        registries.processors,
        section(Kind::Processor),
        &mut facts,
        report,
    );
    let exporters = components::read(
        Kind::Exporter,
        registries.exporters,
        section(Kind::Exporter),
        &mut facts,
        report,
    );
    let connectors = components::read(
        Kind::Connector,
        registries.connectors,
        section(Kind::Connector),
        &mut facts,
        report,
    );
    let extensions = components::read(
        Kind::Extension,
        registries.extensions,
        section(Kind::Extension),
        &mut facts,
        report,
    );
    facts.provided = extensions
        .iter()
        .map(|(id, extension)| (id.clone(), extension.config.provides()))
        .collect();
    let service = service::read(tree, &mut facts, report);
    check::check(&facts, report);
    let of_processors = Checked {
        kind: Kind::Processor,
        list: |draft| &draft.processors,
        components: &processors,
        section: section(Kind::Processor),
        ask: |processor, signal, problems| processor.check_signal(signal, problems),
    };
    check::signals::check(&facts, &of_processors, report);
    let of_exporters = Checked {
        kind: Kind::Exporter,
        list: |draft| &draft.exporters,
        components: &exporters,
        section: section(Kind::Exporter),
        ask: |exporter, signal, problems| exporter.check_signal(signal, problems),
    };
    check::signals::check(&facts, &of_exporters, report);
    check::joined::check(&facts, &connectors, section(Kind::Connector), report);
    Some(Config {
        receivers,
        processors,
        exporters,
        connectors,
        extensions,
        service,
    })
}

/// Reports an unknown name, with the most similar known name.
pub(super) fn unknown<S: AsRef<str>>(
    what: &str,
    name: &str,
    known: &[S],
    span: Span,
) -> Diagnostic {
    let message = format!("unknown {what} `{name}`");
    match suggest::closest(name, known) {
        Some(near) => Diagnostic::error(format!("{message}, did you mean `{near}`?"), span),
        None => Diagnostic::error(message, span),
    }
    .help(suggest::list(known))
}

/// Reports a notice about a deprecated spelling that still works.
fn notice(message: String, span: Span) -> Diagnostic {
    Diagnostic::new(Level::Notice, message, Some(span))
}
