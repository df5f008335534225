//! Limits of a table: number of series, and bytes of the process-wide budget.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use metrics::{Gauge, gauge};
use parking_lot::Mutex;

use crate::component::BuildContext;
use tributary_memory::{Budget, Permit};

#[derive(Debug)]
pub(super) struct Room {
    limit: usize,
    budget: Arc<Budget>,
    series: AtomicUsize,
    bytes: AtomicUsize,
    /// Permit for `bytes` and up to [`STEP`] more.
    permit: Mutex<Permit>,
    series_held: Gauge,
    bytes_held: Gauge,
}

impl Room {
    /// Returns room for `limit` series; 0 means as many as memory allows.
    pub(super) fn new(cx: &BuildContext, limit: usize) -> Self {
        let exporter = cx.id.to_string();
        Room {
            limit: if limit == 0 { usize::MAX } else { limit },
            budget: cx.budget.clone(),
            series: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            permit: Mutex::new(cx.budget.empty_permit()),
            series_held: gauge!("tributary_exporter_prometheus_series", "exporter" => exporter.clone()),
            bytes_held: gauge!("tributary_exporter_prometheus_memory_bytes", "exporter" => exporter),
        }
    }

    /// Takes room if there is enough.
    pub(super) fn take(&self, series: usize, bytes: usize) -> bool {
        let taken = self.series.fetch_add(series, Relaxed) + series;
        let held = self.bytes.fetch_add(bytes, Relaxed) + bytes;
        if (series == 0 || taken <= self.limit) && (bytes == 0 || self.permitted(held)) {
            return true;
        }
        self.give(series, bytes);
        false
    }

    /// Changes the size of a reservation: takes additional room if there is enough, or releases the
    /// difference.
    #[must_use = "without room it must stay as it was"]
    pub(super) fn resize(&self, before: (usize, usize), now: (usize, usize)) -> bool {
        let more = (
            now.0.saturating_sub(before.0),
            now.1.saturating_sub(before.1),
        );
        let fits = more == (0, 0) || self.take(more.0, more.1);
        if fits {
            self.give(
                before.0.saturating_sub(now.0),
                before.1.saturating_sub(now.1),
            );
        }
        fits
    }

    /// Releases room.
    pub(super) fn give(&self, series: usize, bytes: usize) {
        self.series.fetch_sub(series, Relaxed);
        self.bytes.fetch_sub(bytes, Relaxed);
    }

    /// Updates the metrics.
    pub(super) fn show(&self) {
        self.series_held.set(self.series.load(Relaxed) as f64);
        self.bytes_held.set(self.bytes.load(Relaxed) as f64);
    }

    /// Whether the table has reached its limit of series.
    pub(super) fn has_most_series(&self) -> bool {
        self.series.load(Relaxed) >= self.limit
    }

    /// Updates the metrics, and returns unused memory to the budget.
    pub(super) fn release_unused(&self) {
        let mut permit = self.permit.lock();
        // Later growth enlarges the permit after this.
        let bytes = self.bytes.load(Relaxed);
        permit.shrink_to(bytes.next_multiple_of(STEP));
        drop(permit);
        self.show();
    }

    /// Whether the permit covers `bytes`, or can be enlarged to. The permit is at most half of the
    /// budget: series stay, and data that passes through needs memory, too.
    fn permitted(&self, bytes: usize) -> bool {
        if bytes > self.budget.limit() / 2 {
            return false;
        }
        let mut permit = self.permit.lock();
        match bytes.checked_sub(permit.bytes()) {
            None | Some(0) => true,
            Some(more) => permit.grow(more.next_multiple_of(STEP)).is_ok(),
        }
    }
}

/// Granularity of the permit in bytes.
const STEP: usize = 64 << 10;
