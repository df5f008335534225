//! From the tree to the typed configuration, and the facts the semantic checks work on.

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

/// The keys of a configuration file; there are no others.
pub(super) const SECTIONS: [&str; 6] = [
    "receivers",
    "processors",
    "exporters",
    "connectors",
    "extensions",
    "service",
];

/// What a component is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    Receiver,
    Processor,
    Exporter,
    Connector,
    Extension,
}

/// A component that is written down, whether or not its configuration can be used.
pub(super) struct Declared {
    pub(super) id: ComponentId,
    pub(super) kind: Kind,
    /// Where its id stands.
    pub(super) span: Span,
    /// What it takes; `None` for an unknown type, which has been reported.
    pub(super) signals: Option<&'static [(Signal, Stability)]>,
    /// For a connector: what it hands on, where that is not what it takes.
    pub(super) emits: Option<&'static [Signal]>,
}

/// An id in a list of the `service` section.
pub(super) struct Reference {
    pub(super) id: ComponentId,
    pub(super) span: Span,
    pub(super) path: Vec<String>,
}

/// An extension that somebody cannot work without.
pub(super) struct Need {
    /// Whose need it is, as in an error message.
    pub(super) owner: String,
    /// Only what runs needs anything; `None` is what always runs.
    pub(super) component: Option<(Kind, ComponentId)>,
    pub(super) reference: Reference,
    pub(super) capability: Capability,
}

impl Need {
    /// `path` is where the owner's configuration stands, `span` where the extension is named.
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

/// A pipeline as it is written.
pub(super) struct Draft {
    pub(super) id: crate::pipeline::id::PipelineId,
    pub(super) span: Span,
    pub(super) receivers: Vec<Reference>,
    pub(super) processors: Vec<Reference>,
    pub(super) exporters: Vec<Reference>,
    /// Could not be read in full: what it lacks is no finding.
    pub(super) broken: bool,
}

/// An address somebody listens on.
pub(super) struct Listening {
    pub(super) owner: String,
    pub(super) endpoint: Endpoint,
    pub(super) span: Span,
    pub(super) path: Vec<String>,
    /// Stands in a file; otherwise it is a default.
    pub(super) written: bool,
    /// Only what runs can clash; an extension or receiver nobody uses does not.
    pub(super) component: Option<(Kind, ComponentId)>,
}

/// A file somebody writes to.
pub(super) struct Writing {
    pub(super) kind: Kind,
    pub(super) id: ComponentId,
    pub(super) file: std::path::PathBuf,
    pub(super) span: Span,
    pub(super) path: Vec<String>,
}

/// What the checks need to know, with positions.
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
    /// What the extensions do for others; those that could not be read are missing.
    pub(super) provided: Vec<(ComponentId, Vec<Capability>)>,
    /// Where `service.pipelines` stands, or the nearest thing to it.
    pub(super) pipelines_span: Span,
    /// Sections that could not be read, so that nothing can be said about what they lack.
    pub(super) unreadable: Vec<Kind>,
    /// Defaults and alternatives in `${...}` that the environment did not choose.
    pub(super) not_taken: Vec<String>,
    /// `service` could not be read, so nothing can be said about what is used.
    pub(super) service_broken: bool,
}

impl Kind {
    /// As in an error message.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Kind::Receiver => "receiver",
            Kind::Processor => "processor",
            Kind::Exporter => "exporter",
            Kind::Connector => "connector",
            Kind::Extension => "extension",
        }
    }

    /// What goes in front of its name.
    pub(super) const fn article(self) -> &'static str {
        match self {
            Kind::Exporter | Kind::Extension => "an",
            _ => "a",
        }
    }

    /// Its section of the file.
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

/// Reads everything and checks it. `None` when there is nothing that could be read.
pub(super) fn assemble(
    registries: &Registries,
    tree: &Node,
    not_taken: Vec<String>,
    report: &mut Report,
) -> Option<Config> {
    if tree.is_null() || (tree.pairs().is_empty() && matches!(tree.content, Content::Mapping(_))) {
        let message = "the configuration is empty";
        let help = "it needs at least a receiver, an exporter and a pipeline";
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

/// A name nobody knows, with the one that was probably meant.
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

/// A notice about something that works but is not how it is written now.
fn notice(message: String, span: Span) -> Diagnostic {
    Diagnostic::new(Level::Notice, message, Some(span))
}
