//! A job: discovers targets and runs a loop for each.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{SystemTime, UNIX_EPOCH};

use http::Uri;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::fetch::{Fetcher, JobClient};
use super::looping::TargetLoop;
use super::outlet::{JobCounters, Outlet};
use super::scrape::Scraper;
use super::settings::JobSettings;
use super::sources::Sources;
use super::target::ScrapeTarget;
use crate::receivers::scraping::found::Found;
use crate::receivers::scraping::schedule::Schedule;
use tributary_prometheus::LabelSet;

/// A job before its start.
pub(super) struct Pool {
    pub(super) settings: Arc<JobSettings>,
    pub(super) sources: Sources,
    pub(super) client: JobClient,
    pub(super) outlet: Arc<Outlet>,
}

/// A target that is scraped, by its labels and URL.
type Key = (LabelSet, Uri);

/// Running loops of a job.
struct Running {
    settings: Arc<JobSettings>,
    client: JobClient,
    outlet: Arc<Outlet>,
    counters: Arc<JobCounters>,
    targets: Arc<AtomicUsize>,
    loops: HashMap<Key, watch::Sender<bool>>,
    tasks: JoinSet<()>,
}

impl Pool {
    /// Runs the job until the future is dropped.
    pub(super) async fn run(self) {
        let counters = Arc::new(self.outlet.counters(&self.settings.job));
        let mut running = Running {
            settings: self.settings,
            client: self.client,
            outlet: self.outlet,
            counters,
            targets: Arc::default(),
            loops: HashMap::new(),
            tasks: JoinSet::new(),
        };
        self.sources.run(|found| running.update(found)).await;
    }
}

impl Running {
    /// Starts loops of new targets, and tells loops about vanished and returned targets.
    fn update(&mut self, found: BTreeSet<Found>) {
        // Reap the loops of vanished targets.
        while self.tasks.try_join_next().is_some() {}
        self.loops.retain(|_, exists| exists.receiver_count() > 0);
        let mut targets = HashMap::new();
        for found in found {
            match ScrapeTarget::new(&found, &self.settings) {
                Ok(Some(target)) => {
                    targets.insert((target.identity.clone(), target.url.clone()), target);
                }
                Ok(None) => {}
                Err(reason) => self.ignored(&found.address, &reason),
            }
        }
        self.targets.store(targets.len(), Relaxed);
        for (key, exists) in &self.loops {
            let is_found = targets.remove(key).is_some();
            exists.send_if_modified(|exists| std::mem::replace(exists, is_found) != is_found);
        }
        for (key, target) in targets {
            let address = target.origin.instance.clone();
            match self.start(target) {
                Ok(exists) => {
                    self.loops.insert(key, exists);
                }
                Err(reason) => self.ignored(&address, &reason),
            }
        }
        debug!(
            otelcol.component.id = %self.outlet.id,
            otelcol.component.kind = "receiver",
            job = self.settings.job,
            targets = self.targets.load(Relaxed),
            "Updated the targets of a job"
        );
    }

    fn start(&mut self, target: ScrapeTarget) -> Result<watch::Sender<bool>, String> {
        let fetcher = Fetcher::new(self.client.clone(), &self.settings, &target)?;
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let key = format!("{}\0{}", target.url, target.origin.instance);
        let schedule = Schedule::spread(Instant::now(), now, target.interval, &key);
        let (sender, exists) = watch::channel(true);
        let budget = self.outlet.budget.clone();
        let own = TargetLoop {
            scraper: Scraper::new(target, self.settings.clone(), budget),
            fetcher,
            outlet: self.outlet.clone(),
            counters: self.counters.clone(),
            targets: self.targets.clone(),
            exists,
            schedule,
        };
        self.tasks.spawn(own.run());
        Ok(sender)
    }

    fn ignored(&self, address: &str, reason: &str) {
        if let Some(suppressed) = self.outlet.failures.admit() {
            warn!(
                otelcol.component.id = %self.outlet.id,
                otelcol.component.kind = "receiver",
                job = self.settings.job,
                address,
                error = reason,
                suppressed,
                "Ignored a target"
            );
        }
    }
}
