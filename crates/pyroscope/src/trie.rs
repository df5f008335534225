//! Pyroscope's prefix tree of stacks: a node's key is the text of its ancestors and its own.

use crate::stacks::{MAX_STACK, Nodes, StackError, Stacks};

/// Maximum depth of a tree. Nodes divide stacks at any byte, so a tree may be deeper than its stacks.
const MAX_DEPTH: usize = 1 << 16;

/// Reads a tree in preorder.
///
/// # Errors
/// See [`StackError`].
pub fn read(body: &[u8], stacks: &mut Stacks<'_>) -> Result<(), StackError> {
    let mut nodes = Nodes::new(body);
    let mut key = Vec::new();
    // For each open node the length of its key, and the number of its children that follow.
    let mut open: Vec<(usize, u64)> = Vec::new();
    while let Some(node) = nodes.next()? {
        if key.len() + node.name.len() > MAX_STACK {
            return Err(StackError::Long);
        }
        key.extend_from_slice(node.name);
        stacks.add_bytes(&key, node.value)?;
        if open.len() == MAX_DEPTH {
            return Err(StackError::Deep(MAX_DEPTH));
        }
        open.push((key.len(), node.children));
        while let Some((_, 0)) = open.last() {
            open.pop();
            if let Some((length, left)) = open.last_mut() {
                *left = left.saturating_sub(1);
                key.truncate(*length);
            } else {
                // Another root may follow.
                key.clear();
            }
        }
    }
    let missing = open
        .iter()
        .map(|(_, left)| *left)
        .fold(0, u64::saturating_add);
    match missing {
        0 => Ok(()),
        missing => Err(StackError::Truncated(missing)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stacks::tests::{node, read as folded};

    fn parse(nodes: &[Vec<u8>]) -> Result<String, StackError> {
        folded(1 << 20, |stacks| read(&nodes.concat(), stacks))
    }

    #[test]
    fn keys_are_joined_from_the_root() {
        let text = parse(&[
            node("", 0, 2),
            node("main;", 0, 2),
            node("a", 1, 1),
            node("b;c", 2, 0),
            node("d", 3, 0),
            node("other", 4, 0),
        ]);
        assert_eq!(text.unwrap(), "main;a 1\nmain;ab;c 2\nmain;d 3\nother 4\n");
        assert_eq!(parse(&[]).unwrap(), "");
    }

    #[test]
    fn damaged_tree_is_refused() {
        let missing = parse(&[node("", 0, 2), node("a", 1, 0)]).unwrap_err();
        assert_eq!(missing, StackError::Truncated(1));
        let cut = parse(&[vec![5, b'a']]).unwrap_err();
        assert!(matches!(cut, StackError::Wire { at: 1, .. }), "{cut}");
    }

    #[test]
    fn deep_tree_is_refused_without_recursion() {
        let deep = vec![node("", 0, 1); MAX_DEPTH + 1];
        assert_eq!(parse(&deep).unwrap_err(), StackError::Deep(MAX_DEPTH));
    }

    #[test]
    fn tree_that_expands_to_much_text_is_refused() {
        let long = "x".repeat(1000);
        let mut nodes = vec![node(&long, 0, 1000)];
        nodes.extend((0..1000).map(|at| node(&at.to_string(), 1, 0)));
        assert!(matches!(parse(&nodes), Err(StackError::NoRoom(_))));
    }
}
