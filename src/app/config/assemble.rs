//! Converts the tree to the typed configuration, and collects the facts for the semantic checks.

mod components;
mod service;

use super::check;
use super::check::signals::Checked;
pub(super) use super::facts::{Facts, Kind, Need};
use super::registries::Registries;
use crate::app::config::Config;
use tributary_config::node::{Content, Node};
use tributary_config::report::{Diagnostic, Level, Report};
use tributary_config::source::Span;
use tributary_config::suggest;

/// All top-level keys of a configuration file.
pub(super) const SECTIONS: [&str; 6] = [
    "receivers",
    "processors",
    "exporters",
    "connectors",
    "extensions",
    "service",
];

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
