//! Counters of the outcomes of one queue.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use crate::pipeline::Undelivered;
use crate::pipeline::account::DropReason;
use crate::queue::metrics::ExporterMetrics;

/// Outcome counters of one queue.
pub(super) struct Ledger {
    pub(super) metrics: ExporterMetrics,
    /// Whether the process is ending. From then on, dropped items are reported as undelivered.
    ending: AtomicBool,
    /// Items lost because the process ended.
    undelivered_items: AtomicUsize,
    /// Acknowledged items lost for any other reason.
    lost_items: AtomicUsize,
}

impl Ledger {
    /// Creates a ledger without counts.
    pub(super) fn new(metrics: ExporterMetrics) -> Self {
        Ledger {
            metrics,
            ending: AtomicBool::new(false),
            undelivered_items: AtomicUsize::new(0),
            lost_items: AtomicUsize::new(0),
        }
    }

    /// Records that the process, or at least this exporter, is ending.
    pub(super) fn ending(&self) {
        self.ending.store(true, Relaxed);
    }

    /// Counts persisted items that cannot be read.
    pub(super) fn damaged(&self, items: usize) {
        self.metrics.dropped(items, DropReason::Damaged);
        self.lost_items.fetch_add(items, Relaxed);
    }

    /// Counts acknowledged items that are dropped.
    pub(super) fn dropped(&self, items: usize, reason: DropReason) {
        self.metrics.dropped(items, reason);
        match reason {
            // The dead letters have the data, so it is not lost.
            DropReason::DeadLetter => {}
            _ if self.ending.load(Relaxed) => {
                self.undelivered_items.fetch_add(items, Relaxed);
            }
            _ => {
                self.lost_items.fetch_add(items, Relaxed);
            }
        }
    }

    /// Returns the number of items lost because the process ended.
    pub(super) fn undelivered_items(&self) -> usize {
        self.undelivered_items.load(Relaxed)
    }

    /// Returns the number of acknowledged items that are lost.
    pub(super) fn undelivered(&self) -> Undelivered {
        Undelivered {
            items: self.undelivered_items() + self.lost_items.load(Relaxed),
        }
    }
}
