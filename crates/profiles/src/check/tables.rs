//! Checks the tables of the dictionary.

use opentelemetry_proto::tonic::profiles::v1development as proto;

use super::path::Path;
use super::{Checker, Rule};
use crate::fault::DictionaryTable;
use crate::names;

impl Checker<'_> {
    pub(super) fn dictionary(&mut self) {
        let tables = self.tables;
        let root = Path::root("dictionary");
        let at = |table: DictionaryTable| root.field(table.name());

        self.zero(
            &at(DictionaryTable::String),
            tables.string_table.first(),
            |string| string.is_empty(),
        );

        let path = at(DictionaryTable::Attribute);
        // Some senders write an empty value into the zero attribute, which counts as no value.
        self.zero(&path, tables.attribute_table.first(), |entry| {
            let value = entry.value.as_ref().and_then(|value| value.value.as_ref());
            entry.key_strindex == 0 && entry.unit_strindex == 0 && value.is_none()
        });
        for (index, entry) in tables.attribute_table.iter().enumerate() {
            self.attribute(entry, index == 0, &path.at(index));
        }

        let path = at(DictionaryTable::Mapping);
        self.zero(&path, tables.mapping_table.first(), |entry| {
            *entry == proto::Mapping::default()
        });
        for (index, entry) in tables.mapping_table.iter().enumerate() {
            self.mapping(entry, index == 0, &path.at(index));
        }

        let path = at(DictionaryTable::Function);
        self.zero(&path, tables.function_table.first(), |entry| {
            *entry == proto::Function::default()
        });
        for (index, entry) in tables.function_table.iter().enumerate() {
            self.function(entry, index == 0, &path.at(index));
        }

        let path = at(DictionaryTable::Location);
        self.zero(&path, tables.location_table.first(), |entry| {
            *entry == proto::Location::default()
        });
        for (index, entry) in tables.location_table.iter().enumerate() {
            self.location(entry, &path.at(index));
        }

        let path = at(DictionaryTable::Link);
        self.zero(&path, tables.link_table.first(), |entry| {
            let ids = [(&entry.trace_id, 16), (&entry.span_id, 8)];
            ids.iter().all(|(id, len)| {
                id.is_empty() || id.len() == *len && id.iter().all(|byte| *byte == 0)
            })
        });
        for (index, entry) in tables.link_table.iter().enumerate().skip(1) {
            self.link(entry, &path.at(index));
        }

        let path = at(DictionaryTable::Stack);
        self.zero(&path, tables.stack_table.first(), |entry| {
            entry.location_indices.is_empty()
        });
        for (index, entry) in tables.stack_table.iter().enumerate() {
            self.stack(entry, &path.at(index));
        }
    }

    fn zero<T>(&mut self, path: &Path<'_>, first: Option<&T>, is_zero: impl Fn(&T) -> bool) {
        match first {
            None => self.add(Rule::ZeroValue, path, || {
                "is empty, but must begin with the zero value".to_owned()
            }),
            Some(first) if !is_zero(first) => self.add(Rule::ZeroValue, &path.at(0), || {
                "must be the zero value: index 0 means none".to_owned()
            }),
            Some(_) => {}
        }
    }

    fn mapping(&mut self, entry: &proto::Mapping, zero: bool, path: &Path<'_>) {
        self.index(
            DictionaryTable::String,
            entry.filename_strindex,
            &path.field("filename_strindex"),
        );
        self.attribute_indices(&entry.attribute_indices, &path.field("attribute_indices"));
        let (start, limit) = (entry.memory_start, entry.memory_limit);
        if (start, limit) != (0, 0) && start >= limit {
            self.add(Rule::MappingRange, path, || {
                format!("memory_start is {start:#x}, not before memory_limit, {limit:#x}")
            });
        }
        let known = |index: &i32| {
            let attribute = usize::try_from(*index)
                .ok()
                .and_then(|at| self.tables.attribute_table.get(at));
            attribute.is_some_and(|attribute| {
                names::BUILD_IDS.contains(&self.text(attribute.key_strindex))
            })
        };
        if !zero && !entry.attribute_indices.iter().any(known) {
            self.add(Rule::BuildIdMissing, path, || {
                format!("must have one of {}", names::BUILD_IDS.join(", "))
            });
        }
    }

    fn function(&mut self, entry: &proto::Function, zero: bool, path: &Path<'_>) {
        let strings = [
            (entry.name_strindex, "name_strindex"),
            (entry.system_name_strindex, "system_name_strindex"),
            (entry.filename_strindex, "filename_strindex"),
        ];
        let mut valid = true;
        for (index, name) in strings {
            valid &= self.index(DictionaryTable::String, index, &path.field(name));
        }
        let nameless = strings
            .iter()
            .all(|(index, _)| self.text(*index).is_empty());
        if !zero && valid && nameless {
            self.add(Rule::NamelessFunction, path, || {
                "has no name, no system name and no file name".to_owned()
            });
        }
        self.not_negative(entry.start_line, &path.field("start_line"));
    }

    fn location(&mut self, entry: &proto::Location, path: &Path<'_>) {
        let field = path.field("mapping_index");
        let valid = self.index(DictionaryTable::Mapping, entry.mapping_index, &field);
        self.attribute_indices(&entry.attribute_indices, &path.field("attribute_indices"));
        let lines = path.field("lines");
        // Code without a mapping is unknown: Go's `threadcreate` has such a location, after address 0.
        let nowhere = entry.mapping_index == 0 && matches!(entry.address, 0 | u64::MAX);
        for (index, line) in entry.lines.iter().enumerate() {
            let path = lines.at(index);
            let field = path.field("function_index");
            if self.index(DictionaryTable::Function, line.function_index, &field)
                && line.function_index == 0
                && !nowhere
            {
                self.add(Rule::NullInList, &field, || {
                    "is 0: a line without a function".to_owned()
                });
            }
            self.not_negative(line.line, &path.field("line"));
            self.not_negative(line.column, &path.field("column"));
        }
        let mapping = usize::try_from(entry.mapping_index)
            .ok()
            .and_then(|at| self.tables.mapping_table.get(at));
        if let Some(mapping) = mapping
            && valid
            && mapping.memory_limit != 0
            && entry.address != 0
        {
            // The protocol's text includes the end address.
            let range = mapping.memory_start..=mapping.memory_limit;
            if !range.contains(&entry.address) {
                self.add(Rule::AddressOutsideMapping, &path.field("address"), || {
                    let (start, end) = (range.start(), range.end());
                    let address = entry.address;
                    format!("is {address:#x}, but the mapping is from {start:#x} to {end:#x}")
                });
            }
        }
    }

    fn link(&mut self, entry: &proto::Link, path: &Path<'_>) {
        for (id, len, name) in [
            (&entry.trace_id, 16, "trace_id"),
            (&entry.span_id, 8, "span_id"),
        ] {
            if id.len() != len {
                self.add(Rule::LinkLength, &path.field(name), || {
                    format!("has {} bytes, but must have {len}", id.len())
                });
            } else if id.iter().all(|byte| *byte == 0) {
                self.add(Rule::ZeroLinkId, &path.field(name), || {
                    "is all zero, which is not a valid id".to_owned()
                });
            }
        }
    }

    fn stack(&mut self, entry: &proto::Stack, path: &Path<'_>) {
        let path = path.field("location_indices");
        for (at, index) in entry.location_indices.iter().enumerate() {
            if self.index(DictionaryTable::Location, *index, &path.at(at)) && *index == 0 {
                self.add(Rule::NullInList, &path.at(at), || {
                    "is 0: no location".to_owned()
                });
            }
        }
    }

    pub(super) fn not_negative(&mut self, number: i64, path: &Path<'_>) {
        if number < 0 {
            self.add(Rule::NegativeNumber, path, || {
                format!("is {number}, but must not be negative")
            });
        }
    }
}
