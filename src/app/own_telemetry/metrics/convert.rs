//! A page of metrics as an OTLP request.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint,
    ResourceMetrics, ScopeMetrics, Sum, metric,
};
use tributary_prometheus::{ExpositionFormat, HistogramOptions, Kind, PageEntry, ScrapedPage};

use super::{own_resource, own_scope, text};

/// Labels of a series, without the bound of a bucket.
type SeriesKey = Vec<(String, String)>;

/// A metric with its series.
#[derive(Default)]
struct Family {
    name: String,
    description: String,
    kind: Kind,
    numbers: Vec<(SeriesKey, f64)>,
    histograms: BTreeMap<SeriesKey, Observations>,
}

/// A histogram as Prometheus has it.
#[derive(Default)]
struct Observations {
    /// Upper bounds with the number of observations up to the bound.
    buckets: Vec<(f64, u64)>,
    sum: f64,
    count: u64,
}

/// Returns the number of data points and the request. `times` are the start of the process and now, in nanoseconds since
/// 1970.
pub(super) fn request(
    page: &str,
    attributes: &[(String, String)],
    times: [u64; 2],
) -> (usize, ExportMetricsServiceRequest) {
    let metrics: Vec<Metric> = families(page)
        .into_iter()
        // The resource of the request has the attributes.
        .filter(|family| family.name != "target_info")
        .map(|family| family.metric(times))
        .collect();
    let points = metrics.iter().map(points).sum();
    let request = ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(own_resource(attributes)),
            scope_metrics: vec![ScopeMetrics {
                scope: Some(own_scope()),
                metrics,
                ..ScopeMetrics::default()
            }],
            ..ResourceMetrics::default()
        }],
    };
    (points, request)
}

/// Reads the families of a page that this process has written.
fn families(page: &str) -> Vec<Family> {
    let mut families: Vec<Family> = Vec::new();
    let mut description = String::new();
    let Ok(mut page) = ScrapedPage::new(
        ExpositionFormat::Text,
        page.as_bytes(),
        HistogramOptions::default(),
    ) else {
        return families;
    };
    while let Ok(Some(entry)) = page.next() {
        match entry {
            PageEntry::Help { text, .. } => description = text.into_owned(),
            PageEntry::Kind { family, kind } => families.push(Family {
                name: family.into_owned(),
                description: std::mem::take(&mut description),
                kind,
                ..Family::default()
            }),
            PageEntry::Sample(sample) => {
                let labels = page.labels().sorted();
                if let Some(family) = families.last_mut() {
                    family.add(labels, sample.value);
                }
            }
            PageEntry::Unit { .. } | PageEntry::Histogram(_) => {}
        }
    }
    families
}

impl Family {
    fn add(&mut self, mut series: SeriesKey, value: f64) {
        let mut take = |name: &str| {
            let at = series.iter().position(|(label, _)| label == name)?;
            Some(series.remove(at).1)
        };
        let name = take("__name__").unwrap_or_default();
        if self.kind != Kind::Histogram {
            self.numbers.push((series, value));
            return;
        }
        let bound = take("le").and_then(|bound| bound.parse().ok());
        let observations = self.histograms.entry(series).or_default();
        let part = name.strip_prefix(&self.name).unwrap_or_default();
        // The counts of this process are whole numbers.
        match (part, bound) {
            ("_bucket", Some(bound)) => observations.buckets.push((bound, value as u64)),
            ("_sum", _) => observations.sum = value,
            ("_count", _) => observations.count = value as u64,
            _ => {}
        }
    }

    fn metric(self, times: [u64; 2]) -> Metric {
        let cumulative = AggregationTemporality::Cumulative.into();
        let numbers = |start| {
            let numbers = self.numbers.iter();
            numbers.map(move |(series, value)| number(series, *value, [start, times[1]]))
        };
        let data = match self.kind {
            Kind::Counter => metric::Data::Sum(Sum {
                data_points: numbers(times[0]).collect(),
                aggregation_temporality: cumulative,
                is_monotonic: true,
            }),
            Kind::Histogram => metric::Data::Histogram(Histogram {
                data_points: self
                    .histograms
                    .iter()
                    .map(|(series, observations)| observations.point(series, times))
                    .collect(),
                aggregation_temporality: cumulative,
            }),
            _ => metric::Data::Gauge(Gauge {
                data_points: numbers(0).collect(),
            }),
        };
        Metric {
            name: self.name,
            description: self.description,
            data: Some(data),
            ..Metric::default()
        }
    }
}

impl Observations {
    /// Returns the data point. Buckets of OTLP are not cumulative, and the last one has no bound.
    fn point(&self, series: &SeriesKey, [start, now]: [u64; 2]) -> HistogramDataPoint {
        let mut below = 0;
        let mut bucket_counts = Vec::with_capacity(self.buckets.len());
        for (_, count) in &self.buckets {
            bucket_counts.push(count.saturating_sub(below));
            below = *count;
        }
        let bounds = self.buckets.iter().map(|(bound, _)| *bound);
        HistogramDataPoint {
            attributes: attributes(series),
            start_time_unix_nano: start,
            time_unix_nano: now,
            count: self.count,
            sum: Some(self.sum),
            bucket_counts,
            explicit_bounds: bounds.filter(|bound| bound.is_finite()).collect(),
            ..HistogramDataPoint::default()
        }
    }
}

fn number(series: &SeriesKey, value: f64, [start, now]: [u64; 2]) -> NumberDataPoint {
    NumberDataPoint {
        attributes: attributes(series),
        start_time_unix_nano: start,
        time_unix_nano: now,
        value: Some(Value::AsDouble(value)),
        ..NumberDataPoint::default()
    }
}

fn attributes(series: &SeriesKey) -> Vec<KeyValue> {
    series.iter().map(|(key, value)| text(key, value)).collect()
}

fn points(metric: &Metric) -> usize {
    match &metric.data {
        Some(metric::Data::Sum(sum)) => sum.data_points.len(),
        Some(metric::Data::Gauge(gauge)) => gauge.data_points.len(),
        Some(metric::Data::Histogram(histogram)) => histogram.data_points.len(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
# HELP sent Spans sent.
# TYPE sent counter
sent{exporter=\"a\"} 7
sent{exporter=\"b \\\"x\\\"\"} 2
# HELP size Batch size.
# TYPE size histogram
size_bucket{le=\"10\"} 3
size_bucket{le=\"100\"} 5
size_bucket{le=\"+Inf\"} 6
size_sum 300
size_count 6
# TYPE fill gauge
fill 0.5
# TYPE target_info gauge
target_info{service_name=\"x\"} 1
";

    #[test]
    fn page_becomes_sums_gauges_and_histograms() {
        let resource = [("service.name".to_owned(), "collector".to_owned())];
        let (points, request) = request(PAGE, &resource, [1, 2]);
        assert_eq!(points, 4);
        let of_process = &request.resource_metrics[0];
        let attributes = &of_process.resource.as_ref().unwrap().attributes;
        assert_eq!(attributes[0].key, "service.name");
        let metrics = &of_process.scope_metrics[0].metrics;
        let names: Vec<_> = metrics.iter().map(|metric| &*metric.name).collect();
        assert_eq!(names, ["sent", "size", "fill"]);
        assert_eq!(metrics[0].description, "Spans sent.");
        let Some(metric::Data::Sum(sum)) = &metrics[0].data else {
            unreachable!()
        };
        assert!(sum.is_monotonic);
        let point = &sum.data_points[0];
        assert_eq!((point.start_time_unix_nano, point.time_unix_nano), (1, 2));
        assert_eq!(point.value, Some(Value::AsDouble(7.0)));
        assert_eq!(sum.data_points[1].attributes, [text("exporter", "b \"x\"")]);
        let Some(metric::Data::Histogram(histogram)) = &metrics[1].data else {
            unreachable!()
        };
        let point = &histogram.data_points[0];
        assert_eq!(point.bucket_counts, [3, 2, 1]);
        assert_eq!(point.explicit_bounds, [10.0, 100.0]);
        assert_eq!((point.count, point.sum), (6, Some(300.0)));
        let Some(metric::Data::Gauge(gauge)) = &metrics[2].data else {
            unreachable!()
        };
        assert_eq!(gauge.data_points[0].value, Some(Value::AsDouble(0.5)));
    }
}
