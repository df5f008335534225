//! Changing attributes: of spans, data points and log records, or of resources.
//!
//! The usual request is edited on the wire. A set in which a key occurs twice is decoded, edited and encoded; so is a
//! request in which a message on the way to a set occurs twice where it should occur once. The result is the same.

mod change;
mod decoded;
mod plan;
mod walk;

use std::sync::Arc;

use bytes::Bytes;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use prost::Message;
use regex::Regex;

pub use self::change::Type;
use self::plan::Plan;
use self::walk::Walk;
use super::Malformed;
use super::edit::{Editor, Unedited, put_delimited};
use super::room::{Full, Room, Unbounded};
use super::view::{Message as MessageView, ResourceEntry, ScopeEntry};
use crate::{Decoded, Signal};

/// The sets of attributes that an edit applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Those of each span, data point or log record.
    Items,
    /// Those of each resource.
    Resources,
}

/// An operation and the attribute that it applies to.
#[derive(Debug, Clone)]
pub struct Action {
    /// Key of the attribute; ignored by operations that match keys with a pattern.
    pub key: String,
    /// The operation to carry out.
    pub operation: Operation,
}

/// An operation on an attribute. Clones share the patterns, and so the caches that a pattern keeps between searches.
#[derive(Debug, Clone)]
pub enum Operation {
    /// Sets it where it is missing.
    Insert(Source),
    /// Sets it where it is there.
    Update(Source),
    /// Sets it.
    Upsert(Source),
    /// Removes it.
    Delete,
    /// Removes all attributes whose key matches.
    DeleteMatching(Arc<Regex>),
    /// Makes the SHA-256 of its value of it, in hexadecimal digits. A number counts as its 8 bytes in little-endian
    /// order, a boolean as a byte; what is neither text, number nor boolean becomes the empty text.
    Hash,
    /// Hashes all attributes whose key matches.
    HashMatching(Arc<Regex>),
    /// Sets an attribute for each named group of the pattern if the value is a text that matches it.
    Extract(Arc<Regex>),
    /// Makes a value of another type of it, where there is one.
    Convert(Type),
}

/// The source of a new value.
#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    /// A constant.
    Value(Value),
    /// Another attribute of the same level; where that is missing, nothing happens.
    Attribute(String),
    /// Another attribute of the same level, or a constant where that is missing.
    AttributeOr(String, Value),
}

/// Selects the sets of attributes to edit: a set is edited if all three methods return true. For the attributes of
/// resources only [`resource`](Select::resource) is called.
pub trait Select {
    /// Whether something of what this resource sent is edited.
    fn resource(&mut self, _resource: ResourceEntry<'_>) -> bool {
        true
    }

    /// Whether something of what this scope made is edited.
    fn scope(&mut self, _scope: ScopeEntry<'_>) -> bool {
        true
    }

    /// Whether this span, metric (with all its data points) or log record is edited.
    fn item(&mut self, _item: MessageView<'_>) -> bool {
        true
    }
}

/// All of them.
#[derive(Debug, Clone, Copy)]
pub struct All;

impl Select for All {}

/// A list of actions, carried out one after the other on each set of attributes.
///
/// Keys should be unique in a set. Where one is not, all attributes of that key are treated as one: a deletion deletes
/// them all, and a new value takes the place of the first one.
#[derive(Debug)]
pub struct Actions {
    actions: Vec<Action>,
    plan: Plan,
}

/// The request has something twice that should be there once.
struct Ambiguous;

impl Actions {
    /// Prepares the actions.
    pub fn new(actions: Vec<Action>) -> Self {
        Actions {
            plan: Plan::new(&actions),
            actions,
        }
    }

    /// Edits a valid request; `None` when nothing changes. A profiles request is never changed: its attributes may be
    /// references into the dictionary.
    ///
    /// # Errors
    /// When the request is not valid.
    pub fn apply(
        &self,
        signal: Signal,
        level: Level,
        request: &[u8],
    ) -> Result<Option<Bytes>, Malformed> {
        self.apply_where(signal, level, request, &Unbounded, &mut All)
            .map_err(|error| match error {
                Unedited::Malformed(malformed) => malformed,
                Unedited::Full(_) => Malformed::new(0, "too large"),
            })
    }

    /// [`apply`](Self::apply), to the sets that are selected, with the memory that there is in `room`.
    ///
    /// # Errors
    /// When the request is not valid, or there is no room for what it becomes.
    pub fn apply_where(
        &self,
        signal: Signal,
        level: Level,
        request: &[u8],
        room: &dyn Room,
        select: &mut impl Select,
    ) -> Result<Option<Bytes>, Unedited> {
        match signal {
            Signal::Profiles => Ok(None),
            _ => self.edit(signal, level, request, room, select),
        }
    }

    /// Edits the resources of a valid profiles request, as far as their attributes are no references into the dictionary;
    /// `None` when nothing changes.
    ///
    /// # Errors
    /// When the request is not valid, or there is no room for what it becomes.
    pub fn apply_to_resources_of_profiles(
        &self,
        request: &[u8],
        room: &dyn Room,
    ) -> Result<Option<Bytes>, Unedited> {
        self.edit(Signal::Profiles, Level::Resources, request, room, &mut All)
    }

    fn edit(
        &self,
        signal: Signal,
        level: Level,
        request: &[u8],
        room: &dyn Room,
        select: &mut impl Select,
    ) -> Result<Option<Bytes>, Unedited> {
        let mut edit = |request: &[u8]| -> Result<Result<Option<Bytes>, Full>, Ambiguous> {
            let mut editor = Editor::within(request, room);
            Walk::new(&self.plan, signal, level, select).request(request, &mut editor)?;
            Ok(editor.finish_within().map(|edited| edited.map(Bytes::from)))
        };
        if let Ok(edited) = edit(request) {
            return Ok(edited?);
        }
        room.take(super::decoded_bytes(signal, request))?;
        let merged = super::merge_repeated(signal, request)?;
        let edited = edit(&merged).map_err(|Ambiguous| Malformed::new(0, "not a valid request"))?;
        Ok(edited?)
    }

    /// Edits one set of attributes.
    pub fn apply_to(&self, attributes: &mut Vec<KeyValue>) {
        for action in &self.actions {
            decoded::apply(action, attributes);
        }
    }

    /// Edits one set of attributes of many that belong to one thing, which has a set of its own: a constant is not added
    /// here, because it is added there.
    pub fn apply_to_part(&self, attributes: &mut Vec<KeyValue>) {
        for action in &self.actions {
            let has = |key: &str| attributes.iter().any(|attribute| attribute.key == key);
            let adds_a_constant = match &action.operation {
                Operation::Insert(source) | Operation::Upsert(source) => match source {
                    Source::Value(_) => !has(&action.key),
                    Source::AttributeOr(from, _) => !has(&action.key) && !has(from),
                    Source::Attribute(_) => false,
                },
                _ => false,
            };
            if !adds_a_constant {
                decoded::apply(action, attributes);
            }
        }
    }

    /// Edits a decoded request.
    pub fn apply_decoded(&self, level: Level, request: &mut Decoded) {
        decoded::each_set(level, request, |attributes| self.apply_to(attributes));
    }
}

/// The encoding of an attribute as a field of its set, from the encoding of its value.
fn put_attribute(number: u32, key: &[u8], value: Option<&[u8]>, output: &mut Vec<u8>) {
    let mut attribute = Vec::with_capacity(key.len() + value.map_or(0, <[u8]>::len) + 12);
    if !key.is_empty() {
        put_delimited(1, key, &mut attribute);
    }
    if let Some(value) = value {
        put_delimited(2, value, &mut attribute);
    }
    put_delimited(number, &attribute, output);
}

fn encode(value: &Value) -> Vec<u8> {
    AnyValue {
        value: Some(value.clone()),
    }
    .encode_to_vec()
}
