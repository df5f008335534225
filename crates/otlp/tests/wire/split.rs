use bytes::Bytes;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{
    Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum,
};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use proptest::prelude::*;
use prost::Message;
use tributary_otlp::{Limit, Signal, split};

use crate::oracle::divided_without_loss;
use crate::request;

fn splits_without_loss(signal: Signal, request: &Bytes, limit: Limit) {
    divided_without_loss(signal, request, limit, split(signal, request, limit));
}

proptest! {
    #[test]
    fn parts_are_within_limits_and_lossless(
        (signal, request) in request(),
        items in prop_oneof![1..8_usize, Just(usize::MAX)],
        bytes in prop_oneof![1..3000_usize, Just(usize::MAX)],
    ) {
        if signal == Signal::Profiles {
            return Ok(());
        }
        splits_without_loss(signal, &Bytes::from(request), Limit { items, bytes });
    }
}

#[test]
fn oversized_metric_is_split_between_points() {
    let sum = Sum {
        data_points: (1..=10)
            .map(|number| NumberDataPoint {
                time_unix_nano: number,
                ..NumberDataPoint::default()
            })
            .collect(),
        aggregation_temporality: 2,
        is_monotonic: true,
    };
    let request = ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            scope_metrics: vec![ScopeMetrics {
                metrics: vec![Metric {
                    name: "requests".to_owned(),
                    data: Some(Data::Sum(sum)),
                    ..Metric::default()
                }],
                ..ScopeMetrics::default()
            }],
            schema_url: "https://opentelemetry.io/schemas/1.26.0".to_owned(),
            ..ResourceMetrics::default()
        }],
    };
    let request = Bytes::from(request.encode_to_vec());
    let limit = Limit {
        items: 4,
        bytes: usize::MAX,
    };
    splits_without_loss(Signal::Metrics, &request, limit);
    let pieces = split(Signal::Metrics, &request, limit);
    let counts: Vec<usize> = pieces.iter().map(|(count, _)| *count).collect();
    assert_eq!(counts, [4, 4, 2]);
}

#[test]
fn unknown_fields_of_every_level_are_in_every_part() {
    // resource_spans { 99: 1; scope_spans { 99: 2; spans {}; spans {} } }
    let unknown = [0x98, 0x06];
    let scope = [&unknown[..], &[2, 0x12, 0, 0x12, 0]].concat();
    let resource = [&unknown[..], &[1, 0x12, scope.len() as u8], &scope[..]].concat();
    let request = [&[0x0a, resource.len() as u8], &resource[..]].concat();
    let limit = Limit {
        items: 1,
        bytes: usize::MAX,
    };
    let pieces = split(Signal::Traces, &Bytes::from(request), limit);
    let scope = [&unknown[..], &[2, 0x12, 0]].concat();
    let resource = [&unknown[..], &[1, 0x12, scope.len() as u8], &scope[..]].concat();
    let piece = [&[0x0a, resource.len() as u8], &resource[..]].concat();
    assert_eq!(pieces, [(1, piece.clone().into()), (1, piece.into())]);
}

#[test]
fn large_header_is_not_multiplied() {
    const MIB: usize = 1 << 20;
    let request = ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            scope_spans: vec![ScopeSpans {
                spans: vec![Span::default(); 20_000],
                ..ScopeSpans::default()
            }],
            schema_url: "x".repeat(MIB),
            ..ResourceSpans::default()
        }],
    };
    let request = Bytes::from(request.encode_to_vec());
    let limit = Limit {
        items: 100,
        bytes: usize::MAX,
    };
    let pieces = split(Signal::Traces, &request, limit);
    let items: usize = pieces.iter().map(|(items, _)| items).sum();
    let bytes: usize = pieces.iter().map(|(_, piece)| piece.len()).sum();
    assert_eq!(items, 20_000);
    assert!(pieces.len() > 1);
    assert!(bytes < 4 * MIB, "{bytes}");
}
