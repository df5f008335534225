//! Encodes flat profiles as a request, with referenced dictionary entries only.

mod numbers;

use bytes::Bytes;
use prost::Message as _;
use smallvec::SmallVec;

use self::numbers::Numbers;
use super::check::debug_assert_structure;
use super::dictionary::Dictionary;
use super::encoding::{fixed64, tag, text};
pub(super) use super::encoding::{message, number};
use super::fault::DictionaryTable;
use super::id::{
    AttributeId, AttributeSetId, FunctionId, LinkId, LocationId, MappingId, StackId, StringId,
};
use super::model::{Header, Profile, Profiles, ResourceProfiles, ScopeProfiles};
use crate::entry::ValueType;
use tributary_otlp::reader::put_varint;

impl Profiles {
    /// Encodes the profiles as an `ExportProfilesServiceRequest` (or `ProfilesData`, which has the same encoding).
    ///
    /// The dictionary has the referenced entries, each once, in the order of the first reference.
    pub fn encode(&self) -> Bytes {
        encode(&self.dictionary, &self.resources)
    }
}

/// Encodes some profiles over a dictionary as an `ExportProfilesServiceRequest`: see [`Profiles::encode`].
pub fn encode(dictionary: &Dictionary, resources: &[ResourceProfiles]) -> Bytes {
    Encoder::new(dictionary).encode(resources)
}

/// Writes many requests over one dictionary. The time for a request is proportional to its references, not to the
/// dictionary.
#[derive(Debug)]
pub struct Encoder<'d>(Writer<'d>);

impl<'d> Encoder<'d> {
    /// Creates an encoder.
    pub fn new(dictionary: &'d Dictionary) -> Self {
        Encoder(Writer::new(dictionary))
    }

    /// See [`encode`].
    pub fn encode(&mut self, resources: &[ResourceProfiles]) -> Bytes {
        let encoded = write(&mut self.0, resources);
        self.0.reset();
        encoded
    }
}

fn write(writer: &mut Writer<'_>, resources: &[ResourceProfiles]) -> Bytes {
    let mut output = Vec::new();
    for from in resources {
        let mut resource = Vec::new();
        if let Some(from) = &from.resource {
            message(&mut resource, 1, &from.encode_to_vec());
        }
        for from in &from.scopes {
            let scope = writer.scope(from);
            message(&mut resource, 2, &scope);
        }
        text(&mut resource, 3, &from.schema_url);
        message(&mut output, 1, &resource);
    }
    message(&mut output, 2, &writer.tables.concat());
    let encoded = Bytes::from(output);
    debug_assert_structure(&encoded);
    encoded
}

#[derive(Debug)]
struct Writer<'d> {
    from: &'d Dictionary,
    strings: Numbers,
    attributes: Numbers,
    mappings: Numbers,
    functions: Numbers,
    locations: Numbers,
    links: Numbers,
    stacks: Numbers,
    /// Encoded tables, in the order of their field numbers.
    tables: [Vec<u8>; 7],
    profile: Vec<u8>,
    sample: Vec<u8>,
    packed: Vec<u8>,
}

impl<'d> Writer<'d> {
    fn new(from: &'d Dictionary) -> Self {
        let sizes = from.sizes();
        let mut tables: [Vec<u8>; 7] = Default::default();
        for (table, number) in tables.iter_mut().zip(1..) {
            message(table, number, &[]);
        }
        Writer {
            from,
            strings: Numbers::new(sizes.strings),
            attributes: Numbers::new(sizes.attributes),
            mappings: Numbers::new(sizes.mappings),
            functions: Numbers::new(sizes.functions),
            locations: Numbers::new(sizes.locations),
            links: Numbers::new(sizes.links),
            stacks: Numbers::new(sizes.stacks),
            tables,
            profile: Vec::new(),
            sample: Vec::new(),
            packed: Vec::new(),
        }
    }

    fn reset(&mut self) {
        for (table, number) in self.tables.iter_mut().zip(1..) {
            table.clear();
            message(table, number, &[]);
        }
        for numbers in [
            &mut self.strings,
            &mut self.attributes,
            &mut self.mappings,
            &mut self.functions,
            &mut self.locations,
            &mut self.links,
            &mut self.stacks,
        ] {
            numbers.reset();
        }
    }

    fn scope(&mut self, from: &ScopeProfiles) -> Vec<u8> {
        let mut output = Vec::new();
        if let Some(scope) = &from.scope {
            message(&mut output, 1, &scope.encode_to_vec());
        }
        for profile in &from.profiles {
            self.profile(profile);
            message(&mut output, 2, &self.profile);
        }
        text(&mut output, 3, &from.schema_url);
        output
    }

    fn profile(&mut self, from: &Profile) {
        let mut output = std::mem::take(&mut self.profile);
        output.clear();
        let Header {
            sample_type,
            period_type,
            period,
            time,
            duration,
            profile_id,
            dropped_attributes,
            original,
            attributes,
        } = &from.header;
        // Entries are in the order in which a reader copies them, so that rewriting a written request gives the same
        // bytes.
        let sample_type = self.value_type(*sample_type);
        let period_type = self.value_type(*period_type);
        let mut attribute_indices = Vec::new();
        self.attribute_indices(&mut attribute_indices, 11, *attributes);
        message(&mut output, 1, &sample_type);
        self.samples(from, &mut output);
        fixed64(&mut output, 3, *time);
        number(&mut output, 4, *duration);
        message(&mut output, 5, &period_type);
        number(&mut output, 6, period.cast_unsigned());
        if let Some(id) = profile_id {
            message(&mut output, 7, id);
        }
        number(&mut output, 8, u64::from(*dropped_attributes));
        if let Some((format, payload)) = original {
            text(&mut output, 9, format);
            message(&mut output, 10, payload);
        }
        output.extend_from_slice(&attribute_indices);
        self.profile = output;
    }

    fn samples(&mut self, from: &Profile, output: &mut Vec<u8>) {
        let mut sample = std::mem::take(&mut self.sample);
        for from in from.samples.iter() {
            sample.clear();
            let stack = self.stack(from.key.stack);
            number(&mut sample, 1, stack);
            self.attribute_indices(&mut sample, 2, from.key.attributes);
            let link = self.link(from.key.link);
            number(&mut sample, 3, link);
            if !from.values.is_empty() {
                self.packed.clear();
                for value in from.values {
                    put_varint(value.cast_unsigned(), &mut self.packed);
                }
                message(&mut sample, 4, &self.packed);
            }
            if !from.timestamps.is_empty() {
                let len = u64::try_from(size_of_val(from.timestamps)).unwrap_or_default();
                tag(&mut sample, 5, 2);
                put_varint(len, &mut sample);
                for time in from.timestamps {
                    sample.extend_from_slice(&time.to_le_bytes());
                }
            }
            message(output, 2, &sample);
        }
        self.sample = sample;
    }

    fn value_type(&mut self, from: ValueType) -> Vec<u8> {
        let mut output = Vec::new();
        let kind = self.string(from.kind);
        number(&mut output, 1, kind);
        let unit = self.string(from.unit);
        number(&mut output, 2, unit);
        output
    }

    fn add(&mut self, table: DictionaryTable, entry: &[u8]) {
        let place = match table {
            DictionaryTable::Mapping => 0,
            DictionaryTable::Location => 1,
            DictionaryTable::Function => 2,
            DictionaryTable::Link => 3,
            DictionaryTable::String => 4,
            DictionaryTable::Attribute => 5,
            DictionaryTable::Stack => 6,
        };
        if let Some((output, number)) = self.tables.iter_mut().zip(1..).nth(place) {
            message(output, number, entry);
        }
    }

    fn string(&mut self, id: StringId) -> u64 {
        if let Some(number) = self.strings.get(id) {
            return number;
        }
        self.add(DictionaryTable::String, self.from.text(id).as_bytes());
        self.strings.assign(id)
    }

    fn attribute_indices(&mut self, output: &mut Vec<u8>, field: u32, set: AttributeSetId) {
        let attributes = self.from.attributes(set);
        if attributes.is_empty() {
            return;
        }
        let mut numbers: SmallVec<[u64; 16]> = SmallVec::new();
        for attribute in attributes {
            numbers.push(self.attribute(*attribute));
        }
        numbers.sort_unstable();
        self.packed.clear();
        for number in numbers {
            put_varint(number, &mut self.packed);
        }
        message(output, field, &self.packed);
    }

    fn attribute(&mut self, id: AttributeId) -> u64 {
        if let Some(number) = self.attributes.get(id) {
            return number;
        }
        let from = self.from.get_attribute(id);
        let mut entry = Vec::new();
        let key = self.string(from.key);
        number(&mut entry, 1, key);
        message(&mut entry, 2, self.from.encoded_value(from.value));
        let unit = self.string(from.unit);
        number(&mut entry, 3, unit);
        self.add(DictionaryTable::Attribute, &entry);
        self.attributes.assign(id)
    }

    fn mapping(&mut self, id: MappingId) -> u64 {
        if let Some(number) = self.mappings.get(id) {
            return number;
        }
        let from = self.from.get_mapping(id);
        let mut entry = Vec::new();
        number(&mut entry, 1, from.start);
        number(&mut entry, 2, from.limit);
        number(&mut entry, 3, from.file_offset);
        let filename = self.string(from.filename);
        number(&mut entry, 4, filename);
        self.attribute_indices(&mut entry, 5, from.attributes);
        self.add(DictionaryTable::Mapping, &entry);
        self.mappings.assign(id)
    }

    fn function(&mut self, id: FunctionId) -> u64 {
        if let Some(number) = self.functions.get(id) {
            return number;
        }
        let from = self.from.get_function(id);
        let mut entry = Vec::new();
        for (field, string) in [(1, from.name), (2, from.system_name), (3, from.filename)] {
            let string = self.string(string);
            number(&mut entry, field, string);
        }
        number(&mut entry, 4, from.start_line.cast_unsigned());
        self.add(DictionaryTable::Function, &entry);
        self.functions.assign(id)
    }

    fn location(&mut self, id: LocationId) -> u64 {
        if let Some(number) = self.locations.get(id) {
            return number;
        }
        let from = self.from.get_location(id);
        let mut entry = Vec::new();
        let mapping = self.mapping(from.mapping);
        number(&mut entry, 1, mapping);
        number(&mut entry, 2, from.address);
        let mut line = Vec::new();
        for from in self.from.get_lines(from.lines) {
            line.clear();
            let function = self.function(from.function);
            number(&mut line, 1, function);
            number(&mut line, 2, from.line.cast_unsigned());
            number(&mut line, 3, from.column.cast_unsigned());
            message(&mut entry, 3, &line);
        }
        self.attribute_indices(&mut entry, 4, from.attributes);
        self.add(DictionaryTable::Location, &entry);
        self.locations.assign(id)
    }

    fn link(&mut self, id: LinkId) -> u64 {
        if let Some(number) = self.links.get(id) {
            return number;
        }
        let from = self.from.get_link(id);
        let mut entry = Vec::new();
        message(&mut entry, 1, &from.trace_id);
        message(&mut entry, 2, &from.span_id);
        self.add(DictionaryTable::Link, &entry);
        self.links.assign(id)
    }

    fn stack(&mut self, id: StackId) -> u64 {
        if let Some(number) = self.stacks.get(id) {
            return number;
        }
        let mut packed = Vec::new();
        for location in self.from.locations(id) {
            put_varint(self.location(*location), &mut packed);
        }
        let mut entry = Vec::new();
        message(&mut entry, 1, &packed);
        self.add(DictionaryTable::Stack, &entry);
        self.stacks.assign(id)
    }
}
