//! Editors that make metrics of the counts, sums and quantiles of histograms and summaries.

use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Metric, NumberDataPoint, Sum,
};

use super::{added, has_data, metric, temporality};
use crate::editors::{Editing, Effect};
use crate::value::Undecided;
use tributary_otlp::view;

/// The property of a data point that becomes a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Count,
    Sum,
}

/// Adds a sum of the counts or sums of a histogram.
pub(super) fn extract(editing: &mut Editing<'_, '_>, part: Part) -> Result<Effect, Undecided> {
    const WRONG: Undecided = Undecided::Because(
        "the metric is not a histogram or exponential histogram with a temporality, or a summary",
    );
    if has_data(editing, |data| {
        matches!(data, view::Data::Gauge { .. } | view::Data::Sum { .. })
    }) {
        return Err(WRONG);
    }
    let metric = metric(editing)?;
    let (temporality, points) = match &metric.data {
        Some(Data::Histogram(data)) => {
            let points = data.data_points.iter().map(|point| {
                let times = (point.start_time_unix_nano, point.time_unix_nano);
                made(&point.attributes, times, part, point.count, point.sum)
            });
            (data.aggregation_temporality, points.flatten().collect())
        }
        Some(Data::ExponentialHistogram(data)) => {
            let points = data.data_points.iter().map(|point| {
                let times = (point.start_time_unix_nano, point.time_unix_nano);
                made(&point.attributes, times, part, point.count, point.sum)
            });
            (data.aggregation_temporality, points.flatten().collect())
        }
        Some(Data::Summary(_)) => {
            // Summaries are cumulative.
            let cumulative = AggregationTemporality::Cumulative as i32;
            (cumulative, of_summary(&metric, part))
        }
        _ => return Err(WRONG),
    };
    if temporality == AggregationTemporality::Unspecified as i32 {
        return Err(WRONG);
    }
    let suffix = suffix(editing, 1, part)?;
    let points: Vec<NumberDataPoint> = points;
    if points.is_empty() {
        return Ok(Effect::default());
    }
    Ok(added(&Metric {
        name: metric.name + &suffix,
        description: metric.description,
        unit: match part {
            Part::Count => "1".to_owned(),
            Part::Sum => metric.unit,
        },
        data: Some(Data::Sum(Sum {
            data_points: points,
            aggregation_temporality: temporality,
            is_monotonic: editing.arguments.bool_or(0, false),
        })),
        ..Metric::default()
    }))
}

/// Adds a sum of the counts or sums of a summary.
pub(super) fn convert(editing: &mut Editing<'_, '_>, part: Part) -> Result<Effect, Undecided> {
    // This runs for every data point, so the type is checked before the metric is decoded.
    if !has_data(editing, |data| matches!(data, view::Data::Summary { .. })) {
        return Ok(Effect::default());
    }
    let metric = metric(editing)?;
    let suffix = suffix(editing, 2, part)?;
    let data_points = of_summary(&metric, part);
    Ok(added(&Metric {
        name: metric.name + &suffix,
        description: metric.description,
        unit: metric.unit,
        data: Some(Data::Sum(Sum {
            data_points,
            aggregation_temporality: temporality(editing.arguments.text(0)?) as i32,
            is_monotonic: editing.arguments.bool_or(1, false),
        })),
        ..Metric::default()
    }))
}

/// Adds a gauge of the quantiles of a summary.
pub(super) fn quantiles(editing: &mut Editing<'_, '_>) -> Result<Effect, Undecided> {
    if !has_data(editing, |data| matches!(data, view::Data::Summary { .. })) {
        return Ok(Effect::default());
    }
    let metric = metric(editing)?;
    let Some(Data::Summary(summary)) = &metric.data else {
        return Ok(Effect::default());
    };
    let key = editing.arguments.text_or(0, "quantile")?;
    let suffix = editing.arguments.text_or(1, ".quantiles")?;
    let mut data_points = Vec::new();
    for point in &summary.data_points {
        for quantile in &point.quantile_values {
            let mut attributes = point.attributes.clone();
            attributes.retain(|attribute| attribute.key != key);
            attributes.push(KeyValue {
                key: key.to_owned(),
                value: Some(AnyValue {
                    value: Some(Any::DoubleValue(quantile.quantile)),
                }),
                ..KeyValue::default()
            });
            data_points.push(NumberDataPoint {
                attributes,
                start_time_unix_nano: point.start_time_unix_nano,
                time_unix_nano: point.time_unix_nano,
                value: Some(Value::AsDouble(quantile.value)),
                ..NumberDataPoint::default()
            });
        }
    }
    Ok(added(&Metric {
        name: format!("{}{suffix}", metric.name),
        description: metric.description.clone(),
        unit: metric.unit.clone(),
        data: Some(Data::Gauge(Gauge { data_points })),
        ..Metric::default()
    }))
}

fn suffix(editing: &Editing<'_, '_>, at: usize, part: Part) -> Result<String, Undecided> {
    let default = match part {
        Part::Count => "_count",
        Part::Sum => "_sum",
    };
    editing.arguments.text_or(at, default).map(str::to_owned)
}

fn of_summary(metric: &Metric, part: Part) -> Vec<NumberDataPoint> {
    let Some(Data::Summary(summary)) = &metric.data else {
        return Vec::new();
    };
    let points = summary.data_points.iter().map(|point| {
        let times = (point.start_time_unix_nano, point.time_unix_nano);
        made(&point.attributes, times, part, point.count, Some(point.sum))
    });
    points.flatten().collect()
}

/// Creates a data point; `None` if the sum is missing.
fn made(
    attributes: &[KeyValue],
    (start, time): (u64, u64),
    part: Part,
    count: u64,
    sum: Option<f64>,
) -> Option<NumberDataPoint> {
    Some(NumberDataPoint {
        attributes: attributes.to_vec(),
        start_time_unix_nano: start,
        time_unix_nano: time,
        value: Some(match part {
            Part::Count => Value::AsInt(count.cast_signed()),
            Part::Sum => Value::AsDouble(sum?),
        }),
        ..NumberDataPoint::default()
    })
}
