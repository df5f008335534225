//! `collector components`: lists the built-in components.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Failure, Shape, cannot_print, pretty};
use crate::component::{Entry, Stability};
use crate::{connectors, exporters, extensions, processors, receivers};

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
        receivers: describe(receivers::REGISTRY),
        processors: describe(processors::REGISTRY),
        exporters: describe(exporters::REGISTRY),
        connectors: describe(connectors::REGISTRY),
        extensions: describe(extensions::REGISTRY),
    };
    match shape.json {
        true => pretty(&listing),
        false => serde_yaml::to_string(&listing).map_err(|error| cannot_print(&error)),
    }
}

fn describe<C: ?Sized>(registry: &'static [Entry<C>]) -> Vec<Component> {
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
                .map(|(signal, stability)| (signal.name(), word(*stability)))
                .collect(),
            emits: entry
                .emits
                .unwrap_or_default()
                .iter()
                .map(|signal| signal.name())
                .collect(),
        })
        .collect();
    components.sort_by_key(|component| component.name);
    components
}

fn word(stability: Stability) -> &'static str {
    match stability {
        Stability::Alpha => "alpha",
        Stability::Beta => "beta",
        Stability::Stable => "stable",
    }
}
