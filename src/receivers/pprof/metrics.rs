//! Metrics of this receiver, in addition to those of all receivers.

use metrics::{Counter, counter};

use tributary_config::ComponentId;
use tributary_profiles::pprof::Repairs;

/// Counts repairs of files (`tributary_receiver_pprof_repairs`), and cumulative profiles that were not remembered for
/// lack of memory (`tributary_receiver_pprof_forgotten_series`).
#[derive(Clone)]
pub(super) struct Repaired([Counter; 5], Counter);

impl Repaired {
    /// Creates the counters of a receiver.
    pub(super) fn new(receiver: &ComponentId) -> Self {
        let kinds = ["strings", "negative", "mappings", "labels", "saturated"];
        let repairs = kinds.map(|kind| {
            counter!(
                "tributary_receiver_pprof_repairs",
                "receiver" => receiver.to_string(),
                "kind" => kind
            )
        });
        let forgotten = counter!(
            "tributary_receiver_pprof_forgotten_series",
            "receiver" => receiver.to_string()
        );
        Repaired(repairs, forgotten)
    }

    /// Counts evicted series, whose next profile has no predecessor.
    pub(super) fn forgotten(&self, series: usize) {
        self.1.increment(series as u64);
    }

    /// Counts the repairs of one file.
    pub(super) fn count(&self, repairs: Repairs) {
        let Repairs {
            strings,
            negative,
            mappings,
            labels,
            saturated,
        } = repairs;
        let counts = [strings, negative, mappings, labels, saturated];
        for (counter, count) in self.0.iter().zip(counts) {
            counter.increment(count);
        }
    }
}
