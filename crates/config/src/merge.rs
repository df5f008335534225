//! Merging of a later source into an earlier one.

use super::node::{Content, Node};
use super::report::{Diagnostic, Report};

/// Merges mappings key by key and replaces everything else, as in the Collector.
pub(crate) fn merge(base: &mut Node, over: Node, path: &mut Vec<String>, report: &mut Report) {
    let wipes = over.is_null() && !base.pairs().is_empty();
    if wipes && path.is_empty() {
        return;
    }
    if wipes {
        let lost = base.pairs().len();
        let key = path.last().cloned().unwrap_or_default();
        let message = format!("`{key}` is empty here and removes the value of an earlier source");
        let mut warning = Diagnostic::warning(message, over.place()).path(path.iter().cloned());
        if let Some(first) = base.key {
            let lines = if lost == 1 { "entry" } else { "entries" };
            warning = warning.related(first, format!("{lost} {lines} removed"));
        }
        report.push(warning.help(format!("write `{key}: {{}}` to keep them")));
    }
    let (Content::Mapping(pairs), Content::Mapping(_)) = (&mut base.content, &over.content) else {
        *base = over;
        return;
    };
    let Content::Mapping(later) = over.content else {
        return;
    };
    for pair in later {
        match pairs.iter_mut().find(|own| own.name == pair.name) {
            Some(own) => {
                path.push(pair.name);
                merge(&mut own.value, pair.value, path, report);
                path.pop();
            }
            None => pairs.push(pair),
        }
    }
    base.key = over.key.or(base.key);
    base.span = over.span;
}
