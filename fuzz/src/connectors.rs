//! Fuzz targets for connectors: sums of the derived metrics equal the sums of the input.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::{Metric, NumberDataPoint};
use prost::Message as _;
use tributary::pipeline::batch::{Batch, Nack};
use tributary_otlp::Signal;
use tributary::component::{ConnectorConfig as _, Outputs};
use tributary::connectors::count::Config;
use tributary::fuzzing::{connectors, context};
use futures_util::future::BoxFuture;
use tributary::pipeline::Consumer;

use crate::samples;
use crate::telemetry::request;

#[derive(Default)]
struct Taken(Mutex<Vec<Batch>>);

impl Consumer for Taken {
    fn consume(&self, batch: Batch) -> BoxFuture<'_, Result<(), Nack>> {
        self.0.lock().unwrap().push(batch);
        Box::pin(async { Ok(()) })
    }

    fn behind(&self) -> Vec<Arc<dyn Consumer>> {
        Vec::new()
    }
}

/// Counting a request gives a valid request of metrics with the number of items. Each combination
/// of attributes has exactly one data point.
pub fn count(input: &[u8]) {
    let (signal, request, _) = request(input);
    let items = tributary_otlp::count(signal, &request);
    let all = counted(Config::default(), signal, &request);
    let name = match signal {
        Signal::Traces => "trace.span.count",
        Signal::Metrics => "metric.datapoint.count",
        Signal::Logs => "log.record.count",
        // Samples are not counted.
        Signal::Profiles => return,
    };
    assert_eq!(sum(&all, name), items as i64);
    let by_attribute = Config {
        logs: serde_yaml::from_str("{n: {attributes: [{key: a, default_value: x}]}}").unwrap(),
        spans: serde_yaml::from_str("{n: {attributes: [{key: a, default_value: x}]}}").unwrap(),
        datapoints: serde_yaml::from_str("{n: {attributes: [{key: a, default_value: x}]}}")
            .unwrap(),
        ..Config::default()
    };
    let apart = counted(by_attribute, signal, &request);
    assert_eq!(sum(&apart, "n"), items as i64);
}

fn counted(config: Config, signal: Signal, request: &[u8]) -> Vec<Vec<Metric>> {
    let next = Arc::new(Taken::default());
    let mut outputs = Outputs::default();
    outputs.set(Signal::Metrics, next.clone());
    let built = config.build(&context("count"), &[signal], outputs).unwrap();
    let items = tributary_otlp::count(signal, request);
    let batch = Batch::new(signal, items, bytes::Bytes::copy_from_slice(request));
    let entrance = built.inputs.get(signal).unwrap();
    let mut taken = pin!(entrance.consume(batch));
    match taken.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(())) => {}
        Poll::Ready(Err(nack)) => {
            assert_eq!(signal, Signal::Profiles, "{nack}");
            return Vec::new();
        }
        Poll::Pending => panic!("there is nothing to wait for"),
    }
    let batches = std::mem::take(&mut *next.0.lock().unwrap());
    assert!(batches.len() <= 1);
    let mut all = Vec::new();
    for batch in batches {
        let points = batch.items();
        let bytes = batch.into_wire().to_bytes();
        assert_eq!(tributary_otlp::count(Signal::Metrics, &bytes), points);
        all.extend(valid(&bytes));
    }
    all
}

/// Returns the metrics of each resource. Asserts that the request is valid, and that no two data
/// points have the same identity.
fn valid(request: &[u8]) -> Vec<Vec<Metric>> {
    tributary_otlp::validate(Signal::Metrics, request).unwrap();
    let request = ExportMetricsServiceRequest::decode(request).unwrap();
    let resources = request.resource_metrics.into_iter().map(|resource| {
        let scopes = resource.scope_metrics.into_iter();
        let metrics: Vec<Metric> = scopes.flat_map(|scope| scope.metrics).collect();
        let mut seen = BTreeSet::new();
        for metric in &metrics {
            for point in points(metric) {
                let attributes: Vec<_> =
                    point.attributes.iter().map(|a| a.encode_to_vec()).collect();
                assert!(
                    seen.insert((metric.name.clone(), attributes)),
                    "{}",
                    metric.name
                );
            }
        }
        metrics
    });
    resources.collect()
}

fn points(metric: &Metric) -> &[NumberDataPoint] {
    match &metric.data {
        Some(Data::Sum(sum)) => &sum.data_points,
        Some(Data::Gauge(gauge)) => &gauge.data_points,
        _ => panic!("{metric:?}"),
    }
}

fn sum(resources: &[Vec<Metric>], name: &str) -> i64 {
    let named = resources
        .iter()
        .flatten()
        .filter(|metric| metric.name == name);
    let values = named.flat_map(points).map(|point| match point.value {
        Some(Value::AsInt(value)) => value,
        _ => panic!("{point:?}"),
    });
    values.sum()
}

/// For any profiles, the own values of functions and the value `other` add up to the total of their
/// resource. There are at most as many functions as requested, and a request that is received twice
/// counts twice.
pub fn profile_metrics(input: &[u8]) {
    let (decisions, material) = input.split_at(input.len().min(2));
    let functions = usize::from(decisions.first().copied().unwrap_or_default() % 4);
    let request = match decisions.get(1) {
        Some(how) if how % 4 == 0 => material.to_vec(),
        _ => samples::request(material).encode_to_vec(),
    };
    if tributary_otlp::validate(Signal::Profiles, &request).is_err() {
        return;
    }
    let Some(made) = connectors::profile_metrics(&[&request], functions) else {
        return;
    };
    let once = valid(&made);
    for metrics in &once {
        let totals: BTreeMap<&str, &Metric> = metrics.iter().map(|m| (&*m.name, m)).collect();
        for (name, metric) in &totals {
            let Some(of) = name.strip_prefix("profile.function.self.") else {
                continue;
            };
            let total = totals.get(format!("profile.{of}").as_str()).unwrap();
            let (own, total) = (floats(metric), floats(total));
            let error = (own - total).abs() / total.abs().max(1.0);
            assert!(error < 1e-6, "{name}: {own} of {total}");
        }
    }
    let twice = connectors::profile_metrics(&[&request, &request], functions).unwrap();
    let samples = |made: &[Vec<Metric>]| sum(made, "profile.received.samples");
    assert_eq!(samples(&valid(&twice)), 2 * samples(&once));
    for signal in [Signal::Traces, Signal::Metrics] {
        if tributary_otlp::validate(signal, material).is_ok() {
            valid(&connectors::request_metrics(
                signal,
                material,
                &["a".to_owned()],
            ));
        }
    }
}

fn floats(metric: &Metric) -> f64 {
    let values = points(metric).iter().map(|point| match point.value {
        Some(Value::AsDouble(value)) => value,
        Some(Value::AsInt(value)) => value as f64,
        None => panic!("{point:?}"),
    });
    values.sum()
}
