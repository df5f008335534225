//! Merged profiles as query results, and their output formats.

use std::collections::BTreeSet;
use std::ops::Range;

use tributary_profiles::dictionary::{Dictionary, ValueType};
use tributary_profiles::ingest::ingest;
use tributary_profiles::merge::{MergeOptions, Merger};
use tributary_profiles::model::{Profile, Samples};
use tributary_profiles::pprof::{LinkLabels, write};
use tributary_profiles::reindex::CopiedEntries;
use tributary_profiles::top::{Top, top};
use tributary_profiles::{Profiles, folded, frames};

use super::block::Block;
use super::budget::Spending;
use super::error::QueryError;
use super::intake::{Batch, anonymous};
use super::options::WINDOWS;
use super::query::{DECODED, Matching, NANOS, Query, SpanSelection, overlaps};
use super::series::PROFILE_TYPE;
use super::store::ProfileStore;
use super::tree::{Builder, Tree};

/// The merged profile of a query. Its memory stays counted until the drop.
#[derive(Debug)]
pub struct QueryAnswer {
    /// The profile: one resource, one scope, one profile.
    pub profiles: Profiles,
    /// Type and unit of the values.
    pub kind: ValueType,
    /// Times of the windows that the profile covers, in nanoseconds since 1970: at least the part of the query's range
    /// with profiles.
    pub covered: Range<u64>,
    /// Number of damaged sections that were left out.
    pub damaged: u64,
    memory: Spending,
}

impl ProfileStore {
    /// Merges the profiles of the selected series and windows into one. Returns `None` without any profile.
    ///
    /// # Errors
    /// The series have several types, or the query is beyond its limits.
    pub fn merge(&self, query: &Query) -> Result<Option<QueryAnswer>, QueryError> {
        let mut types = BTreeSet::new();
        let mut covered: Option<Range<u64>> = None;
        let snapshot = self.snapshot();
        snapshot.visit(query, |series, window, len, _| {
            if !types.contains(series.get(PROFILE_TYPE)) {
                types.insert(series.get(PROFILE_TYPE).to_owned());
            }
            let end = window.saturating_add(len);
            let of_window = window.saturating_mul(NANOS)..end.saturating_mul(NANOS);
            covered = Some(match covered.take() {
                None => of_window,
                Some(all) => all.start.min(of_window.start)..all.end.max(of_window.end),
            });
        });
        if types.len() > 1 {
            return Err(QueryError::SeveralTypes(types.into_iter().collect()));
        }
        let Some(covered) = covered else {
            return Ok(None);
        };
        let mut merging = Merge {
            query,
            merger: Merger::new(MergeOptions::default()),
            memo: CopiedEntries::default(),
            memory: self.queries.begin(query.limits),
            damaged: 0,
        };
        let mut matching = query.matching();
        for block in &snapshot.blocks {
            self.merge_block(block, &mut matching, &mut merging)?;
        }
        for batch in &snapshot.batches {
            self.merge_batch(batch, &mut matching, &mut merging)?;
        }
        merging.finish(covered)
    }

    fn merge_block(
        &self,
        block: &Block,
        matching: &mut Matching<'_>,
        merging: &mut Merge<'_>,
    ) -> Result<(), QueryError> {
        let len = block.index.window_len();
        let mut reader = None;
        for entry in &block.index.entries {
            let is_selected = overlaps(entry.window, len, &merging.query.range)
                && (entry.has_links || merging.query.spans.is_none())
                && matching.has(&entry.series);
            if !is_selected {
                continue;
            }
            if reader.is_none() {
                reader = self.checked(block, block.reader())?;
            }
            let Some(reader) = &reader else {
                merging.damaged += 1;
                return Ok(());
            };
            merging.expect(entry.profile.raw.into())?;
            match self.checked(block, reader.section(&entry.profile))? {
                Some(request) if merging.add_section(&request) => {}
                Some(_) => {
                    self.note_damage(block);
                    merging.damaged += 1;
                }
                None => merging.damaged += 1,
            }
        }
        Ok(())
    }

    fn merge_batch(
        &self,
        batch: &Batch,
        matching: &mut Matching<'_>,
        merging: &mut Merge<'_>,
    ) -> Result<(), QueryError> {
        let range = merging.query.range.clone();
        let is_selected = batch.entries.iter().any(|entry| {
            overlaps(entry.window, WINDOWS[0], &range)
                && (entry.has_links || merging.query.spans.is_none())
                && matching.has(&entry.series)
        });
        if !is_selected {
            return Ok(());
        }
        merging.expect(batch.record.request.len() as u64)?;
        let (dictionary, relocations) = merging.merger.dictionary();
        let read = self.finder.read(
            &batch.record,
            dictionary,
            &mut merging.memo,
            Some(relocations),
        );
        // Every request was read successfully before it was accepted.
        for placed in read.map(|intake| intake.placed).unwrap_or_default() {
            if overlaps(placed.window, WINDOWS[0], &range) && matching.has(&placed.series) {
                merging.add(placed.profile);
            }
        }
        Ok(())
    }
}

/// A merge in progress.
struct Merge<'q> {
    query: &'q Query,
    merger: Merger,
    memo: CopiedEntries,
    memory: Spending,
    damaged: u64,
}

impl Merge<'_> {
    /// Takes memory for a section of size `raw`.
    fn expect(&mut self, raw: u64) -> Result<(), QueryError> {
        let merged = self.merger.bytes() as u64;
        self.memory
            .reach(merged.saturating_add(raw.saturating_mul(DECODED)))
    }

    /// Adds the profiles of a section. Returns false if the section is not a valid request.
    fn add_section(&mut self, request: &[u8]) -> bool {
        let (dictionary, relocations) = self.merger.dictionary();
        let read = ingest(request, dictionary, &mut self.memo, Some(relocations));
        let Ok(read) = read else {
            return false;
        };
        let scopes = read
            .resources
            .into_iter()
            .flat_map(|resource| resource.scopes);
        for profile in scopes.flat_map(|scope| scope.profiles) {
            self.add(profile);
        }
        true
    }

    fn add(&mut self, mut profile: Profile) {
        if let Some(spans) = &self.query.spans {
            let (dictionary, _) = self.merger.dictionary();
            profile.samples = of_spans(&profile.samples, dictionary, spans);
        }
        if !profile.samples.is_empty() {
            self.merger.add_profiles(&[anonymous(profile)]);
        }
    }

    fn finish(mut self, covered: Range<u64>) -> Result<Option<QueryAnswer>, QueryError> {
        // The samples exist twice while the columns are written.
        self.memory.reach(2 * self.merger.bytes() as u64)?;
        let profiles = self.merger.finish();
        let samples: usize = profiles.iter().map(|profile| profile.samples.bytes()).sum();
        let bytes = profiles.dictionary.bytes() + samples;
        self.memory.shrink(bytes as u64);
        let Some(kind) = profiles
            .iter()
            .next()
            .map(|profile| profile.header.sample_type)
        else {
            return Ok(None);
        };
        Ok(Some(QueryAnswer {
            profiles,
            kind,
            covered,
            damaged: self.damaged,
            memory: self.memory,
        }))
    }
}

/// Returns the samples of some spans.
fn of_spans(samples: &Samples, dictionary: &Dictionary, spans: &SpanSelection) -> Samples {
    let mut selected = Samples::default();
    for sample in samples.iter() {
        if spans.has(dictionary.get_link(sample.key.link)) {
            selected.push(sample.key, sample.values, sample.timestamps);
        }
    }
    selected
}

impl QueryAnswer {
    /// Returns the call tree.
    ///
    /// # Errors
    /// The tree is beyond the limits of the query.
    pub fn tree(&mut self) -> Result<Tree, QueryError> {
        self.tree_in(0)
    }

    /// Returns the call tree with the values in the second column, for a comparison with an empty profile.
    ///
    /// # Errors
    /// The tree is beyond the limits of the query.
    pub fn tree_after(&mut self) -> Result<Tree, QueryError> {
        self.tree_in(1)
    }

    fn tree_in(&mut self, column: usize) -> Result<Tree, QueryError> {
        let base = self.memory.bytes();
        let mut builder = Builder::new();
        let added = builder.add(&self.profiles, self.kind, column, |bytes| {
            self.memory.reach(base + bytes as u64)
        });
        added?;
        Ok(builder.finish())
    }

    /// Returns a function that reserves memory for output of the result, up to a number of bytes in addition to the
    /// result's current memory. The memory is released when the result is dropped.
    pub fn meter(&mut self) -> impl FnMut(usize) -> Result<(), QueryError> + '_ {
        let base = self.memory.bytes();
        move |bytes| self.memory.reach(base.saturating_add(bytes as u64))
    }

    /// Returns the tree of two results: values of the first result, then of the second result.
    ///
    /// # Errors
    ///
    /// The tree exceeds the limits of the second query.
    pub fn tree_with(&self, after: &mut QueryAnswer) -> Result<Tree, QueryError> {
        let [first, second] = [self, &*after].map(QueryAnswer::type_and_unit);
        if first != second {
            let types = [first, second].map(|(kind, unit)| format!("{kind} in {unit}"));
            return Err(QueryError::SeveralTypes(types.to_vec()));
        }
        let base = after.memory.bytes();
        let mut builder = Builder::new();
        for column in [0, 1] {
            let (profiles, kind) = match column {
                0 => (&self.profiles, self.kind),
                _ => (&after.profiles, after.kind),
            };
            let memory = &mut after.memory;
            builder.add(profiles, kind, column, |bytes| {
                memory.reach(base + bytes as u64)
            })?;
        }
        Ok(builder.finish())
    }

    fn type_and_unit(&self) -> (&str, &str) {
        let text = |id| self.profiles.dictionary.text(id);
        (text(self.kind.kind), text(self.kind.unit))
    }

    /// Returns the values by function, largest own value first.
    pub fn table(&self) -> Top {
        top(&self.profiles, self.kind, &frames::Selection::default())
    }

    /// Returns folded stacks.
    pub fn folded(&self) -> String {
        folded::write(&self.profiles, self.kind)
    }

    /// Returns a pprof file, without compression. Links become labels.
    pub fn pprof(&self) -> Vec<u8> {
        let links = LinkLabels::default();
        let files = self.profiles.resources.iter().flat_map(|resource| {
            let scopes = resource.scopes.iter();
            scopes
                .flat_map(|scope| write::write(&self.profiles.dictionary, resource, scope, &links))
        });
        files.into_iter().next().unwrap_or_default()
    }
}
