//! Counts spans, span events, metrics, data points, log records and profiles, and emits the counts
//! as metrics.
//!
//! Keys, names and defaults are those of the Collector's connector `count`. Each request becomes
//! one request of metrics: for each of its resources, sums of the counted items, monotonic and of
//! delta temporality. A sender gets its acknowledgment when the metrics pipelines have accepted the
//! counts; a request without counted items is acknowledged at once.
//!
//! In contrast to the Collector, a condition that cannot be evaluated does not refuse the request,
//! and attributes that are neither texts nor numbers are grouped by their text form. Counts have
//! the time of counting, not that of the counted items: no two data points of a series have the
//! same time, so a sum misses none.

mod clock;
mod config;
mod counter;
#[cfg(test)]
mod tests;
mod walk;

use std::sync::Arc;

use self::clock::Clock;
pub use self::config::{AttributeConfig, Config, DefaultValue, MetricConfig};
use self::counter::Section;
use self::walk::Sections;
use crate::component::{
    BuildContext, BuildError, ConnectorConfig, Entry, Origin, Outputs, Stability, Terminal,
};
use crate::entry;
use crate::pipeline::batch::{Batch, Nack};
use crate::pipeline::{Consumer, Idle};
use futures_util::future::BoxFuture;
use tributary_otlp::Signal;

/// Entry of the component registry.
pub const ENTRY: Entry<dyn ConnectorConfig> = entry!(
    dyn ConnectorConfig,
    Config,
    "count",
    aliases: &[],
    "Counts spans, span events, metrics, data points, log records and profiles, as metrics.",
    &[
        (Signal::Traces, Stability::Beta),
        (Signal::Metrics, Stability::Beta),
        (Signal::Logs, Stability::Beta),
        (Signal::Profiles, Stability::Alpha),
    ],
    emits: &[Signal::Metrics],
    collector: Origin::Contrib,
    metrics: &[]
);

impl ConnectorConfig for Config {
    fn build(
        &self,
        _: &BuildContext,
        inputs: &[Signal],
        outputs: Outputs,
    ) -> Result<Terminal, BuildError> {
        let next = outputs.get(Signal::Metrics).ok_or_else(|| {
            BuildError("no metrics pipeline lists the connector as a receiver".to_owned())
        })?;
        let clock = Arc::new(Clock::new());
        let mut entrances = Outputs::default();
        for signal in inputs {
            let mut sections = Vec::new();
            for (_, context, metrics) in self.sections() {
                if context.is_of(*signal) {
                    sections.push(Section::new(context, metrics)?);
                }
            }
            let counting = Counting {
                sections: Sections::new(sections, clock.clone()),
                next: next.clone(),
            };
            entrances.set(*signal, Arc::new(counting));
        }
        Ok(Terminal {
            inputs: entrances,
            component: Box::new(Idle),
        })
    }
}

/// Entry of one signal.
struct Counting {
    sections: Sections,
    next: Arc<dyn Consumer>,
}

impl Counting {
    fn counted(&self, batch: &Batch) -> Result<Option<Batch>, Nack> {
        let signal = batch.signal();
        let mut metrics = Vec::new();
        let mut points = 0;
        for request in batch.wire().parts() {
            points += self.sections.count(signal, request, &mut metrics)?;
        }
        let metrics = (points > 0).then(|| bytes::Bytes::from(metrics));
        Ok(metrics.map(|metrics| batch.derived(Signal::Metrics, points, metrics)))
    }
}

impl Consumer for Counting {
    fn consume(&self, batch: Batch) -> BoxFuture<'_, Result<(), Nack>> {
        Box::pin(async move {
            match self.counted(&batch)? {
                Some(metrics) => self.next.consume(metrics).await,
                None => Ok(()),
            }
        })
    }

    fn behind(&self) -> Vec<Arc<dyn Consumer>> {
        vec![self.next.clone()]
    }

    /// The connector forwards counts, not the received data.
    fn stores(&self) -> bool {
        false
    }
}
