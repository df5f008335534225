//! Heat maps: values over seconds, and over the parts of a second.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Serialize;
use tributary_otlp::reader::put_varint;
use tributary_profiles::model::Samples;

use super::format::number;

/// Number of parts of a second: 20 ms each, as in FlameScope.
pub const ROWS: u8 = 50;
const NANOS: u64 = 1_000_000_000;
/// Maximum distance of a timestamp from the start of its window, in seconds. Timestamps beyond are left out, so that
/// the size of a heat map is bounded.
pub(crate) const MAX_SAMPLE_OFFSET_SECONDS: u64 = 600;

/// Values by second (since 1970) and by part of the second.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Cells(BTreeMap<(u64, u8), i64>);

/// A heat map of samples with timestamps.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct HeatMap {
    /// Number of parts of a second.
    pub rows: u8,
    /// Cells that are not 0: second since 1970, part of the second, and value.
    pub cells: Vec<(u64, u8, i64)>,
}

impl Cells {
    /// Adds the samples of a window. A timestamp without a value counts 1.
    pub(crate) fn add_samples(&mut self, samples: &Samples, window: u64) {
        for sample in samples.iter() {
            let values = sample.values.iter().copied().chain(std::iter::repeat(1));
            for (timestamp, value) in sample.timestamps.iter().zip(values) {
                let second = timestamp / NANOS;
                if second
                    .checked_sub(window)
                    .is_some_and(|after| after < MAX_SAMPLE_OFFSET_SECONDS)
                {
                    let row = timestamp % NANOS * u64::from(ROWS) / NANOS;
                    self.add((second, u8::try_from(row).unwrap_or_default()), value);
                }
            }
        }
    }

    pub(crate) fn merge(&mut self, other: &Cells) {
        for (at, value) in &other.0 {
            self.add(*at, *value);
        }
    }

    fn add(&mut self, at: (u64, u8), value: i64) {
        let cell = self.0.entry(at).or_default();
        *cell = cell.saturating_add(value);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Memory of the cells, in bytes, with the nodes of the tree half full.
    pub(crate) fn bytes(&self) -> u64 {
        (self.0.len() * 2 * size_of::<((u64, u8), i64)>()) as u64
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut last = 0;
        for ((second, row), value) in &self.0 {
            put_varint(second - last, &mut bytes);
            put_varint((*row).into(), &mut bytes);
            put_varint(value.cast_unsigned(), &mut bytes);
            last = *second;
        }
        bytes
    }

    /// Decodes cells. `None` if they are damaged.
    pub(crate) fn decode(mut bytes: &[u8]) -> Option<Self> {
        let mut cells = Cells::default();
        let mut second = 0_u64;
        while !bytes.is_empty() {
            second = second.checked_add(number(&mut bytes)?)?;
            let row = u8::try_from(number(&mut bytes)?).ok()?;
            let value = number(&mut bytes)?.cast_signed();
            cells.0.insert((second, row), value);
        }
        Some(cells)
    }

    /// Returns the cells in a range of seconds.
    pub(crate) fn map(&self, seconds: Range<u64>) -> HeatMap {
        let cells = match seconds.is_empty() {
            true => Vec::new(),
            false => {
                let range = self.0.range((seconds.start, 0)..(seconds.end, 0));
                range
                    .map(|((second, row), value)| (*second, *row, *value))
                    .collect()
            }
        };
        HeatMap { rows: ROWS, cells }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tributary_profiles::dictionary::SampleKey;

    #[test]
    fn samples_fall_into_parts_of_seconds() {
        let mut samples = Samples::default();
        let times = [
            100 * NANOS,
            100 * NANOS + 19_999_999,
            101 * NANOS - 1,
            99 * NANOS,
            700 * NANOS,
        ];
        samples.push(SampleKey::default(), &[], &times);
        samples.push(SampleKey::default(), &[7], &[100 * NANOS]);
        samples.push(SampleKey::default(), &[9], &[]);
        let mut cells = Cells::default();
        cells.add_samples(&samples, 100);
        let again = Cells::decode(&cells.encode()).unwrap();
        assert_eq!(again, cells);
        let map = again.map(0..u64::MAX);
        assert_eq!(map.cells, [(100, 0, 9), (100, 49, 1)]);
        assert!(again.map(101..200).cells.is_empty());
        cells.merge(&again);
        assert_eq!(cells.map(100..101).cells, [(100, 0, 18), (100, 49, 2)]);
    }
}
