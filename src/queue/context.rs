//! Request headers of clients that the requests of an exporter depend on.

use std::sync::Arc;

use super::delivery::Delivery;
use crate::pipeline::batch::{Batch, Metadata};

impl Delivery {
    /// Returns the headers of a batch's client that the exporter needs.
    pub(super) fn context_of(&self, batch: &Batch) -> Arc<Metadata> {
        let names = self.sender.context_headers();
        let Some(metadata) = batch.metadata.as_ref().filter(|_| !names.is_empty()) else {
            return Arc::default();
        };
        let needed = names.iter().filter_map(|name| metadata.get_key_value(name));
        let needed = needed.map(|(name, values)| (name.clone(), values.clone()));
        Arc::new(needed.collect())
    }
}
