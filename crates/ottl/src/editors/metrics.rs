//! Editors of whole metrics. They decode the metric, so that its unknown fields are lost.

mod aggregate;
mod summaries;

use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Exemplar, Gauge, Metric, NumberDataPoint, Sum, exemplar,
    number_data_point,
};
use prost::Message as _;

use super::{Editing, Editor, Effect};
use crate::functions::ParameterKind::{
    LiteralBool, LiteralDouble, LiteralText, LiteralTexts, Text,
};
use crate::functions::{Arguments, Literals, Parameter};
use crate::path::Context;
use crate::value::Undecided;
use crate::write::PartChange;
use tributary_otlp::decoded_metric_bytes;
use tributary_otlp::view::{self, View as _};

const TEMPORALITY: Parameter = Parameter::new("aggregation_temporality", LiteralText);
const IS_MONOTONIC: Parameter = Parameter::new("monotonic", LiteralBool);
const SUFFIX: Parameter = Parameter::optional("suffix", LiteralText);

pub(super) const ALL: &[Editor] = &[
    Editor::new("convert_sum_to_gauge", &[], |editing| {
        if !has_data(editing, |data| matches!(data, view::Data::Sum { .. })) {
            return Ok(Effect::default());
        }
        let mut metric = metric(editing)?;
        let Some(Data::Sum(sum)) = metric.data.take() else {
            return Ok(Effect::default());
        };
        metric.data = Some(Data::Gauge(Gauge {
            data_points: sum.data_points,
        }));
        changed(editing, &metric)
    })
    .only_in(Context::Metric),
    Editor::new(
        "convert_gauge_to_sum",
        &[TEMPORALITY, IS_MONOTONIC],
        |editing| {
            if !has_data(editing, |data| matches!(data, view::Data::Gauge { .. })) {
                return Ok(Effect::default());
            }
            let mut metric = metric(editing)?;
            let Some(Data::Gauge(gauge)) = metric.data.take() else {
                return Ok(Effect::default());
            };
            metric.data = Some(Data::Sum(Sum {
                data_points: gauge.data_points,
                aggregation_temporality: temporality(editing.arguments.text(0)?) as i32,
                is_monotonic: editing.arguments.bool_or(1, false),
            }));
            changed(editing, &metric)
        },
    )
    .only_in(Context::Metric)
    .checked(temporality_is_known),
    Editor::new(
        "copy_metric",
        &[
            Parameter::optional("name", Text),
            Parameter::optional("description", Text),
            Parameter::optional("unit", Text),
        ],
        |editing| {
            let mut copy = metric(editing)?;
            let arguments = &editing.arguments;
            copy.name = text_or(arguments, 0, copy.name)?;
            copy.description = text_or(arguments, 1, copy.description)?;
            copy.unit = text_or(arguments, 2, copy.unit)?;
            Ok(added(&copy))
        },
    )
    .only_in(Context::Metric),
    Editor::new(
        "scale_metric",
        &[
            Parameter::new("multiplier", LiteralDouble),
            Parameter::optional("unit", Text),
        ],
        scale_metric,
    )
    .only_in(Context::Metric),
    Editor::new("extract_count_metric", &[IS_MONOTONIC, SUFFIX], |editing| {
        summaries::extract(editing, summaries::Part::Count)
    })
    .only_in(Context::Metric),
    Editor::new("extract_sum_metric", &[IS_MONOTONIC, SUFFIX], |editing| {
        summaries::extract(editing, summaries::Part::Sum)
    })
    .only_in(Context::Metric),
    Editor::new(
        "convert_summary_count_val_to_sum",
        &[TEMPORALITY, IS_MONOTONIC, SUFFIX],
        |editing| summaries::convert(editing, summaries::Part::Count),
    )
    .only_in(Context::DataPoint)
    .checked(temporality_is_known),
    Editor::new(
        "convert_summary_sum_val_to_sum",
        &[TEMPORALITY, IS_MONOTONIC, SUFFIX],
        |editing| summaries::convert(editing, summaries::Part::Sum),
    )
    .only_in(Context::DataPoint)
    .checked(temporality_is_known),
    Editor::new(
        "convert_summary_quantile_val_to_gauge",
        &[
            Parameter::optional("attribute_key", LiteralText),
            Parameter::optional("suffix", LiteralText),
        ],
        summaries::quantiles,
    )
    .only_in(Context::Metric),
    Editor::new(
        "aggregate_on_attributes",
        &[
            Parameter::new("aggregation_function", LiteralText),
            Parameter::optional("attributes", LiteralTexts),
        ],
        aggregate::aggregate,
    )
    .only_in(Context::Metric)
    .checked(aggregate::function_is_known),
    Editor::new(
        "merge_histogram_buckets",
        &[
            Parameter::new("target_value", crate::functions::ParameterKind::Any),
            Parameter::optional("method", LiteralText),
        ],
        merge_histogram_buckets,
    )
    .only_in(Context::DataPoint)
    .checked(|literals| match literals.text(1) {
        Some("remove_explicit_bound") | None => Ok(()),
        Some(other) => Err(format!(
            "the method `{other}` is not built in; built in: remove_explicit_bound"
        )),
    }),
];

/// Whether the metric has data of a type. Unlike [`metric`], this decodes nothing.
fn has_data(editing: &Editing<'_, '_>, is: impl FnOnce(&view::Data<'_>) -> bool) -> bool {
    let data = view::Metric::view(editing.here.item).data();
    data.as_ref().is_some_and(is)
}

fn metric(editing: &mut Editing<'_, '_>) -> Result<Metric, Undecided> {
    // Editors make points of the decoded ones, so that both exist at once.
    editing.take(2 * decoded_metric_bytes(editing.here.item.encoded()))?;
    let metric = Metric::decode(editing.here.item.encoded());
    metric.map_err(|_| Undecided::Because("the metric is malformed"))
}

fn changed(editing: &Editing<'_, '_>, metric: &Metric) -> Result<Effect, Undecided> {
    let encoded = metric.encode_to_vec();
    let is_same = encoded == editing.here.item.encoded();
    Ok((!is_same)
        .then_some(PartChange::Part(Context::Metric, encoded))
        .into())
}

/// Returns the effect of adding a metric to the current scope.
fn added(metric: &Metric) -> Effect {
    Effect {
        change: None,
        added: vec![metric.encode_to_vec()],
    }
}

fn text_or(arguments: &Arguments<'_, '_>, at: usize, default: String) -> Result<String, Undecided> {
    match arguments.get(at) {
        Some(value) => value.plain_text().map(str::to_owned),
        None => Ok(default),
    }
}

fn temporality_is_known(literals: &Literals<'_>) -> Result<(), String> {
    match literals.text(0) {
        Some("delta" | "cumulative") | None => Ok(()),
        Some(other) => Err(format!(
            "the aggregation temporality `{other}` is not delta or cumulative"
        )),
    }
}

fn temporality(name: &str) -> AggregationTemporality {
    match name {
        "delta" => AggregationTemporality::Delta,
        _ => AggregationTemporality::Cumulative,
    }
}

fn scale_metric(editing: &mut Editing<'_, '_>) -> Result<Effect, Undecided> {
    let factor = match editing.arguments.value(0) {
        crate::value::Value::Double(factor) => *factor,
        _ => return Err(Undecided::NoNumber),
    };
    let mut metric = metric(editing)?;
    match &mut metric.data {
        Some(Data::Gauge(Gauge { data_points }) | Data::Sum(Sum { data_points, .. })) => {
            data_points
                .iter_mut()
                .for_each(|point| scale_point(point, factor));
        }
        Some(Data::Histogram(histogram)) => {
            for point in &mut histogram.data_points {
                for value in [&mut point.sum, &mut point.min, &mut point.max] {
                    *value = value.map(|value| value * factor);
                }
                point
                    .explicit_bounds
                    .iter_mut()
                    .for_each(|bound| *bound *= factor);
                point
                    .exemplars
                    .iter_mut()
                    .for_each(|exemplar| scale_exemplar(exemplar, factor));
            }
        }
        Some(Data::Summary(summary)) => {
            for point in &mut summary.data_points {
                point.sum *= factor;
                for quantile in &mut point.quantile_values {
                    quantile.value *= factor;
                }
            }
        }
        Some(Data::ExponentialHistogram(_)) => {
            return Err(Undecided::Because(
                "scale_metric does not support exponential histograms",
            ));
        }
        None => return Err(Undecided::Because("the metric has no data")),
    }
    metric.unit = text_or(&editing.arguments, 1, metric.unit)?;
    changed(editing, &metric)
}

#[allow(clippy::cast_possible_truncation)] // As in the Collector, a scaled integer stays one.
fn scale_point(point: &mut NumberDataPoint, factor: f64) {
    use number_data_point::Value::{AsDouble, AsInt};
    point.value = point.value.map(|value| match value {
        AsInt(value) => AsInt((value as f64 * factor) as i64),
        AsDouble(value) => AsDouble(value * factor),
    });
}

#[allow(clippy::cast_possible_truncation)] // As in the Collector, a scaled integer stays one.
fn scale_exemplar(exemplar: &mut Exemplar, factor: f64) {
    use exemplar::Value::{AsDouble, AsInt};
    exemplar.value = exemplar.value.map(|value| match value {
        AsInt(value) => AsInt((value as f64 * factor) as i64),
        AsDouble(value) => AsDouble(value * factor),
    });
}

/// Removes a bound of a histogram, and adds the bucket below it to the bucket above it.
fn merge_histogram_buckets(editing: &mut Editing<'_, '_>) -> Result<Effect, Undecided> {
    use opentelemetry_proto::tonic::metrics::v1::HistogramDataPoint;
    const SAME: f64 = 1e-12;
    let target = match editing.arguments.value(0) {
        crate::value::Value::Double(target) => *target,
        crate::value::Value::Int(target) => *target as f64,
        _ => return Err(Undecided::NoNumber),
    };
    if editing.here.form != 9 {
        return Ok(Effect::default());
    }
    let mut point = HistogramDataPoint::decode(editing.here.inner.encoded())
        .map_err(|_| Undecided::Because("the data point is malformed"))?;
    let mut bounds = point.explicit_bounds.iter();
    let at = bounds.position(|bound| (bound - target).abs() < SAME);
    let Some(at) = at.filter(|_| point.explicit_bounds.len() + 1 == point.bucket_counts.len())
    else {
        return Ok(Effect::default());
    };
    point.explicit_bounds.remove(at);
    let below = point.bucket_counts.remove(at);
    if let Some(above) = point.bucket_counts.get_mut(at) {
        *above = above.wrapping_add(below);
    }
    Ok(Some(PartChange::Part(Context::DataPoint, point.encode_to_vec())).into())
}
