//! Applies actions to one encoded set of attributes.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use prost::Message as _;
use regex::Regex;
use smallvec::SmallVec;

use super::change::{self, Type};
use super::encoded::{DuplicateKey, key_and_value, length_bit, plain_key, put_added, set_value};
use super::state::{Encoded, Found, State, States, is_match};
use super::{Action, Ambiguous, Operation, ValueSource, decoded, encode};
use crate::edit::{Editor, put_delimited};
use crate::reader::Field;
use crate::view;
use crate::view::{Message, View as _};

/// Actions with numbered keys and encoded constants.
#[derive(Debug)]
pub(super) struct Plan {
    /// Original actions, for sets with duplicate keys.
    actions: Vec<Action>,
    keys: Vec<String>,
    /// Bit set of the keys' lengths, for skipping most attributes at once.
    lengths: u64,
    patterns: Vec<Arc<Regex>>,
    steps: Vec<Step>,
}

#[derive(Debug)]
enum Step {
    Set {
        key: usize,
        when: When,
        value: Origin,
    },
    Delete(usize),
    DeleteMatching(Arc<Regex>),
    Hash(usize),
    HashMatching(Arc<Regex>),
    Extract {
        key: usize,
        pattern: Arc<Regex>,
        /// Number of the target key of each named group, in order.
        targets: Vec<usize>,
    },
    Convert {
        key: usize,
        to: Type,
    },
}

/// Condition for setting an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    Missing,
    Present,
    Always,
}

#[derive(Debug)]
enum Origin {
    Constant(Vec<u8>),
    Key(usize),
    KeyOr(usize, Vec<u8>),
}

/// Results of matching a pattern, by key. Most sets of a request have the same keys.
pub(super) type MatchedKeys<'a> = HashMap<&'a [u8], bool, RandomState>;

impl Plan {
    pub(super) fn new(actions: &[Action]) -> Self {
        let mut keys: Vec<String> = Vec::new();
        let mut number = |key: &str| {
            keys.iter()
                .position(|known| known == key)
                .unwrap_or_else(|| {
                    keys.push(key.to_owned());
                    keys.len() - 1
                })
        };
        let mut patterns = Vec::new();
        let mut steps = Vec::new();
        for action in actions {
            let mut set = |when, source: &ValueSource| {
                let key = number(&action.key);
                let value = match source {
                    ValueSource::Value(value) => Origin::Constant(encode(value)),
                    ValueSource::Attribute(key) => Origin::Key(number(key)),
                    ValueSource::AttributeOr(key, value) => {
                        Origin::KeyOr(number(key), encode(value))
                    }
                };
                Step::Set { key, when, value }
            };
            steps.push(match &action.operation {
                Operation::Insert(source) => set(When::Missing, source),
                Operation::Update(source) => set(When::Present, source),
                Operation::Upsert(source) => set(When::Always, source),
                Operation::Delete => Step::Delete(number(&action.key)),
                Operation::Hash => Step::Hash(number(&action.key)),
                Operation::DeleteMatching(pattern) => {
                    patterns.push(pattern.clone());
                    Step::DeleteMatching(pattern.clone())
                }
                Operation::HashMatching(pattern) => {
                    patterns.push(pattern.clone());
                    Step::HashMatching(pattern.clone())
                }
                Operation::Extract(pattern) => Step::Extract {
                    key: number(&action.key),
                    pattern: pattern.clone(),
                    targets: pattern.capture_names().flatten().map(&mut number).collect(),
                },
                Operation::Convert(to) => Step::Convert {
                    key: number(&action.key),
                    to: *to,
                },
            });
        }
        Plan {
            actions: actions.to_vec(),
            lengths: keys
                .iter()
                .fold(0, |bits, key| bits | length_bit(key.len())),
            keys,
            patterns,
            steps,
        }
    }

    /// Records the edits of the attributes, which are the fields `number` of the message `set`.
    pub(super) fn edit<'a>(
        &self,
        set: &Field<'a>,
        number: u32,
        memory: &mut MatchedKeys<'a>,
        editor: &mut Editor<'a>,
    ) -> Result<(), Ambiguous> {
        let mut states = self.states();
        for field in set.fields() {
            let field = field?;
            if field.number == number
                && field.value.bytes().is_some()
                && self.note(&field, memory, &mut states).is_err()
            {
                return self.edit_decoded(set, number, editor);
            }
        }
        let added = self.run(&mut states);
        let mut changed: SmallVec<[(usize, Found<'a>); 4]> = SmallVec::new();
        for (at, state) in states.iter().enumerate() {
            if let Some(found) = state.found
                && (!state.kept || state.value.is_some())
            {
                changed.push((at, found));
            }
        }
        changed.sort_unstable_by_key(|(_, found)| found.attribute.offset);
        for (at, found) in changed {
            match states.get(at) {
                Some(State {
                    key,
                    kept: true,
                    value: Some(value),
                    ..
                }) => set_value(key, &found, value.as_deref(), editor),
                _ => editor.delete(&found.attribute),
            }
        }
        if states.iter().any(|state| state.added.is_some()) {
            editor.append(set, |output| put_added(number, &states, added, output));
        }
        Ok(())
    }

    /// Like [`edit`](Self::edit), through decoded structs.
    #[cold]
    fn edit_decoded<'a>(
        &self,
        set: &Field<'a>,
        number: u32,
        editor: &mut Editor<'a>,
    ) -> Result<(), Ambiguous> {
        if !editor.reserve(set.raw.len().saturating_mul(DECODED_BYTES_PER_BYTE)) {
            return Ok(());
        }
        let mut fields: Vec<Field<'a>> = Vec::new();
        let mut attributes = Vec::new();
        for field in set.fields() {
            let field = field?;
            if let Some(bytes) = field.value.bytes().filter(|_| field.number == number) {
                fields.push(field);
                attributes.push(KeyValue::decode(bytes).map_err(|_| Ambiguous)?);
            }
        }
        let before = attributes.clone();
        for action in &self.actions {
            decoded::apply(action, &mut attributes);
        }
        if attributes == before {
            return Ok(());
        }
        for field in &fields {
            editor.delete(field);
        }
        editor.append(set, |output| {
            for attribute in &attributes {
                put_delimited(number, &attribute.encode_to_vec(), output);
            }
        });
        Ok(())
    }

    /// Returns the attributes that the actions add to an empty set, encoded as fields `number`.
    pub(super) fn for_empty_set(&self, number: u32) -> Vec<u8> {
        let mut states = self.states();
        let added = self.run(&mut states);
        let mut output = Vec::new();
        put_added(number, &states, added, &mut output);
        output
    }

    fn states<'a: 'v, 'v>(&'v self) -> States<'a, 'v> {
        let keys = self.keys.iter();
        keys.map(|key| State {
            key: Cow::Borrowed(key.as_bytes()),
            ..State::default()
        })
        .collect()
    }

    #[inline(always)]
    fn note<'a: 'v, 'v>(
        &self,
        field: &Field<'a>,
        memory: &mut MatchedKeys<'a>,
        states: &mut States<'a, 'v>,
    ) -> Result<(), DuplicateKey> {
        let attribute = field.value.bytes().unwrap_or_default();
        let plain = plain_key(attribute);
        if let Some(key) = plain
            && self.lengths & length_bit(key.len()) == 0
            && self.patterns.is_empty()
        {
            return Ok(());
        }
        let (key, value) = match plain {
            Some(key) => (key, None),
            None => key_and_value(field)?,
        };
        let number = match self.keys.iter().position(|known| known.as_bytes() == key) {
            Some(number) => number,
            None if self.is_wanted(key, memory) => {
                if states.len() >= MAX_STATES {
                    // Decoded structs have a predictable memory bound.
                    return Err(DuplicateKey);
                }
                if states.iter().any(|state| *state.key == *key) {
                    return Err(DuplicateKey);
                }
                states.push(State {
                    key: Cow::Borrowed(key),
                    ..State::default()
                });
                states.len() - 1
            }
            None => return Ok(()),
        };
        let Some(state) = states.get_mut(number) else {
            return Ok(());
        };
        if state.found.is_some() {
            return Err(DuplicateKey);
        }
        state.found = Some(Found {
            attribute: *field,
            value: match plain {
                Some(_) => key_and_value(field)?.1,
                None => value,
            },
            plain: plain.is_some(),
        });
        state.kept = true;
        Ok(())
    }

    fn is_wanted<'a>(&self, key: &'a [u8], memory: &mut MatchedKeys<'a>) -> bool {
        if self.patterns.is_empty() {
            return false;
        }
        let look = || self.patterns.iter().any(|pattern| is_match(pattern, key));
        *memory.entry(key).or_insert_with(look)
    }

    /// Runs the steps. Returns the number of added attributes.
    fn run<'a: 'v, 'v>(&'v self, states: &mut States<'a, 'v>) -> usize {
        let mut added = 0;
        let current = |states: &States<'a, 'v>, key: usize| -> Option<Encoded<'v>> {
            states.get(key).and_then(State::current)
        };
        for step in &self.steps {
            match step {
                Step::Set { key, when, value } => {
                    let value = match value {
                        Origin::Constant(value) => Some(Cow::Borrowed(value.as_slice())),
                        Origin::Key(key) => match current(states, *key) {
                            Some(value) => value,
                            None => continue,
                        },
                        Origin::KeyOr(key, value) => {
                            current(states, *key).unwrap_or(Some(Cow::Borrowed(value.as_slice())))
                        }
                    };
                    if let Some(state) = states.get_mut(*key)
                        && match when {
                            When::Missing => !state.is_present(),
                            When::Present => state.is_present(),
                            When::Always => true,
                        }
                    {
                        state.set(value, &mut added);
                    }
                }
                Step::Delete(key) => {
                    if let Some(state) = states.get_mut(*key) {
                        state.remove();
                    }
                }
                Step::DeleteMatching(pattern) => states
                    .iter_mut()
                    .filter(|state| state.matches(pattern))
                    .for_each(State::remove),
                Step::Hash(key) => {
                    if let Some(state) = states.get_mut(*key) {
                        state.change(|value| Some(change::hashed(value)));
                    }
                }
                Step::HashMatching(pattern) => states
                    .iter_mut()
                    .filter(|state| state.matches(pattern))
                    .for_each(|state| state.change(|value| Some(change::hashed(value)))),
                Step::Convert { key, to } => {
                    if let Some(state) = states.get_mut(*key) {
                        state.change(|value| change::converted(value, *to));
                    }
                }
                Step::Extract {
                    key,
                    pattern,
                    targets,
                } => {
                    let value = current(states, *key).flatten().unwrap_or_default();
                    let view::AnyValue::String(text) = view::AnyValue::view(Message::new(&value))
                    else {
                        continue;
                    };
                    let extracted = change::extracted(pattern, text);
                    for (target, (_, text)) in targets.iter().zip(extracted) {
                        if let Some(state) = states.get_mut(*target) {
                            let value = encode(&Value::StringValue(text));
                            state.set(Some(Cow::Owned(value)), &mut added);
                        }
                    }
                }
            }
        }
        added
    }
}

/// Maximum number of attributes of a set that match a pattern, since each new key is compared with all earlier keys.
const MAX_STATES: usize = 1000;

/// Maximum memory per encoded byte of a decoded set. An attribute of two bytes needs a field, a struct and its copy, in
/// lists that may have doubled.
const DECODED_BYTES_PER_BYTE: usize = 3 * (size_of::<Field<'_>>() + 2 * size_of::<KeyValue>()) / 2;
