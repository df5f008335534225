//! Gauges, which are not added up over time.

use std::collections::HashMap;

use super::super::id::{Id as _, SampleId};
use super::super::model::{Header, Profile, Samples};
use super::super::table::Records;
use super::{Gauge, ProfileKind};
use crate::entry::SampleKey;

/// Index of an instance, index of a scope, and kind of the profile.
type GaugeKey = (usize, usize, ProfileKind);

#[derive(Debug, Default)]
pub(super) struct Gauges {
    levels: HashMap<GaugeKey, GaugeSums>,
    saturated: u64,
}

#[derive(Debug)]
struct GaugeSums {
    header: Header,
    profiles: i128,
    keys: Records<SampleId, SampleKey>,
    sums: Vec<i128>,
}

impl Gauges {
    pub(super) fn add(&mut self, key: GaugeKey, gauge: Gauge, profile: &Profile) {
        let known = self.levels.get(&key);
        let outdated = known.is_some_and(|level| level.header.time > profile.header.time);
        if gauge == Gauge::Last {
            if outdated {
                return;
            }
            self.levels.remove(&key);
        }
        let level = self.levels.entry(key).or_insert_with(|| GaugeSums {
            header: profile.header.clone(),
            profiles: 0,
            keys: Records::without_zero(),
            sums: Vec::new(),
        });
        self.saturated += level.add(profile);
    }

    /// Number of sample values that were saturated.
    pub(super) fn saturated(&self) -> u64 {
        self.saturated
    }

    /// Returns one profile per instance.
    pub(super) fn finish(&mut self) -> Vec<(GaugeKey, Profile)> {
        let mut all: Vec<_> = std::mem::take(&mut self.levels).into_iter().collect();
        // Hash tables have a random order.
        all.sort_by_key(|((instance, scope, _), level)| (*scope, *instance, level.header.time));
        let finished = all.into_iter().map(|(key, level)| (key, level.finish()));
        finished.collect()
    }

    pub(super) fn bytes(&self) -> usize {
        let level =
            |level: &GaugeSums| level.keys.bytes() + level.sums.capacity() * size_of::<i128>();
        let levels: usize = self.levels.values().map(level).sum();
        self.levels.capacity() * size_of::<(GaugeKey, GaugeSums)>() + levels
    }
}

impl GaugeSums {
    /// Adds a profile. Returns the number of saturated values.
    fn add(&mut self, profile: &Profile) -> u64 {
        let mut saturated = 0;
        let end = |header: &Header| header.time.saturating_add(header.duration);
        let until = end(&self.header).max(end(&profile.header));
        self.header.time = match (self.header.time, profile.header.time) {
            (0, time) | (time, 0) => time,
            (a, b) => a.min(b),
        };
        self.header.duration = until.saturating_sub(self.header.time);
        self.profiles += 1;
        for sample in profile.samples.iter() {
            let at = self.keys.intern(sample.key).index();
            if at >= self.sums.len() {
                self.sums.resize(at + 1, 0);
            }
            if let Some(sum) = self.sums.get_mut(at) {
                let (total, is_saturated) = sample.total();
                saturated += u64::from(is_saturated);
                *sum += i128::from(total);
            }
        }
        saturated
    }

    /// Returns the average, rounded to the nearest integer.
    fn finish(self) -> Profile {
        let count = self.profiles.max(1);
        let mut samples = Samples::default();
        for (key, sum) in self.keys.entries().iter().zip(&self.sums) {
            let half = count / 2 * sum.signum();
            let average = (sum + half) / count;
            let average = average.clamp(i64::MIN.into(), i64::MAX.into());
            samples.push(*key, &[i64::try_from(average).unwrap_or_default()], &[]);
        }
        Profile {
            header: self.header,
            samples,
        }
    }
}
