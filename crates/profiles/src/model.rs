//! Profiles over one dictionary, as flat columns: the form between reading, merging and writing.

use std::ops::Range;

use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::resource::v1::Resource;

use super::dictionary::Dictionary;
use super::id::AttributeSetId;
use crate::entry::{SampleKey, ValueType};

/// Profiles that share a dictionary.
#[derive(Debug, Clone, Default)]
pub struct Profiles {
    /// Tables that the profiles refer to.
    pub dictionary: Dictionary,
    /// The profiles, by resource.
    pub resources: Vec<ResourceProfiles>,
}

/// The profiles of a resource.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ResourceProfiles {
    /// The profiled resource, without references to dictionary strings.
    pub resource: Option<Resource>,
    /// Schema URL of the resource.
    pub schema_url: String,
    /// The profiles, by scope.
    pub scopes: Vec<ScopeProfiles>,
}

/// The profiles of an instrumentation scope.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ScopeProfiles {
    /// Instrumentation scope, without references to dictionary strings.
    pub scope: Option<InstrumentationScope>,
    /// Schema URL of the scope and its profiles.
    pub schema_url: String,
    /// The profiles.
    pub profiles: Vec<Profile>,
}

/// A profile of one sample type.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Profile {
    /// Metadata of the profile as a whole.
    pub header: Header,
    /// The samples.
    pub samples: Samples,
}

/// Metadata of a profile.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Header {
    /// Type and unit of the values.
    pub sample_type: ValueType,
    /// Type and unit of the sampling period.
    pub period_type: ValueType,
    /// Sampling period in units of `period_type`.
    pub period: i64,
    /// Start in nanoseconds since 1970 (UTC); 0 if unknown.
    pub time: u64,
    /// Duration in nanoseconds; 0 for an instant.
    pub duration: u64,
    /// Identity given by the sender: 16 bytes, or none.
    pub profile_id: Option<[u8; 16]>,
    /// Number of attributes dropped by earlier stages.
    pub dropped_attributes: u32,
    /// Format and bytes of the original file.
    pub original: Option<(String, Vec<u8>)>,
    /// Attributes of the profile.
    pub attributes: AttributeSetId,
}

/// Samples in columns. Each sample has a key and observations, which are values, timestamps, or both.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Samples {
    keys: Vec<SampleKey>,
    /// End of the values and end of the timestamps of each sample.
    ends: Vec<(usize, usize)>,
    values: Vec<i64>,
    timestamps: Vec<u64>,
}

/// A key and its observations.
///
/// Values without timestamps are totals. Timestamps without values count 1 each. If both exist, they correspond one
/// to one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample<'s> {
    /// Stack, attributes and link.
    pub key: SampleKey,
    /// Observed values.
    pub values: &'s [i64],
    /// Times of the observations, in nanoseconds since 1970 (UTC).
    pub timestamps: &'s [u64],
}

impl Sample<'_> {
    /// Returns the sum of the values, or the number of timestamps if there are no values. The flag is true if the
    /// sum was saturated.
    pub fn total(&self) -> (i64, bool) {
        match self.values {
            [] => (
                i64::try_from(self.timestamps.len()).unwrap_or(i64::MAX),
                false,
            ),
            [value] => (*value, false),
            values => {
                let sum: i128 = values.iter().map(|value| i128::from(*value)).sum();
                let cut = sum.clamp(i64::MIN.into(), i64::MAX.into());
                (i64::try_from(cut).unwrap_or_default(), cut != sum)
            }
        }
    }
}

impl Samples {
    /// Memory of a sample with one value, in bytes.
    pub const BYTES: usize =
        size_of::<SampleKey>() + size_of::<(usize, usize)>() + size_of::<i64>();

    /// Adds a sample with its observations.
    pub fn push(&mut self, key: SampleKey, values: &[i64], timestamps: &[u64]) {
        self.values.extend_from_slice(values);
        self.timestamps.extend_from_slice(timestamps);
        self.keys.push(key);
        self.ends.push((self.values.len(), self.timestamps.len()));
    }

    /// Returns the samples in a range of positions; positions beyond the end are ignored.
    pub fn slice(&self, range: Range<usize>) -> Samples {
        let range = range.start.min(self.len())..range.end.min(self.len());
        let mut samples = Samples::default();
        samples.reserve(range.len());
        let ends = |at: usize| match at {
            0 => Some((0, 0)),
            at => self.ends.get(at - 1).copied(),
        };
        let Some(mut start) = ends(range.start) else {
            return samples;
        };
        let keys = self.keys.get(range.clone()).unwrap_or_default();
        let ends = self.ends.get(range).unwrap_or_default();
        for (key, end) in keys.iter().zip(ends) {
            let values = self.values.get(start.0..end.0).unwrap_or_default();
            let timestamps = self.timestamps.get(start.1..end.1).unwrap_or_default();
            samples.push(*key, values, timestamps);
            start = *end;
        }
        samples
    }

    /// Returns the samples with their totals multiplied by `factor`, which saturate, and without timestamps.
    pub fn scaled(&self, factor: i64) -> Samples {
        let mut scaled = Samples::default();
        scaled.reserve(self.len());
        for sample in self.iter() {
            let total = sample.total().0.saturating_mul(factor);
            scaled.push(sample.key, &[total], &[]);
        }
        scaled
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Reserves memory for more samples.
    pub fn reserve(&mut self, samples: usize) {
        self.keys.reserve(samples);
        self.ends.reserve(samples);
        self.values.reserve(samples);
    }

    /// Iterates over all samples.
    pub fn iter(&self) -> impl Iterator<Item = Sample<'_>> {
        let mut start = (0, 0);
        self.keys.iter().zip(&self.ends).map(move |(key, end)| {
            let sample = Sample {
                key: *key,
                values: self.values.get(start.0..end.0).unwrap_or_default(),
                timestamps: self.timestamps.get(start.1..end.1).unwrap_or_default(),
            };
            start = *end;
            sample
        })
    }

    /// Memory of the samples, in bytes.
    pub fn bytes(&self) -> usize {
        self.keys.capacity() * size_of::<SampleKey>()
            + self.ends.capacity() * size_of::<(usize, usize)>()
            + self.values.capacity() * size_of::<i64>()
            + self.timestamps.capacity() * size_of::<u64>()
    }
}

impl Profiles {
    /// Iterates over all profiles.
    pub fn iter(&self) -> impl Iterator<Item = &Profile> {
        self.resources
            .iter()
            .flat_map(|resource| &resource.scopes)
            .flat_map(|scope| &scope.profiles)
    }

    /// Number of samples of all profiles.
    pub fn samples(&self) -> usize {
        self.iter().map(|profile| profile.samples.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pushed_samples_round_trip() {
        let mut samples = Samples::default();
        let pushed: [(&[i64], &[u64]); 4] = [
            (&[5], &[]),
            (&[], &[1, 2, 3]),
            (&[], &[]),
            (&[7, 8], &[4, 5]),
        ];
        for (values, timestamps) in pushed {
            samples.push(SampleKey::default(), values, timestamps);
        }
        let found: Vec<_> = samples
            .iter()
            .map(|sample| (sample.values, sample.timestamps))
            .collect();
        assert_eq!(found, pushed);
        for start in 0..=4 {
            for end in start..=5 {
                let slice = samples.slice(start..end);
                let found: Vec<_> = slice.iter().map(|s| (s.values, s.timestamps)).collect();
                assert_eq!(found, &pushed[start..end.min(4)]);
            }
        }
        let totals: Vec<_> = samples.iter().map(|sample| sample.total()).collect();
        assert_eq!(totals, [(5, false), (3, false), (0, false), (15, false)]);
    }

    #[test]
    fn overflowing_total_is_saturated() {
        let total = |values: &[i64]| {
            let mut samples = Samples::default();
            samples.push(SampleKey::default(), values, &[]);
            samples.iter().next().unwrap().total()
        };
        assert_eq!(total(&[i64::MAX, 1]), (i64::MAX, true));
        assert_eq!(total(&[i64::MIN, -1]), (i64::MIN, true));
        assert_eq!(total(&[i64::MAX, 1, -1]), (i64::MAX, false));
    }
}
