//! Common parts of the rows of all tables: timestamp and origin.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::attributes::{Pairs, Sets};
use super::context::{Context, Contexts, Known, Origin, SERVICE_NAME};
use super::cost::row_memory;
use super::gathered::gathered;
use super::group::RowGroup;
use super::kind::{Partition, TableKind};
use super::options::{AttributeOwner, Promoted};
use super::order::Rows;
use super::strings::{NONE, Strings};
use super::{Sink, Table, WriteError};
use tributary_otlp::Malformed;
use tributary_otlp::view::{AnyValue, Message, Resource, View as _, attribute};

gathered! {
    /// Common columns of the rows of all tables.
    pub(super) struct Shared {
        pub(super) texts: Strings,
        pub(super) pairs: Pairs,
        pub(super) contexts: Contexts,
        /// Attributes of the rows themselves; stacks have none.
        pub(super) attributes: Sets,
        context: Vec<u32>,
        times: Vec<i64>,
        /// Number of list entries that rows share, as often as they are written.
        entries: usize,
    }
}

impl Shared {
    /// Begins a row.
    #[inline]
    pub(super) fn push(&mut self, time: i64, context: u32) {
        self.times.push(time);
        self.context.push(context);
        self.share(self.contexts.get(context).attributes as usize);
    }

    /// Counts a list with that many entries, which is stored once for many rows but written for
    /// each row.
    #[inline]
    pub(super) fn share(&mut self, entries: usize) {
        self.entries += entries;
    }

    /// Returns the number of list entries that rows share, as often as they are written.
    pub(super) fn entries(&self) -> usize {
        self.entries
    }

    /// Returns the number of attributes of a row's resource and scope.
    pub(super) fn entries_of(&self, row: usize) -> usize {
        self.contexts.get(self.context[row]).attributes as usize
    }

    /// Returns the number of the rows' origin in the table with these contents.
    pub(super) fn context(&mut self, contents: u64, origin: &Origin<'_>, known: &mut Known) -> u32 {
        let (pairs, texts) = (&mut self.pairs, &mut self.texts);
        self.contexts.add(contents, origin, known, pairs, texts)
    }

    pub(super) fn rows(&self) -> usize {
        self.times.len()
    }

    pub(super) fn times(&self) -> &[i64] {
        &self.times
    }

    /// Returns the rows sorted by service, by `key`, and by time. Equal rows keep their order.
    pub(super) fn order(&self, key: impl Fn(usize) -> u32) -> Vec<u32> {
        let contexts = 0..self.contexts.len() as u32;
        let services = contexts.map(|context| self.contexts.get(context).service);
        let ranks = self.texts.ranks(services.clone());
        let ranks: Vec<u32> = services
            .map(|service| ranks.get(service as usize).copied().unwrap_or(u32::MAX))
            .collect();
        let rows = self.times.iter().zip(&self.context).enumerate();
        let mut rows: Vec<(u32, u32, i64, u32)> = rows
            .map(|(at, (time, context))| (ranks[*context as usize], key(at), *time, at as u32))
            .collect();
        // Most rows arrive in order, or in long ordered runs.
        rows.sort();
        rows.into_iter().map(|(.., at)| at).collect()
    }

    /// Returns the contexts of rows, each with the length of its run of rows.
    fn runs(&self, rows: Rows<'_>) -> Vec<(u32, usize)> {
        let contexts: Vec<u32> = rows.of(&self.context).collect();
        let runs = contexts.chunk_by(|a, b| a == b);
        runs.map(|run| (run[0], run.len())).collect()
    }

    /// Maps the contexts of runs.
    fn of_context<'s, T>(
        &'s self,
        runs: &'s [(u32, usize)],
        get: impl Fn(&'s Context) -> T + Clone + 's,
    ) -> impl Iterator<Item = (T, usize)> + Clone + 's {
        let runs = runs.iter();
        runs.map(move |(context, rows)| (get(self.contexts.get(*context)), *rows))
    }

    pub(super) fn write_times(
        &self,
        rows: Rows<'_>,
        group: &mut RowGroup<'_>,
    ) -> Result<(), WriteError> {
        group.times(["timestamp", "timestamp_nanos"], rows.of(&self.times))
    }

    pub(super) fn write_service(
        &self,
        rows: Rows<'_>,
        group: &mut RowGroup<'_>,
    ) -> Result<(), WriteError> {
        let runs = self.runs(rows);
        let services = self.of_context(&runs, |context| context.service);
        group.runs_of_optional_texts("service_name", &self.texts, services)
    }

    pub(super) fn write_context(
        &self,
        rows: Rows<'_>,
        group: &mut RowGroup<'_>,
    ) -> Result<(), WriteError> {
        let (texts, pairs) = (&self.texts, &self.pairs);
        let runs = self.runs(rows);
        let column = |get: fn(&Context) -> u32| self.of_context(&runs, get);
        let scopes = &self.contexts.scopes;
        let of = column(|c| c.scope).map(|(at, rows)| (at as usize, rows));
        let sets = of.clone().map(|(at, rows)| (scopes.get(at), rows));
        let types = of.map(|(at, rows)| (scopes.types(at), rows));
        group.runs_of_texts("scope_name", texts, column(|c| c.scope_name))?;
        group.runs_of_texts("scope_version", texts, column(|c| c.scope_version))?;
        group.runs_of_maps("scope_attributes", pairs, sets)?;
        group.runs_of_texts("scope_attribute_types", texts, types)?;
        let name = "scope_dropped_attributes_count";
        group.runs_of_numbers(name, column(|c| c.scope_dropped))?;
        let urls = column(|c| c.scope_schema_url);
        group.runs_of_texts("scope_schema_url", texts, urls)?;
        let resources = &self.contexts.resources;
        let of = column(|c| c.resource).map(|(at, rows)| (at as usize, rows));
        let sets = of.clone().map(|(at, rows)| (resources.get(at), rows));
        let types = of.map(|(at, rows)| (resources.types(at), rows));
        group.runs_of_maps("resource_attributes", pairs, sets)?;
        group.runs_of_texts("resource_attribute_types", texts, types)?;
        let name = "resource_dropped_attributes_count";
        group.runs_of_numbers(name, column(|c| c.resource_dropped))?;
        let urls = column(|c| c.resource_schema_url);
        group.runs_of_texts("resource_schema_url", texts, urls)?;
        let entities = column(|c| c.resource_entities);
        group.runs_of_optional_texts("resource_entities", texts, entities)
    }

    /// Writes the columns of promoted attributes.
    pub(super) fn write_promoted(
        &self,
        promoted: &[Promoted],
        rows: Rows<'_>,
        group: &mut RowGroup<'_>,
    ) -> Result<(), WriteError> {
        let runs = match promoted {
            [] => Vec::new(),
            _ => self.runs(rows),
        };
        for promoted in promoted {
            let key = self.pairs.keys.find(promoted.key.as_bytes());
            let find = |set: &[u32]| {
                let pair = set.iter().find(|pair| Some(self.pairs.key(**pair)) == key);
                pair.copied().unwrap_or(NONE)
            };
            let values = &self.pairs.values;
            let column = promoted.column();
            match promoted.source {
                AttributeOwner::Item => {
                    let sets = rows.iter().map(|row| self.attributes.get(row));
                    group.optional_texts(&column, values, sets.map(find))?;
                }
                AttributeOwner::Resource => {
                    let resources = 0..self.contexts.resources.len();
                    let sets = resources.map(|at| self.contexts.resources.get(at));
                    let found: Vec<u32> = sets.map(find).collect();
                    let runs = self.of_context(&runs, |context| found[context.resource as usize]);
                    group.runs_of_optional_texts(&column, values, runs)?;
                }
            }
        }
        Ok(())
    }
}

/// Returns the hour of a time in nanoseconds since 1970.
pub(super) fn hour(time: u64) -> i64 {
    const HOUR: u64 = 3_600_000_000_000;
    (time / HOUR).cast_signed()
}

pub(super) fn service(resource: &[u8]) -> Arc<str> {
    let attributes = Resource::view(Message::new(resource)).attributes();
    let key = str::from_utf8(SERVICE_NAME).unwrap_or_default();
    let value = attribute(attributes, key).unwrap_or(AnyValue::Empty);
    let mut text = Vec::new();
    super::text::put(&value, &mut text);
    String::from_utf8_lossy(&text).into()
}

/// Shared data of rows that a table has once, such as a resource and scope.
#[derive(Debug, Default)]
pub(super) struct OncePerTable {
    /// Step and partition of the table that has the data.
    has_data: Option<(usize, Partition)>,
}

impl OncePerTable {
    /// Asks the sink for room for rows. The first row takes `row` bytes, and the shared data takes
    /// `shared` bytes in a table that does not have the data. Returns the memory of the first row and
    /// the admitted memory, in bytes; `None` if the row is not admitted.
    pub(super) fn admits(
        &mut self,
        sink: &mut dyn Sink,
        partition: &Partition,
        row: usize,
        shared: usize,
    ) -> Option<(usize, usize)> {
        let mut memory = row;
        loop {
            let step = sink.step();
            let here = Some((step, partition.clone()));
            if self.has_data != here {
                memory = row.saturating_add(shared);
                self.has_data = here;
            }
            let admitted = sink.admits(partition, memory)?;
            // A new step has tables without the data.
            if sink.step() == step {
                return Some((memory, admitted));
            }
        }
    }
}

/// An item that becomes a row.
pub(super) struct Item<T> {
    pub(super) time: u64,
    /// Memory of the row in its table, in bytes.
    pub(super) memory: usize,
    pub(super) content: T,
}

/// Destination of the items of a scope.
pub(super) struct Place<'p, 'r> {
    pub(super) sink: &'p mut dyn Sink,
    pub(super) origin: &'p Origin<'r>,
    pub(super) known: &'p mut Known,
    pub(super) service: Option<Arc<str>>,
    /// The origin in the tables of the sink.
    pub(super) once: OncePerTable,
}

impl Place<'_, '_> {
    /// Appends items to their tables. Each table gets `shared` bytes that the items share, besides
    /// the origin. Breaks if a row is not admitted.
    pub(super) fn append<I>(
        &mut self,
        kind: TableKind,
        shared: usize,
        mut items: impl Iterator<Item = Result<Item<I>, Malformed>>,
        mut push: impl FnMut(&mut Table, u32, I),
    ) -> Result<ControlFlow<()>, Malformed> {
        let mut next = items.next().transpose()?;
        while let Some(item) = next {
            let partition = Partition {
                hour: hour(item.time),
                service: self.service.clone(),
            };
            let alone = item.memory.saturating_add(row_memory(shared, 0));
            let origin = self.origin.memory();
            let Some((mut memory, admitted)) =
                self.once.admits(self.sink, &partition, alone, origin)
            else {
                return Ok(ControlFlow::Break(()));
            };
            let mut table = self.sink.table(kind, &partition);
            let mut context = 0;
            if let Some(table) = &mut table {
                let contents = table.contents();
                context = table.shared.context(contents, self.origin, self.known);
                push(table, context, item.content);
            }
            next = loop {
                match items.next().transpose()? {
                    Some(item)
                        if hour(item.time) == partition.hour
                            && memory.saturating_add(item.memory) <= admitted =>
                    {
                        memory += item.memory;
                        if let Some(table) = &mut table {
                            push(table, context, item.content);
                        }
                    }
                    other => break other,
                }
            };
            self.sink.took(memory);
        }
        Ok(ControlFlow::Continue(()))
    }
}
