//! Fields of log records, named as the Collector does: `attributes.key`, `body.outer.inner`.

use crate::processors::dedup::keys::{fields, messages};
use tributary_otlp::edit::Editor;
use tributary_otlp::reader::{Field, Fields};

/// Field numbers of `LogRecord`.
pub(super) const BODY: u32 = 5;
pub(super) const ATTRIBUTES: u32 = 6;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Path {
    /// The field of the record: its body or its attributes.
    root: u32,
    keys: Vec<String>,
}

/// Reason why a text does not name a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoPath {
    #[error("must start with `body.` or `attributes.`")]
    Root,
    #[error("the whole body is not supported: name a key of the body, as in `body.KEY`")]
    WholeBody,
    #[error("a key is empty; write a dot within a key as `\\.`")]
    EmptyKey,
}

impl Path {
    /// Parses a name, in which `\.` is a dot within a key.
    pub(super) fn parse(name: &str) -> Result<Self, NoPath> {
        let mut keys = vec![String::new()];
        let mut rest = name.chars().peekable();
        while let Some(char) = rest.next() {
            match char {
                '\\' if rest.next_if_eq(&'.').is_some() => keys.last_mut().map(|key| key.push('.')),
                '.' => {
                    keys.push(String::new());
                    Some(())
                }
                char => keys.last_mut().map(|key| key.push(char)),
            };
        }
        let root = match keys.remove(0).as_str() {
            "body" if keys.is_empty() => return Err(NoPath::WholeBody),
            "body" => BODY,
            "attributes" => ATTRIBUTES,
            _ => return Err(NoPath::Root),
        };
        match keys.iter().any(String::is_empty) {
            true => Err(NoPath::EmptyKey),
            false => Ok(Path { root, keys }),
        }
    }

    /// Returns the first encoded value at the path in a record.
    pub(super) fn find<'a>(&self, record: &'a [u8]) -> Option<&'a [u8]> {
        let (first, others) = self.keys.split_first()?;
        let mut value = match self.root {
            BODY => in_map(messages(record, BODY).last()?, first)?,
            root => in_pairs(messages(record, root), first)?,
        };
        for key in others {
            value = in_map(value, key)?;
        }
        Some(value)
    }
}

/// Returns a record without the fields at these paths; `None` if it has none of them.
pub(super) fn without(record: &[u8], paths: &[Path]) -> Option<Vec<u8>> {
    let mut editor = Editor::new(record);
    for field in Fields::new(record).map_while(Result::ok) {
        let here = paths.iter().filter(|path| path.root == field.number);
        let ways: Vec<&[String]> = here.map(|path| path.keys.as_slice()).collect();
        if ways.is_empty() || field.value.bytes().is_none() {
            continue;
        }
        match field.number {
            BODY => editor.message(&field, |editor| prune_map(&field, &ways, editor)),
            _ => prune_pair(&field, &ways, &mut editor),
        }
    }
    editor.finish()
}

/// Returns the value of a key in a map.
fn in_map<'a>(value: &'a [u8], key: &str) -> Option<&'a [u8]> {
    in_pairs(
        messages(value, MAP).flat_map(|map| messages(map, PAIRS)),
        key,
    )
}

fn in_pairs<'a>(mut pairs: impl Iterator<Item = &'a [u8]>, key: &str) -> Option<&'a [u8]> {
    let pair = pairs.find(|pair| key_of(pair) == key.as_bytes())?;
    messages(pair, VALUE).last()
}

/// Returns the key of a `KeyValue`.
pub(super) fn key_of(pair: &[u8]) -> &[u8] {
    messages(pair, 1).last().unwrap_or_default()
}

/// Removes the entries at these paths from a map, which is the content of the field.
fn prune_map<'a>(value: &Field<'a>, ways: &[&[String]], editor: &mut Editor<'a>) {
    for map in value.fields().map_while(Result::ok) {
        if map.number != MAP || map.value.bytes().is_none() {
            continue;
        }
        editor.message(&map, |editor| {
            for pair in map.fields().map_while(Result::ok) {
                if pair.number == PAIRS && pair.value.bytes().is_some() {
                    prune_pair(&pair, ways, editor);
                }
            }
        });
    }
}

/// Removes a pair, or a part of its value.
fn prune_pair<'a>(pair: &Field<'a>, ways: &[&[String]], editor: &mut Editor<'a>) {
    let key = key_of(pair.value.bytes().unwrap_or_default());
    let mut inside = Vec::new();
    for way in ways {
        match way.split_first() {
            // All attributes.
            None => return editor.delete(pair),
            Some((first, rest)) if first.as_bytes() == key => match rest {
                [] => return editor.delete(pair),
                rest => inside.push(rest),
            },
            Some(_) => {}
        }
    }
    if inside.is_empty() {
        return;
    }
    editor.message(pair, |editor| {
        for value in pair.fields().map_while(Result::ok) {
            if value.number == VALUE && value.value.bytes().is_some() {
                editor.message(&value, |editor| prune_map(&value, &inside, editor));
            }
        }
    });
}

/// Field numbers of the map in an `AnyValue`, of the pairs in a `KeyValueList`, and of the value in a `KeyValue`.
const MAP: u32 = 6;
const PAIRS: u32 = 1;
const VALUE: u32 = 2;

/// Whether a field of a record is an attribute with one of these keys.
pub(super) fn is_attribute(field: &Field<'_>, keys: &[&str]) -> bool {
    field.number == ATTRIBUTES
        && field.value.bytes().is_some_and(|pair| {
            let key = key_of(pair);
            keys.iter().any(|one| one.as_bytes() == key)
        })
}

/// Returns the encoded fields of a message, except the fields with the number `number`.
pub(super) fn all_but(message: &[u8], number: u32) -> Vec<u8> {
    let mut kept = Vec::new();
    for field in fields(message).filter(|field| field.number != number) {
        kept.extend_from_slice(field.raw);
    }
    kept
}
