//! Removal of expired series, and of families without series.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::{ENTRY_BYTES, Table, family_bytes};
use crate::exporters::prometheus::family::Family;

impl Table {
    /// Returns the tick before which series are expired; 0 if series never expire.
    pub(in crate::exporters::prometheus) fn over_before(&self) -> u32 {
        match self.config.metric_expiration.unless_zero() {
            Some(expiration) => self.now().saturating_sub(ticks(expiration)),
            None => 0,
        }
    }

    /// Removes expired series, and families without series.
    pub(in crate::exporters::prometheus) fn expire(&self) {
        let before = self.over_before();
        let families = self.families.read();
        let all: Vec<_> = families.by_name.values().cloned().collect();
        drop(families);
        let mut empty = Vec::new();
        for family in all {
            let mut at = 0;
            loop {
                let mut series = family.lock();
                series.expire(at..at + AT_ONCE, before, &self.room);
                at += AT_ONCE;
                if at >= series.len() {
                    series.shrink();
                    if series.is_empty() {
                        empty.push(family.clone());
                    }
                    break;
                }
            }
        }
        if !empty.is_empty() {
            self.remove(&empty);
        }
        self.origins.expire(before, &self.room);
        self.room.release_unused();
    }

    pub(in crate::exporters::prometheus) fn expiry_interval(&self) -> Duration {
        let expiration = self.config.metric_expiration.unless_zero();
        let tenth = expiration.map_or(SLOWEST, |expiration| expiration / 10);
        tenth.clamp(TIME_UNIT, SLOWEST)
    }

    fn remove(&self, empty: &[Arc<Family>]) {
        let mut families = self.families.write();
        let mut closed = HashSet::new();
        for family in empty {
            let mut series = family.lock();
            if !series.is_empty() || series.closed {
                continue;
            }
            series.closed = true;
            self.room
                .give(0, family_bytes(family) + series.labels.bytes());
            families.by_name.remove(&family.name.escaped);
            for suffix in family.kind.suffixes() {
                families
                    .lines
                    .remove(format!("{}{suffix}", family.name.escaped).as_str());
            }
            closed.insert(Arc::as_ptr(family));
        }
        // Once for all families: many may end together, and each has many aliases.
        families.by_metric.retain(|key, family| {
            let stays = !closed.contains(&Arc::as_ptr(family));
            if !stays {
                self.room.give(0, key.len() + ENTRY_BYTES);
            }
            stays
        });
        let count = families.by_metric.len();
        families.by_metric.shrink_to(2 * count);
    }
}

pub(super) fn ticks(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis() / TIME_UNIT.as_millis()).unwrap_or(u32::MAX)
}

/// Unit of time; 32 bits last for 13 years.
const TIME_UNIT: Duration = Duration::from_millis(100);
/// Longest interval between two expiry runs.
const SLOWEST: Duration = Duration::from_secs(30);
/// Slots to check before other threads may take the lock.
const AT_ONCE: usize = 4096;
