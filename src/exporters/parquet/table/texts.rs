//! Columns of interned texts.

use std::cmp::Ordering;

use parquet::basic::Encoding;

use super::bounds::Bounds;
use super::encoding::{Hybrid, bit_width, byte_aligned};
use super::strings::Strings;
use super::values::Encoder;

/// Maps numbers to texts.
pub(super) trait AttributeOwner {
    fn get(&self, id: u32) -> &[u8];
    fn len(&self) -> usize;
    /// Whether all texts are 64-bit numbers, which need no lengths.
    fn are_words(&self) -> bool {
        false
    }
    /// Compares two texts for a sorted dictionary.
    fn compare(&self, a: u32, b: u32) -> Ordering {
        self.get(a).cmp(self.get(b))
    }
}

impl AttributeOwner for Strings {
    fn get(&self, id: u32) -> &[u8] {
        Strings::get(self, id)
    }

    fn len(&self) -> usize {
        Strings::len(self)
    }
}

/// 64-bit numbers instead of texts.
pub(super) struct Numbers64<'s>(pub(super) &'s Strings);

impl AttributeOwner for Numbers64<'_> {
    fn get(&self, id: u32) -> &[u8] {
        self.0.get(id)
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn are_words(&self) -> bool {
        true
    }

    fn compare(&self, a: u32, b: u32) -> Ordering {
        // The last byte of a number is the most significant.
        self.get(a).iter().rev().cmp(self.get(b).iter().rev())
    }
}

/// Kind of a text column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Column {
    /// Texts, one per row, often in long runs. Readers use the bounds.
    Flat,
    /// Lists of texts.
    Lists,
    /// Numbers without an order.
    Hashes,
}

/// Encoder of texts by number, with a dictionary if that is smaller.
pub(super) struct Texts<'s, S> {
    source: &'s S,
    /// Dictionary indices, by number.
    places: Vec<u32>,
    /// The dictionary; `None` if texts are written directly.
    dictionary: Option<Vec<u32>>,
    /// Whether the dictionary is sorted. A sorted dictionary has bounds and compresses better,
    /// because similar texts are adjacent: dictionaries of frames take a quarter less.
    sorted: bool,
    width: u32,
    page: Page,
    plain: Vec<u8>,
    bounds: Option<(u32, u32)>,
}

/// Dictionary indices of a page.
enum Page {
    /// Indices of columns with runs.
    Hybrid(Hybrid),
    /// Indices of other columns, in whole bytes.
    Aligned(Vec<u32>),
}

/// Size in bytes above which a dictionary is only written if plain texts would take more than twice
/// as much, because readers must load a whole dictionary for a single row. Without the exception, a
/// long text shared by all rows of a large request would be written, and held in memory, for each
/// row.
const DICTIONARY_BYTES: usize = 16 << 20;
/// Number of entries above which a dictionary is only sorted if it is small compared to the rows.
/// Large dictionaries contain mostly unique texts, whose bounds let readers skip nothing, and
/// sorting is the most expensive step.
pub(super) const SORTED_ENTRIES: usize = 4096;

impl<'s, S: AttributeOwner> Texts<'s, S> {
    /// Returns an encoder for exactly these numbers, each with its number of occurrences. Columns
    /// that are not flat use indices of whole bytes.
    pub(super) fn of(
        source: &'s S,
        values: impl Iterator<Item = (u32, usize)>,
        column: Column,
    ) -> Self {
        let mut places = vec![0_u32; source.len()];
        // Used numbers, in order of occurrence. `places` first holds counts, then indices.
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
            let times = places[*id as usize] as usize;
            all = length.saturating_mul(times).saturating_add(all);
        }
        let index_bits = bit_width(used.len().saturating_sub(1) as u64) as usize;
        let with_dictionary = once + total * index_bits / 8;
        let few = used.len() <= SORTED_ENTRIES || used.len() < total / 16;
        let mut texts = Texts {
            source,
            places,
            dictionary: None,
            sorted: few && column != Column::Hashes,
            width: 0,
            page: Page::Aligned(Vec::new()),
            plain: Vec::new(),
            bounds: None,
        };
        let bearable = once <= DICTIONARY_BYTES || all / 2 > once;
        if bearable && with_dictionary < all {
            texts.set_dictionary(used);
            if column == Column::Flat {
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
            used.sort_unstable_by(|a, b| source.compare(*a, *b));
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

    /// Adds the entries of a row several times.
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

impl<S: AttributeOwner> Encoder for Texts<'_, S> {
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

    fn size(&self, id: u32) -> usize {
        match self.dictionary {
            Some(_) => size_of::<u32>(),
            None => self.source.get(id).len() + size_of::<u32>(),
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
