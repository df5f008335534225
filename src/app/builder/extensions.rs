//! Builds the extensions.

use super::{Builder, at, lookup};
use crate::app::config::Configured;
use crate::app::graph::{GraphError, Part};
use crate::component::{Extension, ExtensionConfig};
use tributary_config::ComponentId;

impl Builder<'_> {
    /// Builds extensions without dependencies first. Keeps all extensions in the listed order,
    /// which is the order of their start.
    pub(super) fn extensions(&mut self) -> Result<(), GraphError> {
        let ids = &self.config.service.extensions;
        let mut listed = Vec::with_capacity(ids.len());
        for (at, id) in ids.iter().enumerate() {
            let configured = lookup(&self.config.extensions, id, &format!("extensions.{id}"))?;
            listed.push((at, id, configured));
        }
        listed.sort_by_key(|(_, _, configured)| !configured.config.uses_extensions().is_empty());
        let mut parts = Vec::with_capacity(listed.len());
        for (at, id, configured) in listed {
            let part = self.extension(id, configured)?;
            parts.push((at, part));
            let services = parts.iter().filter_map(|(_, part)| part.services.clone());
            self.extensions = services.collect();
        }
        parts.sort_by_key(|(at, _)| *at);
        self.graph.extensions = parts.into_iter().map(|(_, part)| part).collect();
        Ok(())
    }

    fn extension(
        &self,
        id: &ComponentId,
        configured: &Configured<dyn ExtensionConfig>,
    ) -> Result<Part, GraphError> {
        let name = format!("extensions.{id}");
        let fingerprint = self.fingerprint(configured);
        let (services, component) = match self.unchanged(&name, &fingerprint) {
            Some(part) => (part.services.clone(), None),
            None => {
                let built = configured.config.build(&self.context(id));
                let Extension {
                    component,
                    services,
                } = built.map_err(at(&name))?;
                (Some((id.clone(), services)), Some(component))
            }
        };
        Ok(Part {
            fingerprint,
            component,
            services,
            ..Part::named(name)
        })
    }
}
