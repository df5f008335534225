//! Selection of the first level, and handling of refusals.

use std::sync::Arc;
use std::time::Duration;

use tracing::{info, warn};

use super::Config;
use super::metrics::Metrics;
use super::position::Position;
use crate::component::{BuildContext, Outputs};
use crate::pipeline::batch::{Batch, Code, Nack};
use crate::pipeline::{Consumer, FanOut};
use futures_util::future::BoxFuture;
use tributary_config::ComponentId;
use tributary_otlp::Signal;

/// Levels that have pipelines of a signal.
pub(super) struct Levels {
    id: ComponentId,
    signal: Signal,
    levels: Vec<Level>,
    position: Arc<Position>,
    retry_interval: Duration,
    metrics: Metrics,
}

struct Level {
    /// Number of the level in the configuration, from 1.
    number: usize,
    consumer: Arc<dyn Consumer>,
}

impl Levels {
    pub(super) fn new(
        config: &Config,
        cx: &BuildContext,
        signal: Signal,
        outputs: &Outputs,
    ) -> Self {
        let level = |(at, pipelines): (usize, &Vec<_>)| {
            let consumers = pipelines.iter().filter_map(|id| outputs.pipeline(id));
            (at + 1, consumers.cloned().collect())
        };
        let of_signal = config.priority_levels.iter().map(|level| {
            let pipelines = level.iter().filter(|id| id.signal == signal);
            pipelines.cloned().collect()
        });
        let of_signal: Vec<Vec<_>> = of_signal.collect();
        let levels: Vec<Level> = of_signal
            .iter()
            .enumerate()
            .map(level)
            .filter(|(_, consumers): &(usize, Vec<_>)| !consumers.is_empty())
            .map(|(number, consumers)| Level {
                number,
                consumer: FanOut::over(consumers),
            })
            .collect();
        let numbers: Vec<usize> = levels.iter().map(|level| level.number).collect();
        Levels {
            id: cx.id.clone(),
            signal,
            levels,
            position: Position::of(cx, signal, &of_signal),
            retry_interval: *config.retry_interval,
            metrics: Metrics::new(&cx.id, signal, &numbers),
        }
    }

    /// Publishes the current level. Called at the start, so that a configuration that cannot be
    /// built changes nothing.
    pub(super) fn start(&self) {
        if let Some(level) = self.levels.get(self.position.current()) {
            self.metrics.at(level.number);
        }
    }

    /// Offers a batch to one level after the other.
    async fn offer(&self, batch: Batch) -> Result<(), Nack> {
        let first = self.position.current();
        let all = 0..self.levels.len();
        // A batch is refused only after every level has refused it: levels above the current one
        // come last, unless a probe is due.
        let order: Vec<usize> =
            match first > 0 && self.position.is_time_to_probe(self.retry_interval) {
                true => all.collect(),
                false => (first..all.end).chain(0..first).collect(),
            };
        let mut worst: Option<Nack> = None;
        for position in order {
            let Some(level) = self.levels.get(position) else {
                continue;
            };
            match level.consumer.consume(batch.clone()).await {
                Ok(()) => {
                    self.taken(first, position, worst.as_ref());
                    return Ok(());
                }
                Err(nack) if is_about_data(&nack) => {
                    // A temporary refusal takes precedence over permanent ones.
                    return Err(worst.filter(|worst| worst.retryable).unwrap_or(nack));
                }
                Err(nack) if worst.as_ref().is_some_and(|worst| worst.retryable) => drop(nack),
                Err(nack) => worst = Some(nack),
            }
        }
        Err(worst.unwrap_or_else(|| Nack::unavailable("no level has a pipeline of this signal")))
    }

    /// Records that the level at `to` accepted a batch that started at `from`. If another batch has
    /// changed the level since, the change of the other batch is newer.
    fn taken(&self, from: usize, to: usize, why: Option<&Nack>) {
        if from == to || !self.position.change(from, to) {
            return;
        }
        let (Some(left), Some(entered)) = (self.levels.get(from), self.levels.get(to)) else {
            return;
        };
        self.metrics.at(entered.number);
        if to < from {
            info!(
                otelcol.component.id = %self.id,
                otelcol.component.kind = "connector",
                otelcol.signal = %self.signal,
                from_level = left.number,
                to_level = entered.number,
                "A higher level accepts data again; returning to it."
            );
            return;
        }
        self.metrics.left(from);
        self.position.probe_after(self.retry_interval);
        warn!(
            otelcol.component.id = %self.id,
            otelcol.component.kind = "connector",
            otelcol.signal = %self.signal,
            from_level = left.number,
            to_level = entered.number,
            error = why.map(|nack| nack.reason.as_ref()),
            "A level refuses data; failing over to the next level that accepts it."
        );
    }
}

impl Consumer for Levels {
    fn consume(&self, batch: Batch) -> BoxFuture<'_, Result<(), Nack>> {
        Box::pin(self.offer(batch))
    }

    fn behind(&self) -> Vec<Arc<dyn Consumer>> {
        let levels = self.levels.iter();
        levels.map(|level| level.consumer.clone()).collect()
    }
}

/// Whether the data is at fault, so that other levels would refuse it too. All other refusals
/// concern one level only, such as wrong credentials, an exhausted quota or a size limit.
fn is_about_data(nack: &Nack) -> bool {
    !nack.retryable && matches!(nack.code, Code::InvalidArgument | Code::OutOfRange)
}
