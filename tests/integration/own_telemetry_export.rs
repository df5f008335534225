//! The collector exports its own metrics and log lines by OTLP.

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;

use crate::harness::backend::Record;
use crate::harness::{Backend, Client, Collector, Oracle, Signal, Telemetry, grpc_to, yaml};

/// A configuration whose own telemetry goes to `own`, apart from the data of its pipelines.
fn exporting_to(own: &Backend, data: &Backend) -> String {
    let telemetry = format!(
        "service:
  telemetry:
    resource: {{team: payments}}
    logs:
      level: info
      processors:
      - batch: {{schedule_delay: 10, exporter: {{otlp: {{protocol: grpc, endpoint: 'http://{}'}}}}}}
    metrics:
      readers:
      - periodic:
          interval: 100
          exporter: {{otlp_http: {{endpoint: 'http://{}', headers: [{{name: x-tenant, value: ops}}]}}}}
",
        own.grpc(),
        own.http()
    );
    yaml(&[], &[("otlp_grpc", &grpc_to(data, ""))]).replacen("service:\n", &telemetry, 1)
}

/// Returns the latest value of an exported counter, summed over its series.
fn counter(record: &Record, name: &str) -> Option<f64> {
    let Telemetry::Metrics(latest) = record.telemetry(Signal::Metrics).last()? else {
        return None;
    };
    let scope = &latest.resource_metrics[0].scope_metrics[0];
    let metric = scope.metrics.iter().find(|metric| metric.name == name)?;
    let Some(Data::Sum(sum)) = &metric.data else {
        return None;
    };
    let values = sum.data_points.iter().map(|point| match point.value {
        Some(Number::AsDouble(value)) => value,
        _ => f64::NAN,
    });
    Some(values.sum())
}

fn has_line(record: &Record, text: &str) -> bool {
    let requests = record.telemetry(Signal::Logs);
    let records = requests.flat_map(|telemetry| match telemetry {
        Telemetry::Logs(request) => request.resource_logs[0].scope_logs[0].log_records.clone(),
        _ => Vec::new(),
    });
    records.into_iter().any(|record| {
        let body = record.body.and_then(|body| body.value);
        matches!(body, Some(Value::StringValue(body)) if body.contains(text))
    })
}

#[tokio::test]
async fn own_metrics_and_logs_reach_the_backend() {
    let (own, data) = (Backend::start().await, Backend::start().await);
    let collector = Collector::start(&exporting_to(&own, &data)).await;
    let oracle = Oracle::default();
    let client = Client::grpc("grpc", collector.grpc(), &oracle).await;
    client
        .send(&client.request(Signal::Traces, 3))
        .await
        .unwrap();
    own.wait_for("the count of spans", |record| {
        counter(record, "otelcol_receiver_accepted_spans") == Some(3.0)
    })
    .await;
    own.wait_for("the line about the start", |record| {
        has_line(record, "Everything is ready")
    })
    .await;
    {
        let record = own.record();
        let metrics = record.accepted.iter();
        let mut metrics = metrics.filter(|one| one.telemetry.signal() == Signal::Metrics);
        assert!(metrics.all(|one| one.headers["x-tenant"] == "ops"));
        let Some(Telemetry::Metrics(first)) = record.telemetry(Signal::Metrics).next() else {
            unreachable!()
        };
        let attributes = &first.resource_metrics[0]
            .resource
            .as_ref()
            .unwrap()
            .attributes;
        let keys: Vec<_> = attributes.iter().map(|one| one.key.as_str()).collect();
        let expected = [
            "service.instance.id",
            "service.name",
            "service.version",
            "team",
        ];
        assert_eq!(keys, expected);
    }
    // The last lines and counts are exported before the process ends.
    assert!(collector.terminate().await.status.success());
    assert!(has_line(&own.record(), "Received signal from OS"));
}

#[tokio::test]
async fn dead_backend_of_own_telemetry_affects_nothing_else() {
    let (own, data) = (Backend::start().await, Backend::start().await);
    own.stop().await;
    let collector = Collector::start(&exporting_to(&own, &data)).await;
    let oracle = Oracle::default();
    let client = Client::grpc("grpc", collector.grpc(), &oracle).await;
    collector.wait_for("Cannot export own metrics.").await;
    client.send(&client.request(Signal::Logs, 2)).await.unwrap();
    oracle.wait_for_delivery(&data).await;
    // The end of a process does not wait for the backend.
    assert!(collector.terminate().await.status.success());
}

#[tokio::test]
async fn reload_changes_the_export_of_own_telemetry() {
    let (own, data) = (Backend::start().await, Backend::start().await);
    let without = yaml(&[], &[("otlp_grpc", &grpc_to(&data, ""))]);
    let collector = Collector::start(&without).await;
    collector.reload(&exporting_to(&own, &data)).await.unwrap();
    own.wait_for("metrics after the reload", |record| {
        counter(record, "otelcol_process_uptime").is_some()
    })
    .await;
    collector.reload(&without).await.unwrap();
    assert!(collector.terminate().await.status.success());
    assert!(!has_line(&own.record(), "Received signal from OS"));
}
