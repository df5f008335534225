//! Requests of all four signals. Each item has a unique number in two places; two different numbers
//! in one item are a defect.

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::metrics::v1::{
    Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum,
};
use opentelemetry_proto::tonic::profiles::v1development::{
    Function, KeyValueAndUnit, Line, Location, Profile, ProfilesDictionary, ResourceProfiles,
    Sample, ScopeProfiles, Stack, ValueType,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;
use tributary_otlp::Signal;

/// Attribute with an item's number.
pub const ID: &str = "test.id";

/// A decoded request.
#[derive(Debug, Clone)]
pub enum Telemetry {
    Traces(ExportTraceServiceRequest),
    Metrics(ExportMetricsServiceRequest),
    Logs(ExportLogsServiceRequest),
    Profiles(ExportProfilesServiceRequest),
}

impl Telemetry {
    /// Returns a request with an item for each number, with this time and bytes of ballast per
    /// item.
    pub fn of(signal: Signal, service: &str, numbers: &[u64], now: u64, ballast: usize) -> Self {
        let resource = Some(Resource {
            attributes: vec![text("service.name", service)],
            ..Resource::default()
        });
        let scope = Some(InstrumentationScope {
            name: "chaos".to_owned(),
            ..InstrumentationScope::default()
        });
        let attributes = |number: &u64| {
            let filler: String = std::iter::repeat_with(fastrand::lowercase)
                .take(ballast)
                .collect();
            vec![text(ID, &number.to_string()), text("filler", &filler)]
        };
        match signal {
            Signal::Traces => {
                let span = |number: &u64| Span {
                    trace_id: [number.to_be_bytes(), number.to_le_bytes()].concat(),
                    span_id: number.to_be_bytes().to_vec(),
                    name: "work".to_owned(),
                    start_time_unix_nano: now,
                    end_time_unix_nano: now + number,
                    attributes: attributes(number),
                    ..Span::default()
                };
                Telemetry::Traces(ExportTraceServiceRequest {
                    resource_spans: vec![ResourceSpans {
                        resource,
                        scope_spans: vec![ScopeSpans {
                            scope,
                            spans: numbers.iter().map(span).collect(),
                            schema_url: String::new(),
                        }],
                        schema_url: String::new(),
                    }],
                })
            }
            Signal::Metrics => {
                // The number is the value: as an attribute it would make a series of each item.
                let point = |number: &u64| NumberDataPoint {
                    attributes: vec![text("shard", &(number % 10).to_string())],
                    start_time_unix_nano: *number,
                    time_unix_nano: now,
                    value: Some(Number::AsInt(number.cast_signed())),
                    ..NumberDataPoint::default()
                };
                let metric = Metric {
                    name: "work.done".to_owned(),
                    data: Some(Data::Sum(Sum {
                        data_points: numbers.iter().map(point).collect(),
                        aggregation_temporality: 2,
                        is_monotonic: true,
                    })),
                    ..Metric::default()
                };
                Telemetry::Metrics(ExportMetricsServiceRequest {
                    resource_metrics: vec![ResourceMetrics {
                        resource,
                        scope_metrics: vec![ScopeMetrics {
                            scope,
                            metrics: vec![metric],
                            schema_url: String::new(),
                        }],
                        schema_url: String::new(),
                    }],
                })
            }
            Signal::Logs => {
                let record = |number: &u64| LogRecord {
                    time_unix_nano: now,
                    body: text("", &format!("item {number}")).value,
                    attributes: attributes(number),
                    ..LogRecord::default()
                };
                Telemetry::Logs(ExportLogsServiceRequest {
                    resource_logs: vec![ResourceLogs {
                        resource,
                        scope_logs: vec![ScopeLogs {
                            scope,
                            log_records: numbers.iter().map(record).collect(),
                            schema_url: String::new(),
                        }],
                        schema_url: String::new(),
                    }],
                })
            }
            Signal::Profiles => {
                let (profiles, dictionary) = profiles(numbers, now);
                Telemetry::Profiles(ExportProfilesServiceRequest {
                    resource_profiles: vec![ResourceProfiles {
                        resource,
                        scope_profiles: vec![ScopeProfiles {
                            scope,
                            profiles,
                            schema_url: String::new(),
                        }],
                        schema_url: String::new(),
                    }],
                    dictionary: Some(dictionary),
                })
            }
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        match self {
            Telemetry::Traces(request) => request.encode_to_vec(),
            Telemetry::Metrics(request) => request.encode_to_vec(),
            Telemetry::Logs(request) => request.encode_to_vec(),
            Telemetry::Profiles(request) => request.encode_to_vec(),
        }
    }

    pub fn decode(signal: Signal, bytes: &[u8]) -> Result<Self, prost::DecodeError> {
        Ok(match signal {
            Signal::Traces => Telemetry::Traces(Message::decode(bytes)?),
            Signal::Metrics => Telemetry::Metrics(Message::decode(bytes)?),
            Signal::Logs => Telemetry::Logs(Message::decode(bytes)?),
            Signal::Profiles => Telemetry::Profiles(Message::decode(bytes)?),
        })
    }

    /// Returns the number of each item, or a description of an item that was changed.
    pub fn numbers(&self) -> Result<Vec<u64>, String> {
        match self {
            Telemetry::Traces(request) => request
                .resource_spans
                .iter()
                .flat_map(|resource| &resource.scope_spans)
                .flat_map(|scope| &scope.spans)
                .map(|span| agree(number(&span.span_id), written(&span.attributes), span))
                .collect(),
            Telemetry::Metrics(request) => request
                .resource_metrics
                .iter()
                .flat_map(|resource| &resource.scope_metrics)
                .flat_map(|scope| &scope.metrics)
                .flat_map(|metric| match &metric.data {
                    Some(Data::Sum(sum)) => sum.data_points.as_slice(),
                    _ => &[],
                })
                .map(|point| match point.value {
                    Some(Number::AsInt(value)) => agree(
                        u64::try_from(value).ok(),
                        Some(point.start_time_unix_nano),
                        point,
                    ),
                    _ => agree(None, None, point),
                })
                .collect(),
            Telemetry::Logs(request) => request
                .resource_logs
                .iter()
                .flat_map(|resource| &resource.scope_logs)
                .flat_map(|scope| &scope.log_records)
                .map(|record| {
                    let body = match record.body.as_ref().and_then(|body| body.value.as_ref()) {
                        Some(Value::StringValue(body)) => body.strip_prefix("item "),
                        _ => None,
                    };
                    let body = body.and_then(|body| body.parse().ok());
                    agree(body, written(&record.attributes), record)
                })
                .collect(),
            Telemetry::Profiles(request) => {
                let dictionary = request.dictionary.clone().unwrap_or_default();
                request
                    .resource_profiles
                    .iter()
                    .flat_map(|resource| &resource.scope_profiles)
                    .flat_map(|scope| &scope.profiles)
                    .map(|profile| {
                        let sent = profile.profile_id.strip_prefix(SENT.as_slice());
                        let other = match sent {
                            Some(id) => number(id),
                            None => scraped(profile),
                        };
                        agree(other, in_sample(profile, &dictionary), profile)
                    })
                    .collect()
            }
        }
    }
}

fn agree(one: Option<u64>, other: Option<u64>, item: &dyn std::fmt::Debug) -> Result<u64, String> {
    match (one, other) {
        (Some(one), Some(other)) if one == other => Ok(one),
        _ => Err(format!(
            "an item is not as it was made ({one:?}, {other:?}): {item:?}"
        )),
    }
}

fn number(id: &(impl AsRef<[u8]> + ?Sized)) -> Option<u64> {
    Some(u64::from_be_bytes(id.as_ref().try_into().ok()?))
}

fn written(attributes: &[KeyValue]) -> Option<u64> {
    let found = attributes.iter().find(|attribute| attribute.key == ID)?;
    parse(found.value.as_ref())
}

fn parse(value: Option<&AnyValue>) -> Option<u64> {
    match value?.value.as_ref()? {
        Value::StringValue(text) => text.parse().ok(),
        _ => None,
    }
}

fn text(key: &str, value: &str) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue {
            value: Some(Value::StringValue(value.to_owned())),
        }),
        ..KeyValue::default()
    }
}

/// Prefix of the ids of profiles that clients send. Scraped profiles get other ids.
const SENT: [u8; 8] = [7; 8];

/// Returns the number of a scraped profile.
fn scraped(profile: &Profile) -> Option<u64> {
    let [sample] = profile.samples.as_slice() else {
        return None;
    };
    let [value] = sample.values.as_slice() else {
        return None;
    };
    u64::try_from(*value).ok()
}

/// Returns profiles of one sample each, with shared stacks.
fn profiles(numbers: &[u64], now: u64) -> (Vec<Profile>, ProfilesDictionary) {
    // Strings before the names of functions.
    const FIXED: [&str; 4] = ["", ID, "samples", "count"];
    const FUNCTIONS: i32 = 8;
    let names = (1..=FUNCTIONS).map(|function| format!("function_{function}"));
    let function = |at: i32| Function {
        name_strindex: at + 3,
        ..Function::default()
    };
    let location = |at: i32| Location {
        lines: vec![Line {
            function_index: at,
            line: i64::from(at),
            column: 0,
        }],
        ..Location::default()
    };
    let stack = |at: i32| Stack {
        location_indices: (at..=FUNCTIONS).collect(),
    };
    let mut dictionary = ProfilesDictionary {
        mapping_table: vec![Default::default()],
        location_table: vec![Location::default()],
        function_table: vec![Function::default()],
        link_table: vec![Default::default()],
        stack_table: vec![Stack::default()],
        string_table: FIXED.map(str::to_owned).into_iter().chain(names).collect(),
        attribute_table: vec![KeyValueAndUnit::default()],
    };
    dictionary
        .location_table
        .extend((1..=FUNCTIONS).map(location));
    dictionary
        .function_table
        .extend((1..=FUNCTIONS).map(function));
    dictionary.stack_table.extend((1..=FUNCTIONS).map(stack));
    let mut profiles = Vec::new();
    for number in numbers {
        let attribute = i32::try_from(dictionary.attribute_table.len()).unwrap_or_default();
        dictionary.attribute_table.push(KeyValueAndUnit {
            key_strindex: 1,
            value: text("", &number.to_string()).value,
            unit_strindex: 0,
        });
        profiles.push(Profile {
            sample_type: Some(ValueType {
                type_strindex: 2,
                unit_strindex: 3,
            }),
            samples: vec![Sample {
                stack_index: 1 + i32::try_from(number % 8).unwrap_or_default(),
                attribute_indices: vec![attribute],
                values: vec![1],
                ..Sample::default()
            }],
            time_unix_nano: now,
            profile_id: [SENT, number.to_be_bytes()].concat(),
            ..Profile::default()
        });
    }
    (profiles, dictionary)
}

fn in_sample(profile: &Profile, dictionary: &ProfilesDictionary) -> Option<u64> {
    let [sample] = profile.samples.as_slice() else {
        return None;
    };
    let entry = |index: &i32| {
        dictionary
            .attribute_table
            .get(usize::try_from(*index).ok()?)
    };
    let is_id = |found: &&KeyValueAndUnit| {
        let key = usize::try_from(found.key_strindex).unwrap_or(usize::MAX);
        dictionary
            .string_table
            .get(key)
            .is_some_and(|key| key == ID)
    };
    let found = sample
        .attribute_indices
        .iter()
        .filter_map(entry)
        .find(is_id)?;
    parse(found.value.as_ref())
}
