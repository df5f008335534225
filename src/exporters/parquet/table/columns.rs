//! The columns of a row group by what they hold.

use std::iter::{self, Repeat, Zip};

use super::WriteError;
use super::attributes::Pairs;
use super::chunk::{RowGroup, bloom_filter};
use super::strings::{NONE, Strings};
use super::values::{Bits, Delta, Fixed, Numbers, Source, Texts, Words};

impl RowGroup<'_> {
    /// Times and counts that are near each other.
    pub(super) fn deltas(
        &mut self,
        name: &str,
        rows: impl Iterator<Item = i64>,
    ) -> Result<(), WriteError> {
        self.flat(name, Delta::default(), rows)
    }

    /// Whole numbers of which many are equal.
    pub(super) fn words(
        &mut self,
        name: &str,
        rows: impl Iterator<Item = i64> + Clone,
    ) -> Result<(), WriteError> {
        self.flat(name, Delta::default(), rows)
    }

    /// Hashes: nothing to compress in them, but they may repeat.
    pub(super) fn hashes(
        &mut self,
        name: &str,
        rows: impl Iterator<Item = u64> + Clone,
    ) -> Result<(), WriteError> {
        let mut all = Strings::default();
        let ids: Vec<u32> = rows.map(|hash| all.intern(&hash.to_le_bytes())).collect();
        let source = Words(&all);
        // As in lists: bounds of hashes are of no use.
        let encoder = Texts::of(&source, each_once(ids.iter().copied()), false);
        self.flat(name, encoder, ids.iter().copied())
    }

    /// Truth values.
    pub(super) fn bits(
        &mut self,
        name: &str,
        rows: impl Iterator<Item = bool>,
    ) -> Result<(), WriteError> {
        self.flat(name, Bits::default(), rows)
    }

    /// Numbers of 32 bits of which there are few different ones. Signed ones are given as their bits.
    pub(super) fn numbers(
        &mut self,
        name: &str,
        rows: impl Iterator<Item = u32> + Clone,
        signed: bool,
    ) -> Result<(), WriteError> {
        self.flat(name, Numbers::of(rows.clone(), signed), rows)
    }

    /// Such numbers, each with how many rows have it one after the other.
    pub(super) fn runs_of_numbers(
        &mut self,
        name: &str,
        runs: impl Iterator<Item = (u32, usize)> + Clone,
    ) -> Result<(), WriteError> {
        let encoder = Numbers::of(runs.clone().map(|(value, _)| value), false);
        self.flat_runs(name, encoder, runs)
    }

    pub(super) fn optional_numbers(
        &mut self,
        name: &str,
        rows: impl Iterator<Item = Option<u32>> + Clone,
        signed: bool,
    ) -> Result<(), WriteError> {
        let encoder = Numbers::of(rows.clone().flatten(), signed);
        self.optional(name, encoder, rows)
    }

    /// Ids by which people look for rows.
    pub(super) fn ids(
        &mut self,
        name: &str,
        rows: impl Iterator<Item = Option<[u8; 16]>> + Clone,
    ) -> Result<(), WriteError> {
        let count = match self.bloom_filters() {
            true => rows.clone().flatten().count(),
            false => 0,
        };
        let bloom = (count > 0).then(|| bloom_filter(count)).flatten();
        self.optional(name, Fixed::new(bloom), rows)
    }

    pub(super) fn texts(
        &mut self,
        name: &str,
        source: &impl Source,
        rows: impl Iterator<Item = u32> + Clone,
    ) -> Result<(), WriteError> {
        self.runs_of_texts(name, source, each_once(rows))
    }

    /// Texts, each with the number of rows that have it one after the other.
    pub(super) fn runs_of_texts(
        &mut self,
        name: &str,
        source: &impl Source,
        runs: impl Iterator<Item = (u32, usize)> + Clone,
    ) -> Result<(), WriteError> {
        self.flat_runs(name, Texts::of(source, runs.clone(), true), runs)
    }

    /// Texts, and [`NONE`] for null.
    pub(super) fn optional_texts(
        &mut self,
        name: &str,
        source: &impl Source,
        rows: impl Iterator<Item = u32> + Clone,
    ) -> Result<(), WriteError> {
        self.runs_of_optional_texts(name, source, each_once(rows))
    }

    /// Texts, and [`NONE`] for null, each with the number of rows that have it one after the other.
    pub(super) fn runs_of_optional_texts(
        &mut self,
        name: &str,
        source: &impl Source,
        runs: impl Iterator<Item = (u32, usize)> + Clone,
    ) -> Result<(), WriteError> {
        let encoder = Texts::of(source, runs.clone().filter(|(id, _)| *id != NONE), true);
        let runs = runs.map(|(id, times)| ((id != NONE).then_some(id), times));
        self.optional_runs(name, encoder, runs)
    }

    pub(super) fn text_lists<R: ExactSizeIterator<Item = u32>>(
        &mut self,
        name: &str,
        source: &impl Source,
        rows: impl Iterator<Item = R> + Clone,
    ) -> Result<(), WriteError> {
        let encoder = Texts::of(source, each_once(rows.clone().flatten()), false);
        self.list(name, encoder, rows)
    }

    pub(super) fn number_lists<R: ExactSizeIterator<Item = u32>>(
        &mut self,
        name: &str,
        rows: impl Iterator<Item = R> + Clone,
    ) -> Result<(), WriteError> {
        let encoder = Numbers::of(rows.clone().flatten(), false);
        self.list(name, encoder, rows)
    }

    /// A map of attributes.
    pub(super) fn map<'p>(
        &mut self,
        name: &str,
        pairs: &Pairs,
        rows: impl Iterator<Item = &'p [u32]> + Clone,
    ) -> Result<(), WriteError> {
        self.runs_of_maps(name, pairs, each_once(rows))
    }

    /// Maps of attributes, each with the number of rows that have it one after the other.
    pub(super) fn runs_of_maps<'p>(
        &mut self,
        name: &str,
        pairs: &Pairs,
        runs: impl Iterator<Item = (&'p [u32], usize)> + Clone,
    ) -> Result<(), WriteError> {
        let all = || {
            let runs = runs.clone();
            runs.flat_map(|(set, times)| set.iter().map(move |pair| (*pair, times)))
        };
        let keys = all().map(|(pair, times)| (pairs.key(pair), times));
        let encoder = Texts::of(&pairs.keys, keys, false);
        let keys = |pair: &u32| pairs.key(*pair);
        let sets = runs
            .clone()
            .map(|(set, times)| (set.iter().map(keys), times));
        self.list_runs(name, encoder, sets)?;
        let encoder = Texts::of(&pairs.values, all(), false);
        let sets = runs.map(|(set, times)| (set.iter().copied(), times));
        self.list_runs(name, encoder, sets)
    }

    /// A list of maps of attributes.
    pub(super) fn maps<'p, R: Iterator<Item = &'p [u32]>>(
        &mut self,
        name: &str,
        pairs: &Pairs,
        rows: impl Iterator<Item = R> + Clone,
    ) -> Result<(), WriteError> {
        let all = || rows.clone().flatten().flatten();
        let keys = each_once(all().map(|pair| pairs.key(*pair)));
        let encoder = Texts::of(&pairs.keys, keys, false);
        let keys = rows
            .clone()
            .map(|row| row.map(|set| set.iter().map(|pair| pairs.key(*pair))));
        self.nested(name, encoder, keys)?;
        let encoder = Texts::of(&pairs.values, each_once(all().copied()), false);
        let values = rows.map(|row| row.map(|set| set.iter().copied()));
        self.nested(name, encoder, values)
    }
}

/// Rows as runs of one each.
fn each_once<R: Iterator>(rows: R) -> Zip<R, Repeat<usize>> {
    rows.zip(iter::repeat(1))
}
