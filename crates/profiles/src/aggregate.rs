//! Summarizes the profiles of a service's instances over an interval.
//!
//! Values of equal samples are added as in [`Merger`]. Gauges (memory in use, goroutines) are added over instances,
//! but not over time.

mod exemplars;
mod gauges;
mod series;
mod truncate;

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use prost::Message as _;

use self::exemplars::Exemplars;
use self::gauges::Gauges;
pub use self::series::series;
use super::fault::ProfileFault;
use super::group::Groups;
use super::id::LinkId;
use super::ingest::ingest;
use super::merge::{self, Merger};
use super::model::{Header, Profile, Profiles, ResourceProfiles, Samples, ScopeProfiles};
use super::names;
use super::reindex::CopiedEntries;
use super::relocations::Addresses;
use crate::entry::{SampleKey, ValueType};

/// Resource attribute with the number of instances in a summary.
pub const MERGED_COUNT: &str = "merged.count";

/// Options of a summary.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SummaryOptions {
    /// Resource attributes that are kept and that separate summaries.
    pub group_by: Vec<String>,
    /// Sample types that are gauges. Other sample types that are cumulative, see [`names::is_cumulative`], are treated
    /// as [`Gauge::Last`].
    pub gauges: BTreeMap<String, Gauge>,
    /// Number of a profile's heaviest samples that keep their span.
    pub exemplars: usize,
    /// Maximum number of nodes in the call tree of a profile; 0 means no limit.
    pub max_nodes: usize,
}

/// Combination of an instance's gauge values over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gauge {
    /// Sum, as for a counter.
    Sum,
    /// Average of the profiles.
    Average,
    /// Value of the last profile.
    Last,
}

/// Identity of a profile within a scope: profiles with equal identities are merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct ProfileKind {
    sample_type: ValueType,
    period_type: ValueType,
    period: i64,
}

impl ProfileKind {
    fn of(header: &Header) -> Self {
        ProfileKind {
            sample_type: header.sample_type,
            period_type: header.period_type,
            period: header.period,
        }
    }
}

/// Buffers profiles for a summary.
#[derive(Debug)]
pub struct Aggregator {
    options: SummaryOptions,
    merger: Merger,
    memo: CopiedEntries,
    /// Resources as received, one per instance.
    instances: Groups,
    /// Resources and scopes of the summary.
    groups: Groups,
    resources: Vec<Resource>,
    /// Scopes without their profiles, each with the index of its resource.
    scopes: Vec<(usize, ScopeProfiles)>,
    gauges: Gauges,
    exemplars: HashMap<(usize, ProfileKind), Exemplars>,
}

/// The profiles of a request over the dictionary of the aggregator that read the request.
#[derive(Debug)]
pub struct ReadProfiles(Vec<ResourceProfiles>);

/// A summary of profiles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Encoded request.
    pub request: Bytes,
    /// Number of samples in the request.
    pub samples: usize,
    /// Number of sums that were saturated.
    pub saturated: u64,
}

#[derive(Debug)]
struct Resource {
    /// Resource without scopes.
    head: ResourceProfiles,
    /// Number of instances per input resource: 1, unless the resource is a summary itself.
    instances: HashMap<usize, i64>,
}

impl Aggregator {
    /// Creates an empty aggregator.
    pub fn new(options: SummaryOptions) -> Self {
        Aggregator {
            options,
            merger: Merger::new(merge::MergeOptions {
                addresses: Addresses::Relocated,
                separate_periods: true,
                duration: merge::DurationRule::Span,
            }),
            memo: CopiedEntries::default(),
            instances: Groups::default(),
            groups: Groups::default(),
            resources: Vec::new(),
            scopes: Vec::new(),
            gauges: Gauges::default(),
            exemplars: HashMap::new(),
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
        let read = self.read(request)?;
        self.add_read(read);
        Ok(())
    }

    /// Reads an encoded request, which may then be [added](Self::add_read) to this aggregator only. Dropping the
    /// result discards the request. Reading is most of the work.
    ///
    /// # Errors
    /// See [`ProfileFault`].
    pub fn read(&mut self, request: &[u8]) -> Result<ReadProfiles, ProfileFault> {
        let (dictionary, relocations) = self.merger.dictionary();
        let ingested = ingest(request, dictionary, &mut self.memo, Some(relocations))?;
        Ok(ReadProfiles(ingested.resources))
    }

    /// Adds the profiles of a request read before.
    pub fn add_read(&mut self, read: ReadProfiles) {
        for resource in read.0 {
            self.resource(resource);
        }
    }

    fn resource(&mut self, mut from: ResourceProfiles) {
        let scopes = std::mem::take(&mut from.scopes);
        let weight = reduce_count(&mut from);
        let instance = self.instances.resource(&from);
        retain(&mut from, &self.options.group_by);
        let at = self.groups.resource(&from);
        if at == self.resources.len() {
            self.resources.push(Resource {
                head: from.clone(),
                instances: HashMap::new(),
            });
        }
        if let Some(resource) = self.resources.get_mut(at) {
            let known = resource.instances.entry(instance).or_default();
            *known = weight.max(*known);
        }
        for mut scope in scopes {
            let profiles = std::mem::take(&mut scope.profiles);
            let place = self.groups.scope(at, &scope);
            if place == self.scopes.len() {
                self.scopes.push((at, scope.clone()));
            }
            for profile in profiles {
                scope.profiles.push(self.profile(instance, place, profile));
            }
            from.scopes.push(scope);
        }
        self.merger.add_profiles(std::slice::from_ref(&from));
    }

    /// Prepares a profile for merging. The samples of a gauge are kept aside until the end.
    fn profile(&mut self, instance: usize, scope: usize, profile: Profile) -> Profile {
        let kind = ProfileKind::of(&profile.header);
        let gauge = self.gauge(&profile.header);
        let most = match gauge {
            // A gauge keeps no exemplars: the value of one moment is not part of an average.
            Some(_) => 0,
            None => self.options.exemplars,
        };
        let mut samples = Samples::default();
        samples.reserve(profile.samples.len());
        for sample in profile.samples.iter() {
            let key = sample.key;
            if key.link != LinkId::default() && most > 0 {
                let exemplars = self.exemplars.entry((scope, kind)).or_default();
                exemplars.add(key, sample.total().0, most);
            }
            let key = SampleKey {
                link: LinkId::default(),
                ..key
            };
            samples.push(key, sample.values, sample.timestamps);
        }
        let mut profile = Profile {
            header: profile.header,
            samples,
        };
        match gauge {
            None => profile,
            Some(gauge) => {
                self.gauges.add((instance, scope, kind), gauge, &profile);
                // The empty profile keeps its position, because pprof files depend on the order of sample types.
                profile.samples = Samples::default();
                profile
            }
        }
    }

    /// Returns the combination over time if values are not simply added.
    fn gauge(&mut self, header: &Header) -> Option<Gauge> {
        let (dictionary, _) = self.merger.dictionary();
        let ValueType { kind, unit } = header.sample_type;
        let (kind, unit) = (dictionary.text(kind), dictionary.text(unit));
        match self.options.gauges.get(kind) {
            Some(Gauge::Sum) => None,
            Some(gauge) => Some(*gauge),
            None => names::is_cumulative(kind, unit, header.duration).then_some(Gauge::Last),
        }
    }

    /// Memory of the buffered profiles, in bytes.
    pub fn bytes(&self) -> usize {
        let instances: usize = self
            .resources
            .iter()
            .map(|resource| resource.instances.capacity() * 2 * size_of::<(usize, i64)>())
            .sum();
        let exemplars: usize = self.exemplars.values().map(Exemplars::bytes).sum();
        self.merger.bytes()
            + self.instances.bytes()
            // Counted as encoded bytes and as structs.
            + 3 * self.groups.bytes()
            + instances
            + self.gauges.bytes()
            + exemplars
    }

    /// Returns the summary.
    pub fn finish(mut self) -> Summary {
        let mut saturated = self.gauges.saturated();
        for ((_, scope, _), profile) in self.gauges.finish() {
            let Some((resource, head)) = self.scopes.get(scope) else {
                continue;
            };
            let Some(resource) = self.resources.get(*resource) else {
                continue;
            };
            let mut scope = head.clone();
            scope.profiles.push(profile);
            let mut resource = resource.head.clone();
            resource.scopes.push(scope);
            self.merger.add_profiles(&[resource]);
        }
        saturated += self.merger.counts().saturated;
        let Profiles {
            mut dictionary,
            mut resources,
        } = self.merger.finish();
        for resource in &mut resources {
            let at = self.groups.resource(resource);
            for scope in &mut resource.scopes {
                let place = self.groups.scope(at, scope);
                for profile in &mut scope.profiles {
                    let kind = ProfileKind::of(&profile.header);
                    if let Some(exemplars) = self.exemplars.get(&(place, kind)) {
                        exemplars.apply(&mut profile.samples);
                    }
                    if self.options.max_nodes > 0 {
                        let most = self.options.max_nodes;
                        saturated +=
                            truncate::truncate(&mut profile.samples, most, &mut dictionary);
                    }
                }
            }
            if let Some(from) = self.resources.get(at) {
                let count = from.instances.values();
                let count = count.fold(0, |sum: i64, count| sum.saturating_add(*count));
                let attributes = &mut resource.resource.get_or_insert_default().attributes;
                attributes.push(KeyValue {
                    key: MERGED_COUNT.to_owned(),
                    value: Some(AnyValue {
                        value: Some(Value::IntValue(count)),
                    }),
                    ..KeyValue::default()
                });
            }
        }
        let profiles = Profiles {
            dictionary,
            resources,
        };
        Summary {
            request: profiles.encode(),
            samples: profiles.samples(),
            saturated,
        }
    }
}

/// Removes the instance count from the resource of a summary, and returns the count.
fn reduce_count(from: &mut ResourceProfiles) -> i64 {
    let Some(resource) = &mut from.resource else {
        return 1;
    };
    let mut count = 1;
    resource.attributes.retain(|attribute| {
        if attribute.key != MERGED_COUNT {
            return true;
        }
        if let Some(Value::IntValue(merged)) =
            attribute.value.as_ref().and_then(|v| v.value.as_ref())
        {
            count = (*merged).max(1);
        }
        false
    });
    count
}

/// Keeps only the attributes with these keys, sorted by key, and removes entity references.
fn retain(from: &mut ResourceProfiles, keys: &[String]) {
    if let Some(resource) = &mut from.resource {
        resource
            .attributes
            .retain(|attribute| keys.contains(&attribute.key));
        resource.attributes.sort_by(|a, b| a.key.cmp(&b.key));
        resource.entity_refs.clear();
        resource.dropped_attributes_count = 0;
    }
}

#[cfg(test)]
mod tests;
