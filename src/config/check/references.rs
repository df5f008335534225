//! Every id in a list of the service section is one that is defined, and does what is asked of it.

use crate::batch::Signal;
use crate::config::assemble::{Facts, Kind, Need, Reference};
use crate::config::report::{Diagnostic, Report};
use crate::config::{Capability, ComponentId, suggest};

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
            for reference in list {
                one(facts, reference, kinds, &user, Some(signal), report);
            }
        }
    }
    for reference in &facts.extensions {
        one(
            facts,
            reference,
            &[Kind::Extension],
            "`service.extensions`",
            None,
            report,
        );
    }
    for need in &facts.needs {
        needed(facts, need, report);
    }
}

/// What somebody needs is defined, runs, and can do what is asked of it.
fn needed(facts: &Facts, need: &Need, report: &mut Report) {
    let runs = |(kind, id): &(Kind, ComponentId)| facts.runs(*kind, id);
    if !need.component.as_ref().is_none_or(runs) {
        return;
    }
    let (user, extension) = (&need.owner, &need.reference);
    let before = report.errors();
    one(facts, extension, &[Kind::Extension], user, None, report);
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
            able => format!("of those that are defined, {} can", able.join(", ")),
        };
        report.push(
            Diagnostic::error(message, extension.span)
                .path(extension.path.clone())
                .help(help),
        );
    } else if facts.complete() && !facts.runs(Kind::Extension, id) {
        let message = format!("{user} needs the extension `{id}`, which does not run");
        report.push(
            Diagnostic::error(message, extension.span)
                .path(extension.path.clone())
                .help(format!("add `{id}` to `service.extensions`")),
        );
    }
}

/// Where to get what no extension that is defined can do.
fn capability_help(capability: Capability) -> &'static str {
    match capability {
        Capability::ServerAuth => "define one: `bearertokenauth`, or `basicauth` with `htpasswd`",
        Capability::ClientAuth => {
            "define one: `bearertokenauth`, or `basicauth` with `client_auth`"
        }
    }
}

fn one(
    facts: &Facts,
    reference: &Reference,
    kinds: &[Kind],
    user: &str,
    signal: Option<Signal>,
    report: &mut Report,
) {
    let id = &reference.id;
    let found = kinds.iter().find_map(|kind| facts.find(*kind, id));
    let Some(declared) = found else {
        if kinds.iter().any(|kind| facts.unreadable.contains(kind)) {
            return;
        }
        report.push(dangling(facts, reference, kinds, user));
        return;
    };
    let (Some(signal), Some(signals)) = (signal, declared.signals) else {
        return;
    };
    if signals.iter().any(|(supported, _)| *supported == signal) {
        return;
    }
    let names: Vec<&str> = signals.iter().map(|(signal, _)| signal.name()).collect();
    let message = format!(
        "the {} `{id}` does not support {signal}",
        declared.kind.name()
    );
    let help = match names.as_slice() {
        [] => "it supports no signal".to_owned(),
        names => format!("it supports {}", names.join(", ")),
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
