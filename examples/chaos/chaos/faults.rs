//! Executes the plan of faults, and undoes each fault.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use rustix::process::Signal;
use tokio::task::JoinSet;

use super::backend::Mood;
use super::disk;
use super::locked;
use super::plan::{Fault, What};
use super::site::{FLUSH, OTHER_FLUSH, Site, make_certificates};
use super::tier::Tier;

/// Results of the faults, in addition to the results of the tiers.
#[derive(Default)]
pub struct Outcome {
    /// Violations.
    pub failures: Vec<String>,
    /// Whether bits were flipped in a queue.
    pub damaged: usize,
}

/// Executes all faults at their times, and returns when all are undone.
pub async fn play(site: &Arc<Site>, plan: Vec<Fault>) -> Outcome {
    let began = tokio::time::Instant::now();
    let mut under_way = JoinSet::new();
    let mut outcome = Outcome::default();
    for fault in plan {
        tokio::time::sleep_until(began + fault.at).await;
        let site = site.clone();
        under_way.spawn(async move {
            let Fault { at, lasts, what } = fault;
            println!("{at:>8.1?}  {} for {lasts:.1?}", site.describe(&what));
            let damages = matches!(what, What::Damage(_));
            let failed = |error| format!("{} at {at:.1?}: {error}", site.describe(&what));
            site.suffer(&what, lasts)
                .await
                .map(|()| damages)
                .map_err(failed)
        });
        // Failures are reported at once.
        while let Some(Ok(done)) = under_way.try_join_next() {
            outcome.note(done);
        }
    }
    while let Some(Ok(done)) = under_way.join_next().await {
        outcome.note(done);
    }
    outcome
}

impl Outcome {
    fn note(&mut self, done: Result<bool, String>) {
        match done {
            Ok(damages) => self.damaged += usize::from(damages),
            Err(failure) => {
                println!("FAILED: {failure}");
                self.failures.push(failure);
            }
        }
    }
}

impl Site {
    /// Describes a fault with the names of its targets.
    fn describe(&self, what: &What) -> String {
        let tier = |number: usize| &self.tiers[number].name;
        match what {
            What::Kill(at) => format!("{}: killed", tier(*at)),
            What::KillTwice(at) => format!("{}: killed, twice", tier(*at)),
            What::KillAtStart(at, soon) => {
                format!("{}: killed, and {soon:?} into its start", tier(*at))
            }
            What::Stop(at) => format!("{}: stopped", tier(*at)),
            What::Freeze(at) => format!("{}: frozen", tier(*at)),
            What::Reload(at) => format!("{}: reloaded", tier(*at)),
            What::BadReload(at) => format!("{}: reloaded, badly", tier(*at)),
            What::Link(at, trouble) => format!("link {}: {trouble:?}", self.links[*at].name),
            What::FullDisk(at) => format!("{}: disk full", tier(*at)),
            What::Sink(at, mood) => format!("backend ({}): {mood:?}", self.sinks[*at].name),
            What::Certificates => "new certificates".to_owned(),
            What::Damage(at) => format!("{}: a bit of its queue", tier(*at)),
        }
    }

    async fn suffer(&self, what: &What, lasts: Duration) -> Result<(), String> {
        match *what {
            What::Kill(tier) => self.kill(tier, lasts, 1).await,
            What::KillTwice(tier) => self.kill(tier, lasts, 2).await,
            What::KillAtStart(tier, soon) => {
                let tier = &self.tiers[tier];
                let mut life = tier.life.lock().await;
                tier.end(&mut life, Signal::KILL).await?;
                let mut new = Some(tier.spawn()?);
                tokio::time::sleep(soon).await;
                tier.end(&mut new, Signal::KILL).await?;
                tokio::time::sleep(lasts).await;
                tier.start(&mut life).await
            }
            What::Stop(tier) => {
                let tier = &self.tiers[tier];
                let mut life = tier.life.lock().await;
                let status = tier.end(&mut life, Signal::TERM).await?;
                tokio::time::sleep(lasts).await;
                tier.start(&mut life).await?;
                tier.expect_success(status)
            }
            What::Freeze(tier) => {
                let tier = &self.tiers[tier];
                let life = tier.life.lock().await;
                let process = life.as_ref().ok_or("it does not run")?;
                process.signal(Signal::STOP)?;
                tokio::time::sleep(lasts).await;
                process.signal(Signal::CONT)
            }
            What::Reload(tier) => self.reload(tier, true).await,
            What::BadReload(tier) => self.reload(tier, false).await,
            What::Link(link, trouble) => {
                self.links[link].begin(trouble);
                tokio::time::sleep(lasts).await;
                self.links[link].end();
                Ok(())
            }
            What::FullDisk(tier) => self.fill(tier, lasts).await,
            What::Sink(sink, mood) => {
                self.sinks[sink].mood.send_replace(mood);
                tokio::time::sleep(lasts).await;
                self.sinks[sink].mood.send_replace(Mood::Fine);
                Ok(())
            }
            What::Certificates => {
                let certificates = self.certificates.lock().await;
                let directory = certificates.clone();
                let renewal = move || make_certificates(&directory, true);
                // Keys and certificates are replaced one after the other: a process that starts in
                // between finds no matching pair.
                self.tiers.iter().for_each(|tier| trouble_starts(tier));
                let renewed = tokio::task::spawn_blocking(renewal).await;
                self.tiers.iter().for_each(trouble_ends_soon);
                renewed.map_err(|error| error.to_string())?
            }
            What::Damage(tier) => self.damage(tier, lasts).await,
        }
    }

    async fn kill(&self, tier: usize, down: Duration, times: usize) -> Result<(), String> {
        let tier = &self.tiers[tier];
        let mut life = tier.life.lock().await;
        for _ in 0..times {
            tier.end(&mut life, Signal::KILL).await?;
            tokio::time::sleep(down).await;
            tier.start(&mut life).await?;
        }
        Ok(())
    }

    async fn reload(&self, tier: usize, good: bool) -> Result<(), String> {
        let tier = &self.tiers[tier];
        let mut life = tier.life.lock().await;
        let own = tier.configurations.last().ok_or("no configuration")?;
        let io = |error: std::io::Error| error.to_string();
        let before = std::fs::read_to_string(own).map_err(io)?;
        let after = match good {
            true if before.contains(OTHER_FLUSH) => before.replace(OTHER_FLUSH, FLUSH),
            true => before.replace(FLUSH, OTHER_FLUSH),
            false => before.replace(FLUSH, "soon").replace(OTHER_FLUSH, "soon"),
        };
        std::fs::write(own, after).map_err(io)?;
        let process = life.as_mut().ok_or("it does not run")?;
        let taken = tier.reload(process).await;
        if !good {
            std::fs::write(own, before).map_err(io)?;
        }
        // If the process may fail to start, the reload may be rejected, too.
        match (taken?, good) {
            (true, false) => Err("a configuration that cannot be run was taken".to_owned()),
            (false, true) if tier.start_troubles.load(Relaxed) == 0 => {
                Err("a good configuration was not taken".to_owned())
            }
            _ => Ok(()),
        }
    }

    async fn fill(&self, number: usize, lasts: Duration) -> Result<(), String> {
        let (tier, disk) = (&self.tiers[number], &self.disks[number]);
        let io = |error: std::io::Error| error.to_string();
        trouble_starts(tier);
        let filled = disk.fill().map_err(io);
        let end = tokio::time::Instant::now() + lasts;
        while tokio::time::Instant::now() < end {
            if number + 1 == self.tiers.len() {
                locked(&self.zone_disk_full).push(self.began.elapsed());
            }
            let soon = tokio::time::Instant::now() + Duration::from_millis(50);
            tokio::time::sleep_until(soon.min(end)).await;
        }
        let freed = disk.free().map_err(io);
        trouble_ends_soon(tier);
        filled.and(freed)
    }

    async fn damage(&self, number: usize, lasts: Duration) -> Result<(), String> {
        let tier = &self.tiers[number];
        let mut life = tier.life.lock().await;
        // Blocks the next hop, so that data stays in the queue.
        let next = match number + 1 {
            next if next < self.tiers.len() => vec![&self.tiers[next].grpc],
            _ => self.links.iter().rev().take(2).collect(),
        };
        for link in &next {
            link.begin(super::link::Trouble::Cut);
        }
        tokio::time::sleep(lasts).await;
        tier.end(&mut life, Signal::TERM).await?;
        let directory = self.disks[number].path.join("queues");
        if let Some(segment) = disk::segments(&directory).first() {
            let before = waiting(&tier.binary, &directory).await?;
            let at = disk::flip(segment).map_err(|error| error.to_string())?;
            let lost = before.saturating_sub(waiting(&tier.binary, &directory).await?);
            self.damaged_items.fetch_add(lost, Relaxed);
            println!(
                "          a bit of {} at {at}: {lost} items are lost",
                segment.display()
            );
        }
        let started = tier.start(&mut life).await;
        for link in &next {
            link.end();
        }
        started
    }
}

fn trouble_starts(tier: &Tier) {
    tier.start_troubles.fetch_add(1, Relaxed);
}

/// Ends the trouble after a delay, because a start in progress may have seen it.
fn trouble_ends_soon(tier: &Arc<Tier>) {
    let tier = tier.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(5)).await;
        tier.start_troubles.fetch_sub(1, Relaxed);
    });
}

/// Returns the number of items that the collector finds in the queues of a stopped process.
async fn waiting(binary: &Path, queues: &Path) -> Result<u64, String> {
    let mut inspect = tokio::process::Command::new(binary);
    inspect.args(["queue", "inspect"]);
    for entry in std::fs::read_dir(queues).map_err(|error| error.to_string())? {
        // The directory of a tier, such as `rack`.
        inspect.arg(entry.map_err(|error| error.to_string())?.path());
    }
    let output = inspect.output().await.map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stdout);
    let counts = said.lines().filter_map(|line| {
        let (_, items) = line
            .trim()
            .strip_prefix("waiting: ")?
            .split_once(" records, ")?;
        items.split(' ').next()?.parse::<u64>().ok()
    });
    Ok(counts.sum())
}
