//! A configuration as it was understood: resolved, with its defaults, secrets masked.

use std::borrow::Cow;

use serde_yaml::{Mapping, Value};

use crate::app::config::{Config, Configured, ServiceConfig};
use crate::component::Settings;
use crate::pipeline::id::PipelineConfig;
use tributary_config::{ComponentId, without_url_secrets};

impl Config {
    /// The whole configuration with everything filled in, to be printed. Loading it again gives the
    /// same configuration, but for the secrets, which are masked.
    pub fn print(&self) -> Value {
        let mut root = Mapping::new();
        let mut section = |name: &str, value: Mapping| {
            if !value.is_empty() {
                root.insert(name.into(), value.into());
            }
        };
        section("receivers", components(&self.receivers));
        section("processors", components(&self.processors));
        section("exporters", components(&self.exporters));
        section("connectors", components(&self.connectors));
        section("extensions", components(&self.extensions));
        section("service", service(&self.service));
        let mut root = root.into();
        mask_urls(&mut root);
        root
    }
}

/// Masks the secrets that URLs carry, wherever one stands.
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

fn components<C: ?Sized + Settings>(list: &[(ComponentId, Configured<C>)]) -> Mapping {
    list.iter()
        .map(|(id, configured)| (id.to_string().into(), configured.config.print()))
        .collect()
}

fn service(service: &ServiceConfig) -> Mapping {
    let mut out = Mapping::new();
    out.insert("extensions".into(), ids(&service.extensions));
    let pipelines: Mapping = service
        .pipelines
        .iter()
        .map(|(id, lists)| (id.to_string().into(), pipeline(lists).into()))
        .collect();
    out.insert("pipelines".into(), pipelines.into());
    out.insert("telemetry".into(), service.telemetry.print());
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
