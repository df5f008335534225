//! Data points.

use super::NO_RECORDED_VALUE;
use super::wire::{bytes, double, fixed64, key_value, message, signed};
use crate::receivers::prometheus::point::{Point, PointKind};
use tributary_otlp::reader::put_varint;
use tributary_prometheus::{BucketRun, ExemplarSample, NativeHistogram};

/// Writes a point. Returns false if the point has no value that OTLP can have.
pub(super) fn write(kind: PointKind, point: &mut Point, output: &mut Vec<u8>) -> bool {
    match kind {
        PointKind::Gauge | PointKind::Other | PointKind::Sum { .. } => {
            let Some(value) = point.number else {
                return false;
            };
            message(1, output, |fields| number(kind, point, value, fields));
        }
        PointKind::Histogram => {
            let Some(count) = point.count.filter(|_| point.settle()) else {
                return false;
            };
            message(1, output, |fields| histogram(point, count, fields));
        }
        PointKind::Summary => {
            let Some(count) = point.count else {
                return false;
            };
            point.rows.sort_by(|(a, _), (b, _)| a.total_cmp(b));
            message(1, output, |fields| summary(point, count, fields));
        }
        PointKind::Exponential => {
            if point.native.is_none() && !point.is_stale() {
                return false;
            }
            message(1, output, |fields| exponential(point, fields));
        }
    }
    true
}

/// Writes the start and the time.
fn times(point: &Point, has_start: bool, output: &mut Vec<u8>) {
    if let Some(start) = point.start.filter(|_| has_start) {
        fixed64(2, start, output);
    }
    let time = point.time.saturating_mul(1_000_000);
    fixed64(3, time.cast_unsigned(), output);
}

fn attributes(kind: PointKind, point: &Point, field: u64, output: &mut Vec<u8>) {
    for (name, value) in point.series.attributes(kind.except()) {
        if !value.is_empty() {
            key_value(field, name, value, output);
        }
    }
}

fn flags(field: u8, output: &mut Vec<u8>) {
    output.extend([field << 3, NO_RECORDED_VALUE]);
}

fn number(kind: PointKind, point: &Point, value: f64, output: &mut Vec<u8>) {
    times(point, matches!(kind, PointKind::Sum { .. }), output);
    match point.is_stale() {
        true => flags(8, output),
        false => double(4, value, output),
    }
    exemplars(5, &point.exemplars, output);
    attributes(kind, point, 7, output);
}

fn histogram(point: &Point, count: f64, output: &mut Vec<u8>) {
    times(point, true, output);
    let is_stale = point.is_stale();
    if is_stale {
        flags(10, output);
    } else {
        fixed64(4, count as u64, output);
        if let Some(sum) = point.sum {
            double(5, sum, output);
        }
    }
    let length = (point.rows.len() + 1) as u64 * 8;
    output.push(6 << 3 | 2);
    put_varint(length, output);
    let mut before = 0.0;
    for count in point.rows.iter().map(|(_, count)| *count).chain([count]) {
        let own = if is_stale { 0 } else { (count - before) as u64 };
        output.extend_from_slice(&own.to_le_bytes());
        before = count;
    }
    if !point.rows.is_empty() {
        output.push(7 << 3 | 2);
        put_varint(length - 8, output);
        for (bound, _) in &point.rows {
            output.extend_from_slice(&bound.to_le_bytes());
        }
    }
    exemplars(8, &point.exemplars, output);
    attributes(PointKind::Histogram, point, 9, output);
}

fn summary(point: &Point, count: f64, output: &mut Vec<u8>) {
    times(point, true, output);
    let is_stale = point.is_stale();
    if is_stale {
        flags(8, output);
    } else {
        fixed64(4, count as u64, output);
        if let Some(sum) = point.sum {
            double(5, sum, output);
        }
    }
    for (quantile, value) in &point.rows {
        message(6, output, |fields| {
            double(1, *quantile, fields);
            if !is_stale {
                double(2, *value, fields);
            }
        });
    }
    attributes(PointKind::Summary, point, 7, output);
}

fn exponential(point: &Point, output: &mut Vec<u8>) {
    attributes(PointKind::Exponential, point, 1, output);
    times(point, true, output);
    match point.native.as_deref().filter(|_| !point.is_stale()) {
        None => flags(10, output),
        Some(NativeHistogram {
            schema,
            count,
            sum,
            zero_threshold,
            zero_count,
            positive,
            negative,
            ..
        }) => {
            fixed64(4, *count, output);
            double(5, *sum, output);
            signed(6, *schema, output);
            fixed64(7, *zero_count, output);
            buckets(8, positive, output);
            buckets(9, negative, output);
            double(14, *zero_threshold, output);
        }
    }
    exemplars(11, &point.exemplars, output);
}

fn buckets(field: u64, run: &BucketRun, output: &mut Vec<u8>) {
    if run.counts.is_empty() {
        return;
    }
    message(field, output, |fields| {
        // Prometheus' indices are those of upper bounds, OTLP's those of lower bounds.
        signed(1, run.offset.saturating_sub(1), fields);
        message(2, fields, |counts| {
            for count in &run.counts {
                put_varint(*count, counts);
            }
        });
    });
}

fn exemplars(field: u64, exemplars: &[ExemplarSample], output: &mut Vec<u8>) {
    for exemplar in exemplars {
        message(field, output, |fields| {
            let time = exemplar.timestamp.unwrap_or(0).saturating_mul(1_000_000);
            fixed64(2, time.cast_unsigned(), fields);
            double(3, exemplar.value, fields);
            for (name, value) in &exemplar.labels {
                if name.eq_ignore_ascii_case("span_id") && id::<8>(4, value, fields)
                    || name.eq_ignore_ascii_case("trace_id") && id::<16>(5, value, fields)
                {
                    continue;
                }
                let is_id =
                    name.eq_ignore_ascii_case("span_id") || name.eq_ignore_ascii_case("trace_id");
                if !is_id || !value.is_empty() {
                    key_value(7, name, value, fields);
                }
            }
        });
    }
}

/// Writes an id in hexadecimal digits. Returns false if the text is not an id of `N` bytes, or if the id is 0.
fn id<const N: usize>(field: u64, text: &str, output: &mut Vec<u8>) -> bool {
    let mut id = [0; N];
    if text.len() != 2 * N {
        return false;
    }
    for (byte, digits) in id.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let digits = std::str::from_utf8(digits).ok();
        let digits = digits.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(value) => *byte = value,
            None => return false,
        }
    }
    if id == [0; N] {
        return false;
    }
    bytes(field, &id, output);
    true
}
