//! Declarations of the collector's own metrics: name, kind and help.
//!
//! A component declares its metrics beside its code and names them in its registry entry. From there they reach the
//! `HELP` lines of `/metrics` and the component's page in `docs/reference`.

pub mod shared;

use metrics::{describe_counter, describe_gauge, describe_histogram};
use tributary_otlp::Signal;

/// Kind of a metric, as Prometheus defines it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// A sum that only grows.
    Counter,
    /// A value that rises and falls.
    Gauge,
    /// A distribution in buckets.
    Histogram,
}

impl MetricKind {
    /// Returns the word for the kind.
    pub fn name(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        }
    }
}

/// Declaration of one metric, or of one metric per signal.
#[derive(Debug, Clone, Copy)]
pub struct Metric {
    /// Name. `{items}` stands for `spans`, `metric_points`, `log_records` or `profile_samples`.
    pub name: &'static str,
    /// Kind.
    pub kind: MetricKind,
    /// Meaning and unit. `{items}` stands for the same words as in the name.
    pub help: &'static str,
}

/// Declares a counter.
pub const fn counter(name: &'static str, help: &'static str) -> Metric {
    let kind = MetricKind::Counter;
    Metric { name, kind, help }
}

/// Declares a gauge.
pub const fn gauge(name: &'static str, help: &'static str) -> Metric {
    let kind = MetricKind::Gauge;
    Metric { name, kind, help }
}

/// Declares a histogram.
pub const fn histogram(name: &'static str, help: &'static str) -> Metric {
    let kind = MetricKind::Histogram;
    Metric { name, kind, help }
}

impl Metric {
    /// Returns the names and helps of the declared metrics: one, or one for each of these signals.
    pub fn expand(&self, signals: &[Signal]) -> Vec<(String, String)> {
        if !self.name.contains(ITEMS) {
            return vec![(self.name.to_owned(), self.help.to_owned())];
        }
        let each = signals.iter().map(|signal| signal.items_name());
        each.map(|items| {
            let words = items.replace('_', " ");
            (
                self.name.replace(ITEMS, items),
                self.help.replace(ITEMS, &words),
            )
        })
        .collect()
    }

    /// Describes the metric to the recorder.
    pub fn describe(&self) {
        for (name, help) in self.expand(&Signal::ALL) {
            match self.kind {
                MetricKind::Counter => describe_counter!(name, help),
                MetricKind::Gauge => describe_gauge!(name, help),
                MetricKind::Histogram => describe_histogram!(name, help),
            }
        }
    }
}

/// The part of a name or help that differs between signals.
const ITEMS: &str = "{items}";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metric_of_items_has_one_name_per_signal() {
        let metric = counter("otelcol_exporter_sent_{items}", "Number of {items} sent");
        assert_eq!(
            metric.expand(&[Signal::Metrics, Signal::Logs]),
            [
                (
                    "otelcol_exporter_sent_metric_points".to_owned(),
                    "Number of metric points sent".to_owned()
                ),
                (
                    "otelcol_exporter_sent_log_records".to_owned(),
                    "Number of log records sent".to_owned()
                ),
            ]
        );
        let one = gauge("tributary_server_requests", "Open requests");
        assert_eq!(one.expand(&[]).len(), 1);
    }
}
