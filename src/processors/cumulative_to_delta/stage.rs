//! The stage: converts a batch, passes it on, and remembers its points once they are accepted.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use metrics::{Counter, Gauge, counter, gauge};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::config::{Config, MatchMetrics};
use crate::component::{BuildContext, BuildError};
use crate::pipeline::account::DropReason;
use crate::pipeline::batch::{Batch, Nack};
use crate::pipeline::output_memory::{OutputMemory, refusal};
use crate::pipeline::{Consumer, Next};
use crate::processors::decoding;
use crate::processors::matching::{MatchType, Texts};
use tributary_memory::{Budget, Permit};
use tributary_otlp::{Requests, Signal};
use tributary_temporality::{CumulativeKind, DeltaTracker, DropCause, Tentative, TrackerLimits};

/// The processor, before it is connected to its next stage.
pub(super) struct CumulativeToDelta {
    tracker: DeltaTracker,
    include: Selection,
    exclude: Selection,
    max_staleness: Option<Duration>,
    swept: Mutex<Instant>,
    budget: Arc<Budget>,
    /// Memory of the tracker.
    held: Mutex<Option<Permit>>,
    converted: Counter,
    dropped: [Counter; DropCause::ALL.len()],
    series: Gauge,
}

/// The processor in its pipeline.
pub(super) struct Connected {
    processor: CumulativeToDelta,
    next: Next,
}

/// Metrics by name and kind.
struct Selection {
    names: Option<Texts>,
    kinds: Vec<CumulativeKind>,
}

impl Selection {
    fn new(config: &MatchMetrics) -> Result<Self, BuildError> {
        let how = config.match_type.unwrap_or(MatchType::Strict);
        Ok(Selection {
            names: Texts::some(how, &config.metrics)?,
            kinds: config.metric_types.iter().map(|kind| kind.kind()).collect(),
        })
    }

    fn has_name(&self, name: &str) -> bool {
        self.names.as_ref().is_some_and(|names| names.matches(name))
    }
}

impl CumulativeToDelta {
    pub(super) fn new(config: &Config, cx: &BuildContext) -> Result<Self, BuildError> {
        let labels = [
            ("processor", cx.id.to_string()),
            ("pipeline", cx.pipeline.clone()),
        ];
        let limits = TrackerLimits {
            series: config.max_streams,
            bytes: config.max_bytes.as_usize(),
        };
        let first = config.initial_value.first_point();
        Ok(CumulativeToDelta {
            tracker: DeltaTracker::new(first, limits, unix_nanos(), fastrand::u64(..)),
            include: Selection::new(&config.include)?,
            exclude: Selection::new(&config.exclude)?,
            max_staleness: config.max_staleness.unless_zero(),
            swept: Mutex::new(Instant::now()),
            budget: cx.budget.clone(),
            held: Mutex::new(None),
            converted: counter!("otelcol_cumulativetodelta_datapoints", &labels),
            dropped: DropCause::ALL.map(|cause| {
                let [processor, pipeline] = labels.clone();
                let labels = [processor, pipeline, ("reason", cause.name().to_owned())];
                counter!("otelcol_cumulativetodelta_datapoints_dropped", &labels)
            }),
            series: gauge!("otelcol_cumulativetodelta_streams_tracked", &labels),
        })
    }

    pub(super) fn before(self, next: Next) -> Connected {
        Connected {
            processor: self,
            next,
        }
    }

    fn selects(&self, name: &str, kind: CumulativeKind) -> bool {
        let include = &self.include;
        let is_included = (include.names.is_none() || include.has_name(name))
            && (include.kinds.is_empty() || include.kinds.contains(&kind));
        let exclude = &self.exclude;
        let is_excluded = exclude.has_name(name) || exclude.kinds.contains(&kind);
        is_included && !is_excluded
    }

    /// Converts a batch. Returns it with the number of dropped points and the changes of the tracker.
    fn convert(&self, batch: Batch) -> Result<(Batch, usize, Pending<'_>), Nack> {
        self.forget_stale();
        let output = OutputMemory::new(&self.budget);
        let undo = OutputMemory::new(&self.budget);
        let mut pending = Pending {
            processor: self,
            tentative: Vec::new(),
            memory: None,
            converted: 0,
            dropped: [0; DropCause::ALL.len()],
        };
        let mut requests = Requests::default();
        let (mut made, mut changed) = (0, false);
        for part in batch.wire().parts() {
            let selects = |name: &str, kind| self.selects(name, kind);
            let converted = self.tracker.convert(part, &selects, &output, &undo);
            let converted = converted.map_err(|error| {
                let full = if undo.is_refused() { &undo } else { &output };
                decoding::unedited(Signal::Metrics, error, full)
            })?;
            pending.tentative.push(converted.tentative);
            pending.converted += converted.points;
            for (sum, count) in pending.dropped.iter_mut().zip(converted.dropped) {
                *sum += count;
            }
            changed |= converted.request.is_some();
            made += converted.request.as_ref().map_or(0, Bytes::len);
            let request = converted.request.unwrap_or_else(|| part.clone());
            if !request.is_empty() {
                requests.append(Requests::from(request));
            }
        }
        let changes = pending.tentative.iter().map(Tentative::bytes);
        pending.memory = Some(undo.keep(changes.sum()));
        self.hold_memory()?;
        let dropped = pending.dropped.iter().sum();
        let items = batch.items().saturating_sub(dropped);
        let batch = match changed {
            true => batch.with_output(items, requests, output.keep(made)),
            false => batch,
        };
        Ok((batch, dropped, pending))
    }

    /// Takes the memory of the tracker from the budget.
    fn hold_memory(&self) -> Result<(), Nack> {
        let bytes = self.tracker.bytes();
        let mut held = self.held.lock();
        let result = match &mut *held {
            Some(permit) => permit.resize(bytes),
            None => self
                .budget
                .acquire(bytes)
                .map(|permit| *held = Some(permit)),
        };
        result.map_err(refusal)
    }

    fn forget_stale(&self) {
        let Some(max) = self.max_staleness else {
            return;
        };
        let mut swept = self.swept.lock();
        if swept.elapsed() >= max {
            *swept = Instant::now();
            let max = u64::try_from(max.as_nanos()).unwrap_or(u64::MAX);
            self.tracker.forget_before(unix_nanos().saturating_sub(max));
        }
    }
}

/// Changes that are undone, the last first, unless the batch is accepted.
struct Pending<'a> {
    processor: &'a CumulativeToDelta,
    tentative: Vec<Tentative>,
    /// Memory of the changes.
    memory: Option<Permit>,
    converted: usize,
    dropped: [usize; DropCause::ALL.len()],
}

impl Pending<'_> {
    fn accept(mut self) {
        self.tentative.drain(..).for_each(Tentative::confirm);
        let processor = self.processor;
        processor.converted.increment(self.converted as u64);
        for (counter, count) in processor.dropped.iter().zip(self.dropped) {
            counter.increment(count as u64);
        }
        #[allow(clippy::cast_precision_loss)] // Far below 2^53.
        processor.series.set(processor.tracker.series() as f64);
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        while self.tentative.pop().is_some() {}
    }
}

impl Connected {
    async fn deliver(&self, batch: Batch) -> Result<(), Nack> {
        let (batch, dropped, pending) = self.processor.convert(batch)?;
        if batch.bytes() > 0 {
            self.next.consumer.consume(batch).await?;
        }
        pending.accept();
        if dropped > 0 {
            self.next.account.dropped(dropped, DropReason::Filtered);
        }
        Ok(())
    }
}

impl Consumer for Connected {
    fn consume(&self, batch: Batch) -> BoxFuture<'_, Result<(), Nack>> {
        Box::pin(self.deliver(batch))
    }

    fn behind(&self) -> Vec<Arc<dyn Consumer>> {
        vec![self.next.consumer.clone()]
    }
}

/// Returns the Unix time in ns.
fn unix_nanos() -> u64 {
    let elapsed = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
}
