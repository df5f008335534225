//! Exemplars in the protobuf format.

use tributary_otlp::reader::Fields;

use super::wire;
use crate::entry::ExemplarSample;
use crate::format::MAX_EXEMPLAR;

/// Maximum number of exemplars of a native histogram. Client libraries keep 10, or one per classic bucket.
const MAX_EXEMPLARS: usize = 256;

/// Reads an exemplar. Malformed fields count as absent. Returns `None` if its labels are too long.
pub(super) fn read(message: &[u8]) -> Option<ExemplarSample> {
    let mut left = MAX_EXEMPLAR;
    for (name, value) in wire::pairs(message) {
        let length = name.chars().count() + value.chars().count();
        // Empty labels count as well, since they take memory.
        left = left.checked_sub(length.max(1))?;
    }
    let labels = wire::pairs(message);
    Some(ExemplarSample {
        labels: labels
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
        value: wire::last_double(message, 2).unwrap_or_default(),
        timestamp: wire::last(message, 3)
            .ok()
            .flatten()
            .map(wire::seconds_and_nanos),
    })
}

/// Returns the exemplars of a native histogram: its own, or else those of its classic buckets. Exemplars without a
/// timestamp do not count, as in Prometheus.
pub(super) fn of_native(histogram: &[u8]) -> Vec<ExemplarSample> {
    let fields = |number| {
        let fields = Fields::new(histogram).flatten();
        fields
            .filter(move |field| field.number == number)
            .filter_map(|field| field.value.bytes())
    };
    let mut own = fields(16).peekable();
    let timed = |message| read(message).filter(|exemplar| exemplar.timestamp.is_some());
    match own.peek() {
        Some(_) => own.filter_map(timed).take(MAX_EXEMPLARS).collect(),
        None => fields(3)
            .filter_map(|bucket| wire::last(bucket, 3).ok().flatten())
            .filter_map(timed)
            .take(MAX_EXEMPLARS)
            .collect(),
    }
}
