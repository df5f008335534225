//! Copies mappings.

use opentelemetry_proto::tonic::common::v1::AnyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;

use super::super::super::id::{AttributeSetId, MappingId, StringId};
use super::super::super::names;
use super::super::build_id;
use super::super::error::{Error, FileTable};
use super::super::tables::integer;
use super::{FileReader, wire};
use crate::entry::Mapping;
use crate::id::Id;
use tributary_otlp::reader::Fields;

fn boolean(value: bool) -> AnyValue {
    AnyValue {
        value: Some(Any::BoolValue(value)),
    }
}

impl<'s, 'f> FileReader<'s, 'f> {
    /// Copies the mapping with this id, and returns the shift of its addresses. As in pprof, a dangling id means no
    /// mapping.
    pub(super) fn mapping(&mut self, id: u64) -> Result<(MappingId, u64), Error> {
        if id == 0 {
            return Ok((MappingId::default(), 0));
        }
        let Some(at) = self.tables.mappings.position(id) else {
            self.repairs.mappings += 1;
            return Ok((MappingId::default(), 0));
        };
        if let Some(id) = self.memo.mappings.get(at) {
            let shift = self.memo.shifts.get(at).copied().unwrap_or_default();
            return Ok((id, shift));
        }
        let mapping = self.new_mapping(at)?;
        let (id, shift) = match &mut self.relocations {
            Some(relocations) => relocations.relocate(self.into, mapping),
            None => (self.into.mapping(mapping), 0),
        };
        self.memo.mappings.insert(at, id);
        if let Some(place) = self.memo.shifts.get_mut(at) {
            *place = shift;
        }
        Ok((id, shift))
    }

    fn new_mapping(&mut self, at: usize) -> Result<Mapping, Error> {
        const PLACE: &str = "a mapping";
        let mut mapping = Mapping::default();
        let mut flags = [
            (names::HAS_FUNCTIONS, false),
            (names::HAS_FILENAMES, false),
            (names::HAS_LINE_NUMBERS, false),
            (names::HAS_INLINE_FRAMES, false),
        ];
        let (mut build_id, mut has_id) = (StringId::default(), false);
        for field in Fields::new(self.tables.mappings.get(at)) {
            let field = field.map_err(wire(PLACE))?;
            let (number, value) = (field.number, field.value);
            let number_of = || integer(PLACE, number, value);
            match number {
                1 => self.one_id(FileTable::Mapping, &mut has_id)?,
                2 => mapping.start = number_of()?,
                3 => mapping.limit = number_of()?,
                4 => mapping.file_offset = number_of()?,
                5 => mapping.filename = self.string(number_of()?)?,
                6 => build_id = self.string(number_of()?)?,
                7..=10 => {
                    let set = number_of()? != 0;
                    if let Some(flag) = flags.iter_mut().zip(7..).find(|flag| flag.1 == number) {
                        flag.0.1 = set;
                    }
                }
                _ => {}
            }
        }
        if mapping.start >= mapping.limit && (mapping.start, mapping.limit) != (0, 0) {
            self.repairs.mappings += 1;
            mapping.start = mapping.start.min(u64::MAX - 1);
            mapping.limit = mapping.start + 1;
        }
        let mut attributes = Vec::new();
        if build_id.index() != 0 {
            let text = self.into.text(build_id).to_owned();
            let key = build_id::attribute(&text);
            attributes.push(self.into.string_attribute(key, &text));
        }
        for (key, set) in flags {
            if set {
                attributes.push(self.into.any_attribute(key, &boolean(true)));
            }
        }
        mapping.attributes = self.into.attribute_set(&attributes);
        // Without other content, an unset flag distinguishes the mapping from no mapping.
        if mapping == Mapping::default() {
            mapping.attributes = self.flags(&[(names::HAS_FUNCTIONS, false)]);
        }
        Ok(mapping)
    }

    /// Returns the first mapping of the file, which belongs to the main program, if the mapping has a location.
    pub(in super::super) fn main(&self) -> Option<MappingId> {
        self.memo.mappings.get(0)
    }

    pub(super) fn flags(&mut self, flags: &[(&str, bool)]) -> AttributeSetId {
        let mut attributes = Vec::new();
        for (key, set) in flags {
            attributes.push(self.into.any_attribute(key, &boolean(*set)));
        }
        self.into.attribute_set(&attributes)
    }
}
