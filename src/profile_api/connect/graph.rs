//! Flame graphs in Pyroscope's form: levels of numbers.
//!
//! A frame of a level is its distance from the frame before it, its total, its own value, and its name. In a comparison
//! the first three are there for each side. Callees begin behind the own value of their caller.

use super::messages::{FlameGraph, FlameGraphDiff, Level};
use tributary_profile_store::FlameView;
use tributary_profile_store::view::FlameFrame;

const ROOT: &str = "total";
/// Name of a frame that stands for omitted frames.
const OTHER: &str = "other";

/// Returns the graph of a view of a single selection.
pub(super) fn single(view: &FlameView) -> FlameGraph {
    let mut sides = [Side::new(view, 0)];
    let (names, levels) = levels(view, &mut sides);
    let [side] = &sides;
    FlameGraph {
        names,
        levels,
        total: total(view, 0),
        max_self: side.max_self,
    }
}

pub(super) fn comparison(view: &FlameView) -> FlameGraphDiff {
    let mut sides = [Side::new(view, 0), Side::new(view, 1)];
    let (names, levels) = levels(view, &mut sides);
    let [left, right] = [0, 1].map(|column| total(view, column));
    FlameGraphDiff {
        names,
        levels,
        total: left.saturating_add(right),
        max_self: sides
            .iter()
            .map(|side| side.max_self)
            .max()
            .unwrap_or_default(),
        left_ticks: left,
        right_ticks: right,
    }
}

fn total(view: &FlameView, column: usize) -> i64 {
    positive(view.totals, column)
}

/// Returns a value; widths cannot be negative.
fn positive(values: [i64; 2], column: usize) -> i64 {
    values.get(column).copied().unwrap_or_default().max(0)
}

/// The layout of one column of values.
struct Side {
    column: usize,
    /// Left edge of the next callee of each frame.
    free: Vec<i64>,
    /// Right edge of the last frame of each level.
    end: Vec<i64>,
    max_self: i64,
}

impl Side {
    fn new(view: &FlameView, column: usize) -> Self {
        Side {
            column,
            free: Vec::with_capacity(view.frames.len()),
            end: Vec::new(),
            max_self: 0,
        }
    }

    /// Places the next frame of a view. Returns its distance from the frame before, its total and its own value.
    fn place(&mut self, at: usize, frame: &FlameFrame, depth: usize) -> [i64; 3] {
        let total = positive(frame.total, self.column);
        let own = match frame.elided {
            0 => positive(frame.own, self.column),
            _ => total,
        };
        self.max_self = self.max_self.max(own);
        let left = match at {
            0 => 0,
            _ => self.free.get(frame.parent).copied().unwrap_or_default(),
        };
        if let Some(free) = self.free.get_mut(frame.parent) {
            *free = free.saturating_add(total);
        }
        // A frame has its own value on its left, and then its callees.
        self.free.push(left.saturating_add(own));
        if depth >= self.end.len() {
            self.end.resize(depth + 1, 0);
        }
        let end = self.end.get_mut(depth);
        let before = end.map(|end| std::mem::replace(end, left.saturating_add(total)));
        [left.saturating_sub(before.unwrap_or_default()), total, own]
    }
}

fn levels(view: &FlameView, sides: &mut [Side]) -> (Vec<String>, Vec<Level>) {
    // The names of the root and of omitted frames are empty in a view.
    let mut names = vec![ROOT.to_owned(), OTHER.to_owned()];
    names.extend(view.names.iter().cloned());
    let mut levels: Vec<Level> = Vec::new();
    for (at, (frame, depth)) in view.frames.iter().zip(view.depths()).enumerate() {
        if depth >= levels.len() {
            levels.resize(depth + 1, Level::default());
        }
        let name = match (at, frame.elided) {
            (0, _) => 0,
            (_, 0) => frame.name + 2,
            _ => 1,
        };
        if let Some(level) = levels.get_mut(depth) {
            for side in sides.iter_mut() {
                level.values.extend(side.place(at, frame, depth));
            }
            level.values.push(i64::try_from(name).unwrap_or_default());
        }
    }
    (names, levels)
}
