//! Origins of rows: resources and scopes, each stored once, and their combinations.
//!
//! A request may combine a large resource with thousands of scopes, metrics or hours. A table
//! therefore stores a resource once, and a reader looks it up once per table ([`PerTable`]).

use std::collections::HashMap;

use super::attributes::{Pairs, Sets};
use super::cost::row_memory;
use super::gathered::gathered;
use super::strings::{NONE, Strings};
use super::text::quote;
use tributary_otlp::reader::{Fields, put_varint};
use tributary_otlp::view::{EntityRef, Message, Resource, View as _};

/// Encoded resource and scope of items, as they were sent.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Origin<'r> {
    /// Encoded `Resource` without references to a dictionary.
    pub(super) resource: &'r [u8],
    pub(super) resource_schema_url: &'r [u8],
    /// Encoded `InstrumentationScope` without references to a dictionary.
    pub(super) scope: &'r [u8],
    pub(super) scope_schema_url: &'r [u8],
}

impl Origin<'_> {
    /// Returns the memory of the origin in a table, in bytes.
    pub(super) fn memory(&self) -> usize {
        let urls = self.resource_schema_url.len() + self.scope_schema_url.len();
        // An attribute without content takes two bytes, and four times as many in a table.
        2 * row_memory(self.resource.len() + self.scope.len() + urls, 0)
    }
}

/// The numbers of a message in the tables, for the message that is being read.
#[derive(Debug, Default)]
pub(super) struct PerTable {
    /// Contents and number of the last lookup.
    last: (u64, u32),
    others: HashMap<u64, u32>,
}

impl PerTable {
    /// Returns the number in the table with these contents; calls `find` on the first lookup for a
    /// table.
    #[inline]
    pub(super) fn get(&mut self, contents: u64, find: impl FnOnce() -> u32) -> u32 {
        // No contents have number 0.
        if self.last.0 != contents {
            let number = *self.others.entry(contents).or_insert_with(find);
            self.last = (contents, number);
        }
        self.last.1
    }
}

/// The numbers of an origin in each table.
#[derive(Debug, Default)]
pub(super) struct Known {
    resource: PerTable,
    with_scope: PerTable,
}

impl Known {
    /// Forgets the scope when the origin changes its scope.
    pub(super) fn next_scope(&mut self) {
        self.with_scope = PerTable::default();
    }
}

/// A combination of a resource and a scope, or one of both.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Context {
    /// Indices into the sets of `resources` and `scopes`.
    pub(super) resource: u32,
    pub(super) scope: u32,
    /// Number of attributes of both.
    pub(super) attributes: u32,
    pub(super) service: u32,
    pub(super) resource_dropped: u32,
    pub(super) resource_schema_url: u32,
    pub(super) resource_entities: u32,
    pub(super) scope_name: u32,
    pub(super) scope_version: u32,
    pub(super) scope_dropped: u32,
    pub(super) scope_schema_url: u32,
}

gathered! {
    /// All combinations of a table, identified by numbers.
    pub(super) struct Contexts {
        /// Encoded resources and scopes, as they were sent.
        raw_resources: Strings,
        raw_scopes: Strings,
        /// Data of each resource and of each scope.
        of_resources: Vec<Context>,
        of_scopes: Vec<Context>,
        pub(super) resources: Sets,
        pub(super) scopes: Sets,
        /// Combinations, by the numbers of resource and scope.
        pairs: Strings,
        entries: Vec<Context>,
        scratch: Vec<u8>,
    }
}

impl Contexts {
    /// Returns the number of an origin in the table with these contents.
    pub(super) fn add(
        &mut self,
        contents: u64,
        origin: &Origin<'_>,
        known: &mut Known,
        pairs: &mut Pairs,
        texts: &mut Strings,
    ) -> u32 {
        let Known {
            resource,
            with_scope,
        } = known;
        with_scope.get(contents, || {
            let resource = resource.get(contents, || self.resource(origin, pairs, texts));
            self.with_scope(resource, origin, pairs, texts)
        })
    }

    fn resource(&mut self, origin: &Origin<'_>, pairs: &mut Pairs, texts: &mut Strings) -> u32 {
        self.join(origin.resource, origin.resource_schema_url);
        let id = self.raw_resources.intern(&self.scratch);
        if id as usize == self.of_resources.len() {
            let mut context = self.read_resource(origin, pairs, texts);
            context.resource = id;
            self.of_resources.push(context);
        }
        id
    }

    /// Returns the number of a scope in combination with the resource of that number.
    fn with_scope(
        &mut self,
        resource: u32,
        origin: &Origin<'_>,
        pairs: &mut Pairs,
        texts: &mut Strings,
    ) -> u32 {
        self.join(origin.scope, origin.scope_schema_url);
        let scope = self.raw_scopes.intern(&self.scratch);
        if scope as usize == self.of_scopes.len() {
            let context = self.read_scope(origin, pairs, texts);
            self.of_scopes.push(context);
        }
        let pair = (u64::from(resource) << 32 | u64::from(scope)).to_le_bytes();
        let id = self.pairs.intern(&pair);
        if id as usize == self.entries.len() {
            let of = |all: &[Context], id: u32| all.get(id as usize).copied().unwrap_or_default();
            let of_resource = of(&self.of_resources, resource);
            let of_scope = of(&self.of_scopes, scope);
            self.entries.push(Context {
                scope,
                attributes: of_resource.attributes.saturating_add(of_scope.attributes),
                scope_name: of_scope.scope_name,
                scope_version: of_scope.scope_version,
                scope_dropped: of_scope.scope_dropped,
                scope_schema_url: of_scope.scope_schema_url,
                ..of_resource
            });
        }
        id
    }

    /// Builds the lookup key from a message and its schema URL.
    fn join(&mut self, message: &[u8], schema_url: &[u8]) {
        self.scratch.clear();
        put_varint(message.len() as u64, &mut self.scratch);
        self.scratch.extend_from_slice(message);
        self.scratch.extend_from_slice(schema_url);
    }

    fn read_resource(
        &mut self,
        origin: &Origin<'_>,
        pairs: &mut Pairs,
        texts: &mut Strings,
    ) -> Context {
        let mut context = Context {
            service: NONE,
            resource_entities: NONE,
            resource_schema_url: texts.intern(origin.resource_schema_url),
            ..Context::default()
        };
        let resource = Resource::view(Message::new(origin.resource));
        for attribute in resource.attributes() {
            let pair = pairs.add(attribute.message().encoded());
            self.resources.push(pair);
            context.attributes = context.attributes.saturating_add(1);
            if attribute.key_bytes() == SERVICE_NAME && context.service == NONE {
                context.service = texts.intern(pairs.values.get(pair));
            }
        }
        self.resources.end(pairs, texts);
        context.resource_dropped = resource.dropped_attributes_count();
        if let Some(entities) = entities(resource) {
            context.resource_entities = texts.intern(&entities);
        }
        context
    }

    fn read_scope(
        &mut self,
        origin: &Origin<'_>,
        pairs: &mut Pairs,
        texts: &mut Strings,
    ) -> Context {
        let mut context = Context {
            scope_schema_url: texts.intern(origin.scope_schema_url),
            ..Context::default()
        };
        let (mut name, mut version) = (&[][..], &[][..]);
        for field in Fields::new(origin.scope).map_while(Result::ok) {
            match (field.number, field.value.bytes()) {
                (1, Some(bytes)) => name = bytes,
                (2, Some(bytes)) => version = bytes,
                (3, Some(bytes)) => {
                    let pair = pairs.add(bytes);
                    self.scopes.push(pair);
                    context.attributes = context.attributes.saturating_add(1);
                }
                (4, _) => context.scope_dropped = super::read::number(field.value) as u32,
                _ => {}
            }
        }
        self.scopes.end(pairs, texts);
        context.scope_name = texts.intern(name);
        context.scope_version = texts.intern(version);
        context
    }

    pub(super) fn get(&self, id: u32) -> &Context {
        static NOTHING: Context = Context {
            resource: NONE,
            scope: NONE,
            attributes: 0,
            service: NONE,
            resource_dropped: 0,
            resource_schema_url: 0,
            resource_entities: NONE,
            scope_name: 0,
            scope_version: 0,
            scope_dropped: 0,
            scope_schema_url: 0,
        };
        self.entries.get(id as usize).unwrap_or(&NOTHING)
    }

    /// Returns the number of combinations.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

/// The attribute that has a column in all tables.
pub(super) const SERVICE_NAME: &[u8] = b"service.name";

/// Returns the entities of a resource as JSON with the names of OTLP/JSON.
fn entities(resource: Resource<'_>) -> Option<Vec<u8>> {
    let mut output = Vec::new();
    for entity in resource.entity_refs() {
        output.push(if output.is_empty() { b'[' } else { b',' });
        put_entity(&entity, &mut output);
    }
    if output.is_empty() {
        return None;
    }
    output.push(b']');
    Some(output)
}

fn put_entity(entity: &EntityRef<'_>, output: &mut Vec<u8>) {
    output.extend_from_slice(b"{\"type\":");
    quote(entity.kind(), output);
    output.extend_from_slice(b",\"schemaUrl\":");
    quote(entity.schema_url(), output);
    output.extend_from_slice(b",\"idKeys\":");
    put_list(entity.id_keys(), output);
    output.extend_from_slice(b",\"descriptionKeys\":");
    put_list(entity.description_keys(), output);
    output.push(b'}');
}

fn put_list<'a>(texts: impl Iterator<Item = &'a str>, output: &mut Vec<u8>) {
    output.push(b'[');
    for (at, text) in texts.enumerate() {
        if at > 0 {
            output.push(b',');
        }
        quote(text, output);
    }
    output.push(b']');
}
