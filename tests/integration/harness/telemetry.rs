//! Requests of all four signals whose items have unique ids, as an attribute.

mod every_field;

use std::collections::BTreeSet;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point;
use opentelemetry_proto::tonic::metrics::v1::{
    Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics,
};
use opentelemetry_proto::tonic::profiles::v1development::{
    KeyValueAndUnit, Profile, ProfilesDictionary, ResourceProfiles, Sample, ScopeProfiles, Stack,
    ValueType,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::{DecodeError, Message};

use super::Signal;

/// The attribute that identifies an item.
pub const ID: &str = "test.id";

/// A request, decoded.
#[derive(Debug, Clone, PartialEq)]
pub enum Telemetry {
    Traces(ExportTraceServiceRequest),
    Metrics(ExportMetricsServiceRequest),
    Logs(ExportLogsServiceRequest),
    Profiles(ExportProfilesServiceRequest),
}

impl Telemetry {
    /// A request with one plain item per id.
    pub fn of(signal: Signal, ids: &[String]) -> Self {
        let resource = Some(Resource {
            attributes: vec![text("service.name", "integration")],
            ..Resource::default()
        });
        let scope = Some(InstrumentationScope {
            name: "test".to_owned(),
            ..InstrumentationScope::default()
        });
        match signal {
            Signal::Traces => {
                let span = |id: &String| Span {
                    trace_id: vec![1; 16],
                    span_id: vec![2; 8],
                    name: "span".to_owned(),
                    start_time_unix_nano: 1_700_000_000_000_000_000,
                    end_time_unix_nano: 1_700_000_000_000_000_001,
                    attributes: vec![text(ID, id), text("http.request.method", "GET")],
                    ..Span::default()
                };
                let scope_spans = vec![ScopeSpans {
                    scope,
                    spans: ids.iter().map(span).collect(),
                    schema_url: String::new(),
                }];
                let resource_spans = vec![ResourceSpans {
                    resource,
                    scope_spans,
                    schema_url: String::new(),
                }];
                Telemetry::Traces(ExportTraceServiceRequest { resource_spans })
            }
            Signal::Metrics => {
                let point = |id: &String| NumberDataPoint {
                    attributes: vec![text(ID, id)],
                    time_unix_nano: 1_700_000_000_000_000_000,
                    value: Some(number_data_point::Value::AsInt(42)),
                    ..NumberDataPoint::default()
                };
                let metric = Metric {
                    name: "queue.depth".to_owned(),
                    data: Some(Data::Gauge(Gauge {
                        data_points: ids.iter().map(point).collect(),
                    })),
                    ..Metric::default()
                };
                let scope_metrics = vec![ScopeMetrics {
                    scope,
                    metrics: vec![metric],
                    schema_url: String::new(),
                }];
                let resource_metrics = vec![ResourceMetrics {
                    resource,
                    scope_metrics,
                    schema_url: String::new(),
                }];
                Telemetry::Metrics(ExportMetricsServiceRequest { resource_metrics })
            }
            Signal::Logs => {
                let record = |id: &String| LogRecord {
                    time_unix_nano: 1_700_000_000_000_000_000,
                    body: Some(AnyValue {
                        value: Some(Value::StringValue("something happened".to_owned())),
                    }),
                    attributes: vec![text(ID, id)],
                    ..LogRecord::default()
                };
                let scope_logs = vec![ScopeLogs {
                    scope,
                    log_records: ids.iter().map(record).collect(),
                    schema_url: String::new(),
                }];
                let resource_logs = vec![ResourceLogs {
                    resource,
                    scope_logs,
                    schema_url: String::new(),
                }];
                Telemetry::Logs(ExportLogsServiceRequest { resource_logs })
            }
            Signal::Profiles => {
                let (attribute_table, samples) = numbered_samples(ids);
                let profile = Profile {
                    sample_type: Some(ValueType {
                        type_strindex: 2,
                        unit_strindex: 3,
                    }),
                    samples,
                    time_unix_nano: 1_700_000_000_000_000_000,
                    ..Profile::default()
                };
                let scope_profiles = vec![ScopeProfiles {
                    scope,
                    profiles: vec![profile],
                    schema_url: String::new(),
                }];
                let resource_profiles = vec![ResourceProfiles {
                    resource,
                    scope_profiles,
                    schema_url: String::new(),
                }];
                let dictionary = Some(ProfilesDictionary {
                    mapping_table: vec![Default::default()],
                    location_table: vec![Default::default()],
                    function_table: vec![Default::default()],
                    link_table: vec![Default::default()],
                    stack_table: vec![Stack::default()],
                    string_table: ["", ID, "samples", "count"].map(str::to_owned).to_vec(),
                    attribute_table,
                });
                Telemetry::Profiles(ExportProfilesServiceRequest {
                    resource_profiles,
                    dictionary,
                })
            }
        }
    }

    pub fn signal(&self) -> Signal {
        match self {
            Telemetry::Traces(_) => Signal::Traces,
            Telemetry::Metrics(_) => Signal::Metrics,
            Telemetry::Logs(_) => Signal::Logs,
            Telemetry::Profiles(_) => Signal::Profiles,
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

    pub fn decode(signal: Signal, bytes: &[u8]) -> Result<Self, DecodeError> {
        Ok(match signal {
            Signal::Traces => Telemetry::Traces(Message::decode(bytes)?),
            Signal::Metrics => Telemetry::Metrics(Message::decode(bytes)?),
            Signal::Logs => Telemetry::Logs(Message::decode(bytes)?),
            Signal::Profiles => Telemetry::Profiles(Message::decode(bytes)?),
        })
    }

    /// The id of each item. Items of SDKs and profilers have no id.
    pub fn ids(&self) -> Vec<String> {
        match self {
            Telemetry::Traces(request) => request
                .resource_spans
                .iter()
                .flat_map(|resource| &resource.scope_spans)
                .flat_map(|scope| &scope.spans)
                .filter_map(|span| id(&span.attributes))
                .collect(),
            Telemetry::Metrics(request) => request
                .resource_metrics
                .iter()
                .flat_map(|resource| &resource.scope_metrics)
                .flat_map(|scope| &scope.metrics)
                .flat_map(point_ids)
                .collect(),
            Telemetry::Logs(request) => request
                .resource_logs
                .iter()
                .flat_map(|resource| &resource.scope_logs)
                .flat_map(|scope| &scope.log_records)
                .filter_map(|record| id(&record.attributes))
                .collect(),
            Telemetry::Profiles(request) => {
                let dictionary = request.dictionary.clone().unwrap_or_default();
                request
                    .resource_profiles
                    .iter()
                    .flat_map(|resource| &resource.scope_profiles)
                    .flat_map(|scope| &scope.profiles)
                    .flat_map(|profile| &profile.samples)
                    .filter_map(|sample| sample_id(sample, &dictionary))
                    .collect()
            }
        }
    }

    /// Splits the request into requests of one resource each, without an order: this content survives batching.
    pub fn resources(&self) -> BTreeSet<Vec<u8>> {
        match self {
            Telemetry::Traces(request) => request
                .resource_spans
                .iter()
                .map(Message::encode_to_vec)
                .collect(),
            Telemetry::Metrics(request) => request
                .resource_metrics
                .iter()
                .map(Message::encode_to_vec)
                .collect(),
            Telemetry::Logs(request) => request
                .resource_logs
                .iter()
                .map(Message::encode_to_vec)
                .collect(),
            // Profiles share a dictionary.
            Telemetry::Profiles(request) => BTreeSet::from([request.encode_to_vec()]),
        }
    }
}

/// A text attribute.
pub fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, Value::StringValue(value.to_owned()))
}

/// An attribute of any kind.
pub fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}

/// A table of attributes, with the zero value first, and a sample for each other attribute. The key is the string 1.
fn numbered_samples(ids: &[String]) -> (Vec<KeyValueAndUnit>, Vec<Sample>) {
    let mut table = vec![KeyValueAndUnit::default()];
    let mut samples = Vec::new();
    for id in ids {
        samples.push(Sample {
            attribute_indices: vec![table.len().try_into().unwrap()],
            values: vec![1],
            ..Sample::default()
        });
        table.push(KeyValueAndUnit {
            key_strindex: 1,
            value: text(ID, id).value,
            unit_strindex: 0,
        });
    }
    (table, samples)
}

fn id(attributes: &[KeyValue]) -> Option<String> {
    let found = attributes.iter().find(|attribute| attribute.key == ID)?;
    match found.value.clone()?.value? {
        Value::StringValue(id) => Some(id),
        other => panic!("{ID} is no text: {other:?}"),
    }
}

fn point_ids(metric: &Metric) -> Vec<String> {
    macro_rules! ids {
        ($of:expr) => {
            $of.data_points
                .iter()
                .filter_map(|point| id(&point.attributes))
                .collect()
        };
    }
    match metric.data.as_ref().unwrap() {
        Data::Gauge(data) => ids!(data),
        Data::Sum(data) => ids!(data),
        Data::Histogram(data) => ids!(data),
        Data::ExponentialHistogram(data) => ids!(data),
        Data::Summary(data) => ids!(data),
    }
}

fn sample_id(sample: &Sample, dictionary: &ProfilesDictionary) -> Option<String> {
    let at = |index: &i32| usize::try_from(*index).unwrap();
    let attributes = sample
        .attribute_indices
        .iter()
        .map(|index| &dictionary.attribute_table[at(index)]);
    for attribute in attributes {
        if dictionary.string_table[at(&attribute.key_strindex)] == ID {
            let value = attribute.value.clone().unwrap().value;
            let Some(Value::StringValue(id)) = value else {
                panic!("{ID} is no text: {value:?}");
            };
            return Some(id);
        }
    }
    None
}
