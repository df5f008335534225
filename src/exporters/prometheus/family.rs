//! A metric family as Prometheus defines it: a name, a type, and its series.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashTable;

use super::ends::Ends;
use super::exemplar::{self, Exemplar};
use super::labels::{Labels, Packed, Unfit};
use super::naming::{Name, Namer};
use super::origin::Origin;
use super::room::Room;
use super::value::{Invalid, Sum, Value};
use tributary_otlp::view::Attribute;

/// Metric types of Prometheus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Gauge,
    Counter,
    /// A histogram with explicit or exponential buckets.
    Histogram,
    Summary,
    /// A metric scraped from Prometheus that had no type there.
    Unknown,
}

impl Kind {
    /// Returns the type's name in the text format; OpenMetrics has another name for the last type.
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Gauge => "gauge",
            Kind::Counter => "counter",
            Kind::Histogram => "histogram",
            Kind::Summary => "summary",
            Kind::Unknown => "untyped",
        }
    }

    /// Returns the suffixes of sample names, besides the family's name itself.
    pub(super) fn suffixes(self) -> &'static [&'static str] {
        match self {
            Kind::Histogram => &["_bucket", "_sum", "_count"],
            Kind::Summary => &["_sum", "_count"],
            _ => &[],
        }
    }

    /// Returns the label that the type reserves.
    fn reserved(self) -> &'static str {
        match self {
            Kind::Histogram => "le",
            Kind::Summary => "quantile",
            _ => "",
        }
    }
}

/// All series of one name.
#[derive(Debug)]
pub(super) struct Family {
    pub(super) name: Name,
    pub(super) kind: Kind,
    /// The first description received.
    pub(super) help: Box<str>,
    pub(super) unit: Option<Box<str>>,
    /// Whether a conflict about this name was logged.
    pub(super) contested: AtomicBool,
    /// Number of aliases that the table remembers.
    pub(super) aliases: AtomicUsize,
    series: Mutex<Series>,
}

impl Family {
    /// Returns a family without series.
    pub(super) fn new(name: &str, kind: Kind, help: &str, unit: Option<String>) -> Self {
        Family {
            name: Name::of_metric(name),
            kind,
            help: help.into(),
            unit: unit.map(Into::into),
            contested: AtomicBool::new(false),
            aliases: AtomicUsize::new(0),
            series: Mutex::new(Series {
                labels: Labels::new(kind.reserved()),
                slots: Vec::new(),
                free: Vec::new(),
                index: HashTable::new(),
                packed: Packed::default(),
                closed: false,
            }),
        }
    }

    /// Locks the series. Hold the lock only for the time that a few hundred series take.
    pub(super) fn lock(&self) -> MutexGuard<'_, Series> {
        self.series.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The series of a family.
#[derive(Debug)]
pub(super) struct Series {
    pub(super) labels: Labels,
    /// Series in stable slots, so that a scrape finds its position after releasing the lock.
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    /// Slots, by the hash of all labels.
    index: HashTable<u32>,
    packed: Packed,
    /// Whether the family was removed from the table; the caller must look it up again.
    pub(super) closed: bool,
}

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
    ends: Option<Box<Ends>>,
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
    /// Whether the value is a delta.
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

impl Series {
    /// Accepts a point.
    ///
    /// For cumulative points and gauges, the newest point wins. Deltas are added up, even across
    /// gaps: the count within a gap is unknown, but the earlier count remains valid. A delta with
    /// the same end time as an earlier one is a duplicate. A late delta is added as long as it can
    /// be told from duplicates.
    pub(super) fn take<'a>(
        &mut self,
        attributes: impl Iterator<Item = Attribute<'a>>,
        point: Point,
        place: Place<'_>,
    ) -> Result<(), Rejection> {
        let Series { labels, packed, .. } = self;
        let within = (place.namer, place.room);
        labels
            .pack(attributes, place.origin, within, packed)
            .map_err(|unfit| match unfit {
                Unfit::TooMany => Rejection::NoRoom,
                Unfit::TooLong => Rejection::Invalid,
            })?;
        let hash = packed.hash.wrapping_add(place.origin.hash);
        let (slots, labels, packed) = (&self.slots, &self.labels, &self.packed);
        let known = self.index.find(hash, |number| {
            let slot = slots.get(*number as usize).and_then(Option::as_ref);
            slot.is_some_and(|slot| slot.is(labels, &packed.bytes, place.origin))
        });
        match known.copied() {
            Some(number) => self.update(number, point, place),
            None => self.begin(hash, point, place),
        }
    }

    /// Returns the series in a range of slots.
    pub(super) fn slots(&self, range: Range<usize>) -> impl Iterator<Item = &Slot> {
        let end = range.end.min(self.slots.len());
        let slots = self.slots.get(range.start.min(end)..end);
        slots.unwrap_or_default().iter().flatten()
    }

    /// Returns the number of slots.
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there are no series.
    pub(super) fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Removes the series in these slots whose last point is before `before`.
    pub(super) fn expire(&mut self, range: Range<usize>, before: u32, room: &Room) {
        for number in range.start..range.end.min(self.slots.len()) {
            let old = |slot: &Slot| slot.seen < before;
            if self
                .slots
                .get(number)
                .and_then(Option::as_ref)
                .is_some_and(old)
                && let Ok(number) = u32::try_from(number)
            {
                self.remove(number, room);
            }
        }
    }

    /// Releases the slots behind the last series once they are half of all slots, so that a burst
    /// does not take memory forever.
    pub(super) fn shrink(&mut self) {
        let used = self.slots.iter().rposition(Option::is_some);
        let used = used.map_or(0, |last| last + 1);
        if self.slots.len() < LEAST_SLOTS || used > self.slots.len() / 2 {
            return;
        }
        self.slots.truncate(used);
        self.slots.shrink_to_fit();
        self.free.retain(|number| (*number as usize) < used);
        self.free.shrink_to_fit();
        let (slots, labels) = (&self.slots, &self.labels);
        let count = self.index.len();
        self.index.shrink_to(count, |number| {
            let slot = slots.get(*number as usize).and_then(Option::as_ref);
            slot.map_or(0, |slot| slot.hash(labels))
        });
    }

    fn begin(&mut self, hash: u64, point: Point, place: Place<'_>) -> Result<(), Rejection> {
        let Some(value) = point.value else {
            return Ok(());
        };
        let slot = Slot {
            labels: self.packed.bytes.as_slice().into(),
            origin: place.origin.clone(),
            start: point.start,
            time: point.time,
            value,
            exemplars: None,
            ends: None,
            seen: place.now,
            born: place.scrape,
        };
        let size = slot.size();
        if !place.room.take(size.0, size.1) {
            return Err(Rejection::NoRoom);
        }
        let number = match self.free.pop() {
            Some(number) => number,
            None => {
                let Ok(number) = u32::try_from(self.slots.len()) else {
                    return Err(Rejection::NoRoom);
                };
                self.slots.push(None);
                number
            }
        };
        if let Some(free) = self.slots.get_mut(number as usize) {
            let slot = free.insert(slot);
            slot.keep(point.exemplars, place.room);
        }
        let (slots, labels) = (&self.slots, &self.labels);
        self.index.insert_unique(hash, number, |number| {
            let slot = slots.get(*number as usize).and_then(Option::as_ref);
            slot.map_or(0, |slot| slot.hash(labels))
        });
        Ok(())
    }

    fn update(&mut self, number: u32, point: Point, place: Place<'_>) -> Result<(), Rejection> {
        let Some(slot) = self.slots.get_mut(number as usize).and_then(Option::as_mut) else {
            return Ok(());
        };
        // Points without a time are taken as current.
        let is_late = point.time != 0 && point.time < slot.time;
        let Some(value) = point.value else {
            if is_late {
                return Err(Rejection::OutOfOrder);
            }
            self.remove(number, place.room);
            return Ok(());
        };
        let continued = match point.delta {
            true => {
                if point.time != 0 {
                    slot.admit(point.time, &value, place.room)?;
                }
                slot.add(value, place.room)?
            }
            false if is_late => return Err(Rejection::OutOfOrder),
            false => {
                slot.replace(value, place.room)?;
                false
            }
        };
        if !continued {
            slot.start = point.start;
        }
        if !is_late {
            slot.time = point.time;
            if !Arc::ptr_eq(&slot.origin, place.origin) {
                slot.adopt(place.origin, &self.packed.bytes, place.room);
            }
        }
        slot.seen = place.now;
        slot.keep(point.exemplars, place.room);
        Ok(())
    }

    fn remove(&mut self, number: u32, room: &Room) {
        let Some(slot) = self.slots.get_mut(number as usize).and_then(Option::take) else {
            return;
        };
        let hash = slot.hash(&self.labels);
        if let Ok(entry) = self.index.find_entry(hash, |other| *other == number) {
            entry.remove();
        }
        self.free.push(number);
        let (series, bytes) = slot.size();
        room.give(series, bytes);
    }
}

impl Slot {
    /// Whether the slot is the series with these labels. Labels of the point and of its origin
    /// count alike.
    fn is(&self, labels: &Labels, packed: &[u8], origin: &Arc<Origin>) -> bool {
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

    fn hash(&self, labels: &Labels) -> u64 {
        labels.hash(&self.labels).wrapping_add(self.origin.hash)
    }

    /// Returns the number of series as Prometheus counts them and the memory in bytes, including
    /// the share of the index.
    fn size(&self) -> (usize, usize) {
        let exemplars = self.exemplars.as_ref().map_or(0, |exemplars| {
            size_of::<Vec<Exemplar>>() + exemplars.capacity() * size_of::<Exemplar>()
        });
        let ends = self.ends.as_ref().map_or(0, |ends| ends.bytes());
        let own = size_of::<Slot>() + INDEX_BYTES + self.labels.len() + ends;
        (self.value.series(), own + self.value.bytes() + exemplars)
    }

    /// Records the end of a delta unless it is a duplicate. A late delta with other buckets cannot
    /// be added and does not restart the series.
    fn admit(&mut self, end: u64, value: &Value, room: &Room) -> Result<(), Rejection> {
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
    fn add(&mut self, delta: Value, room: &Room) -> Result<bool, Rejection> {
        match self.value.add(delta) {
            Ok(Sum::Added) => Ok(true),
            Ok(Sum::Becomes { value, continued }) => self.replace(value, room).map(|()| continued),
            Err(Invalid) => Err(Rejection::Invalid),
        }
    }

    /// Replaces the value if there is room.
    fn replace(&mut self, value: Value, room: &Room) -> Result<(), Rejection> {
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
    fn adopt(&mut self, origin: &Arc<Origin>, packed: &[u8], room: &Room) {
        let before = self.size();
        let now = (before.0, before.1 - self.labels.len() + packed.len());
        if room.resize(before, now) {
            self.labels = packed.into();
            self.origin = origin.clone();
        }
    }

    /// Keeps the newest exemplars if there is room.
    fn keep(&mut self, new: Vec<Exemplar>, room: &Room) {
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
/// Minimum number of slots; fewer are not worth releasing.
const LEAST_SLOTS: usize = 64;
