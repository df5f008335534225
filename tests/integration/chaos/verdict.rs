//! The account of a round.

use std::fmt;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::load::Refusals;
use super::plan::{Fault, Plan, Topology};
use super::service::Lost;
use super::{BESIDE_LIMIT, CONSUMERS, LIMIT_MIB};
use crate::harness::{Backend, Oracle, Signal};

/// Time after which a delivery is recorded on disk, including a margin for a busy machine. Items delivered within this
/// time before a kill may be delivered again.
const RECORDED: Duration = Duration::from_secs(3);
const SET_ASIDE: usize = 10;

/// Items accepted by the next hops, by time.
#[derive(Default)]
pub struct Accepted(Mutex<Vec<(Instant, usize)>>);

impl Accepted {
    /// Records that so many items were accepted now.
    pub fn note(&self, items: usize) {
        let mut all = self.0.lock().unwrap();
        let sum = all.last().map_or(0, |(_, sum)| *sum);
        all.push((Instant::now(), sum + items));
    }

    /// Number of accepted items.
    pub fn items(&self) -> usize {
        self.0.lock().unwrap().last().map_or(0, |(_, sum)| *sum)
    }

    /// Number of items accepted within that time before now.
    fn recent(&self, within: Duration) -> usize {
        let all = self.0.lock().unwrap();
        let old = all.partition_point(|(at, _)| at.elapsed() > within);
        let before = old.checked_sub(1).map_or(0, |last| all[last].1);
        all.last().map_or(0, |(_, sum)| *sum) - before
    }
}

/// Causes of duplicates.
#[derive(Default)]
pub struct Accounts {
    pub accepted: Arc<Accepted>,
    /// Connections that the next hops closed instead of answering.
    pub cut: Arc<AtomicUsize>,
    /// Items that were delivered shortly before a kill, or while deliveries could not be recorded.
    pub unrecorded: usize,
    /// Times at which everything in flight may have been interrupted.
    interruptions: usize,
    pub poisoned: usize,
}

impl Accounts {
    /// Records that the process was killed and is ready again.
    pub fn killed(&mut self) {
        self.unrecorded += self.accepted.recent(RECORDED);
        self.interruptions += 1;
    }

    /// Records that requests in flight may have been accepted without an acknowledgement, up to this many times.
    pub fn interrupted(&mut self, times: usize) {
        self.interruptions += times;
    }
}

/// Result of a round.
#[derive(Debug, Default)]
pub struct Report {
    pub acknowledged: usize,
    pub refused: usize,
    /// Refusals because a queue or the memory was full.
    pub full: usize,
    /// Acknowledged items that did not arrive.
    pub missing: usize,
    /// Items that the collector reported as lost, at most.
    pub reported: usize,
    pub invented: usize,
    /// Deliveries of an item beyond the first.
    pub duplicates: usize,
    /// Duplicates that the faults explain, at most.
    pub explained: usize,
    /// The most memory that a life had, in bytes.
    pub peak: u64,
    pub lives: usize,
    /// Failed checks.
    pub failures: Vec<String>,
}

impl Report {
    /// Counts the items of a round. `lost` are the losses that the collector reported.
    pub fn of(
        plan: &Plan,
        oracle: &Oracle,
        backends: &[&Backend],
        accounts: &Accounts,
        refusals: &Refusals,
        lost: Lost,
    ) -> Self {
        let sizes = backends.iter().map(|backend| {
            let record = backend.record();
            let sizes = record.accepted.iter();
            sizes.map(|accepted| accepted.telemetry.ids().len()).max()
        });
        let largest = sizes.flatten().max().unwrap_or_default();
        // With several next hops, parts of a batch may be delivered long before the rest.
        let in_flight = match plan.topology {
            Topology::Failover | Topology::Balancing => CONSUMERS * (1 + SET_ASIDE),
            _ => CONSUMERS,
        };
        let at_once = in_flight * Signal::ALL.len() * largest;
        let cut = accounts.cut.load(Relaxed);
        Report {
            acknowledged: oracle.acknowledged_count(),
            refused: refusals.refused.load(Relaxed),
            full: refusals.full.load(Relaxed),
            missing: oracle.missing_among(backends).len(),
            reported: lost.items + lost.records * largest.max(plan.items),
            invented: oracle.unsent_among(backends),
            duplicates: oracle.duplicates_among(backends),
            explained: accounts.unrecorded
                + accounts.interruptions * at_once
                + cut * CONSUMERS * largest,
            failures: refusals.wrong.lock().unwrap().clone(),
            ..Report::default()
        }
    }

    /// Compares the counts with the promises of the plan.
    pub fn judge(&mut self, plan: &Plan) {
        let has = |is_it: fn(Fault) -> bool| plan.steps.iter().any(|step| is_it(step.fault));
        let bound = (LIMIT_MIB + BESIDE_LIMIT) << 20;
        let may_lose = has(Fault::may_lose);
        let losable = if may_lose { self.reported } else { 0 };
        let checks = [
            (
                self.acknowledged == 0,
                "nothing was acknowledged".to_owned(),
            ),
            (
                self.missing > losable,
                format!("{} items are missing, {losable} reported", self.missing),
            ),
            (
                self.reported > 0 && !has(Fault::may_alarm),
                format!("{} items reported as lost, without a fault", self.reported),
            ),
            (
                self.invented > 0,
                format!("{} items arrived that nobody sent", self.invented),
            ),
            (
                self.duplicates > self.explained,
                format!(
                    "{} duplicates, of which the faults explain {}",
                    self.duplicates, self.explained
                ),
            ),
            (
                self.peak > bound,
                format!("{} bytes of memory, {bound} allowed", self.peak),
            ),
        ];
        let failed = checks.into_iter().filter(|(failed, _)| *failed);
        self.failures.extend(failed.map(|(_, what)| what));
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} items acknowledged, {} missing ({} reported), {} duplicates ({} explained), {} refusals ({} for want of \
             room), {} lives, peak memory {:.1} MiB",
            self.acknowledged,
            self.missing,
            self.reported,
            self.duplicates,
            self.explained,
            self.refused,
            self.full,
            self.lives,
            self.peak as f64 / f64::from(1 << 20),
        )
    }
}
