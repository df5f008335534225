//! `${...}` in values.

use super::node::Node;
use super::report::Report;

/// Expands every scalar of the tree in place.
pub(super) fn expand(tree: &mut Node, report: &mut Report) {
    let _ = (tree, report);
}
