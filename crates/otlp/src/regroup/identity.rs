//! Comparable forms of the messages around items.

use std::borrow::Cow;
use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::Fault;
use super::node::Node;
use crate::edit::put_delimited;
use crate::reader::Field;
use crate::room::{Room, reserve};

/// A resource with everything that its items share.
pub(super) struct Grouping<'a> {
    /// Fields of the entry besides resource and scopes: the schema URL, and unknown fields.
    beside: Vec<&'a [u8]>,
    /// Fields of the resource besides its attributes.
    rest: Vec<&'a [u8]>,
    attributes: Vec<Pair<'a>>,
    /// Whether the entry has a resource, even if an empty one.
    is_present: bool,
    /// Resources in the new request, by the attributes that moved to them.
    pub(super) known: HashMap<Vec<u8>, usize, RandomState>,
}

/// An attribute: its key, and its whole encoding.
#[derive(Clone, Copy)]
struct Pair<'a> {
    key: &'a [u8],
    encoded: &'a [u8],
}

/// Memory of an attribute in the lists for a node, in bytes: the list of pairs, which may have twice the capacity of its
/// size, and the sorted list of encodings.
const LISTED_BYTES: usize = 3 * size_of::<Pair<'_>>();

/// Attributes of an item that move to its resource.
pub(super) struct Moved<'a>(Vec<Pair<'a>>);

impl<'a> Grouping<'a> {
    /// Reads an entry such as `ResourceSpans`, with memory from `room`.
    pub(super) fn of(entry: &Field<'a>, room: &dyn Room) -> Result<Self, Fault> {
        let mut grouping = Grouping {
            beside: Vec::new(),
            rest: Vec::new(),
            attributes: Vec::new(),
            is_present: false,
            known: HashMap::default(),
        };
        for field in entry.fields() {
            let field = field?;
            match (field.number, field.value.bytes()) {
                (1, Some(_)) if grouping.is_present => return Err(Fault::Ambiguous),
                (1, Some(_)) => grouping.read(&field, room)?,
                (2, Some(_)) => {}
                _ => {
                    reserve(room, &mut grouping.beside, 1)?;
                    grouping.beside.push(field.raw);
                }
            }
        }
        Ok(grouping)
    }

    fn read(&mut self, resource: &Field<'a>, room: &dyn Room) -> Result<(), Fault> {
        self.is_present = true;
        for field in resource.fields() {
            let field = field?;
            match (field.number, field.value.bytes()) {
                (1, Some(encoded)) => {
                    reserve(room, &mut self.attributes, 1)?;
                    self.attributes.push(Pair {
                        key: key_of(&field)?,
                        encoded,
                    });
                }
                _ => {
                    reserve(room, &mut self.rest, 1)?;
                    self.rest.push(field.raw);
                }
            }
        }
        Ok(())
    }

    /// Returns the memory of the lists to `room`.
    pub(super) fn release(self, room: &dyn Room) {
        let fields = (self.beside.capacity() + self.rest.capacity()) * size_of::<&[u8]>();
        room.release(fields + self.attributes.capacity() * size_of::<Pair<'_>>());
    }

    /// Returns the attributes of an item that have these keys. If a key occurs twice, the first attribute counts.
    pub(super) fn moved(
        &self,
        item: &Field<'a>,
        number: u32,
        keys: &[String],
    ) -> Result<Moved<'a>, Fault> {
        let mut found: Vec<Pair<'a>> = Vec::new();
        for field in item.fields().filter(|_| !keys.is_empty()) {
            let field = field?;
            let Some(encoded) = field.value.bytes().filter(|_| field.number == number) else {
                continue;
            };
            let key = key_of(&field)?;
            if keys.iter().any(|wanted| wanted.as_bytes() == key)
                && found.iter().all(|known| known.key != key)
            {
                found.push(Pair { key, encoded });
            }
        }
        Ok(Moved(found))
    }

    /// Returns the resource with the moved attributes, which replace those with the same keys, as a node with an
    /// identity that does not depend on the order of attributes.
    pub(super) fn node(&self, moved: &Moved<'a>) -> Node {
        let stays = |pair: &&Pair<'a>| moved.0.iter().all(|other| other.key != pair.key);
        let own = self.attributes.iter().filter(stays);
        let attributes: Vec<Pair<'a>> = own.chain(&moved.0).copied().collect();
        let mut resource = Vec::new();
        for attribute in &attributes {
            put_delimited(1, attribute.encoded, &mut resource);
        }
        resource.extend(self.rest.iter().copied().flatten());
        let mut header = Vec::new();
        if self.is_present || !resource.is_empty() {
            put_delimited(1, &resource, &mut header);
        }
        header.extend(self.beside.iter().copied().flatten());
        let mut sorted: Vec<&[u8]> = attributes.iter().map(|pair| pair.encoded).collect();
        sorted.sort_unstable();
        let mut identity = Vec::with_capacity(header.len() + 8);
        for attribute in sorted {
            put_delimited(1, attribute, &mut identity);
        }
        put_delimited(2, &self.rest.concat(), &mut identity);
        put_delimited(3, &self.beside.concat(), &mut identity);
        Node {
            number: 1,
            header,
            identity,
        }
    }

    /// Bytes of the node and of the lists that it is made from, at most.
    pub(super) fn bytes(&self, moved: &Moved<'a>) -> usize {
        let sum = |list: &[&[u8]]| list.iter().map(|part| part.len()).sum::<usize>();
        let pairs = self.attributes.iter().chain(&moved.0);
        let lists = LISTED_BYTES * pairs.clone().count();
        let attributes: usize = pairs.map(|pair| pair.encoded.len() + 10).sum();
        lists + 2 * (attributes + sum(&self.beside) + sum(&self.rest) + 32)
    }
}

impl<'a> Moved<'a> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the attributes as one text.
    pub(super) fn encoded(&self) -> Cow<'a, [u8]> {
        match self.0.as_slice() {
            [] => Cow::Borrowed(&[]),
            pairs => {
                let mut output = Vec::new();
                for pair in pairs {
                    put_delimited(1, pair.encoded, &mut output);
                }
                Cow::Owned(output)
            }
        }
    }

    /// Returns the field of an item without the moved attributes.
    pub(super) fn without(&self, item: &Field<'a>, number: u32) -> Result<Cow<'a, [u8]>, Fault> {
        if self.is_empty() {
            return Ok(Cow::Borrowed(item.raw));
        }
        let mut body = Vec::with_capacity(item.raw.len());
        for field in item.fields() {
            let field = field?;
            let is_moved = |pair: &Pair<'_>| {
                let bytes = field.value.bytes();
                field.number == number
                    && bytes.is_some_and(|bytes| std::ptr::eq(bytes, pair.encoded))
            };
            if !self.0.iter().any(is_moved) {
                body.extend_from_slice(field.raw);
            }
        }
        let mut output = Vec::with_capacity(body.len() + 6);
        put_delimited(item.number, &body, &mut output);
        Ok(Cow::Owned(output))
    }
}

/// Returns the scope around items as a node: all its fields except the items.
pub(super) fn scope(scope: &Field<'_>) -> Result<Node, Fault> {
    let mut scopes = 0;
    for field in scope.fields() {
        let field = field?;
        scopes += usize::from(field.number == 1 && field.value.bytes().is_some());
    }
    match scopes > 1 {
        true => Err(Fault::Ambiguous),
        false => around(scope, 2, 2),
    }
}

/// Returns a message as a node: all its fields except the messages `inner`. The node is the field `number` of its parent.
pub(super) fn around(message: &Field<'_>, number: u32, inner: u32) -> Result<Node, Fault> {
    let mut header = Vec::new();
    for field in message.fields() {
        let field = field?;
        if field.number != inner || field.value.bytes().is_none() {
            header.extend_from_slice(field.raw);
        }
    }
    Ok(Node {
        number,
        identity: header.clone(),
        header,
    })
}

/// Returns the key of an attribute.
fn key_of<'a>(attribute: &Field<'a>) -> Result<&'a [u8], Fault> {
    let mut key: &[u8] = &[];
    let mut values = 0;
    for field in attribute.fields() {
        let field = field?;
        match (field.number, field.value.bytes()) {
            (1, Some(text)) => key = text,
            (2, Some(_)) => values += 1,
            _ => {}
        }
    }
    match values > 1 {
        true => Err(Fault::Ambiguous),
        false => Ok(key),
    }
}
