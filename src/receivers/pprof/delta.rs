//! What happened between two profiles that count from the start of a process.
//!
//! Go's `allocs`, `mutex` and `block` profiles, and half of `heap`, are counters: each has everything since the process
//! began. Adding up scrapes of them counts the same thing again and again, so here each becomes the difference to the
//! one before it, stack by stack:
//!
//! - The first profile of a series is only remembered: since when it counts nobody knows.
//! - A value that fell, or a stack that is gone, means another process: counters only rise. All of its profile happened
//!   since the last one, so it is taken as it is, as Prometheus does with counters. Two of them in a row mean that one
//!   address leads to several processes by turns; that cannot be subtracted, so nothing is taken until two in a row fit
//!   each other.
//! - Levels (`inuse_space`, goroutines) and what says how long it took (CPU profiles, Go's own `?seconds=`) pass as they
//!   are.
//! - A difference is of the time from one profile to the next. A sample without one vanishes, and so does a profile
//!   without a sample.
//!
//! What was not delivered is not lost: only a delivered profile becomes the one to subtract.
//!
//! Samples are equal if all that they say is: stack, labels (the size class of `heap` is one), link. They are compared
//! by their place in a dictionary which each series keeps, never by hashes alone. Addresses count from the start of
//! their binary.

mod remembered;

use std::collections::HashMap;

use foldhash::fast::RandomState;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue};

pub(super) use self::remembered::Deltas;
use tributary_profiles::Dictionary;
use tributary_profiles::dictionary::{SampleKey, ValueType};
use tributary_profiles::ingest::ingest;
use tributary_profiles::model::{Header, Profile, ResourceProfiles, Samples, ScopeProfiles};
use tributary_profiles::names;
use tributary_profiles::reindex::Memo;
use tributary_profiles::relocations::Relocations;
use tributary_profiles::write::encode;

/// What is known of one series, and the dictionary to read its next profile into.
#[derive(Debug, Default)]
pub(super) struct Series {
    dictionary: Dictionary,
    relocations: Option<Relocations>,
    last: Option<Last>,
    /// What the dictionary took when it had nothing that is not needed.
    compact: usize,
}

/// A profile to subtract.
#[derive(Debug, Default)]
struct Last {
    columns: Vec<(ValueType, HashMap<SampleKey, i64, RandomState>)>,
    /// When it was taken.
    time: u64,
    /// Whether it did not fit the one before it.
    began: bool,
}

/// What a profile is, seen from the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    /// It counts nothing from the start of a process.
    NotCumulative,
    /// There is none before it.
    First,
    /// It goes on where that one ended.
    Continued,
    /// It is of another process, or of the same one started again.
    Restarted,
    /// The one before it was not of the same process as the one before that either.
    Unsteady,
}

/// What is left of a profile.
#[derive(Debug)]
pub(super) struct Difference {
    /// What happened since the last profile, and what is no counter. It may have no profiles.
    pub(super) profiles: ScopeProfiles,
    /// How it fits.
    pub(super) fit: Fit,
    next: Option<Last>,
}

impl Series {
    /// What to read the next profile into.
    pub(super) fn tables(&mut self) -> (&mut Dictionary, &mut Relocations) {
        let relocations = self.relocations.get_or_insert_with(Relocations::new);
        (&mut self.dictionary, relocations)
    }

    /// What the profiles refer to.
    pub(super) fn dictionary(&self) -> &Dictionary {
        &self.dictionary
    }

    /// Subtracts the last profile. Nothing changes until [`delivered`](Self::delivered).
    pub(super) fn difference(&self, mut profiles: ScopeProfiles) -> Difference {
        let counts = |profile: &Profile| is_cumulative(&self.dictionary, &profile.header);
        let cumulative: Vec<bool> = profiles.profiles.iter().map(counts).collect();
        if !cumulative.contains(&true) {
            return Difference {
                profiles,
                fit: Fit::NotCumulative,
                next: None,
            };
        }
        let all = || profiles.profiles.iter().zip(&cumulative);
        let mut next = Last::default();
        for (profile, _) in all().filter(|(_, cumulative)| **cumulative) {
            next.time = next.time.max(profile.header.time);
            next.columns
                .push((profile.header.sample_type, totals(&profile.samples)));
        }
        let fit = match &self.last {
            None => Fit::First,
            Some(last) if next.continues(last) => Fit::Continued,
            Some(last) if last.began => Fit::Unsteady,
            Some(_) => Fit::Restarted,
        };
        next.began = matches!(fit, Fit::Restarted | Fit::Unsteady);
        let mut kept = Vec::new();
        for (profile, cumulative) in profiles.profiles.iter_mut().zip(&cumulative) {
            if *cumulative {
                self.subtract(profile, fit);
            }
            kept.push(!cumulative || !profile.samples.is_empty());
        }
        keep(&mut profiles, &kept);
        Difference {
            profiles,
            fit,
            next: Some(next),
        }
    }

    /// The difference has a new owner: what it was made from is the one to subtract next.
    pub(super) fn delivered(&mut self, difference: Difference) {
        if let Some(next) = difference.next {
            self.last = Some(next);
        }
    }

    /// Leaves of a counter what is new.
    fn subtract(&self, profile: &mut Profile, fit: Fit) {
        let Some(last) = self.last.as_ref() else {
            profile.samples = Samples::default();
            return;
        };
        let before = match fit {
            Fit::Continued => last.column(profile.header.sample_type),
            Fit::Restarted => None,
            Fit::NotCumulative | Fit::First | Fit::Unsteady => {
                profile.samples = Samples::default();
                return;
            }
        };
        let mut samples = Samples::default();
        for sample in profile.samples.iter() {
            let before = before.and_then(|before| before.get(&sample.key));
            let more = sample
                .total()
                .0
                .saturating_sub(before.copied().unwrap_or(0));
            if more != 0 {
                samples.push(sample.key, &[more], &[]);
            }
        }
        profile.samples = samples;
        let header = &mut profile.header;
        // Clocks go back at times; then there is an end without a beginning.
        if last.time != 0 && last.time < header.time {
            header.duration = header.time - last.time;
            header.time = last.time;
        } else {
            // Without a duration the next one would take it for a counter.
            header.duration = 1;
        }
    }

    /// Makes the dictionary anew once half of it at least is of no use: stacks of earlier processes, levels that are
    /// gone.
    fn tidy(&mut self) {
        const SMALL: usize = 256 << 10;
        let Some(last) = &self.last else {
            // It remembers nothing: what was read was refused.
            *self = Series::default();
            return;
        };
        if self.compact == 0 {
            self.compact = self.dictionary.bytes();
        }
        if self.dictionary.bytes() <= SMALL.max(self.compact.saturating_mul(2)) {
            return;
        }
        let profiles = last.columns.iter().map(|(sample_type, totals)| {
            let mut samples = Samples::default();
            for (key, total) in totals {
                samples.push(*key, &[*total], &[]);
            }
            Profile {
                header: Header {
                    sample_type: *sample_type,
                    ..Header::default()
                },
                samples,
            }
        });
        let resource = ResourceProfiles {
            scopes: vec![ScopeProfiles {
                profiles: profiles.collect(),
                ..ScopeProfiles::default()
            }],
            ..ResourceProfiles::default()
        };
        let encoded = encode(&self.dictionary, &[resource]);
        let (mut dictionary, mut relocations) = (Dictionary::new(), Relocations::new());
        let mut memo = Memo::default();
        let read = ingest(&encoded, &mut dictionary, &mut memo, Some(&mut relocations));
        let Ok(read) = read else {
            *self = Series::default();
            return;
        };
        let profiles = read.resources.iter().flat_map(|resource| &resource.scopes);
        let profiles = profiles.flat_map(|scope| &scope.profiles);
        let columns = profiles.map(|p| (p.header.sample_type, totals(&p.samples)));
        let last = Last {
            columns: columns.collect(),
            ..*last
        };
        *self = Series {
            compact: dictionary.bytes(),
            dictionary,
            relocations: Some(relocations),
            last: Some(last),
        };
    }

    fn bytes(&self) -> usize {
        let last = self.last.as_ref().map_or(0, Last::bytes);
        let relocations = self.relocations.as_ref().map_or(0, Relocations::bytes);
        self.dictionary.bytes() + relocations + last
    }
}

impl Last {
    fn column(&self, sample_type: ValueType) -> Option<&HashMap<SampleKey, i64, RandomState>> {
        let mut columns = self.columns.iter();
        let column = columns.find(|(other, _)| *other == sample_type);
        column.map(|(_, column)| column)
    }

    /// Whether nothing has fallen since that one.
    fn continues(&self, last: &Last) -> bool {
        last.columns.iter().all(|(sample_type, before)| {
            let now = self.column(*sample_type);
            let now = |key: &SampleKey| now.and_then(|now| now.get(key)).copied().unwrap_or(0);
            before.iter().all(|(key, before)| now(key) >= *before)
        })
    }

    fn bytes(&self) -> usize {
        // One byte of the table goes with each entry.
        let column = |column: &HashMap<_, _, _>| {
            column.capacity() * (size_of::<(SampleKey, i64)>() + 1) * 8 / 7
        };
        self.columns.iter().map(|(_, totals)| column(totals)).sum()
    }
}

/// What each sample has; those of nothing are left out, which pprof files have to show that a sample type is there.
fn totals(samples: &Samples) -> HashMap<SampleKey, i64, RandomState> {
    let mut totals: HashMap<SampleKey, i64, RandomState> = HashMap::default();
    totals.reserve(samples.len());
    for sample in samples.iter() {
        let total = sample.total().0;
        if total != 0 {
            let sum = totals.entry(sample.key).or_default();
            *sum = sum.saturating_add(total);
        }
    }
    totals
}

fn is_cumulative(dictionary: &Dictionary, header: &Header) -> bool {
    let ValueType { kind, unit } = header.sample_type;
    names::is_cumulative(
        dictionary.text(kind),
        dictionary.text(unit),
        header.duration,
    )
}

/// Leaves some of the profiles. The scope says where each one was in pprof's list, so it is told.
fn keep(scope: &mut ScopeProfiles, kept: &[bool]) {
    let mut at = 0;
    scope.profiles.retain(|_| {
        at += 1;
        kept.get(at - 1).copied().unwrap_or(true)
    });
    let attributes = scope
        .scope
        .iter_mut()
        .flat_map(|scope| &mut scope.attributes);
    for attribute in attributes.filter(|attribute| attribute.key == names::SAMPLE_TYPE_ORDER) {
        let value = attribute.value.as_mut().and_then(|any| any.value.as_mut());
        if let Some(Any::ArrayValue(order)) = value {
            renumber(order, kept);
        }
    }
}

fn renumber(order: &mut ArrayValue, kept: &[bool]) {
    let place = |value: &AnyValue| match value.value {
        Some(Any::IntValue(place)) => place,
        _ => i64::MAX,
    };
    let left = order.values.iter().zip(kept).filter(|(_, kept)| **kept);
    let left: Vec<i64> = left.map(|(value, _)| place(value)).collect();
    let rank = |place: &i64| left.iter().filter(|other| *other < place).count();
    order.values = left
        .iter()
        .map(|place| AnyValue {
            value: i64::try_from(rank(place)).ok().map(Any::IntValue),
        })
        .collect();
}

#[cfg(test)]
#[path = "delta/tests.rs"]
mod tests;
