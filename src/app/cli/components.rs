//! `collector components`: lists and describes the built-in components.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use super::options::Shape;
use super::{Failure, cannot_print, pretty};
use crate::app::reference::{self, Page, stability_name};
use crate::component::Entry;
use crate::{connectors, exporters, extensions, processors, receivers};
use tributary_config::suggest;

#[derive(Serialize)]
struct Listing {
    version: &'static str,
    receivers: Vec<Component>,
    processors: Vec<Component>,
    exporters: Vec<Component>,
    connectors: Vec<Component>,
    extensions: Vec<Component>,
}

#[derive(Serialize)]
struct Component {
    name: &'static str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    aliases: &'static [&'static str],
    summary: &'static str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    signals: BTreeMap<&'static str, &'static str>,
    /// Signals that a connector emits, for every signal that it accepts; absent if it emits the
    /// signal that it accepts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    emits: Vec<&'static str>,
}

/// Lists the components as YAML or JSON.
pub(super) fn list(shape: Shape) -> Result<String, Failure> {
    let listing = Listing {
        version: env!("CARGO_PKG_VERSION"),
        receivers: listed(receivers::REGISTRY),
        processors: listed(processors::REGISTRY),
        exporters: listed(exporters::REGISTRY),
        connectors: listed(connectors::REGISTRY),
        extensions: listed(extensions::REGISTRY),
    };
    match shape.json {
        true => pretty(&listing),
        false => serde_yaml::to_string(&listing).map_err(|error| cannot_print(&error)),
    }
}

fn listed<C: ?Sized>(registry: &'static [Entry<C>]) -> Vec<Component> {
    let mut components: Vec<Component> = registry
        .iter()
        .filter(|entry| entry.is_built_in())
        .map(|entry| Component {
            name: entry.name,
            aliases: entry.aliases,
            summary: entry.summary,
            signals: entry
                .signals
                .iter()
                .map(|(signal, stability)| (signal.name(), stability_name(*stability)))
                .collect(),
            emits: entry.emitted_names(),
        })
        .collect();
    components.sort_by_key(|component| component.name);
    components
}

/// Describes one component as text or JSON.
pub(super) fn describe(name: &str, shape: Shape) -> Result<String, Failure> {
    let pages = reference::pages();
    let page = find(&pages, name)?;
    match shape.json {
        true => pretty(page),
        false => Ok(page.to_text()),
    }
}

/// Writes the descriptions of all components to a directory, as Markdown.
pub(super) fn write(directory: &Path) -> Result<String, Failure> {
    reference::write(directory).map_err(|error| Failure {
        code: 1,
        text: format!("error: cannot write to {}: {error}\n", directory.display()),
    })?;
    Ok(String::new())
}

/// Returns the page of a component: `NAME` or `KIND/NAME`. A name has precedence over older names.
fn find<'p>(pages: &'p [Page], name: &str) -> Result<&'p Page, Failure> {
    let (kind, name) = name.split_once('/').unwrap_or(("", name));
    let kind = kind.strip_suffix('s').unwrap_or(kind);
    let of_kind = || {
        pages
            .iter()
            .filter(|page| kind.is_empty() || page.kind == kind)
    };
    let mut found: Vec<&Page> = of_kind().filter(|page| page.name == name).collect();
    if found.is_empty() {
        found.extend(of_kind().filter(|page| page.aliases.contains(&name)));
    }
    match *found {
        [page] => Ok(page),
        [] => {
            let names: Vec<&str> = of_kind().map(|page| page.name).collect();
            let help = match suggest::mistyped(name, &names) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "run `collector components` for a list".to_owned(),
            };
            Err(Failure::usage(format!(
                "there is no component `{name}`; {help}"
            )))
        }
        _ => {
            let names = found.iter().map(|page| format!("`{}/{name}`", page.kind));
            let names: Vec<String> = names.collect();
            let message = format!("`{name}` is ambiguous: write {}", names.join(" or "));
            Err(Failure::usage(message))
        }
    }
}
