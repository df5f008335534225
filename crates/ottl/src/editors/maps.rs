//! Editors of maps.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use super::{Editing, Editor, Effect, TARGET};
use crate::functions::ParameterKind::{
    Any, List, LiteralBool, LiteralInt, LiteralText, LiteralTexts, Pattern, Text,
};
use crate::functions::{Literals, Parameter};
use crate::value::{Undecided, Value, put_value};
use crate::write::{MapEntry, entries, write_entries};
use tributary_otlp::view::{AnyValue, Message, View as _};

const PATTERN: Parameter = Parameter::new("pattern", Pattern);

pub(super) const ALL: &[Editor] = &[
    Editor::new(
        "delete_key",
        &[TARGET, Parameter::new("key", Text)],
        |editing| {
            let key = editing.arguments.text(1)?.to_owned();
            let mut is_found = false;
            retain(editing, |entry| {
                let is_first = !is_found && entry == key;
                is_found |= is_first;
                !is_first
            })
        },
    ),
    Editor::new("delete_matching_keys", &[TARGET, PATTERN], |editing| {
        let pattern = editing.arguments.pattern(1)?;
        retain(editing, |key| !pattern.is_match(key))
    }),
    Editor::new(
        "keep_keys",
        &[TARGET, Parameter::new("keys", List)],
        |editing| {
            let keys = editing.arguments.list(1)?;
            let keys = keys.into_iter().map(|key| match key {
                Value::Text(key) => Ok(key),
                _ => Err(Undecided::NoText),
            });
            let keys: HashSet<Cow<'_, str>> = keys.collect::<Result<_, _>>()?;
            retain(editing, |key| keys.contains(key))
        },
    ),
    Editor::new("keep_matching_keys", &[TARGET, PATTERN], |editing| {
        let pattern = editing.arguments.pattern(1)?;
        retain(editing, |key| pattern.is_match(key))
    }),
    Editor::new(
        "limit",
        &[
            TARGET,
            Parameter::new("limit", LiteralInt),
            Parameter::new("priority_keys", LiteralTexts),
        ],
        limit,
    )
    .checked(|literals| {
        let limit = positive(literals, 1, "limit")?;
        match literals.list_len(2) {
            Some(keys) if keys > limit => {
                Err("there are more priority keys than the limit".to_owned())
            }
            _ => Ok(()),
        }
    }),
    Editor::new(
        "truncate_all",
        &[
            TARGET,
            Parameter::new("limit", LiteralInt),
            Parameter::optional("utf8_safe", LiteralBool),
            Parameter::optional("truncation_marker", LiteralText),
        ],
        truncate_all,
    )
    .checked(|literals| {
        let limit = positive(literals, 1, "limit")?;
        match literals.text(3) {
            Some(marker) if marker.len() > limit => {
                Err("the marker is longer than the limit".to_owned())
            }
            _ => Ok(()),
        }
    }),
    Editor::new("stringify_all", &[TARGET], |editing| {
        edit(editing, |mut entries| {
            let mut is_changed = false;
            for entry in &mut entries {
                if entry.text().is_none() {
                    let value = AnyValue::view(Message::new(entry.value()));
                    let text = value.to_text().into_owned();
                    *entry = text_entry(entry.key.clone(), &text);
                    is_changed = true;
                }
            }
            Ok(is_changed.then_some(entries))
        })
    }),
    Editor::new(
        "merge_maps",
        &[
            TARGET,
            Parameter::new("source", Any),
            Parameter::new("strategy", LiteralText),
        ],
        merge_maps,
    )
    .checked(|literals| match literals.text(2) {
        Some("insert" | "update" | "upsert") | None => Ok(()),
        Some(other) => Err(format!(
            "the strategy `{other}` is not insert, update or upsert"
        )),
    }),
    Editor::new(
        "flatten",
        &[
            TARGET,
            Parameter::optional("prefix", LiteralText),
            Parameter::optional("depth", LiteralInt),
            Parameter::optional("resolve_conflicts", LiteralBool),
        ],
        flatten,
    )
    .checked(|literals| match literals.int(2) {
        Some(depth) if depth < 1 => Err("the depth must be at least 1".to_owned()),
        _ => Ok(()),
    }),
];

fn positive(literals: &Literals<'_>, at: usize, name: &str) -> Result<usize, String> {
    let value = literals.int(at).unwrap_or_default();
    usize::try_from(value).map_err(|_| format!("the {name} must not be negative"))
}

/// Edits the entries of the target; the edit returns `None` if nothing changes.
pub(super) fn edit<'v>(
    editing: &mut Editing<'_, 'v>,
    edit: impl FnOnce(Vec<MapEntry<'v>>) -> Result<Option<Vec<MapEntry<'v>>>, Undecided>,
) -> Result<Effect, Undecided> {
    let Value::Encoded(AnyValue::Map(map)) = editing.current()? else {
        return Err(Undecided::NoMap);
    };
    match edit(entries(map))? {
        Some(entries) => write_entries(editing.path()?, editing.here, &entries).map(Effect::from),
        None => Ok(Effect::default()),
    }
}

/// Removes the entries whose keys `stays` returns false for.
fn retain(
    editing: &mut Editing<'_, '_>,
    mut stays: impl FnMut(&str) -> bool,
) -> Result<Effect, Undecided> {
    edit(editing, |mut entries| {
        let before = entries.len();
        entries.retain(|entry| stays(&entry.key));
        Ok((entries.len() < before).then_some(entries))
    })
}

/// Creates an entry of a text.
pub(super) fn text_entry<'v>(key: Cow<'v, str>, text: &str) -> MapEntry<'v> {
    let mut value = Vec::with_capacity(text.len() + 6);
    tributary_otlp::edit::put_delimited(1, text.as_bytes(), &mut value);
    MapEntry::new(key, &value)
}

fn limit(editing: &mut Editing<'_, '_>) -> Result<Effect, Undecided> {
    let limit = usize::try_from(editing.arguments.int(1)?).unwrap_or_default();
    let priority = editing.arguments.list(2)?;
    let priority: HashSet<&str> = priority
        .iter()
        .map(Value::plain_text)
        .collect::<Result<_, _>>()?;
    edit(editing, |mut entries| {
        if entries.len() <= limit {
            return Ok(None);
        }
        let present: HashSet<&str> = entries
            .iter()
            .map(|entry| &*entry.key)
            .filter(|key| priority.contains(key))
            .collect();
        let mut count = present.len();
        entries.retain(|entry| {
            let is_priority = priority.contains(&*entry.key);
            let has_room = !is_priority && count < limit;
            count += usize::from(has_room);
            is_priority || has_room
        });
        Ok(Some(entries))
    })
}

fn truncate_all(editing: &mut Editing<'_, '_>) -> Result<Effect, Undecided> {
    let limit = usize::try_from(editing.arguments.int(1)?).unwrap_or_default();
    let marker = editing.arguments.text_or(3, "")?.to_owned();
    edit(editing, |mut entries| {
        let mut is_changed = false;
        for entry in &mut entries {
            let Some(text) = entry.text().filter(|text| text.len() > limit) else {
                continue;
            };
            // Texts of OTLP are UTF-8, so a character is never cut.
            let mut end = limit.saturating_sub(marker.len());
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            let cut = format!("{}{marker}", text.get(..end).unwrap_or_default());
            *entry = text_entry(entry.key.clone(), &cut);
            is_changed = true;
        }
        Ok(is_changed.then_some(entries))
    })
}

fn merge_maps(editing: &mut Editing<'_, '_>) -> Result<Effect, Undecided> {
    let source = editing.arguments.map(1)?;
    let strategy = editing.arguments.text(2)?.to_owned();
    edit(editing, |mut entries| {
        let mut positions: HashMap<String, usize> = HashMap::new();
        for (at, entry) in entries.iter().enumerate() {
            positions.entry(entry.key.to_string()).or_insert(at);
        }
        let mut is_changed = false;
        for (key, value) in &source {
            let known = positions.get(&**key).copied();
            let is_wanted = match strategy.as_str() {
                "insert" => known.is_none(),
                "update" => known.is_some(),
                _ => true,
            };
            if !is_wanted {
                continue;
            }
            let mut encoded = Vec::new();
            put_value(value, &mut encoded)?;
            let fresh = MapEntry::new(Cow::Owned(key.to_string()), &encoded);
            is_changed = true;
            match known.and_then(|at| entries.get_mut(at)) {
                Some(entry) => *entry = fresh,
                None => {
                    positions.insert(key.to_string(), entries.len());
                    entries.push(fresh);
                }
            }
        }
        Ok(is_changed.then_some(entries))
    })
}

/// The state of `flatten`.
struct Flattening {
    depth: i64,
    resolves: bool,
    /// Flattened values, with the position of each key.
    flat: Vec<(String, Vec<u8>)>,
    positions: HashMap<String, usize>,
    conflicts: HashMap<String, usize>,
}

fn flatten(editing: &mut Editing<'_, '_>) -> Result<Effect, Undecided> {
    let prefix = editing.arguments.text_or(1, "")?.to_owned();
    let depth = match editing.arguments.get(2) {
        Some(_) => editing.arguments.int(2)?,
        None => i64::MAX,
    };
    let mut state = Flattening {
        depth,
        resolves: editing.arguments.bool_or(3, false),
        flat: Vec::new(),
        positions: HashMap::new(),
        conflicts: HashMap::new(),
    };
    edit(editing, |entries| {
        let has_structure = |entry: &MapEntry<'_>| {
            let value = AnyValue::view(Message::new(entry.value()));
            matches!(value, AnyValue::Map(_) | AnyValue::Array(_))
        };
        if prefix.is_empty() && !entries.iter().any(has_structure) {
            return Ok(None);
        }
        let prefix = match prefix.is_empty() {
            true => prefix,
            false => prefix + ".",
        };
        for entry in &entries {
            let value = AnyValue::view(Message::new(entry.value()));
            state.value(format!("{prefix}{}", entry.key), value, 0)?;
        }
        let flat = state.flat.into_iter();
        let flat = flat.map(|(key, value)| MapEntry::new(Cow::Owned(key), &value));
        Ok(Some(flat.collect()))
    })
}

impl Flattening {
    fn value(&mut self, key: String, value: AnyValue<'_>, depth: i64) -> Result<(), Undecided> {
        match value {
            AnyValue::Map(entries) if depth < self.depth => {
                for entry in entries {
                    let value = entry.value().unwrap_or(AnyValue::Empty);
                    self.value(format!("{key}.{}", entry.key()), value, depth + 1)?;
                }
                Ok(())
            }
            AnyValue::Array(values) if depth < self.depth => {
                for (at, value) in values.enumerate() {
                    self.element(&key, at, value, depth)?;
                }
                Ok(())
            }
            value => self.put(key, value),
        }
    }

    fn element(
        &mut self,
        key: &str,
        at: usize,
        value: AnyValue<'_>,
        depth: i64,
    ) -> Result<(), Undecided> {
        let inner = depth + 1;
        match value {
            AnyValue::Map(entries) if inner < self.depth => {
                for entry in entries {
                    let value = entry.value().unwrap_or(AnyValue::Empty);
                    self.value(format!("{key}.{at}.{}", entry.key()), value, depth + 2)?;
                }
                Ok(())
            }
            // As in the Collector, a list in a list has no separator before its indexes.
            AnyValue::Array(values) if inner < self.depth => {
                for (inner_at, value) in values.enumerate() {
                    self.value(format!("{key}.{at}{inner_at}"), value, depth + 3)?;
                }
                Ok(())
            }
            value if self.resolves => self.put(key.to_owned(), value),
            value => self.put(format!("{key}.{at}"), value),
        }
    }

    fn put(&mut self, key: String, value: AnyValue<'_>) -> Result<(), Undecided> {
        let mut encoded = Vec::new();
        put_value(&Value::of(value), &mut encoded)?;
        let key = match self.positions.contains_key(&key) && self.resolves {
            true => {
                let number = self.conflicts.entry(key.clone()).or_default();
                let fresh = format!("{key}.{number}");
                *number += 1;
                fresh
            }
            false => key,
        };
        // The numbered key may exist, too.
        let known = self
            .positions
            .get(&key)
            .and_then(|at| self.flat.get_mut(*at));
        if let Some((_, value)) = known {
            *value = encoded;
            return Ok(());
        }
        self.positions.insert(key.clone(), self.flat.len());
        self.flat.push((key, encoded));
        Ok(())
    }
}
