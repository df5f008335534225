//! Verbosity `normal`: one line per item.

use std::fmt::{Result, Write};

use opentelemetry_proto::tonic::common::v1::{InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::logs::v1::SeverityNumber;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{Metric, NumberDataPoint, number_data_point};
use opentelemetry_proto::tonic::profiles::v1development::ProfilesDictionary;
use opentelemetry_proto::tonic::resource::v1::Resource;

use super::chunks::Text;
use super::profiles;
use super::text::{Attribute, Hex, Nanos, Plain, Scope, Strings, Time, enum_name};
use tributary_otlp::Decoded;

pub(super) fn render(out: &mut Text<'_>, decoded: &Decoded) -> Result {
    match decoded {
        Decoded::Traces(request) => {
            for (at, resource) in request.resource_spans.iter().enumerate() {
                let head = Head("Spans", at, &resource.schema_url, Strings::default());
                head.resource(out, resource.resource.as_ref())?;
                for (at, scope) in resource.scope_spans.iter().enumerate() {
                    let head = Head("Spans", at, &scope.schema_url, Strings::default());
                    head.scope(out, scope.scope.as_ref())?;
                    for span in &scope.spans {
                        let duration = span
                            .end_time_unix_nano
                            .saturating_sub(span.start_time_unix_nano);
                        write!(
                            out,
                            "{} {} {} {}",
                            Plain(&span.name),
                            Hex(&span.trace_id),
                            Hex(&span.span_id),
                            Nanos(duration)
                        )?;
                        pairs(out, &Strings::default().attributes(&span.attributes))?;
                    }
                }
            }
        }
        Decoded::Metrics(request) => {
            for (at, resource) in request.resource_metrics.iter().enumerate() {
                let head = Head("Metrics", at, &resource.schema_url, Strings::default());
                head.resource(out, resource.resource.as_ref())?;
                for (at, scope) in resource.scope_metrics.iter().enumerate() {
                    let head = Head("Metrics", at, &scope.schema_url, Strings::default());
                    head.scope(out, scope.scope.as_ref())?;
                    for metric in &scope.metrics {
                        data_point_lines(out, metric)?;
                    }
                }
            }
        }
        Decoded::Logs(request) => {
            for (at, resource) in request.resource_logs.iter().enumerate() {
                let head = Head("Logs", at, &resource.schema_url, Strings::default());
                head.resource(out, resource.resource.as_ref())?;
                for (at, scope) in resource.scope_logs.iter().enumerate() {
                    let head = Head("Logs", at, &scope.schema_url, Strings::default());
                    head.scope(out, scope.scope.as_ref())?;
                    for record in &scope.log_records {
                        let severity = match record.severity_text.as_str() {
                            "" => severity(record.severity_number),
                            text => text.to_owned(),
                        };
                        let body = Strings::default().value(record.body.as_ref());
                        let line = format!("{} {body:#}", Plain(&severity));
                        out.write_str(line.trim_end())?;
                        pairs(out, &Strings::default().attributes(&record.attributes))?;
                    }
                }
            }
        }
        Decoded::Profiles(request) => {
            let empty = ProfilesDictionary::default();
            let dictionary = request.dictionary.as_ref().unwrap_or(&empty);
            let strings = Strings(&dictionary.string_table);
            for (at, resource) in request.resource_profiles.iter().enumerate() {
                let head = Head("Profiles", at, &resource.schema_url, strings);
                head.resource(out, resource.resource.as_ref())?;
                for (at, scope) in resource.scope_profiles.iter().enumerate() {
                    let head = Head("Profiles", at, &scope.schema_url, strings);
                    head.scope(out, scope.scope.as_ref())?;
                    for profile in &scope.profiles {
                        let sample_type = profile.sample_type.unwrap_or_default();
                        write!(
                            out,
                            "{} {}/{} samples={} start={} duration={}",
                            Hex(&profile.profile_id),
                            strings.get_or_empty(sample_type.type_strindex),
                            strings.get_or_empty(sample_type.unit_strindex),
                            profile.samples.len(),
                            Time(profile.time_unix_nano),
                            Nanos(profile.duration_nano),
                        )?;
                        pairs(
                            out,
                            &profiles::attributes(dictionary, &profile.attribute_indices),
                        )?;
                    }
                }
            }
        }
    }
    Ok(())
}

/// Returns the number of a data point, or an empty text.
pub(super) fn number(point: &NumberDataPoint) -> String {
    match point.value {
        Some(number_data_point::Value::AsInt(value)) => value.to_string(),
        Some(number_data_point::Value::AsDouble(value)) => value.to_string(),
        None => "no value".to_owned(),
    }
}

/// Returns OTLP's name of a severity: `Info`, `Error2`.
pub(super) fn severity(number: i32) -> String {
    let name = SeverityNumber::try_from(number).ok();
    enum_name(
        name.map(|name| name.as_str_name()),
        "SEVERITY_NUMBER_",
        number,
    )
}

/// Writes the first line of a resource or a scope: the kind of its content, its position, its
/// schema.
struct Head<'a>(&'static str, usize, &'a str, Strings<'a>);

impl Head<'_> {
    fn resource(&self, out: &mut Text<'_>, resource: Option<&Resource>) -> Result {
        let Head(kind, at, ..) = self;
        write!(out, "Resource{kind} #{at}")?;
        self.end(out, resource.map(|resource| resource.attributes.as_slice()))
    }

    fn scope(&self, out: &mut Text<'_>, scope: Option<&InstrumentationScope>) -> Result {
        let Head(kind, at, ..) = self;
        write!(out, "Scope{kind} #{at}")?;
        if let Some(scope) = scope.filter(|scope| !scope.name.is_empty()) {
            write!(out, " {}", Scope(scope))?;
        }
        self.end(out, scope.map(|scope| scope.attributes.as_slice()))
    }

    fn end(&self, out: &mut Text<'_>, attributes: Option<&[KeyValue]>) -> Result {
        let Head(_, _, schema_url, strings) = self;
        if !schema_url.is_empty() {
            write!(out, " [{}]", Plain(schema_url))?;
        }
        pairs(out, &strings.attributes(attributes.unwrap_or_default()))
    }
}

/// Returns the rest of a line: ` key=value key=value`.
fn pairs(out: &mut Text<'_>, attributes: &[Attribute<'_>]) -> Result {
    for attribute in attributes {
        write!(out, " {attribute:#}")?;
    }
    writeln!(out)
}

fn data_point_lines(out: &mut Text<'_>, metric: &Metric) -> Result {
    let mut line = |attributes: &[KeyValue], value: String| {
        let pairs: Vec<String> = Strings::default()
            .attributes(attributes)
            .iter()
            .map(|attribute| format!("{attribute:#}"))
            .collect();
        writeln!(
            out,
            "{}{{{}}} {value}",
            Plain(&metric.name),
            pairs.join(",")
        )
    };
    match &metric.data {
        Some(Data::Gauge(gauge)) => gauge
            .data_points
            .iter()
            .try_for_each(|point| line(&point.attributes, number(point))),
        Some(Data::Sum(sum)) => sum
            .data_points
            .iter()
            .try_for_each(|point| line(&point.attributes, number(point))),
        Some(Data::Histogram(histogram)) => histogram.data_points.iter().try_for_each(|point| {
            let mut value = summary(point.count, point.sum, point.min, point.max);
            for (at, count) in point.bucket_counts.iter().enumerate() {
                match point.explicit_bounds.get(at) {
                    Some(bound) => write!(value, " le{bound}={count}")?,
                    None => write!(value, " le+Inf={count}")?,
                }
            }
            line(&point.attributes, value)
        }),
        Some(Data::ExponentialHistogram(histogram)) => {
            histogram.data_points.iter().try_for_each(|point| {
                line(
                    &point.attributes,
                    summary(point.count, point.sum, point.min, point.max),
                )
            })
        }
        Some(Data::Summary(data)) => data.data_points.iter().try_for_each(|point| {
            let mut value = summary(point.count, Some(point.sum), None, None);
            for quantile in &point.quantile_values {
                write!(value, " q{}={}", quantile.quantile, quantile.value)?;
            }
            line(&point.attributes, value)
        }),
        None => line(&[], "no data".to_owned()),
    }
}

fn summary(count: u64, sum: Option<f64>, min: Option<f64>, max: Option<f64>) -> String {
    let mut text = format!("count={count}");
    for (name, value) in [("sum", sum), ("min", min), ("max", max)] {
        if let Some(value) = value {
            text.push_str(&format!(" {name}={value}"));
        }
    }
    text
}
