//! One series of a family, and the points that it accepts.

use std::sync::Arc;

use super::ends::Ends;
use super::exemplar::{self, Exemplar};
use super::labels::Labels;
use super::naming::Namer;
use super::origin::Origin;
use super::room::Room;
use super::value::{Invalid, Sum, Value};

/// One series.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) labels: Box<[u8]>,
    pub(super) origin: Arc<Origin>,
    /// Start time of the count in nanoseconds since 1970; 0 if unknown.
    pub(super) start: u64,
    /// Time of the measurement in nanoseconds since 1970; 0 if unknown.
    pub(super) time: u64,
    pub(super) value: Value,
    // A boxed vector is as small as a pointer; most series have no exemplars.
    #[allow(clippy::box_collection)]
    pub(super) exemplars: Option<Box<Vec<Exemplar>>>,
    /// End times of the deltas, from the second delta on.
    pub(super) ends: Option<Box<Ends>>,
    /// Time of the last point, in ticks of the table.
    pub(super) seen: u32,
    /// Number of the last scrape when the series began. That scrape skips the series, because it
    /// may have shown it in another slot.
    pub(super) born: u32,
}

/// A point, without its attributes.
#[derive(Debug)]
pub(super) struct Point {
    pub(super) start: u64,
    pub(super) time: u64,
    /// The value; `None` if the point marks the end of the series.
    pub(super) value: Option<Value>,
    pub(super) exemplars: Vec<Exemplar>,
    pub(super) delta: bool,
}

/// Data to find the series of a point.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) origin: &'a Arc<Origin>,
    pub(super) namer: &'a Namer,
    pub(super) room: &'a Room,
    /// Current time in ticks.
    pub(super) now: u32,
    /// Number of the last scrape.
    pub(super) scrape: u32,
}

/// Reason why a point was rejected: the `reason` of
/// `tributary_exporter_prometheus_rejected_points`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rejection {
    /// The point would begin a new series, and there is no room.
    NoRoom,
    /// An equally new or newer point was received before.
    OutOfOrder,
    /// The point is invalid, or the exposition cannot represent it.
    Invalid,
    /// Another metric of another type has the name.
    Conflict,
}

impl Rejection {
    /// All reasons.
    pub(super) const ALL: [Rejection; 4] = [
        Rejection::NoRoom,
        Rejection::OutOfOrder,
        Rejection::Invalid,
        Rejection::Conflict,
    ];

    /// Returns the value of the label.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Rejection::NoRoom => "no_room",
            Rejection::OutOfOrder => "out_of_order",
            Rejection::Invalid => "invalid",
            Rejection::Conflict => "conflict",
        }
    }
}

impl Slot {
    /// Whether the slot is the series with these labels. Labels of the point and of its origin
    /// count alike.
    pub(super) fn is(&self, labels: &Labels, packed: &[u8], origin: &Arc<Origin>) -> bool {
        if Arc::ptr_eq(&self.origin, origin) {
            return *self.labels == *packed;
        }
        let sorted = |packed, origin: &Origin| {
            let all = labels.unpack(packed).chain(origin.labels());
            let mut all: Vec<(String, String)> = all
                .map(|(name, value)| (name.escaped.to_string(), value.to_owned()))
                .collect();
            all.sort();
            all
        };
        sorted(&self.labels, &self.origin) == sorted(packed, origin)
    }

    pub(super) fn hash(&self, labels: &Labels) -> u64 {
        labels.hash(&self.labels).wrapping_add(self.origin.hash)
    }

    /// Returns the number of series as Prometheus counts them and the memory in bytes, including
    /// the share of the index.
    pub(super) fn size(&self) -> (usize, usize) {
        let exemplars = self.exemplars.as_ref().map_or(0, |exemplars| {
            size_of::<Vec<Exemplar>>() + exemplars.capacity() * size_of::<Exemplar>()
        });
        let ends = self.ends.as_ref().map_or(0, |ends| ends.bytes());
        let own = size_of::<Slot>() + INDEX_BYTES + self.labels.len() + ends;
        (self.value.series(), own + self.value.bytes() + exemplars)
    }

    /// Records the end of a delta unless it is a duplicate. A late delta with other buckets cannot
    /// be added and does not restart the series.
    pub(super) fn admit(&mut self, end: u64, value: &Value, room: &Room) -> Result<(), Rejection> {
        if end < self.time && !self.value.adds_up_with(value) {
            return Err(Rejection::OutOfOrder);
        }
        let growth = self
            .ends
            .as_ref()
            .map_or(size_of::<Ends>(), |ends| ends.growth());
        if !room.take(0, growth) {
            return Err(Rejection::NoRoom);
        }
        let (last, before) = (self.time, self.size().1);
        let ends = self.ends.get_or_insert_with(|| Box::new(Ends::new(last)));
        let is_new = ends.admit(end);
        room.give(0, (before + growth).saturating_sub(self.size().1));
        is_new.then_some(()).ok_or(Rejection::OutOfOrder)
    }

    /// Adds a delta. Returns whether the value continues the previous one.
    pub(super) fn add(&mut self, delta: Value, room: &Room) -> Result<bool, Rejection> {
        match self.value.add(delta) {
            Ok(Sum::Added) => Ok(true),
            Ok(Sum::Becomes { value, continued }) => self.replace(value, room).map(|()| continued),
            Err(Invalid) => Err(Rejection::Invalid),
        }
    }

    /// Replaces the value if there is room.
    pub(super) fn replace(&mut self, value: Value, room: &Room) -> Result<(), Rejection> {
        let before = self.size();
        let now = (
            value.series(),
            before.1 - self.value.bytes() + value.bytes(),
        );
        if !room.resize(before, now) {
            return Err(Rejection::NoRoom);
        }
        self.value = value;
        Ok(())
    }

    /// Switches to another origin with the same labels, because its other data is newer.
    pub(super) fn adopt(&mut self, origin: &Arc<Origin>, packed: &[u8], room: &Room) {
        let before = self.size();
        let now = (before.0, before.1 - self.labels.len() + packed.len());
        if room.resize(before, now) {
            self.labels = packed.into();
            self.origin = origin.clone();
        }
    }

    /// Keeps the newest exemplars if there is room.
    pub(super) fn keep(&mut self, new: Vec<Exemplar>, room: &Room) {
        if new.is_empty() {
            return;
        }
        let before = self.size();
        let of_one_bucket = match self.value {
            Value::Exponential(_) => 10,
            _ => 1,
        };
        let kept = self.exemplars.get_or_insert_default();
        let value = &self.value;
        exemplar::keep(
            kept,
            new.into_iter(),
            |exemplar| value.bucket(exemplar),
            of_one_bucket,
        );
        // More exemplars than this occur only if the bounds change constantly.
        let most = of_one_bucket.max(value.series());
        if kept.len() > most {
            kept.sort_unstable_by_key(|exemplar| std::cmp::Reverse(exemplar.time));
            kept.truncate(most);
        }
        if !room.resize(before, self.size()) {
            self.exemplars = None;
            room.give(0, before.1.saturating_sub(self.size().1));
        }
    }
}

/// Bytes of an index entry: a number and a byte in a table that is at most seven eighths full, plus
/// the spare slots.
const INDEX_BYTES: usize = 24;
