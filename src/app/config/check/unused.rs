//! Reports components that are defined but do not run. The Collector is silent about them.

use crate::app::config::facts::{Facts, Kind};
use tributary_config::report::{Diagnostic, Report};

pub(super) fn check(facts: &Facts, report: &mut Report) {
    // Without pipelines every component is unused, and the missing pipelines are already reported.
    if !facts.complete() || facts.pipelines.is_empty() {
        return;
    }
    for declared in &facts.declared {
        if declared.signals.is_none() || facts.runs(declared.kind, &declared.id) {
            continue;
        }
        let id = &declared.id;
        let needed = |need: &crate::app::config::assemble::Need| need.reference.id == *id;
        let kind = declared.kind;
        if kind == Kind::Extension && facts.needs.iter().any(needed) {
            continue;
        }
        if facts
            .not_taken
            .iter()
            .any(|text| names(text, &id.to_string()))
        {
            continue;
        }
        let (message, help) = match kind {
            Kind::Extension => (
                format!(
                    "the extension `{id}` is defined, but `service.extensions` does not list it"
                ),
                format!("add `{id}` to `service.extensions`, or remove it"),
            ),
            _ => (
                format!(
                    "the {} `{id}` is defined, but no pipeline uses it",
                    kind.name()
                ),
                "add the component to a pipeline, or remove it".to_owned(),
            ),
        };
        report.push(
            Diagnostic::warning(message, declared.span)
                .path([kind.section(), &id.to_string()])
                .help(help),
        );
    }
}

/// Whether a list of ids in a `${...}` contains this id.
fn names(list: &str, id: &str) -> bool {
    list.split([',', '[', ']', '"', '\'', ' ', '\n'])
        .any(|word| word == id)
}
