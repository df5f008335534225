//! The protobuf format, read back by prost.

use super::*;

#[derive(Clone, PartialEq, prost::Message)]
struct MetricFamily {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    help: String,
    #[prost(int32, tag = "3")]
    kind: i32,
    #[prost(message, repeated, tag = "4")]
    metric: Vec<PbMetric>,
    #[prost(string, optional, tag = "5")]
    unit: Option<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PbMetric {
    #[prost(message, repeated, tag = "1")]
    label: Vec<LabelPair>,
    #[prost(message, optional, tag = "2")]
    gauge: Option<Single>,
    #[prost(message, optional, tag = "3")]
    counter: Option<Counter>,
    #[prost(message, optional, tag = "7")]
    histogram: Option<PbHistogram>,
    #[prost(int64, optional, tag = "6")]
    timestamp_ms: Option<i64>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct LabelPair {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Single {
    #[prost(double, tag = "1")]
    value: f64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Counter {
    #[prost(double, tag = "1")]
    value: f64,
    #[prost(message, optional, tag = "3")]
    created: Option<prost_types::Timestamp>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PbHistogram {
    #[prost(uint64, tag = "1")]
    count: u64,
    #[prost(double, tag = "2")]
    sum: f64,
    #[prost(message, repeated, tag = "3")]
    bucket: Vec<Bucket>,
    #[prost(sint32, tag = "5")]
    schema: i32,
    #[prost(double, tag = "6")]
    zero_threshold: f64,
    #[prost(uint64, tag = "7")]
    zero_count: u64,
    #[prost(message, repeated, tag = "9")]
    negative_span: Vec<Span>,
    #[prost(sint64, repeated, packed = "false", tag = "10")]
    negative_delta: Vec<i64>,
    #[prost(message, repeated, tag = "12")]
    positive_span: Vec<Span>,
    #[prost(sint64, repeated, packed = "false", tag = "13")]
    positive_delta: Vec<i64>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Bucket {
    #[prost(uint64, tag = "1")]
    cumulative: u64,
    #[prost(double, tag = "2")]
    upper_bound: f64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Span {
    #[prost(sint32, tag = "1")]
    offset: i32,
    #[prost(uint32, tag = "2")]
    length: u32,
}

fn families(table: &Arc<Table>) -> Vec<MetricFamily> {
    let page = page(table, PROTOBUF);
    let mut rest = page.as_slice();
    let mut families = Vec::new();
    while !rest.is_empty() {
        families.push(MetricFamily::decode_length_delimited(&mut rest).unwrap());
    }
    families
}

fn exponential(temporality: i32, time: u64, point: ExponentialHistogramDataPoint) -> Vec<u8> {
    let data = ExponentialHistogram {
        data_points: vec![ExponentialHistogramDataPoint {
            time_unix_nano: time,
            ..point
        }],
        aggregation_temporality: temporality,
    };
    from(
        &[],
        "",
        vec![metric("e", "s", Data::ExponentialHistogram(data))],
    )
}

#[tokio::test]
async fn exponential_histograms_become_native_histograms() {
    let table = table(Config::default());
    let point = ExponentialHistogramDataPoint {
        start_time_unix_nano: 3_000_000_007,
        count: 12,
        sum: Some(30.0),
        scale: 1,
        zero_count: 2,
        positive: Some(Buckets {
            offset: -1,
            bucket_counts: vec![3, 0, 4],
        }),
        negative: Some(Buckets {
            offset: 4,
            bucket_counts: vec![3],
        }),
        ..ExponentialHistogramDataPoint::default()
    };
    take(&table, &exponential(DELTA, 4_000_000_000, point.clone()));
    take(&table, &exponential(DELTA, 5_000_000_000, point));
    let families = families(&table);
    let [family] = families.as_slice() else {
        panic!("{families:?}");
    };
    assert_eq!((family.name.as_str(), family.kind), ("e_seconds", 4));
    let histogram = family.metric[0].histogram.as_ref().unwrap();
    assert_eq!(
        (histogram.count, histogram.sum, histogram.schema),
        (24, 60.0, 1)
    );
    assert_eq!(
        (histogram.zero_count, histogram.zero_threshold),
        (4, 1e-128)
    );
    let span = |span: &Span| (span.offset, span.length);
    assert_eq!(
        histogram.positive_span.iter().map(span).collect::<Vec<_>>(),
        [(0, 3)]
    );
    assert_eq!(histogram.positive_delta, [6, -6, 8]);
    assert_eq!(
        histogram.negative_span.iter().map(span).collect::<Vec<_>>(),
        [(5, 1)]
    );
    assert_eq!(histogram.negative_delta, [6]);
    // The text formats only have its count and sum.
    assert_eq!(
        value(&table, "e_seconds_bucket{le=\"+Inf\"}").as_deref(),
        Some("24")
    );
    read(&text(&table), false).unwrap();
}

/// A page with such a histogram would be refused as a whole.
#[tokio::test]
async fn points_invalid_for_prometheus_are_rejected() {
    let table = table(Config::default());
    let with = |scale, offset, count| ExponentialHistogramDataPoint {
        scale,
        count,
        positive: Some(Buckets {
            offset,
            bucket_counts: vec![count],
        }),
        ..ExponentialHistogramDataPoint::default()
    };
    for (scale, offset, count) in [
        (-5, 0, 1),
        (21, 0, 1),
        (0, 2000, 1),
        (0, i32::MIN, 1),
        (0, 0, u64::MAX),
    ] {
        let request = exponential(CUMULATIVE, 1, with(scale, offset, count));
        assert_eq!(
            rejected(&table, &request, Rejection::Invalid),
            1,
            "{scale} {offset} {count}"
        );
    }
    take(&table, &exponential(CUMULATIVE, 1, with(20, 1 << 20, 1)));
    let histogram = families(&table)[0].metric[0].histogram.clone().unwrap();
    assert_eq!(
        (histogram.schema, histogram.positive_span[0].offset),
        (8, (1 << 8) + 1)
    );
    // The count is the sum of the buckets, regardless of the count in the request.
    let mut lying = with(0, 0, 1);
    lying.count = 7;
    take(&table, &exponential(CUMULATIVE, 2, lying));
    assert_eq!(
        families(&table)[0].metric[0]
            .histogram
            .as_ref()
            .unwrap()
            .count,
        1
    );
}

#[tokio::test]
async fn numbers_and_classic_histograms_are_there_too() {
    let table = table(Config::default());
    let mut counted = point(&[("a", "b")], 5_000_000_000, 7.0);
    counted.start_time_unix_nano = 1_000_000_002;
    let histogram = Histogram {
        data_points: vec![HistogramDataPoint {
            count: 3,
            sum: Some(2.0),
            bucket_counts: vec![1, 2],
            explicit_bounds: vec![1.0],
            ..HistogramDataPoint::default()
        }],
        aggregation_temporality: CUMULATIVE,
    };
    let mut counter = sum("c", CUMULATIVE, vec![counted]);
    counter.unit = "By".to_owned();
    take(
        &table,
        &request(vec![counter, metric("h", "", Data::Histogram(histogram))]),
    );
    let families = families(&table);
    let names: Vec<_> = families
        .iter()
        .map(|family| (family.name.as_str(), family.kind))
        .collect();
    assert_eq!(names, [("target_info", 1), ("c_bytes_total", 0), ("h", 4)]);
    assert_eq!(families[1].unit.as_deref(), Some("bytes"));
    let counter = families[1].metric[0].counter.as_ref().unwrap();
    let created = counter.created.unwrap();
    assert_eq!((counter.value, created.seconds, created.nanos), (7.0, 1, 2));
    let labels = families[1].metric[0].label.iter();
    let labels: Vec<_> = labels
        .map(|pair| (pair.name.as_str(), pair.value.as_str()))
        .collect();
    assert_eq!(labels, [("a", "b"), ("job", "shop"), ("instance", "a")]);
    let buckets = families[2].metric[0]
        .histogram
        .as_ref()
        .unwrap()
        .bucket
        .iter();
    let buckets: Vec<_> = buckets
        .map(|bucket| (bucket.upper_bound, bucket.cumulative))
        .collect();
    assert_eq!(buckets, [(1.0, 1), (f64::INFINITY, 3)]);
}

/// A message cannot be sent before its length is known, so a large family must not be buffered as a whole.
#[tokio::test]
async fn large_family_is_split_into_messages() {
    let table = table(Config::default());
    let long = "x".repeat(2000);
    let names: Vec<String> = (0..5000).map(|number| format!("{number}{long}")).collect();
    let points = names.iter().map(|name| point(&[("name", name)], 1, 1.0));
    take(&table, &from(&[], "", vec![gauge("g", points.collect())]));
    let families = families(&table);
    assert!(families.len() > 1);
    let series: usize = families.iter().map(|family| family.metric.len()).sum();
    assert_eq!(series, 5000);
}
