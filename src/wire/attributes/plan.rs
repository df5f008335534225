//! Actions on one set of attributes, as changes to its bytes.

use smallvec::SmallVec;

use super::{Action, Ambiguous, Operation, Source, encode, put_attribute};
use crate::wire::edit::{Editor, put_delimited};
use crate::wire::reader::{Field, varint};

/// The actions with their keys numbered and their constants encoded.
#[derive(Debug)]
pub(super) struct Plan {
    keys: Vec<String>,
    /// A bit for each length that a key has, so that most attributes are passed over at once.
    lengths: u64,
    steps: Vec<Step>,
}

#[derive(Debug)]
struct Step {
    key: usize,
    when: When,
    value: Option<Origin>,
}

/// When a step sets its attribute; a step without a value removes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    Missing,
    Present,
    Always,
}

#[derive(Debug)]
enum Origin {
    /// An encoded `AnyValue`.
    Constant(Vec<u8>),
    Key(usize),
}

/// An attribute of the set that the actions care about.
#[derive(Clone, Copy)]
struct Found<'a> {
    attribute: Field<'a>,
    /// Its value field; an attribute may have none.
    value: Option<Field<'a>>,
    /// Whether there is nothing in it but a key and a value, in this order.
    plain: bool,
}

/// One key while the actions are carried out.
#[derive(Clone, Copy, Default)]
struct State<'a, 'v> {
    found: Option<Found<'a>>,
    /// Whether the attribute found is still there.
    kept: bool,
    /// How many attributes were added before this one was; `None` when it was not added.
    added: Option<usize>,
    /// A new value: an encoded `AnyValue`, or an attribute without value.
    value: Option<Option<&'v [u8]>>,
}

impl State<'_, '_> {
    fn is_present(&self) -> bool {
        self.kept || self.added.is_some()
    }
}

type States<'a, 'v> = SmallVec<[State<'a, 'v>; 4]>;

impl Plan {
    pub(super) fn new(actions: &[Action]) -> Self {
        let mut keys: Vec<String> = Vec::new();
        let mut number = |key: &String| {
            keys.iter()
                .position(|known| known == key)
                .unwrap_or_else(|| {
                    keys.push(key.clone());
                    keys.len() - 1
                })
        };
        let steps = actions
            .iter()
            .map(|action| {
                let key = number(&action.key);
                let (when, source) = match &action.operation {
                    Operation::Insert(source) => (When::Missing, Some(source)),
                    Operation::Update(source) => (When::Present, Some(source)),
                    Operation::Upsert(source) => (When::Always, Some(source)),
                    Operation::Delete => (When::Present, None),
                };
                let value = source.map(|source| match source {
                    Source::Value(value) => Origin::Constant(encode(value)),
                    Source::Attribute(key) => Origin::Key(number(key)),
                });
                Step { key, when, value }
            })
            .collect();
        Plan {
            lengths: keys
                .iter()
                .fold(0, |bits, key| bits | length_bit(key.len())),
            keys,
            steps,
        }
    }

    /// Notes what has to change in the attributes `number` of the message in `set`.
    pub(super) fn edit<'a>(
        &self,
        set: &Field<'a>,
        number: u32,
        editor: &mut Editor<'a>,
    ) -> Result<(), Ambiguous> {
        let mut states: States<'_, '_> = SmallVec::from_elem(State::default(), self.keys.len());
        for field in set.fields() {
            let field = field?;
            if field.number == number && field.value.bytes().is_some() {
                self.note(&field, &mut states)?;
            }
        }
        let added = self.run(&mut states);
        let mut changed: SmallVec<[(usize, Found<'a>); 4]> = SmallVec::new();
        for (key, state) in states.iter().enumerate() {
            if let Some(found) = state.found
                && (!state.kept || state.value.is_some())
            {
                changed.push((key, found));
            }
        }
        changed.sort_unstable_by_key(|(_, found)| found.attribute.offset);
        for (key, found) in changed {
            match states.get(key) {
                Some(State {
                    kept: true,
                    value: Some(value),
                    ..
                }) => {
                    self.set_value(key, &found, *value, editor);
                }
                _ => editor.delete(&found.attribute),
            }
        }
        if states.iter().any(|state| state.added.is_some()) {
            editor.append(set, |output| self.put_added(number, &states, added, output));
        }
        Ok(())
    }

    /// The attributes that the actions make of an empty set, encoded as fields with that number.
    pub(super) fn of_nothing(&self, number: u32) -> Vec<u8> {
        let mut states: States<'_, '_> = SmallVec::from_elem(State::default(), self.keys.len());
        let added = self.run(&mut states);
        let mut output = Vec::new();
        self.put_added(number, &states, added, &mut output);
        output
    }

    #[inline(always)]
    fn note<'a>(&self, field: &Field<'a>, states: &mut States<'a, '_>) -> Result<(), Ambiguous> {
        let attribute = field.value.bytes().unwrap_or_default();
        let plain = plain_key(attribute);
        if let Some(key) = plain
            && self.lengths & length_bit(key.len()) == 0
        {
            return Ok(());
        }
        let (key, value) = match plain {
            Some(key) => (key, None),
            None => key_and_value(field)?,
        };
        let Some(number) = self.keys.iter().position(|known| known.as_bytes() == key) else {
            return Ok(());
        };
        let Some(state) = states.get_mut(number) else {
            return Ok(());
        };
        if state.found.is_some() {
            return Err(Ambiguous);
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

    /// Carries the steps out; returns how many attributes were added in all.
    fn run<'a: 'v, 'v>(&'v self, states: &mut States<'a, 'v>) -> usize {
        let mut added = 0;
        for step in &self.steps {
            let value = match &step.value {
                None => None,
                Some(Origin::Constant(value)) => Some(Some(value.as_slice())),
                Some(Origin::Key(key)) => match states.get(*key) {
                    Some(state) if state.is_present() => Some(state.value.unwrap_or_else(|| {
                        let value = state.found.and_then(|found| found.value);
                        value.and_then(|field| field.value.bytes())
                    })),
                    _ => continue,
                },
            };
            let Some(state) = states.get_mut(step.key) else {
                continue;
            };
            let present = state.is_present();
            match (value, step.when) {
                (None, _) => {
                    *state = State {
                        found: state.found,
                        ..State::default()
                    }
                }
                (_, When::Missing) if present => {}
                (_, When::Present) if !present => {}
                (value, _) => {
                    state.value = value;
                    if !present {
                        state.added = Some(added);
                        added += 1;
                    }
                }
            }
        }
        added
    }

    fn set_value<'a>(
        &self,
        key: usize,
        found: &Found<'a>,
        value: Option<&[u8]>,
        editor: &mut Editor<'a>,
    ) {
        let attribute = &found.attribute;
        if found.plain {
            let key = self.keys.get(key).map_or("", String::as_str);
            return editor.replace(attribute, |output| {
                put_attribute(attribute.number, key, value, output);
            });
        }
        editor.message(attribute, |editor| {
            let put = |output: &mut Vec<u8>| {
                if let Some(value) = value {
                    put_delimited(2, value, output);
                }
            };
            match &found.value {
                Some(field) => editor.replace(field, put),
                None => editor.append(attribute, put),
            }
        });
    }

    fn put_added(&self, number: u32, states: &States<'_, '_>, added: usize, output: &mut Vec<u8>) {
        for turn in 0..added {
            for (state, key) in states.iter().zip(&self.keys) {
                if state.added == Some(turn) {
                    put_attribute(number, key, state.value.flatten(), output);
                }
            }
        }
    }
}

fn length_bit(length: usize) -> u64 {
    1 << (length % 64)
}

/// The key of an attribute that has a key, a value and nothing else, in this order.
#[inline(always)]
fn plain_key(attribute: &[u8]) -> Option<&[u8]> {
    let [0x0a, key_len @ 0..0x80, rest @ ..] = attribute else {
        return None;
    };
    let (key, rest) = rest.split_at_checked(usize::from(*key_len))?;
    let [0x12, rest @ ..] = rest else {
        return None;
    };
    let (value_len, value) = varint(rest).ok()?;
    (value_len == value.len() as u64).then_some(key)
}

/// The key and the value field of any attribute.
#[cold]
fn key_and_value<'a>(attribute: &Field<'a>) -> Result<(&'a [u8], Option<Field<'a>>), Ambiguous> {
    let mut key = None;
    let mut value = None;
    for field in attribute.fields() {
        let field = field?;
        let twice = match field.number {
            1 => key.replace(field.value.bytes().ok_or(Ambiguous)?).is_some(),
            2 => value.replace(field).is_some(),
            _ => false,
        };
        if twice {
            return Err(Ambiguous);
        }
    }
    Ok((key.unwrap_or_default(), value))
}
