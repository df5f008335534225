//! Hashes of what profiles say, which every collector computes alike: the same content has the same hash, in whatever
//! order the tables, attributes and samples are, and wherever binaries are in memory.
//!
//! They are XXH3 of 128 bits: made to tell accidents apart, not to withstand somebody who makes up profiles to match.

use opentelemetry_proto::tonic::common::v1::KeyValue;
use prost::Message as _;
use xxhash_rust::xxh3::xxh3_128;

use super::dictionary::{Dictionary, SampleKey, ValueType};
use super::id::{AttributeSetId, Id, LocationId, StackId, StringId};
use super::model::{Profile, ResourceProfiles, Sample, ScopeProfiles};

/// How a delivery of a profile is known again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Delivery {
    /// The same for a profile that was delivered before.
    pub key: u128,
    /// The profile's id: its own, or one that follows from its content and can be given to it.
    pub profile_id: [u8; 16],
}

/// Computes hashes of what refers to a dictionary. Those of entries are computed once.
#[derive(Debug)]
pub struct Identities<'d> {
    dictionary: &'d Dictionary,
    strings: Memo,
    sets: Memo,
    locations: Memo,
    stacks: Memo,
    buffer: Vec<u8>,
}

/// The hashes of a table's entries; 0 for those that were not asked for.
#[derive(Debug, Default)]
struct Memo(Vec<u128>);

impl Memo {
    fn get(&self, id: impl Id) -> Option<u128> {
        self.0.get(id.index()).copied().filter(|hash| *hash != 0)
    }

    fn set(&mut self, id: impl Id, hash: u128) -> u128 {
        if id.index() >= self.0.len() {
            self.0.resize(id.index() + 1, 0);
        }
        if let Some(place) = self.0.get_mut(id.index()) {
            *place = hash;
        }
        hash
    }
}

impl<'d> Identities<'d> {
    /// Hashes of what refers to this dictionary.
    pub fn new(dictionary: &'d Dictionary) -> Self {
        Identities {
            dictionary,
            strings: Memo::default(),
            sets: Memo::default(),
            locations: Memo::default(),
            stacks: Memo::default(),
            buffer: Vec::new(),
        }
    }

    /// How a profile is known again: by its id; without one by its content, if that includes a time. With neither it
    /// cannot be told from another one that happens to be equal, and there is nothing.
    ///
    /// Several profiles may share an id when they came from one with several sample types, so that counts too.
    pub fn delivery(
        &mut self,
        resource: &ResourceProfiles,
        scope: &ScopeProfiles,
        profile: &Profile,
    ) -> Option<Delivery> {
        let profile_id = match profile.header.profile_id {
            Some(id) => id,
            None if dated(profile) => {
                let content = self.content(resource, scope, profile);
                // All zero is not a valid id.
                content.max(1).to_be_bytes()
            }
            None => return None,
        };
        let kind = self.string(profile.header.sample_type.kind);
        let unit = self.string(profile.header.sample_type.unit);
        Some(Delivery {
            key: key(&profile_id, kind, unit),
            profile_id,
        })
    }

    /// All that a profile says, with its resource and its scope, but for its id and the payload it was made from.
    pub fn content(
        &mut self,
        resource: &ResourceProfiles,
        scope: &ScopeProfiles,
        profile: &Profile,
    ) -> u128 {
        let mut text = Vec::new();
        let of_resource = resource.resource.as_ref();
        put_attributes(
            &mut text,
            of_resource.map(|resource| &resource.attributes[..]),
        );
        put(&mut text, resource.schema_url.as_bytes());
        let of_scope = scope.scope.as_ref();
        put_attributes(&mut text, of_scope.map(|scope| &scope.attributes[..]));
        put(
            &mut text,
            of_scope.map_or(b"", |scope| scope.name.as_bytes()),
        );
        put(
            &mut text,
            of_scope.map_or(b"", |scope| scope.version.as_bytes()),
        );
        put(&mut text, scope.schema_url.as_bytes());
        let header = &profile.header;
        self.value_type(header.sample_type, &mut text);
        self.value_type(header.period_type, &mut text);
        text.extend_from_slice(&header.period.to_le_bytes());
        text.extend_from_slice(&header.time.to_le_bytes());
        text.extend_from_slice(&header.duration.to_le_bytes());
        text.extend_from_slice(&self.attribute_set(header.attributes).to_le_bytes());
        self.samples(profile, &mut text);
        xxh3_128(&text)
    }

    /// A sample's key: its stack, attributes and link.
    pub fn sample_key(&mut self, key: SampleKey) -> u128 {
        let link = self.dictionary.get_link(key.link);
        let mut text = [0; 56];
        text[..16].copy_from_slice(&self.stack(key.stack).to_le_bytes());
        text[16..32].copy_from_slice(&self.attribute_set(key.attributes).to_le_bytes());
        text[32..48].copy_from_slice(&link.trace_id);
        text[48..].copy_from_slice(&link.span_id);
        xxh3_128(&text)
    }

    /// A stack.
    pub fn stack(&mut self, id: StackId) -> u128 {
        if let Some(hash) = self.stacks.get(id) {
            return hash;
        }
        let mut text = Vec::new();
        for location in self.dictionary.locations(id) {
            text.extend_from_slice(&self.location(*location).to_le_bytes());
        }
        self.stacks.set(id, xxh3_128(&text))
    }

    /// A location, relative to its mapping.
    pub fn location(&mut self, id: LocationId) -> u128 {
        if let Some(hash) = self.locations.get(id) {
            return hash;
        }
        let location = self.dictionary.get_location(id);
        let mapping = self.dictionary.get_mapping(location.mapping);
        let binary = self.dictionary.binary(mapping);
        let mut text = Vec::new();
        text.extend_from_slice(&binary.pages.to_le_bytes());
        text.extend_from_slice(&binary.file_offset.to_le_bytes());
        text.extend_from_slice(&self.string(binary.build_id.key).to_le_bytes());
        put(
            &mut text,
            self.dictionary.encoded_value(binary.build_id.value),
        );
        text.extend_from_slice(&self.string(binary.filename).to_le_bytes());
        let address = location.address.wrapping_sub(mapping.start);
        text.extend_from_slice(&address.to_le_bytes());
        text.extend_from_slice(&self.attribute_set(location.attributes).to_le_bytes());
        for line in self.dictionary.get_lines(location.lines) {
            let function = self.dictionary.get_function(line.function);
            for string in [function.name, function.system_name, function.filename] {
                text.extend_from_slice(&self.string(string).to_le_bytes());
            }
            for number in [function.start_line, line.line, line.column] {
                text.extend_from_slice(&number.to_le_bytes());
            }
        }
        self.locations.set(id, xxh3_128(&text))
    }

    /// A set of attributes.
    pub fn attribute_set(&mut self, id: AttributeSetId) -> u128 {
        if let Some(hash) = self.sets.get(id) {
            return hash;
        }
        let mut hashes = Vec::new();
        for attribute in self.dictionary.attributes(id) {
            let attribute = self.dictionary.get_attribute(*attribute);
            let mut text = self.string(attribute.key).to_le_bytes().to_vec();
            text.extend_from_slice(&self.string(attribute.unit).to_le_bytes());
            text.extend_from_slice(self.dictionary.encoded_value(attribute.value));
            hashes.push(xxh3_128(&text));
        }
        hashes.sort_unstable();
        let text: Vec<u8> = hashes.iter().flat_map(|hash| hash.to_le_bytes()).collect();
        self.sets.set(id, xxh3_128(&text))
    }

    fn string(&mut self, id: StringId) -> u128 {
        if let Some(hash) = self.strings.get(id) {
            return hash;
        }
        let hash = xxh3_128(self.dictionary.text(id).as_bytes());
        self.strings.set(id, hash)
    }

    fn value_type(&mut self, from: ValueType, text: &mut Vec<u8>) {
        text.extend_from_slice(&self.string(from.kind).to_le_bytes());
        text.extend_from_slice(&self.string(from.unit).to_le_bytes());
    }

    /// Equal keys are taken together: whether observations are in one sample or in several says nothing.
    fn samples(&mut self, profile: &Profile, text: &mut Vec<u8>) {
        let mut samples: Vec<(u128, Sample<'_>)> = Vec::with_capacity(profile.samples.len());
        for sample in profile.samples.iter() {
            samples.push((self.sample_key(sample.key), sample));
        }
        samples.sort_unstable_by_key(|(key, _)| *key);
        let mut observations = Vec::new();
        for group in samples.chunk_by(|a, b| a.0 == b.0) {
            let mut total: i128 = 0;
            observations.clear();
            for (_, sample) in group {
                if sample.timestamps.is_empty() {
                    total += sample.values.iter().copied().map(i128::from).sum::<i128>();
                }
                let value = |at: usize| sample.values.get(at).copied();
                let times = sample.timestamps.iter().enumerate();
                observations.extend(times.map(|(at, time)| (*time, value(at).unwrap_or(1))));
            }
            if total == 0 && observations.is_empty() {
                continue;
            }
            observations.sort_unstable();
            self.buffer.clear();
            self.buffer.extend_from_slice(&total.to_le_bytes());
            for (time, value) in &observations {
                self.buffer.extend_from_slice(&time.to_le_bytes());
                self.buffer.extend_from_slice(&value.to_le_bytes());
            }
            for (key, _) in group.iter().take(1) {
                text.extend_from_slice(&key.to_le_bytes());
            }
            put(text, &self.buffer);
        }
    }
}

/// The key of a [`Delivery`], for who knows the id and the sample type of a profile and nothing else of it.
pub fn delivery_key(profile_id: &[u8; 16], kind: &[u8], unit: &[u8]) -> u128 {
    key(profile_id, xxh3_128(kind), xxh3_128(unit))
}

fn key(profile_id: &[u8; 16], kind: u128, unit: u128) -> u128 {
    let mut text = [0; 48];
    text[..16].copy_from_slice(profile_id);
    text[16..32].copy_from_slice(&kind.to_le_bytes());
    text[32..].copy_from_slice(&unit.to_le_bytes());
    xxh3_128(&text)
}

/// Whether anything in it says when it was taken.
fn dated(profile: &Profile) -> bool {
    let samples = &profile.samples;
    profile.header.time != 0
        || !samples.is_empty() && samples.iter().all(|sample| !sample.timestamps.is_empty())
}

fn put(text: &mut Vec<u8>, part: &[u8]) {
    text.extend_from_slice(&(part.len() as u64).to_le_bytes());
    text.extend_from_slice(part);
}

fn put_attributes(text: &mut Vec<u8>, attributes: Option<&[KeyValue]>) {
    let attributes = attributes.unwrap_or_default();
    let mut encoded: Vec<Vec<u8>> = attributes.iter().map(KeyValue::encode_to_vec).collect();
    encoded.sort_unstable();
    text.extend_from_slice(&(encoded.len() as u64).to_le_bytes());
    for attribute in &encoded {
        put(text, attribute);
    }
}
