//! Finds duplicate and unreferenced entries.

use std::collections::HashMap;

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::profiles::v1development as proto;

use prost::Message as _;

use super::path::Path;
use super::{Checker, Rule};
use crate::dictionary::Dictionary;
use crate::entries::Entries;
use crate::fault::DictionaryTable;
use crate::fault::ProfileFault;
use crate::id::Id as _;
use crate::reindex::{CopiedEntries, DictionaryCopier};

const TABLES: [DictionaryTable; 7] = [
    DictionaryTable::String,
    DictionaryTable::Attribute,
    DictionaryTable::Mapping,
    DictionaryTable::Function,
    DictionaryTable::Location,
    DictionaryTable::Link,
    DictionaryTable::Stack,
];

impl Checker<'_> {
    /// Reports duplicates: two entries that have the same content and would become one entry in another dictionary.
    pub(super) fn duplicates(&mut self) {
        let root = Path::root("dictionary");
        let mut dictionary = Dictionary::new();
        let mut memo = CopiedEntries::default();
        let encoded = self.tables.encode_to_vec();
        let Ok(entries) = Entries::new(&encoded) else {
            return;
        };
        let mut source = DictionaryCopier::new(&entries, &mut dictionary, &mut memo, None);
        for table in TABLES {
            let path = root.field(table.name());
            let mut firsts = HashMap::from([(0, 0)]);
            for at in 1..self.len(table) {
                let Ok(index) = i32::try_from(at) else {
                    break;
                };
                let id = match carry_over(&mut source, table, index) {
                    Ok(id) => id,
                    Err(ProfileFault::Expansion) => {
                        self.add(Rule::Expansion, &path.at(at), || {
                            ProfileFault::Expansion.to_string()
                        });
                        return;
                    }
                    Err(_) => continue,
                };
                let first = *firsts.entry(id).or_insert(at);
                if first != at {
                    self.add(Rule::DuplicateEntry, &path.at(at), || {
                        format!("is a duplicate of {}[{first}]", table.name())
                    });
                }
            }
        }
    }

    pub(super) fn orphans(&mut self, resources: &[proto::ResourceProfiles]) {
        let mut uses = Uses::new(self.tables);
        for resource in resources {
            if let Some(resource) = &resource.resource {
                uses.key_values(&resource.attributes);
            }
            for scope in &resource.scope_profiles {
                if let Some(scope) = &scope.scope {
                    uses.key_values(&scope.attributes);
                }
                for profile in &scope.profiles {
                    uses.profile(profile);
                }
            }
        }
        let root = Path::root("dictionary");
        for table in TABLES {
            let path = root.field(table.name());
            let used = uses.of(table);
            for (at, used) in used.iter().enumerate().skip(1) {
                if !used {
                    self.add(Rule::Orphan, &path.at(at), || {
                        "is not used by any profile".to_owned()
                    });
                }
            }
        }
    }
}

fn carry_over(
    source: &mut DictionaryCopier<'_, '_>,
    table: DictionaryTable,
    index: i32,
) -> Result<usize, ProfileFault> {
    Ok(match table {
        DictionaryTable::String => source.string(index)?.index(),
        DictionaryTable::Attribute => source.attribute(index)?.index(),
        DictionaryTable::Mapping => source.mapping(index)?.0.index(),
        DictionaryTable::Function => source.function(index)?.index(),
        DictionaryTable::Location => source.location(index)?.index(),
        DictionaryTable::Link => source.link(index)?.index(),
        DictionaryTable::Stack => source.stack(index)?.index(),
    })
}

/// Entries that profiles refer to, directly or indirectly.
struct Uses<'r> {
    tables: &'r proto::ProfilesDictionary,
    used: [Vec<bool>; 7],
}

impl<'r> Uses<'r> {
    fn new(tables: &'r proto::ProfilesDictionary) -> Self {
        Uses {
            tables,
            used: [
                vec![false; tables.string_table.len()],
                vec![false; tables.attribute_table.len()],
                vec![false; tables.mapping_table.len()],
                vec![false; tables.function_table.len()],
                vec![false; tables.location_table.len()],
                vec![false; tables.link_table.len()],
                vec![false; tables.stack_table.len()],
            ],
        }
    }

    fn of(&mut self, table: DictionaryTable) -> &mut Vec<bool> {
        let [
            strings,
            attributes,
            mappings,
            functions,
            locations,
            links,
            stacks,
        ] = &mut self.used;
        match table {
            DictionaryTable::String => strings,
            DictionaryTable::Attribute => attributes,
            DictionaryTable::Mapping => mappings,
            DictionaryTable::Function => functions,
            DictionaryTable::Location => locations,
            DictionaryTable::Link => links,
            DictionaryTable::Stack => stacks,
        }
    }

    /// Returns the position of an entry at its first use.
    fn first(&mut self, table: DictionaryTable, index: i32) -> Option<usize> {
        let at = usize::try_from(index).ok()?;
        let used = self.of(table).get_mut(at)?;
        (!std::mem::replace(used, true)).then_some(at)
    }

    fn profile(&mut self, profile: &proto::Profile) {
        for value_type in [profile.sample_type, profile.period_type] {
            let value_type = value_type.unwrap_or_default();
            self.first(DictionaryTable::String, value_type.type_strindex);
            self.first(DictionaryTable::String, value_type.unit_strindex);
        }
        self.attributes(&profile.attribute_indices);
        for sample in &profile.samples {
            self.attributes(&sample.attribute_indices);
            self.first(DictionaryTable::Link, sample.link_index);
            let tables = self.tables;
            let stack = self.first(DictionaryTable::Stack, sample.stack_index);
            if let Some(stack) = stack.and_then(|at| tables.stack_table.get(at)) {
                for location in &stack.location_indices {
                    self.location(*location);
                }
            }
        }
    }

    fn location(&mut self, index: i32) {
        let tables = self.tables;
        let location = self.first(DictionaryTable::Location, index);
        let Some(location) = location.and_then(|at| tables.location_table.get(at)) else {
            return;
        };
        self.attributes(&location.attribute_indices);
        let mapping = self.first(DictionaryTable::Mapping, location.mapping_index);
        if let Some(mapping) = mapping.and_then(|at| tables.mapping_table.get(at)) {
            self.first(DictionaryTable::String, mapping.filename_strindex);
            self.attributes(&mapping.attribute_indices);
        }
        for line in &location.lines {
            let function = self.first(DictionaryTable::Function, line.function_index);
            if let Some(function) = function.and_then(|at| tables.function_table.get(at)) {
                self.first(DictionaryTable::String, function.name_strindex);
                self.first(DictionaryTable::String, function.system_name_strindex);
                self.first(DictionaryTable::String, function.filename_strindex);
            }
        }
    }

    fn attributes(&mut self, indices: &[i32]) {
        let tables = self.tables;
        for index in indices {
            let attribute = self.first(DictionaryTable::Attribute, *index);
            if let Some(attribute) = attribute.and_then(|at| tables.attribute_table.get(at)) {
                self.first(DictionaryTable::String, attribute.key_strindex);
                self.first(DictionaryTable::String, attribute.unit_strindex);
                if let Some(value) = &attribute.value {
                    self.value(value);
                }
            }
        }
    }

    fn key_values(&mut self, attributes: &[KeyValue]) {
        for attribute in attributes {
            self.first(DictionaryTable::String, attribute.key_strindex);
            if let Some(value) = &attribute.value {
                self.value(value);
            }
        }
    }

    fn value(&mut self, value: &AnyValue) {
        match &value.value {
            Some(Value::StringValueStrindex(index)) => {
                self.first(DictionaryTable::String, *index);
            }
            Some(Value::ArrayValue(array)) => {
                for value in &array.values {
                    self.value(value);
                }
            }
            Some(Value::KvlistValue(list)) => self.key_values(&list.values),
            _ => {}
        }
    }
}
