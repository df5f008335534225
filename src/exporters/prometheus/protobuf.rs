//! The protobuf format: length-prefixed `io.prometheus.client.MetricFamily` messages. It is the
//! only format with native histograms.
//!
//! Field numbers are those of `metrics.proto` in Prometheus' `client_model`.

use super::exemplar::Exemplar;
use super::exponential::{Exponential, Side};
use super::family::Family;
use super::kind::Kind;
use super::labels::Labels;
use super::naming::Name;
use super::origin::Target;
use super::slot::Slot;
use super::text::TARGET_INFO_HELP;
use super::value::{Histogram, Summary, Value};
use tributary_otlp::reader::{put_varint, varint_len};

/// Writes families.
#[derive(Debug)]
pub(super) struct Protobuf {
    pub(super) utf8: bool,
    pub(super) timestamps: bool,
    /// The `metric` fields of the family that is being written.
    metrics: Vec<u8>,
    /// Buffers for messages whose length must be known first, from the outermost to the innermost.
    metric: Vec<u8>,
    inner: Vec<u8>,
    innermost: Vec<u8>,
    leaf: Vec<u8>,
}

impl Protobuf {
    /// Returns a writer for one page.
    pub(super) fn new(utf8: bool, timestamps: bool) -> Self {
        Protobuf {
            utf8,
            timestamps,
            metrics: Vec::new(),
            metric: Vec::new(),
            inner: Vec::new(),
            innermost: Vec::new(),
            leaf: Vec::new(),
        }
    }

    /// Returns the bytes of the current family's series.
    pub(super) fn pending(&self) -> usize {
        self.metrics.len()
    }

    pub(super) fn series(&mut self, slot: &Slot, labels: &Labels, kind: Kind) {
        self.metric.clear();
        for (name, value) in labels.unpack(&slot.labels).chain(slot.origin.labels()) {
            label(
                name.spelled(self.utf8),
                value,
                &mut self.inner,
                &mut self.metric,
            );
        }
        self.inner.clear();
        let exemplars = slot.exemplars.as_ref();
        let exemplars = exemplars.map_or(&[][..], |exemplars| exemplars.as_slice());
        let number = match &slot.value {
            Value::Double(value) => Some(*value),
            Value::Int(value) => Some(*value as f64),
            _ => None,
        };
        let member = match &slot.value {
            Value::Double(_) | Value::Int(_) => {
                double(1, number.unwrap_or_default(), &mut self.inner);
                match kind {
                    Kind::Counter => {
                        if let Some(newest) = exemplars.first() {
                            self.exemplar(2, newest);
                        }
                        self.created(3, slot.start);
                        3
                    }
                    Kind::Gauge => 2,
                    _ => 5,
                }
            }
            Value::Summary(summary) => {
                self.summary(summary);
                self.created(4, slot.start);
                4
            }
            Value::Histogram(histogram) => {
                self.histogram(histogram, &slot.value, exemplars);
                self.created(15, slot.start);
                7
            }
            Value::Exponential(histogram) => {
                self.exponential(histogram);
                self.created(15, slot.start);
                for exemplar in exemplars.iter().filter(|exemplar| exemplar.time > 0) {
                    self.exemplar(16, exemplar);
                }
                7
            }
        };
        bytes(member, &self.inner, &mut self.metric);
        if self.timestamps && slot.time > 0 {
            unsigned(6, slot.time / 1_000_000, &mut self.metric);
        }
        bytes(4, &self.metric, &mut self.metrics);
    }

    /// Ends the family: appends its message unless it is empty.
    pub(super) fn finish(&mut self, family: &Family, output: &mut Vec<u8>) {
        let kind = match family.kind {
            Kind::Counter => 0,
            Kind::Gauge => 1,
            Kind::Summary => 2,
            Kind::Unknown => 3,
            Kind::Histogram => 4,
        };
        let unit = family.unit.as_deref();
        self.end(&family.name, &family.help, kind, unit, output);
    }

    /// Writes the metric that describes targets.
    pub(super) fn target_info<'a>(
        &mut self,
        name: &Name,
        targets: impl Iterator<Item = &'a Target>,
        output: &mut Vec<u8>,
    ) {
        for target in targets {
            self.metric.clear();
            for (name, value) in &target.labels {
                label(
                    name.spelled(self.utf8),
                    value,
                    &mut self.inner,
                    &mut self.metric,
                );
            }
            self.inner.clear();
            double(1, 1.0, &mut self.inner);
            bytes(2, &self.inner, &mut self.metric);
            bytes(4, &self.metric, &mut self.metrics);
        }
        self.end(name, TARGET_INFO_HELP, 1, None, output);
    }

    fn end(
        &mut self,
        name: &Name,
        help: &str,
        kind: u64,
        unit: Option<&str>,
        output: &mut Vec<u8>,
    ) {
        if self.metrics.is_empty() {
            return;
        }
        self.metric.clear();
        bytes(1, name.spelled(self.utf8).as_bytes(), &mut self.metric);
        bytes(2, help.as_bytes(), &mut self.metric);
        unsigned(3, kind, &mut self.metric);
        if let Some(unit) = unit {
            bytes(5, unit.as_bytes(), &mut self.metric);
        }
        put_varint((self.metric.len() + self.metrics.len()) as u64, output);
        output.extend_from_slice(&self.metric);
        output.extend_from_slice(&self.metrics);
        self.metrics.clear();
    }

    fn summary(&mut self, summary: &Summary) {
        unsigned(1, summary.count, &mut self.inner);
        double(2, summary.sum, &mut self.inner);
        for (quantile, value) in &summary.quantiles {
            self.innermost.clear();
            double(1, *quantile, &mut self.innermost);
            double(2, *value, &mut self.innermost);
            bytes(3, &self.innermost, &mut self.inner);
        }
    }

    fn histogram(&mut self, histogram: &Histogram, value: &Value, exemplars: &[Exemplar]) {
        unsigned(1, histogram.count().unwrap_or(0), &mut self.inner);
        if let Some(sum) = histogram.sum {
            double(2, sum, &mut self.inner);
        }
        let bounds = histogram.bounds.iter().copied().chain([f64::INFINITY]);
        let mut sum = 0_u64;
        for (at, (bound, count)) in bounds.zip(&histogram.counts).enumerate() {
            sum = sum.saturating_add(*count);
            self.innermost.clear();
            unsigned(1, sum, &mut self.innermost);
            double(2, bound, &mut self.innermost);
            if let Some(exemplar) = exemplars
                .iter()
                .find(|exemplar| value.bucket(exemplar) == at)
            {
                encode_exemplar(exemplar, &mut self.leaf);
                bytes(3, &self.leaf, &mut self.innermost);
            }
            bytes(3, &self.innermost, &mut self.inner);
        }
    }

    fn exponential(&mut self, histogram: &Exponential) {
        let inner = &mut self.inner;
        unsigned(1, histogram.count().unwrap_or(0), inner);
        if let Some(sum) = histogram.sum {
            double(2, sum, inner);
        }
        signed(5, histogram.scale.into(), inner);
        let threshold = match histogram.zero_threshold {
            // Distinguishes a native histogram without buckets from a classic histogram. The
            // Collector uses the same value.
            0.0 => 1e-128,
            threshold => threshold,
        };
        double(6, threshold, inner);
        unsigned(7, histogram.zero_count, inner);
        for (side, span, delta) in [(&histogram.negative, 9, 10), (&histogram.positive, 12, 13)] {
            let (spans, deltas) = sparse(side);
            for (offset, length) in spans {
                self.innermost.clear();
                signed(1, offset, &mut self.innermost);
                unsigned(2, length, &mut self.innermost);
                bytes(span, &self.innermost, inner);
            }
            for value in deltas {
                signed(delta, value, inner);
            }
        }
    }

    fn created(&mut self, number: u32, start: u64) {
        if start == 0 {
            return;
        }
        timestamp(start, &mut self.innermost);
        bytes(number, &self.innermost, &mut self.inner);
    }

    fn exemplar(&mut self, number: u32, exemplar: &Exemplar) {
        encode_exemplar(exemplar, &mut self.leaf);
        bytes(number, &self.leaf, &mut self.inner);
    }
}

/// Returns the buckets in Prometheus' form: spans of adjacent buckets (gap before the span, and
/// length), and the difference of each count to the previous one. Gaps of up to two buckets are
/// cheaper as empty buckets than as a new span.
fn sparse(side: &Side) -> (Vec<(i64, u64)>, Vec<i64>) {
    let mut spans: Vec<(i64, u64)> = Vec::new();
    let mut deltas = Vec::with_capacity(side.counts.len());
    let (mut before, mut empty) = (0_i64, 0_i64);
    for (at, count) in side.counts.iter().enumerate() {
        let count = i64::try_from(*count).unwrap_or(i64::MAX);
        if count == 0 {
            empty += 1;
            continue;
        }
        match spans.last_mut() {
            // OTLP's number i is Prometheus' i + 1.
            None => spans.push((i64::from(side.offset) + at as i64 + 1, 1)),
            Some((_, length)) if empty <= 2 => {
                for _ in 0..empty {
                    deltas.push(-before);
                    before = 0;
                }
                *length += empty.cast_unsigned() + 1;
            }
            Some(_) => spans.push((empty, 1)),
        }
        deltas.push(count - before);
        (before, empty) = (count, 0);
    }
    (spans, deltas)
}

fn encode_exemplar(exemplar: &Exemplar, output: &mut Vec<u8>) {
    let mut buffer = Vec::new();
    output.clear();
    for (name, id) in exemplar.labels() {
        label(name, &id, &mut buffer, output);
    }
    double(2, exemplar.value, output);
    if exemplar.time > 0 {
        timestamp(exemplar.time, &mut buffer);
        bytes(3, &buffer, output);
    }
}

/// `google.protobuf.Timestamp`.
fn timestamp(nanoseconds: u64, output: &mut Vec<u8>) {
    const SECOND: u64 = 1_000_000_000;
    output.clear();
    unsigned(1, nanoseconds / SECOND, output);
    unsigned(2, nanoseconds % SECOND, output);
}

/// A `LabelPair`, as field 1.
fn label(name: &str, value: &str, buffer: &mut Vec<u8>, output: &mut Vec<u8>) {
    let part = |text: &str| 1 + varint_len(text.len() as u64) + text.len();
    buffer.clear();
    buffer.reserve(part(name) + part(value));
    bytes(1, name.as_bytes(), buffer);
    bytes(2, value.as_bytes(), buffer);
    bytes(1, buffer, output);
}

fn bytes(number: u32, content: &[u8], output: &mut Vec<u8>) {
    put_varint(u64::from(number) << 3 | 2, output);
    put_varint(content.len() as u64, output);
    output.extend_from_slice(content);
}

fn unsigned(number: u32, value: u64, output: &mut Vec<u8>) {
    put_varint(u64::from(number) << 3, output);
    put_varint(value, output);
}

/// `sint32` and `sint64`.
fn signed(number: u32, value: i64, output: &mut Vec<u8>) {
    unsigned(
        number,
        ((value << 1) ^ (value >> 63)).cast_unsigned(),
        output,
    );
}

fn double(number: u32, value: f64, output: &mut Vec<u8>) {
    put_varint(u64::from(number) << 3 | 1, output);
    output.extend_from_slice(&value.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_become_spans_and_differences() {
        let side = Side {
            offset: -3,
            counts: vec![5, 0, 7, 0, 0, 0, 1, 4],
        };
        let (spans, deltas) = sparse(&side);
        assert_eq!(spans, [(-2, 3), (3, 2)]);
        assert_eq!(deltas, [5, -5, 7, -6, 3]);
        assert_eq!(sparse(&Side::default()), (vec![], vec![]));
    }
}
