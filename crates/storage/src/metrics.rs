//! Metrics of a durable queue.

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

/// Metrics of one log.
#[derive(Clone)]
pub struct StorageMetrics {
    /// `tributary_storage_bytes`: bytes on disk.
    pub bytes: Gauge,
    /// `tributary_storage_segments`: number of segment files.
    pub segments: Gauge,
    /// `tributary_storage_damaged_blocks`: damaged blocks found and skipped.
    pub damaged_blocks: Counter,
    /// `tributary_storage_lost_records`: records lost in damaged blocks.
    pub lost_records: Counter,
    /// `tributary_storage_recovered_records`: records found at the start.
    pub recovered_records: Counter,
    /// `tributary_storage_resent_records`: records handed out more than once.
    pub resent_records: Counter,
    /// `tributary_storage_write_failures`: failed writes and fsyncs.
    pub write_failures: Counter,
    /// `tributary_storage_fsync_seconds`: duration of an fsync.
    pub fsync_seconds: Histogram,
}

impl StorageMetrics {
    /// Creates the metrics of a log with these labels.
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
