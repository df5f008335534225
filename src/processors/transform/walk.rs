//! A pass through a request of traces, metrics or logs.

use std::borrow::Cow;

use super::execution::{Untransformed, execute};
use super::groups::{Group, Pass, groups_within};
use super::parts::{Parts, is_data, without, without_points};
use crate::pipeline::output_memory::OutputMemory;
use tributary_net::sampled_log::SampledLog;
use tributary_otlp::edit::{Editor, Mark, put_delimited};
use tributary_otlp::reader::{Field, Fields};
use tributary_otlp::room::{Room as _, RoomExhausted, reserve};
use tributary_ottl::path::{Context, Depth};

/// Field of the scopes in the entry of a resource, and of the items in the entry of a scope.
const CHILDREN: u32 = 2;
/// Field of the events of a span.
const EVENTS: u32 = 11;
/// Field of the data points in the data of a metric.
const POINTS: u32 = 1;

/// Executes a pass; returns `None` if nothing changes.
pub(super) fn transform(
    pass: &Pass,
    request: &[u8],
    room: &OutputMemory,
    log: &SampledLog,
) -> Result<Option<Vec<u8>>, Untransformed> {
    let mut walk = Walk {
        pass,
        room,
        log,
        parts: Parts::default(),
        known: Default::default(),
        copied: [0; 3],
    };
    let mut editor = Editor::within(request, room);
    for entry in Fields::new(request) {
        let entry = entry?;
        if entry.number == 1 && entry.value.bytes().is_some() {
            editor.message(&entry, |editor| walk.resource(&entry, editor))?;
        }
    }
    Ok(editor.finish_within()?)
}

struct Walk<'w, 'a> {
    pass: &'w Pass,
    room: &'w OutputMemory,
    log: &'w SampledLog,
    parts: Parts<'a>,
    /// Groups partially evaluated for the current resource, scope and item, where they use them.
    known: [Option<Vec<Group>>; 3],
    /// Bytes taken from the memory budget for the values in `known`.
    copied: [usize; 3],
}

impl<'w, 'a> Walk<'w, 'a> {
    /// Executes the groups on the current item.
    fn execute(&mut self) -> Result<(), Untransformed> {
        let deepest = self.known.iter().rev().flatten().next();
        let groups = deepest.map_or(self.pass.groups.as_slice(), Vec::as_slice);
        execute(groups, &mut self.parts, self.room, self.log)
    }

    /// Begins another resource, scope or item at `depth`.
    fn leave(&mut self, depth: Depth) {
        for known in self.known.iter_mut().skip(depth as usize) {
            *known = None;
        }
        for copied in self.copied.iter_mut().skip(depth as usize) {
            self.room.release(std::mem::take(copied));
        }
    }

    /// Evaluates as much of the groups as the current part determines.
    fn enter(&mut self, depth: Depth) -> Result<(), RoomExhausted> {
        if !self.pass.keeps(depth) {
            return Ok(());
        }
        let deepest = self.known.iter().rev().flatten().next();
        let groups = deepest.map_or(self.pass.groups.as_slice(), Vec::as_slice);
        let within = groups_within(groups, depth, &self.parts.target());
        let bytes = within.iter().flatten().map(Group::copied_bytes).sum();
        self.room.take(bytes).map_err(|_| RoomExhausted)?;
        if let Some(copied) = self.copied.get_mut(depth as usize) {
            *copied = bytes;
        }
        if let Some(known) = self.known.get_mut(depth as usize) {
            *known = within;
        }
        Ok(())
    }

    /// Whether the pass changes parts at `depth`.
    fn writes(&self, depth: Depth) -> bool {
        self.pass.context.depth() == depth || self.pass.changes(depth)
    }

    /// Returns the fields that describe a resource or scope. If no statement changes them, the fields of its children
    /// stay, so that nothing is copied.
    fn header(&self, depth: Depth, entry: &'a [u8]) -> Cow<'a, [u8]> {
        match self.writes(depth) {
            true => Cow::Owned(without(entry, CHILDREN)),
            false => Cow::Borrowed(entry),
        }
    }

    fn resource(
        &mut self,
        entry: &Field<'a>,
        editor: &mut Editor<'a>,
    ) -> Result<(), Untransformed> {
        let mark = editor.mark();
        let header = self.header(Depth::Resource, entry.value.bytes().unwrap_or_default());
        self.parts.resource.begin(header, self.room);
        self.leave(Depth::Resource);
        if self.pass.context == Context::Resource {
            self.execute()?;
        } else {
            self.enter(Depth::Resource)?;
            for scope in entry.fields() {
                let scope = scope?;
                if scope.number == CHILDREN && scope.value.bytes().is_some() {
                    editor.message(&scope, |editor| self.scope(&scope, editor))?;
                }
            }
        }
        if let Some(header) = self.parts.resource.changed() {
            replace_header(entry, header, &mark, editor)?;
        }
        Ok(())
    }

    fn scope(&mut self, entry: &Field<'a>, editor: &mut Editor<'a>) -> Result<(), Untransformed> {
        let mark = editor.mark();
        let header = self.header(Depth::Scope, entry.value.bytes().unwrap_or_default());
        self.parts.scope.begin(header, self.room);
        self.leave(Depth::Scope);
        if self.pass.context == Context::Scope {
            self.execute()?;
        } else {
            self.enter(Depth::Scope)?;
            for item in entry.fields() {
                let item = item?;
                if item.number == CHILDREN
                    && let Some(bytes) = item.value.bytes()
                {
                    let changed = self.item(bytes, Cow::Borrowed)?;
                    if let Some(changed) = changed {
                        editor.splice(item.range(), |output| {
                            put_delimited(CHILDREN, &changed, output);
                        });
                    }
                }
            }
            self.added(entry, editor)?;
        }
        if let Some(header) = self.parts.scope.changed() {
            replace_header(entry, header, &mark, editor)?;
        }
        Ok(())
    }

    /// Appends the metrics that statements added to the scope. As in the Collector, the pass visits them too.
    fn added(&mut self, scope: &Field<'a>, editor: &mut Editor<'a>) -> Result<(), Untransformed> {
        let mut at = 0;
        while let Some(metric) = self.parts.added.get_mut(at).map(std::mem::take) {
            let taken = metric.len();
            let changed = self.item(&metric, |bytes| Cow::Owned(bytes.to_vec()))?;
            let metric = changed.unwrap_or(metric);
            editor.append(scope, |output| put_delimited(CHILDREN, &metric, output));
            if !editor.reserve(0) {
                return Err(Untransformed::Full);
            }
            self.room.release(taken);
            at += 1;
        }
        self.parts.added.clear();
        Ok(())
    }

    /// Executes the pass on a span, metric or log record; returns the changed item. `lend` makes the bytes available
    /// for as long as the walk.
    fn item<'i>(
        &mut self,
        item: &'i [u8],
        lend: impl Fn(&'i [u8]) -> Cow<'a, [u8]>,
    ) -> Result<Option<Vec<u8>>, Untransformed> {
        self.leave(Depth::Item);
        if self.pass.context.depth() == Depth::Item {
            self.parts.item.begin(lend(item), self.room);
            self.execute()?;
            return Ok(self.parts.item.changed().map(<[u8]>::to_vec));
        }
        let is_metric = self.pass.context == Context::DataPoint;
        let item_part = match (self.pass.changes(Depth::Item), is_metric) {
            (false, _) => lend(item),
            (true, true) => Cow::Owned(without_points(item)),
            (true, false) => Cow::Owned(without(item, EVENTS)),
        };
        self.parts.item.begin(item_part, self.room);
        self.enter(Depth::Item)?;
        let mut inner = Changed::default();
        for field in Fields::new(item) {
            let field = field?;
            let Some(bytes) = field.value.bytes() else {
                continue;
            };
            if is_metric && is_data(field.number) {
                self.parts.form = field.number;
                for point in Fields::new(bytes) {
                    let point = point?;
                    if point.number == POINTS
                        && let Some(bytes) = point.value.bytes()
                    {
                        self.inner(bytes, lend(bytes), &mut inner)?;
                    }
                }
            } else if !is_metric && field.number == EVENTS {
                self.inner(bytes, lend(bytes), &mut inner)?;
            }
        }
        let taken = inner.taken;
        let header = self.parts.item.changed();
        if header.is_none() && !inner.any {
            self.room.release(taken);
            return Ok(None);
        }
        let mut inner = inner.parts.into_iter();
        let changed = match (header, is_metric) {
            (None, true) => with_points(item, &mut inner),
            (None, false) => with_events(item, &mut inner),
            (Some(header), true) => with_new_points(header, item, &mut inner),
            (Some(header), false) => {
                let mut span = header.to_vec();
                inner.for_each(|event| put_delimited(EVENTS, &event, &mut span));
                span
            }
        };
        self.room.release(taken);
        Ok(Some(changed))
    }

    fn inner<'i>(
        &mut self,
        bytes: &'i [u8],
        lent: Cow<'a, [u8]>,
        changed: &mut Changed<'i>,
    ) -> Result<(), Untransformed> {
        self.parts.inner.begin(lent, self.room);
        self.execute()?;
        let slots = changed.parts.capacity();
        reserve(self.room, &mut changed.parts, 1)?;
        changed.taken += (changed.parts.capacity() - slots) * size_of::<Cow<'_, [u8]>>();
        changed.parts.push(match self.parts.inner.changed() {
            Some(bytes) => {
                self.room.take(bytes.len()).map_err(|_| RoomExhausted)?;
                changed.any = true;
                changed.taken += bytes.len();
                Cow::Owned(bytes.to_vec())
            }
            None => Cow::Borrowed(bytes),
        });
        Ok(())
    }
}

/// The events of a span or the data points of a metric, after the pass.
#[derive(Default)]
struct Changed<'i> {
    any: bool,
    parts: Vec<Cow<'i, [u8]>>,
    /// Bytes taken from the memory budget.
    taken: usize,
}

/// Replaces the fields that describe a resource or scope.
pub(super) fn replace_header<'a>(
    entry: &Field<'a>,
    header: &[u8],
    mark: &Mark,
    editor: &mut Editor<'a>,
) -> Result<(), Untransformed> {
    let mut header = Some(header);
    let body = entry.value.bytes().unwrap_or_default();
    let late = editor.mark();
    for field in entry.fields() {
        let field = field?;
        if field.number != CHILDREN {
            let header = header.take().unwrap_or_default();
            editor.splice_anywhere(field.range(), |output| {
                output.extend_from_slice(header);
            });
        }
    }
    if let Some(header) = header {
        let start = entry.range().end - body.len();
        editor.splice_anywhere(start..start, |output| output.extend_from_slice(header));
    }
    editor.order(mark, &late);
    match editor.reserve(0) {
        true => Ok(()),
        false => Err(RoomExhausted.into()),
    }
}

fn with_events<'i>(span: &[u8], events: &mut impl Iterator<Item = Cow<'i, [u8]>>) -> Vec<u8> {
    let mut output = Vec::with_capacity(span.len() + 64);
    for field in Fields::new(span).map_while(Result::ok) {
        match field.value.bytes() {
            Some(_) if field.number == EVENTS => {
                put_delimited(EVENTS, &events.next().unwrap_or_default(), &mut output);
            }
            _ => output.extend_from_slice(field.raw),
        }
    }
    output
}

fn with_points<'i>(metric: &[u8], points: &mut impl Iterator<Item = Cow<'i, [u8]>>) -> Vec<u8> {
    let mut output = Vec::with_capacity(metric.len() + 64);
    for field in Fields::new(metric).map_while(Result::ok) {
        match field.value.bytes().filter(|_| is_data(field.number)) {
            None => output.extend_from_slice(field.raw),
            Some(data) => {
                let mut changed = Vec::with_capacity(data.len() + 64);
                for field in Fields::new(data).map_while(Result::ok) {
                    match field.value.bytes() {
                        Some(_) if field.number == POINTS => {
                            let point = points.next().unwrap_or_default();
                            put_delimited(POINTS, &point, &mut changed);
                        }
                        _ => changed.extend_from_slice(field.raw),
                    }
                }
                put_delimited(field.number, &changed, &mut output);
            }
        }
    }
    output
}

/// Puts data points into a metric that was changed without them.
fn with_new_points<'i>(
    header: &[u8],
    before: &[u8],
    points: &mut impl Iterator<Item = Cow<'i, [u8]>>,
) -> Vec<u8> {
    let counts = Fields::new(before)
        .map_while(Result::ok)
        .filter(|field| is_data(field.number))
        .map(|field| {
            let fields = field.fields().map_while(Result::ok);
            fields.filter(|field| field.number == POINTS).count()
        });
    let mut counts = counts.collect::<Vec<_>>().into_iter();
    let mut output = Vec::with_capacity(before.len() + 64);
    for field in Fields::new(header).map_while(Result::ok) {
        match field.value.bytes().filter(|_| is_data(field.number)) {
            None => output.extend_from_slice(field.raw),
            Some(data) => {
                let mut changed = data.to_vec();
                for point in points.take(counts.next().unwrap_or_default()) {
                    put_delimited(POINTS, &point, &mut changed);
                }
                put_delimited(field.number, &changed, &mut output);
            }
        }
    }
    output
}
