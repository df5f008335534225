use std::sync::Arc;

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::{
    Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum,
};
use prost::Message as _;

use super::*;
use crate::component::Host;
use crate::pipeline::account::Account;
use crate::pipeline::batch::{Batch, Nack};
use crate::pipeline::testing::Scripted;
use crate::pipeline::{Consumer, Next};
use tributary_config::{Problems, Validate};
use tributary_otlp::{Decoded, Requests};

fn consumer(yaml: &str, exporter: &Arc<Scripted>) -> Arc<dyn Consumer> {
    let config: Config = serde_yaml::from_str(yaml).unwrap();
    let id = "cumulative_to_delta".parse().unwrap();
    let stage = config.build(&Host::for_tests().context(&id), Signal::Metrics);
    let Ok(Stage::Buffering(connect)) = stage else {
        unreachable!();
    };
    let next = Next {
        consumer: exporter.clone(),
        account: Account::of_pipeline("metrics"),
    };
    connect(next).0
}

/// A request with one point of a cumulative sum for each name and value.
fn request(points: &[(&str, i64)]) -> Bytes {
    let metric = |(name, value): &(&str, i64)| Metric {
        name: (*name).to_owned(),
        data: Some(Data::Sum(Sum {
            aggregation_temporality: 2,
            is_monotonic: true,
            data_points: vec![NumberDataPoint {
                time_unix_nano: 5,
                value: Some(Value::AsInt(*value)),
                ..NumberDataPoint::default()
            }],
        })),
        ..Metric::default()
    };
    let scope = ScopeMetrics {
        metrics: points.iter().map(metric).collect(),
        ..ScopeMetrics::default()
    };
    let entry = ResourceMetrics {
        scope_metrics: vec![scope],
        ..ResourceMetrics::default()
    };
    let resource_metrics = vec![entry];
    ExportMetricsServiceRequest { resource_metrics }
        .encode_to_vec()
        .into()
}

fn batch(requests: &[&[(&str, i64)]]) -> Batch {
    let items = requests.iter().map(|points| points.len()).sum();
    let requests: Requests = requests.iter().map(|points| request(points)).collect();
    Batch::new(Signal::Metrics, items, requests)
}

/// Names, values and temporalities of the sums in a batch.
fn sums(batch: &Batch) -> Vec<(String, i64, i32)> {
    let Decoded::Metrics(request) = batch.decoded().unwrap() else {
        unreachable!();
    };
    let scopes = request
        .resource_metrics
        .iter()
        .flat_map(|entry| &entry.scope_metrics);
    let metrics = scopes.flat_map(|scope| &scope.metrics);
    let sum = |metric: &Metric| match metric.data.as_ref() {
        Some(Data::Sum(sum)) => match sum.data_points[0].value {
            Some(Value::AsInt(value)) => (metric.name.clone(), value, sum.aggregation_temporality),
            _ => unreachable!(),
        },
        _ => unreachable!(),
    };
    metrics.map(sum).collect()
}

#[tokio::test]
async fn retried_batch_has_the_deltas_of_the_refused_one() {
    let refusal = || Err(Nack::unavailable("busy"));
    let exporter = Scripted::new([Ok(()), refusal(), refusal(), Ok(())]);
    let consumer = consumer("{initial_value: keep}", &exporter);
    consumer.consume(batch(&[&[("a", 10)]])).await.unwrap();
    let retried = batch(&[&[("a", 12)], &[("a", 15), ("b", 1)]]);
    for refused in [true, true, false] {
        let result = consumer.consume(retried.clone()).await;
        assert_eq!(result.is_err(), refused);
    }
    let batches = exporter.batches();
    let last = batches.last().unwrap();
    let delta = |name: &str, value| (name.to_owned(), value, 1);
    assert_eq!(sums(last), [delta("a", 2), delta("a", 3), delta("b", 1)]);
    assert_eq!(last.items(), 3);
}

#[tokio::test]
async fn batch_without_remaining_points_is_not_sent() {
    let exporter = Scripted::new([]);
    let consumer = consumer("{initial_value: drop}", &exporter);
    consumer
        .consume(batch(&[&[("a", 10), ("b", 3)]]))
        .await
        .unwrap();
    assert!(exporter.batches().is_empty());
}

#[tokio::test]
async fn names_and_types_select_metrics() {
    let exporter = Scripted::new([Ok(())]);
    let yaml = "{initial_value: keep, include: {match_type: regexp, metrics: ['^http']}, \
                exclude: {match_type: strict, metrics: [http.b]}}";
    let consumer = consumer(yaml, &exporter);
    let points = [("http.a", 1), ("http.b", 2), ("other", 3)];
    consumer.consume(batch(&[&points])).await.unwrap();
    let temporalities: Vec<i32> = sums(&exporter.batches()[0])
        .iter()
        .map(|sum| sum.2)
        .collect();
    assert_eq!(temporalities, [1, 2, 2]);
}

#[test]
fn incomplete_selections_are_reported_at_their_keys() {
    let yaml =
        "{include: {metrics: [a]}, exclude: {match_type: strict}, max_streams: 0, max_bytes: 1KiB}";
    let config: Config = serde_yaml::from_str(yaml).unwrap();
    let mut problems = Problems::default();
    config.validate(&mut problems);
    let paths: Vec<String> = problems
        .found()
        .iter()
        .map(|found| found.path.join("."))
        .collect();
    assert_eq!(
        paths,
        [
            "include.match_type",
            "exclude.metrics",
            "max_streams",
            "max_bytes"
        ]
    );
}
