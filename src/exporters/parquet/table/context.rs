//! Where rows come from: resources and scopes, each combination once.

use super::attributes::{Pairs, Sets};
use super::gathered::gathered;
use super::strings::{NONE, Strings};
use super::text::quote;
use crate::wire::reader::{Fields, put_varint};
use crate::wire::view::{EntityRef, Message, Resource, View as _};

/// What a scope's entries come from, as it was sent.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Origin<'r> {
    /// An encoded `Resource` without references to a dictionary.
    pub(super) resource: &'r [u8],
    pub(super) resource_schema_url: &'r [u8],
    /// An encoded `InstrumentationScope` without references to a dictionary.
    pub(super) scope: &'r [u8],
    pub(super) scope_schema_url: &'r [u8],
}

/// One of the combinations.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Context {
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
    /// All combinations of a table, known by numbers.
    pub(super) struct Contexts {
        raw: Strings,
        entries: Vec<Context>,
        pub(super) resources: Sets,
        pub(super) scopes: Sets,
        scratch: Vec<u8>,
    }
}

impl Contexts {
    /// The number of a combination.
    pub(super) fn add(
        &mut self,
        origin: &Origin<'_>,
        pairs: &mut Pairs,
        texts: &mut Strings,
    ) -> u32 {
        self.scratch.clear();
        for part in [
            origin.resource,
            origin.resource_schema_url,
            origin.scope,
            origin.scope_schema_url,
        ] {
            put_varint(part.len() as u64, &mut self.scratch);
            self.scratch.extend_from_slice(part);
        }
        let id = self.raw.intern(&self.scratch);
        if id as usize == self.entries.len() {
            self.read(origin, pairs, texts);
        }
        id
    }

    fn read(&mut self, origin: &Origin<'_>, pairs: &mut Pairs, texts: &mut Strings) {
        let mut context = Context {
            service: NONE,
            resource_entities: NONE,
            resource_schema_url: texts.intern(origin.resource_schema_url),
            scope_schema_url: texts.intern(origin.scope_schema_url),
            ..Context::default()
        };
        let resource = Resource::view(Message::new(origin.resource));
        for attribute in resource.attributes() {
            let pair = pairs.add(attribute.message().encoded());
            self.resources.push(pair);
            if attribute.key_bytes() == SERVICE_NAME && context.service == NONE {
                context.service = texts.intern(pairs.values.get(pair));
            }
        }
        self.resources.end(pairs, texts);
        context.resource_dropped = resource.dropped_attributes_count();
        if let Some(entities) = entities(resource) {
            context.resource_entities = texts.intern(&entities);
        }
        let (mut name, mut version) = (&[][..], &[][..]);
        for field in Fields::new(origin.scope).map_while(Result::ok) {
            match (field.number, field.value.bytes()) {
                (1, Some(bytes)) => name = bytes,
                (2, Some(bytes)) => version = bytes,
                (3, Some(bytes)) => {
                    let pair = pairs.add(bytes);
                    self.scopes.push(pair);
                }
                (4, _) => context.scope_dropped = super::read::number(field.value) as u32,
                _ => {}
            }
        }
        self.scopes.end(pairs, texts);
        context.scope_name = texts.intern(name);
        context.scope_version = texts.intern(version);
        self.entries.push(context);
    }

    pub(super) fn get(&self, id: u32) -> &Context {
        static NOTHING: Context = Context {
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
}

/// The attribute that is a column in all tables.
pub(super) const SERVICE_NAME: &[u8] = b"service.name";

/// The entities of a resource as JSON, in the names of OTLP/JSON.
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
