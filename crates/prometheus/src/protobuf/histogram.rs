//! Native histograms.

use tributary_otlp::reader::{Fields, Value, varint};

use super::wire::{double, integer, last_double, zigzag};
use crate::entry::{BucketRun, NativeHistogram};

/// Maximum number of buckets of all native histograms on a page, including empty buckets between others. Client
/// libraries have 160 in a histogram, so this is enough for 6,000 histograms, and 8 MiB of memory.
pub const MAX_BUCKETS: usize = 1 << 20;

/// Range of resolutions, as in Prometheus.
const SCHEMAS: std::ops::RangeInclusive<i64> = -4..=8;

/// Whether a histogram has parts of a native one: spans, a zero threshold or a zero bucket.
pub(super) fn is_native(message: &[u8]) -> Result<bool, &'static str> {
    let mut native = false;
    for field in Fields::new(message) {
        let field = field.map_err(|wrong| wrong.text())?;
        native |= match field.number {
            9 | 12 => true,
            6 => double(field.value) > 0.0,
            7 => integer(field.value) > 0,
            _ => false,
        };
    }
    Ok(native)
}

/// Buckets of one sign as on the wire.
#[derive(Default)]
struct Side {
    spans: Vec<(i64, u64)>,
    deltas: Vec<i64>,
    counts: Vec<f64>,
}

/// Reader of native histograms.
pub(super) struct Native;

impl Native {
    /// Reads a histogram with at most `room` buckets. Returns it with the number of its buckets.
    pub(super) fn read(message: &[u8], room: usize) -> Result<(NativeHistogram, usize), String> {
        let mut native = NativeHistogram::default();
        let (mut positive, mut negative) = (Side::default(), Side::default());
        let mut schema = 0;
        for field in Fields::new(message) {
            let field = field.map_err(|wrong| wrong.text())?;
            match field.number {
                1 => native.count = integer(field.value),
                2 => native.sum = double(field.value),
                5 => schema = zigzag(integer(field.value)),
                6 => native.zero_threshold = double(field.value),
                7 => native.zero_count = integer(field.value),
                9 => add_span(field.value, &mut negative.spans, room)?,
                10 => add_integers(field.value, &mut negative.deltas, room)?,
                11 => add_doubles(field.value, &mut negative.counts, room)?,
                12 => add_span(field.value, &mut positive.spans, room)?,
                13 => add_integers(field.value, &mut positive.deltas, room)?,
                14 => add_doubles(field.value, &mut positive.counts, room)?,
                _ => {}
            }
        }
        if !SCHEMAS.contains(&schema) {
            return Err(format!(
                "the histogram has the schema {schema}, which is not from -4 to 8"
            ));
        }
        native.schema = i32::try_from(schema).unwrap_or_default();
        let float_count = last_double(message, 4)?;
        let float_zeros = last_double(message, 8)?;
        let is_float = float_count > 0.0 || float_zeros > 0.0;
        if is_float {
            native.count = float_count as u64;
            native.zero_count = float_zeros as u64;
        }
        native.positive = positive.run(is_float, room)?;
        let left = room.saturating_sub(native.positive.counts.len());
        native.negative = negative.run(is_float, left)?;
        let buckets = native.positive.counts.len() + native.negative.counts.len();
        Ok((native, buckets))
    }
}

impl Side {
    /// Returns the buckets, with empty ones in the gaps.
    fn run(self, is_float: bool, room: usize) -> Result<BucketRun, String> {
        let given = if is_float {
            self.counts.len()
        } else {
            self.deltas.len()
        };
        let spanned = self.spans.iter().map(|(_, length)| *length);
        let spanned = spanned.fold(0, u64::saturating_add);
        if spanned != given as u64 {
            return Err(format!(
                "the spans of the histogram have {spanned} buckets, but {given} are given"
            ));
        }
        let mut run = BucketRun::default();
        let mut deltas = self.deltas.into_iter();
        let mut floats = self.counts.into_iter();
        let mut count: i64 = 0;
        for (number, (offset, length)) in self.spans.into_iter().enumerate() {
            if number == 0 {
                run.offset = i32::try_from(offset).unwrap_or_default();
            } else {
                let gap = usize::try_from(offset).map_err(|_| {
                    format!("a span of the histogram has the negative offset {offset}")
                })?;
                extend(&mut run.counts, gap, room)?;
            }
            for _ in 0..length {
                let next = match is_float {
                    true => floats.next().unwrap_or_default() as u64,
                    false => {
                        count = count.saturating_add(deltas.next().unwrap_or_default());
                        u64::try_from(count).map_err(|_| {
                            format!("a bucket of the histogram has the negative count {count}")
                        })?
                    }
                };
                extend(&mut run.counts, 1, room)?;
                if let Some(last) = run.counts.last_mut() {
                    *last = next;
                }
            }
        }
        run.trim();
        Ok(run)
    }
}

impl BucketRun {
    /// Removes empty buckets at both ends.
    fn trim(&mut self) {
        let filled = self.counts.iter().rposition(|count| *count > 0);
        self.counts.truncate(filled.map_or(0, |last| last + 1));
        let empty = self.counts.iter().take_while(|count| **count == 0).count();
        self.counts.drain(..empty);
        match self.counts.is_empty() {
            true => self.offset = 0,
            false => {
                self.offset = self
                    .offset
                    .saturating_add(i32::try_from(empty).unwrap_or(i32::MAX))
            }
        }
    }
}

fn extend(counts: &mut Vec<u64>, more: usize, room: usize) -> Result<(), String> {
    let length = counts.len().saturating_add(more);
    if length > room {
        return Err(too_many());
    }
    counts.resize(length, 0);
    Ok(())
}

fn too_many() -> String {
    format!(
        "the native histograms of the page have more than {MAX_BUCKETS} buckets, empty ones in between included"
    )
}

/// Adds a span. Even spans without buckets are not more than `room`.
fn add_span(value: Value<'_>, spans: &mut Vec<(i64, u64)>, room: usize) -> Result<(), String> {
    let span = span(value)?;
    if spans.len() >= room {
        return Err(too_many());
    }
    spans.push(span);
    Ok(())
}

/// Reads a `BucketSpan`.
fn span(value: Value<'_>) -> Result<(i64, u64), &'static str> {
    let message = value.bytes().ok_or("a span is not a message")?;
    let mut span = (0, 0);
    for field in Fields::new(message) {
        let field = field.map_err(|wrong| wrong.text())?;
        match field.number {
            1 => span.0 = i64::from(zigzag(integer(field.value)) as i32),
            2 => span.1 = u64::from(integer(field.value) as u32),
            _ => {}
        }
    }
    Ok(span)
}

/// Adds one integer, or all of a packed field, up to `room` integers.
fn add_integers(value: Value<'_>, integers: &mut Vec<i64>, room: usize) -> Result<(), String> {
    let mut add = |value| {
        if integers.len() >= room {
            return Err(too_many());
        }
        integers.push(zigzag(value));
        Ok(())
    };
    match value {
        Value::Varint(value) => add(value)?,
        Value::Bytes(mut rest) => {
            while !rest.is_empty() {
                let (value, after) = varint(rest).map_err(|wrong| wrong.text())?;
                add(value)?;
                rest = after;
            }
        }
        _ => return Err("the counts of buckets have another type".to_owned()),
    }
    Ok(())
}

/// Adds one number, or all of a packed field, up to `room` numbers.
fn add_doubles(value: Value<'_>, doubles: &mut Vec<f64>, room: usize) -> Result<(), String> {
    let left = room.saturating_sub(doubles.len());
    match value {
        Value::Fixed64(_) if left == 0 => return Err(too_many()),
        Value::Fixed64(bits) => doubles.push(f64::from_bits(bits)),
        Value::Bytes(packed) => {
            let (chunks, rest) = packed.as_chunks();
            if !rest.is_empty() {
                return Err("the counts of buckets are truncated".to_owned());
            }
            if chunks.len() > left {
                return Err(too_many());
            }
            doubles.extend(chunks.iter().map(|chunk| f64::from_le_bytes(*chunk)));
        }
        _ => return Err("the counts of buckets have another type".to_owned()),
    }
    Ok(())
}
