//! Values of a sample type by function, as `pprof -top` counts them.
//!
//! Frames that a profile marks to be dropped are left out, and their values belong to their callers.

use std::borrow::Cow;
use std::collections::HashMap;

use foldhash::fast::RandomState;
use opentelemetry_proto::tonic::common::v1::any_value::Value;

use super::dictionary::Dictionary;
use super::frames::{Cut, Pruning, Selection, kept};
use super::id::{AttributeSetId, LocationId, StackId, StringId};
use super::model::{Profile, Profiles};
use super::names;
use crate::entry::{Line, ValueType};

/// The values of one sample type, by function.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Top {
    /// Name and unit of the sample type.
    pub sample_type: (String, String),
    /// Sum of the absolute values of all samples, including samples that were not selected.
    pub total: i64,
    /// All functions, by own value in descending order.
    pub rows: Vec<TopRow>,
    /// Problems with the patterns of frames to drop.
    pub notes: Vec<String>,
}

/// A function, or a binary whose functions are unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopRow {
    /// Name of the function, or file name of the binary in brackets.
    pub name: String,
    /// Value of the function itself.
    pub flat: i64,
    /// Value of the function and its callees.
    pub cumulative: i64,
}

/// Identity of a row. The line within a function is not part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Node {
    Function(StringId),
    Binary(StringId),
}

/// Returns the sample type with this name. Without a name, returns the default sample type of the profiles, else the
/// last type of a pprof file, else the type of the first profile. Returns `None` if there is no such profile.
pub fn sample_type(profiles: &Profiles, name: Option<&str>) -> Option<ValueType> {
    let text = |kind: ValueType| profiles.dictionary.text(kind.kind);
    let named = |name: &str| {
        let mut types = profiles.iter().map(|profile| profile.header.sample_type);
        types.find(|kind| text(*kind) == name)
    };
    if let Some(name) = name {
        return named(name);
    }
    let mut scopes = profiles
        .resources
        .iter()
        .flat_map(|resource| &resource.scopes);
    let scope = scopes.find(|scope| !scope.profiles.is_empty())?;
    let attributes = scope
        .scope
        .as_ref()
        .map(|scope| scope.attributes.as_slice());
    let find = |key: &str| {
        let mut attributes = attributes.unwrap_or_default().iter();
        let attribute = attributes.find(|attribute| attribute.key == key)?;
        attribute.value.as_ref()?.value.as_ref()
    };
    if let Some(Value::StringValue(name)) = find(names::DEFAULT_SAMPLE_TYPE)
        && let Some(kind) = named(name)
    {
        return Some(kind);
    }
    let shown = match find(names::SAMPLE_TYPE_ORDER) {
        Some(_) => scope.profiles.last(),
        None => scope.profiles.first(),
    };
    shown.map(|profile| profile.header.sample_type)
}

/// Iterates over the profiles of a sample type.
pub fn of_type(profiles: &Profiles, kind: ValueType) -> impl Iterator<Item = &Profile> {
    let all = profiles.iter();
    all.filter(move |profile| profile.header.sample_type == kind)
}

/// Sums the selected samples of all profiles of a sample type.
pub fn top(profiles: &Profiles, kind: ValueType, selection: &Selection) -> Top {
    top_of(
        &profiles.dictionary,
        of_type(profiles, kind),
        kind,
        selection,
    )
}

fn top_of<'p>(
    dictionary: &Dictionary,
    profiles: impl Iterator<Item = &'p Profile>,
    kind: ValueType,
    selection: &Selection,
) -> Top {
    let counts = count(dictionary, profiles, selection);
    let rows = counts
        .rows(dictionary)
        .map(|(name, flat, cumulative)| TopRow {
            name: name.into_owned(),
            flat,
            cumulative,
        });
    let mut rows: Vec<TopRow> = rows.collect();
    rows.sort_by(|a, b| {
        let key = |row: &TopRow| (row.flat.saturating_abs(), row.cumulative.saturating_abs());
        key(b).cmp(&key(a)).then_with(|| a.name.cmp(&b.name))
    });
    Top {
        sample_type: (
            dictionary.text(kind.kind).to_owned(),
            dictionary.text(kind.unit).to_owned(),
        ),
        total: counts.total,
        rows,
        notes: counts.notes,
    }
}

/// Sums over some profiles of one sample type.
#[derive(Debug)]
pub struct FunctionTotals {
    /// Sum of the absolute values of all samples, including samples that were not selected.
    pub total: i64,
    /// Problems with the patterns of frames to drop.
    pub notes: Vec<String>,
    rows: Vec<(Node, i64, i64)>,
}

impl FunctionTotals {
    /// Iterates over the functions in any order: name (or file name of the binary in brackets), own value, and
    /// value including callees. Two binaries may have the same name.
    pub fn rows<'d>(
        &self,
        dictionary: &'d Dictionary,
    ) -> impl Iterator<Item = (Cow<'d, str>, i64, i64)> {
        // Dropped frames and frames of unselected samples have no values.
        let rows = self.rows.iter();
        let rows = rows.filter(|(_, flat, cumulative)| (*flat, *cumulative) != (0, 0));
        rows.map(|(node, flat, cumulative)| (name(dictionary, *node), *flat, *cumulative))
    }
}

/// Sums the selected samples of some profiles of one sample type.
pub fn count<'p>(
    dictionary: &Dictionary,
    profiles: impl Iterator<Item = &'p Profile>,
    selection: &Selection,
) -> FunctionTotals {
    let mut nodes = Nodes::default();
    let mut views = Views::default();
    let mut notes = Vec::new();
    let mut total: i64 = 0;
    // Last stack in which each node was seen, so that recursion counts once.
    let mut seen: Vec<usize> = Vec::new();
    let mut at = 0;
    for profile in profiles {
        let view = views.of(dictionary, profile, &mut notes);
        for (stack, value) in by_stack(profile, &mut total) {
            at += 1;
            let stack = dictionary.locations(stack);
            for location in stack {
                view.add(dictionary, *location, selection, &mut nodes);
            }
            let stack = match view.pruning {
                Some(_) => kept(stack, |location| view.cut(location)),
                None => stack,
            };
            if !selection.is_all() && !view.selected(stack) {
                continue;
            }
            let mut leaf = true;
            let frames = stack
                .iter()
                .filter_map(|location| view.places.get(location));
            for node in frames.flat_map(|place| &place.nodes) {
                if *node >= seen.len() {
                    seen.resize(*node + 1, 0);
                }
                let Some((row, seen)) = nodes.rows.get_mut(*node).zip(seen.get_mut(*node)) else {
                    continue;
                };
                if std::mem::take(&mut leaf) {
                    row.1 = sum(row.1, value);
                }
                if *seen != at {
                    *seen = at;
                    row.2 = sum(row.2, value);
                }
            }
        }
    }
    FunctionTotals {
        total,
        notes,
        rows: nodes.rows,
    }
}

/// Sums the samples of each stack, so that a stack shared by many samples is walked once. Adds the absolute values
/// to `total`.
fn by_stack(profile: &Profile, total: &mut i64) -> Vec<(StackId, i128)> {
    let mut places: HashMap<StackId, usize, RandomState> = HashMap::default();
    let mut stacks: Vec<(StackId, i128)> = Vec::new();
    for sample in profile.samples.iter() {
        let (value, _) = sample.total();
        *total = total.saturating_add(value.saturating_abs());
        let next = stacks.len();
        let place = *places.entry(sample.key.stack).or_insert(next);
        match stacks.get_mut(place) {
            Some((_, sum)) => *sum += i128::from(value),
            None => stacks.push((sample.key.stack, value.into())),
        }
    }
    stacks
}

fn sum(a: i64, b: i128) -> i64 {
    let sum = i128::from(a) + b;
    let bounded = sum.clamp(i64::MIN.into(), i64::MAX.into());
    i64::try_from(bounded).unwrap_or_default()
}

/// Rows in columns: names, own values, and values including callees.
#[derive(Debug, Default)]
struct Nodes {
    rows: Vec<(Node, i64, i64)>,
    by_node: HashMap<Node, usize, RandomState>,
}

impl Nodes {
    fn node(&mut self, node: Node) -> usize {
        let next = self.rows.len();
        let at = *self.by_node.entry(node).or_insert(next);
        if at == next {
            self.rows.push((node, 0, 0));
        }
        at
    }
}

/// Views by the attributes of a profile, which contain the patterns of frames to drop.
#[derive(Debug, Default)]
struct Views(HashMap<AttributeSetId, View, RandomState>);

impl Views {
    fn of(
        &mut self,
        dictionary: &Dictionary,
        profile: &Profile,
        notes: &mut Vec<String>,
    ) -> &mut View {
        let view = || {
            let pruning = Pruning::of(dictionary, profile).unwrap_or_else(|note| {
                if !notes.contains(&note) {
                    notes.push(note);
                }
                None
            });
            View {
                pruning,
                places: HashMap::default(),
            }
        };
        let entry = self.0.entry(profile.header.attributes);
        entry.or_insert_with(view)
    }
}

/// Locations as shown for profiles with the same patterns of frames to drop.
#[derive(Debug)]
struct View {
    pruning: Option<Pruning>,
    places: HashMap<LocationId, LocationView, RandomState>,
}

#[derive(Debug)]
struct LocationView {
    /// Nodes at the location, innermost first.
    nodes: Vec<usize>,
    cut: Cut,
    /// Effect of the location on the selection of its samples.
    selected: Option<bool>,
}

impl View {
    fn add(
        &mut self,
        dictionary: &Dictionary,
        id: LocationId,
        selection: &Selection,
        nodes: &mut Nodes,
    ) {
        if self.places.contains_key(&id) {
            return;
        }
        let lines = dictionary.get_lines(dictionary.get_location(id).lines);
        let (lines, cut) = match &mut self.pruning {
            Some(pruning) => pruning.lines(dictionary, lines),
            None => (lines, Cut::None),
        };
        let selected = match selection.is_all() {
            true => None,
            false => selection.of(dictionary, lines, id),
        };
        let frames = frames(dictionary, id, lines).into_iter();
        let nodes = frames.map(|node| nodes.node(node)).collect();
        let place = LocationView {
            nodes,
            cut,
            selected,
        };
        self.places.insert(id, place);
    }

    fn cut(&self, id: LocationId) -> Cut {
        self.places.get(&id).map_or(Cut::None, |place| place.cut)
    }

    fn selected(&self, stack: &[LocationId]) -> bool {
        let mut wanted = false;
        for place in stack.iter().filter_map(|id| self.places.get(id)) {
            match place.selected {
                Some(false) => return false,
                Some(true) => wanted = true,
                None => {}
            }
        }
        wanted
    }
}

/// Returns the nodes of a location with these lines, innermost first.
fn frames(dictionary: &Dictionary, id: LocationId, lines: &[Line]) -> Vec<Node> {
    let mut frames: Vec<Node> = lines
        .iter()
        .map(|line| Node::Function(dictionary.get_function(line.function).name))
        .collect();
    if frames.is_empty() {
        let mapping = dictionary.get_location(id).mapping;
        frames.push(Node::Binary(dictionary.get_mapping(mapping).filename));
    }
    frames
}

/// Returns the names at a location, innermost first: functions, or the file name of the binary in brackets.
pub fn frame_names(dictionary: &Dictionary, id: LocationId) -> Vec<String> {
    let lines = dictionary.get_lines(dictionary.get_location(id).lines);
    line_names(dictionary, id, lines)
        .map(Cow::into_owned)
        .collect()
}

/// Returns the names at a location of which these lines are visible, innermost first.
pub fn line_names<'d>(
    dictionary: &'d Dictionary,
    id: LocationId,
    lines: &[Line],
) -> impl DoubleEndedIterator<Item = Cow<'d, str>> {
    let frames = frames(dictionary, id, lines).into_iter();
    frames.map(|node| name(dictionary, node))
}

fn name(dictionary: &Dictionary, node: Node) -> Cow<'_, str> {
    let (text, is_function) = match node {
        Node::Function(name) => (dictionary.text(name), true),
        Node::Binary(path) => (
            dictionary.text(path).rsplit('/').next().unwrap_or(""),
            false,
        ),
    };
    match (text, is_function) {
        ("", _) => "<unknown>".into(),
        (name, true) => name.into(),
        (file, false) => format!("[{file}]").into(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::folded;
    use super::*;

    fn rows(text: &str) -> Top {
        let profiles = folded::read(text).unwrap();
        let kind = sample_type(&profiles, None).unwrap();
        top(&profiles, kind, &Selection::default())
    }

    #[test]
    fn function_row_has_flat_and_cumulative_values() {
        let top = rows("main;run;work 5\nmain;run 2\nmain;idle 1\n");
        let rows = top.rows.iter();
        let found: Vec<_> = rows
            .map(|row| (&*row.name, row.flat, row.cumulative))
            .collect();
        let expected = [
            ("work", 5, 5),
            ("run", 2, 7),
            ("idle", 1, 1),
            ("main", 0, 8),
        ];
        assert_eq!(found, expected);
        assert_eq!(top.total, 8);
    }

    #[test]
    fn recursion_counts_once() {
        let top = rows("main;f;f;f 3\n");
        let f = top.rows.iter().find(|row| row.name == "f").unwrap();
        assert_eq!((f.flat, f.cumulative), (3, 3));
    }

    #[test]
    fn unknown_sample_type_has_no_values() {
        let profiles = folded::read("main 1\n").unwrap();
        assert!(sample_type(&profiles, Some("cpu")).is_none());
        assert!(sample_type(&profiles, Some("samples")).is_some());
    }
}
