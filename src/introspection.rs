//! State of the running pipelines, for display: the graph, its flows, the clients, and recent warnings.
//!
//! The components report the state, and the extension `console` serves it. Reporting costs a few atomic additions for
//! each batch on each edge, and a lock for each OTLP request, even if no extension serves the state.

pub mod clients;
pub mod graph;
pub mod page;
pub mod warnings;

use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;

use self::clients::ClientStatistics;
use self::graph::RunningGraph;
use self::page::Page;
use self::warnings::RecentWarnings;
use crate::pipeline::flow::Flows;

/// State of the running pipelines. The process has a single instance, which survives reloads.
#[derive(Default)]
pub struct Introspection {
    /// Items and bytes that passed each edge of the graph.
    pub flows: Flows,
    /// Clients of the receivers, with counters of their data.
    pub clients: ClientStatistics,
    /// Latest warnings and errors of the log.
    pub warnings: Arc<RecentWarnings>,
    graph: ArcSwap<RunningGraph>,
    metrics: OnceLock<Box<dyn Fn() -> String + Send + Sync>>,
}

impl Introspection {
    /// Returns the running graph.
    pub fn graph(&self) -> Arc<RunningGraph> {
        self.graph.load_full()
    }

    /// Replaces the graph after a start or a reload. The flows of edges that no longer exist are dropped.
    pub fn publish(&self, mut graph: RunningGraph) {
        graph.generation = self.graph.load().generation + 1;
        self.flows
            .retain(&graph.edges.iter().map(|edge| &edge.key).collect());
        self.graph.store(Arc::new(graph));
    }

    /// Sets the source of the collector's own metrics, in Prometheus' text format. Later calls have no effect.
    pub fn set_metrics(&self, render: impl Fn() -> String + Send + Sync + 'static) {
        let _ = self.metrics.set(Box::new(render));
    }

    /// Returns the current metrics; empty before [`set_metrics`](Self::set_metrics).
    pub fn metrics(&self) -> Page {
        Page::parse(
            &self
                .metrics
                .get()
                .map(|render| render())
                .unwrap_or_default(),
        )
    }
}
