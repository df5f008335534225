//! The tables that profiles refer to, each entry once.

use opentelemetry_proto::tonic::common::v1::AnyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use prost::Message as _;

use super::id::{
    AttributeId, AttributeSetId, FunctionId, Id as _, LinesId, LinkId, LocationId, MappingId,
    StackId, StringId, ValueId,
};
use super::names;
use super::places::Places;
use super::table::{Lists, Records, Strings};

/// For how many places [`Dictionary::approach`] is best called: enough to wait together, few enough that they are still
/// near when their turn comes.
pub(super) const AHEAD: usize = 32;

/// What is counted, or how often: `cpu` in `nanoseconds`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct ValueType {
    /// What.
    pub kind: StringId,
    /// In which unit.
    pub unit: StringId,
}

/// A key with a value and a unit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Attribute {
    /// The key.
    pub key: StringId,
    /// The value.
    pub value: ValueId,
    /// The unit (UCUM); empty where the key implies it.
    pub unit: StringId,
}

/// A binary that is mapped into memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Mapping {
    /// The first address.
    pub start: u64,
    /// The address behind the last one.
    pub limit: u64,
    /// Where in the file the first address is.
    pub file_offset: u64,
    /// The file.
    pub filename: StringId,
    /// Build ids and more.
    pub attributes: AttributeSetId,
}

/// A function.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Function {
    /// The name for people.
    pub name: StringId,
    /// The name for the system: mangled, say.
    pub system_name: StringId,
    /// The source file.
    pub filename: StringId,
    /// The line where it starts; 0 when it is not known.
    pub start_line: i64,
}

/// A line of source code in a function.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Line {
    /// The function.
    pub function: FunctionId,
    /// The line; 0 when it is not known.
    pub line: i64,
    /// The column; 0 when it is not known.
    pub column: i64,
}

/// A place in the code.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Location {
    /// The binary.
    pub mapping: MappingId,
    /// The address of the instruction.
    pub address: u64,
    /// The source lines: what was inlined first, the function itself last.
    pub lines: LinesId,
    /// The frame's type and more.
    pub attributes: AttributeSetId,
}

/// The span that was active when a sample was taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Link {
    /// The trace.
    pub trace_id: [u8; 16],
    /// The span.
    pub span_id: [u8; 8],
}

/// What makes two samples the same: their values may be added, their observations put together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct SampleKey {
    /// Where.
    pub stack: StackId,
    /// Thread, labels and more.
    pub attributes: AttributeSetId,
    /// In which span.
    pub link: LinkId,
}

/// The tables that profiles refer to.
///
/// It only grows. What nothing refers to is left out when profiles are written: see
/// [`Profiles::encode`](super::Profiles::encode).
#[derive(Debug, Clone, Default)]
pub struct Dictionary {
    strings: Strings<StringId>,
    /// Encoded, without references to strings: equal values have equal bytes.
    values: Lists<ValueId, u8>,
    attributes: Records<AttributeId, Attribute>,
    attribute_sets: Lists<AttributeSetId, AttributeId>,
    mappings: Records<MappingId, Mapping>,
    functions: Records<FunctionId, Function>,
    lines: Lists<LinesId, Line>,
    locations: Records<LocationId, Location>,
    places: Places,
    links: Records<LinkId, Link>,
    stacks: Lists<StackId, LocationId>,
    encoded: Vec<u8>,
    set: Vec<AttributeId>,
}

impl Dictionary {
    /// Tables with their zero values only.
    pub fn new() -> Self {
        Self::default()
    }

    /// The index of a string.
    pub fn string(&mut self, string: &str) -> StringId {
        self.strings.intern(string)
    }

    /// The index of a string that may not be one: nothing if it is not UTF-8.
    pub fn string_bytes(&mut self, bytes: &[u8]) -> Option<StringId> {
        self.strings.intern_bytes(bytes)
    }

    /// Like [`string_bytes`](Self::string_bytes), faster if it is this string.
    #[inline]
    pub(super) fn likely_string(&mut self, bytes: &[u8], likely: StringId) -> Option<StringId> {
        if self.strings.get_bytes(likely) == bytes {
            return Some(likely);
        }
        self.strings.intern_bytes(bytes)
    }

    /// The index of a value, which must not contain references to strings.
    pub fn value(&mut self, value: &AnyValue) -> ValueId {
        let mut encoded = std::mem::take(&mut self.encoded);
        encoded.clear();
        // A vector grows: this cannot fail.
        let _ = value.encode(&mut encoded);
        let id = self.values.intern(&encoded);
        self.encoded = encoded;
        id
    }

    /// The index of an attribute.
    pub fn attribute(&mut self, attribute: Attribute) -> AttributeId {
        self.attributes.intern(attribute)
    }

    /// The index of an attribute whose value is a string.
    pub fn string_attribute(&mut self, key: &str, value: &str) -> AttributeId {
        let value = AnyValue {
            value: Some(Value::StringValue(value.to_owned())),
        };
        self.any_attribute(key, &value)
    }

    /// The index of an attribute without a unit.
    pub fn any_attribute(&mut self, key: &str, value: &AnyValue) -> AttributeId {
        let key = self.string(key);
        let value = self.value(value);
        let unit = StringId::default();
        self.attribute(Attribute { key, value, unit })
    }

    /// The index of a set of attributes. Their order does not matter. The attribute with index 0, which means none,
    /// is left out, and of several with one key all but the first are.
    pub fn attribute_set(&mut self, attributes: &[AttributeId]) -> AttributeSetId {
        let mut set = std::mem::take(&mut self.set);
        set.clear();
        set.extend(attributes.iter().filter(|id| id.index() != 0));
        if set.len() > 1 {
            // Stable: the first of a key stays.
            set.sort_by_key(|id| self.attributes.get(*id).key);
            set.dedup_by_key(|id| self.attributes.get(*id).key);
            set.sort_unstable();
        }
        let id = self.attribute_sets.intern(&set);
        self.set = set;
        id
    }

    /// The index of a mapping.
    pub fn mapping(&mut self, mapping: Mapping) -> MappingId {
        self.mappings.intern(mapping)
    }

    /// The index of a function.
    pub fn function(&mut self, function: Function) -> FunctionId {
        self.functions.intern(function)
    }

    /// Like [`function`](Self::function), faster if it is this one.
    #[inline]
    pub(super) fn likely_function(&mut self, function: Function, likely: FunctionId) -> FunctionId {
        if self.functions.get(likely) == function {
            return likely;
        }
        self.functions.intern(function)
    }

    /// The index of the lines of a location, the innermost first.
    pub fn lines(&mut self, lines: &[Line]) -> LinesId {
        self.lines.intern(lines)
    }

    /// The index of a location.
    pub fn location(&mut self, location: Location) -> LocationId {
        let before = self.locations.entries().len();
        let id = self.locations.intern(location);
        if self.locations.entries().len() > before {
            self.places.note_last(self.locations.entries());
        }
        id
    }

    /// The index of a location that is a function's, of which nothing but the name is known.
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

    /// A location with this mapping and address, if there is an address: probably the one that is meant, because
    /// nothing else has been compared. The zero value if none is known.
    #[inline]
    pub(super) fn likely_location(
        &self,
        mapping: MappingId,
        address: u64,
    ) -> (LocationId, Location) {
        self.location_among(self.places.find(mapping, address), mapping, address)
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

    /// Touches what [`likely_location`](Self::likely_location) leads to, as far as the function's name, for many places
    /// at once; those without an address are none. One after the other each step would wait for memory; step by step for all of them they wait together.
    pub(super) fn approach(&self, places: &[(MappingId, u64); AHEAD]) {
        // Arrays, and not one chain of iterators: each step must be done for all before the next one begins.
        let likely = places.map(|(mapping, address)| self.places.find(mapping, address));
        let mut lines = [LinesId::default(); AHEAD];
        for ((lines, ids), (mapping, address)) in lines.iter_mut().zip(likely).zip(places) {
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

    /// The index of a link. One of zeros only means none and gets index 0.
    pub fn link(&mut self, link: Link) -> LinkId {
        self.links.intern(link)
    }

    /// The index of a stack, the leaf first.
    pub fn stack(&mut self, locations: &[LocationId]) -> StackId {
        self.stacks.intern(locations)
    }

    /// The string with this index.
    pub fn text(&self, id: StringId) -> &str {
        self.strings.get(id)
    }

    /// The value with this index, encoded as an `AnyValue`.
    pub fn encoded_value(&self, id: ValueId) -> &[u8] {
        self.values.get(id)
    }

    /// The value with this index.
    pub fn any_value(&self, id: ValueId) -> AnyValue {
        AnyValue::decode(self.values.get(id)).unwrap_or_default()
    }

    /// The attribute with this index.
    pub fn get_attribute(&self, id: AttributeId) -> Attribute {
        self.attributes.get(id)
    }

    /// The attributes of the set with this index.
    pub fn attributes(&self, id: AttributeSetId) -> &[AttributeId] {
        self.attribute_sets.get(id)
    }

    /// The attribute of a set that has this key.
    pub fn find(&self, set: AttributeSetId, key: &str) -> Option<Attribute> {
        self.attributes(set)
            .iter()
            .map(|id| self.get_attribute(*id))
            .find(|attribute| self.text(attribute.key) == key)
    }

    /// The mapping with this index.
    pub fn get_mapping(&self, id: MappingId) -> Mapping {
        self.mappings.get(id)
    }

    /// The function with this index.
    pub fn get_function(&self, id: FunctionId) -> Function {
        self.functions.get(id)
    }

    /// The lines with this index.
    pub fn get_lines(&self, id: LinesId) -> &[Line] {
        self.lines.get(id)
    }

    /// The location with this index.
    pub fn get_location(&self, id: LocationId) -> Location {
        self.locations.get(id)
    }

    /// The link with this index.
    pub fn get_link(&self, id: LinkId) -> Link {
        self.links.get(id)
    }

    /// The locations of the stack with this index, the leaf first.
    pub fn locations(&self, id: StackId) -> &[LocationId] {
        self.stacks.get(id)
    }

    /// How many entries each table has.
    pub(super) fn sizes(&self) -> Sizes {
        Sizes {
            strings: self.strings.len(),
            attributes: self.attributes.entries().len(),
            mappings: self.mappings.entries().len(),
            functions: self.functions.entries().len(),
            locations: self.locations.entries().len(),
            links: self.links.entries().len(),
            stacks: self.stacks.len(),
        }
    }

    /// The memory it takes.
    pub fn bytes(&self) -> usize {
        self.strings.bytes()
            + self.values.bytes()
            + self.attributes.bytes()
            + self.attribute_sets.bytes()
            + self.mappings.bytes()
            + self.functions.bytes()
            + self.lines.bytes()
            + self.locations.bytes()
            + self.places.bytes()
            + self.links.bytes()
            + self.stacks.bytes()
    }

    /// What identifies the binary of a mapping, wherever it is in memory: pprof's rule for merging.
    ///
    /// The best build id that is known, or else the file's name; where in the file; and the size in whole pages, which
    /// absorbs that some writers round it.
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

/// See [`Dictionary::binary`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Binary {
    /// The size in pages of 4 KiB.
    pub pages: u64,
    /// Where in the file the mapping starts.
    pub file_offset: u64,
    /// The build id; the zero value when none is known.
    pub build_id: Attribute,
    /// The file's name, when there is no build id.
    pub filename: StringId,
}

/// How many entries each table has.
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
mod tests {
    use super::*;

    #[test]
    fn a_set_ignores_order_the_null_attribute_and_later_values_of_a_key() {
        let mut dictionary = Dictionary::new();
        let a = dictionary.string_attribute("a", "1");
        let b = dictionary.string_attribute("b", "2");
        let other_a = dictionary.string_attribute("a", "3");
        let set = dictionary.attribute_set(&[a, b]);
        assert_eq!(dictionary.attribute_set(&[b, a]), set);
        assert_eq!(
            dictionary.attribute_set(&[AttributeId::default(), b, a, other_a]),
            set
        );
        assert_ne!(dictionary.attribute_set(&[b, other_a, a]), set);
        assert_eq!(dictionary.attribute_set(&[]), AttributeSetId::default());
        let found = dictionary.find(set, "b").unwrap();
        assert_eq!(
            dictionary.any_value(found.value).value,
            Some(Value::StringValue("2".to_owned()))
        );
    }

    #[test]
    fn a_binary_is_known_by_build_id_else_by_name_and_by_its_size_in_pages() {
        let mut dictionary = Dictionary::new();
        let filename = dictionary.string("/bin/a");
        let other = dictionary.string("/bin/b");
        let gnu = dictionary.string_attribute(names::BUILD_ID_GNU, "ab12");
        let go = dictionary.string_attribute(names::BUILD_ID_GO, "x/y");
        let gnu_only = dictionary.attribute_set(&[gnu]);
        let both = dictionary.attribute_set(&[go, gnu]);
        let mapping = |start, size, filename, attributes| Mapping {
            start,
            limit: start + size,
            file_offset: 0,
            filename,
            attributes,
        };
        let none = AttributeSetId::default();
        let binary = |mapping| dictionary.binary(mapping);
        assert_eq!(
            binary(mapping(0x1000, 0x1fff, filename, none)),
            binary(mapping(0x9000, 0x2000, filename, none)),
        );
        assert_ne!(
            binary(mapping(0x1000, 0x2000, filename, none)),
            binary(mapping(0x1000, 0x2000, other, none)),
        );
        assert_eq!(
            binary(mapping(0x1000, 0x2000, filename, gnu_only)),
            binary(mapping(0x1000, 0x2000, other, both)),
        );
        assert_ne!(
            binary(mapping(0x1000, 0x2000, filename, gnu_only)),
            binary(mapping(0x1000, 0x3000, filename, gnu_only)),
        );
    }
}
