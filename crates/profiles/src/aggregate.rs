//! The profiles of a service's many instances, over a while, become one summary.
//!
//! Values of equal samples are added up, as [`Merger`] does it. What is not a count but a level (memory in use,
//! goroutines) is added up over instances, but not over time.

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
use super::dictionary::{SampleKey, ValueType};
use super::group::Groups;
use super::id::LinkId;
use super::ingest::ingest;
use super::merge::{self, Merger};
use super::model::{Header, Profile, Profiles, ResourceProfiles, Samples, ScopeProfiles};
use super::names;
use super::reindex::{Fault, Memo};
use super::relocations::Addresses;

/// The resource attribute that says how many instances a summary is of.
pub const MERGED_COUNT: &str = "merged.count";

/// How profiles become a summary.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Options {
    /// The resource attributes that stay, and keep profiles apart.
    pub group_by: Vec<String>,
    /// The sample types that are levels. What is not in here and counts from the start of a process, see
    /// [`names::is_cumulative`], is one of which the last counts.
    pub gauges: BTreeMap<String, Gauge>,
    /// For how many of a profile's heaviest samples the span is kept.
    pub exemplars: usize,
    /// How many places of its call tree a profile may have; 0: no limit.
    pub max_nodes: usize,
}

/// What becomes of an instance's levels over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gauge {
    /// They are added up: it is no level after all.
    Sum,
    /// The average of its profiles.
    Average,
    /// The last one counts.
    Last,
}

/// What must be equal in profiles of a scope that become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Kind {
    sample_type: ValueType,
    period_type: ValueType,
    period: i64,
}

impl Kind {
    fn of(header: &Header) -> Self {
        Kind {
            sample_type: header.sample_type,
            period_type: header.period_type,
            period: header.period,
        }
    }
}

/// Gathers profiles.
#[derive(Debug)]
pub struct Aggregator {
    options: Options,
    merger: Merger,
    memo: Memo,
    /// Resources as they came: an instance each.
    instances: Groups,
    /// Resources and scopes as they leave.
    groups: Groups,
    resources: Vec<Resource>,
    /// With the resource they are of, without profiles.
    scopes: Vec<(usize, ScopeProfiles)>,
    gauges: Gauges,
    exemplars: HashMap<(usize, Kind), Exemplars>,
}

/// The profiles of a request, over the dictionary of the aggregator that read it.
#[derive(Debug)]
pub struct Read(Vec<ResourceProfiles>);

/// What profiles became.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// An encoded request.
    pub request: Bytes,
    /// How many samples it has.
    pub samples: usize,
    /// How many sums did not fit and stand at the most there can be.
    pub saturated: u64,
}

#[derive(Debug)]
struct Resource {
    /// Without scopes.
    head: ResourceProfiles,
    /// How many each instance counts for: 1, unless it is a summary itself.
    instances: HashMap<usize, i64>,
}

impl Aggregator {
    /// Nothing yet.
    pub fn new(options: Options) -> Self {
        Aggregator {
            options,
            merger: Merger::new(merge::Options {
                addresses: Addresses::Relocated,
                separate_periods: true,
                duration: merge::Duration::Span,
            }),
            memo: Memo::default(),
            instances: Groups::default(),
            groups: Groups::default(),
            resources: Vec::new(),
            scopes: Vec::new(),
            gauges: Gauges::default(),
            exemplars: HashMap::new(),
        }
    }

    /// Adds the profiles of a request: all of them, or none if there is an error.
    ///
    /// # Errors
    /// See [`Fault`].
    pub fn add(&mut self, request: &ExportProfilesServiceRequest) -> Result<(), Fault> {
        self.add_encoded(&request.encode_to_vec())
    }

    /// Adds the profiles of an encoded request: all of them, or none if there is an error.
    ///
    /// # Errors
    /// See [`Fault`].
    pub fn add_encoded(&mut self, request: &[u8]) -> Result<(), Fault> {
        let read = self.read(request)?;
        self.add_read(read);
        Ok(())
    }

    /// Reads an encoded request, to be [added](Self::add_read) to this aggregator and no other. Who changes his mind just
    /// drops it. This is most of the work.
    ///
    /// # Errors
    /// See [`Fault`].
    pub fn read(&mut self, request: &[u8]) -> Result<Read, Fault> {
        let (dictionary, relocations) = self.merger.dictionary();
        let ingested = ingest(request, dictionary, &mut self.memo, Some(relocations))?;
        Ok(Read(ingested.resources))
    }

    /// Adds the profiles of a request.
    pub fn add_read(&mut self, read: Read) {
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

    /// The profile as it is to be merged; without its samples when these are kept for the end.
    fn profile(&mut self, instance: usize, scope: usize, profile: Profile) -> Profile {
        let kind = Kind::of(&profile.header);
        let gauge = self.gauge(&profile.header);
        let most = match gauge {
            // The value of one moment is no part of an average.
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
                // Keeps its place between the others: the order of sample types is part of what pprof files say.
                profile.samples = Samples::default();
                profile
            }
        }
    }

    /// What becomes of the values over time where they are not just added up.
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

    /// The memory that it takes.
    pub fn bytes(&self) -> usize {
        let instances: usize = self
            .resources
            .iter()
            .map(|resource| resource.instances.capacity() * 2 * size_of::<(usize, i64)>())
            .sum();
        let exemplars: usize = self.exemplars.values().map(Exemplars::bytes).sum();
        self.merger.bytes()
            + self.instances.bytes()
            // As bytes, and as structs.
            + 3 * self.groups.bytes()
            + instances
            + self.gauges.bytes()
            + exemplars
    }

    /// The summary.
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
                    let kind = Kind::of(&profile.header);
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

/// Takes the number of instances out of a resource that is a summary.
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

/// Leaves only these attributes, in order. What refers to others goes with them.
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
