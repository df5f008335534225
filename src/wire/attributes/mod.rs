//! Setting and deleting attributes: of spans, data points and log records, or of resources.
//!
//! The usual request is edited on the wire. One in which an attribute or a message on the way to it occurs twice is
//! decoded, edited and encoded, with the same result.

mod decoded;
mod plan;
mod walk;

use bytes::Bytes;
use opentelemetry_proto::tonic::common::v1::AnyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use prost::Message;

use self::plan::Plan;
use super::Malformed;
use super::edit::{Editor, put_delimited};
use crate::batch::{Decoded, Signal};

/// Which attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Those of each span, data point or log record.
    Items,
    /// Those of each resource.
    Resources,
}

/// What happens to one attribute.
#[derive(Debug, Clone, PartialEq)]
pub struct Action {
    /// The attribute.
    pub key: String,
    /// What to do.
    pub operation: Operation,
}

/// What to do with an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum Operation {
    /// Sets it where it is missing.
    Insert(Source),
    /// Sets it where it is there.
    Update(Source),
    /// Sets it.
    Upsert(Source),
    /// Removes it.
    Delete,
}

/// Where a new value comes from.
#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    /// A constant.
    Value(Value),
    /// Another attribute of the same level; where that is missing, nothing happens.
    Attribute(String),
}

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
        let mut editor = Editor::new(request);
        if walk::walk(&self.plan, signal, level, request, &mut editor).is_ok() {
            return Ok(editor.finish().map(Bytes::from));
        }
        let mut decoded = Decoded::decode(signal, request)
            .map_err(|_| Malformed::new(0, "not a valid request"))?;
        self.apply_decoded(level, &mut decoded);
        Ok(Some(decoded.encode()))
    }

    /// Edits a decoded request.
    pub fn apply_decoded(&self, level: Level, request: &mut Decoded) {
        decoded::each_set(level, request, |attributes| {
            for action in &self.actions {
                decoded::apply(action, attributes);
            }
        });
    }
}

/// The encoding of an attribute as a field of its set, from the encoding of its value.
fn put_attribute(number: u32, key: &str, value: Option<&[u8]>, output: &mut Vec<u8>) {
    let mut attribute = Vec::with_capacity(key.len() + value.map_or(0, <[u8]>::len) + 12);
    if !key.is_empty() {
        put_delimited(1, key.as_bytes(), &mut attribute);
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
