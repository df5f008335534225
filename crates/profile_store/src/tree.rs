//! Call trees: the values of a profile by path of functions, for flame graphs.
//!
//! A tree has two columns of values, so that two profiles can be compared in the union of their layouts. The second
//! column of a single profile is 0.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use tributary_profiles::Profiles;
use tributary_profiles::dictionary::{Dictionary, ValueType};
use tributary_profiles::frames::{Cut, Pruning, kept};
use tributary_profiles::id::{Id as _, LocationId, StackId};
use tributary_profiles::model::Profile;
use tributary_profiles::top::{line_names, of_type};

/// Values of two profiles; the second value is 0 for a single profile.
pub type Values = [i64; 2];

/// A call tree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree {
    /// Type and unit of the values.
    pub sample_type: (String, String),
    pub(crate) names: Vec<String>,
    /// Nodes: the root first, a parent before its children.
    pub(crate) nodes: Vec<Node>,
    /// Children of all nodes, ordered by parent, then by name.
    children: Vec<u32>,
}

/// A function called on a path of functions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) name: u32,
    /// Position of the caller; the caller of the root is the root.
    pub(crate) parent: u32,
    pub(crate) total: Values,
    /// Values of the function itself.
    pub(crate) own: Values,
    /// Range of the children.
    first: u32,
    count: u32,
}

pub(crate) const ROOT: usize = 0;

impl Tree {
    /// Builds the tree of all profiles of a sample type.
    pub fn of(profiles: &Profiles, kind: ValueType) -> Self {
        let Ok(tree) = Self::of_within(profiles, kind, |_| Ok::<(), std::convert::Infallible>(()));
        tree
    }

    /// Builds the tree of all profiles of a sample type. Calls `check` with the memory of the tree, in bytes, from time
    /// to time.
    ///
    /// # Errors
    /// An error of `check` ends the work.
    pub fn of_within<E>(
        profiles: &Profiles,
        kind: ValueType,
        check: impl FnMut(usize) -> Result<(), E>,
    ) -> Result<Self, E> {
        let mut builder = Builder::new();
        builder.add(profiles, kind, 0, check)?;
        Ok(builder.finish())
    }

    /// Builds the tree of two profiles: the values of `before`, then the values of `after`.
    pub fn of_both(before: (&Profiles, ValueType), after: (&Profiles, ValueType)) -> Self {
        let mut builder = Builder::new();
        for ((profiles, kind), column) in [before, after].into_iter().zip(0..) {
            let Ok(()) = builder.add(profiles, kind, column, |_| {
                Ok::<(), std::convert::Infallible>(())
            });
        }
        builder.finish()
    }

    /// Sums of all values.
    pub fn totals(&self) -> Values {
        self.nodes.first().map_or([0; 2], |root| root.total)
    }

    /// Number of nodes, without the root.
    pub fn len(&self) -> usize {
        self.nodes.len().saturating_sub(1)
    }

    /// Whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Name of a node; empty for the root.
    pub(crate) fn name(&self, node: usize) -> &str {
        let name = self.nodes.get(node).map_or(0, |node| node.name);
        self.names.get(name as usize).map_or("", String::as_str)
    }

    /// Children of a node, ordered by name.
    pub(crate) fn children(&self, node: usize) -> &[u32] {
        let range = self.nodes.get(node).map(|node| {
            let first = node.first as usize;
            first..first + node.count as usize
        });
        range
            .and_then(|range| self.children.get(range))
            .unwrap_or_default()
    }

    /// Returns the node at the end of a path of names.
    pub(crate) fn find(&self, path: &[String]) -> Option<usize> {
        path.iter().try_fold(ROOT, |node, name| {
            let children = self.children(node);
            let by_name = |child: &u32| self.name(*child as usize).cmp(name);
            let at = children.binary_search_by(by_name).ok()?;
            children.get(at).map(|child| *child as usize)
        })
    }
}

#[derive(Debug)]
pub(crate) struct Builder {
    sample_type: (String, String),
    names: Vec<String>,
    by_name: HashMap<String, u32, RandomState>,
    text: usize,
    nodes: Vec<Node>,
    by_place: HashMap<(u32, u32), u32, RandomState>,
}

/// Names at a location, as shown for profiles with the same patterns of frames to drop.
struct LocationNames {
    /// Positions of the names, outermost first.
    names: Vec<u32>,
    cut: Cut,
}

impl Builder {
    pub(crate) fn new() -> Self {
        Builder {
            sample_type: Default::default(),
            names: vec![String::new()],
            by_name: HashMap::from_iter([(String::new(), 0)]),
            text: 0,
            nodes: vec![Node::default()],
            by_place: HashMap::default(),
        }
    }

    /// Adds the profiles of a sample type to a column. Frames that a profile marks to be dropped are left out. Calls
    /// `check` from time to time with the memory of the tree, in bytes; an error of `check` ends the work.
    pub(crate) fn add<E>(
        &mut self,
        profiles: &Profiles,
        kind: ValueType,
        column: usize,
        mut check: impl FnMut(usize) -> Result<(), E>,
    ) -> Result<(), E> {
        const NODES_PER_CHECK: usize = 1024;
        let dictionary = &profiles.dictionary;
        let text = |id| dictionary.text(id).to_owned();
        self.sample_type = (text(kind.kind), text(kind.unit));
        for profile in of_type(profiles, kind) {
            // An invalid pattern drops no frames, and the table of functions reports it.
            let mut pruning = Pruning::of(dictionary, profile).unwrap_or_default();
            let mut places: Vec<Option<LocationNames>> = Vec::new();
            let mut path: Vec<(u32, u32)> = Vec::new();
            for (at, (stack, value)) in by_stack(profile).enumerate() {
                if at % NODES_PER_CHECK == 0 {
                    check(self.bytes())?;
                }
                let stack = dictionary.locations(stack);
                for location in stack {
                    self.look_at(dictionary, *location, &mut pruning, &mut places);
                }
                let place = |location: &LocationId| places.get(location.index())?.as_ref();
                let stack = match pruning {
                    Some(_) => kept(stack, |id| place(&id).map_or(Cut::None, |place| place.cut)),
                    None => stack,
                };
                let names = stack
                    .iter()
                    .rev()
                    .filter_map(place)
                    .flat_map(|place| &place.names);
                self.insert(names.copied(), column, value, &mut path);
            }
        }
        check(self.bytes())
    }

    fn look_at(
        &mut self,
        dictionary: &Dictionary,
        id: LocationId,
        pruning: &mut Option<Pruning>,
        places: &mut Vec<Option<LocationNames>>,
    ) {
        let at = id.index();
        if at >= places.len() {
            places.resize_with(at + 1, || None);
        }
        let Some(place @ None) = places.get_mut(at) else {
            return;
        };
        let lines = dictionary.get_lines(dictionary.get_location(id).lines);
        let (lines, cut) = match pruning {
            Some(pruning) => pruning.lines(dictionary, lines),
            None => (lines, Cut::None),
        };
        let names = line_names(dictionary, id, lines);
        let names = names.rev().map(|name| self.intern(&name)).collect();
        *place = Some(LocationNames { names, cut });
    }

    pub(crate) fn intern(&mut self, name: &str) -> u32 {
        if let Some(known) = self.by_name.get(name) {
            return *known;
        }
        let at = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.names.push(name.to_owned());
        self.by_name.insert(name.to_owned(), at);
        self.text += 2 * name.len();
        at
    }

    /// Adds a value at the end of a path. `last` is the path of the call before: name and node.
    fn insert(
        &mut self,
        names: impl Iterator<Item = u32>,
        column: usize,
        value: i128,
        last: &mut Vec<(u32, u32)>,
    ) {
        let value = i64::try_from(value.clamp(i64::MIN.into(), i64::MAX.into()));
        let value = value.unwrap_or_default();
        let mut values = [0; 2];
        if let Some(place) = values.get_mut(column) {
            *place = value;
        }
        let mut node = 0;
        let mut depth = 0;
        self.count(node, values, [0; 2]);
        for name in names {
            node = match last.get(depth) {
                Some((known, node)) if *known == name => *node,
                _ => {
                    last.truncate(depth);
                    let child = self.child(node, name);
                    last.push((name, child));
                    child
                }
            };
            depth += 1;
            self.count(node, values, [0; 2]);
        }
        last.truncate(depth);
        self.count(node, [0; 2], values);
    }

    /// Returns a child of a node, adding it if necessary.
    pub(crate) fn child(&mut self, parent: u32, name: u32) -> u32 {
        let next = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        let node = *self.by_place.entry((parent, name)).or_insert(next);
        if node == next {
            self.nodes.push(Node {
                name,
                parent,
                ..Node::default()
            });
        }
        node
    }

    pub(crate) fn count(&mut self, node: u32, total: Values, own: Values) {
        if let Some(node) = self.nodes.get_mut(node as usize) {
            node.total = sum(node.total, total);
            node.own = sum(node.own, own);
        }
    }

    /// Memory of the tree, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let places = self.by_place.capacity() * (size_of::<((u32, u32), u32)>() + 1);
        let names = self.names.capacity() * 2 * (size_of::<(String, u32)>() + 1);
        places + names + self.text + self.nodes.capacity() * (size_of::<Node>() + 4)
    }

    pub(crate) fn finish_as(mut self, sample_type: &(String, String)) -> Tree {
        self.sample_type = sample_type.clone();
        self.finish()
    }

    pub(crate) fn finish(self) -> Tree {
        let Builder {
            sample_type,
            names,
            mut nodes,
            ..
        } = self;
        for at in 1..nodes.len() {
            let parent = nodes.get(at).map_or(0, |node| node.parent);
            if let Some(parent) = nodes.get_mut(parent as usize) {
                parent.count += 1;
            }
        }
        let mut first = 0;
        for node in &mut nodes {
            node.first = first;
            first += std::mem::take(&mut node.count);
        }
        let mut children = vec![0; nodes.len().saturating_sub(1)];
        for at in 1..nodes.len() {
            let parent = nodes.get(at).map_or(0, |node| node.parent);
            let Some(parent) = nodes.get_mut(parent as usize) else {
                continue;
            };
            let place = children.get_mut((parent.first + parent.count) as usize);
            parent.count += 1;
            if let Some(place) = place {
                *place = u32::try_from(at).unwrap_or_default();
            }
        }
        let ranks = ranks(&names);
        let rank = |child: &u32| {
            let node = nodes.get(*child as usize);
            node.and_then(|node| ranks.get(node.name as usize)).copied()
        };
        for node in nodes.iter().filter(|node| node.count > 1) {
            let range = node.first as usize..(node.first + node.count) as usize;
            if let Some(children) = children.get_mut(range) {
                children.sort_unstable_by_key(rank);
            }
        }
        Tree {
            sample_type,
            names,
            nodes,
            children,
        }
    }
}

/// Returns the position of each name in the order of names.
fn ranks(names: &[String]) -> Vec<u32> {
    let mut order: Vec<usize> = (0..names.len()).collect();
    order.sort_unstable_by_key(|at| names.get(*at));
    let mut ranks = vec![0; names.len()];
    for (rank, at) in (0..).zip(order) {
        if let Some(place) = ranks.get_mut(at) {
            *place = rank;
        }
    }
    ranks
}

/// Adds values, saturating.
pub(crate) fn sum(a: Values, b: Values) -> Values {
    let [first, second] = a;
    [first.saturating_add(b[0]), second.saturating_add(b[1])]
}

/// Sums the samples of each stack, so that a stack shared by many samples is walked once.
fn by_stack(profile: &Profile) -> impl Iterator<Item = (StackId, i128)> {
    let mut sums: Vec<i128> = Vec::new();
    for sample in profile.samples.iter() {
        let at = sample.key.stack.index();
        if at >= sums.len() {
            sums.resize(at + 1, 0);
        }
        if let Some(sum) = sums.get_mut(at) {
            *sum += i128::from(sample.total().0);
        }
    }
    let sums = (0..).zip(sums).filter(|(_, sum)| *sum != 0);
    sums.map(|(at, sum)| (StackId::new(at), sum))
}

#[cfg(test)]
pub(crate) mod tests;
