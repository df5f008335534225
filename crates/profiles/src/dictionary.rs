//! The dictionary: tables of unique entries that profiles refer to.

use opentelemetry_proto::tonic::common::v1::AnyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use prost::Message as _;

pub use super::entry::{Attribute, Function, Line, Link, Location, Mapping, SampleKey, ValueType};
use super::id::{
    AttributeId, AttributeSetId, FunctionId, Id as _, LinesId, LinkId, LocationId, MappingId,
    StackId, StringId, ValueId,
};
use super::location_hints::LocationHints;
use super::names;
use super::table::{Lists, Records, Strings};

/// Number of locations per call of [`Dictionary::prefetch`]: enough to overlap cache misses, few enough to stay in the
/// cache until use.
pub(super) const PREFETCH_DISTANCE: usize = 32;

/// The tables that profiles refer to.
///
/// A dictionary only grows. Writing profiles leaves out entries without references: see
/// [`Profiles::encode`](super::Profiles::encode).
#[derive(Debug, Clone, Default)]
pub struct Dictionary {
    strings: Strings<StringId>,
    /// Encoded values without references to strings, so that equal values have equal bytes.
    values: Lists<ValueId, u8>,
    attributes: Records<AttributeId, Attribute>,
    attribute_sets: Lists<AttributeSetId, AttributeId>,
    mappings: Records<MappingId, Mapping>,
    functions: Records<FunctionId, Function>,
    lines: Lists<LinesId, Line>,
    locations: Records<LocationId, Location>,
    hints: LocationHints,
    links: Records<LinkId, Link>,
    stacks: Lists<StackId, LocationId>,
    encoded: Vec<u8>,
    set: Vec<AttributeId>,
}

impl Dictionary {
    /// Creates tables that contain their zero values only.
    pub fn new() -> Self {
        Self::default()
    }

    /// Interns a string.
    pub fn string(&mut self, string: &str) -> StringId {
        self.strings.intern(string)
    }

    /// Interns bytes as a string; `None` if they are not UTF-8. Fast if the string equals `likely`.
    #[inline]
    pub(super) fn likely_string(&mut self, bytes: &[u8], likely: StringId) -> Option<StringId> {
        if self.strings.get_bytes(likely) == bytes {
            return Some(likely);
        }
        self.strings.intern_bytes(bytes)
    }

    /// Interns a value, which must not contain references to strings.
    pub fn value(&mut self, value: &AnyValue) -> ValueId {
        let mut encoded = std::mem::take(&mut self.encoded);
        encoded.clear();
        let _ = value.encode(&mut encoded);
        let id = self.values.intern(&encoded);
        self.encoded = encoded;
        id
    }

    /// Interns an attribute.
    pub fn attribute(&mut self, attribute: Attribute) -> AttributeId {
        self.attributes.intern(attribute)
    }

    /// Interns an attribute whose value is a string.
    pub fn string_attribute(&mut self, key: &str, value: &str) -> AttributeId {
        let value = AnyValue {
            value: Some(Value::StringValue(value.to_owned())),
        };
        self.any_attribute(key, &value)
    }

    /// Interns an attribute without a unit.
    pub fn any_attribute(&mut self, key: &str, value: &AnyValue) -> AttributeId {
        let key = self.string(key);
        let value = self.value(value);
        let unit = StringId::default();
        self.attribute(Attribute { key, value, unit })
    }

    /// Interns a set of attributes, in any order. The attribute with index 0 means no attribute and is left out. Of
    /// several attributes with the same key, the first one stays.
    pub fn attribute_set(&mut self, attributes: &[AttributeId]) -> AttributeSetId {
        let mut set = std::mem::take(&mut self.set);
        set.clear();
        set.extend(attributes.iter().filter(|id| id.index() != 0));
        if set.len() > 1 {
            // A stable sort keeps the first attribute of a key first.
            set.sort_by_key(|id| self.attributes.get(*id).key);
            set.dedup_by_key(|id| self.attributes.get(*id).key);
            set.sort_unstable();
        }
        let id = self.attribute_sets.intern(&set);
        self.set = set;
        id
    }

    /// Interns a mapping.
    pub fn mapping(&mut self, mapping: Mapping) -> MappingId {
        self.mappings.intern(mapping)
    }

    /// Interns a function.
    pub fn function(&mut self, function: Function) -> FunctionId {
        self.functions.intern(function)
    }

    /// Like [`function`](Self::function), but faster if the function is `likely`.
    #[inline]
    pub(super) fn likely_function(&mut self, function: Function, likely: FunctionId) -> FunctionId {
        if self.functions.get(likely) == function {
            return likely;
        }
        self.functions.intern(function)
    }

    /// Interns the lines of a location, the innermost first.
    pub fn lines(&mut self, lines: &[Line]) -> LinesId {
        self.lines.intern(lines)
    }

    /// Interns a location.
    pub fn location(&mut self, location: Location) -> LocationId {
        let before = self.locations.entries().len();
        let id = self.locations.intern(location);
        if self.locations.entries().len() > before {
            self.hints.note_last(self.locations.entries());
        }
        id
    }

    /// Interns a location whose only known content is the function's name.
    pub(super) fn named_location(&mut self, name: &str) -> LocationId {
        let name = self.string(name);
        let function = self.function(Function {
            name,
            ..Function::default()
        });
        let lines = self.lines(&[Line {
            function,
            ..Line::default()
        }]);
        self.location(Location {
            lines,
            ..Location::default()
        })
    }

    /// Returns a location with this mapping and address, or the zero value if no such location is known. Other fields
    /// are not compared, so the result may be another location of the same address.
    #[inline]
    pub(super) fn likely_location(
        &self,
        mapping: MappingId,
        address: u64,
    ) -> (LocationId, Location) {
        self.location_among(self.hints.find(mapping, address), mapping, address)
    }

    #[inline]
    fn location_among(
        &self,
        ids: [LocationId; 2],
        mapping: MappingId,
        address: u64,
    ) -> (LocationId, Location) {
        if address != 0 {
            for id in ids {
                let location = self.locations.get(id);
                if location.address == address && location.mapping == mapping {
                    return (id, location);
                }
            }
        }
        Default::default()
    }

    /// Prefetches the entries behind [`likely_location`](Self::likely_location), down to the function's name. Locations
    /// without an address are skipped. Each step runs for all locations before the next step, so that the cache misses
    /// of a step overlap.
    pub(super) fn prefetch(&self, addresses: &[(MappingId, u64); PREFETCH_DISTANCE]) {
        // Arrays instead of one chain of iterators, so that a step completes for all locations before the next step.
        let likely = addresses.map(|(mapping, address)| self.hints.find(mapping, address));
        let mut lines = [LinesId::default(); PREFETCH_DISTANCE];
        for ((lines, ids), (mapping, address)) in lines.iter_mut().zip(likely).zip(addresses) {
            *lines = self.location_among(ids, *mapping, *address).1.lines;
        }
        let functions = lines.map(|id| match self.lines.get(id) {
            [line, ..] => line.function,
            [] => FunctionId::default(),
        });
        let names = functions.map(|id| self.functions.get(id).name);
        let touched = names.iter().fold(0, |touched, id| {
            let bytes = self.strings.get_bytes(*id);
            let ends = [bytes.first(), bytes.last()];
            ends.into_iter().flatten().fold(touched, |a, b| a ^ b)
        });
        std::hint::black_box(touched);
    }

    /// Interns a link. A link of zeros means no link and has index 0.
    pub fn link(&mut self, link: Link) -> LinkId {
        self.links.intern(link)
    }

    /// Interns a stack, the leaf first.
    pub fn stack(&mut self, locations: &[LocationId]) -> StackId {
        self.stacks.intern(locations)
    }

    /// Returns the string with this index.
    pub fn text(&self, id: StringId) -> &str {
        self.strings.get(id)
    }

    /// Returns the value with this index, encoded as an `AnyValue`.
    pub fn encoded_value(&self, id: ValueId) -> &[u8] {
        self.values.get(id)
    }

    /// Returns the value with this index.
    pub fn any_value(&self, id: ValueId) -> AnyValue {
        AnyValue::decode(self.values.get(id)).unwrap_or_default()
    }

    /// Returns the attribute with this index.
    pub fn get_attribute(&self, id: AttributeId) -> Attribute {
        self.attributes.get(id)
    }

    /// Returns the attributes of the set with this index.
    pub fn attributes(&self, id: AttributeSetId) -> &[AttributeId] {
        self.attribute_sets.get(id)
    }

    /// Returns the attribute of a set that has this key.
    pub fn find(&self, set: AttributeSetId, key: &str) -> Option<Attribute> {
        self.attributes(set)
            .iter()
            .map(|id| self.get_attribute(*id))
            .find(|attribute| self.text(attribute.key) == key)
    }

    /// Returns the mapping with this index.
    pub fn get_mapping(&self, id: MappingId) -> Mapping {
        self.mappings.get(id)
    }

    /// Number of functions. Their ids are the numbers below it.
    pub fn function_count(&self) -> usize {
        self.functions.entries().len()
    }

    /// Returns the function with this index.
    pub fn get_function(&self, id: FunctionId) -> Function {
        self.functions.get(id)
    }

    /// Returns the lines with this index.
    pub fn get_lines(&self, id: LinesId) -> &[Line] {
        self.lines.get(id)
    }

    /// Returns the location with this index.
    pub fn get_location(&self, id: LocationId) -> Location {
        self.locations.get(id)
    }

    /// Returns the link with this index.
    pub fn get_link(&self, id: LinkId) -> Link {
        self.links.get(id)
    }

    /// Returns the locations of the stack with this index, the leaf first.
    pub fn locations(&self, id: StackId) -> &[LocationId] {
        self.stacks.get(id)
    }

    pub(super) fn sizes(&self) -> Sizes {
        Sizes {
            strings: self.strings.len(),
            attributes: self.attributes.entries().len(),
            mappings: self.mappings.entries().len(),
            functions: self.function_count(),
            locations: self.locations.entries().len(),
            links: self.links.entries().len(),
            stacks: self.stacks.len(),
        }
    }

    /// Memory of the dictionary, in bytes.
    pub fn bytes(&self) -> usize {
        self.strings.bytes()
            + self.values.bytes()
            + self.attributes.bytes()
            + self.attribute_sets.bytes()
            + self.mappings.bytes()
            + self.functions.bytes()
            + self.lines.bytes()
            + self.locations.bytes()
            + self.hints.bytes()
            + self.links.bytes()
            + self.stacks.bytes()
    }

    /// Identifies the binary of a mapping independently of its address, by pprof's rule for merging.
    ///
    /// The identity consists of the build id, or else the file name; the file offset; and the size in pages, since some
    /// writers round the size.
    pub fn binary(&self, mapping: Mapping) -> Binary {
        const PAGE: u64 = 0x1000;
        let size = mapping.limit.wrapping_sub(mapping.start);
        let build_id = names::BUILD_IDS
            .iter()
            .find_map(|key| self.find(mapping.attributes, key));
        let (build_id, filename) = match build_id {
            Some(build_id) => (build_id, StringId::default()),
            None => (Attribute::default(), mapping.filename),
        };
        Binary {
            pages: size.div_ceil(PAGE),
            file_offset: mapping.file_offset,
            build_id,
            filename,
        }
    }
}

/// Identity of a binary, see [`Dictionary::binary`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Binary {
    /// Size in pages of 4 KiB.
    pub pages: u64,
    /// File offset of the start of the mapping.
    pub file_offset: u64,
    /// Build id; the zero value if unknown.
    pub build_id: Attribute,
    /// File name, if there is no build id.
    pub filename: StringId,
}

/// Number of entries of each table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub(super) strings: usize,
    pub(super) attributes: usize,
    pub(super) mappings: usize,
    pub(super) functions: usize,
    pub(super) locations: usize,
    pub(super) links: usize,
    pub(super) stacks: usize,
}

#[cfg(test)]
mod tests;
