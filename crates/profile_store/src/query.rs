//! Queries of a store: labels, totals over time, merged profiles, heat maps.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use tributary_profiles::dictionary::Link;

use super::block::Block;
use super::budget::QueryLimits;
use super::error::{MAX_STEPS, QueryError};
use super::heat::{Cells, HeatMap, MAX_SAMPLE_OFFSET_SECONDS};
use super::intake::Batch;
use super::options::WINDOWS;
use super::selector::Selector;
use super::series::Labels;
use super::store::ProfileStore;

pub(crate) const NANOS: u64 = 1_000_000_000;
/// Memory for decoding a section, as a multiple of its size: a sample of 8 bytes takes 36 bytes, in addition to its
/// encoded bytes and a copy of the dictionary.
pub(crate) const DECODED: u64 = 6;

/// Series, time and bounds of a query.
#[derive(Debug, Clone, Default)]
pub struct Query {
    /// Conditions on the labels.
    pub selector: Selector,
    /// Times in nanoseconds since 1970. A window belongs to the range if both overlap.
    pub range: Range<u64>,
    /// Spans whose samples are selected; `None` selects all samples.
    pub spans: Option<SpanSelection>,
    /// Bounds.
    pub limits: QueryLimits,
}

/// Selection of samples by the span that was active.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpanSelection {
    /// All spans of a trace.
    Trace([u8; 16]),
    /// Spans by their ids.
    Ids(BTreeSet<[u8; 8]>),
}

impl SpanSelection {
    pub(crate) fn has(&self, link: Link) -> bool {
        match self {
            SpanSelection::Trace(id) => link.trace_id == *id,
            SpanSelection::Ids(ids) => ids.contains(&link.span_id),
        }
    }
}

/// A series with its totals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeriesTotals {
    /// Labels of the series, or of a group of series.
    pub labels: Labels,
    /// Start of a step (in nanoseconds since 1970) and sum of the values, ordered by time. A window counts in the step
    /// of its start. Steps without profiles are left out.
    pub points: Vec<(u64, i64)>,
}

/// A consistent view of the store: every acknowledged profile once.
pub(crate) struct Snapshot {
    pub(crate) blocks: Vec<Arc<Block>>,
    pub(crate) batches: Vec<Arc<Batch>>,
}

impl Snapshot {
    /// Calls `visit` with every series, window, length of the window, and total in the range.
    pub(crate) fn visit(&self, query: &Query, mut visit: impl FnMut(&Arc<Labels>, u64, u64, i64)) {
        let mut matching = query.matching();
        for block in &self.blocks {
            let len = block.index.window_len();
            for entry in &block.index.entries {
                if overlaps(entry.window, len, &query.range) && matching.has(&entry.series) {
                    visit(&entry.series, entry.window, len, entry.total);
                }
            }
        }
        for entry in self.batches.iter().flat_map(|batch| &batch.entries) {
            if overlaps(entry.window, WINDOWS[0], &query.range) && matching.has(&entry.series) {
                visit(&entry.series, entry.window, WINDOWS[0], entry.total);
            }
        }
    }
}

/// Decisions of a selector, cached for each series.
pub(crate) struct Matching<'q> {
    selector: &'q Selector,
    known: HashMap<*const Labels, bool, RandomState>,
}

impl Matching<'_> {
    pub(crate) fn has(&mut self, series: &Arc<Labels>) -> bool {
        let selector = self.selector;
        let known = self.known.entry(Arc::as_ptr(series));
        *known.or_insert_with(|| selector.matches(series))
    }
}

pub(crate) fn overlaps(window: u64, len: u64, range: &Range<u64>) -> bool {
    let end = window.saturating_add(len).saturating_mul(NANOS);
    window.saturating_mul(NANOS) < range.end && end > range.start
}

impl ProfileStore {
    pub(crate) fn snapshot(&self) -> Snapshot {
        let catalog = self.lock();
        Snapshot {
            blocks: catalog.blocks.clone(),
            batches: catalog
                .heads
                .iter()
                .flat_map(|head| head.batches())
                .collect(),
        }
    }

    fn visit(&self, query: &Query, visit: impl FnMut(&Arc<Labels>, u64, u64, i64)) {
        self.snapshot().visit(query, visit);
    }

    /// Returns the times of the oldest and of the newest window, in nanoseconds since 1970. `None` if the store is
    /// empty.
    pub fn extent(&self) -> Option<Range<u64>> {
        let snapshot = self.snapshot();
        let of_blocks = snapshot.blocks.iter().flat_map(|block| {
            let len = block.index.window_len();
            let windows = block.index.entries.iter().map(|entry| entry.window);
            windows.map(move |window| (window, window.saturating_add(len)))
        });
        let batches = snapshot.batches.iter().flat_map(|batch| &batch.entries);
        let of_batches =
            batches.map(|entry| (entry.window, entry.window.saturating_add(WINDOWS[0])));
        let nanos = |seconds: u64| seconds.saturating_mul(NANOS);
        of_blocks.chain(of_batches).fold(None, |all, (start, end)| {
            let window = nanos(start)..nanos(end);
            Some(match all {
                None => window,
                Some(Range::<u64> { start, end }) => start.min(window.start)..end.max(window.end),
            })
        })
    }

    /// Returns the names of all labels of the selected series, in order.
    pub fn label_names(&self, query: &Query) -> Vec<String> {
        let mut names = BTreeSet::new();
        self.visit_series(query, |series| {
            names.extend(series.iter().map(|(name, _)| name.to_owned()));
        });
        names.into_iter().collect()
    }

    /// Returns the values of a label of the selected series, in order, without the empty value.
    pub fn label_values(&self, label: &str, query: &Query) -> Vec<String> {
        let mut values = BTreeSet::new();
        self.visit_series(query, |series| {
            values.insert(series.get(label).to_owned());
        });
        values.remove("");
        values.into_iter().collect()
    }

    /// Returns the labels of the selected series, in order.
    pub fn series(&self, query: &Query) -> Vec<Labels> {
        let mut all = BTreeSet::new();
        self.visit_series(query, |series| {
            all.insert(series.clone());
        });
        all.into_iter().collect()
    }

    fn visit_series(&self, query: &Query, mut visit: impl FnMut(&Labels)) {
        let mut seen: BTreeSet<*const Labels> = BTreeSet::new();
        self.visit(query, |series, _, _, _| {
            if seen.insert(Arc::as_ptr(series)) {
                visit(series);
            }
        });
    }

    /// Returns the totals of the selected series per step. With `by`, the series with equal values of these labels are
    /// added up. The time in nanoseconds of a step that begins before the range is that of the step.
    ///
    /// # Errors
    /// The range has too many steps, or the totals take too much memory.
    pub fn totals(
        &self,
        query: &Query,
        step: Duration,
        by: Option<&[String]>,
    ) -> Result<Vec<SeriesTotals>, QueryError> {
        const POINT: u64 = 64;
        let step = u64::try_from(step.as_nanos()).unwrap_or(u64::MAX);
        let length = query.range.end.saturating_sub(query.range.start);
        if length
            .checked_div(step)
            .is_none_or(|steps| steps > MAX_STEPS)
        {
            return Err(QueryError::TooManySteps);
        }
        let mut memory = self.queries.begin(query.limits);
        let mut groups: BTreeMap<Labels, BTreeMap<u64, i64>> = BTreeMap::new();
        let mut points = 0;
        let mut refused = None;
        self.visit(query, |series, window, _, total| {
            if refused.is_some() {
                return;
            }
            let labels = match by {
                None => Labels::clone(series),
                Some(by) => Labels::new(by.iter().filter_map(|name| {
                    let value = series.get(name);
                    (!value.is_empty()).then(|| (name.clone(), value.to_owned()))
                })),
            };
            // A window may begin before the range.
            let time = window.saturating_mul(NANOS).max(query.range.start);
            let size = labels.bytes();
            let group = groups.entry(labels).or_default();
            let before = group.len();
            let sum = group.entry(time - time % step).or_default();
            *sum = sum.saturating_add(total);
            if group.len() > before {
                points += POINT + if before == 0 { size } else { 0 };
                refused = memory.reach(points).err();
            }
        });
        if let Some(error) = refused {
            return Err(error);
        }
        let totals = groups.into_iter().map(|(labels, points)| SeriesTotals {
            labels,
            points: points.into_iter().collect(),
        });
        Ok(totals.collect())
    }

    /// Returns the heat map of the selected series: of samples with timestamps, in blocks of 10 seconds and of a minute.
    ///
    /// # Errors
    /// The query is beyond its limits.
    pub fn heat_map(&self, query: &Query) -> Result<HeatMap, QueryError> {
        // The cells of a window extend beyond its end.
        let start = query
            .range
            .start
            .saturating_sub(MAX_SAMPLE_OFFSET_SECONDS * NANOS);
        let range = start..query.range.end;
        let mut memory = self.queries.begin(query.limits);
        let mut cells = Cells::default();
        let snapshot = self.snapshot();
        let mut matching = query.matching();
        for block in &snapshot.blocks {
            let len = block.index.window_len();
            let mut reader = None;
            for entry in &block.index.entries {
                let is_selected = entry.heat.stored > 0
                    && overlaps(entry.window, len, &range)
                    && matching.has(&entry.series);
                if !is_selected {
                    continue;
                }
                if reader.is_none() {
                    reader = self.checked(block, block.reader())?;
                }
                let Some(reader) = &reader else { break };
                memory.reach(cells.bytes() + u64::from(entry.heat.raw) * DECODED)?;
                let read = self.checked(block, reader.section(&entry.heat))?;
                match read.map(|bytes| Cells::decode(&bytes)) {
                    Some(Some(read)) => cells.merge(&read),
                    Some(None) => self.note_damage(block),
                    None => {}
                }
            }
        }
        for entry in snapshot.batches.iter().flat_map(|batch| &batch.entries) {
            if overlaps(entry.window, WINDOWS[0], &range) && matching.has(&entry.series) {
                memory.reach(cells.bytes() + entry.heat.bytes())?;
                cells.merge(&entry.heat);
            }
        }
        Ok(cells.map(query.range.start.div_ceil(NANOS)..query.range.end.div_ceil(NANOS)))
    }
}

impl Query {
    pub(crate) fn matching(&self) -> Matching<'_> {
        Matching {
            selector: &self.selector,
            known: HashMap::default(),
        }
    }
}
