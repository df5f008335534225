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
use tributary_otlp::partition::{Grain, Place, Share, partition};
use tributary_otlp::view;
use tributary_otlp::{Decoded, Signal};

use crate::oracle::lines;
use crate::request;

/// A destination that follows from the bytes of what goes there.
fn by_content(place: &Place<'_>, of: usize) -> usize {
    let message = place.point.map(|(_, point)| point).or(place.entry);
    let message = message.unwrap_or_else(|| place.resource.message());
    let sum = message.encoded().iter().map(|byte| usize::from(*byte));
    sum.sum::<usize>() % of
}

fn grain() -> impl Strategy<Value = Grain> {
    prop_oneof![
        Just(Grain::Resource),
        Just(Grain::Entry),
        Just(Grain::Point)
    ]
}

proptest! {
    #[test]
    fn shares_together_have_everything_once_with_all_that_is_around_it(
        (signal, request) in request(),
        grain in grain(),
        destinations in 1..5_usize,
    ) {
        prop_assume!(signal != Signal::Profiles);
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

fn by_trace(place: &Place<'_>) -> usize {
    let entry = place.entry.unwrap();
    let span = <view::Span<'_> as view::View<'_>>::view(entry);
    usize::from(span.trace_id()[0])
}

#[test]
fn spans_go_where_their_trace_goes_whatever_resource_and_scope_they_are_in() {
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
    let shares = partition(Signal::Traces, &request, Grain::Entry, by_trace);
    let decoded = |share: &Share| {
        let bytes = share.requests.to_bytes();
        ExportTraceServiceRequest::decode(bytes)
            .unwrap()
            .resource_spans
    };
    assert_eq!((shares[0].destination, shares[0].items), (1, 2));
    // The scope without spans is in one of them.
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
fn the_points_of_one_metric_go_to_several_and_take_the_metric_along() {
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
    let odd = |place: &Place<'_>| {
        let (form, point) = place.point.unwrap();
        assert_eq!(form, 5);
        let point = <view::NumberPoint<'_> as view::View<'_>>::view(point);
        usize::from(point.time_unix_nano() % 2 == 1)
    };
    let shares = partition(Signal::Metrics, &whole, Grain::Point, odd);
    let bytes: Vec<(usize, Bytes)> = shares
        .iter()
        .map(|share| (share.destination, share.requests.to_bytes()))
        .collect();
    let share = |times: &[u64]| Bytes::from(request(metric(times)).encode_to_vec());
    assert_eq!(bytes, [(1, share(&[1, 3])), (0, share(&[2]))]);
}

#[test]
fn a_large_header_over_many_small_items_is_not_copied_out_of_all_proportion() {
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
    let shares = partition(Signal::Traces, &request, Grain::Entry, by_trace);
    let bytes: usize = shares.iter().map(|share| share.requests.len()).sum();
    let items: usize = shares.iter().map(|share| share.items).sum();
    assert_eq!(items, 100);
    assert!(bytes <= 2 * MIB, "{bytes}");
}
