use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{
    Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;

use super::*;
use crate::room::Unbounded;

type Pairs<'a> = &'a [(&'a str, &'a str)];

fn attributes(pairs: Pairs<'_>) -> Vec<KeyValue> {
    let attribute = |(key, value): &(&str, &str)| KeyValue {
        key: (*key).to_owned(),
        value: Some(AnyValue {
            value: Some(Value::StringValue((*value).to_owned())),
        }),
        ..KeyValue::default()
    };
    pairs.iter().map(attribute).collect()
}

fn entry(resource: Pairs<'_>, scopes: &[(&str, &[Pairs<'_>])]) -> ResourceLogs {
    let records = |records: &[Pairs<'_>]| {
        let record = |pairs: &Pairs<'_>| LogRecord {
            attributes: attributes(pairs),
            ..LogRecord::default()
        };
        records.iter().map(record).collect()
    };
    let scopes = scopes.iter().map(|(name, items)| ScopeLogs {
        scope: Some(InstrumentationScope {
            name: (*name).to_owned(),
            ..InstrumentationScope::default()
        }),
        log_records: records(items),
        ..ScopeLogs::default()
    });
    ResourceLogs {
        resource: Some(Resource {
            attributes: attributes(resource),
            ..Resource::default()
        }),
        scope_logs: scopes.collect(),
        ..ResourceLogs::default()
    }
}

fn encode(entries: &[ResourceLogs]) -> Vec<u8> {
    let resource_logs = entries.to_vec();
    ExportLogsServiceRequest { resource_logs }.encode_to_vec()
}

fn regrouped(keys: &[&str], request: &[u8]) -> (Vec<ResourceLogs>, Regrouped) {
    let keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
    let regrouped = regroup(Signal::Logs, request, &keys, &Unbounded).unwrap();
    assert!(crate::validate(Signal::Logs, &regrouped.request).is_ok());
    let decoded = ExportLogsServiceRequest::decode(&*regrouped.request).unwrap();
    (decoded.resource_logs, regrouped)
}

#[test]
fn items_get_a_resource_with_their_attributes() {
    let before = [entry(
        &[("service", "shop"), ("host", "old")],
        &[
            (
                "x",
                &[
                    &[("host", "a"), ("k", "1")],
                    &[("k", "2")],
                    &[("host", "b")],
                ],
            ),
            ("y", &[&[("host", "a")]]),
        ],
    )];
    let (after, counts) = regrouped(&["host", "zone"], &encode(&before));
    assert_eq!(
        after,
        [
            entry(
                &[("service", "shop"), ("host", "a")],
                &[("x", &[&[("k", "1")]]), ("y", &[&[]])]
            ),
            entry(
                &[("service", "shop"), ("host", "old")],
                &[("x", &[&[("k", "2")]])]
            ),
            entry(&[("service", "shop"), ("host", "b")], &[("x", &[&[]])]),
        ]
    );
    assert_eq!(
        (counts.resources, counts.grouped, counts.ungrouped),
        (3, 3, 1)
    );
}

#[test]
fn equal_resources_and_scopes_become_one_without_keys() {
    let before = [
        entry(
            &[("a", "1"), ("b", "2")],
            &[("x", &[&[("n", "1")]]), ("y", &[&[("n", "2")]])],
        ),
        entry(&[("a", "2")], &[("x", &[&[("n", "3")]])]),
        entry(
            &[("b", "2"), ("a", "1")],
            &[("x", &[&[("n", "4")]]), ("z", &[])],
        ),
    ];
    let (after, counts) = regrouped(&[], &encode(&before));
    assert_eq!(
        after,
        [
            entry(
                &[("a", "1"), ("b", "2")],
                &[
                    ("x", &[&[("n", "1")], &[("n", "4")]]),
                    ("y", &[&[("n", "2")]])
                ]
            ),
            entry(&[("a", "2")], &[("x", &[&[("n", "3")]])]),
        ]
    );
    assert_eq!((counts.grouped, counts.ungrouped), (0, 4));
}

#[test]
fn schema_urls_keep_resources_apart() {
    let mut other = entry(&[("a", "1")], &[("x", &[&[]])]);
    other.schema_url = "https://opentelemetry.io/schemas/1.43.0".to_owned();
    let before = [entry(&[("a", "1")], &[("x", &[&[]])]), other];
    let (after, _) = regrouped(&[], &encode(&before));
    assert_eq!(after, before);
}

#[test]
fn missing_resource_is_created_for_attributes_only() {
    let mut before = entry(&[], &[("x", &[&[("k", "1")], &[]])]);
    before.resource = None;
    let (after, _) = regrouped(&["k"], &encode(std::slice::from_ref(&before)));
    before.scope_logs[0].log_records.pop();
    assert_eq!(after[0], entry(&[("k", "1")], &[("x", &[&[]])]));
    assert_eq!(after[1].resource, None);
}

#[test]
fn split_resource_is_merged_before_it_is_compared() {
    let encoded = |pairs: Pairs<'_>| {
        let attributes = attributes(pairs);
        let resource = Resource {
            attributes,
            ..Resource::default()
        };
        let mut field = Vec::new();
        crate::edit::put_delimited(1, &resource.encode_to_vec(), &mut field);
        field
    };
    let scopes = entry(&[], &[("x", &[&[]])]).scope_logs;
    let body = ResourceLogs {
        scope_logs: scopes,
        ..ResourceLogs::default()
    };
    let body = [
        encoded(&[("a", "1")]),
        encoded(&[("b", "2")]),
        body.encode_to_vec(),
    ]
    .concat();
    let mut request = Vec::new();
    crate::edit::put_delimited(1, &body, &mut request);
    let (after, _) = regrouped(&[], &request);
    assert_eq!(after, [entry(&[("a", "1"), ("b", "2")], &[("x", &[&[]])])]);
}

/// Name and temporality of a sum, and the attributes of its points.
type NamedSum<'a> = (&'a str, i32, &'a [Pairs<'a>]);

fn metrics(entries: &[(Pairs<'_>, &[NamedSum<'_>])]) -> ExportMetricsServiceRequest {
    let metric = |(name, temporality, points): &(&str, i32, &[Pairs<'_>])| Metric {
        name: (*name).to_owned(),
        data: Some(Data::Sum(Sum {
            aggregation_temporality: *temporality,
            is_monotonic: true,
            data_points: points
                .iter()
                .map(|pairs| NumberDataPoint {
                    attributes: attributes(pairs),
                    time_unix_nano: 7,
                    ..NumberDataPoint::default()
                })
                .collect(),
        })),
        ..Metric::default()
    };
    let entries = entries.iter().map(|(resource, all)| ResourceMetrics {
        resource: Some(Resource {
            attributes: attributes(resource),
            ..Resource::default()
        }),
        scope_metrics: vec![ScopeMetrics {
            metrics: all.iter().map(metric).collect(),
            ..ScopeMetrics::default()
        }],
        ..ResourceMetrics::default()
    });
    ExportMetricsServiceRequest {
        resource_metrics: entries.collect(),
    }
}

#[test]
fn data_points_keep_the_properties_of_their_metric() {
    let before = metrics(&[
        (
            &[("service", "shop")],
            &[
                ("m", 2, &[&[("host", "a")], &[("host", "b"), ("k", "1")]]),
                ("m", 1, &[&[("host", "a")]]),
            ],
        ),
        (
            &[("host", "a"), ("service", "shop")],
            &[("m", 2, &[&[("k", "2")]])],
        ),
    ]);
    let keys = ["host".to_owned()];
    let request = before.encode_to_vec();
    let regrouped = regroup(Signal::Metrics, &request, &keys, &Unbounded).unwrap();
    let after = ExportMetricsServiceRequest::decode(&*regrouped.request).unwrap();
    let expected = metrics(&[
        (
            &[("service", "shop"), ("host", "a")],
            &[("m", 2, &[&[], &[("k", "2")]]), ("m", 1, &[&[]])],
        ),
        (
            &[("service", "shop"), ("host", "b")],
            &[("m", 2, &[&[("k", "1")]])],
        ),
    ]);
    assert_eq!(after, expected);
    assert_eq!((regrouped.grouped, regrouped.ungrouped), (3, 1));
}

#[test]
fn repeated_headers_need_room() {
    struct Bounded(std::cell::Cell<usize>);
    impl Room for Bounded {
        fn take(&self, bytes: usize) -> Result<(), RoomExhausted> {
            self.0
                .set(self.0.get().checked_sub(bytes).ok_or(RoomExhausted)?);
            Ok(())
        }
        fn release(&self, bytes: usize) {
            self.0.set(self.0.get() + bytes);
        }
    }
    let large = "x".repeat(100_000);
    let values: Vec<String> = (0..100).map(|number| number.to_string()).collect();
    let items: Vec<[(&str, &str); 1]> =
        values.iter().map(|value| [("k", value.as_str())]).collect();
    let items: Vec<Pairs<'_>> = items.iter().map(|pairs| &pairs[..]).collect();
    let request = encode(&[entry(&[("large", &large)], &[("x", &items)])]);
    let keys = ["k".to_owned()];
    let bounded = |bytes| {
        let room = Bounded(std::cell::Cell::new(bytes));
        regroup(Signal::Logs, &request, &keys, &room).map(|regrouped| regrouped.resources)
    };
    assert_eq!(
        bounded(1 << 20),
        Err(EditError::RoomExhausted(RoomExhausted))
    );
    assert_eq!(bounded(1 << 30), Ok(100));
}

/// A room that remembers the most bytes taken.
#[derive(Default)]
struct Peak {
    used: std::cell::Cell<usize>,
    most: std::cell::Cell<usize>,
}

impl Room for Peak {
    fn take(&self, bytes: usize) -> Result<(), RoomExhausted> {
        self.used.set(self.used.get() + bytes);
        self.most.set(self.most.get().max(self.used.get()));
        Ok(())
    }

    fn release(&self, bytes: usize) {
        self.used.set(self.used.get().checked_sub(bytes).unwrap());
    }
}

#[test]
fn small_attributes_of_a_resource_are_charged() {
    // An empty attribute has two bytes, and no item follows.
    let resource = [0x0a, 0].repeat(10_000);
    let mut entry = Vec::new();
    put_delimited(1, &resource, &mut entry);
    let mut request = Vec::new();
    put_delimited(1, &entry, &mut request);
    let room = Peak::default();
    regroup(Signal::Logs, &request, &[], &room).unwrap();
    assert!(room.most.get() > 10_000 * 32, "{}", room.most.get());
    assert!(room.used.get() < 2 * request.len(), "{}", room.used.get());
}
