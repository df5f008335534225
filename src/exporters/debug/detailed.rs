//! Verbosity `detailed`: everything, in the Collector's layout. What is not set is not printed.

use std::fmt::{Display, Result, Write};

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::metrics::v1::exponential_histogram_data_point::Buckets;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Exemplar, ExponentialHistogramDataPoint, HistogramDataPoint, Metric,
    NumberDataPoint, SummaryDataPoint, exemplar,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;

use super::LONGEST;
use super::normal::{number, severity};
use super::text::{Attribute, Hex, Nanos, Plain, Strings, Time, enum_name};

pub(super) fn traces(out: &mut String, request: &ExportTraceServiceRequest) -> Result {
    for (at, data) in request.resource_spans.iter().enumerate() {
        writeln!(out, "ResourceSpans #{at}")?;
        resource(
            out,
            &data.schema_url,
            data.resource.as_ref(),
            Strings::default(),
        )?;
        for (at, data) in data.scope_spans.iter().enumerate() {
            writeln!(out, "ScopeSpans #{at}")?;
            scope(
                out,
                &data.schema_url,
                data.scope.as_ref(),
                Strings::default(),
            )?;
            for (at, data) in data.spans.iter().enumerate() {
                writeln!(out, "Span #{at}")?;
                span(out, data)?;
            }
        }
    }
    Ok(())
}

pub(super) fn metrics(out: &mut String, request: &ExportMetricsServiceRequest) -> Result {
    for (at, data) in request.resource_metrics.iter().enumerate() {
        writeln!(out, "ResourceMetrics #{at}")?;
        resource(
            out,
            &data.schema_url,
            data.resource.as_ref(),
            Strings::default(),
        )?;
        for (at, data) in data.scope_metrics.iter().enumerate() {
            writeln!(out, "ScopeMetrics #{at}")?;
            scope(
                out,
                &data.schema_url,
                data.scope.as_ref(),
                Strings::default(),
            )?;
            for (at, data) in data.metrics.iter().enumerate() {
                writeln!(out, "Metric #{at}")?;
                metric(out, data)?;
            }
        }
    }
    Ok(())
}

pub(super) fn logs(out: &mut String, request: &ExportLogsServiceRequest) -> Result {
    for (at, data) in request.resource_logs.iter().enumerate() {
        writeln!(out, "ResourceLogs #{at}")?;
        resource(
            out,
            &data.schema_url,
            data.resource.as_ref(),
            Strings::default(),
        )?;
        for (at, data) in data.scope_logs.iter().enumerate() {
            writeln!(out, "ScopeLogs #{at}")?;
            scope(
                out,
                &data.schema_url,
                data.scope.as_ref(),
                Strings::default(),
            )?;
            for (at, data) in data.log_records.iter().enumerate() {
                writeln!(out, "LogRecord #{at}")?;
                log_record(out, data)?;
            }
        }
    }
    Ok(())
}

/// An aligned line; none if there is nothing to say.
pub(super) fn field(out: &mut String, name: &str, value: impl Display) -> Result {
    match value.to_string() {
        value if value.is_empty() => Ok(()),
        value => writeln!(out, "    {name:<15}: {}", value.trim_end()),
    }
}

/// An aligned line, unless the number is zero.
pub(super) fn count(out: &mut String, name: &str, value: u32) -> Result {
    match value {
        0 => Ok(()),
        value => field(out, name, value),
    }
}

/// Fails when the text is long enough: samples share stacks and attributes, so it has no relation to the size of a request.
pub(super) fn room(out: &str) -> Result {
    match out.len() < LONGEST {
        true => Ok(()),
        false => Err(std::fmt::Error),
    }
}

/// A titled list, unless it is empty.
pub(super) fn attributes(
    out: &mut String,
    indent: &str,
    title: &str,
    attributes: &[Attribute<'_>],
) -> Result {
    if !attributes.is_empty() {
        writeln!(out, "{indent}{title}:")?;
    }
    for attribute in attributes {
        room(out)?;
        writeln!(out, "{indent}     -> {attribute}")?;
    }
    Ok(())
}

pub(super) fn resource(
    out: &mut String,
    schema_url: &str,
    resource: Option<&Resource>,
    strings: Strings<'_>,
) -> Result {
    if !schema_url.is_empty() {
        writeln!(out, "Resource SchemaURL: {}", Plain(schema_url))?;
    }
    let Some(resource) = resource else {
        return Ok(());
    };
    attributes(
        out,
        "",
        "Resource attributes",
        &strings.attributes(&resource.attributes),
    )?;
    if resource.dropped_attributes_count > 0 {
        let dropped = resource.dropped_attributes_count;
        writeln!(out, "Resource dropped attributes: {dropped}")?;
    }
    for (at, entity) in resource.entity_refs.iter().enumerate() {
        writeln!(out, "Entity #{at}")?;
        field(out, "Type", Plain(&entity.r#type))?;
        field(out, "Schema URL", Plain(&entity.schema_url))?;
        field(out, "Id keys", Plain(&entity.id_keys.join(", ")))?;
        field(
            out,
            "Description",
            Plain(&entity.description_keys.join(", ")),
        )?;
    }
    Ok(())
}

pub(super) fn scope(
    out: &mut String,
    schema_url: &str,
    scope: Option<&InstrumentationScope>,
    strings: Strings<'_>,
) -> Result {
    if !schema_url.is_empty() {
        writeln!(out, "Scope SchemaURL: {}", Plain(schema_url))?;
    }
    let Some(scope) = scope else {
        return Ok(());
    };
    let line = format!("{} {}", Plain(&scope.name), Plain(&scope.version));
    if !line.trim().is_empty() {
        writeln!(out, "InstrumentationScope {}", line.trim())?;
    }
    attributes(
        out,
        "",
        "InstrumentationScope attributes",
        &strings.attributes(&scope.attributes),
    )?;
    match scope.dropped_attributes_count {
        0 => Ok(()),
        dropped => writeln!(out, "InstrumentationScope dropped attributes: {dropped}"),
    }
}

fn span(out: &mut String, span: &Span) -> Result {
    let none = Strings::default();
    field(out, "Trace ID", Hex(&span.trace_id))?;
    field(out, "Parent ID", Hex(&span.parent_span_id))?;
    field(out, "ID", Hex(&span.span_id))?;
    field(out, "Name", Plain(&span.name))?;
    let kind = SpanKind::try_from(span.kind).ok();
    let kind = enum_name(kind.map(|kind| kind.as_str_name()), "SPAN_KIND_", span.kind);
    field(out, "Kind", kind)?;
    field(out, "TraceState", Plain(&span.trace_state))?;
    field(out, "Start time", Time(span.start_time_unix_nano))?;
    field(out, "End time", Time(span.end_time_unix_nano))?;
    let duration = span
        .end_time_unix_nano
        .checked_sub(span.start_time_unix_nano);
    match duration {
        Some(duration) => field(out, "Duration", Nanos(duration))?,
        None => field(out, "Duration", "negative: the end is before the start")?,
    }
    if let Some(status) = &span.status {
        let code = StatusCode::try_from(status.code).ok();
        let code = enum_name(
            code.map(|code| code.as_str_name()),
            "STATUS_CODE_",
            status.code,
        );
        field(out, "Status code", code)?;
        field(out, "Status message", Plain(&status.message))?;
    }
    count(out, "Flags", span.flags)?;
    count(out, "Lost attributes", span.dropped_attributes_count)?;
    count(out, "Lost events", span.dropped_events_count)?;
    count(out, "Lost links", span.dropped_links_count)?;
    attributes(out, "", "Attributes", &none.attributes(&span.attributes))?;
    for (at, event) in span.events.iter().enumerate() {
        writeln!(out, "SpanEvent #{at}")?;
        field(out, "Name", Plain(&event.name))?;
        field(out, "Timestamp", Time(event.time_unix_nano))?;
        count(out, "Lost attributes", event.dropped_attributes_count)?;
        attributes(
            out,
            "    ",
            "Attributes",
            &none.attributes(&event.attributes),
        )?;
    }
    for (at, link) in span.links.iter().enumerate() {
        writeln!(out, "SpanLink #{at}")?;
        field(out, "Trace ID", Hex(&link.trace_id))?;
        field(out, "ID", Hex(&link.span_id))?;
        field(out, "TraceState", Plain(&link.trace_state))?;
        count(out, "Flags", link.flags)?;
        count(out, "Lost attributes", link.dropped_attributes_count)?;
        attributes(
            out,
            "    ",
            "Attributes",
            &none.attributes(&link.attributes),
        )?;
    }
    Ok(())
}

fn log_record(out: &mut String, record: &LogRecord) -> Result {
    field(out, "Observed time", Time(record.observed_time_unix_nano))?;
    field(out, "Timestamp", Time(record.time_unix_nano))?;
    field(out, "Severity text", Plain(&record.severity_text))?;
    let number = record.severity_number;
    field(
        out,
        "Severity",
        format_args!("{} ({number})", severity(number)),
    )?;
    field(out, "Event name", Plain(&record.event_name))?;
    field(out, "Body", Strings::default().value(record.body.as_ref()))?;
    field(out, "Trace ID", Hex(&record.trace_id))?;
    field(out, "Span ID", Hex(&record.span_id))?;
    count(out, "Flags", record.flags)?;
    count(out, "Lost attributes", record.dropped_attributes_count)?;
    attributes(
        out,
        "",
        "Attributes",
        &Strings::default().attributes(&record.attributes),
    )
}

fn metric(out: &mut String, metric: &Metric) -> Result {
    let (kind, temporality, monotonic) = match &metric.data {
        Some(Data::Gauge(_)) => ("Gauge", None, None),
        Some(Data::Sum(sum)) => (
            "Sum",
            Some(sum.aggregation_temporality),
            Some(sum.is_monotonic),
        ),
        Some(Data::Histogram(data)) => ("Histogram", Some(data.aggregation_temporality), None),
        Some(Data::ExponentialHistogram(data)) => (
            "ExponentialHistogram",
            Some(data.aggregation_temporality),
            None,
        ),
        Some(Data::Summary(_)) => ("Summary", None, None),
        None => ("none", None, None),
    };
    field(out, "Name", Plain(&metric.name))?;
    field(out, "Description", Plain(&metric.description))?;
    field(out, "Unit", Plain(&metric.unit))?;
    field(out, "Data type", kind)?;
    if let Some(monotonic) = monotonic {
        field(out, "Monotonic", monotonic)?;
    }
    if let Some(temporality) = temporality {
        let name = AggregationTemporality::try_from(temporality).ok();
        let name = name.map(|name| name.as_str_name());
        let name = enum_name(name, "AGGREGATION_TEMPORALITY_", temporality);
        field(out, "Temporality", name)?;
    }
    attributes(
        out,
        "    ",
        "Metadata",
        &Strings::default().attributes(&metric.metadata),
    )?;
    match &metric.data {
        Some(Data::Gauge(gauge)) => each(out, "NumberDataPoint", &gauge.data_points, number_point),
        Some(Data::Sum(sum)) => each(out, "NumberDataPoint", &sum.data_points, number_point),
        Some(Data::Histogram(data)) => each(
            out,
            "HistogramDataPoint",
            &data.data_points,
            histogram_point,
        ),
        Some(Data::ExponentialHistogram(data)) => each(
            out,
            "ExponentialHistogramDataPoint",
            &data.data_points,
            exponential_point,
        ),
        Some(Data::Summary(data)) => {
            each(out, "SummaryDataPoint", &data.data_points, summary_point)
        }
        None => Ok(()),
    }
}

fn each<T>(
    out: &mut String,
    title: &str,
    points: &[T],
    print: impl Fn(&mut String, &T) -> Result,
) -> Result {
    for (at, point) in points.iter().enumerate() {
        writeln!(out, "{title} #{at}")?;
        print(out, point)?;
    }
    Ok(())
}

fn times(out: &mut String, start: u64, time: u64, flags: u32) -> Result {
    if start != 0 {
        field(out, "Start time", Time(start))?;
    }
    field(out, "Timestamp", Time(time))?;
    count(out, "Flags", flags)
}

fn number_point(out: &mut String, point: &NumberDataPoint) -> Result {
    times(
        out,
        point.start_time_unix_nano,
        point.time_unix_nano,
        point.flags,
    )?;
    field(out, "Value", number(point))?;
    attributes(
        out,
        "    ",
        "Attributes",
        &Strings::default().attributes(&point.attributes),
    )?;
    exemplars(out, &point.exemplars)
}

fn histogram_point(out: &mut String, point: &HistogramDataPoint) -> Result {
    times(
        out,
        point.start_time_unix_nano,
        point.time_unix_nano,
        point.flags,
    )?;
    summary(out, point.count, point.sum, point.min, point.max)?;
    for (at, count) in point.bucket_counts.iter().enumerate() {
        let lower = at
            .checked_sub(1)
            .map_or(Some(&f64::NEG_INFINITY), |at| point.explicit_bounds.get(at));
        let upper = point.explicit_bounds.get(at).unwrap_or(&f64::INFINITY);
        match lower {
            Some(lower) => writeln!(out, "    Bucket ({lower}, {upper}]: {count}")?,
            None => writeln!(out, "    Bucket without bounds: {count}")?,
        }
    }
    attributes(
        out,
        "    ",
        "Attributes",
        &Strings::default().attributes(&point.attributes),
    )?;
    exemplars(out, &point.exemplars)
}

fn exponential_point(out: &mut String, point: &ExponentialHistogramDataPoint) -> Result {
    times(
        out,
        point.start_time_unix_nano,
        point.time_unix_nano,
        point.flags,
    )?;
    summary(out, point.count, point.sum, point.min, point.max)?;
    field(out, "Scale", point.scale)?;
    // A bucket reaches from base^index to base^(index + 1), with base = 2^(2^-scale).
    let bound = |index: i64| (index as f64 * (-f64::from(point.scale)).exp2()).exp2();
    let filled = |buckets: &Option<Buckets>| -> Vec<(i64, u64)> {
        let Some(buckets) = buckets else {
            return Vec::new();
        };
        let numbered = (i64::from(buckets.offset)..).zip(buckets.bucket_counts.iter().copied());
        numbered.filter(|(_, count)| *count > 0).collect()
    };
    for (index, count) in filled(&point.negative).into_iter().rev() {
        writeln!(
            out,
            "    Bucket [-{}, -{}): {count}",
            bound(index + 1),
            bound(index)
        )?;
    }
    if point.zero_count > 0 {
        let threshold = point.zero_threshold;
        writeln!(
            out,
            "    Bucket [{}, {threshold}]: {}",
            // Not `-0` when only zeros are in it.
            0.0 - threshold,
            point.zero_count
        )?;
    }
    for (index, count) in filled(&point.positive) {
        writeln!(
            out,
            "    Bucket ({}, {}]: {count}",
            bound(index),
            bound(index + 1)
        )?;
    }
    attributes(
        out,
        "    ",
        "Attributes",
        &Strings::default().attributes(&point.attributes),
    )?;
    exemplars(out, &point.exemplars)
}

fn summary_point(out: &mut String, point: &SummaryDataPoint) -> Result {
    times(
        out,
        point.start_time_unix_nano,
        point.time_unix_nano,
        point.flags,
    )?;
    summary(out, point.count, Some(point.sum), None, None)?;
    for quantile in &point.quantile_values {
        writeln!(
            out,
            "    Quantile {}: {}",
            quantile.quantile, quantile.value
        )?;
    }
    attributes(
        out,
        "    ",
        "Attributes",
        &Strings::default().attributes(&point.attributes),
    )
}

fn summary(
    out: &mut String,
    count: u64,
    sum: Option<f64>,
    min: Option<f64>,
    max: Option<f64>,
) -> Result {
    field(out, "Count", count)?;
    for (name, value) in [("Sum", sum), ("Min", min), ("Max", max)] {
        if let Some(value) = value {
            field(out, name, value)?;
        }
    }
    Ok(())
}

fn exemplars(out: &mut String, exemplars: &[Exemplar]) -> Result {
    for (at, exemplar) in exemplars.iter().enumerate() {
        writeln!(out, "Exemplar #{at}")?;
        field(out, "Trace ID", Hex(&exemplar.trace_id))?;
        field(out, "Span ID", Hex(&exemplar.span_id))?;
        field(out, "Timestamp", Time(exemplar.time_unix_nano))?;
        match exemplar.value {
            Some(exemplar::Value::AsInt(value)) => field(out, "Value", value)?,
            Some(exemplar::Value::AsDouble(value)) => field(out, "Value", value)?,
            None => {}
        }
        let filtered = Strings::default().attributes(&exemplar.filtered_attributes);
        attributes(out, "    ", "Filtered attributes", &filtered)?;
    }
    Ok(())
}
