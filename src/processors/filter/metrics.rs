//! Items that `filter` dropped, under the Collector's metric names.

use metrics::{Counter, counter};
use tributary_config::ComponentId;
use tributary_otlp::Signal;

/// Metrics of the `filter` processor.
#[derive(Clone)]
pub(super) struct FilterMetrics(Counter);

impl FilterMetrics {
    /// Creates the metrics of a filter in pipelines of a signal. The label has the Collector's name.
    pub(super) fn new(filter: &ComponentId, signal: Signal) -> Self {
        let items = match signal {
            Signal::Traces => "spans",
            Signal::Metrics => "datapoints",
            Signal::Logs => "logs",
            Signal::Profiles => "profiles",
        };
        FilterMetrics(counter!(
            format!("otelcol_processor_filter_{items}_filtered"),
            "filter" => filter.to_string()
        ))
    }

    /// Counts dropped items.
    pub(super) fn filtered(&self, items: usize) {
        self.0.increment(items as u64);
    }
}
