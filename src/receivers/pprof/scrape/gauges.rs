//! What is counted of scraping: the Collector's names where it has them.

use std::time::Duration;

use metrics::{Counter, Gauge, counter, gauge};

use crate::config::ComponentId;

/// The counters of a section.
#[derive(Clone)]
pub(super) struct ScraperMetrics {
    /// `otelcol_scraper_scraped_profile_records`: samples that were had.
    pub(super) scraped: Counter,
    /// `otelcol_scraper_errored_profile_records`: profiles that were not. How many samples they have nobody knows.
    pub(super) errored: Counter,
    /// `tributary_scraper_dropped_profiles`: profiles that were had, and that the pipeline or the memory budget refused.
    pub(super) dropped: Counter,
}

impl ScraperMetrics {
    /// The handles of a section of a receiver.
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

/// How a profile of a target fares. When it is dropped the target is gone, and its gauges are not shown any more.
pub(super) struct Watch {
    up: Gauge,
    duration: Gauge,
}

impl Watch {
    /// The gauges of a profile of a target; not known yet.
    pub(super) fn new(receiver: &ComponentId, target: &str, profile: &str) -> Self {
        let labels = [
            ("receiver", receiver.to_string()),
            ("target", target.to_owned()),
            ("profile", profile.to_owned()),
        ];
        let watch = Watch {
            up: gauge!("tributary_scraper_up", &labels),
            duration: gauge!("tributary_scraper_duration_seconds", &labels),
        };
        watch.unknown();
        watch
    }

    /// The last scrape brought a profile, or not, and took so long.
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
        self.unknown();
    }
}
