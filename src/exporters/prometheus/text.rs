//! The text formats: Prometheus' own, versions 0.0.4 and 1.0.0, and OpenMetrics 1.0.

use memchr::memchr3;

use super::exemplar::Exemplar;
use super::family::Family;
use super::kind::Kind;
use super::labels::Labels;
use super::naming::Name;
use super::origin::Target;
use super::slot::Slot;
use super::value::Value;
use tributary_prometheus::number::{float, integer, open_metrics_float, unsigned};

#[derive(Debug)]
pub(super) struct Text {
    pub(super) open_metrics: bool,
    pub(super) utf8: bool,
    pub(super) timestamps: bool,
    /// Whether OpenMetrics treats the current family as counters; other types have no exemplars.
    counters: bool,
    /// Buffer for the labels of a series.
    labels: Vec<u8>,
}

/// The part of a line after its labels.
#[derive(Clone, Copy)]
enum Sample {
    Float(f64),
    Int(i64),
    Count(u64),
}

impl Text {
    /// Returns a writer for one page.
    pub(super) fn new(open_metrics: bool, utf8: bool, timestamps: bool) -> Self {
        Text {
            open_metrics,
            utf8,
            timestamps,
            counters: false,
            labels: Vec::new(),
        }
    }

    /// Writes the header of a family. `shadowed` means that another family has the same name in
    /// OpenMetrics, so this family gets no type there.
    pub(super) fn head(&mut self, family: &Family, shadowed: bool, output: &mut Vec<u8>) {
        let name = family.name.spelled(self.utf8);
        let (name, kind) = match (self.open_metrics, family.kind) {
            (true, Kind::Unknown) => (name, "unknown"),
            // The name of a counter lacks the `_total` of its samples.
            (true, Kind::Counter) => match name.strip_suffix("_total") {
                Some(base) if !shadowed && !base.is_empty() => (base, "counter"),
                _ => (name, "unknown"),
            },
            (_, kind) => (name, kind.name()),
        };
        self.counters = self.open_metrics && kind == "counter";
        let unit = family.unit.as_deref().filter(|_| self.open_metrics);
        // The name must end with the unit.
        let unit = unit.filter(|unit| name.ends_with(*unit));
        self.head_of(
            name,
            family.name.is_quoted(),
            kind,
            &family.help,
            unit,
            output,
        );
    }

    pub(super) fn series(
        &mut self,
        family: &Family,
        slot: &Slot,
        labels: &Labels,
        output: &mut Vec<u8>,
    ) {
        let mut own = std::mem::take(&mut self.labels);
        own.clear();
        let all = labels.unpack(&slot.labels).chain(slot.origin.labels());
        for (name, value) in all {
            self.label(name, value, &mut own);
        }
        let name = &family.name;
        let exemplars = slot.exemplars.as_ref().filter(|_| self.open_metrics);
        let exemplars = exemplars.map_or(&[][..], |exemplars| exemplars.as_slice());
        let of_counter = exemplars.first().filter(|_| self.counters);
        let time = self.timestamps.then_some(slot.time);
        let mut line = |suffix, extra: Option<(&str, f64)>, sample, exemplar: Option<&Exemplar>| {
            self.line((name, suffix), &own, extra, sample, output);
            self.end_line(time, exemplar, output);
        };
        match &slot.value {
            // OpenMetrics does not allow negative or NaN counters.
            Value::Double(value) if self.counters && (*value < 0.0 || value.is_nan()) => {}
            Value::Int(..0) if self.counters => {}
            Value::Double(value) => line("", None, Sample::Float(*value), of_counter),
            Value::Int(value) => line("", None, Sample::Int(*value), of_counter),
            Value::Histogram(histogram) => {
                let bounds = histogram.bounds.iter().copied().chain([f64::INFINITY]);
                let mut sum = 0_u64;
                for (at, (bound, count)) in bounds.zip(&histogram.counts).enumerate() {
                    sum = sum.saturating_add(*count);
                    let exemplar = exemplars
                        .iter()
                        .find(|exemplar| slot.value.bucket(exemplar) == at);
                    line("_bucket", Some(("le", bound)), Sample::Count(sum), exemplar);
                }
                let below_zero = histogram.bounds.first().is_some_and(|bound| *bound < 0.0);
                for (suffix, total) in self.totals(histogram.sum, below_zero, sum) {
                    line(suffix, None, total, None);
                }
            }
            // The text formats have no native histograms.
            Value::Exponential(histogram) => {
                let count = histogram.count().unwrap_or(0);
                let newest = exemplars.iter().max_by_key(|exemplar| exemplar.time);
                let bound = Some(("le", f64::INFINITY));
                line("_bucket", bound, Sample::Count(count), newest);
                let below_zero = !histogram.negative.counts.is_empty();
                for (suffix, total) in self.totals(histogram.sum, below_zero, count) {
                    line(suffix, None, total, None);
                }
            }
            Value::Summary(summary) => {
                for (quantile, value) in &summary.quantiles {
                    line(
                        "",
                        Some(("quantile", *quantile)),
                        Sample::Float(*value),
                        None,
                    );
                }
                // In OpenMetrics the sum is a counter.
                if !self.open_metrics || summary.sum >= 0.0 {
                    line("_sum", None, Sample::Float(summary.sum), None);
                }
                line("_count", None, Sample::Count(summary.count), None);
            }
        }
        self.labels = own;
    }

    /// Writes the sum and the count of a histogram. OpenMetrics requires both or none, and the sum
    /// is a counter. The sum must therefore be a non-negative number, and the histogram must not
    /// contain negative values, which would decrease it.
    fn totals(
        &self,
        sum: Option<f64>,
        below_zero: bool,
        count: u64,
    ) -> impl Iterator<Item = (&'static str, Sample)> + use<> {
        let counts = !below_zero && sum.is_some_and(|sum| sum >= 0.0);
        let has_lines = counts || !self.open_metrics;
        let sum = sum.map(|sum| ("_sum", Sample::Float(sum)));
        let all = [sum, Some(("_count", Sample::Count(count)))];
        all.into_iter().flatten().filter(move |_| has_lines)
    }

    /// Writes the metric that describes targets as a gauge, in OpenMetrics too, as the Collector
    /// does. As an `info` metric its family would be `target`, a name that other metrics may have.
    pub(super) fn target_info<'a>(
        &mut self,
        name: &Name,
        targets: impl Iterator<Item = &'a Target>,
        output: &mut Vec<u8>,
    ) {
        let (spelled, quoted) = (name.spelled(self.utf8), name.is_quoted());
        self.head_of(spelled, quoted, "gauge", TARGET_INFO_HELP, None, output);
        for target in targets {
            let mut labels = std::mem::take(&mut self.labels);
            labels.clear();
            for (name, value) in &target.labels {
                self.label(name, value, &mut labels);
            }
            self.line((name, ""), &labels, None, Sample::Int(1), output);
            self.end_line(None, None, output);
            self.labels = labels;
        }
    }

    /// Writes the end of the page.
    pub(super) fn end(&self, output: &mut Vec<u8>) {
        if self.open_metrics {
            output.extend_from_slice(b"# EOF\n");
        }
    }

    fn head_of(
        &self,
        name: &str,
        quoted: bool,
        kind: &str,
        help: &str,
        unit: Option<&str>,
        output: &mut Vec<u8>,
    ) {
        let mut comment = |what: &str, text: &dyn Fn(&mut Vec<u8>)| {
            output.extend_from_slice(b"# ");
            output.extend_from_slice(what.as_bytes());
            output.push(b' ');
            if quoted && self.utf8 {
                output.push(b'"');
                escape(name, true, output);
                output.push(b'"');
            } else {
                output.extend_from_slice(name.as_bytes());
            }
            output.push(b' ');
            text(output);
            output.push(b'\n');
        };
        comment("HELP", &|output| escape(help, self.open_metrics, output));
        comment("TYPE", &|output| output.extend_from_slice(kind.as_bytes()));
        if let Some(unit) = unit {
            comment("UNIT", &|output| output.extend_from_slice(unit.as_bytes()));
        }
    }

    /// Appends a label, with a comma unless it is the first.
    fn label(&self, name: &Name, value: &str, output: &mut Vec<u8>) {
        if !output.is_empty() {
            output.push(b',');
        }
        if self.utf8 && name.is_quoted() {
            output.push(b'"');
            escape(&name.full, true, output);
            output.push(b'"');
        } else {
            output.extend_from_slice(name.escaped.as_bytes());
        }
        output.extend_from_slice(b"=\"");
        escape(value, true, output);
        output.push(b'"');
    }

    fn line(
        &self,
        (name, suffix): (&Name, &str),
        labels: &[u8],
        extra: Option<(&str, f64)>,
        sample: Sample,
        output: &mut Vec<u8>,
    ) {
        let quoted = self.utf8 && name.is_quoted();
        if quoted {
            output.extend_from_slice(b"{\"");
            escape(&name.full, true, output);
            output.extend_from_slice(suffix.as_bytes());
            output.push(b'"');
        } else {
            output.extend_from_slice(name.escaped.as_bytes());
            output.extend_from_slice(suffix.as_bytes());
        }
        let mut separator = if quoted { b',' } else { b'{' };
        if !labels.is_empty() {
            output.push(separator);
            output.extend_from_slice(labels);
            separator = b',';
        }
        if let Some((name, value)) = extra {
            output.push(separator);
            output.extend_from_slice(name.as_bytes());
            output.extend_from_slice(b"=\"");
            self.float(value, output);
            output.push(b'"');
            separator = b',';
        }
        if quoted || separator == b',' {
            output.push(b'}');
        }
        output.push(b' ');
        match sample {
            Sample::Float(value) => self.float(value, output),
            Sample::Int(value) => integer(value, output),
            Sample::Count(value) => unsigned(value, output),
        }
    }

    fn end_line(&self, time: Option<u64>, exemplar: Option<&Exemplar>, output: &mut Vec<u8>) {
        // Time 0 means unknown.
        if let Some(time) = time.filter(|time| *time > 0) {
            output.push(b' ');
            match self.open_metrics {
                true => seconds(time, output),
                false => unsigned(time / NANOSECONDS_PER_MILLISECOND, output),
            }
        }
        if let Some(exemplar) = exemplar {
            output.extend_from_slice(b" # {");
            for (at, (name, id)) in exemplar.labels().enumerate() {
                if at > 0 {
                    output.push(b',');
                }
                output.extend_from_slice(name.as_bytes());
                output.extend_from_slice(b"=\"");
                output.extend_from_slice(id.as_bytes());
                output.push(b'"');
            }
            output.extend_from_slice(b"} ");
            self.float(exemplar.value, output);
            if exemplar.time > 0 {
                output.push(b' ');
                seconds(exemplar.time, output);
            }
        }
        output.push(b'\n');
    }

    fn float(&self, value: f64, output: &mut Vec<u8>) {
        match self.open_metrics {
            true => open_metrics_float(value, output),
            false => float(value, output),
        }
    }
}

/// Appends a time in seconds with milliseconds.
fn seconds(nanoseconds: u64, output: &mut Vec<u8>) {
    let milliseconds = nanoseconds / NANOSECONDS_PER_MILLISECOND;
    unsigned(milliseconds / 1000, output);
    output.push(b'.');
    for digit in [100, 10, 1] {
        output.push(b'0' + (milliseconds / digit % 10) as u8);
    }
}

/// Escapes a text. Descriptions in the older format keep quotes unescaped.
fn escape(text: &str, quotes: bool, output: &mut Vec<u8>) {
    let mut rest = text.as_bytes();
    let quote = if quotes { b'"' } else { b'\n' };
    while let Some(at) = memchr3(b'\\', b'\n', quote, rest) {
        let (before, after) = rest.split_at(at);
        output.extend_from_slice(before);
        output.push(b'\\');
        match after.first() {
            Some(b'\n') => output.push(b'n'),
            Some(byte) => output.push(*byte),
            None => {}
        }
        rest = after.get(1..).unwrap_or_default();
    }
    output.extend_from_slice(rest);
}

/// The Collector's description of `target_info`.
pub(super) const TARGET_INFO_HELP: &str = "Target metadata";
const NANOSECONDS_PER_MILLISECOND: u64 = 1_000_000;
