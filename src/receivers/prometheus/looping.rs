//! Scrapes of one target at an interval, until the target vanishes.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{debug, info, warn};

use super::failure::ScrapeFailure;
use super::fetch::Fetcher;
use super::outlet::{JobCounters, Outlet};
use super::scrape::{ReceivedPage, Scraped, Scraper};
use crate::pipeline::turns::on_a_turn_if_large;
use crate::receivers::scraping::schedule::Schedule;

/// A target that is scraped.
pub(super) struct TargetLoop {
    pub(super) scraper: Scraper,
    pub(super) fetcher: Fetcher,
    pub(super) outlet: Arc<Outlet>,
    pub(super) counters: Arc<JobCounters>,
    /// Number of targets of the job.
    pub(super) targets: Arc<AtomicUsize>,
    /// Whether the target still exists.
    pub(super) exists: watch::Receiver<bool>,
    pub(super) schedule: Schedule,
}

impl TargetLoop {
    /// Scrapes until the target has vanished and its series have ended, or until the future is dropped.
    pub(super) async fn run(self) {
        let TargetLoop {
            scraper,
            fetcher,
            outlet,
            counters,
            targets,
            mut exists,
            schedule,
        } = self;
        let url = scraper.target.url.to_string();
        let url = tributary_config::without_url_secrets(&url).into_owned();
        let interval = scraper.target.interval;
        let most = scraper.target.timeout;
        let limit = scraper.job.limits.targets;
        let mut scraper = Some(scraper);
        let mut failing = 0_u64;
        let mut due = schedule.first();
        let mut has_scraped = false;
        while let Some(mut own) = scraper.take() {
            let is_due = tokio::select! {
                () = sleep_until(due) => true,
                () = becomes(&mut exists, false) => false,
            };
            if !is_due {
                if !has_scraped {
                    return;
                }
                if ends(&mut exists, due, interval).await {
                    outlet.send(own.vanish(milliseconds()), &url).await;
                    // The target may be back since.
                    if !*exists.borrow() {
                        return;
                    }
                    has_scraped = false;
                }
                due = schedule.next(Instant::now(), 0, 1);
                scraper = Some(own);
                continue;
            }
            has_scraped = true;
            let (time, began) = (milliseconds(), Instant::now());
            let count = targets.load(Relaxed);
            let page = match limit > 0 && count > limit {
                true => Err(ScrapeFailure::Limit(format!(
                    "the job has {count} targets, more than its `target_limit` {limit}"
                ))),
                false => match timeout(most, fetcher.fetch()).await {
                    Ok(page) => page,
                    Err(_) => Err(ScrapeFailure::Slow(most)),
                },
            };
            let took = began.elapsed();
            let work = size(&page);
            let done = on_a_turn_if_large(work, move || {
                let scraped = own.scrape(page, time, took);
                (own, scraped)
            });
            // Only at the end of the process.
            let Some((own, scraped)) = done.await else {
                return;
            };
            scraper = Some(own);
            let Scraped { request, failure } = scraped;
            counters.count(failure.is_some() || request.is_err());
            outlet.send(request, &url).await;
            failing = log(&outlet, &url, failure.as_ref(), failing);
            due = schedule.next(Instant::now(), 0, 1);
        }
    }
}

/// Waits until a vanished target has missed two scrapes and a tenth of the interval, as in Prometheus. Returns false if
/// the target is back before.
async fn ends(exists: &mut watch::Receiver<bool>, due: Instant, interval: Duration) -> bool {
    let end = due.max(Instant::now()) + interval + interval / 10;
    tokio::select! {
        () = sleep_until(end) => true,
        () = becomes(exists, true) => false,
    }
}

/// Waits until the target exists, or no longer does. Never returns if the job ends.
async fn becomes(exists: &mut watch::Receiver<bool>, wanted: bool) {
    let is_known = exists.wait_for(|exists| *exists == wanted).await.is_ok();
    if !is_known {
        std::future::pending::<()>().await;
    }
}

/// Returns the size of a page after decompression, in bytes. That of a compressed page is not known, so the page counts as
/// large: gzip shrinks some pages to a thousandth.
fn size(page: &Result<ReceivedPage, ScrapeFailure>) -> usize {
    match page {
        Err(_) => 0,
        Ok(page) if page.is_compressed => usize::MAX,
        Ok(page) => page.held.bytes.len(),
    }
}

/// Returns the time in milliseconds since 1970.
fn milliseconds() -> i64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}

/// Logs the first failure and the first success after failures; other failures at debug level. Returns the number of
/// failures in a row.
fn log(outlet: &Outlet, url: &str, failure: Option<&ScrapeFailure>, failing: u64) -> u64 {
    let Some(failure) = failure else {
        if failing > 0 && outlet.failures.admit().is_some() {
            info!(
                otelcol.component.id = %outlet.id,
                otelcol.component.kind = "receiver",
                url,
                failures = failing,
                "Scraping a target works again"
            );
        }
        return 0;
    };
    let admitted = (failing == 0).then(|| outlet.failures.admit()).flatten();
    match admitted {
        Some(suppressed) => warn!(
            otelcol.component.id = %outlet.id,
            otelcol.component.kind = "receiver",
            url,
            error = %failure,
            suppressed,
            "Cannot scrape a target"
        ),
        None => debug!(
            otelcol.component.id = %outlet.id,
            otelcol.component.kind = "receiver",
            url,
            error = %failure,
            "Cannot scrape a target"
        ),
    }
    failing + 1
}
