//! Repairs of files that violate the format.

use std::sync::Arc;

use metrics::{Counter, counter};
use tracing::warn;

use tributary_config::ComponentId;
use tributary_net::sampled_log::SampledLog;
use tributary_profiles::pprof::Repairs;

/// Counts repairs of files (`tributary_receiver_pprof_repairs`).
#[derive(Clone)]
pub(crate) struct Repaired {
    repairs: [Counter; 8],
    id: ComponentId,
    lenient: Arc<SampledLog>,
}

impl Repaired {
    /// Creates the counters of a receiver.
    pub(crate) fn new(receiver: &ComponentId) -> Self {
        let repairs = Repairs::default().counts().map(|(kind, _)| {
            counter!(
                "tributary_receiver_pprof_repairs",
                "receiver" => receiver.to_string(),
                "kind" => kind
            )
        });
        Repaired {
            repairs,
            id: receiver.clone(),
            lenient: Arc::new(SampledLog::of_one_line()),
        }
    }

    /// Counts the repairs of one file, and logs those that only a lenient receiver makes.
    pub(crate) fn count(&self, repairs: Repairs) {
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
