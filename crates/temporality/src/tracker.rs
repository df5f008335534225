//! The last points of all series.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use tributary_otlp::room::{Room, RoomExhausted, reserve};

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
    last: LastPoint,
    /// Changes that are neither confirmed nor undone, the oldest first.
    open: Vec<OpenChange>,
}

struct LastPoint {
    time: u64,
    value: PointValue,
}

/// A change of a series that can be undone.
struct OpenChange {
    number: u64,
    /// The last point before the change; `None` for a new series.
    before: Option<LastPoint>,
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
    /// Series, and the number of its change.
    changes: Vec<(u128, u64)>,
    /// Memory of the points before the changes, in bytes.
    points: usize,
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
            let stays = series.last.time >= before;
            if !stays {
                *bytes = bytes.saturating_sub(SERIES_BYTES + series.last.value.bytes());
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
            points: 0,
        }
    }

    /// Replaces the last point of a series, and returns the difference from it. The memory of the replaced point comes
    /// from `room`.
    pub(crate) fn advance(
        &self,
        identity: u128,
        start: u64,
        time: u64,
        value: PointValue,
        tentative: &mut Tentative,
        room: &dyn Room,
    ) -> Result<Result<Delta, DropCause>, RoomExhausted> {
        let state = &mut *self.state.lock();
        state.changes += 1;
        let number = state.changes;
        let count = state.series.len();
        match state.series.entry(identity) {
            Entry::Vacant(vacant) => {
                let bytes = state.bytes.saturating_add(SERIES_BYTES + value.bytes());
                if count >= self.limits.series || bytes > self.limits.bytes {
                    return Ok(Err(DropCause::Limit));
                }
                tentative.reserve(0, room)?;
                tentative.changes.push((identity, number));
                state.bytes = bytes;
                let series = vacant.insert(Series {
                    last: LastPoint {
                        time,
                        value: value.clone(),
                    },
                    open: Vec::new(),
                });
                series.opened(number, None);
                Ok(match self.first {
                    FirstPoint::Keep => Ok(Delta { start: 0, value }),
                    FirstPoint::Auto if start >= self.began && time != start => {
                        Ok(Delta { start, value })
                    }
                    FirstPoint::Auto | FirstPoint::Drop => Err(DropCause::Initial),
                })
            }
            Entry::Occupied(mut occupied) => {
                let series = occupied.get_mut();
                let before = series.last.time;
                let (difference, kept) = value.since(&series.last.value);
                let (old, new) = (series.last.value.bytes(), kept.bytes());
                let bytes = state.bytes.saturating_sub(old).saturating_add(new);
                if new > old && bytes > self.limits.bytes {
                    return Ok(Err(DropCause::Limit));
                }
                tentative.reserve(old, room)?;
                tentative.changes.push((identity, number));
                state.bytes = bytes;
                let last = LastPoint { time, value: kept };
                let replaced = std::mem::replace(&mut series.last, last);
                series.opened(number, Some(replaced));
                Ok(match difference {
                    Difference::Delta(value) => Ok(Delta {
                        start: before,
                        value,
                    }),
                    Difference::Reset => Err(DropCause::Reset),
                    Difference::OtherBuckets => Err(DropCause::BucketMismatch),
                })
            }
        }
    }
}

impl Series {
    /// Adds an open change. Most series have at most one.
    fn opened(&mut self, number: u64, before: Option<LastPoint>) {
        self.open.reserve_exact(1);
        self.open.push(OpenChange { number, before });
    }

    /// Removes a change and all older ones, because later points are compared with its point in any case.
    fn confirm(&mut self, number: u64) {
        self.open.retain(|change| change.number > number);
        if self.open.is_empty() {
            self.open = Vec::new();
        }
    }

    /// Removes a change that was refused. Returns the point that is the last one again (`None` if there was no earlier
    /// point); without a result, a later change stays, which restores that point when it is undone itself.
    fn undo(&mut self, number: u64) -> Option<Option<LastPoint>> {
        let at = self.open.iter().position(|open| open.number == number)?;
        let before = self.open.remove(at).before;
        if self.open.is_empty() {
            self.open = Vec::new();
        }
        match self.open.get_mut(at) {
            Some(later) => {
                later.before = before;
                None
            }
            None => Some(before),
        }
    }
}

impl Tentative {
    /// Takes memory for a change of a series whose last point has so many bytes.
    fn reserve(&mut self, point: usize, room: &dyn Room) -> Result<(), RoomExhausted> {
        reserve(room, &mut self.changes, 1)?;
        let bytes = size_of::<OpenChange>() + point;
        room.take(bytes)?;
        self.points += bytes;
        Ok(())
    }

    /// Returns the memory of the changes, in bytes.
    pub fn bytes(&self) -> usize {
        self.points + self.changes.capacity() * size_of::<(u128, u64)>()
    }

    /// Makes the changes final.
    pub fn confirm(mut self) {
        let changes = std::mem::take(&mut self.changes);
        let state = &mut *self.state.lock();
        for (identity, number) in changes {
            if let Some(series) = state.series.get_mut(&identity) {
                series.confirm(number);
            }
        }
    }
}

impl Drop for Tentative {
    fn drop(&mut self) {
        if self.changes.is_empty() {
            return;
        }
        let state = &mut *self.state.lock();
        for (identity, number) in self.changes.drain(..).rev() {
            let Entry::Occupied(mut occupied) = state.series.entry(identity) else {
                continue;
            };
            let series = occupied.get_mut();
            let Some(before) = series.undo(number) else {
                continue;
            };
            state.bytes = state.bytes.saturating_sub(series.last.value.bytes());
            match before {
                Some(last) => {
                    state.bytes += last.value.bytes();
                    series.last = last;
                }
                None => {
                    occupied.remove();
                    state.bytes = state.bytes.saturating_sub(SERIES_BYTES);
                }
            }
        }
    }
}
