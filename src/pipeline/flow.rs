//! Counters of the edges of the graph.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use crate::pipeline::Consumer;
use crate::pipeline::batch::{Batch, Nack};

/// Identifies an edge: its pipeline, and the node at its outer end. The outer end is the source for an edge into the
/// pipeline, and the target for every other edge.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EdgeKey {
    /// Id of the pipeline.
    pub pipeline: String,
    /// Name of the node.
    pub node: String,
}

/// Items and bytes that entered one edge since the start of the process. Refused and retried batches count each time, as
/// in `otelcol_processor_incoming_items`.
#[derive(Debug, Default)]
pub struct Flow {
    items: AtomicU64,
    bytes: AtomicU64,
}

impl Flow {
    /// Counts a batch.
    pub fn passes(&self, batch: &Batch) {
        self.items.fetch_add(batch.items() as u64, Relaxed);
        self.bytes.fetch_add(batch.bytes() as u64, Relaxed);
    }

    /// Returns the number of items.
    pub fn items(&self) -> u64 {
        self.items.load(Relaxed)
    }

    /// Returns the encoded, uncompressed bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }
}

/// The flows of all edges. A flow survives reloads that keep its edge.
#[derive(Default)]
pub struct Flows(Mutex<HashMap<EdgeKey, Arc<Flow>>>);

impl Flows {
    /// Returns the flow of an edge, and creates it on the first call.
    pub fn edge(&self, pipeline: &str, node: &str) -> Arc<Flow> {
        let key = EdgeKey {
            pipeline: pipeline.to_owned(),
            node: node.to_owned(),
        };
        self.0.lock().entry(key).or_default().clone()
    }

    /// Returns the flow of an edge that exists.
    pub fn get(&self, key: &EdgeKey) -> Option<Arc<Flow>> {
        self.0.lock().get(key).cloned()
    }

    /// Drops the flows of all edges except `edges`.
    pub fn retain(&self, edges: &HashSet<&EdgeKey>) {
        self.0.lock().retain(|key, _| edges.contains(key));
    }
}

/// Counts the batches that enter an edge, in front of its target.
pub struct Metered {
    flow: Arc<Flow>,
    next: Arc<dyn Consumer>,
}

impl Metered {
    /// Counts the batches that enter `next` in `flow`.
    pub fn new(flow: Arc<Flow>, next: Arc<dyn Consumer>) -> Self {
        Metered { flow, next }
    }
}

impl Consumer for Metered {
    fn consume(&self, batch: Batch) -> BoxFuture<'_, Result<(), Nack>> {
        self.flow.passes(&batch);
        self.next.consume(batch)
    }

    fn behind(&self) -> Vec<Arc<dyn Consumer>> {
        vec![self.next.clone()]
    }
}
