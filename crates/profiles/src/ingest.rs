//! Reads an encoded request into flat profiles over a dictionary, without an intermediate copy.

use opentelemetry_proto::tonic::common::v1::KeyValue;
use prost::Message;

use super::dictionary::Dictionary;
use super::entries::{
    Indices, SampleReferences, bytes, fields, indices, number, sample, signed, text,
};
use super::fault::ProfileFault;
use super::model::{Header, Profile, ResourceProfiles, Samples, ScopeProfiles};
use super::reindex::{CopiedEntries, DictionaryCopier};
use super::relocations::Relocations;
use crate::entry::SampleKey;
use tributary_otlp::reader::{Field, Value};

/// The profiles of a request.
#[derive(Debug, Default)]
pub struct Ingested {
    /// Profiles by resource.
    pub resources: Vec<ResourceProfiles>,
    /// Number of samples left out because they have no observations. The protocol forbids such samples.
    pub unobserved: usize,
    /// Whether the request has unknown fields, which belong to later versions of the protocol. Unreferenced
    /// dictionary entries do not count.
    pub unknown: bool,
}

/// Reads an encoded `ExportProfilesServiceRequest` (or `ProfilesData`, which has the same encoding). Adds only
/// referenced entries to `dictionary`.
///
/// References to strings are resolved. Harmless violations are repaired: samples without observations, invalid
/// profile ids and an original payload without a format are left out. Of attributes with the same key in a list,
/// the first one stays.
///
/// # Errors
/// See [`ProfileFault`]; [`check`](super::check::check) reports the position. After an error, entries may remain in the
/// dictionary; unreferenced entries are not written.
pub fn ingest(
    request: &[u8],
    dictionary: &mut Dictionary,
    memo: &mut CopiedEntries,
    relocations: Option<&mut Relocations>,
) -> Result<Ingested, ProfileFault> {
    let mut entries = std::mem::take(&mut memo.entries).cleared();
    let resources = entries.add_request(request)?;
    let mut ingested = Ingested::default();
    let mut reader = Reader {
        source: DictionaryCopier::new(&entries, dictionary, memo, relocations),
        unobserved: 0,
        samples: Vec::new(),
        values: Vec::new(),
        timestamps: Vec::new(),
    };
    for from in resources {
        let resource = reader.resource(from)?;
        ingested.resources.push(resource);
    }
    ingested.unknown = reader.source.unknown;
    ingested.unobserved = reader.unobserved;
    memo.entries = entries.cleared();
    Ok(ingested)
}

/// A message field and its size in bytes. Repeated occurrences are merged into one message.
pub(super) struct MergedField<M> {
    pub(super) message: Option<M>,
    encoded: usize,
}

impl<M: Message + Default> MergedField<M> {
    pub(super) fn none() -> Self {
        MergedField {
            message: None,
            encoded: 0,
        }
    }

    pub(super) fn add(
        &mut self,
        field: Field<'_>,
        place: &'static str,
    ) -> Result<(), ProfileFault> {
        let bytes = bytes(field, place)?;
        self.encoded += bytes.len();
        let message = self.message.get_or_insert_default();
        message
            .merge(bytes)
            .map_err(|_| ProfileFault::Malformed(place))
    }

    /// Whether the message had unknown fields, or an encoding longer than necessary.
    pub(super) fn unknown(&self) -> bool {
        self.message
            .as_ref()
            .is_some_and(|message| message.encoded_len() != self.encoded)
    }
}

struct Reader<'s, 'r> {
    source: DictionaryCopier<'s, 'r>,
    unobserved: usize,
    samples: Vec<&'r [u8]>,
    values: Vec<i64>,
    timestamps: Vec<u64>,
}

impl<'r> Reader<'_, 'r> {
    fn resource(&mut self, from: &'r [u8]) -> Result<ResourceProfiles, ProfileFault> {
        const PLACE: &str = "a resource";
        let mut resource = MergedField::none();
        let mut into = ResourceProfiles::default();
        for field in fields(from, PLACE) {
            let field = field?;
            match field.number {
                1 => resource.add(field, PLACE)?,
                2 => {
                    let scope = self.scope(bytes(field, PLACE)?)?;
                    into.scopes.push(scope);
                }
                3 => text(field, PLACE)?.clone_into(&mut into.schema_url),
                _ => self.source.unknown = true,
            }
        }
        self.source.unknown |= resource.unknown();
        into.resource = resource.message;
        if let Some(resource) = &mut into.resource {
            self.resolve(&mut resource.attributes)?;
        }
        Ok(into)
    }

    fn scope(&mut self, from: &'r [u8]) -> Result<ScopeProfiles, ProfileFault> {
        const PLACE: &str = "a scope";
        let mut scope = MergedField::none();
        let mut into = ScopeProfiles::default();
        for field in fields(from, PLACE) {
            let field = field?;
            match field.number {
                1 => scope.add(field, PLACE)?,
                2 => {
                    let profile = self.profile(bytes(field, PLACE)?)?;
                    into.profiles.push(profile);
                }
                3 => text(field, PLACE)?.clone_into(&mut into.schema_url),
                _ => self.source.unknown = true,
            }
        }
        self.source.unknown |= scope.unknown();
        into.scope = scope.message;
        if let Some(scope) = &mut into.scope {
            self.resolve(&mut scope.attributes)?;
        }
        Ok(into)
    }

    fn resolve(&mut self, attributes: &mut [KeyValue]) -> Result<(), ProfileFault> {
        self.source.references().resolve(attributes)
    }

    fn profile(&mut self, from: &'r [u8]) -> Result<Profile, ProfileFault> {
        const PLACE: &str = "a profile";
        let mut header = Header::default();
        let mut attributes = Indices::new();
        self.samples.clear();
        let (mut format, mut payload) = ("", &[][..]);
        for field in fields(from, PLACE) {
            let field = field?;
            match field.number {
                1 => {
                    let value_type = bytes(field, PLACE)?;
                    self.source
                        .value_type(value_type, &mut header.sample_type)?;
                }
                2 => self.samples.push(bytes(field, PLACE)?),
                3 => match field.value {
                    Value::Fixed64(time) => header.time = time,
                    _ => return Err(ProfileFault::Malformed(PLACE)),
                },
                4 => header.duration = number(field, PLACE)?,
                5 => {
                    let value_type = bytes(field, PLACE)?;
                    self.source
                        .value_type(value_type, &mut header.period_type)?;
                }
                6 => header.period = signed(field, PLACE)?,
                7 => header.profile_id = valid_id(bytes(field, PLACE)?),
                8 => header.dropped_attributes = number(field, PLACE)? as u32,
                9 => format = text(field, PLACE)?,
                10 => payload = bytes(field, PLACE)?,
                11 => indices(field, PLACE, &mut attributes)?,
                _ => self.source.unknown = true,
            }
        }
        header.attributes = self.source.attribute_set(&attributes)?;
        if !format.is_empty() && !payload.is_empty() {
            header.original = Some((format.to_owned(), payload.to_owned()));
        }
        // Samples are read last, in the order of writing, so that rewriting a written request gives the same bytes.
        let messages = std::mem::take(&mut self.samples);
        let mut samples = Samples::default();
        samples.reserve(messages.len());
        for message in &messages {
            self.sample(message, &mut samples)?;
        }
        self.samples = messages;
        Ok(Profile { header, samples })
    }

    #[inline]
    fn sample(&mut self, from: &[u8], into: &mut Samples) -> Result<(), ProfileFault> {
        let SampleReferences {
            stack,
            attributes,
            link,
            unknown,
        } = sample(from, &mut self.values, &mut self.timestamps)?;
        self.source.unknown |= unknown;
        let key = SampleKey {
            stack: self.source.stack(stack)?,
            attributes: self.source.attribute_set(&attributes)?,
            link: self.source.link(link)?,
        };
        match (self.values.len(), self.timestamps.len()) {
            (0, 0) => self.unobserved += 1,
            (values, timestamps) if values != timestamps && values != 0 && timestamps != 0 => {
                return Err(ProfileFault::Unequal { values, timestamps });
            }
            _ => into.push(key, &self.values, &self.timestamps),
        }
        Ok(())
    }
}

/// Returns an id of 16 bytes that are not all zero.
pub(super) fn valid_id(id: &[u8]) -> Option<[u8; 16]> {
    id.try_into().ok().filter(|id| *id != [0; 16])
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest as Request;
    use opentelemetry_proto::tonic::profiles::v1development as proto;

    use super::*;
    use crate::testing_requests::named;
    use crate::write::{encode, message};

    fn read(request: &[u8]) -> Result<(Vec<u8>, Ingested), ProfileFault> {
        let mut dictionary = Dictionary::new();
        let ingested = ingest(
            request,
            &mut dictionary,
            &mut CopiedEntries::default(),
            None,
        )?;
        let written = encode(&dictionary, &ingested.resources);
        Ok((written.to_vec(), ingested))
    }

    #[test]
    fn split_dictionary_is_read_as_one() {
        let request = named("a", 1, ["one", "two"]);
        let whole = request.encode_to_vec();
        let mut parts = Request {
            dictionary: None,
            ..request.clone()
        }
        .encode_to_vec();
        let mut tables = request.dictionary.unwrap();
        let rest = tables.string_table.split_off(2);
        let more = proto::ProfilesDictionary {
            string_table: rest,
            ..Default::default()
        };
        for part in [tables, more] {
            message(&mut parts, 2, &part.encode_to_vec());
        }
        let (expected, ingested) = read(&whole).unwrap();
        assert!(!ingested.unknown);
        assert_eq!(read(&parts).unwrap().0, expected);
        assert_eq!(Request::decode(&parts[..]).unwrap().encode_to_vec(), whole);
    }

    /// Returns a request with this sample and a dictionary with one stack.
    fn with_sample(sample: &[u8]) -> Vec<u8> {
        let mut request = named("a", 1, ["one"]);
        request.resource_profiles.clear();
        let mut bytes = request.encode_to_vec();
        let [mut profile, mut scope, mut resource] = [const { Vec::new() }; 3];
        message(&mut profile, 2, sample);
        message(&mut scope, 2, &profile);
        message(&mut resource, 2, &scope);
        message(&mut bytes, 1, &resource);
        bytes
    }

    #[test]
    fn packed_and_single_numbers_are_read_and_last_wins() {
        // Stack 5, then 1; values 7 and 8, packed and not.
        let packed = [0x08, 1, 0x22, 2, 7, 8];
        let (expected, ingested) = read(&with_sample(&packed)).unwrap();
        let samples = |from: &Ingested| from.resources[0].scopes[0].profiles[0].samples.clone();
        assert_eq!(samples(&ingested).iter().next().unwrap().values, [7, 8]);
        for other in [
            &[0x08, 5, 0x20, 7, 0x08, 1, 0x20, 8][..],
            &[0x22, 1, 7, 0x20, 8, 0x08, 0x81, 0x00],
        ] {
            let (written, ingested) = read(&with_sample(other)).unwrap();
            assert_eq!(written, expected);
            assert!(!ingested.unknown);
        }
    }

    #[test]
    fn unknown_fields_and_unobserved_samples_are_reported() {
        let known = [0x08, 1, 0x20, 7];
        assert!(!read(&with_sample(&known)).unwrap().1.unknown);
        let later = [0x08, 1, 0x20, 7, 0x30, 1];
        assert!(read(&with_sample(&later)).unwrap().1.unknown);
        let unobserved = read(&with_sample(&[0x08, 1])).unwrap().1;
        assert_eq!(unobserved.unobserved, 1);
        let mut resource = Vec::new();
        message(&mut resource, 1, &[0x50, 1]);
        let mut request = Vec::new();
        message(&mut request, 1, &resource);
        assert!(read(&request).unwrap().1.unknown);
    }

    #[test]
    fn wrong_encoding_is_an_error() {
        for sample in [&[0x08][..], &[0x0a, 1, 1], &[0x22, 1, 0x80], &[0x2a, 1, 1]] {
            let fault = read(&with_sample(sample)).unwrap_err();
            assert_eq!(fault, ProfileFault::Malformed("a sample"), "{sample:?}");
        }
        let mut request = named("a", 1, ["one"]);
        let mut bytes = request.encode_to_vec();
        let at = bytes.windows(3).position(|word| word == b"one").unwrap();
        bytes[at] = 0xff;
        assert_eq!(
            read(&bytes).unwrap_err(),
            ProfileFault::Malformed("a string")
        );
        request.dictionary = None;
        let nowhere = read(&request.encode_to_vec()).unwrap_err();
        assert!(matches!(nowhere, ProfileFault::Dangling { .. }));
    }
}
