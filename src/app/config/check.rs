//! Checks of the relations between parts of a configuration.

mod connectors;
mod fan_out;
mod files;
pub(super) mod joined;
mod listeners;
mod references;
pub(super) mod signals;
mod unused;

use super::facts::{Declared, Facts, Kind, Reference};
use tributary_config::ComponentId;
use tributary_config::report::{Diagnostic, Report};
use tributary_config::source::Span;

/// Runs every check; each check reports all its findings.
pub(super) fn check(facts: &Facts, report: &mut Report) {
    ambiguous_ids(facts, report);
    pipelines(facts, report);
    references::check(facts, report);
    connectors::check(facts, report);
    listeners::check(facts, report);
    files::check(facts, report);
    fan_out::check(facts, report);
    unused::check(facts, report);
}

impl Facts {
    /// Returns the declared component of that kind and id.
    fn find(&self, kind: Kind, id: &ComponentId) -> Option<&Declared> {
        self.declared
            .iter()
            .find(|declared| declared.kind == kind && declared.id == *id)
    }

    /// Whether all lists of components are readable. If not, unused components are not reported.
    fn complete(&self) -> bool {
        !self.service_broken && !self.pipelines.iter().any(|draft| draft.broken)
    }

    fn runs(&self, kind: Kind, id: &ComponentId) -> bool {
        let named = |list: &[Reference]| list.iter().any(|reference| reference.id == *id);
        match kind {
            Kind::Extension => named(&self.extensions),
            Kind::Receiver => self.pipelines.iter().any(|draft| named(&draft.receivers)),
            Kind::Processor => self.pipelines.iter().any(|draft| named(&draft.processors)),
            Kind::Exporter => self.pipelines.iter().any(|draft| named(&draft.exporters)),
            Kind::Connector => self
                .pipelines
                .iter()
                .any(|draft| named(&draft.receivers) || named(&draft.exporters)),
        }
    }
}

/// Reports ids shared by a connector and a receiver or exporter, because pipelines list them
/// together.
fn ambiguous_ids(facts: &Facts, report: &mut Report) {
    for connector in &facts.declared {
        if connector.kind != Kind::Connector {
            continue;
        }
        for kind in [Kind::Receiver, Kind::Exporter] {
            if let Some(other) = facts.find(kind, &connector.id) {
                let id = &connector.id;
                let (article, name) = (kind.article(), kind.name());
                let message = format!(
                    "`{id}` is both a connector and {article} {name}, so pipelines cannot refer to either"
                );
                report.push(
                    Diagnostic::error(message, connector.span)
                        .path(["connectors", &id.to_string()])
                        .related(other.span, format!("the {name}"))
                        .help("rename one of the two"),
                );
            }
        }
    }
}

fn pipelines(facts: &Facts, report: &mut Report) {
    if facts.pipelines.is_empty() && !facts.service_broken {
        let message = "there is no pipeline";
        let help = "add one, as in `service: {pipelines: {traces: {receivers: [otlp], exporters: \
                    [debug]}}}`";
        let diagnostic = Diagnostic::error(message, facts.pipelines_span);
        report.push(diagnostic.path(["service", "pipelines"]).help(help));
    }
    for draft in facts.pipelines.iter().filter(|draft| !draft.broken) {
        let id = draft.id.to_string();
        for (list, what) in [
            (&draft.receivers, "receiver"),
            (&draft.exporters, "exporter"),
        ] {
            if list.is_empty() {
                let message = format!("the pipeline `{id}` has no {what}");
                let diagnostic = Diagnostic::error(message, draft.span);
                report.push(diagnostic.path(["service", "pipelines", &id]));
            }
        }
        twice(&id, "processor", true, &draft.processors, report);
        twice(&id, "receiver", false, &draft.receivers, report);
        twice(&id, "exporter", false, &draft.exporters, report);
    }
}

/// Reports an id that is listed twice. The Collector refuses a duplicate processor, and uses any
/// other duplicate once.
fn twice(pipeline: &str, what: &str, error: bool, list: &[Reference], report: &mut Report) {
    let mut seen: Vec<(&ComponentId, Span)> = Vec::new();
    for reference in list {
        let first = seen.iter().find(|(id, _)| **id == reference.id);
        let Some((_, first)) = first else {
            seen.push((&reference.id, reference.span));
            continue;
        };
        let id = &reference.id;
        let message = format!("the pipeline `{pipeline}` names the {what} `{id}` twice");
        let diagnostic = if error {
            let help = format!(
                "to run it twice, define a second component, as in `{}/2`",
                id.kind()
            );
            Diagnostic::error(message, reference.span).help(help)
        } else {
            Diagnostic::warning(message, reference.span)
        };
        report.push(
            diagnostic
                .path(reference.path.clone())
                .related(*first, "the first time"),
        );
    }
}
