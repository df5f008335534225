//! Comparison with the Collector, and properties beyond it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::{
    ExponentialHistogram, ExponentialHistogramDataPoint, Histogram, HistogramDataPoint, Metric,
    NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum,
};
use prost::Message as _;
use tributary_otlp::room::Unbounded;

use super::*;

/// Requests before and after the processor `cumulativetodelta` (contrib 0.165), in base64, for each `initial_value`.
const GOLDEN: &str = include_str!("golden.txt");

/// Unix time in ns between the two start times of the golden requests.
const BEGAN: u64 = 1_900_000_000_000_000_000;

const NO_LIMITS: TrackerLimits = TrackerLimits {
    series: usize::MAX,
    bytes: usize::MAX,
};

fn all(_: &str, _: CumulativeKind) -> bool {
    true
}

fn tracker(first: FirstPoint) -> DeltaTracker {
    DeltaTracker::new(first, NO_LIMITS, BEGAN, 7)
}

/// Returns the request with missing buckets of exponential histograms as empty buckets, which mean the same.
fn normalized(request: &[u8]) -> ExportMetricsServiceRequest {
    let mut request = ExportMetricsServiceRequest::decode(request).unwrap();
    let scopes = request
        .resource_metrics
        .iter_mut()
        .flat_map(|entry| &mut entry.scope_metrics);
    for metric in scopes.flat_map(|scope| &mut scope.metrics) {
        if let Some(Data::ExponentialHistogram(histogram)) = &mut metric.data {
            for point in &mut histogram.data_points {
                point.positive.get_or_insert_default();
                point.negative.get_or_insert_default();
            }
        }
    }
    request
}

#[test]
fn deltas_equal_those_of_the_collector() {
    let mut current = ("", tracker(FirstPoint::Auto));
    let mut points = 0;
    let mut dropped = [0; DropCause::ALL.len()];
    for (number, line) in GOLDEN.lines().enumerate() {
        let [initial, before, after] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("line {number}");
        };
        if current.0 != initial {
            let first = match initial {
                "auto" => FirstPoint::Auto,
                "keep" => FirstPoint::Keep,
                _ => FirstPoint::Drop,
            };
            current = (initial, tracker(first));
        }
        let decode = |text| STANDARD.decode(text).unwrap();
        let (before, after) = (decode(before), decode(after));
        // A refused request changes nothing.
        drop(
            current
                .1
                .convert(&before, &all, &Unbounded, &Unbounded)
                .unwrap(),
        );
        let converted = current
            .1
            .convert(&before, &all, &Unbounded, &Unbounded)
            .unwrap();
        let request = converted.request.as_deref().unwrap_or(&before);
        let (found, expected) = (normalized(request), normalized(&after));
        // Debug output, because NaN is not equal to itself.
        assert_eq!(
            format!("{found:#?}"),
            format!("{expected:#?}"),
            "{initial} {number}"
        );
        points += converted.points;
        for (sum, count) in dropped.iter_mut().zip(converted.dropped) {
            *sum += count;
        }
        converted.tentative.confirm();
    }
    assert!(points > 200, "{points}");
    let reached = &dropped[..4];
    assert!(reached.iter().all(|count| *count > 0), "{dropped:?}");
}

/// A request with one point of an integer sum for each pair of series and value.
fn sums(time: u64, points: &[(u64, i64)]) -> Vec<u8> {
    let metric = |(series, value): &(u64, i64)| Metric {
        name: series.to_string(),
        data: Some(Data::Sum(Sum {
            aggregation_temporality: 2,
            is_monotonic: true,
            data_points: vec![NumberDataPoint {
                time_unix_nano: time,
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
    ExportMetricsServiceRequest { resource_metrics }.encode_to_vec()
}

/// Converts a request and returns the deltas.
fn deltas(tracker: &DeltaTracker, request: &[u8], accepted: bool) -> Vec<i64> {
    let converted = tracker
        .convert(request, &all, &Unbounded, &Unbounded)
        .unwrap();
    let after =
        ExportMetricsServiceRequest::decode(converted.request.as_deref().unwrap_or(request));
    let after = after.unwrap();
    if accepted {
        converted.tentative.confirm();
    }
    let scopes = after
        .resource_metrics
        .iter()
        .flat_map(|entry| &entry.scope_metrics);
    let metrics = scopes.flat_map(|scope| &scope.metrics);
    let values = metrics.map(|metric| match metric.data.as_ref().unwrap() {
        Data::Sum(sum) => match sum.data_points[0].value {
            Some(Value::AsInt(value)) => value,
            _ => panic!("no integer"),
        },
        _ => panic!("no sum"),
    });
    values.collect()
}

#[test]
fn refused_request_has_the_same_deltas_when_retried() {
    let tracker = tracker(FirstPoint::Keep);
    assert_eq!(deltas(&tracker, &sums(1, &[(1, 10)]), true), [10]);
    let retried = sums(2, &[(1, 15), (1, 17), (2, 3)]);
    for accepted in [false, false, true] {
        assert_eq!(deltas(&tracker, &retried, accepted), [5, 2, 3]);
    }
    assert_eq!(deltas(&tracker, &sums(3, &[(1, 20), (2, 4)]), true), [3, 1]);
}

#[test]
fn later_points_keep_their_base_when_earlier_ones_are_refused() {
    let tracker = tracker(FirstPoint::Keep);
    deltas(&tracker, &sums(1, &[(1, 10)]), true);
    let request = sums(2, &[(1, 15)]);
    let refused = tracker
        .convert(&request, &all, &Unbounded, &Unbounded)
        .unwrap();
    assert_eq!(deltas(&tracker, &sums(3, &[(1, 20)]), true), [5]);
    drop(refused);
    assert_eq!(deltas(&tracker, &sums(4, &[(1, 21)]), true), [1]);
}

#[test]
fn overlapping_refusals_lose_no_increments() {
    for first_refused_first in [true, false] {
        let tracker = tracker(FirstPoint::Keep);
        deltas(&tracker, &sums(1, &[(1, 10)]), true);
        let requests = [sums(2, &[(1, 15), (2, 3)]), sums(3, &[(1, 20), (2, 4)])];
        let convert = |request: &Vec<u8>| tracker.convert(request, &all, &Unbounded, &Unbounded);
        let [first, second] = requests.each_ref().map(|request| convert(request).unwrap());
        match first_refused_first {
            true => [first, second].map(drop),
            false => [second, first].map(drop),
        };
        assert_eq!(tracker.series(), 1);
        assert_eq!(deltas(&tracker, &requests[0], true), [5, 3]);
        assert_eq!(deltas(&tracker, &requests[1], true), [5, 1]);
    }
}

#[test]
fn refusal_after_confirmed_later_points_changes_nothing() {
    let tracker = tracker(FirstPoint::Keep);
    deltas(&tracker, &sums(1, &[(1, 10)]), true);
    let convert = |request: &[u8]| tracker.convert(request, &all, &Unbounded, &Unbounded);
    let first = convert(&sums(2, &[(1, 15)])).unwrap();
    let second = convert(&sums(3, &[(1, 20)])).unwrap();
    let third = convert(&sums(4, &[(1, 30)])).unwrap();
    second.tentative.confirm();
    drop(first);
    drop(third);
    assert_eq!(deltas(&tracker, &sums(5, &[(1, 31)]), true), [11]);
}

/// A room that counts.
#[derive(Default)]
struct Counted(std::cell::Cell<usize>);

impl tributary_otlp::room::Room for Counted {
    fn take(&self, bytes: usize) -> Result<(), tributary_otlp::room::RoomExhausted> {
        self.0.set(self.0.get() + bytes);
        Ok(())
    }

    fn release(&self, bytes: usize) {
        self.0.set(self.0.get() - bytes);
    }
}

#[test]
fn changes_take_their_memory_from_the_room() {
    let tracker = tracker(FirstPoint::Keep);
    let points: Vec<(u64, i64)> = (0..100).map(|series| (series, 1)).collect();
    for time in [1, 2] {
        let undo = Counted::default();
        let converted = tracker.convert(&sums(time, &points), &all, &Unbounded, &undo);
        let converted = converted.unwrap();
        assert_eq!(undo.0.get(), converted.tentative.bytes());
        assert!(undo.0.get() >= 100 * size_of::<(u128, u64)>());
        converted.tentative.confirm();
    }
}

#[test]
fn series_that_outgrow_the_limit_keep_their_last_point() {
    let tracker = |bytes| {
        let limits = TrackerLimits {
            series: usize::MAX,
            bytes,
        };
        DeltaTracker::new(FirstPoint::Keep, limits, BEGAN, 7)
    };
    let histogram = |time: u64, buckets: usize| {
        let point = HistogramDataPoint {
            time_unix_nano: time,
            count: 1,
            bucket_counts: vec![0; buckets],
            explicit_bounds: vec![0.0; buckets - 1],
            ..HistogramDataPoint::default()
        };
        let metric = Metric {
            name: "h".to_owned(),
            data: Some(Data::Histogram(Histogram {
                aggregation_temporality: 2,
                data_points: vec![point],
            })),
            ..Metric::default()
        };
        let scope = ScopeMetrics {
            metrics: vec![metric],
            ..ScopeMetrics::default()
        };
        let entry = ResourceMetrics {
            scope_metrics: vec![scope],
            ..ResourceMetrics::default()
        };
        let resource_metrics = vec![entry];
        ExportMetricsServiceRequest { resource_metrics }.encode_to_vec()
    };
    let convert = |tracker: &DeltaTracker, request: &[u8]| {
        let converted = tracker.convert(request, &all, &Unbounded, &Unbounded);
        let converted = converted.unwrap();
        converted.tentative.confirm();
        (converted.points, converted.dropped)
    };
    let unlimited = tracker(usize::MAX);
    convert(&unlimited, &histogram(1, 4));
    let bytes = unlimited.bytes();
    let limited = tracker(bytes);
    convert(&limited, &histogram(1, 4));
    assert_eq!(convert(&limited, &histogram(2, 4000)), (0, [0, 0, 0, 0, 1]));
    assert_eq!(limited.bytes(), bytes);
    assert_eq!(convert(&limited, &histogram(3, 4)).0, 1);
}

#[test]
fn series_beyond_the_limits_are_dropped_and_counted() {
    let limits = TrackerLimits {
        series: 2,
        bytes: usize::MAX,
    };
    let tracker = DeltaTracker::new(FirstPoint::Keep, limits, BEGAN, 7);
    let request = sums(1, &[(1, 1), (2, 2), (3, 3)]);
    let converted = tracker
        .convert(&request, &all, &Unbounded, &Unbounded)
        .unwrap();
    assert_eq!((converted.points, converted.dropped), (2, [0, 0, 0, 0, 1]));
    converted.tentative.confirm();
    assert_eq!(tracker.series(), 2);
    let bytes = tracker.bytes();
    let limits = TrackerLimits {
        series: usize::MAX,
        bytes,
    };
    let tracker = DeltaTracker::new(FirstPoint::Keep, limits, BEGAN, 7);
    assert_eq!(deltas(&tracker, &request, true), [1, 2]);
}

#[test]
fn stale_series_are_forgotten_with_their_memory() {
    let tracker = tracker(FirstPoint::Keep);
    deltas(&tracker, &sums(1, &[(1, 10), (2, 20)]), true);
    deltas(&tracker, &sums(5, &[(1, 11)]), true);
    tracker.forget_before(5);
    assert_eq!(tracker.series(), 1);
    assert_eq!(
        deltas(&tracker, &sums(6, &[(1, 12), (2, 21)]), true),
        [1, 21]
    );
    tracker.forget_before(u64::MAX);
    assert_eq!((tracker.series(), tracker.bytes()), (0, 0));
}

#[test]
fn metrics_that_are_not_selected_stay() {
    let tracker = tracker(FirstPoint::Drop);
    let request = sums(1, &[(1, 10), (2, 20)]);
    let only_first = |name: &str, kind| name == "1" && kind == CumulativeKind::Sum;
    let converted = tracker
        .convert(&request, &only_first, &Unbounded, &Unbounded)
        .unwrap();
    let after = ExportMetricsServiceRequest::decode(&*converted.request.unwrap()).unwrap();
    let expected = ExportMetricsServiceRequest::decode(&*sums(1, &[(2, 20)])).unwrap();
    assert_eq!(after, expected);
}

#[test]
fn fallen_zero_count_is_a_reset() {
    let tracker = tracker(FirstPoint::Keep);
    let request = |time: u64, count: u64, zero_count: u64| {
        let point = ExponentialHistogramDataPoint {
            time_unix_nano: time,
            count,
            zero_count,
            ..ExponentialHistogramDataPoint::default()
        };
        let metric = Metric {
            name: "e".to_owned(),
            data: Some(Data::ExponentialHistogram(ExponentialHistogram {
                aggregation_temporality: 2,
                data_points: vec![point],
            })),
            ..Metric::default()
        };
        let scope = ScopeMetrics {
            metrics: vec![metric],
            ..ScopeMetrics::default()
        };
        let entry = ResourceMetrics {
            scope_metrics: vec![scope],
            ..ResourceMetrics::default()
        };
        let resource_metrics = vec![entry];
        ExportMetricsServiceRequest { resource_metrics }.encode_to_vec()
    };
    let points = [(1, 5, 5), (2, 6, 4), (3, 7, 5)].map(|(time, count, zero_count)| {
        let request = request(time, count, zero_count);
        let converted = tracker.convert(&request, &all, &Unbounded, &Unbounded);
        let converted = converted.unwrap();
        converted.tentative.confirm();
        converted.points
    });
    assert_eq!(points, [1, 0, 1]);
}
