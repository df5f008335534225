//! The values of a column: encoders, with the smallest and the largest value of each page.

use parquet::basic::Encoding;
use parquet::bloom_filter::Sbbf;

use super::encoding::{Hybrid, bit_width, byte_aligned, delta};
use super::strings::Strings;

/// Encodes the values of a column, page by page.
pub(super) trait Encoder {
    type Item;
    fn push(&mut self, value: Self::Item);
    /// The same value several times.
    fn push_run(&mut self, value: Self::Item, times: usize)
    where
        Self::Item: Copy,
    {
        for _ in 0..times {
            self.push(value);
        }
    }
    /// The bytes of the page so far, about.
    fn len(&self) -> usize;
    /// Appends the page's values, and begins another page.
    fn finish(&mut self, page: &mut Vec<u8>);
    fn encoding(&self) -> Encoding;
    /// Whether pages with values have bounds.
    fn has_bounds(&self) -> bool {
        false
    }
    /// The smallest and the largest value since the last call.
    fn bounds(&mut self) -> Option<Bounds> {
        None
    }
    /// The dictionary, encoded, and how many entries it has.
    fn dictionary(&self) -> Option<(Vec<u8>, u32)> {
        None
    }
    fn bloom_filter(&mut self) -> Option<Sbbf> {
        None
    }
}

/// The smallest and the largest value.
#[derive(Debug, Clone)]
pub(super) enum Bounds {
    Signed(i64, i64),
    Unsigned(u64, u64),
    Bytes(Vec<u8>, Vec<u8>),
}

impl Bounds {
    /// Longer values are not worth a place in every footer.
    const LONGEST: usize = 128;

    pub(super) fn is_short(&self) -> bool {
        match self {
            Bounds::Bytes(min, max) => min.len().max(max.len()) <= Self::LONGEST,
            _ => true,
        }
    }

    pub(super) fn to_bytes(&self) -> (Vec<u8>, Vec<u8>) {
        match self {
            Bounds::Signed(min, max) => (min.to_le_bytes().into(), max.to_le_bytes().into()),
            Bounds::Unsigned(min, max) => (min.to_le_bytes().into(), max.to_le_bytes().into()),
            Bounds::Bytes(min, max) => (min.clone(), max.clone()),
        }
    }

    pub(super) fn add(&mut self, other: &Bounds) {
        match (self, other) {
            (Bounds::Signed(min, max), Bounds::Signed(low, high)) => {
                (*min, *max) = ((*min).min(*low), (*max).max(*high));
            }
            (Bounds::Unsigned(min, max), Bounds::Unsigned(low, high)) => {
                (*min, *max) = ((*min).min(*low), (*max).max(*high));
            }
            (Bounds::Bytes(min, max), Bounds::Bytes(low, high)) => {
                if low < min {
                    min.clone_from(low);
                }
                if high > max {
                    max.clone_from(high);
                }
            }
            _ => {}
        }
    }

    /// Whether neither bound is above the next one's.
    pub(super) fn is_before(&self, next: &Bounds) -> bool {
        match (self, next) {
            (Bounds::Signed(min, max), Bounds::Signed(low, high)) => min <= low && max <= high,
            (Bounds::Unsigned(min, max), Bounds::Unsigned(low, high)) => min <= low && max <= high,
            (Bounds::Bytes(min, max), Bounds::Bytes(low, high)) => min <= low && max <= high,
            _ => false,
        }
    }
}

/// Whole numbers of 64 bits as differences: what times and counts are small with.
#[derive(Debug, Default)]
pub(super) struct Delta {
    values: Vec<i64>,
    is_unsigned: bool,
}

impl Delta {
    /// For numbers without a sign, given as their bits.
    pub(super) fn unsigned() -> Self {
        Delta {
            is_unsigned: true,
            ..Delta::default()
        }
    }
}

impl Encoder for Delta {
    type Item = i64;

    #[inline]
    fn push(&mut self, value: i64) {
        self.values.push(value);
    }

    fn len(&self) -> usize {
        self.values.len() * size_of::<i64>()
    }

    fn finish(&mut self, page: &mut Vec<u8>) {
        delta(&self.values, page);
    }

    fn encoding(&self) -> Encoding {
        Encoding::DELTA_BINARY_PACKED
    }

    fn has_bounds(&self) -> bool {
        true
    }

    fn bounds(&mut self) -> Option<Bounds> {
        let bounds = if self.is_unsigned {
            let values = self.values.iter().map(|value| value.cast_unsigned());
            let min = values.clone().min();
            min.zip(values.max())
                .map(|(min, max)| Bounds::Unsigned(min, max))
        } else {
            let values = self.values.iter().copied();
            let min = values.clone().min();
            min.zip(values.max())
                .map(|(min, max)| Bounds::Signed(min, max))
        };
        self.values.clear();
        bounds
    }
}

/// Numbers of 32 bits, few different ones: with a dictionary.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    dictionary: Vec<u32>,
    ids: std::collections::HashMap<u32, u32, foldhash::fast::FixedState>,
    /// The last value and its place.
    last: (u32, u32),
    page: Hybrid,
    bounds: Option<(u32, u32)>,
    signed: bool,
    width: u32,
}

impl Numbers {
    /// An encoder for these values and no others.
    pub(super) fn of(values: impl Iterator<Item = u32>, signed: bool) -> Self {
        let mut numbers = Numbers {
            signed,
            ..Numbers::default()
        };
        let mut last = None;
        for value in values {
            if last != Some(value) {
                last = Some(value);
                let next = numbers.dictionary.len() as u32;
                if *numbers.ids.entry(value).or_insert(next) == next {
                    numbers.dictionary.push(value);
                }
            }
        }
        numbers.last = (numbers.dictionary.first().copied().unwrap_or_default(), 0);
        numbers.width = bit_width(numbers.dictionary.len().saturating_sub(1) as u64);
        numbers.page = Hybrid::new(numbers.width);
        numbers
    }
}

impl Encoder for Numbers {
    type Item = u32;

    #[inline]
    fn push(&mut self, value: u32) {
        let key = |value: u32| match self.signed {
            // Sorts signed numbers as unsigned ones.
            true => value ^ 1 << 31,
            false => value,
        };
        let key = key(value);
        let (min, max) = self.bounds.unwrap_or((key, key));
        self.bounds = Some((min.min(key), max.max(key)));
        if self.last.0 != value {
            let id = self.ids.get(&value).copied().unwrap_or_default();
            self.last = (value, id);
        }
        self.page.push(self.last.1);
    }

    fn len(&self) -> usize {
        self.page.len()
    }

    fn finish(&mut self, page: &mut Vec<u8>) {
        page.push(self.width as u8);
        self.page.finish(page);
    }

    fn encoding(&self) -> Encoding {
        Encoding::RLE_DICTIONARY
    }

    fn has_bounds(&self) -> bool {
        true
    }

    fn bounds(&mut self) -> Option<Bounds> {
        let (min, max) = self.bounds.take()?;
        Some(match self.signed {
            true => {
                let value = |key: u32| i64::from((key ^ 1 << 31).cast_signed());
                Bounds::Signed(value(min), value(max))
            }
            false => Bounds::Unsigned(min.into(), max.into()),
        })
    }

    fn dictionary(&self) -> Option<(Vec<u8>, u32)> {
        let bytes = self.dictionary.iter().flat_map(|value| value.to_le_bytes());
        Some((bytes.collect(), self.dictionary.len() as u32))
    }
}

/// Numbers of 64 bits, whole or not, as they are.
#[derive(Debug, Default)]
pub(super) struct Plain64 {
    page: Vec<u8>,
}

impl Encoder for Plain64 {
    type Item = u64;

    #[inline]
    fn push(&mut self, value: u64) {
        self.page.extend_from_slice(&value.to_le_bytes());
    }

    fn len(&self) -> usize {
        self.page.len()
    }

    fn finish(&mut self, page: &mut Vec<u8>) {
        page.append(&mut self.page);
    }

    fn encoding(&self) -> Encoding {
        Encoding::PLAIN
    }
}

/// Truth values, a bit each.
#[derive(Debug, Default)]
pub(super) struct Bits {
    page: Vec<u8>,
    count: usize,
}

impl Encoder for Bits {
    type Item = bool;

    #[inline]
    fn push(&mut self, value: bool) {
        let bit = self.count % 8;
        if bit == 0 {
            self.page.push(0);
        }
        if let Some(last) = self.page.last_mut() {
            *last |= u8::from(value) << bit;
        }
        self.count += 1;
    }

    fn len(&self) -> usize {
        self.page.len()
    }

    fn finish(&mut self, page: &mut Vec<u8>) {
        page.append(&mut self.page);
        self.count = 0;
    }

    fn encoding(&self) -> Encoding {
        Encoding::PLAIN
    }
}

/// Bytes of one length: ids of traces, spans and profiles.
#[derive(Debug)]
pub(super) struct Fixed<const N: usize> {
    page: Vec<u8>,
    bounds: Option<([u8; N], [u8; N])>,
    bloom: Option<Sbbf>,
    last: Option<[u8; N]>,
}

impl<const N: usize> Fixed<N> {
    pub(super) fn new(bloom: Option<Sbbf>) -> Self {
        Fixed {
            page: Vec::new(),
            bounds: None,
            bloom,
            last: None,
        }
    }
}

impl<const N: usize> Encoder for Fixed<N> {
    type Item = [u8; N];

    #[inline]
    fn push(&mut self, value: [u8; N]) {
        self.page.extend_from_slice(&value);
        if self.last == Some(value) {
            return;
        }
        self.last = Some(value);
        match &mut self.bounds {
            Some((min, _)) if value < *min => *min = value,
            Some((_, max)) if value > *max => *max = value,
            Some(_) => {}
            none => *none = Some((value, value)),
        }
        if let Some(bloom) = &mut self.bloom {
            bloom.insert(&value[..]);
        }
    }

    fn len(&self) -> usize {
        self.page.len()
    }

    fn finish(&mut self, page: &mut Vec<u8>) {
        page.append(&mut self.page);
    }

    fn encoding(&self) -> Encoding {
        Encoding::PLAIN
    }

    fn has_bounds(&self) -> bool {
        true
    }

    fn bounds(&mut self) -> Option<Bounds> {
        let (min, max) = self.bounds.take()?;
        self.last = None;
        Some(Bounds::Bytes(min.into(), max.into()))
    }

    fn bloom_filter(&mut self) -> Option<Sbbf> {
        self.bloom.take()
    }
}

/// What numbers of texts stand for.
pub(super) trait Source {
    fn get(&self, id: u32) -> &[u8];
    fn len(&self) -> usize;
    /// Whether all of them are numbers of 64 bits, which need no lengths.
    fn are_words(&self) -> bool {
        false
    }
}

impl Source for Strings {
    fn get(&self, id: u32) -> &[u8] {
        Strings::get(self, id)
    }

    fn len(&self) -> usize {
        Strings::len(self)
    }
}

/// Numbers of 64 bits instead of texts.
pub(super) struct Words<'s>(pub(super) &'s Strings);

impl Source for Words<'_> {
    fn get(&self, id: u32) -> &[u8] {
        self.0.get(id)
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn are_words(&self) -> bool {
        true
    }
}

/// Texts by their numbers: with a dictionary where that is smaller.
pub(super) struct Texts<'s, S> {
    source: &'s S,
    /// The positions in the dictionary, by number.
    places: Vec<u32>,
    /// The dictionary; none where texts are written as they are.
    dictionary: Option<Vec<u32>>,
    /// Whether the dictionary is sorted, so that there are bounds.
    sorted: bool,
    width: u32,
    page: Page,
    plain: Vec<u8>,
    bounds: Option<(u32, u32)>,
}

/// The positions of a page.
enum Page {
    /// Of columns with runs.
    Hybrid(Hybrid),
    /// Of others: in whole bytes.
    Aligned(Vec<u32>),
}

/// Larger dictionaries are not written: a reader has to hold all of it for a single row.
const DICTIONARY_BYTES: usize = 16 << 20;
/// Larger dictionaries are only sorted where they are small beside the rows. Others are of texts that are different almost
/// everywhere, whose bounds leave nothing out, and sorting them is what costs most.
const SORTED_ENTRIES: usize = 1024;

impl<'s, S: Source> Texts<'s, S> {
    /// An encoder for these numbers, each with how often it comes, and no others. `flat` columns have sorted
    /// dictionaries, and so bounds; others have indices of whole bytes.
    pub(super) fn of(
        source: &'s S,
        values: impl Iterator<Item = (u32, usize)>,
        flat: bool,
    ) -> Self {
        let mut places = vec![0_u32; source.len()];
        // Numbers that are there, as they come. What is to be places are counts first.
        let mut used: Vec<u32> = Vec::new();
        let mut total = 0;
        for (id, times) in values {
            total += times;
            if let Some(count) = places.get_mut(id as usize) {
                if *count == 0 {
                    used.push(id);
                }
                *count = count.saturating_add(times as u32);
            }
        }
        let prefix = if source.are_words() { 0 } else { 4 };
        let (mut once, mut all) = (0, 0);
        for id in &used {
            let length = source.get(*id).len() + prefix;
            once += length;
            all += length * places[*id as usize] as usize;
        }
        let index_bits = bit_width(used.len().saturating_sub(1) as u64) as usize;
        let with_dictionary = once + total * index_bits / 8;
        let few = used.len() <= SORTED_ENTRIES || used.len() < total / 16;
        let mut texts = Texts {
            source,
            places,
            dictionary: None,
            sorted: flat && few,
            width: 0,
            page: Page::Aligned(Vec::new()),
            plain: Vec::new(),
            bounds: None,
        };
        if once <= DICTIONARY_BYTES && with_dictionary < all {
            texts.set_dictionary(used);
            if flat {
                texts.page = Page::Hybrid(Hybrid::new(texts.width));
            } else {
                texts.width = texts.width.next_multiple_of(8);
            }
        }
        texts
    }

    fn set_dictionary(&mut self, mut used: Vec<u32>) {
        let source = self.source;
        let mut dictionary: Vec<u32> = Vec::with_capacity(used.len());
        if self.sorted {
            used.sort_unstable_by(|a, b| source.get(*a).cmp(source.get(*b)));
            for id in used {
                let known = dictionary.last().copied();
                if known.is_none_or(|known| source.get(known) != source.get(id)) {
                    dictionary.push(id);
                }
                self.places[id as usize] = dictionary.len() as u32 - 1;
            }
        } else {
            let mut known = Strings::default();
            for id in used {
                let place = known.intern(source.get(id));
                self.places[id as usize] = place;
                if place as usize == dictionary.len() {
                    dictionary.push(id);
                }
            }
        }
        self.width = bit_width(dictionary.len().saturating_sub(1) as u64);
        self.dictionary = Some(dictionary);
    }

    /// Adds the entries of a row that is there several times.
    #[inline]
    pub(super) fn push_row(&mut self, row: impl Iterator<Item = u32> + Clone, times: usize) {
        match &mut self.page {
            Page::Aligned(places) if self.dictionary.is_some() => {
                let start = places.len();
                places.extend(row.map(|id| self.places.get(id as usize).copied().unwrap_or(0)));
                let end = places.len();
                for _ in 1..times {
                    places.extend_from_within(start..end);
                }
            }
            _ => {
                for _ in 0..times {
                    row.clone().for_each(|id| self.push_run(id, 1));
                }
            }
        }
    }
}

impl<S: Source> Encoder for Texts<'_, S> {
    type Item = u32;

    #[inline]
    fn push(&mut self, id: u32) {
        self.push_run(id, 1);
    }

    #[inline]
    fn push_run(&mut self, id: u32, times: usize) {
        if self.dictionary.is_none() {
            let text = self.source.get(id);
            for _ in 0..times {
                put(text, self.source.are_words(), &mut self.plain);
            }
            return;
        }
        let place = self.places.get(id as usize).copied().unwrap_or_default();
        match &mut self.page {
            Page::Hybrid(page) => {
                page.push_run(place, times);
                let (min, max) = self.bounds.unwrap_or((place, place));
                self.bounds = Some((min.min(place), max.max(place)));
            }
            Page::Aligned(places) => places.resize(places.len() + times, place),
        }
    }

    fn len(&self) -> usize {
        self.plain.len()
            + match &self.page {
                Page::Hybrid(page) => page.len(),
                Page::Aligned(places) => places.len() * self.width.div_ceil(8) as usize,
            }
    }

    fn finish(&mut self, page: &mut Vec<u8>) {
        if self.dictionary.is_none() {
            page.append(&mut self.plain);
            return;
        }
        page.push(self.width as u8);
        match &mut self.page {
            Page::Hybrid(places) => places.finish(page),
            Page::Aligned(places) => {
                if self.width > 0 {
                    byte_aligned(places, self.width, page);
                } else {
                    let mut run = Hybrid::new(0);
                    run.push_run(0, places.len());
                    run.finish(page);
                }
                places.clear();
            }
        }
    }

    fn encoding(&self) -> Encoding {
        match self.dictionary {
            Some(_) => Encoding::RLE_DICTIONARY,
            None => Encoding::PLAIN,
        }
    }

    fn has_bounds(&self) -> bool {
        self.sorted && self.dictionary.is_some()
    }

    fn bounds(&mut self) -> Option<Bounds> {
        let (min, max) = self.bounds.take()?;
        let dictionary = self.dictionary.as_ref().filter(|_| self.sorted)?;
        let text = |place: u32| {
            let id = dictionary.get(place as usize).copied();
            self.source.get(id.unwrap_or_default()).to_vec()
        };
        Some(Bounds::Bytes(text(min), text(max)))
    }

    fn dictionary(&self) -> Option<(Vec<u8>, u32)> {
        let dictionary = self.dictionary.as_ref()?;
        let mut page = Vec::new();
        for id in dictionary {
            let text = self.source.get(*id);
            put(text, self.source.are_words(), &mut page);
        }
        Some((page, dictionary.len() as u32))
    }
}

#[inline]
fn put(text: &[u8], is_word: bool, output: &mut Vec<u8>) {
    if !is_word {
        output.extend_from_slice(&(text.len() as u32).to_le_bytes());
    }
    output.extend_from_slice(text);
}
