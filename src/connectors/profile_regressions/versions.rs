//! The versions of a series, and the comparison of each new one with its predecessor.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use super::compare::{Change, Part, Thresholds, compare};
use super::finding::Side;
use super::shares::Shares;

/// Maximum number of versions of a series: the current one, its predecessor, and two more for
/// experiments and rollbacks.
const MOST_VERSIONS: usize = 4;
/// Memory of a version, besides its windows.
const VERSION_BYTES: usize = 256;

/// Times of the comparisons, in windows of the newer version.
#[derive(Debug, Clone, Copy)]
pub(super) struct Schedule {
    /// Windows of the first comparison.
    pub(super) first: usize,
    /// Windows of the last comparison, and maximum number of windows to keep.
    pub(super) last: usize,
}

impl Schedule {
    /// Windows between two comparisons. Each look at the data costs power, so there are few.
    fn step(self) -> usize {
        (self.first / 2).max(1)
    }

    /// Number of comparisons of two versions.
    pub(super) fn looks(self) -> usize {
        1 + self.last.saturating_sub(self.first).div_ceil(self.step())
    }

    /// Returns the number of windows at which the comparison with this number is due.
    fn due(self, look: usize) -> usize {
        (self.first + look * self.step()).min(self.last)
    }
}

/// The last windows of each version of a series.
#[derive(Debug, Default)]
pub(super) struct Versions {
    /// In the order of their first window.
    all: Vec<Version>,
}

#[derive(Debug)]
struct Version {
    name: Arc<str>,
    windows: VecDeque<Shares>,
    /// Number of windows so far.
    seen: usize,
    /// Time of the last window, in windows of the connector.
    used: u64,
    /// Version to compare with, as of the first comparison.
    predecessor: Option<Arc<str>>,
    /// Number of comparisons so far.
    looks: usize,
    found: HashSet<(Arc<str>, Part)>,
}

impl Versions {
    /// Adds the window of a version at this time, counted in windows. Returns false if too many
    /// other versions are in use.
    pub(super) fn add(
        &mut self,
        name: &Arc<str>,
        shares: Shares,
        now: u64,
        schedule: Schedule,
    ) -> bool {
        let known = self.all.iter().position(|version| version.name == *name);
        let at = match known {
            Some(at) => at,
            None if self.make_room(now) => {
                self.all.push(Version {
                    name: name.clone(),
                    windows: VecDeque::new(),
                    seen: 0,
                    used: now,
                    predecessor: None,
                    looks: 0,
                    found: HashSet::new(),
                });
                self.all.len() - 1
            }
            None => return false,
        };
        if let Some(version) = self.all.get_mut(at) {
            if version.windows.len() == schedule.last {
                version.windows.pop_front();
            }
            version.windows.push_back(shares);
            version.seen += 1;
            version.used = now;
        }
        true
    }

    /// Removes the least recently used version if there are too many. A version in use stays.
    fn make_room(&mut self, now: u64) -> bool {
        if self.all.len() < MOST_VERSIONS {
            return true;
        }
        let oldest = self
            .all
            .iter()
            .enumerate()
            .min_by_key(|(_, version)| version.used);
        let Some((at, used)) = oldest.map(|(at, version)| (at, version.used)) else {
            return true;
        };
        let is_idle = used + 1 < now;
        if is_idle {
            self.all.remove(at);
        }
        is_idle
    }

    /// Compares a version with its predecessor, if that is due. Returns both sides and the changes
    /// that were not found before.
    pub(super) fn compare(
        &mut self,
        name: &str,
        schedule: Schedule,
        thresholds: &Thresholds,
    ) -> Option<(Side, Side, Vec<Change>)> {
        let at = self.all.iter().position(|version| &*version.name == name)?;
        let version = self.all.get(at)?;
        if version.looks >= schedule.looks() || version.seen < schedule.due(version.looks) {
            return None;
        }
        let mut others = self.all.iter().take(at).rev();
        let predecessor = match &version.predecessor {
            Some(chosen) => others.find(|other| other.name == *chosen),
            // The predecessor may have been withdrawn at once: then its own one is taken.
            None => others.find(|other| other.windows.len() >= schedule.first),
        }?;
        let before: Vec<&Shares> = predecessor.windows.iter().collect();
        let after: Vec<&Shares> = version.windows.iter().collect();
        let mut changes = compare(&before, &after, thresholds);
        let sides = (
            Side::of(&predecessor.name, &before),
            Side::of(&version.name, &after),
        );
        let chosen = predecessor.name.clone();
        let version = self.all.get_mut(at)?;
        version.predecessor = Some(chosen);
        version.looks += 1;
        changes.retain(|change| version.found.insert((change.function.clone(), change.part)));
        Some((sides.0, sides.1, changes))
    }

    /// Returns the approximate memory, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let bytes = self.all.iter().map(|version| {
            let windows: usize = version.windows.iter().map(Shares::bytes).sum();
            VERSION_BYTES + version.name.len() + windows + version.found.len() * 32
        });
        bytes.sum()
    }
}
