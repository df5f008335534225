//! Edits attributes of spans, data points and log records, or of resources.
//!
//! Most requests are edited in encoded form. A set with a duplicate key is decoded, edited and encoded, with the same
//! result. So is a request in which a singular message on the path to a set occurs twice.

mod change;
mod decoded;
mod encoded;
mod plan;
mod state;
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
use super::edit::{EditError, Editor, put_delimited};
use super::room::{Room, RoomExhausted, Unbounded};
use super::view::{Message as MessageView, ResourceEntry, ScopeEntry};
use crate::{Decoded, Signal};

/// Sets of attributes that an edit applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttributeLevel {
    /// Attributes of spans, data points and log records.
    Items,
    /// Attributes of resources.
    Resources,
}

/// An operation on one attribute.
#[derive(Debug, Clone)]
pub struct Action {
    /// Key of the attribute; ignored by operations that match keys with a pattern.
    pub key: String,
    /// The operation.
    pub operation: Operation,
}

/// An operation on an attribute. Clones share the patterns with their caches.
#[derive(Debug, Clone)]
pub enum Operation {
    /// Sets the attribute if it is missing.
    Insert(ValueSource),
    /// Sets the attribute if it exists.
    Update(ValueSource),
    /// Sets the attribute in any case.
    Upsert(ValueSource),
    /// Removes the attribute.
    Delete,
    /// Removes all attributes whose keys match.
    DeleteMatching(Arc<Regex>),
    /// Replaces the value by its SHA-256 in hexadecimal digits. A number is hashed as 8 little-endian bytes,
    /// a boolean as one byte. A list, a map or bytes become the empty text.
    Hash,
    /// Hashes all attributes whose keys match.
    HashMatching(Arc<Regex>),
    /// Sets an attribute for each named group of the pattern, if the value is a text that matches.
    Extract(Arc<Regex>),
    /// Converts the value to another type, if it is convertible.
    Convert(Type),
}

/// Source of a new value.
#[derive(Debug, Clone, PartialEq)]
pub enum ValueSource {
    /// A constant.
    Value(Value),
    /// Another attribute of the same set; if the attribute is missing, nothing changes.
    Attribute(String),
    /// Another attribute of the same set; if the attribute is missing, a constant.
    AttributeOr(String, Value),
}

/// Selects the sets of attributes to edit: those for which all three methods return true. For resource
/// attributes, only [`resource`](AttributeSelector::resource) is called.
pub trait AttributeSelector {
    /// Whether telemetry of this resource is edited.
    fn resource(&mut self, _resource: ResourceEntry<'_>) -> bool {
        true
    }

    /// Whether telemetry of this scope is edited.
    fn scope(&mut self, _scope: ScopeEntry<'_>) -> bool {
        true
    }

    /// Whether this span, metric (with all its data points) or log record is edited.
    fn item(&mut self, _item: MessageView<'_>) -> bool {
        true
    }
}

/// Selects everything.
#[derive(Debug, Clone, Copy)]
pub struct All;

impl AttributeSelector for All {}

/// Actions that are applied to each set of attributes, in order.
///
/// Keys should be unique in a set. If several attributes have the same key, a deletion removes all of them, and a new
/// value replaces the first one.
#[derive(Debug)]
pub struct Actions {
    actions: Vec<Action>,
    plan: Plan,
}

/// A singular message occurs twice in the request.
struct Ambiguous;

impl Actions {
    /// Prepares the actions.
    pub fn new(actions: Vec<Action>) -> Self {
        Actions {
            plan: Plan::new(&actions),
            actions,
        }
    }

    /// Edits a valid request; `None` if nothing changes. A profiles request never changes, because its
    /// attributes may be references into the dictionary.
    ///
    /// # Errors
    /// Fails if the request is invalid.
    pub fn apply(
        &self,
        signal: Signal,
        level: AttributeLevel,
        request: &[u8],
    ) -> Result<Option<Bytes>, Malformed> {
        self.apply_where(signal, level, request, &Unbounded, &mut All)
            .map_err(|error| match error {
                EditError::Malformed(malformed) => malformed,
                EditError::RoomExhausted(_) => Malformed::new(0, "too large"),
            })
    }

    /// Like [`apply`](Self::apply), for selected sets, with memory from `room`.
    ///
    /// # Errors
    /// Fails if the request is invalid, or if `room` is exhausted.
    pub fn apply_where(
        &self,
        signal: Signal,
        level: AttributeLevel,
        request: &[u8],
        room: &dyn Room,
        select: &mut impl AttributeSelector,
    ) -> Result<Option<Bytes>, EditError> {
        match signal {
            Signal::Profiles => Ok(None),
            _ => self.edit(signal, level, request, room, select),
        }
    }

    /// Edits the resources of a valid profiles request; attributes with references into the dictionary stay.
    /// `None` if nothing changes.
    ///
    /// # Errors
    /// Fails if the request is invalid, or if `room` is exhausted.
    pub fn apply_to_resources_of_profiles(
        &self,
        request: &[u8],
        room: &dyn Room,
    ) -> Result<Option<Bytes>, EditError> {
        self.edit(
            Signal::Profiles,
            AttributeLevel::Resources,
            request,
            room,
            &mut All,
        )
    }

    fn edit(
        &self,
        signal: Signal,
        level: AttributeLevel,
        request: &[u8],
        room: &dyn Room,
        select: &mut impl AttributeSelector,
    ) -> Result<Option<Bytes>, EditError> {
        let mut edit = |request: &[u8]| -> Result<Result<Option<Bytes>, RoomExhausted>, Ambiguous> {
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

    /// Edits one decoded set of attributes.
    pub fn apply_to(&self, attributes: &mut Vec<KeyValue>) {
        for action in &self.actions {
            decoded::apply(action, attributes);
        }
    }

    /// Edits a set of attributes that complements another set, as the attributes of a sample complement the attributes
    /// of its profile. Constants are not added, because the other set gets them.
    pub fn apply_to_part(&self, attributes: &mut Vec<KeyValue>) {
        for action in &self.actions {
            let has = |key: &str| attributes.iter().any(|attribute| attribute.key == key);
            let adds_a_constant = match &action.operation {
                Operation::Insert(source) | Operation::Upsert(source) => match source {
                    ValueSource::Value(_) => !has(&action.key),
                    ValueSource::AttributeOr(from, _) => !has(&action.key) && !has(from),
                    ValueSource::Attribute(_) => false,
                },
                _ => false,
            };
            if !adds_a_constant {
                decoded::apply(action, attributes);
            }
        }
    }

    /// Edits a decoded request.
    pub fn apply_decoded(&self, level: AttributeLevel, request: &mut Decoded) {
        decoded::each_set(level, request, |attributes| self.apply_to(attributes));
    }
}

/// Appends an attribute as a field of its set, from its encoded value.
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
