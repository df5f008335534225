//! Differences between two cumulative profiles.
//!
//! Go's `allocs`, `mutex` and `block` profiles, and half of `heap`, are counters: each profile
//! contains everything since the process started. The sum of several scrapes would count the same
//! events repeatedly. Each profile is therefore replaced by the difference to the previous profile,
//! stack by stack:
//!
//! - The first profile of a series is only remembered: the start of its counters is not known.
//! - Counters only rise, so a fallen value or a missing stack means another process. The whole
//!   profile then belongs to the time since the previous profile and is forwarded unchanged, as
//!   Prometheus treats counters. Two such profiles in a row mean that several processes share one
//!   address. Their profiles cannot be subtracted, so no profile is forwarded until two profiles in
//!   a row match.
//! - Gauges (`inuse_space`, goroutines) and profiles with a duration (CPU profiles, Go's own
//!   `?seconds=`) are forwarded unchanged.
//! - A difference covers the time from one profile to the next. Samples without a difference are
//!   dropped, and so are profiles without samples.
//!
//! Only a delivered profile replaces the previous profile, so a failed delivery loses no data.
//!
//! Samples are equal if their stack, labels (such as the size class of `heap`) and link are equal.
//! Samples are compared by their index in a dictionary of the series, never by hashes alone.
//! Addresses are relative to the start of their binary.

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
use tributary_profiles::reindex::CopiedEntries;
use tributary_profiles::relocations::Relocations;
use tributary_profiles::write::encode;

/// State of one series, and the dictionary to decode its next profile into.
#[derive(Debug, Default)]
pub(super) struct Series {
    dictionary: Dictionary,
    relocations: Option<Relocations>,
    last: Option<PreviousProfile>,
    /// Size of the dictionary after the last compaction.
    compact: usize,
}

/// A previous profile, to subtract.
#[derive(Debug, Default)]
struct PreviousProfile {
    columns: Vec<(ValueType, HashMap<SampleKey, i64, RandomState>)>,
    /// Time of the profile.
    time: u64,
    /// Whether the profile did not continue its predecessor.
    began: bool,
}

/// Relation of a profile to the previous one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    /// The profile is not cumulative.
    NotCumulative,
    /// There is no previous profile.
    First,
    /// The profile continues the previous profile.
    Continued,
    /// The profile belongs to another process, or to the same process after a restart.
    Restarted,
    /// Neither this profile nor the previous profile continues its predecessor.
    Unsteady,
}

/// Remainder of a profile after the subtraction.
#[derive(Debug)]
pub(super) struct Difference {
    /// Differences to the previous profile, and profiles that are not cumulative. May have no
    /// profiles.
    pub(super) profiles: ScopeProfiles,
    /// Relation to the previous profile.
    pub(super) fit: Fit,
    next: Option<PreviousProfile>,
}

impl Series {
    /// Returns the tables to decode the next profile into.
    pub(super) fn tables(&mut self) -> (&mut Dictionary, &mut Relocations) {
        let relocations = self.relocations.get_or_insert_with(Relocations::new);
        (&mut self.dictionary, relocations)
    }

    /// Returns the dictionary of the profiles.
    pub(super) fn dictionary(&self) -> &Dictionary {
        &self.dictionary
    }

    /// Subtracts the previous profile. The series does not change until
    /// [`delivered`](Self::delivered).
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
        let mut next = PreviousProfile::default();
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

    /// Records the delivery of a difference: its profile becomes the previous profile.
    pub(super) fn delivered(&mut self, difference: Difference) {
        if let Some(next) = difference.next {
            self.last = Some(next);
        }
    }

    /// Reduces a cumulative profile to its difference.
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
        // If the clock went back, the difference has an end and no start.
        if last.time != 0 && last.time < header.time {
            header.duration = header.time - last.time;
            header.time = last.time;
        } else {
            // Without a duration, the next stage would take the difference for a cumulative
            // profile.
            header.duration = 1;
        }
    }

    /// Rebuilds the dictionary once at least half of it is unused, such as stacks of earlier
    /// processes.
    fn compact(&mut self) {
        const SMALL: usize = 256 << 10;
        let Some(last) = &self.last else {
            // No profile is remembered, because the decoded profile was refused.
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
        let mut memo = CopiedEntries::default();
        let read = ingest(&encoded, &mut dictionary, &mut memo, Some(&mut relocations));
        let Ok(read) = read else {
            *self = Series::default();
            return;
        };
        let profiles = read.resources.iter().flat_map(|resource| &resource.scopes);
        let profiles = profiles.flat_map(|scope| &scope.profiles);
        let columns = profiles.map(|p| (p.header.sample_type, totals(&p.samples)));
        let last = PreviousProfile {
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
        let last = self.last.as_ref().map_or(0, PreviousProfile::bytes);
        let relocations = self.relocations.as_ref().map_or(0, Relocations::bytes);
        self.dictionary.bytes() + relocations + last
    }
}

impl PreviousProfile {
    fn column(&self, sample_type: ValueType) -> Option<&HashMap<SampleKey, i64, RandomState>> {
        let mut columns = self.columns.iter();
        let column = columns.find(|(other, _)| *other == sample_type);
        column.map(|(_, column)| column)
    }

    /// Whether no value has fallen since the previous profile.
    fn continues(&self, last: &PreviousProfile) -> bool {
        last.columns.iter().all(|(sample_type, before)| {
            let now = self.column(*sample_type);
            let now = |key: &SampleKey| now.and_then(|now| now.get(key)).copied().unwrap_or(0);
            before.iter().all(|(key, before)| now(key) >= *before)
        })
    }

    fn bytes(&self) -> usize {
        // Each entry uses one additional byte of the table.
        let column = |column: &HashMap<_, _, _>| {
            column.capacity() * (size_of::<(SampleKey, i64)>() + 1) * 8 / 7
        };
        self.columns.iter().map(|(_, totals)| column(totals)).sum()
    }
}

/// Returns the total of each sample, without zero totals, which pprof files contain for other sample
/// types.
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

/// Keeps some of the profiles. The scope stores the index of each profile in the pprof file, so the
/// scope is updated too.
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
