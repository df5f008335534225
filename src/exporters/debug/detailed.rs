//! Verbosity `detailed`: everything, in the text of the Collector's debug exporter. Control characters in received
//! text are escaped.

use std::fmt::{Display, Result, Write};

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, SeverityNumber};
use opentelemetry_proto::tonic::metrics::v1::exponential_histogram_data_point::Buckets;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Exemplar, ExponentialHistogramDataPoint, HistogramDataPoint, Metric,
    NumberDataPoint, SummaryDataPoint, exemplar, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::{Event, Link, SpanKind};
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;

use super::chunks::Text;
use super::text::{Decimal, Id, Plain, Strings, Timestamp, known_name, typed};

pub(super) fn traces(out: &mut Text<'_>, request: &ExportTraceServiceRequest) -> Result {
    for (at, data) in request.resource_spans.iter().enumerate() {
        writeln!(out, "ResourceSpans #{at}")?;
        let (schema_url, from) = (&data.schema_url, data.resource.as_ref());
        resource(out, schema_url, from, Strings::default())?;
        for (at, data) in data.scope_spans.iter().enumerate() {
            let (schema_url, from) = (&data.schema_url, data.scope.as_ref());
            scope(out, "Spans", at, schema_url, from, Strings::default())?;
            for (at, data) in data.spans.iter().enumerate() {
                writeln!(out, "Span #{at}")?;
                span(out, data)?;
            }
        }
    }
    Ok(())
}

pub(super) fn metrics(out: &mut Text<'_>, request: &ExportMetricsServiceRequest) -> Result {
    for (at, data) in request.resource_metrics.iter().enumerate() {
        writeln!(out, "ResourceMetrics #{at}")?;
        let (schema_url, from) = (&data.schema_url, data.resource.as_ref());
        resource(out, schema_url, from, Strings::default())?;
        for (at, data) in data.scope_metrics.iter().enumerate() {
            let (schema_url, from) = (&data.schema_url, data.scope.as_ref());
            scope(out, "Metrics", at, schema_url, from, Strings::default())?;
            for (at, data) in data.metrics.iter().enumerate() {
                writeln!(out, "Metric #{at}")?;
                metric(out, data)?;
            }
        }
    }
    Ok(())
}

pub(super) fn logs(out: &mut Text<'_>, request: &ExportLogsServiceRequest) -> Result {
    for (at, data) in request.resource_logs.iter().enumerate() {
        writeln!(out, "ResourceLog #{at}")?;
        let (schema_url, from) = (&data.schema_url, data.resource.as_ref());
        resource(out, schema_url, from, Strings::default())?;
        for (at, data) in data.scope_logs.iter().enumerate() {
            let (schema_url, from) = (&data.schema_url, data.scope.as_ref());
            scope(out, "Logs", at, schema_url, from, Strings::default())?;
            for (at, data) in data.log_records.iter().enumerate() {
                writeln!(out, "LogRecord #{at}")?;
                log_record(out, data)?;
            }
        }
    }
    Ok(())
}

pub(super) fn line(out: &mut Text<'_>, name: &str, value: impl Display) -> Result {
    writeln!(out, "    {name:<15}: {value}")
}

/// Writes a titled list, unless the list is empty.
fn attributes(out: &mut Text<'_>, title: &str, list: &[KeyValue], strings: Strings<'_>) -> Result {
    if list.is_empty() {
        return Ok(());
    }
    writeln!(out, "{title}:")?;
    // Indent as deep as the arrow in the title.
    let indent = title.split_once("->").map_or("", |(indent, _)| indent);
    for attribute in list {
        let value = typed(attribute.value.as_ref(), strings);
        let key = strings.attribute(attribute).key;
        writeln!(out, "{indent}     -> {key}: {value}")?;
    }
    Ok(())
}

pub(super) fn resource(
    out: &mut Text<'_>,
    schema_url: &str,
    resource: Option<&Resource>,
    strings: Strings<'_>,
) -> Result {
    writeln!(out, "Resource SchemaURL: {}", Plain(schema_url))?;
    let Some(resource) = resource else {
        return Ok(());
    };
    attributes(out, "Resource attributes", &resource.attributes, strings)?;
    if !resource.entity_refs.is_empty() {
        writeln!(out, "Resource entity refs:")?;
    }
    for (at, entity) in resource.entity_refs.iter().enumerate() {
        writeln!(out, "     -> Entity ref #{at}:")?;
        writeln!(out, "          -> Type: {}", Plain(&entity.r#type))?;
        if !entity.schema_url.is_empty() {
            writeln!(
                out,
                "          -> Schema URL: {}",
                Plain(&entity.schema_url)
            )?;
        }
        for (title, keys) in [
            ("ID", &entity.id_keys),
            ("Description", &entity.description_keys),
        ] {
            if !keys.is_empty() {
                writeln!(out, "          -> {title} keys:")?;
            }
            for key in keys {
                writeln!(out, "               -> {}", Plain(key))?;
            }
        }
    }
    Ok(())
}

pub(super) fn scope(
    out: &mut Text<'_>,
    kind: &str,
    at: usize,
    schema_url: &str,
    scope: Option<&InstrumentationScope>,
    strings: Strings<'_>,
) -> Result {
    writeln!(out, "Scope{kind} #{at}")?;
    writeln!(out, "Scope{kind} SchemaURL: {}", Plain(schema_url))?;
    let (name, version) = scope.map_or(("", ""), |scope| (&scope.name, &scope.version));
    writeln!(
        out,
        "InstrumentationScope {} {}",
        Plain(name),
        Plain(version)
    )?;
    let list = scope.map_or(&[][..], |scope| &scope.attributes);
    attributes(out, "InstrumentationScope attributes", list, strings)
}

fn span(out: &mut Text<'_>, span: &Span) -> Result {
    line(out, "Trace ID", Id(&span.trace_id))?;
    line(out, "Parent ID", Id(&span.parent_span_id))?;
    line(out, "ID", Id(&span.span_id))?;
    line(out, "Name", Plain(&span.name))?;
    let kind = SpanKind::try_from(span.kind).ok();
    let kind = known_name(kind.map(|kind| kind.as_str_name()), "SPAN_KIND_");
    line(out, "Kind", kind)?;
    if !span.trace_state.is_empty() {
        line(out, "TraceState", Plain(&span.trace_state))?;
    }
    line(out, "Start time", Timestamp(span.start_time_unix_nano))?;
    line(out, "End time", Timestamp(span.end_time_unix_nano))?;
    let status = span.status.clone().unwrap_or_default();
    let code = StatusCode::try_from(status.code).ok();
    let code = known_name(code.map(|code| code.as_str_name()), "STATUS_CODE_");
    line(out, "Status code", code)?;
    line(out, "Status message", Plain(&status.message))?;
    line(out, "DroppedAttributesCount", span.dropped_attributes_count)?;
    line(out, "DroppedEventsCount", span.dropped_events_count)?;
    line(out, "DroppedLinksCount", span.dropped_links_count)?;
    attributes(out, "Attributes", &span.attributes, Strings::default())?;
    each(out, "Events", "SpanEvent", &span.events, event)?;
    each(out, "Links", "SpanLink", &span.links, link)
}

fn event(out: &mut Text<'_>, event: &Event) -> Result {
    writeln!(out, "     -> Name: {}", Plain(&event.name))?;
    writeln!(
        out,
        "     -> Timestamp: {}",
        Timestamp(event.time_unix_nano)
    )?;
    let dropped = event.dropped_attributes_count;
    writeln!(out, "     -> DroppedAttributesCount: {dropped}")?;
    let title = "     -> Attributes:";
    attributes(out, title, &event.attributes, Strings::default())
}

fn link(out: &mut Text<'_>, link: &Link) -> Result {
    writeln!(out, "     -> Trace ID: {}", Id(&link.trace_id))?;
    writeln!(out, "     -> ID: {}", Id(&link.span_id))?;
    writeln!(out, "     -> TraceState: {}", Plain(&link.trace_state))?;
    let dropped = link.dropped_attributes_count;
    writeln!(out, "     -> DroppedAttributesCount: {dropped}")?;
    let title = "     -> Attributes:";
    attributes(out, title, &link.attributes, Strings::default())
}

/// Writes a titled list of items with several lines each, unless the list is empty.
fn each<T>(
    out: &mut Text<'_>,
    title: &str,
    name: &str,
    list: &[T],
    print: impl Fn(&mut Text<'_>, &T) -> Result,
) -> Result {
    if !list.is_empty() && !title.is_empty() {
        writeln!(out, "{title}:")?;
    }
    for (at, one) in list.iter().enumerate() {
        writeln!(out, "{name} #{at}")?;
        print(out, one)?;
    }
    Ok(())
}

fn log_record(out: &mut Text<'_>, record: &LogRecord) -> Result {
    let strings = Strings::default();
    let observed = Timestamp(record.observed_time_unix_nano);
    writeln!(out, "ObservedTimestamp: {observed}")?;
    writeln!(out, "Timestamp: {}", Timestamp(record.time_unix_nano))?;
    writeln!(out, "SeverityText: {}", Plain(&record.severity_text))?;
    let number = record.severity_number;
    let name = SeverityNumber::try_from(number).ok();
    let name = known_name(name.map(|name| name.as_str_name()), "SEVERITY_NUMBER_");
    writeln!(out, "SeverityNumber: {name}({number})")?;
    if !record.event_name.is_empty() {
        writeln!(out, "EventName: {}", Plain(&record.event_name))?;
    }
    writeln!(out, "Body: {}", typed(record.body.as_ref(), strings))?;
    attributes(out, "Attributes", &record.attributes, strings)?;
    writeln!(out, "Trace ID: {}", Id(&record.trace_id))?;
    writeln!(out, "Span ID: {}", Id(&record.span_id))?;
    writeln!(out, "Flags: {}", record.flags)
}

fn metric(out: &mut Text<'_>, metric: &Metric) -> Result {
    let kind = match &metric.data {
        Some(Data::Gauge(_)) => "Gauge",
        Some(Data::Sum(_)) => "Sum",
        Some(Data::Histogram(_)) => "Histogram",
        Some(Data::ExponentialHistogram(_)) => "ExponentialHistogram",
        Some(Data::Summary(_)) => "Summary",
        None => "Empty",
    };
    writeln!(out, "Descriptor:")?;
    writeln!(out, "     -> Name: {}", Plain(&metric.name))?;
    writeln!(out, "     -> Description: {}", Plain(&metric.description))?;
    writeln!(out, "     -> Unit: {}", Plain(&metric.unit))?;
    writeln!(out, "     -> DataType: {kind}")?;
    let title = "     -> Metadata";
    attributes(out, title, &metric.metadata, Strings::default())?;
    match &metric.data {
        Some(Data::Gauge(data)) => {
            each(out, "", "NumberDataPoints", &data.data_points, number_point)
        }
        Some(Data::Sum(data)) => {
            writeln!(out, "     -> IsMonotonic: {}", data.is_monotonic)?;
            temporality(out, data.aggregation_temporality)?;
            each(out, "", "NumberDataPoints", &data.data_points, number_point)
        }
        Some(Data::Histogram(data)) => {
            temporality(out, data.aggregation_temporality)?;
            let name = "HistogramDataPoints";
            each(out, "", name, &data.data_points, histogram_point)
        }
        Some(Data::ExponentialHistogram(data)) => {
            temporality(out, data.aggregation_temporality)?;
            let name = "ExponentialHistogramDataPoints";
            each(out, "", name, &data.data_points, exponential_point)
        }
        Some(Data::Summary(data)) => each(
            out,
            "",
            "SummaryDataPoints",
            &data.data_points,
            summary_point,
        ),
        None => Ok(()),
    }
}

fn temporality(out: &mut Text<'_>, number: i32) -> Result {
    let name = AggregationTemporality::try_from(number).ok();
    let name = name.map(|name| name.as_str_name());
    let name = known_name(name, "AGGREGATION_TEMPORALITY_");
    writeln!(out, "     -> AggregationTemporality: {name}")
}

fn point(out: &mut Text<'_>, list: &[KeyValue], start: u64, time: u64) -> Result {
    attributes(out, "Data point attributes", list, Strings::default())?;
    writeln!(out, "StartTimestamp: {}", Timestamp(start))?;
    writeln!(out, "Timestamp: {}", Timestamp(time))
}

fn number_point(out: &mut Text<'_>, data: &NumberDataPoint) -> Result {
    let (start, time) = (data.start_time_unix_nano, data.time_unix_nano);
    point(out, &data.attributes, start, time)?;
    match data.value {
        Some(number_data_point::Value::AsInt(value)) => writeln!(out, "Value: {value}")?,
        Some(number_data_point::Value::AsDouble(value)) => {
            writeln!(out, "Value: {}", Decimal(value))?;
        }
        None => {}
    }
    each(out, "Exemplars", "Exemplar", &data.exemplars, exemplar)
}

fn summary(
    out: &mut Text<'_>,
    count: u64,
    sum: Option<f64>,
    min: Option<f64>,
    max: Option<f64>,
) -> Result {
    writeln!(out, "Count: {count}")?;
    for (name, value) in [("Sum", sum), ("Min", min), ("Max", max)] {
        if let Some(value) = value {
            writeln!(out, "{name}: {}", Decimal(value))?;
        }
    }
    Ok(())
}

fn histogram_point(out: &mut Text<'_>, data: &HistogramDataPoint) -> Result {
    let (start, time) = (data.start_time_unix_nano, data.time_unix_nano);
    point(out, &data.attributes, start, time)?;
    summary(out, data.count, data.sum, data.min, data.max)?;
    for (at, bound) in data.explicit_bounds.iter().enumerate() {
        writeln!(out, "ExplicitBounds #{at}: {}", Decimal(*bound))?;
    }
    for (at, count) in data.bucket_counts.iter().enumerate() {
        writeln!(out, "Buckets #{at}, Count: {count}")?;
    }
    each(out, "Exemplars", "Exemplar", &data.exemplars, exemplar)
}

fn exponential_point(out: &mut Text<'_>, data: &ExponentialHistogramDataPoint) -> Result {
    let (start, time) = (data.start_time_unix_nano, data.time_unix_nano);
    point(out, &data.attributes, start, time)?;
    summary(out, data.count, data.sum, data.min, data.max)?;
    // A bucket reaches from base^index to base^(index + 1), with base = 2^(2^-scale).
    let factor = std::f64::consts::LN_2 * (-f64::from(data.scale)).exp2();
    let bound = |index: i64| (index as f64 * factor).exp();
    let numbered = |buckets: &Option<Buckets>| -> Vec<(i64, u64)> {
        let buckets = buckets.as_ref();
        let offset = buckets.map_or(0, |buckets| buckets.offset);
        let counts = buckets.map_or(&[][..], |buckets| &buckets.bucket_counts);
        (i64::from(offset)..).zip(counts.iter().copied()).collect()
    };
    for (index, count) in numbered(&data.negative).into_iter().rev() {
        let (lower, upper) = (Decimal(-bound(index + 1)), Decimal(-bound(index)));
        writeln!(out, "Bucket [{lower}, {upper}), Count: {count}")?;
    }
    if data.zero_count != 0 {
        writeln!(out, "Bucket [0, 0], Count: {}", data.zero_count)?;
    }
    for (index, count) in numbered(&data.positive) {
        let (lower, upper) = (Decimal(bound(index)), Decimal(bound(index + 1)));
        writeln!(out, "Bucket ({lower}, {upper}], Count: {count}")?;
    }
    each(out, "Exemplars", "Exemplar", &data.exemplars, exemplar)
}

fn summary_point(out: &mut Text<'_>, data: &SummaryDataPoint) -> Result {
    let (start, time) = (data.start_time_unix_nano, data.time_unix_nano);
    point(out, &data.attributes, start, time)?;
    summary(out, data.count, Some(data.sum), None, None)?;
    for (at, one) in data.quantile_values.iter().enumerate() {
        let (quantile, value) = (Decimal(one.quantile), Decimal(one.value));
        writeln!(
            out,
            "QuantileValue #{at}: Quantile {quantile}, Value {value}"
        )?;
    }
    Ok(())
}

fn exemplar(out: &mut Text<'_>, data: &Exemplar) -> Result {
    writeln!(out, "     -> Trace ID: {}", Id(&data.trace_id))?;
    writeln!(out, "     -> Span ID: {}", Id(&data.span_id))?;
    writeln!(out, "     -> Timestamp: {}", Timestamp(data.time_unix_nano))?;
    match data.value {
        Some(exemplar::Value::AsInt(value)) => writeln!(out, "     -> Value: {value}")?,
        Some(exemplar::Value::AsDouble(value)) => {
            writeln!(out, "     -> Value: {}", Decimal(value))?;
        }
        None => {}
    }
    let title = "     -> FilteredAttributes";
    attributes(out, title, &data.filtered_attributes, Strings::default())
}
