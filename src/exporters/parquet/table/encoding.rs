//! Parquet's encodings of numbers.
//!
//! The formats are those of <https://parquet.apache.org/docs/file-format/data-pages/encodings/>.

use tributary_otlp::reader::put_varint;

/// Returns the number of bits for numbers up to `max`.
pub(super) fn bit_width(max: u64) -> u32 {
    u64::BITS - max.leading_zeros()
}

/// RLE/bit-packing hybrid, encoding 3. At least eight equal values become a run; other values are
/// packed.
#[derive(Debug, Default)]
pub(super) struct Hybrid {
    width: u32,
    /// The last value and the length of its run, without packed values.
    last: u32,
    run: usize,
    /// Values to be packed, in whole groups of eight when written.
    packed: Vec<u32>,
    output: Vec<u8>,
}

impl Hybrid {
    /// Returns an encoder for values of up to `width` bits; at most 32.
    pub(super) fn new(width: u32) -> Self {
        Hybrid {
            width,
            ..Hybrid::default()
        }
    }

    #[inline]
    pub(super) fn push(&mut self, value: u32) {
        if value == self.last {
            self.run += 1;
        } else {
            self.end_run();
            self.last = value;
            self.run = 1;
        }
    }

    /// Adds the same value several times.
    #[inline]
    pub(super) fn push_run(&mut self, value: u32, count: usize) {
        if count > 0 {
            if value != self.last {
                self.end_run();
                self.last = value;
            }
            self.run += count;
        }
    }

    #[inline]
    fn end_run(&mut self) {
        if self.run < 8 {
            // Short runs dominate in columns without order.
            for _ in 0..self.run {
                self.packed.push(self.last);
            }
            self.run = 0;
        } else {
            self.end_long_run();
        }
    }

    fn end_long_run(&mut self) {
        // Packed values come in groups of eight, so the run first fills the last group.
        let gap = self.packed.len().next_multiple_of(8) - self.packed.len();
        let filling = gap.min(self.run);
        let left = self.run - filling;
        if left >= 8 {
            self.packed.extend(std::iter::repeat_n(self.last, filling));
            self.pack();
            put_varint((left as u64) << 1, &mut self.output);
            let bytes = self.width.div_ceil(8) as usize;
            self.output
                .extend_from_slice(&self.last.to_le_bytes()[..bytes]);
        } else {
            self.packed.extend(std::iter::repeat_n(self.last, self.run));
        }
        self.run = 0;
    }

    fn pack(&mut self) {
        if self.packed.is_empty() {
            return;
        }
        let groups = self.packed.len().div_ceil(8);
        put_varint((groups as u64) << 1 | 1, &mut self.output);
        self.packed.resize(groups * 8, 0);
        pack(&self.packed, self.width, &mut self.output);
        self.packed.clear();
    }

    /// Returns the approximate encoded size in bytes.
    pub(super) fn len(&self) -> usize {
        self.output.len() + (self.packed.len() * self.width as usize).div_ceil(8)
    }

    /// Appends the encoded values to `output`, and starts over.
    pub(super) fn finish(&mut self, output: &mut Vec<u8>) {
        self.end_run();
        self.pack();
        output.append(&mut self.output);
        self.last = 0;
    }
}

/// Packs numbers of `width` bits, lowest bits first, in whole groups of eight.
fn pack(values: &[u32], width: u32, output: &mut Vec<u8>) {
    match width {
        0 => {}
        8 => output.extend(values.iter().map(|value| *value as u8)),
        16 => {
            for value in values {
                output.extend_from_slice(&(*value as u16).to_le_bytes());
            }
        }
        _ => {
            let (mut bits, mut count) = (0_u64, 0);
            for value in values {
                bits |= u64::from(*value) << count;
                count += width;
                if count >= 32 {
                    output.extend_from_slice(&(bits as u32).to_le_bytes());
                    bits >>= 32;
                    count -= 32;
                }
            }
            // Eight values fill whole bytes.
            output.extend_from_slice(&bits.to_le_bytes()[..count.div_ceil(8) as usize]);
        }
    }
}

/// Writes all values as a bit-packed run with a width of whole bytes. It takes more bits than
/// necessary, but repeated values become repeated bytes, which compressors find.
pub(super) fn byte_aligned(values: &[u32], width: u32, output: &mut Vec<u8>) {
    let groups = values.len().div_ceil(8);
    put_varint((groups as u64) << 1 | 1, output);
    let bytes = width.div_ceil(8) as usize;
    output.reserve(groups * 8 * bytes);
    match bytes {
        1 => output.extend(values.iter().map(|value| *value as u8)),
        2 => values
            .iter()
            .for_each(|value| output.extend_from_slice(&(*value as u16).to_le_bytes())),
        bytes => values
            .iter()
            .for_each(|value| output.extend_from_slice(&value.to_le_bytes()[..bytes])),
    }
    let padding = groups * 8 - values.len();
    output.resize(output.len() + padding * bytes, 0);
}

/// DELTA_BINARY_PACKED, encoding 5, in blocks of 128 values with four miniblocks each.
pub(super) fn delta(values: &[i64], output: &mut Vec<u8>) {
    const BLOCK: usize = 128;
    const MINIBLOCK: usize = 32;
    put_varint(BLOCK as u64, output);
    put_varint((BLOCK / MINIBLOCK) as u64, output);
    put_varint(values.len() as u64, output);
    let (first, rest) = values.split_first().unwrap_or((&0, &[]));
    put_varint(zigzag(*first), output);
    let mut last = *first;
    let mut deltas = [0_i64; BLOCK];
    for block in rest.chunks(BLOCK) {
        for (delta, value) in deltas.iter_mut().zip(block) {
            *delta = value.wrapping_sub(last);
            last = *value;
        }
        let deltas = &mut deltas[..block.len()];
        let min = deltas.iter().copied().min().unwrap_or_default();
        put_varint(zigzag(min), output);
        let widths = output.len();
        output.extend_from_slice(&[0; BLOCK / MINIBLOCK]);
        for (at, miniblock) in deltas.chunks(MINIBLOCK).enumerate() {
            let mut above = [0_u64; MINIBLOCK];
            for (above, delta) in above.iter_mut().zip(miniblock) {
                *above = delta.wrapping_sub(min).cast_unsigned();
            }
            let width = bit_width(above.iter().fold(0, |all, one| all | one));
            output[widths + at] = width as u8;
            pack_wide(&above, width, output);
        }
    }
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

fn pack_wide(values: &[u64], width: u32, output: &mut Vec<u8>) {
    let (mut bits, mut count) = (0_u128, 0);
    for value in values {
        bits |= u128::from(*value) << count;
        count += width;
        if count >= 64 {
            output.extend_from_slice(&(bits as u64).to_le_bytes());
            bits >>= 64;
            count -= 64;
        }
    }
    output.extend_from_slice(&(bits as u64).to_le_bytes()[..count.div_ceil(8) as usize]);
}
