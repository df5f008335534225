//! Thresholds and randomness of 56 bits, as OpenTelemetry's consistent probability sampling has them
//! (OTEP 235, <https://opentelemetry.io/docs/specs/otel/trace/tracestate-probability-sampling/>).

/// One more than the largest randomness.
const RANGE: u64 = 1 << 56;

/// Hexadecimal digits of 56 bits.
pub(super) const DIGITS: u32 = 14;

/// Smallest possible probability.
pub(super) const LEAST_PROBABILITY: f64 = 1.0 / RANGE as f64;

/// Minimum randomness of a sampled item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Threshold(u64);

/// A number from 0 up to 2^56, the same for all items of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Randomness(u64);

impl Threshold {
    pub(super) const ALWAYS: Threshold = Threshold(0);
    pub(super) const NEVER: Threshold = Threshold(RANGE);

    /// Returns the threshold for a probability, rounded to `precision` hexadecimal digits after leading zeros or
    /// `f`s; `None` if it is out of range.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Within the range, checked first.
    pub(super) fn of_probability(probability: f64, precision: u32) -> Option<Self> {
        if !(LEAST_PROBABILITY..=1.0).contains(&probability) {
            return None;
        }
        if probability == 1.0 {
            return Some(Threshold::ALWAYS);
        }
        let leading = |part: f64| exponent(part).unsigned_abs() / 4;
        let precision = (precision + leading(probability))
            .max(precision + leading(1.0 - probability))
            .min(DIGITS);
        let scaled = (probability * RANGE as f64).round() as u64;
        let mut threshold = RANGE - scaled;
        let shift = 4 * (DIGITS - precision);
        if shift > 0 {
            threshold = (threshold + (1 << (shift - 1))) >> shift << shift;
        }
        Some(Threshold(threshold))
    }

    pub(super) fn from_bits(bits: u64) -> Self {
        Threshold(bits.min(RANGE))
    }

    /// Parses a `th` value: up to 14 hexadecimal digits, without trailing zeros.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let digits = u32::try_from(text.len()).ok()?;
        if digits == 0 || digits > DIGITS {
            return None;
        }
        Some(Threshold(hexadecimal(text)? << (4 * (DIGITS - digits))))
    }

    /// Formats the `th` value; empty for [`NEVER`](Self::NEVER).
    pub(super) fn text(self) -> String {
        match self {
            Threshold::ALWAYS => "0".to_owned(),
            Threshold::NEVER => String::new(),
            Threshold(bits) => format!("{bits:014x}").trim_end_matches('0').to_owned(),
        }
    }

    pub(super) fn samples(self, randomness: Randomness) -> bool {
        self.0 <= randomness.0
    }

    pub(super) fn probability(self) -> f64 {
        (RANGE - self.0) as f64 / RANGE as f64
    }
}

/// Returns the exponent of the smallest power of two above the number, for numbers from 2^-56 to 1.
#[allow(clippy::cast_possible_truncation)] // 11 bits.
fn exponent(number: f64) -> i32 {
    const EXPONENT_BIAS: i32 = 1022;
    ((number.to_bits() >> 52) & 0x7ff) as i32 - EXPONENT_BIAS
}

impl Randomness {
    /// Highest randomness, sampled by every threshold except [`Threshold::NEVER`].
    pub(super) const ALL: Randomness = Randomness(RANGE - 1);

    /// Returns the last 7 bytes of a trace id.
    pub(super) fn of_trace(trace_id: &[u8; 16]) -> Self {
        let [.., a, b, c, d, e, f, g] = *trace_id;
        Randomness(u64::from_be_bytes([0, a, b, c, d, e, f, g]))
    }

    /// Returns the Collector's hash with a seed. 14 bits of the hash decide; the remaining 18 of 32 bits fill up the
    /// number.
    pub(super) fn of_hash(bytes: &[u8], seed: u32) -> Self {
        let hash = fnv1a(bytes, seed);
        let bucket = u64::from(hash) & (BUCKETS - 1);
        let unused = u64::from(hash >> (32 - BUCKET_BITS));
        let mixed = unused ^ (unused << 10);
        Randomness((BUCKETS - 1 - bucket) << 42 | mixed << 14 | bucket)
    }

    /// Whether this is a hash, with any seed: 24 of its bits repeat other bits.
    pub(super) fn is_hash(self) -> bool {
        const LOW_28_BITS: u64 = (1 << 28) - 1;
        let bucket = self.0 & (BUCKETS - 1);
        let mixed = self.0 >> BUCKET_BITS & LOW_28_BITS;
        let unused = mixed >> 18 << 8 | mixed & 0xff;
        self.0 >> 42 == BUCKETS - 1 - bucket && (unused ^ (unused << 10)) & LOW_28_BITS == mixed
    }

    /// Reads an `rv` value: 14 hexadecimal digits.
    pub(super) fn parse(text: &str) -> Option<Self> {
        (text.len() == DIGITS as usize)
            .then(|| hexadecimal(text))
            .flatten()
            .map(Randomness)
    }

    /// Formats the `rv` value.
    pub(super) fn text(self) -> String {
        format!("{:014x}", self.0)
    }
}

/// The bits of the Collector's hash that decide.
pub(super) const BUCKET_BITS: u32 = 14;

pub(super) const BUCKETS: u64 = 1 << BUCKET_BITS;

/// Returns FNV-1a of 32 bits (<https://www.ietf.org/archive/id/draft-eastlake-fnv-17.html>) of the seed, in little-endian
/// order, and the bytes.
fn fnv1a(bytes: &[u8], seed: u32) -> u32 {
    const OFFSET: u32 = 0x811c_9dc5;
    const PRIME: u32 = 0x0100_0193;
    let seed = seed.to_le_bytes();
    let all = seed.iter().chain(bytes);
    all.fold(OFFSET, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(PRIME)
    })
}

fn hexadecimal(text: &str) -> Option<u64> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_plain
        .then(|| u64::from_str_radix(text, 16).ok())
        .flatten()
}
