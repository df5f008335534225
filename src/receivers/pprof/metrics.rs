//! Metrics of this receiver, in addition to those of all receivers.

use std::sync::Arc;

use metrics::{Counter, counter};
use tracing::warn;

use tributary_config::ComponentId;
use tributary_net::sampled_log::SampledLog;
use tributary_profiles::pprof::Repairs;

/// Counts repairs of files (`tributary_receiver_pprof_repairs`), and cumulative profiles that were not remembered for
/// lack of memory (`tributary_receiver_pprof_forgotten_series`).
#[derive(Clone)]
pub(super) struct Repaired {
    repairs: [Counter; 8],
    forgotten: Counter,
    id: ComponentId,
    lenient: Arc<SampledLog>,
}

impl Repaired {
    /// Creates the counters of a receiver.
    pub(super) fn new(receiver: &ComponentId) -> Self {
        let repairs = Repairs::default().counts().map(|(kind, _)| {
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
        Repaired {
            repairs,
            forgotten,
            id: receiver.clone(),
            lenient: Arc::new(SampledLog::of_one_line()),
        }
    }

    /// Counts evicted series, whose next profile has no predecessor.
    pub(super) fn forgotten(&self, series: usize) {
        self.forgotten.increment(series as u64);
    }

    /// Counts the repairs of one file, and logs those that only a lenient receiver makes.
    pub(super) fn count(&self, repairs: Repairs) {
        for (counter, (_, count)) in self.repairs.iter().zip(repairs.counts()) {
            counter.increment(count);
        }
        let Repairs {
            ids,
            references,
            samples,
            ..
        } = repairs;
        if ids + references + samples > 0
            && let Some(suppressed) = self.lenient.admit()
        {
            warn!(
                otelcol.component.id = %self.id,
                otelcol.component.kind = "receiver",
                ids,
                references,
                dropped_samples = samples,
                suppressed,
                "Repaired an invalid pprof file, because `lenient` is on. Report the profiler's fault to its authors."
            );
        }
    }
}
