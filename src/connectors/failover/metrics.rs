//! Metrics of the connector.

use metrics::{Counter, Gauge, counter, gauge};

use tributary_config::ComponentId;
use tributary_otlp::Signal;

/// `otelcol_connector_failover_count`, by the level that refused, and
/// `tributary_connector_failover_level`.
pub(super) struct Metrics {
    left: Vec<Counter>,
    level: Gauge,
}

impl Metrics {
    /// Returns the metrics of a connector for one signal with levels of these numbers, which count
    /// from 1.
    pub(super) fn new(connector: &ComponentId, signal: Signal, numbers: &[usize]) -> Self {
        let left = numbers.iter().map(|number| {
            counter!(
                "otelcol_connector_failover_count",
                "connector" => connector.to_string(),
                "otel_signal" => signal.name(),
                "level" => number.to_string()
            )
        });
        Metrics {
            left: left.collect(),
            level: gauge!(
                "tributary_connector_failover_level",
                "connector" => connector.to_string(),
                "otel_signal" => signal.name()
            ),
        }
    }

    /// Records that the level at this position was left because it refuses.
    pub(super) fn left(&self, position: usize) {
        if let Some(counter) = self.left.get(position) {
            counter.increment(1);
        }
    }

    pub(super) fn at(&self, number: usize) {
        self.level.set(number as f64);
    }
}
