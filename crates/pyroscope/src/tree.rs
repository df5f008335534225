//! Pyroscope's tree of frames: each node has the name of a frame and the value of the stack that ends there.

use crate::stacks::{MAX_STACK, Nodes, StackError, Stacks};

/// Maximum depth of a stack.
const MAX_DEPTH: usize = 1 << 14;

/// Reads a tree in preorder, whose root has no name.
///
/// # Errors
/// See [`StackError`].
pub fn read(body: &[u8], stacks: &mut Stacks<'_>) -> Result<(), StackError> {
    let mut nodes = Nodes::new(body);
    let mut stack = Vec::new();
    // For each open node the length of its stack, and the number of its children that follow.
    let mut open: Vec<(usize, u64)> = Vec::new();
    while let Some(node) = nodes.next()? {
        if stack.len() + node.name.len() + 1 > MAX_STACK {
            return Err(StackError::Long);
        }
        if !stack.is_empty() && !node.name.is_empty() {
            stack.push(b';');
        }
        stack.extend_from_slice(node.name);
        stacks.add_bytes(&stack, node.value)?;
        if open.len() == MAX_DEPTH {
            return Err(StackError::Deep(MAX_DEPTH));
        }
        open.push((stack.len(), node.children));
        while let Some((_, 0)) = open.last() {
            open.pop();
            let Some((length, left)) = open.last_mut() else {
                // The root is complete; Pyroscope ignores what follows it.
                return Ok(());
            };
            *left = left.saturating_sub(1);
            stack.truncate(*length);
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
    fn frames_are_joined_from_the_root() {
        let text = parse(&[
            node("", 0, 2),
            node("main", 1, 2),
            node("a", 2, 0),
            node("b", 3, 0),
            node("other", 4, 0),
        ]);
        assert_eq!(text.unwrap(), "main 1\nmain;a 2\nmain;b 3\nother 4\n");
        assert_eq!(parse(&[]).unwrap(), "");
    }

    #[test]
    fn damaged_or_deep_tree_is_refused() {
        let missing = parse(&[node("", 0, 2), node("a", 1, 1)]).unwrap_err();
        assert_eq!(missing, StackError::Truncated(3));
        let deep = vec![node("f", 0, 1); MAX_DEPTH + 1];
        assert_eq!(parse(&deep).unwrap_err(), StackError::Deep(MAX_DEPTH));
        let announced = parse(&[node("", 0, u64::MAX), node("", 0, u64::MAX)]).unwrap_err();
        assert_eq!(announced, StackError::Truncated(u64::MAX));
    }

    #[test]
    fn deep_tree_that_expands_to_much_text_is_refused() {
        let nodes = vec![node("frame", 1, 1); 5000];
        assert!(matches!(parse(&nodes), Err(StackError::NoRoom(_))));
    }
}
