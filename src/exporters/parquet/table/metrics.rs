//! Data points of metrics of all types, one row each.

use std::ops::ControlFlow;

use super::attributes::Sets;
use super::context::PerTable;
use super::cost::row_memory;
use super::exemplars::Exemplars;
use super::gathered::gathered;
use super::group::RowGroup;
use super::kind::TableKind;
use super::metric_head::{Form, Head};
use super::order::Rows;
use super::ranges::Lists;
use super::read::{bytes, each, fields, fixed64s, number, time};
use super::rows::{Item, Place, Shared};
use super::strings::{NONE, Strings};
use super::traces::name;
use super::values::Bits;
use super::{Layout, RowColumns, WriteError};
use tributary_otlp::Malformed;
use tributary_otlp::view::{Buckets, Message, View as _};

gathered! {
    /// Columns of data points only.
    pub(super) struct Columns {
        /// Shared data of each metric's points, encoded as sent.
        heads: Strings,
        metrics: Vec<Metric>,
        metric: Vec<u32>,
        metadata: Sets,
        start: Vec<u64>,
        value: Vec<Option<f64>>,
        int: Vec<Option<i64>>,
        count: Vec<Option<u64>>,
        sum: Vec<Option<f64>>,
        min: Vec<Option<f64>>,
        max: Vec<Option<f64>>,
        bucket_counts: Lists<u64>,
        explicit_bounds: Lists<f64>,
        scale: Vec<Option<u32>>,
        zero_count: Vec<Option<u64>>,
        zero_threshold: Vec<Option<f64>>,
        positive_offset: Vec<Option<u32>>,
        positive: Lists<u64>,
        negative_offset: Vec<Option<u32>>,
        negative: Lists<u64>,
        quantile: Lists<f64>,
        quantile_value: Lists<f64>,
        flags: Vec<u32>,
        exemplars: Exemplars,
    }
}

/// Shared data of a metric's points, as numbers of texts.
#[derive(Debug, Clone, Copy)]
struct Metric {
    name: u32,
    kind: u32,
    unit: u32,
    description: u32,
    temporality: u32,
    monotonic: Option<bool>,
}

/// Returns a data point with its time, which all forms have in field 3.
pub(super) fn read(point: &[u8]) -> Result<Item<&[u8]>, Malformed> {
    let (mut time, mut all) = (0, 0);
    for field in fields(point) {
        all += 1;
        if let (3, value) = field? {
            time = number(value);
        }
    }
    // A bucket count of one byte becomes a number of eight.
    let length = 2 * point.len();
    Ok(Item {
        time,
        memory: row_memory(length, all),
        content: point,
    })
}

pub(super) fn append(
    scope: &[u8],
    place: &mut Place<'_, '_>,
) -> Result<ControlFlow<()>, Malformed> {
    for metric in each(scope, 2) {
        let head = Head::read(metric)?;
        let mut known = PerTable::default();
        let points = each(&head.data, 1).map(read);
        let flow = place.append(
            TableKind::Metrics,
            head.shared.len(),
            points,
            |table, context, point| {
                let contents = table.contents();
                let shared = &mut table.shared;
                if let super::Columns::Metrics(columns) = &mut table.columns {
                    // Looked up once, because shared data may be as large as the request.
                    let metric = known.get(contents, || columns.add_metric(&head, shared));
                    columns.push(shared, context, head.form, metric, point);
                }
            },
        )?;
        if flow.is_break() {
            return Ok(flow);
        }
    }
    Ok(ControlFlow::Continue(()))
}

impl Columns {
    /// Returns the number of a metric, by all data that its points share.
    fn add_metric(&mut self, head: &Head<'_>, shared: &mut Shared) -> u32 {
        let Shared { texts, pairs, .. } = shared;
        let id = self.heads.intern(&head.shared);
        if (id as usize) < self.metrics.len() {
            return id;
        }
        let (mut temporality, mut monotonic) = (0, false);
        for (number, value) in fields(&head.data).map_while(Result::ok) {
            match number {
                2 => temporality = super::read::number(value) as u32,
                3 => monotonic = super::read::number(value) != 0,
                _ => {}
            }
        }
        let has_temporality = !matches!(head.form, Form::Gauge | Form::Summary);
        let names = ["unspecified", "delta", "cumulative"];
        self.metrics.push(Metric {
            name: texts.intern(head.name),
            kind: texts.intern(head.form.name().as_bytes()),
            unit: texts.intern(head.unit),
            description: texts.intern(head.description),
            temporality: match has_temporality {
                true => name(texts, names.get(temporality as usize).copied(), temporality),
                false => NONE,
            },
            monotonic: (head.form == Form::Sum).then_some(monotonic),
        });
        for metadata in each(head.message, 12) {
            self.metadata.push(pairs.add(metadata));
        }
        self.metadata.end(pairs, texts);
        id
    }

    fn push(&mut self, shared: &mut Shared, context: u32, form: Form, metric: u32, point: &[u8]) {
        let mut read = Point::default();
        let Shared {
            texts,
            pairs,
            attributes,
            ..
        } = shared;
        for (field, value) in fields(point).map_while(Result::ok) {
            let int = || number(value);
            let double = || f64::from_bits(number(value));
            match (form, field) {
                (_, 2) => read.start = int(),
                (_, 3) => read.time = int(),
                (Form::Gauge | Form::Sum, 4) => (read.value, read.int) = (Some(double()), None),
                (Form::Gauge | Form::Sum, 6) => {
                    let value = int().cast_signed();
                    (read.value, read.int) = (Some(value as f64), Some(value));
                }
                (Form::Gauge | Form::Sum, 5) | (Form::Histogram, 8) | (Form::Exponential, 11) => {
                    self.exemplars.push(bytes(value), texts, pairs);
                }
                (Form::Gauge | Form::Sum | Form::Summary, 7)
                | (Form::Histogram, 9)
                | (Form::Exponential, 1) => attributes.push(pairs.add(bytes(value))),
                (Form::Gauge | Form::Sum | Form::Summary, 8)
                | (Form::Histogram | Form::Exponential, 10) => read.flags = int() as u32,
                (_, 4) => read.count = int(),
                (_, 5) => read.sum = Some(double()),
                (Form::Histogram, 6) => {
                    fixed64s(value, |count| self.bucket_counts.values.push(count));
                }
                (Form::Histogram, 7) => {
                    let bounds = &mut self.explicit_bounds.values;
                    fixed64s(value, |bound| bounds.push(f64::from_bits(bound)));
                }
                (Form::Histogram, 11) | (Form::Exponential, 12) => read.min = Some(double()),
                (Form::Histogram, 12) | (Form::Exponential, 13) => read.max = Some(double()),
                (Form::Exponential, 6) => read.scale = zigzag(int()),
                (Form::Exponential, 7) => read.zero_count = int(),
                (Form::Exponential, 8) => read.positive = value.bytes(),
                (Form::Exponential, 9) => read.negative = value.bytes(),
                (Form::Exponential, 14) => read.zero_threshold = double(),
                (Form::Summary, 6) => {
                    let (mut quantile, mut at) = (0.0, 0.0);
                    for (field, value) in fields(bytes(value)).map_while(Result::ok) {
                        match field {
                            1 => quantile = f64::from_bits(number(value)),
                            2 => at = f64::from_bits(number(value)),
                            _ => {}
                        }
                    }
                    self.quantile.values.push(quantile);
                    self.quantile_value.values.push(at);
                }
                _ => {}
            }
        }
        attributes.end(pairs, texts);
        shared.push(read.time.cast_signed(), context);
        shared.share(self.metadata.get(metric as usize).len());
        self.metric.push(metric);
        self.add(form, &read);
    }

    fn add(&mut self, form: Form, read: &Point<'_>) {
        let is_distribution = !matches!(form, Form::Gauge | Form::Sum);
        let is_exponential = form == Form::Exponential;
        self.start.push(read.start);
        self.value.push(read.value);
        self.int.push(read.int);
        self.count.push(is_distribution.then_some(read.count));
        let sum = match form {
            // Only in this form the sum is always present.
            Form::Summary => Some(read.sum.unwrap_or_default()),
            _ => read.sum,
        };
        self.sum.push(sum);
        self.min.push(read.min);
        self.max.push(read.max);
        self.bucket_counts.end();
        self.explicit_bounds.end();
        self.scale.push(is_exponential.then_some(read.scale));
        self.zero_count
            .push(is_exponential.then_some(read.zero_count));
        self.zero_threshold
            .push(is_exponential.then_some(read.zero_threshold));
        let offset = read
            .positive
            .map(|buckets| put(buckets, &mut self.positive));
        self.positive_offset.push(offset);
        self.positive.end();
        let offset = read
            .negative
            .map(|buckets| put(buckets, &mut self.negative));
        self.negative_offset.push(offset);
        self.negative.end();
        self.quantile.end();
        self.quantile_value.end();
        self.flags.push(read.flags);
        self.exemplars.end();
    }

    fn metric(&self, row: usize) -> Metric {
        self.metrics[self.metric[row] as usize]
    }
}

impl RowColumns for Columns {
    fn order(&self, shared: &Shared) -> Vec<u32> {
        let metrics = self.metrics.iter();
        let ranks = shared.texts.ranks(metrics.map(|metric| metric.name));
        shared.order(|row| ranks[self.metric(row).name as usize])
    }

    fn entries_of(&self, row: usize) -> usize {
        self.metadata.get(self.metric[row] as usize).len()
    }

    fn write(
        &self,
        shared: &Shared,
        _: &Layout,
        rows: Rows<'_>,
        group: &mut RowGroup<'_>,
    ) -> Result<(), WriteError> {
        let texts = &shared.texts;
        let metrics = rows.iter().map(|row| self.metric(row));
        shared.write_times(rows, group)?;
        let names = ["start_timestamp", "start_timestamp_nanos"];
        group.optional_times(names, rows.of(&self.start).map(time))?;
        shared.write_service(rows, group)?;
        group.texts("metric_name", texts, metrics.clone().map(|m| m.name))?;
        group.texts("metric_type", texts, metrics.clone().map(|m| m.kind))?;
        group.texts("unit", texts, metrics.clone().map(|m| m.unit))?;
        group.texts("description", texts, metrics.clone().map(|m| m.description))?;
        let temporality = metrics.clone().map(|m| m.temporality);
        group.optional_texts("aggregation_temporality", texts, temporality)?;
        let monotonic = metrics.map(|m| m.monotonic);
        group.optional("is_monotonic", Bits::default(), monotonic)?;
        group.optional_doubles("value", rows.of(&self.value))?;
        group.optional_deltas("value_int", rows.of(&self.int))?;
        group.optional_counts("count", rows.of(&self.count))?;
        group.optional_doubles("sum", rows.of(&self.sum))?;
        group.optional_doubles("min", rows.of(&self.min))?;
        group.optional_doubles("max", rows.of(&self.max))?;
        group.count_lists("bucket_counts", self.bucket_counts.of(rows))?;
        group.double_lists("explicit_bounds", self.explicit_bounds.of(rows))?;
        group.optional_numbers("scale", rows.of(&self.scale), true)?;
        group.optional_counts("zero_count", rows.of(&self.zero_count))?;
        group.optional_doubles("zero_threshold", rows.of(&self.zero_threshold))?;
        group.optional_numbers("positive_offset", rows.of(&self.positive_offset), true)?;
        group.count_lists("positive_bucket_counts", self.positive.of(rows))?;
        group.optional_numbers("negative_offset", rows.of(&self.negative_offset), true)?;
        group.count_lists("negative_bucket_counts", self.negative.of(rows))?;
        group.double_lists("quantile", self.quantile.of(rows))?;
        group.double_lists("quantile_value", self.quantile_value.of(rows))?;
        group.numbers("flags", rows.of(&self.flags), false)?;
        let names = ["attributes", "attribute_types"];
        group.attributes(names, &shared.attributes, shared, rows.iter())?;
        self.exemplars.write(shared, rows, group)?;
        let metrics = rows.of(&self.metric).map(|metric| metric as usize);
        let names = ["metric_metadata", "metric_metadata_types"];
        group.attributes(names, &self.metadata, shared, metrics)
    }
}

/// Scalars of a data point, as far as its form has them.
#[derive(Debug, Default)]
struct Point<'r> {
    time: u64,
    start: u64,
    flags: u32,
    value: Option<f64>,
    int: Option<i64>,
    count: u64,
    sum: Option<f64>,
    min: Option<f64>,
    max: Option<f64>,
    scale: u32,
    zero_count: u64,
    zero_threshold: f64,
    positive: Option<&'r [u8]>,
    negative: Option<&'r [u8]>,
}

/// Adds the buckets of an exponential histogram. Returns their offset.
fn put(buckets: &[u8], counts: &mut Lists<u64>) -> u32 {
    let buckets = Buckets::view(Message::new(buckets));
    counts.values.extend(buckets.bucket_counts());
    buckets.offset().cast_unsigned()
}

/// Decodes a `sint32` into the bits of its value.
fn zigzag(value: u64) -> u32 {
    let value = value as u32;
    (value >> 1) ^ (value & 1).wrapping_neg()
}
