//! Files that are finished early, and the metrics of all files.

use metrics::{Counter, Gauge, counter, gauge};

use super::part::{Finished, Part};
use tributary_config::ComponentId;

/// Reason why a file is finished before it is full or old enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EarlyReason {
    Memory,
    Files,
    Queue,
}

impl EarlyReason {
    /// Returns the reason for log messages, and the setting that avoids it.
    pub(super) fn explanation(self) -> &'static str {
        match self {
            EarlyReason::Memory => {
                "`max_memory` is used up. Raise it, or set `sending_queue.storage`, which keeps requests on disk"
            }
            EarlyReason::Files => {
                "`max_open_files` is reached. Raise it, or use `partition_by: hour`"
            }
            EarlyReason::Queue => {
                "`sending_queue` is three quarters full. Raise its `queue_size`, or lower `rotation.interval`"
            }
        }
    }
}

pub(super) struct Metrics {
    id: String,
    pub(super) open: Gauge,
    pub(super) failures: Counter,
    early: [Counter; 3],
    pub(super) overflow: Counter,
}

impl Metrics {
    pub(super) fn new(id: &ComponentId) -> Self {
        let id = id.to_string();
        let early = |reason: &'static str| {
            counter!(
                "tributary_exporter_parquet_early_files",
                "exporter" => id.clone(),
                "reason" => reason
            )
        };
        Metrics {
            open: gauge!("tributary_exporter_parquet_open_files", "exporter" => id.clone()),
            failures: counter!("tributary_exporter_parquet_failed_files", "exporter" => id.clone()),
            early: [early("memory"), early("open_files"), early("queue")],
            overflow: counter!("tributary_exporter_parquet_overflow_rows", "exporter" => id.clone()),
            id,
        }
    }

    pub(super) fn early(&self, why: EarlyReason) -> &Counter {
        let [memory, files, queue] = &self.early;
        match why {
            EarlyReason::Memory => memory,
            EarlyReason::Files => files,
            EarlyReason::Queue => queue,
        }
    }

    pub(super) fn finished(&self, part: &Part, finished: Finished) {
        let table = part.key.kind.name();
        for (name, value) in [
            ("tributary_exporter_parquet_files", 1),
            ("tributary_exporter_parquet_rows", finished.summary.rows),
            ("tributary_exporter_parquet_bytes", finished.bytes),
        ] {
            counter!(name, "exporter" => self.id.clone(), "table" => table).increment(value);
        }
    }
}
