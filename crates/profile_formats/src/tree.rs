//! Call trees, whose stacks are made at the end: once for each node instead of once for each event.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use tributary_profiles::id::{AttributeSetId, LocationId};

use crate::builder::Builder;
use crate::error::Fault;

/// Memory of a node with its entry in the index, which may be half empty, in bytes.
const NODE: usize = 128;

/// A node of a [`Tree`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Node(usize);

#[derive(Debug)]
struct Entry {
    parent: Option<Node>,
    location: LocationId,
    own: i64,
}

/// A call tree with the own value of each node.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    entries: Vec<Entry>,
    index: HashMap<(Option<Node>, LocationId), Node, RandomState>,
}

impl Tree {
    /// Creates a tree of at most `most` nodes, and takes memory for them.
    pub(crate) fn new(builder: &mut Builder<'_>, most: usize) -> Result<Self, Fault> {
        builder.grow(most.saturating_mul(NODE))?;
        Ok(Tree::default())
    }

    /// Returns the node of a call.
    pub(crate) fn child(&mut self, parent: Option<Node>, location: LocationId) -> Node {
        let new = Node(self.entries.len());
        let node = *self.index.entry((parent, location)).or_insert(new);
        if node == new {
            self.entries.push(Entry {
                parent,
                location,
                own: 0,
            });
        }
        node
    }

    /// Adds to the own value of a node.
    pub(crate) fn add(&mut self, node: Node, value: i64) {
        if let Some(entry) = self.entries.get_mut(node.0) {
            entry.own = entry.own.saturating_add(value);
        }
    }

    /// Adds a sample for each node with a value.
    pub(crate) fn finish(
        self,
        builder: &mut Builder<'_>,
        attributes: AttributeSetId,
        column: usize,
    ) -> Result<(), Fault> {
        let mut stack = Vec::new();
        for entry in self.entries.iter().filter(|entry| entry.own != 0) {
            stack.clear();
            let mut next = Some(entry);
            // A parent is older than its children, so the chain ends.
            while let Some(entry) = next {
                stack.push(entry.location);
                next = entry.parent.and_then(|parent| self.entries.get(parent.0));
            }
            builder.sample(&stack, attributes, &[(column, entry.own)])?;
        }
        Ok(())
    }
}
