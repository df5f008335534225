//! Content hashes of profiles that every collector computes alike. The same content has the same hash, for any
//! order of tables, attributes and samples, and for any addresses of binaries.
//!
//! Hashes are computed from an encoded request. Decoding into unique table entries would cost several times as much. A
//! duplicate entry is hashed twice instead, with the same result.
//!
//! The hash function is XXH3 with 128 bits. It avoids accidental collisions, but does not resist an attacker who
//! crafts profiles.

mod sequence;
mod stacks;
mod tables;
#[cfg(test)]
mod tests;

use std::ops::Range;

use opentelemetry_proto::tonic::common::v1::{InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;
use xxhash_rust::xxh3::xxh3_128;

use self::tables::Tables;
use super::entries::{
    Entries, Indices, SampleReferences, bytes, fields, index, indices, number, sample, signed, text,
};
use super::fault::ProfileFault;
use super::ingest::{MergedField, valid_id};
use tributary_otlp::reader::Value;

/// Identity of a delivered profile, for the detection of duplicates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeliveryIdentity {
    /// Equal for every delivery of the same profile.
    pub key: u128,
    /// Id of the profile: the sender's id, or an id derived from the content.
    pub profile_id: [u8; 16],
}

/// An encoded profile: a hash of its metadata, and its encoded samples.
#[derive(Debug)]
pub struct EncodedProfile<'r> {
    /// Hash of the resource, the scope and the profile's metadata, except for the id, the samples and the original
    /// payload.
    header: u128,
    kind: u128,
    unit: u128,
    profile_id: Option<[u8; 16]>,
    time: u64,
    samples: Vec<&'r [u8]>,
}

impl EncodedProfile<'_> {
    /// Whether the profile has a valid id of its own.
    pub fn has_id(&self) -> bool {
        self.profile_id.is_some()
    }
}

/// Computes hashes of the profiles of one request. Each dictionary entry is hashed once.
#[derive(Debug)]
pub struct Identities<'e, 'r> {
    tables: Tables<'e, 'r>,
    values: Vec<i64>,
    timestamps: Vec<u64>,
}

#[derive(Debug, Default)]
struct SampleHashSum {
    hash: u128,
    /// Whether samples with timestamps exist, and samples without. A sample without observations is neither.
    dated: bool,
    undated: bool,
}

impl<'e, 'r> Identities<'e, 'r> {
    /// Creates a hasher over these entries; `memory` stores the hashes of entries.
    pub fn new(entries: &'e Entries<'r>, memory: &'e mut Vec<u128>) -> Self {
        Identities {
            tables: Tables::new(entries, memory),
            values: Vec::new(),
            timestamps: Vec::new(),
        }
    }

    /// Reads the profiles of these resources, in order. The identity excludes `ignored` resource attributes.
    ///
    /// # Errors
    /// Fails if the profiles cannot be read or refer to missing entries.
    pub fn profiles(
        &mut self,
        resources: &[&'r [u8]],
        ignored: &[String],
    ) -> Result<Vec<EncodedProfile<'r>>, ProfileFault> {
        let mut profiles = Vec::new();
        for resource in resources {
            self.resource(resource, ignored, &mut profiles)?;
        }
        Ok(profiles)
    }

    /// Identifies a profile by its id, or without an id by its content, if the content includes a time. Without
    /// both, a duplicate cannot be distinguished from an equal profile, and the result is `None`.
    ///
    /// The sample type is part of the identity, since profiles from one profile with several sample types may share an
    /// id.
    ///
    /// # Errors
    /// See [`Self::profiles`].
    pub fn delivery(
        &mut self,
        profile: &EncodedProfile<'r>,
    ) -> Result<Option<DeliveryIdentity>, ProfileFault> {
        let profile_id = match profile.profile_id {
            Some(id) => id,
            None => {
                let sum = self.sum(&profile.samples)?;
                if profile.time == 0 && (sum.undated || !sum.dated) {
                    return Ok(None);
                }
                // An id of zeros is invalid.
                joined([profile.header, sum.hash]).max(1).to_be_bytes()
            }
        };
        Ok(Some(DeliveryIdentity {
            key: key(&profile_id, profile.kind, profile.unit),
            profile_id,
        }))
    }

    /// Hashes the content of a profile with the samples in a range, including resource and scope, but without the
    /// id and the original payload.
    ///
    /// # Errors
    /// See [`Self::profiles`].
    pub fn content(
        &mut self,
        profile: &EncodedProfile<'r>,
        samples: Range<usize>,
    ) -> Result<u128, ProfileFault> {
        let sum = self.sum(profile.samples.get(samples).unwrap_or_default())?;
        Ok(joined([profile.header, sum.hash]))
    }

    /// Whether the content read so far has unknown fields. Unknown fields belong to later versions of the protocol, and
    /// may be the only difference between two profiles.
    pub fn unknown(&self) -> bool {
        self.tables.unknown
    }

    fn resource(
        &mut self,
        from: &'r [u8],
        ignored: &[String],
        into: &mut Vec<EncodedProfile<'r>>,
    ) -> Result<(), ProfileFault> {
        const PLACE: &str = "a resource";
        let mut resource = MergedField::<Resource>::none();
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
        let resource = xxh3_128(&said);
        for scope in scopes {
            self.scope(resource, scope, into)?;
        }
        Ok(())
    }

    fn scope(
        &mut self,
        resource: u128,
        from: &'r [u8],
        into: &mut Vec<EncodedProfile<'r>>,
    ) -> Result<(), ProfileFault> {
        const PLACE: &str = "a scope";
        let mut scope = MergedField::<InstrumentationScope>::none();
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
        let scope = xxh3_128(&said);
        for profile in profiles {
            let profile = self.profile(scope, profile)?;
            into.push(profile);
        }
        Ok(())
    }

    fn profile(&mut self, scope: u128, from: &'r [u8]) -> Result<EncodedProfile<'r>, ProfileFault> {
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
                    _ => return Err(ProfileFault::Malformed(PLACE)),
                },
                4 => duration = number(field, PLACE)?,
                5 => self.value_type(bytes(field, PLACE)?, &mut period_type)?,
                6 => period = signed(field, PLACE)?,
                7 => profile_id = valid_id(bytes(field, PLACE)?),
                // Fields of the original payload, and the number of dropped attributes.
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
        Ok(EncodedProfile {
            header: xxh3_128(&said),
            kind,
            unit,
            profile_id,
            time,
            samples,
        })
    }

    fn value_type(&mut self, from: &[u8], into: &mut [u128; 2]) -> Result<(), ProfileFault> {
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

    /// Adds up each sample's value times the hash of its key. The sum ignores the order of samples and whether equal
    /// samples are merged. Each value with a timestamp is a separate summand.
    fn sum(&mut self, samples: &[&[u8]]) -> Result<SampleHashSum, ProfileFault> {
        let mut sum = SampleHashSum::default();
        for sample in samples {
            self.sample(sample, &mut sum)?;
        }
        Ok(sum)
    }

    #[inline]
    fn hash_sample_key(
        &mut self,
        stack: i32,
        attributes: &[i32],
        link: i32,
    ) -> Result<u128, ProfileFault> {
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
        Ok(xxh3_128(&about))
    }

    fn sample(&mut self, from: &[u8], sum: &mut SampleHashSum) -> Result<(), ProfileFault> {
        let SampleReferences {
            stack,
            attributes,
            link,
            unknown,
        } = sample(from, &mut self.values, &mut self.timestamps)?;
        self.tables.unknown |= unknown;
        let about = self.hash_sample_key(stack, &attributes, link)?;
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
            return Err(ProfileFault::Unequal { values, timestamps });
        }
        for (at, time) in self.timestamps.iter().enumerate() {
            let mut observation = [0; 32];
            observation[..16].copy_from_slice(&about.to_le_bytes());
            observation[16..24].copy_from_slice(&time.to_le_bytes());
            let value = self.values.get(at).copied().unwrap_or(1);
            observation[24..].copy_from_slice(&value.to_le_bytes());
            sum.hash = sum.hash.wrapping_add(xxh3_128(&observation));
        }
        Ok(())
    }
}

/// Returns the key of a [`DeliveryIdentity`] from the id and the sample type of a profile.
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

fn joined([one, other]: [u128; 2]) -> u128 {
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(&one.to_le_bytes());
    bytes[16..].copy_from_slice(&other.to_le_bytes());
    xxh3_128(&bytes)
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
