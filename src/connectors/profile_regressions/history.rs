//! The last windows of all series, within bounds.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::compare::{Change, Thresholds};
use super::days::{Days, HourBounds};
use super::finding::{Comparison, Finding, SeriesKey, Side};
use super::shares::{Names, SUM_BYTES, Shares, Sums, name_bytes};
use super::versions::{Schedule, Versions};
use tributary_memory::{Budget, Permit};

#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) schedule: Schedule,
    pub(super) thresholds: Thresholds,
    pub(super) versions: bool,
    /// Whether hours are compared; if so, each window with a number divisible by this one counts.
    pub(super) hours: Option<u64>,
    pub(super) max_functions: usize,
    pub(super) max_series: usize,
    pub(super) max_bytes: usize,
}

#[derive(Debug, Default)]
pub(super) struct ClosedWindow {
    /// Start and end, in milliseconds since 1970.
    pub(super) times: (u64, u64),
    /// Sums of each series by version.
    pub(super) series: HashMap<Arc<SeriesKey>, BTreeMap<Arc<str>, Sums>, RandomState>,
}

/// Result of a window.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) findings: Vec<Finding>,
    pub(super) comparisons: u64,
    /// Number of samples in windows that were not kept: for lack of memory, and because of too many
    /// series or versions.
    pub(super) no_room: u64,
    pub(super) too_many: u64,
}

/// Shares of all series.
pub(super) struct History {
    settings: Settings,
    series: HashMap<Arc<SeriesKey>, Series, RandomState>,
    /// Number of windows so far.
    windows: u64,
    bytes: usize,
    permit: Permit,
}

#[derive(Default)]
struct Series {
    names: Names,
    /// Number of names from which unused ones are removed.
    clean_at: usize,
    versions: Versions,
    days: Days,
    /// End of the last window, in milliseconds since 1970.
    used: u64,
}

/// Memory of a series, besides its key, names and windows.
const SERIES_BYTES: usize = 512;
/// Upper bound of the memory of a new version and a new hour, besides their windows.
const GROUP_BYTES: usize = 1536;
/// A series without windows for this long is forgotten: a day and an hour, in milliseconds.
const FORGET_AFTER: u64 = 25 * 3_600_000;
/// Fewest names from which unused ones are removed.
const FEW_NAMES: usize = 256;

impl History {
    pub(super) fn new(settings: Settings, budget: &Arc<Budget>) -> Self {
        History {
            settings,
            series: HashMap::default(),
            windows: 0,
            bytes: 0,
            permit: budget.empty_permit(),
        }
    }

    /// Returns the memory of the windows, in bytes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a window, and compares what is due.
    pub(super) fn add(&mut self, window: &ClosedWindow) -> Outcome {
        let mut outcome = Outcome::default();
        self.windows += 1;
        self.forget(window.times.1);
        for (key, versions) in &window.series {
            if !self.series.contains_key(key) {
                let samples = || versions.values().map(|sums| sums.samples).sum::<u64>();
                let bytes = SERIES_BYTES + key.bytes();
                if self.series.len() >= self.settings.max_series {
                    outcome.too_many += samples();
                    continue;
                }
                if !self.reserve(self.bytes + bytes) {
                    outcome.no_room += samples();
                    continue;
                }
                self.bytes += bytes;
            }
            self.add_series(key, versions, window.times, &mut outcome);
        }
        // The lists of what was found may have grown; if there is no room now, the next window
        // reserves it.
        let _ = self.permit.resize(self.bytes);
        outcome
    }

    fn add_series(
        &mut self,
        key: &Arc<SeriesKey>,
        versions: &BTreeMap<Arc<str>, Sums>,
        times: (u64, u64),
        outcome: &mut Outcome,
    ) {
        let mut series = self.series.remove(key).unwrap_or_default();
        self.bytes = self.bytes.saturating_sub(series.bytes());
        series.used = times.1;
        let Settings {
            schedule,
            thresholds,
            ..
        } = self.settings;
        let mut found = |comparison, result: Option<(Side, Side, Vec<Change>)>| {
            let Some((before, after, changes)) = result else {
                return;
            };
            outcome.comparisons += 1;
            let findings = changes.into_iter().map(|change| Finding {
                series: key.clone(),
                comparison,
                before: before.clone(),
                after: after.clone(),
                change,
            });
            outcome.findings.extend(findings);
        };
        let (mut no_room, mut too_many) = (0, 0);
        if self.settings.versions {
            for (version, sums) in versions {
                let Some(shares) = self.shares(sums, times, &mut series, &mut no_room) else {
                    continue;
                };
                if !series.versions.add(version, shares, self.windows, schedule) {
                    too_many += sums.samples;
                    continue;
                }
                let result = series.versions.compare(version, schedule, &thresholds);
                found(Comparison::PreviousVersion, result);
            }
        }
        if let Some((version, sums, _memory)) = self.of_all(versions, &mut no_room)
            && let Some(shares) = self.shares(&sums, times, &mut series, &mut no_room)
        {
            let bounds = HourBounds {
                least: schedule.first,
                most: schedule.last,
            };
            // Each hour is looked at once.
            let thresholds = Thresholds {
                looks: 1,
                ..thresholds
            };
            let result = series.days.add(&version, shares, bounds, &thresholds);
            found(Comparison::DayBefore, result);
        }
        outcome.no_room += no_room;
        outcome.too_many += too_many;
        series.clean_names();
        self.bytes += series.bytes();
        self.series.insert(key.clone(), series);
    }

    /// Returns the sums of all versions with their memory, and the name of the heaviest version, if
    /// the window counts for its hour.
    fn of_all<'s>(
        &self,
        versions: &'s BTreeMap<Arc<str>, Sums>,
        no_room: &mut u64,
    ) -> Option<(Arc<str>, Cow<'s, Sums>, Option<Permit>)> {
        if !self.windows.is_multiple_of(self.settings.hours?) {
            return None;
        }
        let heaviest = versions
            .iter()
            .max_by(|a, b| a.1.total.total_cmp(&b.1.total));
        let (version, sums) = heaviest?;
        if versions.len() == 1 {
            return Some((version.clone(), Cow::Borrowed(sums), None));
        }
        let all = versions.values();
        let bytes = all.clone().map(|sums| sums.functions.len() * SUM_BYTES);
        let Ok(memory) = self.permit.another(bytes.sum()) else {
            *no_room += all.map(|sums| sums.samples).sum::<u64>();
            return None;
        };
        let mut sums = Sums::default();
        all.for_each(|more| sums.add_all(more));
        Some((version.clone(), Cow::Owned(sums), Some(memory)))
    }

    /// Returns the shares of a window, if there is room for them.
    fn shares(
        &mut self,
        sums: &Sums,
        times: (u64, u64),
        series: &mut Series,
        no_room: &mut u64,
    ) -> Option<Shares> {
        // Shares far below the least share never become findings.
        let least = self.settings.thresholds.min_share as f32 / 10.0;
        let mut shares = Shares::of(sums, times, self.settings.max_functions, least)?;
        shares.intern(&mut series.names);
        if self.reserve(self.bytes + series.bytes() + shares.bytes() + GROUP_BYTES) {
            return Some(shares);
        }
        *no_room += sums.samples;
        drop(shares);
        series.names.retain(|name| Arc::strong_count(name) > 1);
        None
    }

    /// Reserves memory; returns false if there is none.
    fn reserve(&mut self, used: usize) -> bool {
        let more = used.saturating_sub(self.permit.bytes());
        used <= self.settings.max_bytes && (more == 0 || self.permit.grow(more).is_ok())
    }

    /// Removes series that have ended.
    fn forget(&mut self, now: u64) {
        let bytes = &mut self.bytes;
        self.series.retain(|key, series| {
            let is_kept = series.used + FORGET_AFTER > now;
            if !is_kept {
                let freed = SERIES_BYTES + key.bytes() + series.bytes();
                *bytes = bytes.saturating_sub(freed);
            }
            is_kept
        });
    }
}

impl Series {
    /// Returns the approximate memory, in bytes.
    fn bytes(&self) -> usize {
        let names: usize = self.names.iter().map(|name| name_bytes(name)).sum();
        names + self.versions.bytes() + self.days.bytes()
    }

    fn clean_names(&mut self) {
        if self.names.len() > self.clean_at.max(FEW_NAMES) {
            self.names.retain(|name| Arc::strong_count(name) > 1);
            self.clean_at = 2 * self.names.len();
        }
    }
}
