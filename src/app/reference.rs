//! The reference of components: one page for each, from its registry entry, configuration types, metrics and notes.
//!
//! `collector components COMPONENT` prints a page, and `collector components --markdown DIRECTORY` writes the pages of
//! `docs/reference`. A test compares that directory with the generated pages.

mod example;
mod index;
mod keys;
mod markdown;
mod terminal;
#[cfg(test)]
mod tests;
mod words;

use std::io;
use std::path::Path;

use schemars::SchemaGenerator;
use serde::Serialize;

use crate::app::config::{ONLY_HERE, Registries};
use crate::component::{Entry, Origin, Stability};
use crate::metric::{Metric, shared};
use crate::telemetry::config::TelemetryConfig;
use keys::{Key, Reader};
use tributary_otlp::Signal;

/// Metrics that belong to no component.
const OF_SERVICE: &[&[Metric]] = &[
    shared::PIPELINE,
    shared::PROCESS,
    shared::SERVER,
    shared::TLS,
];

/// The reference page of one component.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Page {
    /// `receiver`, `processor`, `exporter`, `connector` or `extension`.
    pub kind: &'static str,
    /// Type in component ids.
    pub name: &'static str,
    /// Older names of the type.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub aliases: &'static [&'static str],
    /// Purpose, in one sentence.
    pub summary: String,
    /// Cargo feature that adds the component to a build.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub feature: Option<&'static str>,
    /// Supported signals, with their stability.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub signals: Vec<Support>,
    /// Signals that a connector emits, if they differ from the incoming signals.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub emits: Vec<&'static str>,
    /// Repository of the Collector with the same component; empty if there is none.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub collector: &'static str,
    /// Behavior and differences from the Collector, in Markdown.
    pub notes: String,
    /// Configuration keys.
    pub keys: Vec<Key>,
    /// Metrics at `/metrics`.
    pub metrics: Vec<MetricLine>,
    /// Smallest useful configuration, as YAML.
    pub minimal: String,
    /// Configuration with every key, as YAML; empty if there are no keys.
    pub full: String,
}

/// Supported signal with its stability.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Support {
    pub signal: &'static str,
    pub stability: &'static str,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct MetricLine {
    pub name: String,
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub help: String,
}

/// Returns the pages of all components, including those that need a feature, and the page of `service`.
pub(super) fn pages() -> Vec<Page> {
    let registries = Registries::built_in();
    let mut pages = of_kind("receiver", registries.receivers);
    pages.extend(of_kind("processor", registries.processors));
    pages.extend(of_kind("exporter", registries.exporters));
    pages.extend(of_kind("connector", registries.connectors));
    pages.extend(of_kind("extension", registries.extensions));
    pages.push(of_service());
    pages
}

/// Describes every metric to the recorder, for the `HELP` lines of `/metrics`.
pub(super) fn describe_metrics() {
    metrics().iter().for_each(Metric::describe);
}

/// Returns every metric of the collector.
fn metrics() -> Vec<Metric> {
    let registries = Registries::built_in();
    let mut groups: Vec<&[Metric]> = OF_SERVICE.to_vec();
    groups.extend(groups_of(registries.receivers));
    groups.extend(groups_of(registries.processors));
    groups.extend(groups_of(registries.exporters));
    groups.extend(groups_of(registries.connectors));
    groups.extend(groups_of(registries.extensions));
    let mut metrics: Vec<Metric> = groups.concat();
    metrics.sort_by_key(|metric| metric.name);
    metrics.dedup_by_key(|metric| metric.name);
    metrics
}

fn groups_of<C: ?Sized>(registry: &'static [Entry<C>]) -> impl Iterator<Item = &'static [Metric]> {
    registry
        .iter()
        .flat_map(|entry| entry.metrics.iter().copied())
}

fn of_kind<C: ?Sized>(kind: &'static str, registry: &'static [Entry<C>]) -> Vec<Page> {
    let mut pages: Vec<Page> = registry.iter().map(|entry| of_entry(kind, entry)).collect();
    pages.sort_by_key(|page| page.name);
    pages
}

fn of_entry<C: ?Sized>(kind: &'static str, entry: &'static Entry<C>) -> Page {
    let mut generator = SchemaGenerator::default();
    let schema = (entry.schema)(&mut generator).to_value();
    let definitions = generator.take_definitions(true);
    let mut keys = Reader::new(&definitions).keys(&schema);
    if entry.collector == Origin::Own {
        keys.iter_mut().for_each(forget_collector);
    }
    let signals: Vec<Signal> = entry.signals.iter().map(|(signal, _)| *signal).collect();
    let (notes, minimal) = split_notes(entry.notes);
    let full = example::full(&format!("{kind}s"), entry.name, &minimal, &keys);
    Page {
        kind,
        name: entry.name,
        aliases: entry.aliases,
        summary: entry.summary.to_owned(),
        feature: entry.feature(),
        signals: entry
            .signals
            .iter()
            .map(|(signal, stability)| Support {
                signal: signal.name(),
                stability: stability_name(*stability),
            })
            .collect(),
        emits: entry.emitted_names(),
        collector: match entry.collector {
            Origin::Core => "core",
            Origin::Contrib => "contrib",
            Origin::Own => "",
        },
        notes,
        keys,
        metrics: lines(entry.metrics, &signals),
        minimal,
        full,
    }
}

/// Returns the page of the section `service`, with the metrics that belong to no component.
fn of_service() -> Page {
    let mut generator = SchemaGenerator::default();
    let schema = generator.subschema_for::<TelemetryConfig>().to_value();
    let definitions = generator.take_definitions(true);
    let keys = Reader::new(&definitions).keys(&schema);
    let (notes, minimal) = split_notes(include_str!("reference/service.md"));
    let full = example::full("service", "telemetry", &minimal, &keys);
    Page {
        kind: "service",
        name: "telemetry",
        aliases: &[],
        summary: "Logs and metrics of the collector itself.".to_owned(),
        feature: None,
        signals: Vec::new(),
        emits: Vec::new(),
        collector: "core",
        notes,
        keys,
        metrics: lines(OF_SERVICE, &Signal::ALL),
        minimal,
        full,
    }
}

/// Splits the notes of a component into its text and the YAML of its minimal example.
fn split_notes(notes: &str) -> (String, String) {
    let (text, example) = notes.split_once("```yaml\n").unwrap_or((notes, ""));
    let example = example.split_once("```").map_or("", |(example, _)| example);
    (text.trim().to_owned(), example.to_owned())
}

/// Removes notes on the Collector, for components that it does not have.
fn forget_collector(key: &mut Key) {
    key.collector = None;
    key.keys.iter_mut().for_each(forget_collector);
}

fn lines(groups: &[&[Metric]], signals: &[Signal]) -> Vec<MetricLine> {
    let metrics = groups.iter().copied().flatten();
    metrics
        .flat_map(|metric| {
            let kind = metric.kind.name();
            let each = metric.expand(signals).into_iter();
            each.map(move |(name, help)| MetricLine { name, kind, help })
        })
        .collect()
}

pub(super) fn stability_name(stability: Stability) -> &'static str {
    match stability {
        Stability::Alpha => "alpha",
        Stability::Beta => "beta",
        Stability::Stable => "stable",
    }
}

impl Page {
    /// Returns the path of the page below `docs/reference`.
    fn path(&self) -> String {
        match self.kind {
            "service" => "service.md".to_owned(),
            kind => format!("{kind}s/{}.md", self.name),
        }
    }

    /// Returns the keys that the Collector does not have, as paths, and the other differences: path and note.
    fn differences(&self) -> (Vec<String>, Vec<(String, String)>) {
        let (mut own, mut others) = (Vec::new(), Vec::new());
        collect(&self.keys, "", &mut own, &mut others);
        (own, others)
    }

    /// Returns the page as text for a terminal.
    pub(super) fn to_text(&self) -> String {
        terminal::render(self)
    }
}

fn collect(keys: &[Key], above: &str, own: &mut Vec<String>, others: &mut Vec<(String, String)>) {
    for key in keys {
        let path = format!("{above}{}", key.name);
        match key.collector.as_deref() {
            Some(note) if note.starts_with(ONLY_HERE) => own.push(path),
            note => {
                others.extend(note.map(|note| (path.clone(), note.to_owned())));
                collect(
                    &key.keys,
                    &format!("{path}{}", key.shape.separator()),
                    own,
                    others,
                );
            }
        }
    }
}

/// Returns the files of `docs/reference`: paths and contents.
fn files() -> Vec<(String, String)> {
    let pages = pages();
    let mut files = vec![("README.md".to_owned(), index::render(&pages))];
    files.extend(
        pages
            .iter()
            .map(|page| (page.path(), markdown::render(page))),
    );
    files
}

/// Writes the files of `docs/reference` to a directory. Other files in it stay.
pub(super) fn write(directory: &Path) -> io::Result<()> {
    for (path, content) in files() {
        let path = directory.join(path);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(path, content)?;
    }
    Ok(())
}
