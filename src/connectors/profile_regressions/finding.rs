//! Findings: a change of one function in one series.

use std::sync::Arc;

use super::compare::Change;
use super::shares::Shares;

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct SeriesKey {
    pub(super) service: String,
    /// Name of the sample type, such as `cpu`.
    pub(super) sample_type: String,
    /// Name of the profile, sample type with unit, and period with unit, as in the label
    /// `__profile_type__` of the profile store.
    pub(super) profile_type: String,
}

impl SeriesKey {
    /// Returns the memory of the texts, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.service.len() + self.sample_type.len() + self.profile_type.len()
    }
}

/// A group of windows that is compared with another group.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Side {
    pub(super) version: Arc<str>,
    /// Times of the windows, in milliseconds since 1970.
    pub(super) from: u64,
    pub(super) until: u64,
}

impl Side {
    pub(super) fn of(version: &Arc<str>, windows: &[&Shares]) -> Self {
        Side {
            version: version.clone(),
            from: windows.first().map_or(0, |window| window.start),
            until: windows.last().map_or(0, |window| window.end),
        }
    }
}

/// Origin of the windows to compare with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    PreviousVersion,
    DayBefore,
}

/// A significant change in a series.
#[derive(Debug, Clone)]
pub(super) struct Finding {
    pub(super) series: Arc<SeriesKey>,
    pub(super) comparison: Comparison,
    pub(super) before: Side,
    pub(super) after: Side,
    pub(super) change: Change,
}
