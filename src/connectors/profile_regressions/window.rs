//! The current window: sums of the profiles that arrived in it.

use std::sync::Arc;

use tokio::time::Instant;

use super::finding::SeriesKey;
use super::history::ClosedWindow;
use super::shares::{FunctionSum, SUM_BYTES};
use crate::pipeline::holding;
use tributary_memory::Permit;

/// Sums of one profile.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) series: SeriesKey,
    pub(super) version: String,
    pub(super) total: f64,
    pub(super) samples: u64,
    /// Values by function. A name may occur several times; its values add up.
    pub(super) functions: Vec<(String, FunctionSum)>,
}

/// Reason why samples are in no comparison: the `reason` label of the skipped samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Skipped {
    /// The values are levels, such as memory in use: successive windows depend on each other.
    Level,
    /// The values count from the start of the process.
    Cumulative,
    /// Another profile of the scope has the same samples by their duration.
    Redundant,
    /// The request breaks the rules of its dictionary, or has too many frames or names.
    Unusable,
    /// The memory limit or the memory budget is used up.
    NoRoom,
    /// There are too many series, or too many versions of a series.
    TooMany,
    /// The logs pipeline does not accept the findings of earlier windows.
    Full,
}

impl Skipped {
    pub(super) const ALL: [Skipped; 7] = [
        Skipped::Level,
        Skipped::Cumulative,
        Skipped::Redundant,
        Skipped::Unusable,
        Skipped::NoRoom,
        Skipped::TooMany,
        Skipped::Full,
    ];

    /// Returns the label's value.
    pub(super) fn name(self) -> &'static str {
        match self {
            Skipped::Level => "level",
            Skipped::Cumulative => "cumulative",
            Skipped::Redundant => "redundant",
            Skipped::Unusable => "unusable",
            Skipped::NoRoom => "no_room",
            Skipped::TooMany => "too_many",
            Skipped::Full => "full",
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct WindowBounds {
    pub(super) max_series: usize,
    pub(super) max_bytes: usize,
}

/// Memory of a series and of a version of a series, besides their texts and functions.
const SERIES_BYTES: usize = 256;
const VERSION_BYTES: usize = 128;

/// Sums of the profiles since the start of the window.
pub(super) struct Window {
    /// End of the window.
    pub(super) due: Instant,
    pub(super) sums: ClosedWindow,
    pub(super) bytes: usize,
    permit: Permit,
}

impl Window {
    /// Begins a window at this time, in milliseconds since 1970. `permit` is empty.
    pub(super) fn new(due: Instant, start: u64, permit: Permit) -> Self {
        Window {
            due,
            sums: ClosedWindow {
                times: (start, start),
                ..ClosedWindow::default()
            },
            bytes: 0,
            permit,
        }
    }

    /// Adds a profile as a whole, or not at all, so that shares are not distorted.
    pub(super) fn add(&mut self, profile: Measured, bounds: WindowBounds) -> Result<(), Skipped> {
        let Measured {
            series,
            version,
            total,
            samples,
            functions,
        } = profile;
        let known = self.sums.series.get(&series);
        if known.is_none() && self.sums.series.len() >= bounds.max_series {
            return Err(Skipped::TooMany);
        }
        let sums = known.and_then(|versions| versions.get(version.as_str()));
        let mut growth = match (known, sums) {
            (None, _) => SERIES_BYTES + series.bytes() + VERSION_BYTES + version.len(),
            (Some(_), None) => VERSION_BYTES + version.len(),
            (Some(_), Some(_)) => 0,
        };
        for (name, _) in &functions {
            let is_known = sums.is_some_and(|sums| sums.functions.contains_key(name.as_str()));
            growth += if is_known { 0 } else { SUM_BYTES + name.len() };
        }
        if self.bytes + growth > bounds.max_bytes || self.permit.grow(growth).is_err() {
            return Err(Skipped::NoRoom);
        }
        self.bytes += growth;
        let versions = self.sums.series.entry(Arc::new(series)).or_default();
        let sums = versions.entry(version.into()).or_default();
        sums.total += total;
        sums.samples += samples;
        for (name, sum) in functions {
            sums.add(&name, sum);
        }
        Ok(())
    }

    pub(super) fn samples(&self) -> u64 {
        let versions = self
            .sums
            .series
            .values()
            .flat_map(|versions| versions.values());
        versions.map(|sums| sums.samples).sum()
    }
}

impl holding::Bytes for Window {
    fn bytes(&self) -> usize {
        self.bytes
    }
}
