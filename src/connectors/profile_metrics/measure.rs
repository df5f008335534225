//! What a request of profiles says, resource by resource: sums by function, and how much of it has names.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use prost::Message as _;
use ring::digest::{SHA256, digest};

use super::kinds::{Kind, Meaning, recognize, recognize_by_period};
use super::subject::{retained, service};
use crate::profiles::Dictionary;
use crate::profiles::dictionary::ValueType;
use crate::profiles::frames::Selection;
use crate::profiles::id::StackId;
use crate::profiles::ingest::ingest;
use crate::profiles::model::{Header, Profile, ResourceProfiles, ScopeProfiles};
use crate::profiles::names;
use crate::profiles::reindex::{Fault, Memo};
use crate::profiles::top::count;
use crate::wire::edit::put_delimited;

/// What one resource sent.
#[derive(Debug)]
pub(super) struct Measured {
    /// What stays of the resource.
    pub(super) retained: Vec<u8>,
    /// Its service.
    pub(super) service: Vec<u8>,
    /// All of the resource, as a hash: the resource may be large, and each of its profiles and series refers to it.
    pub(super) instance: Vec<u8>,
    pub(super) received: Received,
    pub(super) profiles: Vec<Measurement>,
    /// The sample types of profiles that there is no metric for, with their units.
    pub(super) unknown: Vec<String>,
}

/// How much there was.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Received {
    pub(super) profiles: u64,
    pub(super) samples: u64,
    /// Frames in the stacks of the samples that have a function's name.
    pub(super) named: u64,
    /// Those that have none.
    pub(super) unnamed: u64,
}

impl Received {
    pub(super) fn add(&mut self, more: Received) {
        self.profiles += more.profiles;
        self.samples += more.samples;
        self.named += more.named;
        self.unnamed += more.unnamed;
    }
}

/// A profile.
#[derive(Debug)]
pub(super) struct Measurement {
    pub(super) kind: Kind,
    /// Which profile of its source it was, if that is known.
    pub(super) source: Option<Arc<str>>,
    /// When it began, in nanoseconds since 1970; 0 when not known.
    pub(super) time: u64,
    /// What it goes on from, where it counts from the start of a process: equal for the profile before it.
    pub(super) series: Option<Vec<u8>>,
    pub(super) values: Counted,
}

/// What a profile counted, in nanoseconds, bytes, or numbers of things. Nearly all of it is added up and forgotten,
/// so its names are in one piece of memory.
#[derive(Debug, Default)]
pub(super) struct Counted {
    pub(super) total: i128,
    names: String,
    /// Each with the end of its name.
    functions: Vec<(usize, Function)>,
}

impl Counted {
    /// So much, of no function so far.
    pub(super) fn new(total: i128) -> Self {
        Counted {
            total,
            ..Counted::default()
        }
    }

    /// A function has this; it may have something already.
    pub(super) fn push(&mut self, name: &str, function: Function) {
        self.names.push_str(name);
        self.functions.push((self.names.len(), function));
    }

    /// What functions have, in no order. A name may come several times: its values add up.
    pub(super) fn functions(&self) -> impl Iterator<Item = (&str, Function)> {
        let mut start = 0;
        self.functions.iter().map(move |(end, function)| {
            let name = self.names.get(start..*end).unwrap_or_default();
            start = *end;
            (name, *function)
        })
    }

    /// The memory it takes, about.
    pub(super) fn bytes(&self) -> usize {
        self.names.len() + self.functions.len() * size_of::<(usize, Function)>()
    }
}

/// The sum of what several profiles counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Values {
    pub(super) total: i128,
    pub(super) functions: HashMap<Arc<str>, Function, RandomState>,
}

/// The values of a function.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Function {
    /// In itself.
    pub(super) own: i128,
    /// In itself and in what it calls, once for each stack it is in.
    pub(super) total: i128,
}

/// No value is larger: so many can be added up that no sum overflows. In nanoseconds it is a few times the age of the
/// universe.
const LARGEST: i128 = 1 << 90;

/// What the entry of a function takes, besides its name.
const FUNCTION_BYTES: usize = 96;

impl Values {
    /// Adds what a profile counted. Returns by how many bytes it grew.
    pub(super) fn add(&mut self, more: &Counted) -> usize {
        self.total += more.total;
        let mut grown = 0;
        for (name, value) in more.functions() {
            match self.functions.get_mut(name) {
                Some(function) => {
                    function.own += value.own;
                    function.total += value.total;
                }
                None => {
                    grown += name.len() + FUNCTION_BYTES;
                    self.functions.insert(name.into(), value);
                }
            }
        }
        grown
    }

    /// The memory it takes, about.
    pub(super) fn bytes(&self) -> usize {
        let names = self.functions.keys().map(|name| name.len());
        names.sum::<usize>() + self.functions.len() * FUNCTION_BYTES
    }
}

/// Reads a request.
///
/// # Errors
/// It breaks the rules of its dictionary.
pub(super) fn measure(request: &[u8], keys: &[String]) -> Result<Vec<Measured>, Fault> {
    let mut dictionary = Dictionary::new();
    let read = ingest(request, &mut dictionary, &mut Memo::default(), None)?;
    let mut reader = Reader {
        dictionary: &dictionary,
        stacks: HashMap::default(),
    };
    let resources = read.resources.iter();
    Ok(resources
        .map(|resource| reader.resource(resource, keys))
        .collect())
}

struct Reader<'d> {
    dictionary: &'d Dictionary,
    /// How many frames of a stack have names, and how many have none.
    stacks: HashMap<StackId, (u64, u64), RandomState>,
}

impl Reader<'_> {
    fn resource(&mut self, from: &ResourceProfiles, keys: &[String]) -> Measured {
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
            self.scope(scope, &mut measured);
        }
        measured
    }

    fn scope(&mut self, from: &ScopeProfiles, into: &mut Measured) {
        let scope = from.scope.as_ref();
        let source = source(scope);
        let recognized: Vec<_> = from
            .profiles
            .iter()
            .map(|profile| self.meaning(&profile.header))
            .collect();
        for (profile, meaning) in from.profiles.iter().zip(&recognized) {
            into.received.add(self.received(profile));
            let meaning = match meaning {
                Some(meaning) => Some(*meaning),
                None => {
                    let periods = self.by_period(&profile.header);
                    let mut others = recognized.iter().flatten();
                    // Who says how long it took and how often it was looked says the same twice.
                    let again = |found: &Meaning| {
                        is_one_of_several(scope) || others.any(|other| other.kind == found.kind)
                    };
                    if periods.as_ref().is_some_and(again) {
                        continue;
                    }
                    periods
                }
            };
            let Some(meaning) = meaning else {
                let (kind, unit) = self.names(profile.header.sample_type);
                into.unknown.push(format!("{kind} in {unit}"));
                continue;
            };
            let series = meaning.cumulative.then(|| {
                let mut key = Vec::new();
                put_delimited(1, &into.instance, &mut key);
                put_delimited(
                    2,
                    source.as_deref().unwrap_or_default().as_bytes(),
                    &mut key,
                );
                put_delimited(
                    3,
                    scope.map_or("", |scope| &scope.name).as_bytes(),
                    &mut key,
                );
                key.push(meaning.kind as u8);
                key
            });
            into.profiles.push(Measurement {
                kind: meaning.kind,
                source: source.clone(),
                time: profile.header.time,
                series,
                values: self.values(profile, meaning),
            });
        }
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

    fn values(&self, profile: &Profile, meaning: Meaning) -> Counted {
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
                values.push(&name, function);
            }
        }
        values
    }

    fn received(&mut self, profile: &Profile) -> Received {
        let mut received = Received {
            profiles: 1,
            samples: profile.samples.len() as u64,
            ..Received::default()
        };
        for sample in profile.samples.iter() {
            let known = self.stacks.entry(sample.key.stack);
            let (named, unnamed) =
                *known.or_insert_with_key(|stack| frames(self.dictionary, *stack));
            received.named += named;
            received.unnamed += unnamed;
        }
        received
    }
}

/// How many frames of a stack have names, and how many have none.
fn frames(dictionary: &Dictionary, stack: StackId) -> (u64, u64) {
    let (mut named, mut unnamed) = (0, 0);
    for location in dictionary.locations(stack) {
        let lines = dictionary.get_lines(dictionary.get_location(*location).lines);
        for line in lines {
            let function = dictionary.get_function(line.function);
            match dictionary.text(function.name) {
                "" => unnamed += 1,
                _ => named += 1,
            }
        }
        unnamed += u64::from(lines.is_empty());
    }
    (named, unnamed)
}

fn source(scope: Option<&InstrumentationScope>) -> Option<Arc<str>> {
    let mut attributes = scope?.attributes.iter();
    let found = attributes.find(|attribute| attribute.key == names::PROFILE_NAME)?;
    match found.value.as_ref()?.value.as_ref()? {
        Value::StringValue(name) => Some(name.as_str().into()),
        _ => None,
    }
}

/// Whether the profiles of a scope are of a pprof file with several sample types, all of which need not be at hand.
fn is_one_of_several(scope: Option<&InstrumentationScope>) -> bool {
    let mut attributes = scope.into_iter().flat_map(|scope| &scope.attributes);
    attributes.any(|attribute| {
        let value = attribute.value.as_ref().and_then(|any| any.value.as_ref());
        attribute.key == names::SAMPLE_TYPE_ORDER
            && matches!(value, Some(Value::ArrayValue(order)) if order.values.len() > 1)
    })
}
