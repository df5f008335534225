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
use crate::id::Id as _;
use crate::reindex::{Fault, Memo, Source, Table};

const TABLES: [Table; 7] = [
    Table::String,
    Table::Attribute,
    Table::Mapping,
    Table::Function,
    Table::Location,
    Table::Link,
    Table::Stack,
];

impl Checker<'_> {
    /// Reports duplicates: two entries that become one in another dictionary.
    pub(super) fn duplicates(&mut self) {
        let root = Path::root("dictionary");
        let mut dictionary = Dictionary::new();
        let mut memo = Memo::default();
        let encoded = self.tables.encode_to_vec();
        let Ok(entries) = Entries::new(&encoded) else {
            return;
        };
        let mut source = Source::new(&entries, &mut dictionary, &mut memo, None);
        for table in TABLES {
            let path = root.field(table.name());
            let mut firsts = HashMap::from([(0, 0)]);
            for at in 1..self.len(table) {
                let Ok(index) = i32::try_from(at) else {
                    break;
                };
                let id = match carry_over(&mut source, table, index) {
                    Ok(id) => id,
                    Err(Fault::Expansion) => {
                        self.add(Rule::Expansion, &path.at(at), || {
                            Fault::Expansion.to_string()
                        });
                        return;
                    }
                    // Reported already.
                    Err(_) => continue,
                };
                let first = *firsts.entry(id).or_insert(at);
                if first != at {
                    self.add(Rule::DuplicateEntry, &path.at(at), || {
                        format!("says the same as {}[{first}]", table.name())
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

fn carry_over(source: &mut Source<'_, '_>, table: Table, index: i32) -> Result<usize, Fault> {
    Ok(match table {
        Table::String => source.string(index)?.index(),
        Table::Attribute => source.attribute(index)?.index(),
        Table::Mapping => source.mapping(index)?.0.index(),
        Table::Function => source.function(index)?.index(),
        Table::Location => source.location(index)?.index(),
        Table::Link => source.link(index)?.index(),
        Table::Stack => source.stack(index)?.index(),
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

    fn of(&mut self, table: Table) -> &mut Vec<bool> {
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
            Table::String => strings,
            Table::Attribute => attributes,
            Table::Mapping => mappings,
            Table::Function => functions,
            Table::Location => locations,
            Table::Link => links,
            Table::Stack => stacks,
        }
    }

    /// Returns the position of an entry at its first use.
    fn first(&mut self, table: Table, index: i32) -> Option<usize> {
        let at = usize::try_from(index).ok()?;
        let used = self.of(table).get_mut(at)?;
        (!std::mem::replace(used, true)).then_some(at)
    }

    fn profile(&mut self, profile: &proto::Profile) {
        for value_type in [profile.sample_type, profile.period_type] {
            let value_type = value_type.unwrap_or_default();
            self.first(Table::String, value_type.type_strindex);
            self.first(Table::String, value_type.unit_strindex);
        }
        self.attributes(&profile.attribute_indices);
        for sample in &profile.samples {
            self.attributes(&sample.attribute_indices);
            self.first(Table::Link, sample.link_index);
            let tables = self.tables;
            let stack = self.first(Table::Stack, sample.stack_index);
            if let Some(stack) = stack.and_then(|at| tables.stack_table.get(at)) {
                for location in &stack.location_indices {
                    self.location(*location);
                }
            }
        }
    }

    fn location(&mut self, index: i32) {
        let tables = self.tables;
        let location = self.first(Table::Location, index);
        let Some(location) = location.and_then(|at| tables.location_table.get(at)) else {
            return;
        };
        self.attributes(&location.attribute_indices);
        let mapping = self.first(Table::Mapping, location.mapping_index);
        if let Some(mapping) = mapping.and_then(|at| tables.mapping_table.get(at)) {
            self.first(Table::String, mapping.filename_strindex);
            self.attributes(&mapping.attribute_indices);
        }
        for line in &location.lines {
            let function = self.first(Table::Function, line.function_index);
            if let Some(function) = function.and_then(|at| tables.function_table.get(at)) {
                self.first(Table::String, function.name_strindex);
                self.first(Table::String, function.system_name_strindex);
                self.first(Table::String, function.filename_strindex);
            }
        }
    }

    fn attributes(&mut self, indices: &[i32]) {
        let tables = self.tables;
        for index in indices {
            let attribute = self.first(Table::Attribute, *index);
            if let Some(attribute) = attribute.and_then(|at| tables.attribute_table.get(at)) {
                self.first(Table::String, attribute.key_strindex);
                self.first(Table::String, attribute.unit_strindex);
                if let Some(value) = &attribute.value {
                    self.value(value);
                }
            }
        }
    }

    fn key_values(&mut self, attributes: &[KeyValue]) {
        for attribute in attributes {
            self.first(Table::String, attribute.key_strindex);
            if let Some(value) = &attribute.value {
                self.value(value);
            }
        }
    }

    // The decoder limits how deep values nest.
    fn value(&mut self, value: &AnyValue) {
        match &value.value {
            Some(Value::StringValueStrindex(index)) => {
                self.first(Table::String, *index);
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
