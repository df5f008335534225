//! Checks that every id in a list of the service section is defined and supports its use.

use crate::app::config::facts::{Declared, Facts, Kind, Need, Reference};
use tributary_config::report::{Diagnostic, Report};
use tributary_config::{Capability, ComponentId, suggest};
use tributary_otlp::Signal;

pub(super) fn check(facts: &Facts, report: &mut Report) {
    for draft in &facts.pipelines {
        let signal = draft.id.signal;
        let user = format!("the pipeline `{}`", draft.id);
        let ends = [
            (
                &draft.receivers,
                [Kind::Receiver, Kind::Connector].as_slice(),
            ),
            (&draft.processors, [Kind::Processor].as_slice()),
            (
                &draft.exporters,
                [Kind::Exporter, Kind::Connector].as_slice(),
            ),
        ];
        for (list, kinds) in ends {
            let first = kinds.contains(&Kind::Receiver);
            for reference in list {
                if let Some(declared) = one(facts, reference, kinds, &user, report) {
                    flows(declared, reference, signal, first, report);
                }
            }
        }
    }
    for reference in &facts.extensions {
        let user = "`service.extensions`";
        one(facts, reference, &[Kind::Extension], user, report);
    }
    for need in &facts.needs {
        needed(facts, need, report);
    }
}

/// Checks that a needed extension is defined, runs, and has the needed capability.
fn needed(facts: &Facts, need: &Need, report: &mut Report) {
    let runs = |(kind, id): &(Kind, ComponentId)| facts.runs(*kind, id);
    if !need.component.as_ref().is_none_or(runs) {
        return;
    }
    let (user, extension) = (&need.owner, &need.reference);
    let before = report.errors();
    one(facts, extension, &[Kind::Extension], user, report);
    if report.errors() > before {
        return;
    }
    let (id, capability) = (&extension.id, need.capability);
    let provided = facts.provided.iter().find(|(other, _)| other == id);
    if provided.is_some_and(|(_, capabilities)| !capabilities.contains(&capability)) {
        let message = format!(
            "{user} needs an extension that {}; `{id}` {}",
            capability.does(),
            capability.does_not()
        );
        let able: Vec<String> = facts
            .provided
            .iter()
            .filter(|(_, capabilities)| capabilities.contains(&capability))
            .map(|(id, _)| format!("`{id}`"))
            .collect();
        let help = match able.as_slice() {
            [] => capability_help(capability).to_owned(),
            able => format!("defined extensions of this kind: {}", able.join(", ")),
        };
        report.push(
            Diagnostic::error(message, extension.span)
                .path(extension.path.clone())
                .help(help),
        );
    } else if facts.complete() && !facts.runs(Kind::Extension, id) {
        let message =
            format!("{user} needs the extension `{id}`, which `service.extensions` does not list");
        report.push(
            Diagnostic::error(message, extension.span)
                .path(extension.path.clone())
                .help(format!("add `{id}` to `service.extensions`")),
        );
    }
}

/// Suggests an extension type with the capability.
fn capability_help(capability: Capability) -> &'static str {
    match capability {
        Capability::ServerAuth => "define one: `bearertokenauth`, or `basicauth` with `htpasswd`",
        Capability::ClientAuth => {
            "define one: `bearertokenauth`, or `basicauth` with `client_auth`"
        }
        Capability::Storage => "define one: `file_storage`, with its `directory`",
    }
}

/// Returns the referenced component from one of the given sections.
fn one<'f>(
    facts: &'f Facts,
    reference: &Reference,
    kinds: &[Kind],
    user: &str,
    report: &mut Report,
) -> Option<&'f Declared> {
    let found = kinds
        .iter()
        .find_map(|kind| facts.find(*kind, &reference.id));
    if found.is_none() && !kinds.iter().any(|kind| facts.unreadable.contains(kind)) {
        report.push(dangling(facts, reference, kinds, user));
    }
    found
}

/// Checks that a pipeline of that signal can contain the component. `first` says whether it is at
/// the beginning of the pipeline.
fn flows(
    declared: &Declared,
    reference: &Reference,
    signal: Signal,
    first: bool,
    report: &mut Report,
) {
    let Some(signals) = declared.signals else {
        return;
    };
    let (id, what) = (&declared.id, declared.kind.name());
    let (signals, message, verb): (Vec<Signal>, _, _) = match declared.emits.filter(|_| first) {
        Some(emits) => (
            emits.to_vec(),
            format!("the {what} `{id}` does not emit {signal}"),
            "emits",
        ),
        None => (
            signals.iter().map(|(signal, _)| *signal).collect(),
            format!("the {what} `{id}` does not support {signal}"),
            "supports",
        ),
    };
    if signals.contains(&signal) {
        return;
    }
    let names: Vec<&str> = signals.iter().map(|signal| signal.name()).collect();
    let help = match names.as_slice() {
        [] => format!("the {what} {verb} no signal"),
        names => format!("the {what} {verb} {}", names.join(", ")),
    };
    report.push(
        Diagnostic::error(message, reference.span)
            .path(reference.path.clone())
            .help(help),
    );
}

fn dangling(facts: &Facts, reference: &Reference, kinds: &[Kind], user: &str) -> Diagnostic {
    let id = &reference.id;
    let what = kinds.first().map_or("component", |kind| kind.name());
    let candidates: Vec<String> = facts
        .declared
        .iter()
        .filter(|declared| kinds.contains(&declared.kind))
        .map(|declared| declared.id.to_string())
        .collect();
    let mut message = format!("{user} names the {what} `{id}`, which is not defined");
    let near = suggest::closest(&id.to_string(), &candidates);
    if let Some(near) = &near {
        message.push_str(&format!(", did you mean `{near}`?"));
    }
    let mut diagnostic = Diagnostic::error(message, reference.span).path(reference.path.clone());
    let elsewhere = facts.declared.iter().find(|declared| declared.id == *id);
    if let Some(other) = elsewhere {
        let help = format!(
            "`{id}` is defined as {} {}",
            other.kind.article(),
            other.kind.name()
        );
        diagnostic = diagnostic.help(help);
    } else if near.is_none() && !candidates.is_empty() {
        diagnostic = diagnostic.help(format!("defined: `{}`", candidates.join("`, `")));
    } else if candidates.is_empty() {
        let section = kinds.first().map_or("", |kind| kind.section());
        diagnostic = diagnostic.help(format!("define it in the `{section}` section"));
    }
    diagnostic
}
