//! `cumulative_to_delta`: converts cumulative sums and histograms to deltas.
//!
//! The processor keeps the last point of each series. It remembers a point only when the next stage has accepted it, so
//! that a refused batch yields the same deltas when it is retried. Batches stay encoded.

mod config;
mod stage;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use self::config::{Config, InitialValue, MatchMetrics, MetricType};
use self::stage::CumulativeToDelta;
use crate::component::{
    BuildContext, BuildError, Entry, Origin, ProcessorConfig, Stability, Stage,
};
use crate::metric::{self, Metric, shared};
use crate::pipeline::Idle;
use tributary_otlp::Signal;

/// Entry of the component registry.
pub const ENTRY: Entry<dyn ProcessorConfig> = crate::entry!(
    dyn ProcessorConfig,
    Config,
    "cumulative_to_delta",
    aliases: &["cumulativetodelta"],
    "Converts cumulative sums and histograms to deltas.",
    &[(Signal::Metrics, Stability::Beta)],
    collector: Origin::Contrib,
    metrics: &[shared::PROCESSOR, METRICS]
);

const METRICS: &[Metric] = &[
    metric::counter(
        "otelcol_cumulativetodelta_datapoints",
        "Number of converted data points",
    ),
    metric::counter(
        "otelcol_cumulativetodelta_datapoints_dropped",
        "Number of dropped data points, by reason: `initial`, `reset`, `bucket_mismatch`, `no_recorded_value`, `limit`",
    ),
    metric::gauge(
        "otelcol_cumulativetodelta_streams_tracked",
        "Number of series whose last point is kept",
    ),
];

impl ProcessorConfig for Config {
    fn remembers_deliveries(&self) -> bool {
        true
    }

    fn build(&self, cx: &BuildContext, _: Signal) -> Result<Stage, BuildError> {
        let stage = CumulativeToDelta::new(self, cx)?;
        Ok(Stage::Buffering(Box::new(move |next| {
            (Arc::new(stage.before(next)), Box::new(Idle))
        })))
    }
}
