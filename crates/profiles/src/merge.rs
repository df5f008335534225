//! Merges profiles into one: adds the values of equal samples, as pprof does.

mod headers;

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use prost::Message as _;

use self::headers::join;
use super::dictionary::Dictionary;
use super::fault::ProfileFault;
use super::group::Groups;
use super::id::{GroupId, Id as _, SampleId};
use super::ingest::ingest;
use super::model::{Header, Profile, Profiles, ResourceProfiles, Samples, ScopeProfiles};
use super::reindex::CopiedEntries;
use super::relocations::{Addresses, Relocations};
use super::table::Records;
use crate::entry::{SampleKey, ValueType};

/// Options of merging. The default behaves like pprof.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MergeOptions {
    /// Treatment of addresses.
    pub addresses: Addresses,
    /// Whether profiles with different periods stay apart. Otherwise the result has the largest period, which is
    /// correct as long as values are not multiplied by the period.
    pub separate_periods: bool,
    /// Computation of the duration of the result.
    pub duration: DurationRule,
}

impl Default for MergeOptions {
    fn default() -> Self {
        MergeOptions {
            addresses: Addresses::Relocated,
            separate_periods: false,
            duration: DurationRule::Sum,
        }
    }
}

/// Duration of a merged profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DurationRule {
    /// Sum of all durations: for one process at different times.
    Sum,
    /// Time from the first start to the last end: for many processes at the same time.
    Span,
}

/// Statistics of merging.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MergeCounts {
    /// Number of merged profiles.
    pub profiles: u64,
    /// Number of merged samples.
    pub samples: u64,
    /// Number of sums and durations that were saturated.
    pub saturated: u64,
}

/// Merges profiles by adding their values.
///
/// Profiles with equal resources, scopes and types become one. Memory grows with the result, not with the input.
#[derive(Debug)]
pub struct Merger {
    options: MergeOptions,
    dictionary: Dictionary,
    relocations: Relocations,
    memo: CopiedEntries,
    groups: Groups,
    resources: Vec<ResourceProfiles>,
    scopes: Vec<Scope>,
    recent: Recent,
    counts: MergeCounts,
}

#[derive(Debug)]
struct Scope {
    resource: usize,
    head: ScopeProfiles,
    kinds: Records<GroupId, ProfileKind>,
    /// Kinds of profiles in order, `FAMILY` per family.
    families: Vec<Family>,
}

/// Number of kinds that share sample keys. Without a bound, a request with many kinds and few samples in each kind
/// would take memory for all samples in all kinds.
const FAMILY: usize = 8;

/// Profiles that share their sample keys, since most sample types of a profile have the same samples.
#[derive(Debug)]
struct Family {
    /// Unique number among all scopes, from 1.
    number: u32,
    keys: Records<SampleId, SampleKey>,
    columns: Vec<Column>,
}

/// Most recent sample by stack. The next sample with the same stack mostly has the same key, and a
/// value of another type or time.
#[derive(Debug, Default)]
struct Recent {
    families: u32,
    last: Vec<(u32, SampleKey, SampleId)>,
}

impl Recent {
    fn find_or_add(
        &mut self,
        family: u32,
        keys: &mut Records<SampleId, SampleKey>,
        key: SampleKey,
    ) -> SampleId {
        let at = key.stack.index();
        match self.last.get(at) {
            Some((of, last, id)) if *of == family && *last == key => return *id,
            Some(_) => {}
            None => self.last.resize(at + 1, Default::default()),
        }
        let id = keys.intern(key);
        if let Some(last) = self.last.get_mut(at) {
            *last = (family, key, id);
        }
        id
    }

    fn bytes(&self) -> usize {
        self.last.capacity() * size_of::<(u32, SampleKey, SampleId)>()
    }
}

/// Identity of a profile: profiles with equal kinds are merged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
struct ProfileKind {
    sample_type: ValueType,
    period_type: ValueType,
    period: Option<i64>,
}

#[derive(Debug)]
struct Column {
    header: Header,
    /// Totals by sample key; missing totals at the end are 0.
    totals: Vec<i64>,
}

impl Merger {
    /// Creates an empty merger.
    pub fn new(options: MergeOptions) -> Self {
        Merger {
            options,
            dictionary: Dictionary::new(),
            relocations: Relocations::new(),
            memo: CopiedEntries::default(),
            groups: Groups::default(),
            resources: Vec::new(),
            scopes: Vec::new(),
            recent: Recent::default(),
            counts: MergeCounts::default(),
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
        let relocations = match self.options.addresses {
            Addresses::Exact => None,
            Addresses::Relocated => Some(&mut self.relocations),
        };
        let ingested = ingest(request, &mut self.dictionary, &mut self.memo, relocations)?;
        self.add_profiles(&ingested.resources);
        Ok(())
    }

    /// Adds profiles over [this merger's dictionary](Self::dictionary).
    pub fn add_profiles(&mut self, resources: &[ResourceProfiles]) {
        for from in resources {
            let resource = self.groups.resource(from);
            if resource == self.resources.len() {
                self.resources.push(ResourceProfiles {
                    resource: from.resource.clone(),
                    schema_url: from.schema_url.clone(),
                    scopes: Vec::new(),
                });
            }
            for from in &from.scopes {
                let scope = self.groups.scope(resource, from);
                if scope == self.scopes.len() {
                    self.scopes.push(Scope {
                        resource,
                        head: ScopeProfiles {
                            scope: from.scope.clone(),
                            schema_url: from.schema_url.clone(),
                            profiles: Vec::new(),
                        },
                        kinds: Records::without_zero(),
                        families: Vec::new(),
                    });
                }
                if let Some(scope) = self.scopes.get_mut(scope) {
                    for profile in &from.profiles {
                        scope.add(
                            profile,
                            self.options,
                            &mut self.dictionary,
                            &mut self.recent,
                            &mut self.counts,
                        );
                    }
                }
            }
        }
    }

    /// Dictionary of the merged profiles, and the relocations of its mappings. Other readers may add entries and pass
    /// profiles over these entries to [`add_profiles`](Self::add_profiles).
    pub fn dictionary(&mut self) -> (&mut Dictionary, &mut Relocations) {
        (&mut self.dictionary, &mut self.relocations)
    }

    /// Statistics so far.
    pub fn counts(&self) -> MergeCounts {
        self.counts
    }

    /// Memory of the merged profiles, in bytes.
    pub fn bytes(&self) -> usize {
        let family = |family: &Family| {
            let totals: usize = family.columns.iter().map(|c| c.totals.capacity()).sum();
            family.keys.bytes() + totals * size_of::<i64>()
        };
        let scope =
            |scope: &Scope| scope.kinds.bytes() + scope.families.iter().map(family).sum::<usize>();
        self.dictionary.bytes()
            + self.relocations.bytes()
            + self.groups.bytes()
            + self.recent.bytes()
            + self.scopes.iter().map(scope).sum::<usize>()
    }

    /// Returns the merged profiles, without samples whose values add up to 0, and without empty resources and
    /// scopes.
    pub fn finish(self) -> Profiles {
        let mut resources = self.resources;
        for scope in self.scopes {
            if let Some(resource) = resources.get_mut(scope.resource) {
                resource.scopes.extend(scope.finish());
            }
        }
        resources.retain(|resource| !resource.scopes.is_empty());
        Profiles {
            dictionary: self.dictionary,
            resources,
        }
    }
}

impl Scope {
    fn add(
        &mut self,
        profile: &Profile,
        options: MergeOptions,
        dictionary: &mut Dictionary,
        recent: &mut Recent,
        counts: &mut MergeCounts,
    ) {
        let header = &profile.header;
        let kind = self.kinds.intern(ProfileKind {
            sample_type: header.sample_type,
            period_type: header.period_type,
            period: options.separate_periods.then_some(header.period),
        });
        let (family, at) = (kind.index() / FAMILY, kind.index() % FAMILY);
        if family == self.families.len() {
            recent.families += 1;
            self.families.push(Family {
                number: recent.families,
                keys: Records::without_zero(),
                columns: Vec::new(),
            });
        }
        let Some(family) = self.families.get_mut(family) else {
            return;
        };
        let Family {
            number,
            keys,
            columns,
        } = family;
        if at == columns.len() {
            columns.push(Column {
                header: Header {
                    // A merged profile is a new profile without an original file.
                    profile_id: None,
                    original: None,
                    ..header.clone()
                },
                totals: Vec::new(),
            });
        } else if let Some(column) = columns.get_mut(at) {
            join(&mut column.header, header, options, dictionary, counts);
        }
        let Some(Column { totals, .. }) = columns.get_mut(at) else {
            return;
        };
        counts.profiles += 1;
        for sample in profile.samples.iter() {
            let (value, cut) = sample.total();
            counts.saturated += u64::from(cut);
            if value == 0 {
                continue;
            }
            let at = recent.find_or_add(*number, keys, sample.key).index();
            if at >= totals.len() {
                totals.resize(at + 1, 0);
            }
            if let Some(total) = totals.get_mut(at) {
                *total = total.checked_add(value).unwrap_or_else(|| {
                    counts.saturated += 1;
                    if value < 0 { i64::MIN } else { i64::MAX }
                });
            }
        }
        counts.samples += u64::try_from(profile.samples.len()).unwrap_or_default();
    }

    fn finish(self) -> Option<ScopeProfiles> {
        let profiles: Vec<Profile> = self.families.into_iter().flat_map(Family::finish).collect();
        (!profiles.is_empty()).then_some(ScopeProfiles {
            profiles,
            ..self.head
        })
    }
}

impl Family {
    fn finish(self) -> impl Iterator<Item = Profile> {
        let keys = self.keys;
        self.columns.into_iter().map(move |column| {
            let mut samples = Samples::default();
            samples.reserve(column.totals.len());
            for (key, total) in keys.entries().iter().zip(&column.totals) {
                if *total != 0 {
                    samples.push(*key, &[*total], &[]);
                }
            }
            Profile {
                header: column.header,
                samples,
            }
        })
    }
}

#[cfg(test)]
mod tests;
