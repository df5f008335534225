//! Values by function, and the size of the output per stack.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use tributary_profiles::Dictionary;
use tributary_profiles::id::{FunctionId, Id as _};

use super::tree::{ROOT, Tree, Values, sum};

/// Values of a function over all its stack positions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionRow<'t> {
    /// Name of the function.
    pub name: &'t str,
    /// Values of the function itself.
    pub own: Values,
    /// Values with callees; a recursive call counts once.
    pub total: Values,
}

/// Total size of all stacks with values, if written one by one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StackSize {
    /// Number of frames.
    pub frames: u64,
    /// Length of the names of all frames, in bytes.
    pub text: u64,
}

impl Tree {
    /// Returns the functions with values, in the order of their first node.
    pub fn functions(&self) -> Vec<FunctionRow<'_>> {
        let mut rows: Vec<Option<FunctionRow<'_>>> = vec![None; self.names.len()];
        let mut order = Vec::new();
        // Number of open frames of each function on the path from the root.
        let mut depth = vec![0_u32; self.names.len()];
        let mut open = vec![Visit::Enter(ROOT)];
        while let Some(visit) = open.pop() {
            let (Visit::Enter(at) | Visit::Leave(at)) = visit;
            let Some(node) = self.nodes.get(at) else {
                continue;
            };
            let name = node.name as usize;
            let is_root = at == ROOT;
            let Some(depth) = depth.get_mut(name) else {
                continue;
            };
            if matches!(visit, Visit::Leave(_)) {
                *depth -= 1;
                continue;
            }
            let is_outermost = *depth == 0;
            *depth += 1;
            open.push(Visit::Leave(at));
            let children = self.children(at).iter().rev();
            open.extend(children.map(|child| Visit::Enter(*child as usize)));
            let Some(place) = rows.get_mut(name).filter(|_| !is_root) else {
                continue;
            };
            let row = place.get_or_insert_with(|| {
                order.push(name);
                FunctionRow {
                    name: self.name(at),
                    own: [0; 2],
                    total: [0; 2],
                }
            });
            row.own = sum(row.own, node.own);
            if is_outermost {
                row.total = sum(row.total, node.total);
            }
        }
        let mut in_order = order.into_iter();
        let mut functions = Vec::with_capacity(in_order.len());
        while let Some(row) = in_order.next().and_then(|name| rows.get_mut(name)?.take()) {
            functions.push(row);
        }
        functions
    }

    /// Returns the size of all stacks of the first column, so that a caller can refuse to write them.
    pub fn stack_size(&self) -> StackSize {
        let mut above: Vec<StackSize> = Vec::with_capacity(self.nodes.len());
        let mut all = StackSize::default();
        for (at, node) in self.nodes.iter().enumerate() {
            let parent = above.get(node.parent as usize).copied();
            let mut size = parent.unwrap_or_default();
            if at != ROOT {
                size.frames += 1;
                size.text += self.name(at).len() as u64;
            }
            above.push(size);
            if node.own[0] != 0 {
                all.frames = all.frames.saturating_add(size.frames);
                all.text = all.text.saturating_add(size.text);
            }
        }
        all
    }
}

/// A step of a walk over a tree.
enum Visit {
    Enter(usize),
    Leave(usize),
}

/// Returns the source files of functions by name. Of several files for one name, the first one is
/// used.
pub fn files(dictionary: &Dictionary) -> HashMap<&str, &str, RandomState> {
    let mut files = HashMap::default();
    for at in 0..dictionary.function_count() {
        let function = dictionary.get_function(FunctionId::new(at as u32));
        let file = dictionary.text(function.filename);
        if !file.is_empty() {
            files.entry(dictionary.text(function.name)).or_insert(file);
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use crate::tree::tests::tree;

    #[test]
    fn recursive_call_counts_once_in_the_total() {
        let tree = tree("main;a;b;a 3\nmain;a 2\nmain;b;a 5\n");
        let rows = tree.functions();
        let row = |name: &str| rows.iter().find(|row| row.name == name).unwrap();
        assert_eq!((row("a").own, row("a").total), ([10, 0], [10, 0]));
        assert_eq!((row("b").own, row("b").total), ([0, 0], [8, 0]));
        assert_eq!((row("main").own, row("main").total), ([0, 0], [10, 0]));
        assert_eq!(rows.len(), 3);
    }

    #[test]
    fn stack_size_counts_every_frame_of_every_stack() {
        let size = tree("main;a;b 3\nmain;a 2\nmain;c 0\n").stack_size();
        assert_eq!((size.frames, size.text), (5, 11));
    }
}
