use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message as _;

use super::*;
use crate::component::Host;
use tributary_otlp::{Decoded, Requests};

fn attribute(key: &str, value: &str) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue {
            value: Some(Value::StringValue(value.to_owned())),
        }),
        ..KeyValue::default()
    }
}

fn request(host: &str) -> Bytes {
    let span = Span {
        attributes: vec![attribute("host", host), attribute("k", "v")],
        ..Span::default()
    };
    let entry = ResourceSpans {
        resource: Some(Resource {
            attributes: vec![attribute("service.name", "shop")],
            ..Resource::default()
        }),
        scope_spans: vec![ScopeSpans {
            spans: vec![span],
            ..ScopeSpans::default()
        }],
        ..ResourceSpans::default()
    };
    let resource_spans = vec![entry];
    ExportTraceServiceRequest { resource_spans }
        .encode_to_vec()
        .into()
}

#[test]
fn requests_of_a_batch_share_resources() {
    let config: GroupByAttrsConfig = serde_yaml::from_str("keys: [host]").unwrap();
    let id = "groupbyattrs".parse().unwrap();
    let Ok(Stage::Pure(processor)) = config.build(&Host::for_tests().context(&id), Signal::Traces)
    else {
        unreachable!();
    };
    let requests: Requests = ["a", "b", "a"].map(request).into_iter().collect();
    let batch = Batch::new(Signal::Traces, 3, requests);
    let batch = processor.process(batch).unwrap().unwrap();
    assert_eq!(batch.items(), 3);
    let Decoded::Traces(after) = batch.decoded().unwrap() else {
        unreachable!();
    };
    let spans: Vec<usize> = after
        .resource_spans
        .iter()
        .map(|entry| entry.scope_spans[0].spans.len())
        .collect();
    assert_eq!(spans, [2, 1]);
    let resource = after.resource_spans[0].resource.as_ref().unwrap();
    let expected = [attribute("service.name", "shop"), attribute("host", "a")];
    assert_eq!(resource.attributes, expected);
    let span = &after.resource_spans[0].scope_spans[0].spans[0];
    assert_eq!(span.attributes, [attribute("k", "v")]);
}

#[test]
fn empty_and_repeated_keys_are_reported() {
    let config: GroupByAttrsConfig = serde_yaml::from_str("keys: [a, '', a]").unwrap();
    let mut problems = Problems::default();
    config.validate(&mut problems);
    let paths: Vec<String> = problems
        .found()
        .iter()
        .map(|found| found.path.join("."))
        .collect();
    assert_eq!(paths, ["keys.1", "keys.2"]);
}
