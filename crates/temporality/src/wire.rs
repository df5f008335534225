//! Data points in encoded form.

use tributary_otlp::edit::{Editor, put_delimited};
use tributary_otlp::reader::{Field, Value, WireFault, put_varint, varint};

use crate::buckets::Buckets;
use crate::kinds::CumulativeKind;
use crate::point::{ExponentialValue, HistogramValue, PointValue};

/// Flag of a point without a value (`DataPointFlags`).
const NO_RECORDED_VALUE: u64 = 1;

/// A data point, read from its encoding.
pub(crate) struct WirePoint<'a> {
    pub(crate) start: u64,
    pub(crate) time: u64,
    pub(crate) value: PointValue,
    pub(crate) has_value: bool,
    /// Whether a histogram has a sum that is a number.
    has_sum: bool,
    /// Fields that a conversion replaces, in the order of the encoding.
    replaced: Vec<Field<'a>>,
    /// Number of the field with the value of a number; 0 if there is none.
    pub(crate) number: u32,
}

/// Numbers of the fields of a kind of data point, by meaning.
struct Numbers {
    flags: u32,
    /// Fields that a conversion replaces.
    replaced: &'static [u32],
}

const fn numbers(kind: CumulativeKind) -> Numbers {
    match kind {
        CumulativeKind::Sum => Numbers {
            flags: 8,
            replaced: &[2, 4, 6],
        },
        CumulativeKind::Histogram => Numbers {
            flags: 10,
            replaced: &[2, 4, 5, 6, 11, 12],
        },
        CumulativeKind::ExponentialHistogram => Numbers {
            flags: 10,
            replaced: &[2, 4, 5, 7, 8, 9, 12, 13],
        },
    }
}

impl<'a> WirePoint<'a> {
    /// Reads a data point. `None` if a message in it occurs twice.
    pub(crate) fn read(kind: CumulativeKind, point: &Field<'a>) -> Result<Option<Self>, WireFault> {
        let numbers = numbers(kind);
        let mut read = WirePoint {
            start: 0,
            time: 0,
            value: PointValue::Int(0),
            has_value: true,
            has_sum: false,
            replaced: Vec::new(),
            number: 0,
        };
        let mut histogram = HistogramValue::default();
        let mut exponential = ExponentialValue::default();
        let (mut positives, mut negatives) = (0, 0);
        for field in point.fields() {
            let field = field?;
            if numbers.replaced.contains(&field.number) {
                read.replaced.push(field);
            }
            match (kind, field.number, field.value) {
                (_, 2, Value::Fixed64(time)) => read.start = time,
                (_, 3, Value::Fixed64(time)) => read.time = time,
                (_, number, Value::Varint(flags)) if number == numbers.flags => {
                    read.has_value = flags & NO_RECORDED_VALUE == 0;
                }
                (CumulativeKind::Sum, 4, Value::Fixed64(bits)) => {
                    read.number = 4;
                    read.value = PointValue::Double(f64::from_bits(bits));
                }
                (CumulativeKind::Sum, 6, Value::Fixed64(bits)) => {
                    read.number = 6;
                    read.value = PointValue::Int(bits.cast_signed());
                }
                (CumulativeKind::Sum, ..) => {}
                (_, 4, Value::Fixed64(count)) => {
                    histogram.count = count;
                    exponential.count = count;
                }
                (_, 5, Value::Fixed64(bits)) => {
                    let sum = f64::from_bits(bits);
                    read.has_sum = !sum.is_nan();
                    histogram.sum = sum;
                    exponential.sum = sum;
                }
                (CumulativeKind::Histogram, 6, value) => fixed64s(value, &mut histogram.counts),
                (CumulativeKind::Histogram, 7, value) => {
                    let mut bits = Vec::new();
                    fixed64s(value, &mut bits);
                    histogram
                        .bounds
                        .extend(bits.into_iter().map(f64::from_bits));
                }
                (CumulativeKind::Histogram, ..) => {}
                (_, 6, Value::Varint(scale)) => exponential.scale = zigzag(scale),
                (_, 7, Value::Fixed64(count)) => exponential.zero_count = count,
                (_, 8, Value::Bytes(_)) => {
                    positives += 1;
                    exponential.positive = buckets(&field)?;
                }
                (_, 9, Value::Bytes(_)) => {
                    negatives += 1;
                    exponential.negative = buckets(&field)?;
                }
                (_, 14, Value::Fixed64(bits)) => exponential.zero_threshold = f64::from_bits(bits),
                _ => {}
            }
        }
        match kind {
            CumulativeKind::Sum => {}
            CumulativeKind::Histogram => read.value = PointValue::Histogram(histogram),
            CumulativeKind::ExponentialHistogram => {
                read.value = PointValue::Exponential(Box::new(exponential));
            }
        }
        Ok((positives < 2 && negatives < 2).then_some(read))
    }

    /// Returns the memory that reading the point takes, at most, in bytes: an encoded count has at least one byte.
    pub(crate) fn memory(point: &Field<'_>) -> usize {
        // Lists double their capacity.
        point.raw.len().saturating_mul(2 * size_of::<u64>()) + 256
    }

    /// Replaces start and value of the point.
    pub(crate) fn write(
        &self,
        point: &Field<'a>,
        start: u64,
        delta: &PointValue,
        editor: &mut Editor<'a>,
    ) {
        for field in &self.replaced {
            editor.delete(field);
        }
        editor.append(point, |output| {
            put_fixed64(2, start, output);
            match delta {
                PointValue::Int(value) => put_fixed64(6, value.cast_unsigned(), output),
                PointValue::Double(value) => put_fixed64(4, value.to_bits(), output),
                PointValue::Histogram(delta) => {
                    put_fixed64(4, delta.count, output);
                    self.put_sum(delta.sum, output);
                    if !delta.counts.is_empty() {
                        let counts = delta.counts.iter().flat_map(|count| count.to_le_bytes());
                        put_delimited(6, &counts.collect::<Vec<u8>>(), output);
                    }
                }
                PointValue::Exponential(delta) => {
                    put_fixed64(4, delta.count, output);
                    self.put_sum(delta.sum, output);
                    put_fixed64(7, delta.zero_count, output);
                    put_buckets(8, &delta.positive, output);
                    put_buckets(9, &delta.negative, output);
                }
            }
        });
    }

    /// Writes the sum of a histogram. A sum that is no number stays.
    fn put_sum(&self, sum: f64, output: &mut Vec<u8>) {
        if self.has_sum {
            put_fixed64(5, sum.to_bits(), output);
            return;
        }
        let last = self.replaced.iter().rfind(|field| field.number == 5);
        output.extend_from_slice(last.map_or(&[], |field| field.raw));
    }
}

fn buckets(message: &Field<'_>) -> Result<Buckets, WireFault> {
    let mut buckets = Buckets::default();
    for field in message.fields() {
        let field = field?;
        match (field.number, field.value) {
            (1, Value::Varint(offset)) => buckets.offset = zigzag(offset),
            (2, Value::Varint(count)) => buckets.counts.push(count),
            (2, Value::Bytes(mut packed)) => {
                while !packed.is_empty() {
                    let (count, rest) = varint(packed)?;
                    buckets.counts.push(count);
                    packed = rest;
                }
            }
            _ => {}
        }
    }
    Ok(buckets)
}

fn fixed64s(value: Value<'_>, list: &mut Vec<u64>) {
    match value {
        Value::Fixed64(bits) => list.push(bits),
        Value::Bytes(packed) => {
            let (chunks, _) = packed.as_chunks::<8>();
            list.extend(chunks.iter().map(|bytes| u64::from_le_bytes(*bytes)));
        }
        _ => {}
    }
}

#[allow(clippy::cast_possible_truncation)] // `sint32` has 32 bits.
fn zigzag(value: u64) -> i32 {
    let value = value as u32;
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

fn put_fixed64(number: u32, bits: u64, output: &mut Vec<u8>) {
    put_varint(u64::from(number << 3 | 1), output);
    output.extend_from_slice(&bits.to_le_bytes());
}

fn put_buckets(number: u32, buckets: &Buckets, output: &mut Vec<u8>) {
    let mut body = Vec::new();
    if buckets.offset != 0 {
        let offset = (buckets.offset << 1) ^ (buckets.offset >> 31);
        put_varint(1 << 3, &mut body);
        put_varint(u64::from(offset.cast_unsigned()), &mut body);
    }
    if !buckets.counts.is_empty() {
        let mut counts = Vec::new();
        buckets
            .counts
            .iter()
            .for_each(|count| put_varint(*count, &mut counts));
        put_delimited(2, &counts, &mut body);
    }
    put_delimited(number, &body, output);
}
