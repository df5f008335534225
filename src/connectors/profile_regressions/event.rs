//! Findings as OTLP log records.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs, SeverityNumber};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;

use super::compare::Part;
use super::finding::{Comparison, Finding, SeriesKey, Side};

const SCOPE_NAME: &str = "tributary/connector/profile_regressions";

const SERVICE_NAME: &str = "service.name";

impl Finding {
    /// Whether the share has grown.
    pub(super) fn is_regression(&self) -> bool {
        self.change.after > self.change.before
    }

    /// Returns the kind of finding: the label `kind`, and the end of the event's name.
    pub(super) fn kind(&self) -> &'static str {
        match self.is_regression() {
            true => "regression",
            false => "improvement",
        }
    }
}

/// Encodes findings as a request of logs with a record for each. `time` is in nanoseconds since
/// 1970; `console` is the address of the console, or empty.
pub(super) fn request(findings: &[Finding], time: u64, console: &str) -> Vec<u8> {
    let mut services: BTreeMap<&str, Vec<LogRecord>> = BTreeMap::new();
    for finding in findings {
        let records = services.entry(&finding.series.service).or_default();
        records.push(record(finding, time, console));
    }
    let resources = services.into_iter().map(|(service, records)| ResourceLogs {
        resource: Some(Resource {
            attributes: vec![text(SERVICE_NAME, service)],
            ..Resource::default()
        }),
        scope_logs: vec![ScopeLogs {
            scope: Some(InstrumentationScope {
                name: SCOPE_NAME.to_owned(),
                ..InstrumentationScope::default()
            }),
            log_records: records,
            ..ScopeLogs::default()
        }],
        ..ResourceLogs::default()
    });
    ExportLogsServiceRequest {
        resource_logs: resources.collect(),
    }
    .encode_to_vec()
}

fn record(finding: &Finding, time: u64, console: &str) -> LogRecord {
    let Finding {
        series,
        comparison,
        before,
        after,
        change,
    } = finding;
    let part = part_name(change.part);
    let mut attributes = vec![
        text(SERVICE_NAME, &series.service),
        text("service.version.before", &before.version),
        text("service.version", &after.version),
        text("code.function.name", &change.function),
        text("profile.sample_type", &series.sample_type),
        text("profile.kind", part),
        text("profile.comparison", comparison.name()),
        number("profile.share.before", change.before),
        number("profile.share.after", change.after),
        number("profile.p_value", change.p_value),
        text("profile.query.before", &query(series, before)),
        text("profile.query", &query(series, after)),
        whole("profile.from.before", before.from),
        whole("profile.until.before", before.until),
        whole("profile.from", after.from),
        whole("profile.until", after.until),
    ];
    // A version is not known if the resource has none.
    attributes
        .retain(|attribute| !attribute.key.starts_with("service.version") || !is_empty(attribute));
    if change.relative().is_finite() {
        attributes.push(number("profile.change", change.relative()));
    }
    if !console.is_empty() {
        attributes.push(text("url.full", &link(console, finding)));
    }
    let severity = match finding.is_regression() {
        true => SeverityNumber::Warn,
        false => SeverityNumber::Info,
    };
    LogRecord {
        time_unix_nano: time,
        observed_time_unix_nano: time,
        severity_number: severity.into(),
        severity_text: if finding.is_regression() {
            "WARN"
        } else {
            "INFO"
        }
        .to_owned(),
        body: Some(value(Value::StringValue(sentence(finding)))),
        attributes,
        event_name: format!("profile.{}", finding.kind()),
        ..LogRecord::default()
    }
}

impl Comparison {
    fn name(self) -> &'static str {
        match self {
            Comparison::PreviousVersion => "previous_version",
            Comparison::DayBefore => "day_before",
        }
    }
}

fn part_name(part: Part) -> &'static str {
    match part {
        Part::Own => "self",
        Part::Total => "total",
    }
}

fn sentence(finding: &Finding) -> String {
    let Finding {
        series,
        comparison,
        before,
        after,
        change,
    } = finding;
    let since = match comparison {
        Comparison::PreviousVersion => {
            format!("from version `{}` to `{}`", before.version, after.version)
        }
        Comparison::DayBefore => "since the same hour of the day before".to_owned(),
    };
    let relative = match change.relative() {
        relative if relative.is_finite() => format!("{:+.1} %", 100.0 * relative),
        _ => "new".to_owned(),
    };
    format!(
        "The {} share of function `{}` in the {} profiles of `{}` {} {since}: {:.2} % to {:.2} % of the total ({relative}).",
        part_name(change.part),
        change.function,
        series.sample_type,
        series.service,
        if finding.is_regression() {
            "rose"
        } else {
            "fell"
        },
        100.0 * change.before,
        100.0 * change.after,
    )
}

/// Returns the selector of a side's profiles without their type.
fn selector(series: &SeriesKey, side: &Side) -> String {
    let mut selector = format!("service_name=\"{}\"", escaped(&series.service));
    if !side.version.is_empty() {
        let _ = write!(selector, ", service_version=\"{}\"", escaped(&side.version));
    }
    selector
}

/// Returns the query of a side's profiles in the profile store.
fn query(series: &SeriesKey, side: &Side) -> String {
    let profile_type = escaped(&series.profile_type);
    let selector = selector(series, side);
    format!("{{{selector}, __profile_type__=\"{profile_type}\"}}")
}

fn escaped(value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"");
    value.replace('\n', "\\n").replace('\r', "\\r")
}

/// Returns the link to the console's page of profiles, with both sides and the function.
fn link(console: &str, finding: &Finding) -> String {
    let Finding {
        series,
        before,
        after,
        change,
        ..
    } = finding;
    let side = |side| format!("{{{}}}", selector(series, side));
    let parameters = [
        ("type", series.profile_type.clone()),
        ("query", side(after)),
        ("from", after.from.to_string()),
        ("until", after.until.to_string()),
        ("compare", "diff".to_owned()),
        ("bquery", side(before)),
        ("bfrom", before.from.to_string()),
        ("buntil", before.until.to_string()),
        ("find", format!("^{}$", regex::escape(&change.function))),
        ("fn", change.function.to_string()),
    ];
    let mut link = format!("{}/#profiles?", console.trim_end_matches('/'));
    for (at, (name, value)) in parameters.iter().enumerate() {
        let separator = if at == 0 { "" } else { "&" };
        let _ = write!(link, "{separator}{name}=");
        percent_encode(value, &mut link);
    }
    link
}

/// Appends a value with all characters encoded but the unreserved ones of RFC 3986.
fn percent_encode(value: &str, into: &mut String) {
    for byte in value.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                into.push(byte.into());
            }
            _ => {
                let _ = write!(into, "%{byte:02X}");
            }
        }
    }
}

fn is_empty(attribute: &KeyValue) -> bool {
    let value = attribute.value.as_ref().and_then(|any| any.value.as_ref());
    matches!(value, Some(Value::StringValue(text)) if text.is_empty())
}

fn text(key: &str, text: &str) -> KeyValue {
    attribute(key, Value::StringValue(text.to_owned()))
}

fn number(key: &str, number: f64) -> KeyValue {
    attribute(key, Value::DoubleValue(number))
}

fn whole(key: &str, number: u64) -> KeyValue {
    attribute(key, Value::IntValue(number.try_into().unwrap_or(i64::MAX)))
}

fn attribute(key: &str, of: Value) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(value(of)),
        key_strindex: 0,
    }
}

fn value(value: Value) -> AnyValue {
    AnyValue { value: Some(value) }
}
