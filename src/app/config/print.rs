//! Prints the effective configuration: resolved, with defaults, secrets masked.

mod effective;
mod own;

use std::borrow::Cow;

use serde_yaml::{Mapping, Value};

use crate::app::config::{Config, Configured, ServiceConfig};
use crate::component::PrintableConfig;
use crate::pipeline::id::PipelineConfig;
pub(in crate::app) use own::ONLY_HERE;
use own::Pruner;
use tributary_config::{ComponentId, without_url_secrets};

impl Config {
    /// Returns the whole configuration with defaults filled in, for printing. Loading the output
    /// gives the same configuration except for the masked secrets. In components that the Collector
    /// also has, keys unknown to the Collector are left out if they have their default values.
    pub fn print(&self) -> Value {
        let schema = super::schema();
        let pruner = Pruner::new(&schema);
        let mut root = Mapping::new();
        let mut section = |name: &str, value: Mapping| {
            if !value.is_empty() {
                root.insert(name.into(), value.into());
            }
        };
        let name = "receivers";
        section(name, components(name, &self.receivers, &pruner));
        let name = "processors";
        section(name, components(name, &self.processors, &pruner));
        let name = "exporters";
        section(name, components(name, &self.exporters, &pruner));
        let name = "connectors";
        section(name, components(name, &self.connectors, &pruner));
        let name = "extensions";
        section(name, components(name, &self.extensions, &pruner));
        section("service", service(&self.service, &pruner));
        let mut root = root.into();
        mask_urls(&mut root);
        root
    }
}

fn mask_urls(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(shown) = without_url_secrets(text) {
                *text = shown;
            }
        }
        Value::Sequence(values) => values.iter_mut().for_each(mask_urls),
        Value::Mapping(pairs) => pairs.values_mut().for_each(mask_urls),
        _ => {}
    }
}

fn components<C: ?Sized + PrintableConfig>(
    section: &str,
    list: &[(ComponentId, Configured<C>)],
    pruner: &Pruner<'_>,
) -> Mapping {
    list.iter()
        .map(|(id, configured)| {
            let mut value = configured.config.print();
            pruner.component(section, configured.entry.name, &mut value);
            effective::fill(&mut value);
            (id.to_string().into(), value)
        })
        .collect()
}

fn service(service: &ServiceConfig, pruner: &Pruner<'_>) -> Mapping {
    let mut out = Mapping::new();
    out.insert("extensions".into(), ids(&service.extensions));
    let pipelines: Mapping = service
        .pipelines
        .iter()
        .map(|(id, lists)| (id.to_string().into(), pipeline(lists).into()))
        .collect();
    out.insert("pipelines".into(), pipelines.into());
    let mut telemetry = service.telemetry.print();
    pruner.telemetry(&mut telemetry);
    out.insert("telemetry".into(), telemetry);
    out
}

fn pipeline(lists: &PipelineConfig) -> Mapping {
    let mut out = Mapping::new();
    out.insert("receivers".into(), ids(&lists.receivers));
    out.insert("processors".into(), ids(&lists.processors));
    out.insert("exporters".into(), ids(&lists.exporters));
    out
}

fn ids(list: &[ComponentId]) -> Value {
    list.iter()
        .map(|id| Value::from(id.to_string()))
        .collect::<Vec<_>>()
        .into()
}
