//! The new request: resources, scopes and metrics with their items.

use std::borrow::Cow;
use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::identity::{Grouping, Moved};
use super::node::Node;
use crate::reader::{put_varint, varint_len};
use crate::room::{Room, RoomExhausted, reserve};

#[derive(Default)]
pub(super) struct Tree<'a> {
    branches: Vec<Branch<'a>>,
    resources: Vec<usize>,
    /// Branches by parent, and then by identity.
    known: HashMap<usize, HashMap<Vec<u8>, usize, RandomState>, RandomState>,
}

struct Branch<'a> {
    number: u32,
    header: Vec<u8>,
    children: Vec<Child<'a>>,
}

enum Child<'a> {
    Branch(usize),
    Item(Cow<'a, [u8]>),
}

/// Parent of the resources.
const ROOT: usize = usize::MAX;

/// Memory of a branch besides the content of its lists, in bytes: itself, its place in its parent, and an entry in the
/// table of its parent. The lists and tables may have twice the capacity of their size.
const BRANCH_BYTES: usize = 2 * size_of::<Branch<'_>>() + 320;

/// Memory of an entry of a table, in bytes. The table may have twice the capacity of its size.
const KNOWN_BYTES: usize = 2 * size_of::<(Vec<u8>, usize)>() + 8;

impl<'a> Tree<'a> {
    /// Returns the branch of a resource.
    pub(super) fn resource(
        &mut self,
        grouping: &mut Grouping<'a>,
        moved: &Moved<'a>,
        room: &dyn Room,
    ) -> Result<usize, RoomExhausted> {
        let key = moved.encoded();
        if let Some(known) = grouping.known.get(&*key) {
            return Ok(*known);
        }
        room.take(key.len() + KNOWN_BYTES)?;
        // The node is a copy, of which only new resources are kept.
        let bytes = grouping.bytes(moved);
        room.take(bytes)?;
        let node = grouping.node(moved);
        let known = self.branches.len();
        let branch = self.branch(ROOT, &node, room);
        if self.branches.len() == known {
            room.release(bytes);
        }
        let branch = branch?;
        grouping.known.insert(key.into_owned(), branch);
        Ok(branch)
    }

    /// Returns the branch at a path below another one.
    pub(super) fn descend(
        &mut self,
        from: usize,
        path: &[&Node],
        room: &dyn Room,
    ) -> Result<usize, RoomExhausted> {
        let mut at = from;
        for node in path {
            at = self.branch(at, node, room)?;
        }
        Ok(at)
    }

    /// Adds an item to a branch.
    pub(super) fn add(
        &mut self,
        parent: usize,
        item: Cow<'a, [u8]>,
        room: &dyn Room,
    ) -> Result<(), RoomExhausted> {
        if let Cow::Owned(item) = &item {
            room.take(item.len())?;
        }
        if let Some(branch) = self.branches.get_mut(parent) {
            reserve(room, &mut branch.children, 1)?;
            branch.children.push(Child::Item(item));
        }
        Ok(())
    }

    fn branch(
        &mut self,
        parent: usize,
        node: &Node,
        room: &dyn Room,
    ) -> Result<usize, RoomExhausted> {
        let siblings = self.known.get(&parent);
        if let Some(known) = siblings.and_then(|known| known.get(&node.identity)) {
            return Ok(*known);
        }
        room.take(BRANCH_BYTES + 2 * (node.header.len() + node.identity.len()))?;
        let at = self.branches.len();
        self.branches.push(Branch {
            number: node.number,
            header: node.header.clone(),
            children: Vec::new(),
        });
        let siblings = self.known.entry(parent).or_default();
        siblings.insert(node.identity.clone(), at);
        match self.branches.get_mut(parent) {
            Some(branch) => {
                reserve(room, &mut branch.children, 1)?;
                branch.children.push(Child::Branch(at));
            }
            None => self.resources.push(at),
        }
        Ok(at)
    }

    /// Returns the number of resources.
    pub(super) fn resources(&self) -> usize {
        self.resources.len()
    }

    /// Returns the size of the encoded resources.
    pub(super) fn bytes(&self) -> usize {
        let lengths = self.lengths();
        let sizes = self
            .resources
            .iter()
            .map(|at| self.field_len(*at, &lengths));
        sizes.sum()
    }

    /// Writes the resources.
    pub(super) fn write(&self) -> Vec<u8> {
        let lengths = self.lengths();
        let mut output = Vec::with_capacity(self.bytes());
        for at in &self.resources {
            self.put(*at, &lengths, &mut output);
        }
        output
    }

    /// Returns the length of the body of each branch. Children come after their parents.
    fn lengths(&self) -> Vec<usize> {
        let mut lengths = vec![0; self.branches.len()];
        for (at, branch) in self.branches.iter().enumerate().rev() {
            let children = branch.children.iter().map(|child| match child {
                Child::Item(item) => item.len(),
                Child::Branch(below) => self.field_len(*below, &lengths),
            });
            let length = branch.header.len() + children.sum::<usize>();
            if let Some(slot) = lengths.get_mut(at) {
                *slot = length;
            }
        }
        lengths
    }

    /// Returns the length of a branch with its key and length.
    fn field_len(&self, at: usize, lengths: &[usize]) -> usize {
        let body = lengths.get(at).copied().unwrap_or_default();
        // Numbers are below 16, so that keys have one byte.
        1 + varint_len(body as u64) + body
    }

    fn put(&self, at: usize, lengths: &[usize], output: &mut Vec<u8>) {
        let Some(branch) = self.branches.get(at) else {
            return;
        };
        put_varint(u64::from(branch.number << 3 | 2), output);
        put_varint(lengths.get(at).copied().unwrap_or_default() as u64, output);
        output.extend_from_slice(&branch.header);
        for child in &branch.children {
            match child {
                Child::Item(item) => output.extend_from_slice(item),
                // At most four levels.
                Child::Branch(below) => self.put(*below, lengths, output),
            }
        }
    }
}
