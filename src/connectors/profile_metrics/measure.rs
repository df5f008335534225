//! Measurement of a request of profiles by resource: sums by function, and the share of frames with
//! names.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use foldhash::fast::RandomState;
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use prost::Message as _;
use ring::digest::{SHA256, digest};

use super::kinds::{Meaning, Quantity, recognize, recognize_by_period};
use super::measured::{Counted, Function, LARGEST, Measured, Measurement, Received};
use super::subject::{retained, service};
use super::unknown;
use tributary_memory::Permit;
use tributary_otlp::edit::put_delimited;
use tributary_profiles::dictionary::ValueType;
use tributary_profiles::frames::Selection;
use tributary_profiles::id::{LocationId, StackId};
use tributary_profiles::ingest::ingest;
use tributary_profiles::model::{Header, Profile, ResourceProfiles, ScopeProfiles};
use tributary_profiles::reindex::{CopiedEntries, ProfileFault};
use tributary_profiles::top::count;
use tributary_profiles::{Dictionary, names};

/// Reason why a request cannot be measured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unmeasured {
    /// The request breaks the rules of its dictionary.
    #[error(transparent)]
    ProfileFault(#[from] ProfileFault),
    /// The request exceeds the bounds, and would do so again.
    #[error(
        "the stacks have {found} {what} in total, more than the {most} allowed for a request of this size: send \
         smaller requests, or shorter stacks"
    )]
    TooMuch {
        what: &'static str,
        found: u64,
        most: u64,
    },
    #[error("the memory budget is used up; cannot count the profiles now")]
    NoRoom,
}

/// Limits of the stacks in a request, counted once per use in a profile: 10000 profiles can share a
/// stack of 100000 frames, or a name of a megabyte.
#[derive(Debug, Clone, Copy)]
pub(in crate::connectors) struct Bounds {
    /// Maximum number of frames. A sample takes 15 bytes, and stacks of 200 frames are usual for
    /// Java.
    pub(in crate::connectors) frames: u64,
    /// Maximum bytes of function names.
    pub(in crate::connectors) names: u64,
}

impl Bounds {
    /// Returns the limits for a request of this size in bytes, equal to those of the exporter
    /// `parquet`.
    pub(in crate::connectors) fn of(request: usize) -> Self {
        let bound = |each: u64| each.saturating_mul(request as u64).saturating_add(64 << 20);
        Bounds {
            frames: bound(16),
            names: bound(32),
        }
    }
}

/// Measures a request. `memory` grows by the size of the values.
///
/// # Errors
/// Returns an error if the request breaks the rules of its dictionary, exceeds `bounds`, or no
/// memory is left.
pub(super) fn measure(
    request: &[u8],
    keys: &[String],
    bounds: Bounds,
    memory: &mut Permit,
) -> Result<Vec<Measured>, Unmeasured> {
    let mut dictionary = Dictionary::new();
    let read = ingest(
        request,
        &mut dictionary,
        &mut CopiedEntries::default(),
        None,
    )?;
    let mut reader = Reader {
        dictionary: &dictionary,
        locations: HashMap::default(),
        stacks: HashMap::default(),
        profiles: 0,
        frames: 0,
        names: 0,
        bounds,
        memory,
    };
    let resources = read.resources.iter();
    resources
        .map(|resource| reader.resource(resource, keys))
        .collect()
}

struct Reader<'d> {
    dictionary: &'d Dictionary,
    /// Frames with and without names, by location and by stack.
    locations: HashMap<LocationId, (u64, u64), RandomState>,
    stacks: HashMap<StackId, Stack, RandomState>,
    /// Profiles, frames in their stacks, and bytes of names so far.
    profiles: u64,
    frames: u64,
    names: u64,
    bounds: Bounds,
    memory: &'d mut Permit,
}

#[derive(Debug)]
struct Stack {
    named: u64,
    unnamed: u64,
    /// Profile that used the stack last.
    profile: u64,
}

impl Reader<'_> {
    fn resource(
        &mut self,
        from: &ResourceProfiles,
        keys: &[String],
    ) -> Result<Measured, Unmeasured> {
        let resource = from.resource.as_ref();
        let mut measured = Measured {
            retained: retained(resource, keys),
            service: service(resource),
            instance: resource.map_or_else(Vec::new, |resource| {
                digest(&SHA256, &resource.encode_to_vec()).as_ref().to_vec()
            }),
            received: Received::default(),
            profiles: Vec::new(),
            unknown: Vec::new(),
        };
        for scope in &from.scopes {
            self.scope(scope, &mut measured)?;
        }
        Ok(measured)
    }

    fn scope(&mut self, from: &ScopeProfiles, into: &mut Measured) -> Result<(), Unmeasured> {
        let scope = from.scope.as_ref();
        let source = source(scope);
        // These values are equal for all profiles of the scope.
        let is_one_of_several = is_one_of_several(scope);
        let origin = origin(source.as_deref(), scope);
        let recognized: Vec<_> = from
            .profiles
            .iter()
            .map(|profile| self.meaning(&profile.header))
            .collect();
        let kinds = recognized.iter().flatten().map(|meaning| meaning.kind);
        let kinds: HashSet<Quantity> = kinds.collect();
        for (profile, meaning) in from.profiles.iter().zip(&recognized) {
            into.received.add(self.received(profile)?);
            let meaning = match meaning {
                Some(meaning) => Some(*meaning),
                None => {
                    let periods = self.by_period(&profile.header);
                    // Profilers that report both durations and sample counts report the same
                    // quantity twice.
                    let again = |found: &Meaning| is_one_of_several || kinds.contains(&found.kind);
                    if periods.as_ref().is_some_and(again) {
                        continue;
                    }
                    periods
                }
            };
            let Some(meaning) = meaning else {
                let (kind, unit) = self.names(profile.header.sample_type);
                into.unknown.push(unknown::name(kind, unit));
                continue;
            };
            let series = meaning.cumulative.then(|| {
                let mut key = into.instance.clone();
                key.extend_from_slice(&origin);
                key.push(meaning.kind as u8);
                key
            });
            into.profiles.push(Measurement {
                kind: meaning.kind,
                source: source.clone(),
                time: profile.header.time,
                series,
                values: self.values(profile, meaning)?,
            });
        }
        Ok(())
    }

    fn names(&self, value_type: ValueType) -> (&str, &str) {
        let text = |id| self.dictionary.text(id);
        (text(value_type.kind), text(value_type.unit))
    }

    fn meaning(&self, header: &Header) -> Option<Meaning> {
        recognize(self.names(header.sample_type), header.duration)
    }

    fn by_period(&self, header: &Header) -> Option<Meaning> {
        let period_type = self.names(header.period_type);
        recognize_by_period(self.names(header.sample_type), period_type, header.period)
    }

    fn values(&mut self, profile: &Profile, meaning: Meaning) -> Result<Counted, Unmeasured> {
        let one = std::iter::once(profile);
        let counts = count(self.dictionary, one, &Selection::default());
        let scaled = |value: i64| {
            let value = i128::from(value).saturating_mul(meaning.scale);
            value.clamp(-LARGEST, LARGEST)
        };
        let mut values = Counted::new(scaled(counts.total));
        if meaning.kind.metric().of_functions {
            for (name, own, total) in counts.rows(self.dictionary) {
                let function = Function {
                    own: scaled(own),
                    total: scaled(total),
                };
                self.names = self.names.saturating_add(name.len() as u64);
                within("bytes of names", self.names, self.bounds.names)?;
                values.push(&name, function);
            }
        }
        let room = self.memory.grow(values.bytes());
        room.map_err(|_| Unmeasured::NoRoom)?;
        Ok(values)
    }

    fn received(&mut self, profile: &Profile) -> Result<Received, Unmeasured> {
        let mut received = Received {
            profiles: 1,
            samples: profile.samples.len() as u64,
            ..Received::default()
        };
        self.profiles += 1;
        for sample in profile.samples.iter() {
            let Reader {
                dictionary,
                locations,
                ..
            } = self;
            let known = self.stacks.entry(sample.key.stack);
            let known = known.or_insert_with_key(|stack| Stack::of(dictionary, *stack, locations));
            received.named += known.named;
            received.unnamed += known.unnamed;
            if std::mem::replace(&mut known.profile, self.profiles) != self.profiles {
                self.frames = self.frames.saturating_add(known.named + known.unnamed);
                within("frames", self.frames, self.bounds.frames)?;
            }
        }
        Ok(received)
    }
}

fn within(what: &'static str, found: u64, most: u64) -> Result<(), Unmeasured> {
    match found <= most {
        true => Ok(()),
        false => Err(Unmeasured::TooMuch { what, found, most }),
    }
}

impl Stack {
    fn of(
        dictionary: &Dictionary,
        stack: StackId,
        locations: &mut HashMap<LocationId, (u64, u64), RandomState>,
    ) -> Self {
        let mut found = Stack {
            named: 0,
            unnamed: 0,
            profile: 0,
        };
        for location in dictionary.locations(stack) {
            let known = locations.entry(*location);
            let (named, unnamed) =
                *known.or_insert_with_key(|location| frames(dictionary, *location));
            found.named += named;
            found.unnamed += unnamed;
        }
        found
    }
}

/// Returns the number of frames of a location with names and without names.
fn frames(dictionary: &Dictionary, location: LocationId) -> (u64, u64) {
    let (mut named, mut unnamed) = (0, 0);
    let lines = dictionary.get_lines(dictionary.get_location(location).lines);
    for line in lines {
        let function = dictionary.get_function(line.function);
        match dictionary.text(function.name) {
            "" => unnamed += 1,
            _ => named += 1,
        }
    }
    unnamed += u64::from(lines.is_empty());
    (named, unnamed)
}

/// Returns a hash that distinguishes the profiles of a scope: both texts may be long, and each
/// profile refers to them.
fn origin(source: Option<&str>, scope: Option<&InstrumentationScope>) -> Vec<u8> {
    let mut origin = Vec::new();
    put_delimited(1, source.unwrap_or_default().as_bytes(), &mut origin);
    let name = scope.map_or("", |scope| &scope.name);
    put_delimited(2, name.as_bytes(), &mut origin);
    digest(&SHA256, &origin).as_ref().to_vec()
}

pub(super) fn source(scope: Option<&InstrumentationScope>) -> Option<Arc<str>> {
    let mut attributes = scope?.attributes.iter();
    let found = attributes.find(|attribute| attribute.key == names::PROFILE_NAME)?;
    match found.value.as_ref()?.value.as_ref()? {
        Value::StringValue(name) => Some(name.as_str().into()),
        _ => None,
    }
}

/// Whether the profiles of a scope belong to a pprof file with several sample types, some of which
/// may be missing here.
fn is_one_of_several(scope: Option<&InstrumentationScope>) -> bool {
    let mut attributes = scope.into_iter().flat_map(|scope| &scope.attributes);
    attributes.any(|attribute| {
        let value = attribute.value.as_ref().and_then(|any| any.value.as_ref());
        attribute.key == names::SAMPLE_TYPE_ORDER
            && matches!(value, Some(Value::ArrayValue(order)) if order.values.len() > 1)
    })
}

#[cfg(test)]
mod tests;
