//! `failover`: forwards to the first of several levels that works.
//!
//! ```text
//! pipelines -> [sending_queue] -> levels of a signal -> pipelines of level 1, or else of level 2, ...
//! ```
//!
//! Only the optional queue buffers data: otherwise a sender waits for the outcome of the level that
//! accepts its batch, or gets the refusal if no level accepts it.

mod config;
mod levels;
mod metrics;
mod position;
#[cfg(test)]
mod tests;

pub use self::config::Config;

use std::sync::Arc;

use tokio::time::Instant;

use self::levels::Levels;
use super::queued::queued;
use crate::component::{
    ALL_SIGNALS, BuildContext, BuildError, ConnectorConfig, Entry, Origin, Outputs, Terminal,
};
use crate::entry;
use crate::metric::{self, Metric, shared};
use crate::pipeline::id::PipelineId;
use crate::pipeline::{Component, Idle, Undelivered};
use futures_util::future::BoxFuture;
use tributary_config::Problems;
use tributary_otlp::Signal;

/// Entry of the component registry.
pub const ENTRY: Entry<dyn ConnectorConfig> = entry!(
    dyn ConnectorConfig,
    Config,
    "failover",
    aliases: &[],
    "Routes each batch to the first level of pipelines that accepts it.",
    ALL_SIGNALS,
    collector: Origin::Contrib,
    metrics: &[METRICS, shared::EXPORTER, shared::STORED_QUEUE]
);

const METRICS: &[Metric] = &[
    metric::counter(
        "otelcol_connector_failover_count",
        "Number of failovers away from a level because it refused data, by signal and level",
    ),
    metric::gauge(
        "tributary_connector_failover_level",
        "The level in use, counted from 1, by signal",
    ),
];

impl ConnectorConfig for Config {
    fn check_pipelines(&self, ends: &[PipelineId], starts: &[PipelineId], problems: &mut Problems) {
        self.check_levels(ends, starts, problems);
    }

    fn build(
        &self,
        cx: &BuildContext,
        signals: &[Signal],
        outputs: Outputs,
    ) -> Result<Terminal, BuildError> {
        let mut inputs = Outputs::default();
        let mut all = Vec::new();
        for signal in signals {
            let levels = Arc::new(Levels::new(self, cx, *signal, &outputs));
            inputs.set(*signal, levels.clone());
            all.push(levels);
        }
        let Terminal { inputs, component } = match &*self.sending_queue {
            None => Terminal {
                inputs,
                component: Box::new(Idle),
            },
            Some(queue) => queued(cx, signals, queue, inputs)?,
        };
        let component = Box::new(Failover {
            levels: all,
            queue: component,
        });
        Ok(Terminal { inputs, component })
    }
}

/// Lifecycle of the connector and its queue, if it has one.
struct Failover {
    levels: Vec<Arc<Levels>>,
    queue: Box<dyn Component>,
}

impl Component for Failover {
    fn start(&mut self) {
        for levels in &self.levels {
            levels.start();
        }
        self.queue.start();
    }

    fn idle(&self) -> bool {
        self.queue.idle()
    }

    fn flush(&self) {
        self.queue.flush();
    }

    fn shutdown(self: Box<Self>, deadline: Instant) -> BoxFuture<'static, Undelivered> {
        self.queue.shutdown(deadline)
    }
}
