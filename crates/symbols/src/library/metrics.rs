//! Metrics of a library.

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

use crate::failure::FailureKind;
use tributary_config::ComponentId;

pub(super) struct Metrics {
    /// Component id, for logs.
    pub(super) id: String,
    pub(super) hits: Counter,
    pub(super) misses: Counter,
    pub(super) cache_bytes: Gauge,
    pub(super) compile_seconds: Histogram,
}

impl Metrics {
    pub(super) fn new(id: &ComponentId) -> Self {
        let id = id.to_string();
        let label = [("processor", id.clone())];
        let lookups = |result: &'static str| counter!("tributary_symbols_lookups", "processor" => id.clone(), "result" => result);
        Metrics {
            hits: lookups("hit"),
            misses: lookups("miss"),
            cache_bytes: gauge!("tributary_symbols_cache_bytes", &label),
            compile_seconds: histogram!("tributary_symbols_compile_seconds", &label),
            id,
        }
    }

    pub(super) fn count_fetch(&self, source: &'static str, outcome: &'static str) {
        counter!(
            "tributary_symbols_fetches",
            "processor" => self.id.clone(),
            "source" => source,
            "outcome" => outcome
        )
        .increment(1);
    }

    pub(super) fn count_compile_failure(&self, reason: FailureKind) {
        counter!(
            "tributary_symbols_worker_failures",
            "processor" => self.id.clone(),
            "reason" => reason.name()
        )
        .increment(1);
    }
}
