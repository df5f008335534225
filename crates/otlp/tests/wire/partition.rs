use std::collections::BTreeSet;

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{
    Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use proptest::prelude::*;
use prost::Message as _;
use tributary_otlp::partition::{ItemContext, PartitionLevel, Share, partition};
use tributary_otlp::view;
use tributary_otlp::{Decoded, Signal};

use crate::oracle::lines;
use crate::request;

/// Derives a destination from the content of the part.
fn by_content(place: &ItemContext<'_>, of: usize) -> usize {
    let message = place.point.map(|(_, point)| point).or(place.entry);
    let message = message.unwrap_or_else(|| place.resource.message());
    let sum = message.encoded().iter().map(|byte| usize::from(*byte));
    sum.sum::<usize>() % of
}

fn grain() -> impl Strategy<Value = PartitionLevel> {
    prop_oneof![
        Just(PartitionLevel::Resource),
        Just(PartitionLevel::Entry),
        Just(PartitionLevel::Point)
    ]
}

proptest! {
    #[test]
    fn shares_contain_every_item_once_in_context(
        (signal, request) in request(),
        grain in grain(),
        destinations in 1..5_usize,
    ) {
        if signal == Signal::Profiles {
            return Ok(());
        }
        let request = Bytes::from(request);
        let shares = partition(signal, &request, grain, |place| by_content(place, destinations));
        let written = |request: &[u8]| {
            let plain = Decoded::decode(signal, request).unwrap().encode();
            lines(&Decoded::decode(signal, &plain).unwrap())
        };
        let mut whole = written(&request);
        let mut together = Vec::new();
        let mut seen = BTreeSet::new();
        for Share { destination, items, requests } in &shares {
            prop_assert!(seen.insert(*destination), "a destination has two shares");
            let share = requests.to_bytes();
            prop_assert_eq!(tributary_otlp::validate(signal, &share), Ok(*items));
            together.extend(written(&share));
        }
        whole.sort();
        together.sort();
        prop_assert_eq!(whole, together);
        if let [only] = shares.as_slice()
            && let [part] = only.requests.parts()
            && part.len() == request.len()
        {
            prop_assert_eq!(part.as_ptr(), request.as_ptr(), "a whole was copied");
        }
    }
}

fn span(trace: u8) -> Span {
    Span {
        trace_id: vec![trace; 16],
        name: format!("of {trace}"),
        ..Span::default()
    }
}

fn by_trace(place: &ItemContext<'_>) -> usize {
    let entry = place.entry.unwrap();
    let span = <view::Span<'_> as view::View<'_>>::view(entry);
    usize::from(span.trace_id()[0])
}

#[test]
fn spans_of_one_trace_share_a_destination() {
    let scope = |traces: &[u8]| ScopeSpans {
        spans: traces.iter().copied().map(span).collect(),
        schema_url: "scope".to_owned(),
        ..ScopeSpans::default()
    };
    let resource = |scopes: Vec<ScopeSpans>| ResourceSpans {
        resource: Some(Resource::default()),
        scope_spans: scopes,
        schema_url: "resource".to_owned(),
    };
    let request = ExportTraceServiceRequest {
        resource_spans: vec![
            resource(vec![scope(&[1, 2, 1]), scope(&[]), scope(&[2])]),
            resource(vec![scope(&[2, 2])]),
        ],
    };
    let request = Bytes::from(request.encode_to_vec());
    let shares = partition(Signal::Traces, &request, PartitionLevel::Entry, by_trace);
    let decoded = |share: &Share| {
        let bytes = share.requests.to_bytes();
        ExportTraceServiceRequest::decode(bytes)
            .unwrap()
            .resource_spans
    };
    assert_eq!((shares[0].destination, shares[0].items), (1, 2));
    assert_eq!(
        decoded(&shares[0]),
        [resource(vec![scope(&[1, 1]), scope(&[])])]
    );
    assert_eq!((shares[1].destination, shares[1].items), (2, 4));
    let second = [
        resource(vec![scope(&[2]), scope(&[2])]),
        resource(vec![scope(&[2, 2])]),
    ];
    assert_eq!(decoded(&shares[1]), second);
}

#[test]
fn points_of_one_metric_are_split_with_its_header() {
    let metric = |times: &[u64]| Metric {
        name: "depth".to_owned(),
        unit: "1".to_owned(),
        data: Some(Data::Gauge(Gauge {
            data_points: times
                .iter()
                .map(|time| NumberDataPoint {
                    time_unix_nano: *time,
                    ..NumberDataPoint::default()
                })
                .collect(),
        })),
        ..Metric::default()
    };
    let request = |metric: Metric| ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            scope_metrics: vec![ScopeMetrics {
                metrics: vec![metric],
                ..ScopeMetrics::default()
            }],
            ..ResourceMetrics::default()
        }],
    };
    let whole = Bytes::from(request(metric(&[1, 2, 3])).encode_to_vec());
    let odd = |place: &ItemContext<'_>| {
        let (form, point) = place.point.unwrap();
        assert_eq!(form, 5);
        let point = <view::NumberPoint<'_> as view::View<'_>>::view(point);
        usize::from(point.time_unix_nano() % 2 == 1)
    };
    let shares = partition(Signal::Metrics, &whole, PartitionLevel::Point, odd);
    let bytes: Vec<(usize, Bytes)> = shares
        .iter()
        .map(|share| (share.destination, share.requests.to_bytes()))
        .collect();
    let share = |times: &[u64]| Bytes::from(request(metric(times)).encode_to_vec());
    assert_eq!(bytes, [(1, share(&[1, 3])), (0, share(&[2]))]);
}

#[test]
fn large_header_is_not_multiplied() {
    const MIB: usize = 1 << 20;
    let request = ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            scope_spans: vec![ScopeSpans {
                spans: (0..100).map(span).collect(),
                ..ScopeSpans::default()
            }],
            schema_url: "x".repeat(MIB),
            ..ResourceSpans::default()
        }],
    };
    let request = Bytes::from(request.encode_to_vec());
    let shares = partition(Signal::Traces, &request, PartitionLevel::Entry, by_trace);
    let bytes: usize = shares.iter().map(|share| share.requests.len()).sum();
    let items: usize = shares.iter().map(|share| share.items).sum();
    assert_eq!(items, 100);
    assert!(bytes <= 2 * MIB, "{bytes}");
}

#[test]
fn metric_of_several_forms_is_split_without_decoding() {
    let field = |number: u8, content: &[u8]| {
        let length = u8::try_from(content.len()).unwrap();
        [&[number << 3 | 2, length], content].concat()
    };
    // The times of the points are their destinations.
    let point = |time: u8| field(1, &[&[0x19, time][..], &[0; 7]].concat());
    let (gauge, sum) = (field(5, &point(3)), |points: &[u8]| field(7, points));
    let of_sum = [point(1), point(2)].concat();
    let metric = [field(1, b"depth"), gauge, sum(&of_sum), sum(&point(1))].concat();
    let request = Bytes::from(field(1, &field(2, &field(2, &metric))));
    let by_time = |place: &ItemContext<'_>| match place.point {
        Some((form, point)) => {
            assert_eq!(form, 7, "the last form counts");
            usize::from(point.encoded()[1])
        }
        None => 0,
    };
    let whole = partition(Signal::Metrics, &request, PartitionLevel::Point, |_| 0);
    assert_eq!(whole[0].items, 3);
    assert_eq!(whole[0].requests.to_bytes().as_ptr(), request.as_ptr());
    let shares = partition(Signal::Metrics, &request, PartitionLevel::Point, by_time);
    let parts = shares.iter().map(|share| {
        let bytes = share.requests.to_bytes();
        let mut decoded = ExportMetricsServiceRequest::decode(bytes).unwrap();
        let metric = decoded.resource_metrics[0].scope_metrics[0]
            .metrics
            .remove(0);
        let Some(Data::Sum(sum)) = metric.data else {
            panic!("another form");
        };
        let times = sum.data_points.iter().map(|point| point.time_unix_nano);
        (share.destination, share.items, metric.name, times.collect())
    });
    let expected = [(1, 2, vec![1, 1]), (2, 1, vec![2])];
    let expected = expected.map(|(to, items, times)| (to, items, "depth".to_owned(), times));
    assert_eq!(parts.collect::<Vec<(_, _, _, Vec<u64>)>>(), expected);
}
