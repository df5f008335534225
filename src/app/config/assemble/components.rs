//! The five sections that define components.

use super::notice;
use crate::app::config::Configured;
use crate::app::config::counterparts;
use crate::app::config::facts::{Declared, Facts, Kind, Listening, Need, Writing};
use crate::component;
use crate::component::Entry;
use tributary_config::node::{Content, Node, Pair};
use tributary_config::report::{Diagnostic, Report};
use tributary_config::{ComponentId, Validate, suggest};

pub(super) fn read<C: ?Sized + Validate>(
    kind: Kind,
    registry: &'static [Entry<C>],
    section: Option<&Node>,
    facts: &mut Facts,
    report: &mut Report,
) -> Vec<(ComponentId, Configured<C>)> {
    let Some(section) = section.filter(|section| !section.is_null()) else {
        return Vec::new();
    };
    let Content::Mapping(pairs) = &section.content else {
        let message = format!(
            "expected a mapping from ids to {}, found {}",
            kind.section(),
            section.kind()
        );
        report.push(Diagnostic::error(message, section.place()).path([kind.section()]));
        facts.unreadable.push(kind);
        return Vec::new();
    };
    let mut components = Vec::new();
    for pair in pairs {
        let path = [kind.section(), pair.name.as_str()];
        report.within(&path, |report| {
            components.extend(one(kind, registry, pair, facts, report));
        });
    }
    components
}

fn one<C: ?Sized + Validate>(
    kind: Kind,
    registry: &'static [Entry<C>],
    pair: &Pair,
    facts: &mut Facts,
    report: &mut Report,
) -> Option<(ComponentId, Configured<C>)> {
    let span = pair.value.key.unwrap_or(pair.value.span);
    let id: ComponentId = match pair.name.parse() {
        Ok(id) => id,
        Err(error) => {
            report.push(Diagnostic::error(error.to_string(), span));
            return None;
        }
    };
    let earlier = facts
        .declared
        .iter()
        .find(|other| other.kind == kind && other.id == id);
    if let Some(earlier) = earlier {
        let message = format!("the {} `{id}` is defined twice", kind.name());
        let help = "spaces around ids are ignored; rename one of the two";
        report.push(
            Diagnostic::error(message, span)
                .related(earlier.span, "the first one")
                .help(help),
        );
        return None;
    }
    let entry = component::find(registry, id.kind());
    facts.declared.push(Declared {
        id: id.clone(),
        kind,
        span,
        signals: entry.map(|entry| entry.signals),
        emits: entry.and_then(|entry| entry.emits),
    });
    let Some(entry) = entry else {
        report.forget_below(&[kind.section(), &pair.name]);
        report.push(unknown_type(kind, registry, id.kind(), span));
        return None;
    };
    if entry.name != id.kind() {
        let message = format!("`{}` is now called `{}`", id.kind(), entry.name);
        report.push(notice(message, span).help("both work; rename it when you can"));
    }
    let config = (entry.decode)(&pair.value, report)?;
    for (path, endpoint) in config.listens_on() {
        let place = pair.value.locate(&path);
        let full = [kind.section(), pair.name.as_str()].into_iter().chain(path);
        facts.listening.push(Listening {
            owner: format!("the {} `{id}`", kind.name()),
            endpoint,
            span: place,
            path: full.map(str::to_owned).collect(),
            written: true,
            component: Some((kind, id.clone())),
        });
    }
    for (path, file) in config.writes_to() {
        let place = pair.value.locate(&path);
        let full = [kind.section(), pair.name.as_str()].into_iter().chain(path);
        facts.writing.push(Writing {
            kind,
            id: id.clone(),
            file,
            span: place,
            path: full.map(str::to_owned).collect(),
        });
    }
    if config.blocks_pipelines() {
        facts.holding_up.push((kind, id.clone()));
    }
    for needed in config.uses_extensions() {
        let span = pair.value.locate(&needed.path);
        facts.needs.push(Need::new(
            format!("the {} `{id}`", kind.name()),
            Some((kind, id.clone())),
            &[kind.section(), pair.name.as_str()],
            span,
            needed,
        ));
    }
    let configured = Configured {
        entry,
        config,
        fingerprint: pair.value.fingerprint(),
    };
    Some((id, configured))
}

fn unknown_type<C: ?Sized>(
    kind: Kind,
    registry: &'static [Entry<C>],
    name: &str,
    span: tributary_config::source::Span,
) -> Diagnostic {
    let mut names: Vec<&str> = registry.iter().map(|entry| entry.name).collect();
    names.sort_unstable();
    let mut spellings = names.clone();
    spellings.extend(registry.iter().flat_map(|entry| entry.aliases));
    let what = kind.name();
    let built_in = format!("built in: `{}`", names.join("`, `"));
    let users = match kind {
        Kind::Extension => "`service.extensions`",
        _ => "the pipelines that name it",
    };
    let remove = format!("remove it here and from {users}");
    if let Some(counterpart) = counterparts::find(kind, name) {
        let outlook = counterpart.outlook.words();
        let message = format!("this collector has no {what} `{name}`; it {outlook}");
        let diagnostic = Diagnostic::error(message, span);
        let diagnostic = match counterpart.instead {
            "" => diagnostic,
            instead => diagnostic.help(instead),
        };
        return diagnostic.help(remove);
    }
    match suggest::mistyped(name, &spellings) {
        Some(near) => {
            let message = format!("unknown {what} type `{name}`, did you mean `{near}`?");
            Diagnostic::error(message, span).help(built_in)
        }
        // The component probably exists in the Collector. A user who migrates a configuration must
        // know that the file itself is correct.
        None => {
            let message = format!("this collector has no {what} `{name}`");
            Diagnostic::error(message, span).help(built_in).help(remove)
        }
    }
}
