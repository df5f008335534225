//! Template arguments and packs: finds the nodes that parameters stand for.

use std::fmt::{self, Write};

use super::super::node::{Function, Id, Node};
use super::{MAX_DEPTH, MAX_STEPS, Printer, Scope};

impl<'p, 'a, W: Write> Printer<'p, 'a, W> {
    /// Returns the argument of a template parameter in a scope, and the scope of the argument. For a pack,
    /// returns the argument with the index `pack`.
    pub(super) fn argument(
        &self,
        index: u64,
        scope: usize,
        pack: Option<usize>,
    ) -> Option<(Id, usize)> {
        let (Scope::Arguments(list), around) = *self.scopes.get(scope)? else {
            return None;
        };
        let item = *self.items(list).get(usize::try_from(index).ok()?)?;
        let item = match (self.node(item), pack) {
            (Some(Node::Pack(list)), Some(at)) => self.items(list).get(at).copied()?,
            _ => item,
        };
        Some((item, around))
    }

    /// Replaces a template parameter by its argument.
    pub(super) fn behind(&self, mut id: Id, mut scope: usize) -> (Id, usize) {
        let mut pack = self.pack;
        for _ in 0..MAX_DEPTH {
            let Some(Node::Argument(index)) = self.node(id) else {
                break;
            };
            let Some(next) = self.argument(index, scope, pack.take()) else {
                break;
            };
            (id, scope) = next;
        }
        (id, scope)
    }

    /// Prints an argument, in which other packs are printed as lists.
    pub(super) fn in_place(
        &mut self,
        scope: usize,
        print: impl FnOnce(&mut Self) -> fmt::Result,
    ) -> fmt::Result {
        let pack = self.pack.take();
        let printed = self.within(scope, print);
        self.pack = pack;
        printed
    }

    /// Runs `work` in another scope.
    pub(super) fn within<T>(&mut self, scope: usize, work: impl FnOnce(&mut Self) -> T) -> T {
        let before = std::mem::replace(&mut self.scope, scope);
        let done = work(self);
        self.scope = before;
        done
    }

    /// Opens a scope within the current one.
    pub(super) fn inner(&mut self, scope: Scope) -> usize {
        self.scopes.push((scope, self.scope));
        self.scopes.len() - 1
    }

    pub(super) fn is_array(&self, id: Id, scope: usize) -> bool {
        let (id, scope) = self.behind(id, scope);
        match self.node(id) {
            Some(Node::Array(..)) => true,
            Some(Node::Qualified(of, _)) => self.is_array(of, scope),
            _ => false,
        }
    }

    pub(super) fn is_function(&self, id: Id, scope: usize) -> bool {
        let (id, scope) = self.behind(id, scope);
        match self.node(id) {
            Some(Node::Function(function)) => function.name.is_none(),
            Some(Node::Qualified(of, _)) => self.is_function(of, scope),
            _ => false,
        }
    }

    /// Whether a type prints a part after the declared name, as `[10]` in `int (&name) [10]`.
    pub(super) fn has_right(&self, id: Id, scope: usize, depth: u32) -> bool {
        if depth > MAX_DEPTH {
            return false;
        }
        let (id, scope) = self.behind(id, scope);
        match self.node(id) {
            Some(Node::Array(..) | Node::Function(_)) => true,
            Some(Node::Qualified(of, _) | Node::Pointer(of) | Node::Referred(of, _)) => {
                self.has_right(of, scope, depth + 1)
            }
            Some(Node::MemberPointer(_, of)) => self.has_right(of, scope, depth + 1),
            _ => false,
        }
    }

    pub(super) fn expansion(&mut self, of: Id) -> fmt::Result {
        let before = self.pack.take();
        let printed = self.each_of_a_pack(of);
        self.pack = before;
        printed
    }

    fn each_of_a_pack(&mut self, of: Id) -> fmt::Result {
        let Some(count) = self.pack_size(of, self.scope, 0) else {
            self.print(of)?;
            return self.text("...");
        };
        let comma = self.comma;
        let mut is_first = true;
        for at in 0..count {
            let written = self.written;
            self.comma |= !is_first;
            self.pack = Some(at);
            self.print(of)?;
            is_first &= self.written == written;
        }
        if is_first {
            self.comma = comma;
        }
        Ok(())
    }

    /// Returns the number of arguments of the first pack in a node, other expansions excluded.
    fn pack_size(&mut self, id: Id, scope: usize, depth: u32) -> Option<usize> {
        self.steps += 1;
        if depth > MAX_DEPTH || self.steps >= MAX_STEPS {
            return None;
        }
        let (nodes, list) = match self.node(id)? {
            Node::Closure { .. } => return None,
            Node::Argument(index) => {
                let (item, _) = self.argument(index, scope, None)?;
                return match self.node(item)? {
                    Node::Pack(list) => Some(list.len()),
                    _ => None,
                };
            }
            Node::Function(Function {
                arguments: Some(_), ..
            })
            | Node::Scoped(..) => return None,
            node => node.parts(),
        };
        let found = nodes.into_iter().flatten();
        found
            .chain(self.items(list).iter().copied())
            .find_map(|part| self.pack_size(part, scope, depth + 1))
    }
}
