//! Checks that connectors are used on both sides and form no cycle.

use crate::app::config::facts::{Declared, Draft, Facts, Kind, Reference};
use tributary_config::report::{Diagnostic, Report};
use tributary_otlp::Signal;

pub(super) fn check(facts: &Facts, report: &mut Report) {
    let connectors: Vec<&Declared> = facts
        .declared
        .iter()
        .filter(|declared| declared.kind == Kind::Connector)
        .collect();
    if facts.complete() {
        // Connectors of an unknown type are already reported.
        for connector in connectors.iter().filter(|known| known.signals.is_some()) {
            one_sided(facts, connector, report);
        }
    }
    cycles(facts, &connectors, report);
}

/// Whether data that enters a connector as `from` leaves it as `to`.
fn connects(connector: &Declared, from: Signal, to: Signal) -> bool {
    takes(connector, from) && makes(connector, from).contains(&to)
}

fn takes(connector: &Declared, signal: Signal) -> bool {
    let signals = connector.signals.unwrap_or_default();
    signals.iter().any(|(supported, _)| *supported == signal)
}

fn makes(connector: &Declared, signal: Signal) -> Vec<Signal> {
    connector.emits.map_or_else(|| vec![signal], <[_]>::to_vec)
}

fn made_of(connector: &Declared, signal: Signal) -> Vec<Signal> {
    let all = Signal::ALL.into_iter();
    all.filter(|from| connects(connector, *from, signal))
        .collect()
}

/// Formats a list such as `traces, metrics or logs`.
fn any_of(signals: &[Signal]) -> String {
    let names: Vec<&str> = signals.iter().map(|signal| signal.name()).collect();
    match names.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

fn one_sided(facts: &Facts, connector: &Declared, report: &mut Report) {
    let id = &connector.id;
    let uses = |list: fn(&Draft) -> &Vec<Reference>| -> Vec<(&Draft, &Reference)> {
        let in_draft = |draft| {
            let reference = list(draft).iter().find(|reference| reference.id == *id)?;
            Some((draft, reference))
        };
        facts.pipelines.iter().filter_map(in_draft).collect()
    };
    let ends: Vec<_> = uses(|draft| &draft.exporters);
    let starts: Vec<_> = uses(|draft| &draft.receivers);
    for (draft, reference) in &ends {
        let signal = draft.id.signal;
        let on = starts
            .iter()
            .any(|(start, _)| connects(connector, signal, start.id.signal));
        // A signal that the connector does not accept is already reported.
        if !on && takes(connector, signal) {
            let made = any_of(&makes(connector, signal));
            let message = format!(
                "the connector `{id}` ends the pipeline `{}`, and no {made} pipeline starts with it",
                draft.id
            );
            report.push(
                Diagnostic::error(message, reference.span)
                    .path(reference.path.clone())
                    .help(format!(
                        "add `{id}` to the `receivers` of a {made} pipeline"
                    )),
            );
        }
    }
    for (draft, reference) in &starts {
        let signal = draft.id.signal;
        let fed = ends
            .iter()
            .any(|(end, _)| connects(connector, end.id.signal, signal));
        let sources = made_of(connector, signal);
        // A signal that the connector does not produce is already reported.
        if !fed && !sources.is_empty() {
            let sources = any_of(&sources);
            let message = format!(
                "the connector `{id}` starts the pipeline `{}`, and no {sources} pipeline ends in it",
                draft.id
            );
            report.push(
                Diagnostic::error(message, reference.span)
                    .path(reference.path.clone())
                    .help(format!(
                        "add `{id}` to the `exporters` of a {sources} pipeline"
                    )),
            );
        }
    }
}

/// An edge from a pipeline to the next pipeline, through a connector in its exporters.
struct Edge<'a> {
    to: usize,
    through: &'a Reference,
}

fn cycles(facts: &Facts, connectors: &[&Declared], report: &mut Report) {
    let drafts = &facts.pipelines;
    let edges: Vec<Vec<Edge<'_>>> = drafts
        .iter()
        .map(|draft| outgoing(draft, drafts, connectors))
        .collect();
    // Depth-first search with an explicit stack; a finished pipeline is never visited again.
    let mut left = vec![false; drafts.len()];
    for root in 0..drafts.len() {
        let mut path: Vec<(usize, usize)> = vec![(root, 0)];
        while let Some((node, next)) = path.last().copied() {
            let edge = edges.get(node).and_then(|edges| edges.get(next));
            let done = left.get(node).copied().unwrap_or(true);
            let Some(edge) = edge.filter(|_| !done) else {
                if let Some(left) = left.get_mut(node) {
                    *left = true;
                }
                path.pop();
                continue;
            };
            if let Some(top) = path.last_mut() {
                top.1 += 1;
            }
            match path.iter().position(|(other, _)| *other == edge.to) {
                Some(start) => {
                    let circle = path.get(start..).unwrap_or_default();
                    report.push(describe(drafts, &edges, circle));
                }
                None => path.push((edge.to, 0)),
            }
        }
    }
}

fn outgoing<'a>(draft: &'a Draft, drafts: &[Draft], connectors: &[&Declared]) -> Vec<Edge<'a>> {
    let mut edges = Vec::new();
    for through in &draft.exporters {
        let connector = connectors.iter().find(|other| other.id == through.id);
        let Some(connector) = connector else {
            continue;
        };
        for (to, next) in drafts.iter().enumerate() {
            let starts = next.receivers.iter().any(|other| other.id == through.id);
            if starts && connects(connector, draft.id.signal, next.id.signal) {
                edges.push(Edge { to, through });
            }
        }
    }
    edges
}

/// Describes a cycle. `circle` lists its pipelines in order, each with the number of the edge taken
/// plus one.
fn describe(drafts: &[Draft], edges: &[Vec<Edge<'_>>], circle: &[(usize, usize)]) -> Diagnostic {
    let mut text = String::new();
    let mut first: Option<&Reference> = None;
    for (node, next) in circle {
        let edge = edges
            .get(*node)
            .and_then(|edges| edges.get(next.saturating_sub(1)));
        if let (Some(draft), Some(edge)) = (drafts.get(*node), edge) {
            text.push_str(&format!(
                "`{}` -> connector `{}` -> ",
                draft.id, edge.through.id
            ));
            first = first.or(Some(edge.through));
        }
    }
    if let Some(draft) = circle.first().and_then(|(node, _)| drafts.get(*node)) {
        text.push_str(&format!("`{}`", draft.id));
    }
    let message = format!("these pipelines form a cycle: {text}");
    let diagnostic = match first {
        Some(reference) => Diagnostic::error(message, reference.span).path(reference.path.clone()),
        None => Diagnostic::error(message, tributary_config::source::Span::default()),
    };
    diagnostic.help("data would circulate forever; remove a connector from one of the lists")
}
