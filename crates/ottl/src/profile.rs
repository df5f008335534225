//! Profiles for conditions and statements: their references to the request's dictionary are resolved. Samples are not included.

use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::profiles::v1development as proto;
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;

use super::ProfileFields;
use tributary_otlp::edit::put_delimited;
use tributary_otlp::reader::{Fields, Value};
use tributary_profiles::entries::{Entries, numbers};
use tributary_profiles::references::References;
use tributary_profiles::reindex::{DictionaryTable, ProfileFault};

/// Returns the dictionary entries of a request, which may contain several dictionary messages.
pub fn dictionary(request: &[u8]) -> Result<Entries<'_>, ProfileFault> {
    let mut entries = Entries::default();
    for part in messages(request, 2) {
        entries.add(part)?;
    }
    Ok(entries)
}

/// Returns the messages in a field of a valid message.
pub fn messages(message: &[u8], number: u32) -> impl Iterator<Item = &[u8]> {
    Fields::new(message)
        .map_while(Result::ok)
        .filter(move |field| field.number == number)
        .filter_map(|field| field.value.bytes())
}

/// Decodes the parts of profiles that conditions and statements use.
pub struct ProfileReader<'e, 'r> {
    attributes: &'e [&'r [u8]],
    references: References<'e, &'r [u8]>,
}

impl<'e, 'r> ProfileReader<'e, 'r> {
    /// Creates a reader with the dictionary of the request.
    pub fn new(entries: &'e Entries<'r>) -> Self {
        ProfileReader {
            attributes: entries.table(DictionaryTable::Attribute),
            references: References::new(entries.table(DictionaryTable::String)),
        }
    }

    /// Returns a `ResourceProfiles` without its scopes, in which strings replace the references of the resource.
    pub fn resource(&mut self, entry: &[u8]) -> Result<Vec<u8>, ProfileFault> {
        let mut resource = merged::<Resource>(entry, "a resource")?;
        if let Some(resource) = &mut resource {
            self.references.resolve(&mut resource.attributes)?;
        }
        Ok(header(resource, entry))
    }

    /// Returns a `ScopeProfiles` without its profiles, in which strings replace the references of the scope.
    pub fn scope(&mut self, entry: &[u8]) -> Result<Vec<u8>, ProfileFault> {
        let mut scope = merged::<InstrumentationScope>(entry, "a scope")?;
        if let Some(scope) = &mut scope {
            self.references.resolve(&mut scope.attributes)?;
        }
        Ok(header(scope, entry))
    }

    /// Returns the fields of a profile.
    pub fn profile(&mut self, profile: &[u8]) -> Result<ProfileFields, ProfileFault> {
        const PLACE: &str = "a profile";
        let mut found = ProfileFields::default();
        let mut attributes = Vec::new();
        for field in Fields::new(profile).map_while(Result::ok) {
            match (field.number, field.value) {
                (3, Value::Fixed64(time)) => found.time = time,
                (4, Value::Varint(duration)) => found.duration = duration,
                (6, Value::Varint(period)) => found.period = period.cast_signed(),
                (7, Value::Bytes(id)) => found.profile_id = id.to_vec(),
                (8, Value::Varint(count)) => found.dropped_attributes = count as u32,
                (9, Value::Bytes(format)) => {
                    found.payload_format = String::from_utf8_lossy(format).into_owned();
                }
                (11, _) => numbers(field, PLACE, |index| {
                    attributes.extend(self.attribute(index as i32)?);
                    Ok(())
                })?,
                _ => {}
            }
        }
        self.references.resolve(&mut attributes)?;
        let attributes = Resource {
            attributes,
            ..Resource::default()
        };
        found.attributes = attributes.encode_to_vec();
        Ok(found)
    }

    /// Returns an attribute of the table with its references resolved, and the index of its unit. `None` for index 0.
    pub fn resolved(&mut self, index: i32) -> Result<Option<(KeyValue, i32)>, ProfileFault> {
        let Some(mut attribute) = self.attribute(index)? else {
            return Ok(None);
        };
        let entry = usize::try_from(index)
            .ok()
            .and_then(|at| self.attributes.get(at));
        let unit = entry
            .and_then(|entry| proto::KeyValueAndUnit::decode(*entry).ok())
            .map_or(0, |entry| entry.unit_strindex);
        self.references
            .resolve(std::slice::from_mut(&mut attribute))?;
        Ok(Some((attribute, unit)))
    }

    /// Returns an attribute of the table, or `None` for index 0.
    fn attribute(&self, index: i32) -> Result<Option<KeyValue>, ProfileFault> {
        if index == 0 {
            return Ok(None);
        }
        let found = usize::try_from(index)
            .ok()
            .and_then(|at| self.attributes.get(at));
        let table = DictionaryTable::Attribute;
        let entry = found.ok_or(ProfileFault::Dangling { table, index })?;
        let entry = proto::KeyValueAndUnit::decode(*entry)
            .map_err(|_| ProfileFault::Malformed("an attribute"))?;
        Ok(Some(KeyValue {
            key: String::new(),
            key_strindex: entry.key_strindex,
            value: entry.value.or(Some(AnyValue::default())),
        }))
    }
}

/// Returns the message in field 1, which may occur several times.
fn merged<M: Message + Default>(
    entry: &[u8],
    place: &'static str,
) -> Result<Option<M>, ProfileFault> {
    let mut message: Option<M> = None;
    for part in messages(entry, 1) {
        let merged = message.get_or_insert_default().merge(part);
        merged.map_err(|_| ProfileFault::Malformed(place))?;
    }
    Ok(message)
}

/// Returns the fields of an entry other than its children, with a resolved resource or scope.
fn header<M: Message>(message: Option<M>, entry: &[u8]) -> Vec<u8> {
    const CHILDREN: u32 = 2;
    let mut header = Vec::new();
    if let Some(message) = message {
        put_delimited(1, &message.encode_to_vec(), &mut header);
    }
    for field in Fields::new(entry).map_while(Result::ok) {
        if field.number != 1 && field.number != CHILDREN {
            header.extend_from_slice(field.raw);
        }
    }
    header
}
