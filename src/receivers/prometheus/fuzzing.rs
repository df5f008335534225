//! Scrapes of a target, for fuzz targets.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::config::Config;
use super::scrape::{ReceivedPage, Scraper};
use super::settings::JobSettings;
use super::target::ScrapeTarget;
use crate::receivers::scraping::found::Found;
use crate::serving::body::ReceivedBytes;
use tributary_memory::Budget;
use tributary_prometheus::ExpositionFormat;

/// A target and its scrapes.
pub struct Scrapes {
    scraper: Scraper,
    budget: Arc<Budget>,
    time: i64,
}

impl Scrapes {
    /// Creates a target whose pages may have native histograms, and whose labels are honored.
    ///
    /// # Panics
    /// Panics if the configuration is invalid.
    pub fn new(native_histograms: bool, honor_labels: bool) -> Self {
        let mut config = Config::default();
        config
            .config
            .scrape_configs
            .push(super::config::ScrapeConfig {
                job_name: "job".to_owned(),
                scrape_native_histograms: Some(native_histograms),
                always_scrape_classic_histograms: Some(native_histograms),
                honor_labels,
                ..Default::default()
            });
        let settings = JobSettings::new(&config, &config.config.scrape_configs[0]);
        let settings = Arc::new(settings.unwrap_or_else(|error| unreachable!("{error}")));
        let found = Found {
            address: "target:80".to_owned(),
            name: None,
            labels: BTreeMap::new(),
        };
        let Ok(Some(target)) = ScrapeTarget::new(&found, &settings) else {
            unreachable!("the target is valid")
        };
        let budget = Budget::new(64 << 20);
        Scrapes {
            scraper: Scraper::new(target, settings, budget.clone()),
            budget,
            time: 1_700_000_000_000,
        }
    }

    /// Scrapes a page. Returns the request and its stated number of points.
    pub fn scrape(&mut self, format: ExpositionFormat, page: &[u8]) -> (Vec<u8>, usize) {
        let content_type = match format {
            ExpositionFormat::Text => "text/plain",
            ExpositionFormat::OpenMetrics => "application/openmetrics-text",
            ExpositionFormat::Protobuf => "application/vnd.google.protobuf",
        };
        let page = ReceivedPage {
            held: ReceivedBytes {
                bytes: Bytes::copy_from_slice(page),
                permit: self.budget.empty_permit(),
            },
            content_type: content_type.to_owned(),
            is_compressed: false,
        };
        self.time += 1000;
        let scraped = self.scraper.scrape(Ok(page), self.time, Duration::ZERO);
        match scraped.request {
            Ok((encoded, _)) => (encoded.request, encoded.points),
            Err(_) => (Vec::new(), 0),
        }
    }

    /// Ends the target. Returns the bytes that stay reserved.
    pub fn end(self) -> usize {
        let Scrapes {
            scraper, budget, ..
        } = self;
        drop(scraper);
        budget.used()
    }
}
