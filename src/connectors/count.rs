//! Counts spans, span events, metrics, data points, log records and profiles, and makes metrics of the counts.
//!
//! Keys, names and defaults are those of the Collector's connector of this name. Each request becomes one of metrics:
//! for each of its resources the sums of what was counted in it, monotonic and of delta temporality. Who sent the
//! request is told that it was accepted when the pipelines of metrics have accepted the counts; a request that
//! nothing is counted in is accepted at once.
//!
//! Unlike there, a condition that cannot be evaluated does not cost a client its request, and attributes that are
//! neither texts nor numbers keep counts apart, by their texts. And counts have the time at which they were counted,
//! not that of what was counted: no two of a series have the same, so whoever adds them up misses none.

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
    BuildContext, BuildError, ConnectorConfig, Entry, Outputs, Stability, Terminal,
};
use crate::entry;
use crate::pipeline::batch::{Batch, Nack};
use crate::pipeline::{Consumer, Idle};
use futures_util::future::BoxFuture;
use tributary_otlp::Signal;

/// The registry's entry.
pub const ENTRY: Entry<dyn ConnectorConfig> = entry!(
    dyn ConnectorConfig,
    Config,
    "count",
    aliases: &[],
    "Makes metrics that count spans, span events, metrics, data points, log records and profiles.",
    &[
        (Signal::Traces, Stability::Beta),
        (Signal::Metrics, Stability::Beta),
        (Signal::Logs, Stability::Beta),
        (Signal::Profiles, Stability::Alpha),
    ],
    emits: Some(&[Signal::Metrics])
);

impl ConnectorConfig for Config {
    fn build(
        &self,
        _: &BuildContext,
        inputs: &[Signal],
        outputs: Outputs,
    ) -> Result<Terminal, BuildError> {
        let next = outputs
            .get(Signal::Metrics)
            .ok_or_else(|| BuildError("no metrics pipeline starts with it".to_owned()))?;
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

/// Where one signal enters.
struct Counting {
    sections: Sections,
    next: Arc<dyn Consumer>,
}

impl Counting {
    fn counted(&self, batch: &mut Batch) -> Result<Option<Batch>, Nack> {
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
    fn consume(&self, mut batch: Batch) -> BoxFuture<'_, Result<(), Nack>> {
        Box::pin(async move {
            match self.counted(&mut batch)? {
                Some(metrics) => self.next.consume(metrics).await,
                None => Ok(()),
            }
        })
    }

    fn behind(&self) -> Vec<Arc<dyn Consumer>> {
        vec![self.next.clone()]
    }

    /// What goes on is counts, not what came in.
    fn stores(&self) -> bool {
        false
    }
}
