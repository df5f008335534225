//! Writes OTLP messages.

use std::collections::HashMap;

use tributary_otlp::reader::{put_varint, varint_len};
use tributary_otlp::room::{Room, RoomExhausted, reserve};

use crate::attributes::{AttributeSet, Value};

/// Bytes of an encoded message, with memory from a room.
pub(crate) struct Output<'r> {
    room: &'r dyn Room,
    bytes: Vec<u8>,
}

/// Maximum size of a field key and a length, in bytes.
const HEADER: usize = 12;

impl<'r> Output<'r> {
    pub(crate) fn new(room: &'r dyn Room) -> Self {
        Output {
            room,
            bytes: Vec::new(),
        }
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    pub(crate) fn varint(&mut self, field: u32, value: u64) -> Result<(), RoomExhausted> {
        if value == 0 {
            return Ok(());
        }
        reserve(self.room, &mut self.bytes, 2 * HEADER)?;
        put_varint(u64::from(field << 3), &mut self.bytes);
        put_varint(value, &mut self.bytes);
        Ok(())
    }

    pub(crate) fn fixed64(&mut self, field: u32, value: u64) -> Result<(), RoomExhausted> {
        if value == 0 {
            return Ok(());
        }
        reserve(self.room, &mut self.bytes, HEADER + 8)?;
        put_varint(u64::from(field << 3 | 1), &mut self.bytes);
        self.bytes.extend_from_slice(&value.to_le_bytes());
        Ok(())
    }

    pub(crate) fn fixed32(&mut self, field: u32, value: u32) -> Result<(), RoomExhausted> {
        reserve(self.room, &mut self.bytes, HEADER)?;
        put_varint(u64::from(field << 3 | 5), &mut self.bytes);
        self.bytes.extend_from_slice(&value.to_le_bytes());
        Ok(())
    }

    pub(crate) fn bytes(&mut self, field: u32, value: &[u8]) -> Result<(), RoomExhausted> {
        match value.is_empty() {
            true => Ok(()),
            false => self.delimited(field, value),
        }
    }

    fn delimited(&mut self, field: u32, value: &[u8]) -> Result<(), RoomExhausted> {
        reserve(self.room, &mut self.bytes, HEADER + value.len())?;
        put_varint(u64::from(field << 3 | 2), &mut self.bytes);
        put_varint(value.len() as u64, &mut self.bytes);
        self.bytes.extend_from_slice(value);
        Ok(())
    }

    /// Writes a message whose content `write` writes.
    pub(crate) fn message(
        &mut self,
        field: u32,
        write: impl FnOnce(&mut Self) -> Result<(), RoomExhausted>,
    ) -> Result<(), RoomExhausted> {
        reserve(self.room, &mut self.bytes, HEADER)?;
        put_varint(u64::from(field << 3 | 2), &mut self.bytes);
        let begin = self.bytes.len();
        self.bytes.push(0);
        write(self)?;
        let length = self.bytes.len() - begin - 1;
        let wider = varint_len(length as u64) - 1;
        if wider > 0 {
            reserve(self.room, &mut self.bytes, wider)?;
            let end = self.bytes.len();
            self.bytes.resize(end + wider, 0);
            self.bytes.copy_within(begin + 1..end, begin + 1 + wider);
        }
        let mut prefix = Vec::with_capacity(HEADER);
        put_varint(length as u64, &mut prefix);
        if let Some(place) = self.bytes.get_mut(begin..begin + prefix.len()) {
            place.copy_from_slice(&prefix);
        }
        Ok(())
    }

    /// Writes attributes as a repeated field.
    pub(crate) fn attributes(
        &mut self,
        field: u32,
        attributes: &AttributeSet<'_>,
    ) -> Result<(), RoomExhausted> {
        for (key, value) in attributes.iter() {
            self.attribute(field, key, value)?;
        }
        Ok(())
    }

    pub(crate) fn attribute(
        &mut self,
        field: u32,
        key: &str,
        value: &Value<'_>,
    ) -> Result<(), RoomExhausted> {
        self.message(field, |output| {
            output.bytes(1, key.as_bytes())?;
            output.message(2, |output| output.value(value))
        })
    }

    /// Writes the member of `AnyValue`, even a zero.
    fn value(&mut self, value: &Value<'_>) -> Result<(), RoomExhausted> {
        reserve(self.room, &mut self.bytes, 2 * HEADER)?;
        match value {
            Value::Text(text) => self.delimited(1, text.as_bytes())?,
            Value::Bool(value) => self.bytes.extend_from_slice(&[2 << 3, u8::from(*value)]),
            Value::Int(value) => {
                self.bytes.push(3 << 3);
                put_varint(value.cast_unsigned(), &mut self.bytes);
            }
            Value::Double(value) => {
                self.bytes.push(4 << 3 | 1);
                self.bytes.extend_from_slice(&value.to_le_bytes());
            }
            Value::Bytes(bytes) => self.delimited(7, bytes)?,
        }
        Ok(())
    }

    /// Writes an event of a span.
    pub(crate) fn event(
        &mut self,
        time: u64,
        name: &str,
        attributes: &AttributeSet<'_>,
        dropped: u32,
    ) -> Result<(), RoomExhausted> {
        self.message(11, |event| {
            event.fixed64(1, time)?;
            event.bytes(2, name.as_bytes())?;
            event.attributes(3, attributes)?;
            event.varint(4, dropped.into())
        })
    }

    /// Writes the status of a span.
    pub(crate) fn status(&mut self, code: i32, text: &str) -> Result<(), RoomExhausted> {
        if code == 0 && text.is_empty() {
            return Ok(());
        }
        self.message(15, |status| {
            status.bytes(2, text.as_bytes())?;
            status.varint(3, i64::from(code).cast_unsigned())
        })
    }

    /// Writes the ids of a span or a link, in fields 1 and 2. An id of 0 is no id.
    pub(crate) fn ids(&mut self, trace: u128, span: u64) -> Result<(), RoomExhausted> {
        if trace != 0 {
            self.bytes(1, &trace.to_be_bytes())?;
        }
        if span != 0 {
            self.bytes(2, &span.to_be_bytes())?;
        }
        Ok(())
    }
}

/// Spans by resource and scope, as parts of a request.
pub(crate) struct Groups<'r> {
    room: &'r dyn Room,
    resources: Vec<ResourceGroup>,
    by_key: HashMap<Vec<u8>, usize>,
    spans: usize,
}

#[derive(Default)]
struct ResourceGroup {
    /// The encoded resource.
    resource: Vec<u8>,
    scopes: Vec<ScopeGroup>,
    by_key: HashMap<String, usize>,
}

struct ScopeGroup {
    /// The encoded scope.
    scope: Vec<u8>,
    /// Encoded spans, each with its field key.
    spans: Vec<u8>,
}

/// Memory of a group in addition to its bytes: the group, and an entry of a map.
const GROUP: usize = 512;

impl<'r> Groups<'r> {
    pub(crate) fn new(room: &'r dyn Room) -> Self {
        Groups {
            room,
            resources: Vec::new(),
            by_key: HashMap::new(),
            spans: 0,
        }
    }

    /// Returns the group of the resource with this key. `write` writes the resource if there is none.
    pub(crate) fn resource(
        &mut self,
        key: &[u8],
        write: impl FnOnce(&mut Output<'r>) -> Result<(), RoomExhausted>,
    ) -> Result<usize, RoomExhausted> {
        if let Some(known) = self.by_key.get(key) {
            return Ok(*known);
        }
        self.room.take(GROUP + key.len())?;
        let mut resource = Output::new(self.room);
        write(&mut resource)?;
        let index = self.resources.len();
        self.resources.push(ResourceGroup {
            resource: resource.bytes,
            ..ResourceGroup::default()
        });
        self.by_key.insert(key.to_vec(), index);
        Ok(index)
    }

    /// Adds a span to the scope with this key. `scope` and `span` write the fields of the scope, if it is new, and of
    /// the span.
    pub(crate) fn span(
        &mut self,
        resource: usize,
        key: &str,
        scope: impl FnOnce(&mut Output<'r>) -> Result<(), RoomExhausted>,
        span: impl FnOnce(&mut Output<'r>) -> Result<(), RoomExhausted>,
    ) -> Result<(), RoomExhausted> {
        let Some(group) = self.resources.get_mut(resource) else {
            return Ok(());
        };
        let index = match group.by_key.get(key) {
            Some(known) => *known,
            None => {
                self.room.take(GROUP + key.len())?;
                let mut encoded = Output::new(self.room);
                scope(&mut encoded)?;
                group.scopes.push(ScopeGroup {
                    scope: encoded.bytes,
                    spans: Vec::new(),
                });
                group.by_key.insert(key.to_owned(), group.scopes.len() - 1);
                group.scopes.len() - 1
            }
        };
        if let Some(group) = group.scopes.get_mut(index) {
            let mut output = Output {
                room: self.room,
                bytes: std::mem::take(&mut group.spans),
            };
            output.message(2, span)?;
            group.spans = output.bytes;
            self.spans += 1;
        }
        Ok(())
    }

    /// Returns the number of spans, and the request. Resources without spans are omitted.
    pub(crate) fn finish(self) -> Result<(usize, Vec<u8>), RoomExhausted> {
        let size = |length: usize| 1 + varint_len(length as u64) + length;
        let scope_len = |group: &ScopeGroup| size(group.scope.len()) + group.spans.len();
        let resource_len = |group: &ResourceGroup| {
            let scopes = group.scopes.iter().map(|scope| size(scope_len(scope)));
            size(group.resource.len()) + scopes.sum::<usize>()
        };
        let groups = || {
            self.resources
                .iter()
                .filter(|group| !group.scopes.is_empty())
        };
        let total = groups().map(|group| size(resource_len(group))).sum();
        let mut request = Vec::new();
        reserve(self.room, &mut request, total)?;
        let header = |request: &mut Vec<u8>, field: u8, length: usize| {
            request.push(field << 3 | 2);
            put_varint(length as u64, request);
        };
        for group in groups() {
            header(&mut request, 1, resource_len(group));
            header(&mut request, 1, group.resource.len());
            request.extend_from_slice(&group.resource);
            for scope in &group.scopes {
                header(&mut request, 2, scope_len(scope));
                header(&mut request, 1, scope.scope.len());
                request.extend_from_slice(&scope.scope);
                request.extend_from_slice(&scope.spans);
            }
        }
        self.room.release(self.charged());
        Ok((self.spans, request))
    }

    /// Returns the memory of the groups, in bytes.
    fn charged(&self) -> usize {
        let mut bytes = self.by_key.keys().map(Vec::len).sum();
        for resource in &self.resources {
            bytes += GROUP + resource.resource.capacity();
            bytes += resource.by_key.keys().map(String::len).sum::<usize>();
            for scope in &resource.scopes {
                bytes += GROUP + scope.scope.capacity() + scope.spans.capacity();
            }
        }
        bytes
    }
}
