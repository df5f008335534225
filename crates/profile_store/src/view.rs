//! Parts of a call tree that are small enough to draw.
//!
//! A view has the heaviest nodes below a node. The other children of a drawn node become one frame,
//! which states the number of omitted nodes. Such a frame has an address: the path of its parent,
//! and the number of heavier children that are drawn. A view of the address draws the heaviest of
//! the omitted nodes.

use std::cmp::Reverse;

use serde::Serialize;

use super::tree::{ROOT, Tree, Values, sum};

/// Address of a part of a tree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Zoom {
    /// Names of the functions from the root on; empty for the whole tree.
    pub path: Vec<String>,
    /// Number of the heaviest children at the end of the path that are left out.
    pub skip: usize,
}

/// Factors of the two values of a tree, for the width of frames.
pub type FlameScales = [f64; 2];

/// Returns the factors that make the totals of a comparison equal to the total of the second profile, so that only
/// shares are compared. Unchanged values if a total is 0.
pub fn normalized(tree: &Tree) -> FlameScales {
    match tree.totals().map(|total| total as f64) {
        [before, after] if before != 0.0 && after != 0.0 => [after / before, 1.0],
        _ => [1.0; 2],
    }
}

/// A part of a tree, as frames.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct FlameView {
    /// Type of the values.
    #[serde(rename = "type")]
    pub kind: String,
    /// Unit of the values.
    pub unit: String,
    /// Sums of all values of the tree.
    pub totals: Values,
    /// Names of functions.
    pub names: Vec<String>,
    /// Frames: a caller before its callees, and callees ordered by name.
    pub frames: Vec<FlameFrame>,
    /// Position of the frame that the view zooms to. The frames before are its callers.
    pub zoomed: usize,
    /// Width of the heavier children that the address of the view leaves out.
    pub skipped: f64,
}

/// A frame of a view.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct FlameFrame {
    /// Position of the caller; the caller of the root is the root.
    pub parent: usize,
    /// Position of the name.
    pub name: usize,
    /// Values with callees.
    pub total: Values,
    /// Values of the function itself.
    pub own: Values,
    /// Width: sum of the absolute values, with the scales of the view.
    pub weight: f64,
    /// Number of omitted nodes that the frame stands for; 0 for an ordinary frame.
    #[serde(skip_serializing_if = "is_zero")]
    pub elided: usize,
    /// Number of heavier children beside a frame of omitted nodes; 0 for an ordinary frame.
    #[serde(skip_serializing_if = "is_zero")]
    pub skip: usize,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// Nodes by position.
struct Weights {
    /// Width of each node.
    weights: Vec<f64>,
    /// Number of nodes in the subtree of each node, with the node.
    sizes: Vec<usize>,
}

impl Weights {
    fn of(tree: &Tree, scales: FlameScales) -> Self {
        let own = |own: Values| -> f64 {
            let parts = own.iter().zip(scales);
            parts
                .map(|(value, scale)| (*value as f64 * scale).abs())
                .sum()
        };
        let mut weights: Vec<f64> = tree.nodes.iter().map(|node| own(node.own)).collect();
        let mut sizes = vec![1; weights.len()];
        for (at, node) in tree.nodes.iter().enumerate().skip(1).rev() {
            let (weight, size) = (weights.get(at).copied(), sizes.get(at).copied());
            if let Some(sum) = weights.get_mut(node.parent as usize) {
                *sum += weight.unwrap_or_default();
            }
            if let Some(sum) = sizes.get_mut(node.parent as usize) {
                *sum += size.unwrap_or_default();
            }
        }
        Weights { weights, sizes }
    }

    fn weight(&self, node: usize) -> f64 {
        self.weights.get(node).copied().unwrap_or_default()
    }

    /// Rank of a node: the heaviest node first; of equal nodes, the first one.
    fn rank(&self, node: usize) -> (Reverse<u64>, usize) {
        // The bits of non-negative numbers are ordered like the numbers.
        (Reverse(self.weight(node).to_bits()), node)
    }
}

impl Tree {
    /// Returns the heaviest `most` nodes at an address. Returns `None` if the path does not exist.
    pub fn view(&self, zoom: &Zoom, most: usize, scales: FlameScales) -> Option<FlameView> {
        let target = self.find(&zoom.path)?;
        let weights = Weights::of(self, scales);
        let mut below: Vec<u32> = self.children(target).to_vec();
        below.sort_by_key(|child| weights.rank(*child as usize));
        let skip = zoom.skip.min(below.len());
        let skipped = below
            .drain(..skip)
            .map(|child| weights.weight(child as usize));
        let skipped = skipped.sum();
        let mut at = 0;
        while let Some(node) = below.get(at) {
            let children = self.children(*node as usize);
            below.extend_from_slice(children);
            at += 1;
        }
        // A node is never heavier than its caller and follows it in the order, so the first nodes form a tree.
        if below.len() > most {
            below.select_nth_unstable_by_key(most, |node| weights.rank(*node as usize));
            below.truncate(most);
        }
        let mut is_drawn = vec![false; self.nodes.len()];
        for node in below {
            if let Some(drawn) = is_drawn.get_mut(node as usize) {
                *drawn = true;
            }
        }
        let drawing = Drawing {
            tree: self,
            weights,
            is_drawn,
            names: vec![None; self.names.len()],
            view: FlameView {
                kind: self.sample_type.0.clone(),
                unit: self.sample_type.1.clone(),
                totals: self.totals(),
                skipped,
                ..FlameView::default()
            },
        };
        Some(drawing.draw(target, skip))
    }
}

struct Drawing<'t> {
    tree: &'t Tree,
    weights: Weights,
    is_drawn: Vec<bool>,
    /// Positions of names in the view, by their positions in the tree.
    names: Vec<Option<usize>>,
    view: FlameView,
}

impl Drawing<'_> {
    fn draw(mut self, target: usize, skip: usize) -> FlameView {
        let mut path = vec![target];
        let mut node = target;
        while node != ROOT {
            node = self
                .tree
                .nodes
                .get(node)
                .map_or(ROOT, |node| node.parent as usize);
            path.push(node);
        }
        let mut parent = 0;
        for node in path.into_iter().rev() {
            parent = self.frame(node, parent);
        }
        self.view.zoomed = parent;
        // Callees in reverse order, so that the first callee is on top.
        let mut open: Vec<Open> = Vec::new();
        self.open(target, parent, skip, &mut open);
        while let Some(next) = open.pop() {
            match next {
                Open::Node(node, parent) => {
                    let frame = self.frame(node, parent);
                    self.open(node, frame, 0, &mut open);
                }
                Open::Elided(frame) => {
                    self.view.frames.push(frame);
                }
            }
        }
        self.view
    }

    /// Opens the children of a node: the drawn children, and one frame for the omitted children.
    fn open(&mut self, node: usize, parent: usize, skip: usize, open: &mut Vec<Open>) {
        let tree = self.tree;
        let is_drawn = |child: &usize| self.is_drawn.get(*child).copied().unwrap_or_default();
        let children = || tree.children(node).iter().map(|child| *child as usize);
        let drawn: Vec<usize> = children().filter(is_drawn).collect();
        let others = children().filter(|child| !is_drawn(child));
        // The view with `skip` 0 draws the heaviest children.
        let mut others: Vec<usize> = others.collect();
        if skip > 0 {
            others.sort_by_key(|child| self.weights.rank(*child));
            others.drain(..skip.min(others.len()));
        }
        if !others.is_empty() {
            let mut frame = FlameFrame {
                parent,
                skip: skip + drawn.len(),
                name: self.name(0),
                ..FlameFrame::default()
            };
            for other in others {
                let total = tree.nodes.get(other).map(|node| node.total);
                frame.total = sum(frame.total, total.unwrap_or_default());
                frame.weight += self.weights.weight(other);
                frame.elided += self.weights.sizes.get(other).copied().unwrap_or_default();
            }
            open.push(Open::Elided(frame));
        }
        open.extend(
            drawn
                .into_iter()
                .rev()
                .map(|child| Open::Node(child, parent)),
        );
    }

    fn frame(&mut self, node: usize, parent: usize) -> usize {
        let from = self.tree.nodes.get(node).copied().unwrap_or_default();
        let name = self.name(from.name as usize);
        self.view.frames.push(FlameFrame {
            parent,
            name,
            total: from.total,
            own: from.own,
            weight: self.weights.weight(node),
            elided: 0,
            skip: 0,
        });
        self.view.frames.len() - 1
    }

    /// Returns the position of a name in the view.
    fn name(&mut self, name: usize) -> usize {
        let next = self.view.names.len();
        let Some(place) = self.names.get_mut(name) else {
            return 0;
        };
        let at = *place.get_or_insert(next);
        if at == next {
            let text = self.tree.names.get(name).cloned();
            self.view.names.push(text.unwrap_or_default());
        }
        at
    }
}

enum Open {
    /// A node, and the position of the frame of its caller.
    Node(usize, usize),
    Elided(FlameFrame),
}

impl FlameView {
    /// Returns the name of a frame; empty for the root and for omitted nodes.
    pub fn name(&self, frame: &FlameFrame) -> &str {
        self.names.get(frame.name).map_or("", String::as_str)
    }

    /// Depth of each frame: 0 for the root.
    pub fn depths(&self) -> Vec<usize> {
        let mut depths: Vec<usize> = Vec::with_capacity(self.frames.len());
        for (at, frame) in self.frames.iter().enumerate() {
            let depth = match at {
                0 => 0,
                _ => depths.get(frame.parent).copied().unwrap_or_default() + 1,
            };
            depths.push(depth);
        }
        depths
    }

    /// Left edge and width of each frame, as shares of the frame that the view zooms to. Its callers have the whole
    /// width.
    pub fn places(&self) -> Vec<(f64, f64)> {
        let whole = self
            .frames
            .get(self.zoomed)
            .map_or(0.0, |frame| frame.weight)
            - self.skipped;
        let mut places: Vec<(f64, f64)> = Vec::with_capacity(self.frames.len());
        // Left edge of the next callee of each frame.
        let mut free: Vec<f64> = Vec::with_capacity(self.frames.len());
        for (at, frame) in self.frames.iter().enumerate() {
            let place = match at > self.zoomed && whole > 0.0 {
                false => (0.0, 1.0),
                true => {
                    let left = free.get(frame.parent).copied().unwrap_or_default();
                    (left, frame.weight / whole)
                }
            };
            if let Some(next) = free.get_mut(frame.parent).filter(|_| at > self.zoomed) {
                *next += place.1;
            }
            places.push(place);
            free.push(place.0);
        }
        places
    }
}

#[cfg(test)]
mod tests;
