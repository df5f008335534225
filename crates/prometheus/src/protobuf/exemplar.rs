//! Exemplars in the protobuf format.

use tributary_otlp::reader::Fields;

use super::wire;
use crate::entry::ExemplarSample;

/// Reads an exemplar. Malformed fields count as absent.
pub(super) fn read(message: &[u8]) -> ExemplarSample {
    let labels = wire::pairs(message);
    ExemplarSample {
        labels: labels
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
        value: wire::last_double(message, 2).unwrap_or_default(),
        timestamp: wire::last(message, 3)
            .ok()
            .flatten()
            .map(wire::seconds_and_nanos),
    }
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
    let exemplars: Vec<ExemplarSample> = match own.peek() {
        Some(_) => own.map(read).collect(),
        None => fields(3)
            .filter_map(|bucket| wire::last(bucket, 3).ok().flatten())
            .map(read)
            .collect(),
    };
    let timed = exemplars
        .into_iter()
        .filter(|exemplar| exemplar.timestamp.is_some());
    timed.collect()
}
