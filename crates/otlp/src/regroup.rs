//! Regroups a request by attributes: items with equal values of some attributes get a resource with these attributes.
//!
//! Items with none of the attributes stay with a resource that equals their own. Equal resources, and equal scopes
//! within a resource, become one. Items are copied as they are, without the attributes that moved to their resource.
//!
//! Messages are compared in encoded form, attributes in any order. A request in which a singular message occurs twice is
//! decoded, merged and encoded first.

mod identity;
mod node;
mod tree;

use self::identity::Grouping;
use self::node::Node;
use self::tree::Tree;
use super::count::metric_data;
use super::edit::{EditError, put_delimited};
use super::reader::{Field, Fields, WireFault};
use super::room::{Room, RoomExhausted};
use crate::Signal;

/// A regrouped request.
#[derive(Debug)]
pub struct Regrouped {
    /// The request.
    pub request: Vec<u8>,
    /// Number of its resources.
    pub resources: usize,
    /// Number of items with at least one of the attributes.
    pub grouped: usize,
    /// Number of items without any of the attributes.
    pub ungrouped: usize,
}

/// Regroups a valid request of traces, metrics or logs by the attributes `keys`, with memory from `room`. The result has
/// all items. Resources, scopes and metrics without items are omitted.
///
/// # Errors
/// Fails if the request is invalid, or if `room` is exhausted.
pub fn regroup(
    signal: Signal,
    request: &[u8],
    keys: &[String],
    room: &dyn Room,
) -> Result<Regrouped, EditError> {
    match Walk::new(signal, keys, room).request(request) {
        Err(Fault::RoomExhausted(full)) => return Err(full.into()),
        Err(Fault::Ambiguous) => {}
        Ok(regrouped) => return Ok(regrouped),
    }
    room.take(super::decoded_bytes(signal, request))?;
    let merged = super::merge_repeated(signal, request)?;
    let regrouped = Walk::new(signal, keys, room).request(&merged);
    regrouped.map_err(|fault| match fault {
        Fault::RoomExhausted(full) => full.into(),
        Fault::Ambiguous => super::Malformed::new(0, "not a valid request").into(),
    })
}

/// Reason why a request cannot be regrouped in encoded form.
#[derive(Debug)]
enum Fault {
    /// A singular message occurs twice, or the request is invalid.
    Ambiguous,
    RoomExhausted(RoomExhausted),
}

impl From<WireFault> for Fault {
    fn from(_: WireFault) -> Self {
        Fault::Ambiguous
    }
}

impl From<RoomExhausted> for Fault {
    fn from(full: RoomExhausted) -> Self {
        Fault::RoomExhausted(full)
    }
}

/// Number of the field with the attributes of an item.
fn attributes_of(signal: Signal, data: u32) -> u32 {
    match (signal, data) {
        (Signal::Traces, _) => 9,
        (Signal::Logs, _) => 6,
        (_, 9) => 9,  // histogram
        (_, 10) => 1, // exponential histogram
        _ => 7,       // gauge, sum, summary
    }
}

struct Walk<'a, 'r> {
    signal: Signal,
    keys: &'r [String],
    room: &'r dyn Room,
    tree: Tree<'a>,
    grouped: usize,
    ungrouped: usize,
}

impl<'a, 'r> Walk<'a, 'r> {
    fn new(signal: Signal, keys: &'r [String], room: &'r dyn Room) -> Self {
        Walk {
            signal,
            keys,
            room,
            tree: Tree::default(),
            grouped: 0,
            ungrouped: 0,
        }
    }

    fn request(mut self, request: &'a [u8]) -> Result<Regrouped, Fault> {
        let mut unknown = Vec::new();
        for field in Fields::new(request) {
            let field = field?;
            match field.number == 1 && field.value.bytes().is_some() {
                true => self.resource(&field)?,
                false => unknown.push(field.raw),
            }
        }
        self.room.take(self.tree.bytes() + request.len())?;
        let mut output = self.tree.write();
        output.extend(unknown.into_iter().flatten());
        Ok(Regrouped {
            request: output,
            resources: self.tree.resources(),
            grouped: self.grouped,
            ungrouped: self.ungrouped,
        })
    }

    fn resource(&mut self, entry: &Field<'a>) -> Result<(), Fault> {
        let mut grouping = Grouping::of(entry, self.room)?;
        for scope in entry.fields() {
            let scope = scope?;
            if scope.number != 2 || scope.value.bytes().is_none() {
                continue;
            }
            let header = identity::scope(&scope)?;
            for item in scope.fields() {
                let item = item?;
                if item.number != 2 || item.value.bytes().is_none() {
                    continue;
                }
                match self.signal {
                    Signal::Metrics => self.metric(&mut grouping, &header, &item)?,
                    _ => self.item(&mut grouping, &[&header], &item, 0)?,
                }
            }
        }
        grouping.release(self.room);
        Ok(())
    }

    fn metric(
        &mut self,
        grouping: &mut Grouping<'a>,
        scope: &Node,
        metric: &Field<'a>,
    ) -> Result<(), Fault> {
        let mut data = None;
        for field in metric.fields() {
            let field = field?;
            if metric_data(&field).is_some() && data.replace(field).is_some() {
                return Err(Fault::Ambiguous);
            }
        }
        let Some(data) = data else {
            return Ok(());
        };
        let mut outer = identity::around(metric, 2, data.number)?;
        let inner = identity::around(&data, data.number, 1)?;
        // A metric has one form of data with one temporality.
        put_delimited(data.number, &inner.header, &mut outer.identity);
        for point in data.fields() {
            let point = point?;
            if point.number == 1 && point.value.bytes().is_some() {
                self.item(grouping, &[scope, &outer, &inner], &point, data.number)?;
            }
        }
        Ok(())
    }

    /// Adds a span, log record or data point below the path of messages around it.
    fn item(
        &mut self,
        grouping: &mut Grouping<'a>,
        path: &[&Node],
        item: &Field<'a>,
        data: u32,
    ) -> Result<(), Fault> {
        let number = attributes_of(self.signal, data);
        let moved = grouping.moved(item, number, self.keys)?;
        match moved.is_empty() {
            true => self.ungrouped += 1,
            false => self.grouped += 1,
        }
        let room = self.room;
        let resource = self.tree.resource(grouping, &moved, room)?;
        let parent = self.tree.descend(resource, path, room)?;
        let kept = moved.without(item, number)?;
        Ok(self.tree.add(parent, kept, room)?)
    }
}

#[cfg(test)]
mod tests;
