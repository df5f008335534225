//! Exemplars: sample measurements with the span in which they were made.

use tributary_otlp::view;
use tributary_otlp::view::Number;

/// A stored exemplar. Its attributes are dropped: OpenMetrics allows only 128 characters, and the
/// trace is the most useful part.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Exemplar {
    pub(super) value: f64,
    /// Nanoseconds since 1970.
    pub(super) time: u64,
    /// All zero without a trace.
    pub(super) trace_id: [u8; 16],
    /// All zero without a span.
    pub(super) span_id: [u8; 8],
}

impl Exemplar {
    /// Reads an exemplar; returns `None` without a value.
    pub(super) fn read(exemplar: &view::Exemplar<'_>) -> Option<Self> {
        let value = match exemplar.value()? {
            Number::Double(value) => value,
            Number::Int(value) => value as f64,
        };
        Some(Exemplar {
            value,
            time: exemplar.time_unix_nano(),
            trace_id: exemplar.trace_id().try_into().unwrap_or_default(),
            span_id: exemplar.span_id().try_into().unwrap_or_default(),
        })
    }

    /// Returns the labels, in hexadecimal digits.
    pub(super) fn labels(&self) -> impl Iterator<Item = (&'static str, String)> {
        let hex = |id: &[u8]| {
            id.iter()
                .map(|byte| format!("{byte:02x}"))
                .collect::<String>()
        };
        let labels = [
            ("trace_id", hex(&self.trace_id)),
            ("span_id", hex(&self.span_id)),
        ];
        labels
            .into_iter()
            .filter(|(_, id)| id.bytes().any(|digit| digit != b'0'))
    }
}

/// Merges new exemplars into the old ones. Keeps the newest exemplar of each bucket, or the newest
/// few if there are no buckets (`bucket` is then the same for all).
pub(super) fn keep(
    kept: &mut Vec<Exemplar>,
    new: impl Iterator<Item = Exemplar>,
    bucket: impl Fn(&Exemplar) -> usize,
    of_one_bucket: usize,
) {
    for exemplar in new {
        let own = bucket(&exemplar);
        let mut same = kept
            .iter()
            .enumerate()
            .filter(|(_, other)| bucket(other) == own);
        let count = same.clone().count();
        let oldest = same
            .by_ref()
            .min_by_key(|(_, other)| other.time)
            .map(|(at, other)| (at, other.time));
        match oldest {
            Some((at, time)) if count >= of_one_bucket => {
                if time <= exemplar.time
                    && let Some(place) = kept.get_mut(at)
                {
                    *place = exemplar;
                }
            }
            _ => kept.push(exemplar),
        }
    }
}
