//! Metrics in addition to those of all exporters, under the Collector's names.

use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

use tributary_config::ComponentId;

pub(super) struct ResolverMetrics {
    resolutions: [Counter; 2],
    updates: Counter,
    backends: Gauge,
}

impl ResolverMetrics {
    pub(super) fn new(exporter: &ComponentId, resolver: &'static str) -> Self {
        let labels = [
            ("exporter", exporter.to_string()),
            ("resolver", resolver.to_owned()),
        ];
        let resolutions = ["false", "true"].map(|success| {
            let mut labels = labels.to_vec();
            labels.push(("success", success.to_owned()));
            counter!("otelcol_loadbalancer_num_resolutions", &labels)
        });
        ResolverMetrics {
            resolutions,
            updates: counter!("otelcol_loadbalancer_num_backend_updates", &labels),
            backends: gauge!("otelcol_loadbalancer_num_backends", &labels),
        }
    }

    pub(super) fn resolved(&self, success: bool) {
        self.resolutions[usize::from(success)].increment(1);
    }

    pub(super) fn updated(&self, members: usize) {
        self.updates.increment(1);
        self.backends.set(members as f64);
    }
}

pub(super) struct MemberMetrics {
    outcomes: [Counter; 2],
    latency: Histogram,
}

impl MemberMetrics {
    pub(super) fn new(exporter: &ComponentId, address: &str) -> Self {
        let labels = [
            ("exporter", exporter.to_string()),
            ("endpoint", address.to_owned()),
        ];
        let outcomes = ["false", "true"].map(|success| {
            let mut labels = labels.to_vec();
            labels.push(("success", success.to_owned()));
            counter!("otelcol_loadbalancer_backend_outcome", &labels)
        });
        MemberMetrics {
            outcomes,
            latency: histogram!("otelcol_loadbalancer_backend_latency", &labels),
        }
    }

    /// Records the end of a request.
    pub(super) fn ended(&self, success: bool, after: Duration) {
        self.outcomes[usize::from(success)].increment(1);
        self.latency.record(after.as_secs_f64() * 1000.0);
    }
}
