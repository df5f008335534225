//! Repairs of files that violate the format.

use metrics::{Counter, counter};

use tributary_config::ComponentId;
use tributary_profiles::pprof::Repairs;

/// Counts repairs of files (`tributary_receiver_pprof_repairs`).
#[derive(Clone)]
pub(crate) struct Repaired([Counter; 5]);

impl Repaired {
    /// Creates the counters of a receiver.
    pub(crate) fn new(receiver: &ComponentId) -> Self {
        let kinds = ["strings", "negative", "mappings", "labels", "saturated"];
        let repairs = kinds.map(|kind| {
            counter!(
                "tributary_receiver_pprof_repairs",
                "receiver" => receiver.to_string(),
                "kind" => kind
            )
        });
        Repaired(repairs)
    }

    /// Counts the repairs of one file.
    pub(crate) fn count(&self, repairs: Repairs) {
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
