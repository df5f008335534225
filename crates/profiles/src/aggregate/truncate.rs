//! Folds the lightest subtrees of a call tree into one frame each.

use std::cmp::Reverse;
use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::super::dictionary::Dictionary;
use super::super::id::{Id as _, LocationId, SampleId};
use super::super::model::Samples;
use super::super::table::Records;
use crate::entry::SampleKey;

/// Name of the frame for folded parts.
pub(super) const OTHER: &str = "other";

/// A node of the call tree; 0 is the root, above the outermost frame.
type Node = usize;

/// Keeps the `most` heaviest nodes of the call tree. The dropped children of a kept node become a frame `other` under
/// it, so that the total of every kept node stays the same. The weight of a node is the sum of all absolute values
/// under it. Of equally heavy nodes, the first ones stay. Returns the number of saturated sums.
pub(super) fn truncate(samples: &mut Samples, most: usize, dictionary: &mut Dictionary) -> u64 {
    let mut children: HashMap<(Node, LocationId), Node, RandomState> = HashMap::default();
    let mut weights: Vec<u128> = vec![0];
    for sample in samples.iter() {
        let weight = u128::from(sample.total().0.unsigned_abs());
        let mut node = 0;
        for location in dictionary.locations(sample.key.stack).iter().rev() {
            let next = weights.len();
            node = *children.entry((node, *location)).or_insert(next);
            if node == next {
                weights.push(0);
            }
            if let Some(sum) = weights.get_mut(node) {
                *sum += weight;
            }
        }
    }
    if weights.len() - 1 <= most {
        return 0;
    }
    // A node is never heavier than its caller and follows it in the order, so the first nodes form a tree.
    let mut order: Vec<(Reverse<u128>, Node)> = (0..)
        .zip(&weights)
        .skip(1)
        .map(|(node, weight)| (Reverse(*weight), node))
        .collect();
    let (heaviest, _, _) = order.select_nth_unstable(most);
    let mut keep = vec![false; weights.len()];
    for (_, node) in heaviest {
        if let Some(keep) = keep.get_mut(*node) {
            *keep = true;
        }
    }
    let other = dictionary.named_location(OTHER);
    let mut keys = Records::<SampleId, SampleKey>::without_zero();
    let mut totals: Vec<i64> = Vec::new();
    let mut saturated = 0;
    for sample in samples.iter() {
        let stack = dictionary.locations(sample.key.stack);
        let mut node = 0;
        let mut kept = 0;
        for location in stack.iter().rev() {
            let Some(next) = children.get(&(node, *location)) else {
                break;
            };
            if !keep.get(*next).is_some_and(|keep| *keep) {
                break;
            }
            node = *next;
            kept += 1;
        }
        let mut key = sample.key;
        if kept < stack.len() {
            let mut shorter = vec![other];
            shorter.extend(stack.iter().skip(stack.len() - kept));
            key.stack = dictionary.stack(&shorter);
        }
        let at = keys.intern(key).index();
        if at >= totals.len() {
            totals.resize(at + 1, 0);
        }
        if let Some(total) = totals.get_mut(at) {
            let (value, cut) = sample.total();
            let sum = total.checked_add(value);
            saturated += u64::from(cut || sum.is_none());
            *total = sum.unwrap_or_else(|| total.saturating_add(value));
        }
    }
    let mut truncated = Samples::default();
    for (key, total) in keys.entries().iter().zip(totals) {
        if total != 0 {
            truncated.push(*key, &[total], &[]);
        }
    }
    *samples = truncated;
    saturated
}
