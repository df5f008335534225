//! Metrics of a store.

use metrics::{Counter, Gauge, counter, gauge};
use parking_lot::Mutex;

use crate::metric::{self, Metric};
use tributary_config::ComponentId;
use tributary_profile_store::Stats;

pub(super) const METRICS: &[Metric] = &[
    metric::gauge(
        "tributary_exporter_profile_store_disk_bytes",
        "Size of all files of the profile store, in bytes",
    ),
    metric::gauge(
        "tributary_exporter_profile_store_memory_bytes",
        "Memory of the profile store for recent profiles, index and labels, in bytes",
    ),
    metric::gauge(
        "tributary_exporter_profile_store_query_memory_bytes",
        "Memory of running queries to the profile store, in bytes",
    ),
    metric::gauge(
        "tributary_exporter_profile_store_series",
        "Number of series in the profile store",
    ),
    metric::gauge(
        "tributary_exporter_profile_store_blocks",
        "Number of block files of the profile store, by the length of their windows",
    ),
    metric::counter(
        "tributary_exporter_profile_store_dropped_samples",
        "Number of samples dropped by the profile store, by reason: older than the retention, or no room in memory or \
         on disk",
    ),
    metric::counter(
        "tributary_exporter_profile_store_early_compactions",
        "Number of times that profiles were merged into longer windows early, for lack of space",
    ),
    metric::counter(
        "tributary_exporter_profile_store_damaged",
        "Number of damaged files and sections of the profile store that queries ignore",
    ),
    metric::counter(
        "tributary_exporter_profile_store_from_the_future",
        "Number of profiles with a time in the future, stored at their time of arrival",
    ),
];

/// Handles of the metrics of one exporter.
pub(super) struct StoreMetrics {
    disk: Gauge,
    memory: Gauge,
    query_memory: Gauge,
    series: Gauge,
    blocks: [Gauge; 3],
    too_old: Counter,
    no_room: Counter,
    early_compactions: Counter,
    damaged: Counter,
    from_the_future: Counter,
    /// The state that was counted last.
    counted: Mutex<Stats>,
}

impl StoreMetrics {
    /// Creates the handles. Events of the store until now are not counted again.
    pub(super) fn new(id: &ComponentId, counted: Stats) -> Self {
        let id = id.to_string();
        let size = |name: &'static str| {
            gauge!(
                format!("tributary_exporter_profile_store_{name}"),
                "exporter" => id.clone()
            )
        };
        let events = |name: &'static str| {
            counter!(
                format!("tributary_exporter_profile_store_{name}"),
                "exporter" => id.clone()
            )
        };
        let dropped = |reason: &'static str| {
            counter!(
                "tributary_exporter_profile_store_dropped_samples",
                "exporter" => id.clone(),
                "reason" => reason
            )
        };
        StoreMetrics {
            disk: size("disk_bytes"),
            memory: size("memory_bytes"),
            query_memory: size("query_memory_bytes"),
            series: size("series"),
            blocks: ["10s", "1m", "10m"].map(|window| {
                gauge!(
                    "tributary_exporter_profile_store_blocks",
                    "exporter" => id.clone(),
                    "window" => window
                )
            }),
            too_old: dropped("too_old"),
            no_room: dropped("no_room"),
            early_compactions: events("early_compactions"),
            damaged: events("damaged"),
            from_the_future: events("from_the_future"),
            counted: Mutex::new(counted),
        }
    }

    /// Shows the state of the store, and counts the events since the last call.
    pub(super) fn show(&self, now: &Stats) {
        self.disk.set(now.disk as f64);
        self.memory.set(now.memory as f64);
        self.query_memory.set(now.query_memory as f64);
        self.series.set(now.series as f64);
        for (gauge, count) in self.blocks.iter().zip(now.blocks) {
            gauge.set(count as f64);
        }
        let mut counted = self.counted.lock();
        let before = std::mem::replace(&mut *counted, *now);
        let count = |counter: &Counter, events: fn(&Stats) -> u64| {
            counter.increment(events(now).saturating_sub(events(&before)));
        };
        count(&self.too_old, |stats| stats.too_old);
        count(&self.no_room, |stats| stats.dropped_samples);
        count(&self.early_compactions, |stats| stats.early_compactions);
        count(&self.damaged, |stats| stats.damaged);
        count(&self.from_the_future, |stats| stats.from_the_future);
    }
}
