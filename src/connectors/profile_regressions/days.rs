//! The hours of the last day of a series, and the comparison of each with the one a day before.

use std::collections::HashMap;
use std::sync::Arc;

use super::compare::{Change, Part, Thresholds, compare};
use super::finding::Side;
use super::shares::Shares;

const HOURS: u64 = 24;
const MILLIS_PER_HOUR: u64 = 3_600_000;
/// Memory of an hour, besides its windows.
const HOUR_BYTES: usize = 64;

/// Windows by the hour.
#[derive(Debug, Default)]
pub(super) struct Days {
    /// The current hour and those before, oldest first.
    hours: Vec<Hour>,
    /// Hours in which functions were found.
    found: HashMap<(Arc<str>, Part), u64>,
}

#[derive(Debug)]
struct Hour {
    /// Hours since 1970.
    number: u64,
    version: Arc<str>,
    windows: Vec<Shares>,
}

/// Windows of an hour: the least for a comparison, and the most.
#[derive(Debug, Clone, Copy)]
pub(super) struct HourBounds {
    pub(super) least: usize,
    pub(super) most: usize,
}

impl Days {
    /// Adds a window. At the begin of an hour, returns both sides and the changes of the hour that
    /// ended. A change is returned once a day.
    pub(super) fn add(
        &mut self,
        version: &Arc<str>,
        shares: Shares,
        bounds: HourBounds,
        thresholds: &Thresholds,
    ) -> Option<(Side, Side, Vec<Change>)> {
        let number = shares.start / MILLIS_PER_HOUR;
        let is_new = self.hours.last().is_none_or(|last| last.number < number);
        let result = if is_new {
            let result = self.compare(bounds, thresholds);
            self.hours.retain(|hour| hour.number + HOURS >= number);
            self.found.retain(|_, found| *found + HOURS >= number);
            self.hours.push(Hour {
                number,
                version: version.clone(),
                windows: Vec::new(),
            });
            result
        } else {
            None
        };
        if let Some(hour) = self.hours.last_mut()
            && hour.windows.len() < bounds.most
        {
            hour.version = version.clone();
            hour.windows.push(shares);
        }
        result
    }

    /// Compares the last hour with the one a day before.
    fn compare(
        &mut self,
        bounds: HourBounds,
        thresholds: &Thresholds,
    ) -> Option<(Side, Side, Vec<Change>)> {
        let hour = self.hours.last()?;
        let day_before = |other: &&Hour| other.number + HOURS == hour.number;
        let earlier = self.hours.iter().find(day_before)?;
        let before: Vec<&Shares> = earlier.windows.iter().collect();
        let after: Vec<&Shares> = hour.windows.iter().collect();
        if before.len().min(after.len()) < bounds.least {
            return None;
        }
        let mut changes = compare(&before, &after, thresholds);
        let sides = (
            Side::of(&earlier.version, &before),
            Side::of(&hour.version, &after),
        );
        let number = hour.number;
        changes.retain(|change| {
            let key = (change.function.clone(), change.part);
            self.found.insert(key, number).is_none()
        });
        Some((sides.0, sides.1, changes))
    }

    /// Returns the approximate memory, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let hours = self.hours.iter().map(|hour| {
            let windows: usize = hour.windows.iter().map(Shares::bytes).sum();
            HOUR_BYTES + hour.version.len() + windows
        });
        hours.sum::<usize>() + self.found.len() * 48
    }
}
