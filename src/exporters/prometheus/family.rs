//! A metric family as Prometheus defines it: a name, a type, and its series.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use hashbrown::HashTable;
use parking_lot::{Mutex, MutexGuard};

use super::kind::Kind;
use super::labels::{Labels, Packed, Unfit};
use super::naming::Name;
use super::room::Room;
use super::slot::{Place, Point, Rejection, Slot};
use tributary_otlp::view::Attribute;

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
        self.series.lock()
    }
}

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

/// Minimum number of slots; fewer are not worth releasing.
const LEAST_SLOTS: usize = 64;
