//! A pass through a request of profiles, whose attributes are entries of a dictionary.
//!
//! Entries may be shared by several profiles and samples. A changed set of attributes therefore gets new entries at the
//! end of the dictionary, and the existing entries stay.

use std::borrow::Cow;
use std::collections::HashMap;

use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::profiles::v1development::KeyValueAndUnit;
use prost::Message as _;

use super::execution::{Untransformed, execute};
use super::groups::Pass;
use super::parts::{Parts, without};
use super::walk::replace_header;
use crate::pipeline::output_memory::OutputMemory;
use tributary_net::sampled_log::SampledLog;
use tributary_otlp::edit::{Editor, put_delimited};
use tributary_otlp::reader::{Field, Fields, put_varint};
use tributary_otlp::view::{Message, Resource, View as _};
use tributary_ottl::ProfileFields;
use tributary_ottl::path::Context;
use tributary_ottl::profile::{ProfileReader, dictionary};
use tributary_profiles::entries::{Entries, numbers};
use tributary_profiles::reindex::{DictionaryTable, ProfileFault};

/// Field of the scopes in the entry of a resource, and of the profiles in the entry of a scope.
const CHILDREN: u32 = 2;
/// Field of the indexes of attributes in a profile.
const INDICES: u32 = 11;
/// Fields of a dictionary.
const DICTIONARY: u32 = 2;
const STRINGS: u32 = 5;
const ATTRIBUTES: u32 = 6;

/// Executes a pass; returns `None` if nothing changes.
pub(super) fn transform(
    pass: &Pass,
    request: &[u8],
    room: &OutputMemory,
    log: &SampledLog,
) -> Result<Option<Vec<u8>>, Untransformed> {
    let entries = dictionary(request).map_err(broken)?;
    let mut walk = Walk {
        pass,
        room,
        log,
        reader: ProfileReader::new(&entries),
        parts: Parts::default(),
        added: AddedEntries::new(&entries),
    };
    let mut editor = Editor::within(request, room);
    for entry in Fields::new(request) {
        let entry = entry?;
        if entry.number == 1 && entry.value.bytes().is_some() {
            editor.message(&entry, |editor| walk.resource(&entry, editor))?;
        }
    }
    let added = walk.added.encoded;
    let Some(changed) = editor.finish_within()? else {
        return Ok(None);
    };
    if added.is_empty() {
        return Ok(Some(changed));
    }
    let mut editor = Editor::within(&changed, room);
    let fields: Vec<Field<'_>> = Fields::new(&changed).collect::<Result<_, _>>()?;
    let dictionary = fields.iter().rev().find(|field| field.number == DICTIONARY);
    match dictionary {
        Some(dictionary) => editor.message(dictionary, |editor| {
            editor.append(dictionary, |output| output.extend_from_slice(&added));
        }),
        None => {
            let end = changed.len();
            editor.splice(end..end, |output| put_delimited(DICTIONARY, &added, output));
        }
    }
    Ok(editor.finish_within()?)
}

fn broken(fault: ProfileFault) -> Untransformed {
    Untransformed::Failed(format!("cannot transform the profiles: {fault}"))
}

struct Walk<'w, 'r> {
    pass: &'w Pass,
    room: &'w OutputMemory,
    log: &'w SampledLog,
    reader: ProfileReader<'w, 'r>,
    parts: Parts<'r>,
    added: AddedEntries<'r>,
}

impl<'r> Walk<'_, 'r> {
    fn execute(&mut self) -> Result<(), Untransformed> {
        execute(&self.pass.groups, &mut self.parts, self.room, self.log)
    }

    fn resource(
        &mut self,
        entry: &Field<'r>,
        editor: &mut Editor<'r>,
    ) -> Result<(), Untransformed> {
        let mark = editor.mark();
        let bytes = entry.value.bytes().unwrap_or_default();
        let header = self.reader.resource(bytes).map_err(broken)?;
        self.parts.resource.begin(Cow::Owned(header), self.room);
        if self.pass.context == Context::Resource {
            self.execute()?;
        } else {
            for scope in entry.fields() {
                let scope = scope?;
                if scope.number == CHILDREN && scope.value.bytes().is_some() {
                    editor.message(&scope, |editor| self.scope(&scope, editor))?;
                }
            }
        }
        match self.parts.resource.changed() {
            Some(header) => replace_header(entry, header, &mark, editor),
            None => Ok(()),
        }
    }

    fn scope(&mut self, entry: &Field<'r>, editor: &mut Editor<'r>) -> Result<(), Untransformed> {
        let mark = editor.mark();
        let bytes = entry.value.bytes().unwrap_or_default();
        let header = self.reader.scope(bytes).map_err(broken)?;
        self.parts.scope.begin(Cow::Owned(header), self.room);
        if self.pass.context == Context::Scope {
            self.execute()?;
        } else {
            for profile in entry.fields() {
                let profile = profile?;
                if profile.number == CHILDREN
                    && let Some(bytes) = profile.value.bytes()
                {
                    self.profile(&profile, bytes, editor)?;
                }
            }
        }
        match self.parts.scope.changed() {
            Some(header) => replace_header(entry, header, &mark, editor),
            None => Ok(()),
        }
    }

    fn profile(
        &mut self,
        field: &Field<'r>,
        bytes: &'r [u8],
        editor: &mut Editor<'r>,
    ) -> Result<(), Untransformed> {
        let before = self.reader.profile(bytes).map_err(broken)?;
        self.parts.begin_profile(before.clone(), self.room);
        self.execute()?;
        let Some(after) = self.parts.profile.take().filter(|after| **after != before) else {
            return Ok(());
        };
        let mut changed = scalars(bytes, &before, &after);
        if after.attributes != before.attributes {
            let indices = self.indices(bytes, &after.attributes)?;
            changed = without(&changed, INDICES);
            if !indices.is_empty() {
                put_delimited(INDICES, &indices, &mut changed);
            }
        }
        editor.splice(field.range(), |output| {
            put_delimited(CHILDREN, &changed, output);
        });
        Ok(())
    }

    /// Returns the packed indexes of attributes, which are appended to the dictionary unless the profile has them.
    fn indices(&mut self, profile: &[u8], attributes: &[u8]) -> Result<Vec<u8>, Untransformed> {
        let mut before: HashMap<Vec<u8>, i32> = HashMap::new();
        let mut units: HashMap<String, i32> = HashMap::new();
        for field in Fields::new(profile).map_while(Result::ok) {
            if field.number != INDICES {
                continue;
            }
            let mut found = Vec::new();
            numbers(field, "a profile", |index| {
                found.push(index as i32);
                Ok(())
            })
            .map_err(broken)?;
            for index in found {
                if let Some((attribute, unit)) = self.reader.resolved(index).map_err(broken)? {
                    before.entry(attribute.encode_to_vec()).or_insert(index);
                    units.entry(attribute.key).or_insert(unit);
                }
            }
        }
        let mut packed = Vec::new();
        for attribute in Resource::view(Message::new(attributes)).attributes() {
            let attribute = KeyValue::decode(attribute.message().encoded()).unwrap_or_default();
            let index = match before.get(&attribute.encode_to_vec()) {
                Some(index) => *index,
                None => {
                    let unit = units.get(&attribute.key).copied().unwrap_or_default();
                    self.added.index(&attribute, unit)
                }
            };
            put_varint(i64::from(index).cast_unsigned(), &mut packed);
        }
        Ok(packed)
    }
}

/// Returns a profile with the changed fields that are not references.
fn scalars(profile: &[u8], before: &ProfileFields, after: &ProfileFields) -> Vec<u8> {
    let mut changed = profile.to_vec();
    let mut set = |number: u32, is_changed: bool, write: &dyn Fn(&mut Vec<u8>)| {
        if is_changed {
            changed = without(&changed, number);
            write(&mut changed);
        }
    };
    let varint = |number: u32, value: u64| {
        move |output: &mut Vec<u8>| {
            put_varint(u64::from(number << 3), output);
            put_varint(value, output);
        }
    };
    set(3, after.time != before.time, &|output| {
        put_varint(3 << 3 | 1, output);
        output.extend_from_slice(&after.time.to_le_bytes());
    });
    let duration = varint(4, after.duration);
    set(4, after.duration != before.duration, &duration);
    let period = varint(6, after.period.cast_unsigned());
    set(6, after.period != before.period, &period);
    set(7, after.profile_id != before.profile_id, &|output| {
        put_delimited(7, &after.profile_id, output);
    });
    let dropped = varint(8, after.dropped_attributes.into());
    set(
        8,
        after.dropped_attributes != before.dropped_attributes,
        &dropped,
    );
    set(
        9,
        after.payload_format != before.payload_format,
        &|output| {
            put_delimited(9, after.payload_format.as_bytes(), output);
        },
    );
    changed
}

/// A table of the dictionary, with the entries that a pass appends.
struct GrowingTable<'r> {
    number: u32,
    entries: Vec<&'r [u8]>,
    added: usize,
    /// Indexes of the entries, once they are needed.
    known: Option<HashMap<Vec<u8>, i32>>,
}

impl<'r> GrowingTable<'r> {
    fn new(number: u32, entries: &[&'r [u8]]) -> Self {
        GrowingTable {
            number,
            entries: entries.to_vec(),
            added: 0,
            known: None,
        }
    }

    /// Returns the index of an entry, which is appended to the table and to `output` if it is missing.
    fn index(&mut self, entry: Vec<u8>, output: &mut Vec<u8>) -> i32 {
        let known = self.known.get_or_insert_with(|| {
            let mut known = HashMap::new();
            for (at, entry) in self.entries.iter().enumerate() {
                let at = i32::try_from(at).unwrap_or(i32::MAX);
                known.entry(entry.to_vec()).or_insert(at);
            }
            known
        });
        if self.entries.is_empty() && self.added == 0 {
            // Index 0 stands for no entry, so the first entry of a table must be the zero value.
            put_delimited(self.number, &[], output);
            known.insert(Vec::new(), 0);
            self.added = 1;
        }
        let next = i32::try_from(self.entries.len() + self.added).unwrap_or(i32::MAX);
        if let Some(index) = known.get(&entry) {
            return *index;
        }
        self.added += 1;
        put_delimited(self.number, &entry, output);
        known.insert(entry, next);
        next
    }
}

/// Entries that a pass appends to the dictionary.
struct AddedEntries<'r> {
    strings: GrowingTable<'r>,
    attributes: GrowingTable<'r>,
    /// The appended fields of the dictionary.
    encoded: Vec<u8>,
}

impl<'r> AddedEntries<'r> {
    fn new(entries: &Entries<'r>) -> Self {
        let strings = entries.table(DictionaryTable::String);
        let attributes = entries.table(DictionaryTable::Attribute);
        AddedEntries {
            strings: GrowingTable::new(STRINGS, strings),
            attributes: GrowingTable::new(ATTRIBUTES, attributes),
            encoded: Vec::new(),
        }
    }

    /// Returns the index of an attribute, which is appended if it is missing.
    fn index(&mut self, attribute: &KeyValue, unit: i32) -> i32 {
        let key = attribute.key.as_bytes().to_vec();
        let key_strindex = self.strings.index(key, &mut self.encoded);
        let entry = KeyValueAndUnit {
            key_strindex,
            value: Some(attribute.value.clone().unwrap_or_default()),
            unit_strindex: unit,
        };
        self.attributes
            .index(entry.encode_to_vec(), &mut self.encoded)
    }
}
