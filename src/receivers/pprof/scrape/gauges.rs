//! Metrics of scraping, with the Collector's names where they exist.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::Duration;

use metrics::{Counter, Gauge, counter, gauge};
use parking_lot::Mutex;

use tributary_config::ComponentId;

/// Counters of a section.
#[derive(Clone)]
pub(super) struct ScraperMetrics {
    /// `otelcol_scraper_scraped_profile_records`: scraped samples.
    pub(super) scraped: Counter,
    /// `otelcol_scraper_errored_profile_records`: failed scrapes of profiles, since their number of
    /// samples is not known.
    pub(super) errored: Counter,
    /// `tributary_scraper_dropped_profiles`: scraped profiles that the pipeline or the memory
    /// budget refused.
    pub(super) dropped: Counter,
}

impl ScraperMetrics {
    /// Returns the counters of a section of a receiver.
    pub(super) fn new(receiver: &ComponentId, scraper: &'static str) -> Self {
        let labels = [
            ("receiver", receiver.to_string()),
            ("scraper", scraper.to_owned()),
        ];
        ScraperMetrics {
            scraped: counter!("otelcol_scraper_scraped_profile_records", &labels),
            errored: counter!("otelcol_scraper_errored_profile_records", &labels),
            dropped: counter!("tributary_scraper_dropped_profiles", &labels),
        }
    }
}

/// Gauges of a target's profile. When the last `Watch` of a profile is dropped, its gauges disappear.
/// During a reload, the previous and the new receiver each have a `Watch`.
pub(super) struct Watch {
    up: Gauge,
    duration: Gauge,
    key: Key,
}

/// Receiver, target and profile.
type Key = (String, String, String);

/// Number of `Watch` values for each key.
static WATCHES: LazyLock<Mutex<HashMap<Key, usize>>> = LazyLock::new(Mutex::default);

impl Watch {
    /// Returns the gauges of a target's profile. The gauges have no value before the first scrape.
    pub(super) fn new(receiver: &ComponentId, target: &str, profile: &str) -> Self {
        let key = (receiver.to_string(), target.to_owned(), profile.to_owned());
        let labels = [
            ("receiver", key.0.clone()),
            ("target", key.1.clone()),
            ("profile", key.2.clone()),
        ];
        let watch = Watch {
            up: gauge!("tributary_scraper_up", &labels),
            duration: gauge!("tributary_scraper_duration_seconds", &labels),
            key,
        };
        let mut watches = WATCHES.lock();
        let count = watches.entry(watch.key.clone()).or_default();
        *count += 1;
        if *count == 1 {
            watch.unknown();
        }
        watch
    }

    /// Records the success and the duration of the last scrape.
    pub(super) fn scraped(&self, up: bool, took: Duration) {
        self.up.set(if up { 1.0 } else { 0.0 });
        self.duration.set(took.as_secs_f64());
    }

    fn unknown(&self) {
        self.up.set(f64::NAN);
        self.duration.set(f64::NAN);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut watches = WATCHES.lock();
        if let Some(count) = watches.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                watches.remove(&self.key);
                self.unknown();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    #[test]
    fn target_stays_up_across_a_reload() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let page = recorder.handle();
        metrics::with_local_recorder(&recorder, || {
            let watch = || Watch::new(&"pprof/reload".parse().unwrap(), "host:1", "cpu");
            let shown = |value: &str| {
                let page = page.render();
                let mut lines = page.lines();
                let line = lines.find(|line| line.starts_with("tributary_scraper_up{"));
                assert!(line.is_some_and(|line| line.ends_with(value)), "{page}");
            };
            let old = watch();
            shown("} NaN");
            old.scraped(true, Duration::from_secs(1));
            let new = watch();
            shown("} 1");
            drop(old);
            shown("} 1");
            drop(new);
            shown("} NaN");
        });
    }
}
