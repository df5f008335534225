//! Writers for the columns of a row group, by type of content.

use std::iter::{self, Repeat, Zip};
use std::ops::Range;

use super::WriteError;
use super::attributes::{Pairs, Sets};
use super::chunk::bloom_filter;
use super::group::RowGroup;
use super::rows::Shared;
use super::strings::{NONE, Strings};
use super::texts::{AttributeOwner, Column, Numbers64, Texts};
use super::values::{Bits, Doubles, Fixed, Integers64, Numbers, Plain64};

/// Minimum number of ids for a bloom filter, which takes 4 KiB.
pub(super) const FILTERED_IDS: usize = 256;

impl RowGroup<'_> {
    /// Writes times and counts that are near each other.
    pub(super) fn deltas(
        &mut self,
        name: &str,
        rows: impl Iterator<Item = i64>,
    ) -> Result<(), WriteError> {
        self.flat(name, Integers64::deltas(), rows)
    }

    /// Writes times in nanoseconds since 1970: a column of microseconds, and a column of the
    /// remaining nanoseconds.
    pub(super) fn times(
        &mut self,
        [micros, nanos]: [&str; 2],
        rows: impl Iterator<Item = i64> + Clone,
    ) -> Result<(), WriteError> {
        self.deltas(micros, rows.clone().map(microseconds))?;
        self.numbers(nanos, rows.map(nanoseconds), false)
    }

    pub(super) fn optional_times(
        &mut self,
        [micros, nanos]: [&str; 2],
        rows: impl Iterator<Item = Option<i64>> + Clone,
    ) -> Result<(), WriteError> {
        self.optional_deltas(micros, rows.clone().map(|time| time.map(microseconds)))?;
        self.optional_numbers(nanos, rows.map(|time| time.map(nanoseconds)), false)
    }

    pub(super) fn time_lists<R: ExactSizeIterator<Item = i64>>(
        &mut self,
        [micros, nanos]: [&str; 2],
        rows: impl Iterator<Item = R> + Clone,
    ) -> Result<(), WriteError> {
        let times = rows.clone().map(|row| row.map(microseconds));
        self.list(micros, Integers64::deltas(), times)?;
        self.number_lists(nanos, rows.map(|row| row.map(nanoseconds)))
    }

    /// Writes measured values. Values repeat, which compressors exploit and delta encoding would
    /// hide. With zstd this takes two thirds of the space of deltas for allocations of Go, and half
    /// for processor times.
    pub(super) fn amounts(
        &mut self,
        name: &str,
        rows: impl Iterator<Item = i64>,
    ) -> Result<(), WriteError> {
        self.flat(name, Integers64::plain(), rows)
    }

    pub(super) fn optional_deltas(
        &mut self,
        name: &str,
        rows: impl Iterator<Item = Option<i64>>,
    ) -> Result<(), WriteError> {
        self.optional(name, Integers64::deltas(), rows)
    }

    /// Writes unsigned counts.
    pub(super) fn optional_counts(
        &mut self,
        name: &str,
        rows: impl Iterator<Item = Option<u64>>,
    ) -> Result<(), WriteError> {
        let rows = rows.map(|count| count.map(u64::cast_signed));
        self.optional(name, Integers64::unsigned_deltas(), rows)
    }

    pub(super) fn optional_doubles(
        &mut self,
        name: &str,
        rows: impl Iterator<Item = Option<f64>>,
    ) -> Result<(), WriteError> {
        self.optional(name, Doubles::default(), rows)
    }

    pub(super) fn count_lists<R: ExactSizeIterator<Item = u64>>(
        &mut self,
        name: &str,
        rows: impl Iterator<Item = R>,
    ) -> Result<(), WriteError> {
        self.list(name, Plain64::default(), rows)
    }

    pub(super) fn double_lists<R: ExactSizeIterator<Item = f64>>(
        &mut self,
        name: &str,
        rows: impl Iterator<Item = R>,
    ) -> Result<(), WriteError> {
        self.list(name, Doubles::default(), rows)
    }

    /// Writes hashes, which do not compress but may repeat.
    pub(super) fn hashes(
        &mut self,
        name: &str,
        rows: impl Iterator<Item = u64> + Clone,
    ) -> Result<(), WriteError> {
        let mut all = Strings::default();
        let ids: Vec<u32> = rows.map(|hash| all.intern(&hash.to_le_bytes())).collect();
        let source = Numbers64(&all);
        let encoder = Texts::of(&source, each_once(ids.iter().copied()), Column::Hashes);
        self.flat(name, encoder, ids.iter().copied())
    }

    /// Writes booleans.
    pub(super) fn bits(
        &mut self,
        name: &str,
        rows: impl Iterator<Item = bool>,
    ) -> Result<(), WriteError> {
        self.flat(name, Bits::default(), rows)
    }

    /// Writes 32-bit numbers with few distinct values. Signed numbers are given as their bits.
    pub(super) fn numbers(
        &mut self,
        name: &str,
        rows: impl Iterator<Item = u32> + Clone,
        signed: bool,
    ) -> Result<(), WriteError> {
        self.flat(name, Numbers::of(rows.clone(), signed), rows)
    }

    /// Writes 32-bit numbers with few distinct values, each with the length of its run of rows.
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

    /// Writes optional ids without a bloom filter, because users do not search for them.
    pub(super) fn plain_ids<const N: usize>(
        &mut self,
        name: &str,
        rows: impl Iterator<Item = Option<[u8; N]>>,
    ) -> Result<(), WriteError> {
        self.optional(name, Fixed::new(None), rows)
    }

    /// Writes ids as byte arrays of variable length, because pandas cannot read lists of
    /// fixed-length bytes; zeros become empty.
    pub(super) fn id_lists<const N: usize, R: ExactSizeIterator<Item = [u8; N]>>(
        &mut self,
        name: &str,
        rows: impl Iterator<Item = R> + Clone,
    ) -> Result<(), WriteError> {
        let mut all = Strings::default();
        let lengths: Vec<usize> = rows.clone().map(|row| row.len()).collect();
        let ids: Vec<u32> = rows.flatten().map(|id| all.intern(written(&id))).collect();
        let mut left = &ids[..];
        let lists = lengths.iter().map(move |length| {
            let (row, others) = left.split_at(*length);
            left = others;
            row.iter().copied()
        });
        self.text_lists(name, &all, lists)
    }

    /// Writes ids that users search for. With few ids, searching the ids is as fast as reading a
    /// filter.
    pub(super) fn ids(
        &mut self,
        name: &str,
        rows: impl Iterator<Item = Option<[u8; 16]>> + Clone,
    ) -> Result<(), WriteError> {
        let count = match self.bloom_filters() {
            true => rows.clone().flatten().count(),
            false => 0,
        };
        let bloom = (count >= FILTERED_IDS)
            .then(|| bloom_filter(count))
            .flatten();
        self.optional(name, Fixed::new(bloom), rows)
    }

    pub(super) fn texts(
        &mut self,
        name: &str,
        source: &impl AttributeOwner,
        rows: impl Iterator<Item = u32> + Clone,
    ) -> Result<(), WriteError> {
        self.runs_of_texts(name, source, each_once(rows))
    }

    pub(super) fn runs_of_texts(
        &mut self,
        name: &str,
        source: &impl AttributeOwner,
        runs: impl Iterator<Item = (u32, usize)> + Clone,
    ) -> Result<(), WriteError> {
        self.flat_runs(name, Texts::of(source, runs.clone(), Column::Flat), runs)
    }

    /// Writes texts, with [`NONE`] for null.
    pub(super) fn optional_texts(
        &mut self,
        name: &str,
        source: &impl AttributeOwner,
        rows: impl Iterator<Item = u32> + Clone,
    ) -> Result<(), WriteError> {
        self.runs_of_optional_texts(name, source, each_once(rows))
    }

    /// Writes texts, with [`NONE`] for null, each with the length of its run of rows.
    pub(super) fn runs_of_optional_texts(
        &mut self,
        name: &str,
        source: &impl AttributeOwner,
        runs: impl Iterator<Item = (u32, usize)> + Clone,
    ) -> Result<(), WriteError> {
        let encoder = Texts::of(
            source,
            runs.clone().filter(|(id, _)| *id != NONE),
            Column::Flat,
        );
        let runs = runs.map(|(id, times)| ((id != NONE).then_some(id), times));
        self.optional_runs(name, encoder, runs)
    }

    pub(super) fn text_lists<R: ExactSizeIterator<Item = u32>>(
        &mut self,
        name: &str,
        source: &impl AttributeOwner,
        rows: impl Iterator<Item = R> + Clone,
    ) -> Result<(), WriteError> {
        let encoder = Texts::of(source, each_once(rows.clone().flatten()), Column::Lists);
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

    /// Writes attributes and their types: two columns. The sets are given by their numbers.
    pub(super) fn attributes(
        &mut self,
        [attributes, types]: [&str; 2],
        sets: &Sets,
        shared: &Shared,
        rows: impl Iterator<Item = usize> + Clone,
    ) -> Result<(), WriteError> {
        let maps = rows.clone().map(|at| sets.get(at));
        self.runs_of_maps(attributes, &shared.pairs, each_once(maps))?;
        self.texts(types, &shared.texts, rows.map(|at| sets.types(at)))
    }

    /// Writes lists of attributes and of their types: two columns.
    pub(super) fn attribute_lists(
        &mut self,
        [attributes, types]: [&str; 2],
        sets: &Sets,
        shared: &Shared,
        rows: impl Iterator<Item = Range<usize>> + Clone,
    ) -> Result<(), WriteError> {
        let maps = rows.clone().map(|row| row.map(|at| sets.get(at)));
        self.maps(attributes, &shared.pairs, maps)?;
        let letters = rows.map(|row| row.map(|at| sets.types(at)));
        self.text_lists(types, &shared.texts, letters)
    }

    /// Writes maps of attributes, each with the length of its run of rows.
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
        let encoder = Texts::of(&pairs.keys, keys, Column::Lists);
        let keys = |pair: &u32| pairs.key(*pair);
        let sets = runs
            .clone()
            .map(|(set, times)| (set.iter().map(keys), times));
        self.list_runs(name, encoder, sets)?;
        let encoder = Texts::of(&pairs.values, all(), Column::Lists);
        let sets = runs.map(|(set, times)| (set.iter().copied(), times));
        self.list_runs(name, encoder, sets)
    }

    /// Writes lists of maps of attributes.
    fn maps<'p, R: Iterator<Item = &'p [u32]>>(
        &mut self,
        name: &str,
        pairs: &Pairs,
        rows: impl Iterator<Item = R> + Clone,
    ) -> Result<(), WriteError> {
        let all = || rows.clone().flatten().flatten();
        let keys = each_once(all().map(|pair| pairs.key(*pair)));
        let encoder = Texts::of(&pairs.keys, keys, Column::Lists);
        let keys = rows
            .clone()
            .map(|row| row.map(|set| set.iter().map(|pair| pairs.key(*pair))));
        self.nested(name, encoder, keys)?;
        let encoder = Texts::of(&pairs.values, each_once(all().copied()), Column::Lists);
        let values = rows.map(|row| row.map(|set| set.iter().copied()));
        self.nested(name, encoder, values)
    }
}

/// Returns the microseconds of a time in nanoseconds.
fn microseconds(time: i64) -> i64 {
    time.div_euclid(1000)
}

/// Returns the nanoseconds of a time beyond its microseconds.
fn nanoseconds(time: i64) -> u32 {
    time.rem_euclid(1000) as u32
}

/// Returns the bytes of an id in a list.
fn written(id: &[u8]) -> &[u8] {
    match id.iter().all(|byte| *byte == 0) {
        true => &[],
        false => id,
    }
}

/// Pairs each row with a run length of one.
fn each_once<R: Iterator>(rows: R) -> Zip<R, Repeat<usize>> {
    rows.zip(iter::repeat(1))
}
