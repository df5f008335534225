//! Merges requests without loss: one dictionary, each resource, scope and sample once.

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use prost::Message as _;

use super::fault::ProfileFault;
use super::group::Groups;
use super::id::{GroupId, Id as _};
use super::ingest::{Ingested, ingest};
use super::model::{Profiles, ResourceProfiles, Sample, Samples, ScopeProfiles};
use super::reindex::CopiedEntries;
use super::table::Records;
use crate::entry::SampleKey;

/// Merges requests without loss: every profile stays a separate profile.
///
/// Equal resources and scopes become one. Samples of a profile with the same key become one: timestamps and values are
/// concatenated, and totals are added.
#[derive(Debug, Default)]
pub struct Compactor {
    profiles: Profiles,
    groups: Groups,
    /// Index of the resource, and index of the scope within it.
    scopes: Vec<(usize, usize)>,
    memo: CopiedEntries,
    keeps_samples: bool,
    saturated: u64,
}

impl Compactor {
    /// Creates an empty compactor.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an empty compactor that does not merge samples, so that the number of samples stays the same.
    pub fn keeping_samples() -> Self {
        Compactor {
            keeps_samples: true,
            ..Self::default()
        }
    }

    /// Adds the profiles of a request: all of them, or none on an error.
    ///
    /// # Errors
    /// See [`ProfileFault`].
    pub fn add(&mut self, request: &ExportProfilesServiceRequest) -> Result<(), ProfileFault> {
        self.add_encoded(&request.encode_to_vec())
    }

    /// Adds the profiles of an encoded request: all of them, or none on an error.
    ///
    /// # Errors
    /// See [`ProfileFault`].
    pub fn add_encoded(&mut self, request: &[u8]) -> Result<(), ProfileFault> {
        let ingested = self.ingest(request)?;
        self.add_ingested(ingested);
        Ok(())
    }

    /// Reads a request for [`add_ingested`](Self::add_ingested), so that the caller can inspect the result first.
    pub(super) fn ingest(&mut self, request: &[u8]) -> Result<Ingested, ProfileFault> {
        let dictionary = &mut self.profiles.dictionary;
        ingest(request, dictionary, &mut self.memo, None)
    }

    pub(super) fn add_ingested(&mut self, ingested: Ingested) {
        for from in ingested.resources {
            self.resource(from);
        }
    }

    /// Number of sums that were saturated.
    pub fn saturated(&self) -> u64 {
        self.saturated
    }

    /// Returns the merged profiles.
    pub fn finish(self) -> Profiles {
        self.profiles
    }

    fn resource(&mut self, mut from: ResourceProfiles) {
        let resource = self.groups.resource(&from);
        let scopes = std::mem::take(&mut from.scopes);
        if resource == self.profiles.resources.len() {
            self.profiles.resources.push(from);
        }
        let Some(into) = self.profiles.resources.get_mut(resource) else {
            return;
        };
        for mut from in scopes {
            for profile in from.profiles.iter_mut().filter(|_| !self.keeps_samples) {
                merge_equal_samples(&mut profile.samples, &mut self.saturated);
            }
            let scope = self.groups.scope(resource, &from);
            match self.scopes.get(scope) {
                None => {
                    self.scopes.push((resource, into.scopes.len()));
                    into.scopes.push(from);
                }
                Some((_, at)) => {
                    let ScopeProfiles { profiles, .. } = from;
                    if let Some(scope) = into.scopes.get_mut(*at) {
                        scope.profiles.extend(profiles);
                    }
                }
            }
        }
    }
}

/// Identity of samples that may be merged: the key and the kind of observations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
struct SampleKind {
    key: SampleKey,
    values: bool,
    timestamps: bool,
}

fn kind(sample: &Sample<'_>) -> SampleKind {
    SampleKind {
        key: sample.key,
        values: !sample.values.is_empty(),
        timestamps: !sample.timestamps.is_empty(),
    }
}

fn merge_equal_samples(samples: &mut Samples, saturated: &mut u64) {
    let mut kinds = Records::<GroupId, SampleKind>::without_zero();
    let places: Vec<usize> = samples
        .iter()
        .map(|sample| kinds.intern(kind(&sample)).index())
        .collect();
    let totals = |sample: &Sample<'_>| sample.timestamps.is_empty() && sample.values.len() > 1;
    if kinds.entries().len() == samples.len() && !samples.iter().any(|sample| totals(&sample)) {
        return;
    }
    let all: Vec<Sample<'_>> = samples.iter().collect();
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by_key(|at| places.get(*at));
    let mut combined = Samples::default();
    combined.reserve(kinds.entries().len());
    let (mut values, mut timestamps) = (Vec::new(), Vec::new());
    for group in order.chunk_by(|a, b| places.get(*a) == places.get(*b)) {
        values.clear();
        timestamps.clear();
        let mut key = SampleKey::default();
        for sample in group.iter().filter_map(|at| all.get(*at)) {
            key = sample.key;
            values.extend_from_slice(sample.values);
            timestamps.extend_from_slice(sample.timestamps);
        }
        if timestamps.is_empty() {
            let (total, cut) = Sample {
                key,
                values: &values,
                timestamps: &[],
            }
            .total();
            *saturated += u64::from(cut);
            values.clear();
            values.push(total);
        }
        combined.push(key, &values, &timestamps);
    }
    *samples = combined;
}
