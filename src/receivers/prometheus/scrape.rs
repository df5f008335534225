//! A scrape: from the response to an encoded request.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::cache::Cache;
use super::encode::{Encoded, Unencoded, encode};
use super::failure::ScrapeFailure;
use super::family::Observation;
use super::page::{Counts, PageReader, report_series};
use super::point::stale;
use super::series::Series;
use super::settings::JobSettings;
use super::target::ScrapeTarget;
use super::transaction::Transaction;
use crate::serving::body::ReceivedBytes;
use tributary_compression::Codec;
use tributary_compression::decompress::decompress;
use tributary_memory::{Budget, NoRoom, Permit};
use tributary_prometheus::ExpositionFormat;

/// Metrics about each scrape.
const REPORT: [&str; 5] = [
    "up",
    "scrape_duration_seconds",
    "scrape_samples_scraped",
    "scrape_samples_post_metric_relabeling",
    "scrape_series_added",
];

/// Metrics about each scrape that `extra_scrape_metrics` adds.
const EXTRA: [&str; 3] = [
    "scrape_timeout_seconds",
    "scrape_sample_limit",
    "scrape_body_size_bytes",
];

/// A target with the state that its scrapes share.
pub(super) struct Scraper {
    pub(super) job: Arc<JobSettings>,
    pub(super) target: ScrapeTarget,
    cache: Cache,
    report: Vec<Arc<Series>>,
    budget: Arc<Budget>,
}

/// A page as received.
pub(super) struct ReceivedPage {
    pub(super) held: ReceivedBytes,
    pub(super) content_type: String,
    pub(super) is_compressed: bool,
}

/// Result of a scrape.
pub(super) struct Scraped {
    /// The request, with the memory that it takes.
    pub(super) request: Result<(Encoded, Permit), Unencoded>,
    /// Reason why the page has no samples.
    pub(super) failure: Option<ScrapeFailure>,
}

impl Scraper {
    /// Creates the state before the first scrape.
    pub(super) fn new(target: ScrapeTarget, job: Arc<JobSettings>, budget: Arc<Budget>) -> Self {
        let extra = if job.extra_metrics { &EXTRA[..] } else { &[] };
        let report = REPORT.iter().chain(extra);
        Scraper {
            report: report
                .map(|name| report_series(name, &target, &job))
                .collect(),
            cache: Cache::new(&budget),
            target,
            job,
            budget,
        }
    }

    /// Reads a page, or takes note of a failure, and encodes the metrics. `time` is in milliseconds since 1970; `took` is
    /// the time of the request.
    pub(super) fn scrape(
        &mut self,
        page: Result<ReceivedPage, ScrapeFailure>,
        time: i64,
        took: Duration,
    ) -> Scraped {
        let began = std::time::Instant::now();
        let mut permit = self.budget.empty_permit();
        let mut transaction = Transaction::new();
        let mut counts = Counts::default();
        let mut size = match &page {
            Err(ScrapeFailure::TooLarge(_)) => -1.0,
            _ => 0.0,
        };
        let read = page
            .and_then(|page| self.body(page))
            .and_then(|(format, held)| {
                size = held.bytes.len() as f64;
                let is_empty = held.bytes.is_empty();
                let mut reader = PageReader {
                    job: &self.job,
                    target: &self.target,
                    cache: &mut self.cache,
                    time,
                    permit: &mut permit,
                    counts,
                    unreserved: 0,
                    process_start: None,
                };
                let read = match is_empty {
                    true => Ok(()),
                    false => reader.read(format, &held.bytes, &mut transaction),
                };
                counts = reader.counts;
                read.map(|()| is_empty)
            });
        let (ended, failure) = match read {
            Ok(false) => (self.cache.succeeded(), None),
            Ok(true) => (self.cache.failed(false), None),
            Err(failure) => {
                transaction = Transaction::new();
                let no_room = matches!(failure, ScrapeFailure::NoRoom(_));
                (self.cache.failed(no_room), Some(failure))
            }
        };
        self.end(&ended, time, &mut transaction);
        let limits = self.job.limits;
        let values = [
            if failure.is_none() { 1.0 } else { 0.0 },
            (took + began.elapsed()).as_secs_f64(),
            counts.scraped as f64,
            counts.kept as f64,
            counts.added as f64,
            self.target.timeout.as_secs_f64(),
            limits.samples as f64,
            size,
        ];
        for (series, value) in self.report.iter().zip(values) {
            self.report(series, time, value, &mut transaction);
        }
        Scraped {
            request: self.encode(transaction, permit),
            failure,
        }
    }

    /// Returns the request that ends all series of a target that vanished.
    ///
    /// # Errors
    /// The memory budget has no room for the request.
    pub(super) fn vanish(&mut self, time: i64) -> Result<(Encoded, Permit), Unencoded> {
        let mut transaction = Transaction::new();
        let ended = self.cache.failed(false);
        self.end(&ended, time, &mut transaction);
        for series in &self.report {
            self.report(series, time, stale(), &mut transaction);
        }
        let permit = self.budget.empty_permit();
        self.encode(transaction, permit)
    }

    fn encode(
        &self,
        transaction: Transaction,
        mut permit: Permit,
    ) -> Result<(Encoded, Permit), Unencoded> {
        let points = transaction.points();
        let unencoded = |no_room: NoRoom| Unencoded { points, no_room };
        let encoded = encode(transaction, self.job.trims_suffixes, &mut permit);
        let mut encoded = encoded.map_err(unencoded)?;
        encoded.request.shrink_to_fit();
        permit.resize(encoded.request.len()).map_err(unencoded)?;
        Ok((encoded, permit))
    }

    /// Returns the format and the decompressed bytes of a page.
    fn body(&self, page: ReceivedPage) -> Result<(ExpositionFormat, ReceivedBytes), ScrapeFailure> {
        let format = ExpositionFormat::of(&page.content_type).unwrap_or(self.job.fallback);
        if !page.is_compressed {
            return Ok((format, page.held));
        }
        let ReceivedBytes { bytes, mut permit } = page.held;
        let limit = self.job.limits.body;
        let bytes = Bytes::from(decompress(Codec::Gzip, &bytes, limit, &mut permit)?);
        Ok((format, ReceivedBytes { bytes, permit }))
    }

    fn end(&self, ended: &[Arc<Series>], time: i64, transaction: &mut Transaction) {
        let origin = &self.target.origin;
        transaction.add_ends(origin, &self.cache.descriptions, ended, time);
    }

    fn report(&self, series: &Arc<Series>, time: i64, value: f64, transaction: &mut Transaction) {
        let observation = Observation {
            series,
            time,
            start: None,
            exemplars: Vec::new(),
        };
        let origin = &self.target.origin;
        transaction.add(origin, &self.cache.descriptions, observation, value);
    }
}
