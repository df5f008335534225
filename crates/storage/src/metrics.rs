//! What a durable queue counts about its files.

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

/// The handles of one log.
#[derive(Clone)]
pub struct StorageMetrics {
    /// `tributary_storage_bytes`: on the disk.
    pub bytes: Gauge,
    /// `tributary_storage_segments`: files.
    pub segments: Gauge,
    /// `tributary_storage_damaged_blocks`: found and skipped.
    pub damaged_blocks: Counter,
    /// `tributary_storage_lost_records`: that were in damaged blocks.
    pub lost_records: Counter,
    /// `tributary_storage_recovered_records`: found at the start.
    pub recovered_records: Counter,
    /// `tributary_storage_resent_records`: given out more than once.
    pub resent_records: Counter,
    /// `tributary_storage_write_failures`: writes and fsyncs that failed.
    pub write_failures: Counter,
    /// `tributary_storage_fsync_seconds`: how long an fsync took.
    pub fsync_seconds: Histogram,
}

impl StorageMetrics {
    /// The handles of a log with these labels.
    pub fn new(labels: &[(&'static str, String)]) -> Self {
        let counter = |name: &'static str| counter!(format!("tributary_storage_{name}"), labels);
        StorageMetrics {
            bytes: gauge!("tributary_storage_bytes", labels),
            segments: gauge!("tributary_storage_segments", labels),
            damaged_blocks: counter("damaged_blocks"),
            lost_records: counter("lost_records"),
            recovered_records: counter("recovered_records"),
            resent_records: counter("resent_records"),
            write_failures: counter("write_failures"),
            fsync_seconds: histogram!("tributary_storage_fsync_seconds", labels),
        }
    }
}
