//! Scrapes of one profile of one target at an interval.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::Uri;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{debug, info, warn};

use super::failure::Failure;
use super::fetch::{Fetch, Fetched};
use super::gate::{self, Gate};
use super::gauges::{ScraperMetrics, Watch};
use crate::receivers::pprof::delta::Deltas;
use crate::receivers::profile_intake::{Accepted, Intake, Origin, Refused, Subject};
use crate::receivers::scraping::client::BodyBounds;
use crate::receivers::scraping::schedule::Schedule;
use tributary_config::ComponentId;
use tributary_net::sampled_log::SampledLog;

/// State shared by all jobs of a receiver.
pub(in super::super) struct Shared {
    pub(super) id: ComponentId,
    /// Limit on concurrent requests.
    pub(super) slots: Option<Semaphore>,
    /// Current factor by which intervals are longer than configured.
    pub(super) stretch: watch::Receiver<u32>,
    /// Previous profiles, for the differences of cumulative profiles.
    pub(super) deltas: Arc<Deltas>,
    /// Log of failed scrapes.
    pub(super) failures: SampledLog,
    /// Log of refused profiles.
    pub(super) refusals: SampledLog,
}

/// A profile that is scraped from a target.
pub(super) struct Job {
    /// The target's `host:port`.
    pub(super) target: Arc<str>,
    /// Name of the profile.
    pub(super) profile: Arc<str>,
    pub(super) url: Uri,
    pub(super) subject: Arc<Subject>,
    pub(super) fetch: Arc<dyn Fetch>,
    pub(super) intake: Intake,
    /// Time that the target takes to create the profile.
    pub(super) takes: Option<Duration>,
    /// Timeout of a scrape.
    pub(super) timeout: Duration,
    pub(super) schedule: Schedule,
    /// Whether cumulative profiles become differences.
    pub(super) delta: bool,
    pub(super) metrics: ScraperMetrics,
}

/// Outcome of a scrape that delivered no profile to the pipeline.
enum Ended {
    /// The target sent no profile.
    Failed(Failure),
    /// The profile was dropped; the target is not at fault.
    Dropped(Refused),
}

/// A request in flight. A cancelled request is logged, because it may have cost a long CPU profile.
struct InFlight<'j> {
    job: &'j Job,
    shared: &'j Shared,
    began: Instant,
    ended: bool,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        if let Some(suppressed) = self.shared.failures.admit() {
            info!(
                otelcol.component.id = %self.shared.id,
                otelcol.component.kind = "receiver",
                profile = %self.job.profile,
                url = %shown(&self.job.url),
                after = ?self.began.elapsed(),
                suppressed,
                "Cancelled a scrape in progress: the receiver is shutting down, or the target was removed"
            );
        }
    }
}

impl Job {
    /// Runs until the future is dropped.
    pub(super) async fn run(self, shared: Arc<Shared>) {
        let watch = Watch::new(&shared.id, &self.target, &self.profile);
        // Scrapes of the same URL that take time or become differences must not overlap, even while a
        // reload replaces the receiver.
        let alone = self.takes.is_some() || self.delta;
        let gate = alone.then(|| gate::of(&self.url));
        let mut stretch = shared.stretch.clone();
        let mut failures: u32 = 0;
        let mut due = self.schedule.first();
        // Message of the last log line.
        let mut said = String::new();
        loop {
            self.wait(due, failures, &mut stretch).await;
            match self.scrape(&shared, gate.as_deref(), &watch).await {
                Ok(Accepted { samples, .. }) => {
                    self.metrics.scraped.increment(samples as u64);
                    self.recovered(&shared, failures);
                    failures = 0;
                    said.clear();
                }
                Err(Ended::Dropped(refused)) => {
                    self.metrics.dropped.increment(1);
                    self.dropped(&shared, &refused);
                    failures = 0;
                    said.clear();
                }
                Err(Ended::Failed(failure)) => {
                    self.metrics.errored.increment(1);
                    failures = failures.saturating_add(1);
                    self.failed(&shared, &failure, &mut said);
                }
            }
            let factor = *stretch.borrow_and_update();
            due = self.schedule.next(Instant::now(), failures, factor);
        }
    }

    /// Waits until the profile is due: at `due`, or sooner if the intervals become shorter. A back-off
    /// is not shortened.
    async fn wait(&self, mut due: Instant, failures: u32, stretch: &mut watch::Receiver<u32>) {
        loop {
            tokio::select! {
                () = sleep_until(due) => return,
                Ok(()) = stretch.changed(), if failures < 2 => {
                    let factor = *stretch.borrow_and_update();
                    due = due.min(self.schedule.next(Instant::now(), failures, factor));
                }
            }
        }
    }

    async fn scrape(
        &self,
        shared: &Shared,
        gate: Option<&Gate>,
        watch: &Watch,
    ) -> Result<Accepted, Ended> {
        let alone = match gate {
            Some(gate) => Some(gate.lock().await),
            None => None,
        };
        let slot = match &shared.slots {
            Some(slots) => slots.acquire().await.ok(),
            None => None,
        };
        let began = Instant::now();
        let start = SystemTime::now().duration_since(UNIX_EPOCH);
        let bounds = BodyBounds {
            limit: self.intake.limit,
            budget: self.intake.budget.clone(),
        };
        let fetch = timeout(self.timeout, self.fetch.fetch(&self.url, &bounds));
        let mut in_flight = InFlight {
            job: self,
            shared,
            began,
            ended: false,
        };
        let fetched = match fetch.await {
            Ok(fetched) => fetched,
            Err(_) => Err(Failure::Slow(self.timeout)),
        };
        in_flight.ended = true;
        drop(slot);
        let _alone = alone.filter(|_| self.delta);
        let took = began.elapsed();
        let Fetched { held, content_type } = fetched.map_err(|failure| match failure {
            Failure::NoRoom(no_room) => Ended::Dropped(Refused::NoRoom(no_room)),
            failure => {
                watch.scraped(false, took);
                Ended::Failed(failure)
            }
        })?;
        let start = start.map_or(0, |start| start.as_nanos());
        let origin = Origin {
            subject: self.subject.clone(),
            profile: Some(self.profile.clone()),
            start: u64::try_from(start).unwrap_or(0),
            duration: self.takes.unwrap_or_default(),
            is_interval: false,
        };
        let taken = match self.delta {
            true => {
                let series = format!("{}\0{}", self.url, self.profile);
                let deltas = &shared.deltas;
                let taken = deltas.forward(&self.intake, held, origin, &series).await;
                taken.map(|(accepted, _)| accepted)
            }
            false => self.intake.take(held, origin).await,
        };
        let result = taken.map_err(|refused| match refused {
            Refused::TooLarge(limit, _) => Ended::Failed(Failure::TooLarge(limit)),
            Refused::Unreadable(_) | Refused::Unusable(_) => {
                Ended::Failed(Failure::content(&content_type, &refused))
            }
            refused => Ended::Dropped(refused),
        });
        watch.scraped(!matches!(result, Err(Ended::Failed(_))), took);
        result
    }

    /// Logs the first failure and each different message. Repetitions are logged at debug level.
    fn failed(&self, shared: &Shared, failure: &Failure, said: &mut String) {
        let message = failure.to_string();
        let admitted = (message != *said).then(|| shared.failures.admit());
        match admitted.flatten() {
            Some(suppressed) => warn!(
                otelcol.component.id = %shared.id,
                otelcol.component.kind = "receiver",
                profile = %self.profile,
                url = %shown(&self.url),
                error = message,
                suppressed,
                "Cannot scrape a profile; retrying at growing intervals"
            ),
            None => debug!(
                otelcol.component.id = %shared.id,
                otelcol.component.kind = "receiver",
                profile = %self.profile,
                url = %shown(&self.url),
                error = message,
                "Cannot scrape a profile"
            ),
        }
        *said = message;
    }

    fn dropped(&self, shared: &Shared, refused: &Refused) {
        if let Some(suppressed) = shared.refusals.admit() {
            warn!(
                otelcol.component.id = %shared.id,
                otelcol.component.kind = "receiver",
                profile = %self.profile,
                url = %shown(&self.url),
                error = %refused,
                suppressed,
                "Dropped a scraped profile, because the pipeline refused it"
            );
        }
    }

    fn recovered(&self, shared: &Shared, failures: u32) {
        if failures > 0 && shared.failures.admit().is_some() {
            info!(
                otelcol.component.id = %shared.id,
                otelcol.component.kind = "receiver",
                profile = %self.profile,
                url = %shown(&self.url),
                failures,
                "Scraping a profile works again"
            );
        }
    }
}

/// Returns the URL for the log, without the secrets in its parameters.
fn shown(url: &Uri) -> String {
    tributary_config::without_url_secrets(&url.to_string()).into_owned()
}
