//! Callers and callees of a function, over all stack positions of the function.

use super::tree::{Builder, ROOT, Tree, Values};

/// The callers and the callees of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sandwich {
    /// Tree with the function at the root, then its callers, their callers and so on.
    pub callers: Tree,
    /// Tree with the function at the root, then its callees.
    pub callees: Tree,
}

impl Tree {
    /// Returns the callers and callees of a function. Returns `None` if no sample has the function. A recursive call
    /// belongs to the callees of the outermost call, so that every sample counts once.
    pub fn sandwich(&self, function: &str) -> Option<Sandwich> {
        let check = |_| Ok::<(), std::convert::Infallible>(());
        let Ok(found) = self.sandwich_within(function, check);
        found
    }

    /// Returns the callers and callees of a function. Calls `check` from time to time with the
    /// memory of both trees, in bytes.
    ///
    /// # Errors
    /// An error of `check` ends the work.
    pub fn sandwich_within<E>(
        &self,
        function: &str,
        mut check: impl FnMut(usize) -> Result<(), E>,
    ) -> Result<Option<Sandwich>, E> {
        let mut callers = Builder::new();
        let mut callees = Builder::new();
        let mut is_found = false;
        let mut open = vec![ROOT];
        while let Some(node) = open.pop() {
            if node != ROOT && self.name(node) == function {
                is_found = true;
                self.add_callers(node, &mut callers);
                self.add_callees(node, &mut callees);
                check(callers.bytes() + callees.bytes())?;
                continue;
            }
            open.extend(self.children(node).iter().map(|child| *child as usize));
        }
        Ok(is_found.then(|| Sandwich {
            callers: callers.finish_as(&self.sample_type),
            callees: callees.finish_as(&self.sample_type),
        }))
    }

    fn add_callers(&self, node: usize, into: &mut Builder) {
        let values = self.nodes.get(node).map_or([0; 2], |node| node.total);
        let mut place = 0;
        let mut from = node;
        into.count(place, values, [0; 2]);
        while from != ROOT {
            let name = into.intern(self.name(from));
            place = into.child(place, name);
            into.count(place, values, [0; 2]);
            from = self
                .nodes
                .get(from)
                .map_or(ROOT, |node| node.parent as usize);
        }
        into.count(place, [0; 2], values);
    }

    fn add_callees(&self, node: usize, into: &mut Builder) {
        let values = |node: usize| -> (Values, Values) {
            let node = self.nodes.get(node).copied().unwrap_or_default();
            (node.total, node.own)
        };
        into.count(0, values(node).0, [0; 2]);
        let mut open = vec![(node, 0)];
        while let Some((from, parent)) = open.pop() {
            let name = into.intern(self.name(from));
            let place = into.child(parent, name);
            let (total, own) = values(from);
            into.count(place, total, own);
            open.extend(
                self.children(from)
                    .iter()
                    .map(|child| (*child as usize, place)),
            );
        }
    }
}
