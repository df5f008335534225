//! The last points of all series.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use foldhash::fast::RandomState;
use parking_lot::Mutex;

use crate::kinds::DropCause;
use crate::point::{Difference, PointValue};

/// Treatment of the first point of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstPoint {
    /// Emitted if the series began after the tracker, and not with this point.
    Auto,
    /// Emitted as it is.
    Keep,
    /// Dropped.
    Drop,
}

/// Bounds of the memory of a tracker.
#[derive(Debug, Clone, Copy)]
pub struct TrackerLimits {
    /// Maximum number of series.
    pub series: usize,
    /// Maximum memory of the points, in bytes.
    pub bytes: usize,
}

/// The last point of each series.
pub struct DeltaTracker {
    state: Arc<Mutex<State>>,
    first: FirstPoint,
    limits: TrackerLimits,
    /// Unix time at which the tracker began, in ns.
    began: u64,
    /// Seed of the identities, so that clients cannot construct series with equal identities.
    pub(crate) seed: u64,
}

#[derive(Default)]
struct State {
    series: HashMap<u128, Series, RandomState>,
    bytes: usize,
    /// Number of changes so far.
    changes: u64,
}

struct Series {
    time: u64,
    value: PointValue,
    /// The change that set this value.
    change: u64,
}

/// Memory of a series besides its value, in bytes. The table may have twice the capacity of its size.
const SERIES_BYTES: usize = 2 * size_of::<(u128, Series)>();

/// A delta of a point.
pub(crate) struct Delta {
    pub(crate) start: u64,
    pub(crate) value: PointValue,
}

/// Changes of a tracker that can be undone until they are [confirmed](Self::confirm). Dropping undoes them.
pub struct Tentative {
    state: Arc<Mutex<State>>,
    /// Series, its last point before the change (`None` for a new series), and the change.
    changes: Vec<(u128, Option<Series>, u64)>,
}

impl DeltaTracker {
    /// Creates a tracker that begins at the Unix time `began`, in ns.
    pub fn new(first: FirstPoint, limits: TrackerLimits, began: u64, seed: u64) -> Self {
        DeltaTracker {
            state: Arc::default(),
            first,
            limits,
            began,
            seed,
        }
    }

    /// Returns the number of series.
    pub fn series(&self) -> usize {
        self.state.lock().series.len()
    }

    /// Returns the memory of the series, in bytes.
    pub fn bytes(&self) -> usize {
        self.state.lock().bytes
    }

    /// Forgets the series whose last point is older than the Unix time `before`, in ns.
    pub fn forget_before(&self, before: u64) {
        let state = &mut *self.state.lock();
        let bytes = &mut state.bytes;
        state.series.retain(|_, series| {
            let stays = series.time >= before;
            if !stays {
                *bytes = bytes.saturating_sub(SERIES_BYTES + series.value.bytes());
            }
            stays
        });
        state.series.shrink_to(state.series.len() * 2);
    }

    /// Begins changes that can be undone.
    pub(crate) fn begin(&self) -> Tentative {
        Tentative {
            state: self.state.clone(),
            changes: Vec::new(),
        }
    }

    /// Replaces the last point of a series, and returns the difference from it.
    pub(crate) fn advance(
        &self,
        identity: u128,
        start: u64,
        time: u64,
        value: PointValue,
        tentative: &mut Tentative,
    ) -> Result<Delta, DropCause> {
        let state = &mut *self.state.lock();
        state.changes += 1;
        let change = state.changes;
        let count = state.series.len();
        match state.series.entry(identity) {
            Entry::Vacant(vacant) => {
                let bytes = SERIES_BYTES + value.bytes();
                if count >= self.limits.series
                    || state.bytes.saturating_add(bytes) > self.limits.bytes
                {
                    return Err(DropCause::Limit);
                }
                state.bytes += bytes;
                tentative.changes.push((identity, None, change));
                vacant.insert(Series {
                    time,
                    value: value.clone(),
                    change,
                });
                match self.first {
                    FirstPoint::Keep => Ok(Delta { start: 0, value }),
                    FirstPoint::Auto if start >= self.began && time != start => {
                        Ok(Delta { start, value })
                    }
                    FirstPoint::Auto | FirstPoint::Drop => Err(DropCause::Initial),
                }
            }
            Entry::Occupied(mut occupied) => {
                let series = occupied.get_mut();
                let before = series.time;
                let (difference, kept) = value.since(&series.value);
                let (old, new) = (series.value.bytes(), kept.bytes());
                let next = Series {
                    time,
                    value: kept,
                    change,
                };
                let last = std::mem::replace(series, next);
                tentative.changes.push((identity, Some(last), change));
                state.bytes = state.bytes.saturating_sub(old) + new;
                match difference {
                    Difference::Delta(value) => Ok(Delta {
                        start: before,
                        value,
                    }),
                    Difference::Reset => Err(DropCause::Reset),
                    Difference::OtherBuckets => Err(DropCause::BucketMismatch),
                }
            }
        }
    }
}

impl Tentative {
    /// Makes the changes final.
    pub fn confirm(mut self) {
        self.changes.clear();
    }
}

impl Drop for Tentative {
    fn drop(&mut self) {
        if self.changes.is_empty() {
            return;
        }
        let state = &mut *self.state.lock();
        for (identity, before, change) in self.changes.drain(..).rev() {
            let Entry::Occupied(mut occupied) = state.series.entry(identity) else {
                continue;
            };
            // A later point of another request has been compared with this one.
            if occupied.get().change != change {
                continue;
            }
            state.bytes = state.bytes.saturating_sub(occupied.get().value.bytes());
            match before {
                Some(last) => {
                    state.bytes += last.value.bytes();
                    *occupied.get_mut() = last;
                }
                None => {
                    occupied.remove();
                    state.bytes = state.bytes.saturating_sub(SERIES_BYTES);
                }
            }
        }
    }
}
