//! CPU profiles of V8 (`.cpuprofile`), as written by `node --cpu-prof` and by Chrome.
//!
//! A profile is a call tree, and a list of samples that refer to its nodes, with the times between them. The time of a
//! sample lasts until the next sample. Samples of the nodes `(idle)`, `(program)` and `(garbage collector)` are kept.

use std::borrow::Cow;
use std::collections::HashMap;

use foldhash::fast::RandomState;
use serde::Deserialize;
use tributary_profiles::id::{AttributeSetId, LocationId};

use crate::builder::{Builder, Frame};
use crate::error::Fault;
use crate::json;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct File<'f> {
    #[serde(borrow)]
    nodes: Vec<Node<'f>>,
    /// Microseconds since an unknown time.
    start_time: f64,
    end_time: f64,
    #[serde(default)]
    samples: Vec<u64>,
    /// Microseconds from the previous sample, and from the start to the first one.
    #[serde(default)]
    time_deltas: Vec<f64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Node<'f> {
    id: u64,
    #[serde(borrow)]
    call_frame: CallFrame<'f>,
    #[serde(default)]
    hit_count: i64,
    #[serde(default)]
    children: Vec<u64>,
    /// Written by Chrome instead of `children`.
    #[serde(default)]
    parent: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CallFrame<'f> {
    #[serde(borrow)]
    function_name: Cow<'f, str>,
    #[serde(borrow, default)]
    url: Cow<'f, str>,
    /// From 0; -1 if unknown.
    #[serde(default)]
    line_number: Option<i64>,
    #[serde(default)]
    column_number: Option<i64>,
}

/// Memory of a node in the tables of this module, in bytes.
const NODE: usize = 160;

pub(crate) fn begins_like(bytes: &[u8]) -> bool {
    json::mentions(bytes, &["\"nodes\"", "\"callFrame\"", "\"functionName\""])
}

/// The own values of a node.
#[derive(Debug, Clone, Copy, Default)]
struct Own {
    samples: i64,
    nanoseconds: i64,
}

pub(crate) fn read(bytes: &[u8], builder: &mut Builder<'_>) -> Result<(), Fault> {
    let file: File<'_> = json::parse(bytes, builder)?;
    builder.grow(file.nodes.len().saturating_mul(NODE))?;
    let mut positions: HashMap<u64, usize, RandomState> = HashMap::default();
    for (node, at) in file.nodes.iter().zip(0..) {
        if positions.insert(node.id, at).is_some() {
            return Err(Fault::whole(format!("two nodes have the id {}", node.id)));
        }
    }
    let find = |id: &u64| {
        let position = positions.get(id).copied();
        position.ok_or_else(|| Fault::whole(format!("there is no node {id}")))
    };
    let mut parents: Vec<Option<usize>> = vec![None; file.nodes.len()];
    let mut locations: Vec<LocationId> = Vec::new();
    for (node, at) in file.nodes.iter().zip(0..) {
        for child in &node.children {
            if let Some(parent) = parents.get_mut(find(child)?) {
                *parent = Some(at);
            }
        }
        if let (Some(id), Some(parent)) = (&node.parent, parents.get_mut(at)) {
            *parent = Some(find(id)?);
        }
        locations.push(location(&node.call_frame, builder)?);
    }
    let own = own_values(&file, find)?;
    let columns = [
        builder.sample_type("samples", "count")?,
        builder.sample_type("wall", "nanoseconds")?,
    ];
    let mut stack = Vec::new();
    for (own, at) in own.iter().zip(0..) {
        if own.samples == 0 && own.nanoseconds == 0 {
            continue;
        }
        stack.clear();
        let mut next = Some(at);
        while let Some(at) = next {
            if stack.len() > parents.len() {
                return Err(Fault::whole("a node is its own ancestor"));
            }
            stack.extend(locations.get(at));
            next = parents.get(at).copied().flatten();
        }
        // The root of the tree has no code.
        if stack.len() > 1 {
            stack.pop();
        }
        let values = [(columns[0], own.samples), (columns[1], own.nanoseconds)];
        builder.sample(&stack, AttributeSetId::default(), &values)?;
    }
    builder.cover(
        0,
        nanoseconds(file.end_time - file.start_time)
            .max(0)
            .cast_unsigned(),
    );
    Ok(())
}

fn own_values(
    file: &File<'_>,
    find: impl Fn(&u64) -> Result<usize, Fault>,
) -> Result<Vec<Own>, Fault> {
    let mut own = vec![Own::default(); file.nodes.len()];
    if file.samples.is_empty() {
        for (own, node) in own.iter_mut().zip(&file.nodes) {
            own.samples = node.hit_count;
        }
        return Ok(own);
    }
    let mut now = file.start_time + file.time_deltas.first().copied().unwrap_or_default();
    for (node, at) in file.samples.iter().zip(1..) {
        let next = match file.time_deltas.get(at) {
            Some(delta) => now + delta,
            // The last sample lasts until the end.
            None => file.end_time.max(now),
        };
        if let Some(own) = own.get_mut(find(node)?) {
            own.samples += 1;
            own.nanoseconds = own
                .nanoseconds
                .saturating_add(nanoseconds(next).saturating_sub(nanoseconds(now)));
        }
        now = next;
    }
    Ok(own)
}

/// Rounds microseconds to nanoseconds.
fn nanoseconds(microseconds: f64) -> i64 {
    (microseconds * 1000.0).round() as i64
}

fn location(frame: &CallFrame<'_>, builder: &mut Builder<'_>) -> Result<LocationId, Fault> {
    let from_one = |number: Option<i64>| number.unwrap_or(-1).saturating_add(1);
    builder.frame(&Frame {
        name: match &*frame.function_name {
            "" => "(anonymous)",
            name => name,
        },
        filename: &frame.url,
        line: from_one(frame.line_number),
        column: from_one(frame.column_number),
        kind: "v8js",
        ..Frame::default()
    })
}
