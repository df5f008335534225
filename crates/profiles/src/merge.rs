//! Merges profiles into one, adding the values of equal samples as pprof does.

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue};
use prost::Message as _;

use super::dictionary::{Attribute, Dictionary, SampleKey, ValueType};
use super::group::Groups;
use super::id::{AttributeId, AttributeSetId, GroupId, Id as _, SampleId};
use super::ingest::ingest;
use super::model::{Header, Profile, Profiles, ResourceProfiles, Samples, ScopeProfiles};
use super::names;
use super::reindex::{CopiedEntries, ProfileFault};
use super::relocations::{Addresses, Relocations};
use super::table::Records;

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
/// Profiles with equal resources, scopes and types become one. Memory is proportional to the size of the result,
/// not of the input.
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

/// Number of kinds that share sample keys. Without a limit, a request with many kinds and few samples in each would
/// take memory for all samples in all kinds.
const FAMILY: usize = 8;

/// Profiles that share their sample keys, since several sample types mostly have the same samples.
#[derive(Debug)]
struct Family {
    /// Unique number among all scopes, from 1.
    number: u32,
    keys: Records<SampleId, SampleKey>,
    columns: Vec<Column>,
}

/// Most recent sample by stack. The next sample with a stack mostly has the same key, with a value of another type
/// or time.
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
    /// Totals by sample key; missing ones at the end are 0.
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

    /// Adds the profiles of a request: all of them, or none if there is an error.
    ///
    /// # Errors
    /// See [`ProfileFault`].
    pub fn add(&mut self, request: &ExportProfilesServiceRequest) -> Result<(), ProfileFault> {
        self.add_encoded(&request.encode_to_vec())
    }

    /// Adds the profiles of an encoded request: all of them, or none if there is an error.
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

    /// Dictionary of the merged profiles, and the relocations of the mappings in it. Other readers may add entries
    /// and pass profiles over them to [`add_profiles`](Self::add_profiles).
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

fn join(
    into: &mut Header,
    from: &Header,
    options: MergeOptions,
    dictionary: &mut Dictionary,
    counts: &mut MergeCounts,
) {
    let end = |header: &Header| header.time.saturating_add(header.duration);
    let time = match (into.time, from.time) {
        (0, time) | (time, 0) => time,
        (a, b) => a.min(b),
    };
    into.duration = match options.duration {
        DurationRule::Span => end(into).max(end(from)).saturating_sub(time),
        DurationRule::Sum => into.duration.checked_add(from.duration).unwrap_or_else(|| {
            counts.saturated += 1;
            u64::MAX
        }),
    };
    into.time = time;
    into.period = into.period.max(from.period);
    into.dropped_attributes = into
        .dropped_attributes
        .saturating_add(from.dropped_attributes);
    if into.attributes != from.attributes {
        into.attributes = union(dictionary, into.attributes, from.attributes);
    }
}

/// Returns the union of two attribute sets. The first value of a key stays, but comments are concatenated.
fn union(
    dictionary: &mut Dictionary,
    first: AttributeSetId,
    second: AttributeSetId,
) -> AttributeSetId {
    let mut all: Vec<AttributeId> = Vec::new();
    let comments = [first, second].map(|set| dictionary.find(set, names::COMMENT));
    if let [Some(first), Some(second)] = comments
        && first != second
    {
        all.push(joined(dictionary, first, second));
    }
    all.extend_from_slice(dictionary.attributes(first));
    all.extend_from_slice(dictionary.attributes(second));
    dictionary.attribute_set(&all)
}

fn joined(dictionary: &mut Dictionary, first: Attribute, second: Attribute) -> AttributeId {
    let list = |attribute: Attribute| match dictionary.any_value(attribute.value).value {
        Some(Value::ArrayValue(array)) => array.values,
        value => vec![AnyValue { value }],
    };
    let mut values = list(first);
    for value in list(second) {
        if !values.contains(&value) {
            values.push(value);
        }
    }
    let value = AnyValue {
        value: Some(Value::ArrayValue(ArrayValue { values })),
    };
    let value = dictionary.value(&value);
    dictionary.attribute(Attribute { value, ..first })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::StackId;

    /// Returns a profile over the merger's dictionary.
    fn resources(header: Header, samples: &[(StackId, i64)]) -> Vec<ResourceProfiles> {
        let mut profile = Profile {
            header,
            samples: Samples::default(),
        };
        for (stack, value) in samples {
            let key = SampleKey {
                stack: *stack,
                ..SampleKey::default()
            };
            profile.samples.push(key, &[*value], &[]);
        }
        vec![ResourceProfiles {
            scopes: vec![ScopeProfiles {
                profiles: vec![profile],
                ..ScopeProfiles::default()
            }],
            ..ResourceProfiles::default()
        }]
    }

    fn header(time: u64, duration: u64, period: i64) -> Header {
        Header {
            time,
            duration,
            period,
            profile_id: Some([1; 16]),
            original: Some(("pprof".to_owned(), vec![1])),
            ..Header::default()
        }
    }

    fn only(profiles: &Profiles) -> &Profile {
        let all: Vec<_> = profiles.iter().collect();
        assert_eq!(all.len(), 1);
        all[0]
    }

    #[test]
    fn equal_samples_are_added_and_zero_sums_dropped() {
        let mut merger = Merger::new(MergeOptions::default());
        let (dictionary, _) = merger.dictionary();
        let [a, b, c] = [1, 2, 3].map(|address| {
            let location = dictionary.location(crate::dictionary::Location {
                address,
                ..Default::default()
            });
            dictionary.stack(&[location])
        });
        merger.add_profiles(&resources(header(5, 1, 1), &[(a, 1), (b, 2), (a, 3)]));
        merger.add_profiles(&resources(header(5, 1, 1), &[(b, -2), (c, 7)]));
        let expected = MergeCounts {
            profiles: 2,
            samples: 5,
            saturated: 0,
        };
        assert_eq!(merger.counts(), expected);
        let merged = merger.finish();
        let samples = only(&merged).samples.iter();
        let totals: Vec<_> = samples.map(|s| (s.key.stack, s.total().0)).collect();
        assert_eq!(totals, [(a, 4), (c, 7)]);
    }

    #[test]
    fn merged_header_spans_all_and_has_no_id() {
        let merged = |duration| {
            let mut merger = Merger::new(MergeOptions {
                duration,
                ..MergeOptions::default()
            });
            for header in [header(0, 7, 1), header(200, 30, 3), header(100, 50, 2)] {
                merger.add_profiles(&resources(header, &[]));
            }
            only(&merger.finish()).header.clone()
        };
        let sum = merged(DurationRule::Sum);
        assert_eq!((sum.time, sum.duration, sum.period), (100, 87, 3));
        assert_eq!((sum.profile_id, sum.original), (None, None));
        assert_eq!(merged(DurationRule::Span).duration, 130);
    }

    #[test]
    fn periods_stay_apart_on_request() {
        let mut merger = Merger::new(MergeOptions {
            separate_periods: true,
            ..MergeOptions::default()
        });
        for period in [1, 2, 1] {
            merger.add_profiles(&resources(header(1, 1, period), &[]));
        }
        assert_eq!(merger.finish().iter().count(), 2);
    }

    #[test]
    fn many_kinds_of_few_samples_take_little_memory() {
        const KINDS: i64 = 3000;
        let mut merger = Merger::new(MergeOptions {
            separate_periods: true,
            ..MergeOptions::default()
        });
        for period in 0..KINDS {
            let (dictionary, _) = merger.dictionary();
            let location = dictionary.location(crate::dictionary::Location {
                address: period.unsigned_abs(),
                ..Default::default()
            });
            let stack = dictionary.stack(&[location]);
            merger.add_profiles(&resources(header(1, 1, period), &[(stack, 1)]));
        }
        // Storing all samples in all kinds would take 36 MB.
        assert!(merger.bytes() < 4 << 20, "{}", merger.bytes());
        let merged = merger.finish();
        assert_eq!(merged.iter().count(), KINDS as usize);
        assert_eq!(merged.samples(), KINDS as usize);
    }

    #[test]
    fn overflowing_sums_saturate_and_are_counted() {
        let mut merger = Merger::new(MergeOptions::default());
        let stack = StackId::default();
        merger.add_profiles(&resources(header(1, u64::MAX, 1), &[(stack, i64::MAX - 1)]));
        merger.add_profiles(&resources(header(1, 1, 1), &[(stack, 5)]));
        assert_eq!(merger.counts().saturated, 2, "a sum and a duration");
        let merged = merger.finish();
        let sample = only(&merged).samples.iter().next();
        assert_eq!(sample.map(|sample| sample.total().0), Some(i64::MAX));
        assert_eq!(only(&merged).header.duration, u64::MAX);
    }

    #[test]
    fn merge_keeps_all_comments_and_first_other_attributes() {
        let mut merger = Merger::new(MergeOptions::default());
        let list = |words: &[&str]| AnyValue {
            value: Some(Value::ArrayValue(ArrayValue {
                values: words
                    .iter()
                    .map(|word| AnyValue {
                        value: Some(Value::StringValue((*word).to_owned())),
                    })
                    .collect(),
            })),
        };
        for (comments, url) in [(&["a", "b"][..], "first"), (&["b", "c"], "second")] {
            let (dictionary, _) = merger.dictionary();
            let comments = dictionary.any_attribute(names::COMMENT, &list(comments));
            let url = dictionary.string_attribute(names::DOC_URL, url);
            let attributes = dictionary.attribute_set(&[comments, url]);
            let header = Header {
                attributes,
                ..header(1, 1, 1)
            };
            merger.add_profiles(&resources(header, &[]));
        }
        let merged = merger.finish();
        let attributes = only(&merged).header.attributes;
        let value = |key| {
            let found = merged.dictionary.find(attributes, key).unwrap();
            merged.dictionary.any_value(found.value)
        };
        assert_eq!(value(names::COMMENT), list(&["a", "b", "c"]));
        let first = Value::StringValue("first".to_owned());
        assert_eq!(value(names::DOC_URL).value, Some(first));
    }
}
