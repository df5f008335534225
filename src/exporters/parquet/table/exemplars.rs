//! Exemplars of data points: single measurements, in lists beside each other.

use super::WriteError;
use super::attributes::{Pairs, Sets, encode_bytes};
use super::chunk::RowGroup;
use super::ranges::Ranges;
use super::read::{bytes, fields, id, number, odd};
use super::strings::Strings;
use super::values::{Delta, Fixed, Plain64};

/// Exemplars of all data points of a table.
#[derive(Debug, Default)]
pub(super) struct Exemplars {
    /// Which ones each data point has.
    rows: Ranges,
    time: Vec<i64>,
    value: Vec<f64>,
    int: Vec<i64>,
    value_type: Vec<u32>,
    trace: Vec<[u8; 16]>,
    span: Vec<[u8; 8]>,
    attributes: Sets,
}

impl Exemplars {
    /// An exemplar of the data point that [`end`](Self::end) ends.
    pub(super) fn push(&mut self, exemplar: &[u8], texts: &mut Strings, pairs: &mut Pairs) {
        let (mut time, mut trace, mut span) = (0, &[][..], &[][..]);
        let (mut value, mut int, mut value_type) = (0.0, 0, "none");
        for (field, bits) in fields(exemplar).map_while(Result::ok) {
            match field {
                2 => time = number(bits),
                3 => {
                    (value, int, value_type) = (f64::from_bits(number(bits)), 0, "double");
                }
                4 => span = bytes(bits),
                5 => trace = bytes(bits),
                6 => {
                    int = number(bits).cast_signed();
                    (value, value_type) = (int as f64, "int");
                }
                7 => self.attributes.push(pairs.add(bytes(bits))),
                _ => {}
            }
        }
        self.time.push(time.cast_signed());
        self.value.push(value);
        self.int.push(int);
        self.value_type.push(texts.intern(value_type.as_bytes()));
        self.trace.push(id(trace).unwrap_or_default());
        self.span.push(id(span).unwrap_or_default());
        if odd::<16>(trace) {
            let pair = encode_bytes(b"otlp.trace_id", trace);
            self.attributes.push(pairs.add(&pair));
        }
        if odd::<8>(span) {
            let pair = encode_bytes(b"otlp.span_id", span);
            self.attributes.push(pairs.add(&pair));
        }
        self.attributes.end(pairs, texts);
    }

    /// Ends a data point.
    pub(super) fn end(&mut self) {
        self.rows.push(self.time.len());
    }

    pub(super) fn write(
        &self,
        rows: impl Iterator<Item = usize> + Clone,
        texts: &Strings,
        pairs: &Pairs,
        group: &mut RowGroup<'_>,
    ) -> Result<(), WriteError> {
        let rows = rows.map(|row| self.rows.get(row));
        let times = rows.clone().map(|row| row.map(|at| self.time[at]));
        group.list("exemplar_timestamp", Delta::default(), times)?;
        let values = rows
            .clone()
            .map(|row| row.map(|at| self.value[at].to_bits()));
        group.list("exemplar_value", Plain64::default(), values)?;
        let ints = rows.clone().map(|row| row.map(|at| self.int[at]));
        group.list("exemplar_value_int", Delta::default(), ints)?;
        let types = rows.clone().map(|row| row.map(|at| self.value_type[at]));
        group.text_lists("exemplar_value_type", texts, types)?;
        let traces = rows.clone().map(|row| row.map(|at| self.trace[at]));
        group.list("exemplar_trace_id", Fixed::new(None), traces)?;
        let spans = rows.clone().map(|row| row.map(|at| self.span[at]));
        group.list("exemplar_span_id", Fixed::new(None), spans)?;
        let sets = &self.attributes;
        let attributes = rows.clone().map(|row| row.map(|at| sets.get(at)));
        group.maps("exemplar_attributes", pairs, attributes)?;
        let types = rows.map(|row| row.map(|at| sets.types(at)));
        group.text_lists("exemplar_attribute_types", texts, types)
    }

    pub(super) fn clear(&mut self) {
        self.rows.clear();
        self.time.clear();
        self.value.clear();
        self.int.clear();
        self.value_type.clear();
        self.trace.clear();
        self.span.clear();
        self.attributes.clear();
    }

    pub(super) fn memory(&self) -> usize {
        self.rows.memory() + self.time.capacity() * (3 * 8 + 4 + 16 + 8) + self.attributes.memory()
    }
}
