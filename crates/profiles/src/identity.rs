//! Hashes of what profiles say, which every collector computes alike: the same content has the same hash, in whatever
//! order the tables, attributes and samples are, and wherever binaries are in memory.
//!
//! They are computed from an encoded request as it is. To decode it first, into tables where every entry is once, would
//! cost several times as much: here an entry that is there twice is hashed twice, to the same.
//!
//! They are XXH3 of 128 bits: made to tell accidents apart, not to withstand somebody who makes up profiles to match.

mod tables;
#[cfg(test)]
mod tests;

use std::ops::Range;

use opentelemetry_proto::tonic::common::v1::{InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;
use twox_hash::XxHash3_128;
use xxhash_rust::xxh3::xxh3_128;

use self::tables::Tables;
use super::entries::{
    Entries, Indices, bytes, fields, fixed, index, indices, number, numbers, signed, text,
};
use super::ingest::{Part, valid_id};
use super::reindex::Fault;
use tributary_otlp::reader::Value;

/// How a delivery of a profile is known again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Delivery {
    /// The same for a profile that was delivered before.
    pub key: u128,
    /// The profile's id: its own, or one that follows from its content and can be given to it.
    pub profile_id: [u8; 16],
}

/// An encoded profile: what is said about all its samples as a hash, and the samples as they are.
#[derive(Debug)]
pub struct Encoded<'r> {
    /// Of the resource, the scope, and all that the profile says but its id, its samples, and the payload it was made of.
    header: u128,
    kind: u128,
    unit: u128,
    profile_id: Option<[u8; 16]>,
    time: u64,
    samples: Vec<&'r [u8]>,
}

impl Encoded<'_> {
    /// Whether it has a valid id of its own.
    pub fn has_id(&self) -> bool {
        self.profile_id.is_some()
    }
}

/// Computes hashes of the profiles of one request. Those of its dictionary's entries are computed once.
#[derive(Debug)]
pub struct Identities<'e, 'r> {
    tables: Tables<'e, 'r>,
    values: Vec<i64>,
    timestamps: Vec<u64>,
}

/// Samples, added up.
#[derive(Debug, Default)]
struct Sum {
    hash: u128,
    /// Whether there are samples that say when they were taken, and such that do not. What has no observations at all is
    /// neither.
    dated: bool,
    undated: bool,
}

impl<'e, 'r> Identities<'e, 'r> {
    /// Hashes of what refers to these entries; they are kept in `memory`.
    pub fn new(entries: &'e Entries<'r>, memory: &'e mut Vec<u128>) -> Self {
        Identities {
            tables: Tables::new(entries, memory),
            values: Vec::new(),
            timestamps: Vec::new(),
        }
    }

    /// The profiles of these resources, in order. Attributes of resources that are `ignored` do not count.
    ///
    /// # Errors
    /// They cannot be read, or refer to what is not there.
    pub fn profiles(
        &mut self,
        resources: &[&'r [u8]],
        ignored: &[String],
    ) -> Result<Vec<Encoded<'r>>, Fault> {
        let mut profiles = Vec::new();
        for resource in resources {
            self.resource(resource, ignored, &mut profiles)?;
        }
        Ok(profiles)
    }

    /// How a profile is known again: by its id; without one by its content, if that includes a time. With neither it
    /// cannot be told from another one that happens to be equal, and there is nothing.
    ///
    /// Several profiles may share an id when they came from one with several sample types, so that counts too.
    ///
    /// # Errors
    /// See [`Self::profiles`].
    pub fn delivery(&mut self, profile: &Encoded<'r>) -> Result<Option<Delivery>, Fault> {
        let profile_id = match profile.profile_id {
            Some(id) => id,
            None => {
                let sum = self.sum(&profile.samples)?;
                if profile.time == 0 && (sum.undated || !sum.dated) {
                    return Ok(None);
                }
                // All zero is not a valid id.
                joined([profile.header, sum.hash]).max(1).to_be_bytes()
            }
        };
        Ok(Some(Delivery {
            key: key(&profile_id, profile.kind, profile.unit),
            profile_id,
        }))
    }

    /// All that a profile with these samples alone says, with its resource and its scope, but for its id and the payload it
    /// was made of.
    ///
    /// # Errors
    /// See [`Self::profiles`].
    pub fn content(&mut self, profile: &Encoded<'r>, samples: Range<usize>) -> Result<u128, Fault> {
        let sum = self.sum(profile.samples.get(samples).unwrap_or_default())?;
        Ok(joined([profile.header, sum.hash]))
    }

    /// Whether there were fields that are not known, which are those of later versions of the protocol, in what was read
    /// so far: they may be all that makes two profiles different.
    pub fn unknown(&self) -> bool {
        self.tables.unknown
    }

    fn resource(
        &mut self,
        from: &'r [u8],
        ignored: &[String],
        into: &mut Vec<Encoded<'r>>,
    ) -> Result<(), Fault> {
        const PLACE: &str = "a resource";
        let mut resource = Part::<Resource>::none();
        let (mut schema_url, mut scopes) = ("", Vec::new());
        for field in fields(from, PLACE) {
            let field = field?;
            match field.number {
                1 => resource.add(field, PLACE)?,
                2 => scopes.push(bytes(field, PLACE)?),
                3 => schema_url = text(field, PLACE)?,
                _ => self.tables.unknown = true,
            }
        }
        self.tables.unknown |= resource.unknown();
        let mut attributes = resource.message.unwrap_or_default().attributes;
        self.tables.references.resolve(&mut attributes)?;
        attributes.retain(|attribute| !ignored.contains(&attribute.key));
        let mut said = Vec::new();
        put_attributes(&mut said, &attributes);
        put(&mut said, schema_url.as_bytes());
        let resource = hash(&said);
        for scope in scopes {
            self.scope(resource, scope, into)?;
        }
        Ok(())
    }

    fn scope(
        &mut self,
        resource: u128,
        from: &'r [u8],
        into: &mut Vec<Encoded<'r>>,
    ) -> Result<(), Fault> {
        const PLACE: &str = "a scope";
        let mut scope = Part::<InstrumentationScope>::none();
        let (mut schema_url, mut profiles) = ("", Vec::new());
        for field in fields(from, PLACE) {
            let field = field?;
            match field.number {
                1 => scope.add(field, PLACE)?,
                2 => profiles.push(bytes(field, PLACE)?),
                3 => schema_url = text(field, PLACE)?,
                _ => self.tables.unknown = true,
            }
        }
        self.tables.unknown |= scope.unknown();
        let mut scope = scope.message.unwrap_or_default();
        self.tables.references.resolve(&mut scope.attributes)?;
        let mut said = resource.to_le_bytes().to_vec();
        put_attributes(&mut said, &scope.attributes);
        for part in [&*scope.name, &*scope.version, schema_url] {
            put(&mut said, part.as_bytes());
        }
        let scope = hash(&said);
        for profile in profiles {
            let profile = self.profile(scope, profile)?;
            into.push(profile);
        }
        Ok(())
    }

    fn profile(&mut self, scope: u128, from: &'r [u8]) -> Result<Encoded<'r>, Fault> {
        const PLACE: &str = "a profile";
        let nothing = [self.tables.string(0)?; 2];
        let (mut counted, mut period_type) = (nothing, nothing);
        let (mut time, mut duration, mut period) = (0, 0, 0);
        let (mut profile_id, mut samples) = (None, Vec::new());
        let mut attributes = Indices::new();
        for field in fields(from, PLACE) {
            let field = field?;
            match field.number {
                1 => self.value_type(bytes(field, PLACE)?, &mut counted)?,
                2 => samples.push(bytes(field, PLACE)?),
                3 => match field.value {
                    Value::Fixed64(value) => time = value,
                    _ => return Err(Fault::Malformed(PLACE)),
                },
                4 => duration = number(field, PLACE)?,
                5 => self.value_type(bytes(field, PLACE)?, &mut period_type)?,
                6 => period = signed(field, PLACE)?,
                7 => profile_id = valid_id(bytes(field, PLACE)?),
                // Those of the payload, and how many attributes were dropped.
                8..=10 => {}
                11 => indices(field, PLACE, &mut attributes)?,
                _ => self.tables.unknown = true,
            }
        }
        let mut said = Vec::with_capacity(128);
        said.extend_from_slice(&scope.to_le_bytes());
        for string in counted.into_iter().chain(period_type) {
            said.extend_from_slice(&string.to_le_bytes());
        }
        for number in [period.cast_unsigned(), time, duration] {
            said.extend_from_slice(&number.to_le_bytes());
        }
        let attributes = self.tables.attribute_set(&attributes)?;
        said.extend_from_slice(&attributes.to_le_bytes());
        let [kind, unit] = counted;
        Ok(Encoded {
            header: hash(&said),
            kind,
            unit,
            profile_id,
            time,
            samples,
        })
    }

    fn value_type(&mut self, from: &[u8], into: &mut [u128; 2]) -> Result<(), Fault> {
        const PLACE: &str = "a value type";
        let [kind, unit] = into;
        for field in fields(from, PLACE) {
            let field = field?;
            match field.number {
                1 => *kind = self.tables.string(index(field, PLACE)?)?,
                2 => *unit = self.tables.string(index(field, PLACE)?)?,
                _ => self.tables.unknown = true,
            }
        }
        Ok(())
    }

    /// A sample's value times the hash of what it is about, and that added up: so their order says nothing, and whether
    /// values of equal samples are in one of them or in several says nothing either. With a time each value counts alone.
    fn sum(&mut self, samples: &[&[u8]]) -> Result<Sum, Fault> {
        let mut sum = Sum::default();
        for sample in samples {
            self.sample(sample, &mut sum)?;
        }
        Ok(sum)
    }

    /// What is counted by a sample.
    #[inline]
    fn about(&mut self, stack: i32, attributes: &[i32], link: i32) -> Result<u128, Fault> {
        let stack = self.tables.stack(stack)?;
        if attributes.is_empty() && link == 0 {
            return Ok(stack);
        }
        let attributes = self.tables.attribute_set(attributes)?;
        let link = self.tables.link(link)?;
        if attributes == 0 && link == [0; 24] {
            return Ok(stack);
        }
        let mut about = [0; 56];
        about[..16].copy_from_slice(&stack.to_le_bytes());
        about[16..32].copy_from_slice(&attributes.to_le_bytes());
        about[32..].copy_from_slice(&link);
        Ok(hash(&about))
    }

    fn sample(&mut self, from: &[u8], sum: &mut Sum) -> Result<(), Fault> {
        const PLACE: &str = "a sample";
        let (mut stack, mut link) = (0, 0);
        let mut attributes = Indices::new();
        self.values.clear();
        self.timestamps.clear();
        for field in fields(from, PLACE) {
            let field = field?;
            match field.number {
                1 => stack = index(field, PLACE)?,
                2 => indices(field, PLACE, &mut attributes)?,
                3 => link = index(field, PLACE)?,
                4 => numbers(field, PLACE, |value| {
                    self.values.push(value.cast_signed());
                    Ok(())
                })?,
                5 => fixed(field, PLACE, &mut self.timestamps)?,
                _ => self.tables.unknown = true,
            }
        }
        let about = self.about(stack, &attributes, link)?;
        if self.timestamps.is_empty() {
            let total: i128 = self.values.iter().copied().map(i128::from).sum();
            let values = total.cast_unsigned().wrapping_mul(about);
            sum.hash = sum.hash.wrapping_add(values);
            sum.undated |= !self.values.is_empty();
            return Ok(());
        }
        sum.dated = true;
        let (values, timestamps) = (self.values.len(), self.timestamps.len());
        if values != timestamps && values != 0 {
            return Err(Fault::Unequal { values, timestamps });
        }
        for (at, time) in self.timestamps.iter().enumerate() {
            let mut observation = [0; 32];
            observation[..16].copy_from_slice(&about.to_le_bytes());
            observation[16..24].copy_from_slice(&time.to_le_bytes());
            let value = self.values.get(at).copied().unwrap_or(1);
            observation[24..].copy_from_slice(&value.to_le_bytes());
            sum.hash = sum.hash.wrapping_add(hash(&observation));
        }
        Ok(())
    }
}

/// The key of a [`Delivery`], for who knows the id and the sample type of a profile and nothing else of it.
pub fn delivery_key(profile_id: &[u8; 16], kind: &[u8], unit: &[u8]) -> u128 {
    key(profile_id, hash(kind), hash(unit))
}

fn key(profile_id: &[u8; 16], kind: u128, unit: u128) -> u128 {
    let mut text = [0; 48];
    text[..16].copy_from_slice(profile_id);
    text[16..32].copy_from_slice(&kind.to_le_bytes());
    text[32..].copy_from_slice(&unit.to_le_bytes());
    hash(&text)
}

/// Above so many bytes XXH3 works on stripes of 64, for which there are instructions that one of the two crates looks for.
const LONG: usize = 240;

#[inline(always)]
fn hash(bytes: &[u8]) -> u128 {
    match bytes.len() > LONG {
        true => XxHash3_128::oneshot(bytes),
        false => xxh3_128(bytes),
    }
}

fn joined([one, other]: [u128; 2]) -> u128 {
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(&one.to_le_bytes());
    bytes[16..].copy_from_slice(&other.to_le_bytes());
    hash(&bytes)
}

fn put(text: &mut Vec<u8>, part: &[u8]) {
    text.extend_from_slice(&(part.len() as u64).to_le_bytes());
    text.extend_from_slice(part);
}

fn put_attributes(text: &mut Vec<u8>, attributes: &[KeyValue]) {
    let mut encoded: Vec<Vec<u8>> = attributes.iter().map(KeyValue::encode_to_vec).collect();
    encoded.sort_unstable();
    text.extend_from_slice(&(encoded.len() as u64).to_le_bytes());
    for attribute in &encoded {
        put(text, attribute);
    }
}
