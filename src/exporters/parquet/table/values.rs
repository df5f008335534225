//! Encoders of column values, which also track the bounds of each page.

use parquet::basic::Encoding;
use parquet::bloom_filter::Sbbf;

use super::bounds::Bounds;
use super::encoding::{Hybrid, bit_width, delta};

/// Encodes the values of a column, page by page.
pub(super) trait Encoder {
    type Item;
    fn push(&mut self, value: Self::Item);
    fn push_run(&mut self, value: Self::Item, times: usize)
    where
        Self::Item: Copy,
    {
        for _ in 0..times {
            self.push(value);
        }
    }
    /// Returns the approximate size of the page so far, in bytes.
    fn len(&self) -> usize;
    /// Returns the approximate bytes that a value adds to the page.
    fn size(&self, _value: Self::Item) -> usize {
        size_of::<Self::Item>()
    }
    /// Appends the page's values, and begins the next page.
    fn finish(&mut self, page: &mut Vec<u8>);
    fn encoding(&self) -> Encoding;
    /// Returns the bounds since the last call.
    fn bounds(&mut self) -> Option<Bounds> {
        None
    }
    /// Returns the encoded dictionary and its number of entries.
    fn dictionary(&self) -> Option<(Vec<u8>, u32)> {
        None
    }
    fn bloom_filter(&mut self) -> Option<Sbbf> {
        None
    }
}

/// 64-bit integers.
#[derive(Debug)]
pub(super) struct Whole {
    values: Vec<i64>,
    is_unsigned: bool,
    encoding: Encoding,
}

impl Whole {
    /// Returns an encoder of differences, which suit times and counts.
    pub(super) fn deltas() -> Self {
        Whole {
            values: Vec::new(),
            is_unsigned: false,
            encoding: Encoding::DELTA_BINARY_PACKED,
        }
    }

    /// Returns an encoder of differences of unsigned numbers, given as their bits.
    pub(super) fn unsigned_deltas() -> Self {
        Whole {
            is_unsigned: true,
            ..Whole::deltas()
        }
    }

    /// Returns an encoder of plain values.
    pub(super) fn plain() -> Self {
        Whole {
            encoding: Encoding::PLAIN,
            ..Whole::deltas()
        }
    }
}

impl Encoder for Whole {
    type Item = i64;

    #[inline]
    fn push(&mut self, value: i64) {
        self.values.push(value);
    }

    fn len(&self) -> usize {
        self.values.len() * size_of::<i64>()
    }

    fn finish(&mut self, page: &mut Vec<u8>) {
        match self.encoding {
            Encoding::PLAIN => {
                page.reserve(self.len());
                for value in &self.values {
                    page.extend_from_slice(&value.to_le_bytes());
                }
            }
            _ => delta(&self.values, page),
        }
    }

    fn encoding(&self) -> Encoding {
        self.encoding
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

/// 32-bit numbers with few distinct values, with a dictionary.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    dictionary: Vec<u32>,
    ids: std::collections::HashMap<u32, u32, foldhash::fast::FixedState>,
    /// The last value and its dictionary index.
    last: (u32, u32),
    page: Hybrid,
    bounds: Option<(u32, u32)>,
    signed: bool,
    width: u32,
}

impl Numbers {
    /// Returns an encoder for exactly these values.
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
            // Makes signed numbers sort like unsigned ones.
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

/// 64-bit numbers in lists, plain.
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

/// Floating-point numbers, plain.
#[derive(Debug, Default)]
pub(super) struct Doubles {
    page: Vec<u8>,
    bounds: Option<(f64, f64)>,
}

impl Encoder for Doubles {
    type Item = f64;

    #[inline]
    fn push(&mut self, value: f64) {
        self.page.extend_from_slice(&value.to_le_bytes());
        // Readers know that NaN values are outside of the bounds.
        if !value.is_nan() {
            let (min, max) = self.bounds.unwrap_or((value, value));
            self.bounds = Some((min.min(value), max.max(value)));
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

    fn bounds(&mut self) -> Option<Bounds> {
        let (min, max) = self.bounds.take()?;
        let zero = |bound: f64, zero: f64| if bound == 0.0 { zero } else { bound };
        Some(Bounds::Doubles(zero(min, -0.0), zero(max, 0.0)))
    }
}

/// Booleans, one bit each.
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

/// Bytes of a fixed length: ids of traces, spans and profiles.
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

    fn bounds(&mut self) -> Option<Bounds> {
        let (min, max) = self.bounds.take()?;
        self.last = None;
        Some(Bounds::Bytes(min.into(), max.into()))
    }

    fn bloom_filter(&mut self) -> Option<Sbbf> {
        self.bloom.take()
    }
}
