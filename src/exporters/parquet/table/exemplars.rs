//! Exemplars of data points: sample measurements in parallel lists.

use super::WriteError;
use super::attributes::{Pairs, Sets};
use super::gathered::gathered;
use super::group::RowGroup;
use super::order::{Rows, values};
use super::ranges::Ranges;
use super::read::{bytes, fields, number};
use super::rows::Shared;
use super::strings::Strings;
use super::values::Integers64;

gathered! {
    /// Exemplars of all data points of a table.
    pub(super) struct Exemplars {
        /// The range of exemplars of each data point.
        rows: Ranges,
        time: Vec<i64>,
        value: Vec<f64>,
        int: Vec<i64>,
        value_type: Vec<u32>,
        trace: Vec<[u8; 16]>,
        span: Vec<[u8; 8]>,
        attributes: Sets,
    }
}

impl Exemplars {
    /// Adds an exemplar to the data point that [`end`](Self::end) ends.
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
        let attributes = &mut self.attributes;
        let trace = attributes.id(b"otlp.trace_id", trace, pairs);
        self.trace.push(trace.unwrap_or_default());
        let span = attributes.id(b"otlp.span_id", span, pairs);
        self.span.push(span.unwrap_or_default());
        self.attributes.end(pairs, texts);
    }

    /// Ends a data point.
    pub(super) fn end(&mut self) {
        self.rows.push(self.time.len());
    }

    pub(super) fn write(
        &self,
        shared: &Shared,
        rows: Rows<'_>,
        group: &mut RowGroup<'_>,
    ) -> Result<(), WriteError> {
        let lists = rows.lists(&self.rows);
        let times = values(lists.clone(), &self.time);
        group.time_lists(["exemplar_timestamp", "exemplar_timestamp_nanos"], times)?;
        group.double_lists("exemplar_value", values(lists.clone(), &self.value))?;
        let ints = values(lists.clone(), &self.int);
        group.list("exemplar_value_int", Integers64::deltas(), ints)?;
        let types = values(lists.clone(), &self.value_type);
        group.text_lists("exemplar_value_type", &shared.texts, types)?;
        group.id_lists("exemplar_trace_id", values(lists.clone(), &self.trace))?;
        group.id_lists("exemplar_span_id", values(lists.clone(), &self.span))?;
        let names = ["exemplar_attributes", "exemplar_attribute_types"];
        group.attribute_lists(names, &self.attributes, shared, lists)
    }
}
