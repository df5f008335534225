//! The page is valid for any input.

use proptest::prelude::*;
use proptest::strategy::Strategy;

use super::metric as metric_of;
use super::*;

/// Keys and names that collide in all possible ways.
const WORDS: [&str; 12] = [
    "a.b",
    "a_b",
    "a-b",
    "job",
    "le",
    "quantile",
    "__name__",
    "instance",
    "",
    "1x",
    "\u{e4}\"\\\n",
    "zone",
];
const NAMES: [&str; 8] = [
    "a.b",
    "a_b",
    "a_b_total",
    "a",
    "a_b_count",
    "a_b_bucket",
    "target_info",
    "\u{e4}\n",
];

fn pairs() -> impl Strategy<Value = Vec<KeyValue>> + Clone {
    let pair = (0..WORDS.len(), 0..WORDS.len());
    let pair = pair.prop_map(|(key, value)| attributes(&[(WORDS[key], WORDS[value])]).remove(0));
    prop::collection::vec(pair, 0..4)
}

fn number() -> impl Strategy<Value = f64> + Clone {
    prop_oneof![
        any::<f64>(),
        Just(f64::NAN),
        Just(0.0),
        Just(f64::INFINITY),
        -3.0..3.0
    ]
}

fn data() -> impl Strategy<Value = Data> {
    let common = (pairs(), 0..5_u64, 0..4_u64, 0..2_u32);
    let numbers = (common.clone(), number(), any::<bool>()).prop_map(
        |((attributes, start, time, flags), value, int)| NumberDataPoint {
            attributes,
            start_time_unix_nano: start,
            time_unix_nano: time,
            flags,
            value: Some(if int {
                Number::AsInt(value as i64)
            } else {
                Number::AsDouble(value)
            }),
            exemplars: vec![exemplar(value)],
        },
    );
    let numbers = prop::collection::vec(numbers, 0..4);
    let small = prop::collection::vec(0..5_u64, 0..4);
    let histograms = (
        common.clone(),
        small.clone(),
        prop::collection::vec(number(), 0..4),
    )
        .prop_map(|((attributes, start, time, flags), counts, mut bounds)| {
            bounds.sort_by(f64::total_cmp);
            HistogramDataPoint {
                attributes,
                start_time_unix_nano: start,
                time_unix_nano: time,
                flags,
                count: counts.iter().sum(),
                sum: bounds.first().copied(),
                exemplars: bounds.iter().map(|bound| exemplar(*bound)).collect(),
                bucket_counts: counts,
                explicit_bounds: bounds,
                ..HistogramDataPoint::default()
            }
        });
    let histograms = prop::collection::vec(histograms, 0..3);
    let side = (-5000..5000_i32, small).prop_map(|(offset, bucket_counts)| Buckets {
        offset,
        bucket_counts,
    });
    let exponentials = (common.clone(), -5..21_i32, side.clone(), side, number()).prop_map(
        |((attributes, start, time, flags), scale, positive, negative, sum)| {
            ExponentialHistogramDataPoint {
                attributes,
                start_time_unix_nano: start,
                time_unix_nano: time,
                flags,
                scale,
                count: 3,
                sum: Some(sum),
                zero_threshold: sum,
                positive: Some(positive),
                negative: Some(negative),
                ..ExponentialHistogramDataPoint::default()
            }
        },
    );
    let exponentials = prop::collection::vec(exponentials, 0..3);
    let quantile =
        (number(), number()).prop_map(|(quantile, value)| ValueAtQuantile { quantile, value });
    let summaries = (common, prop::collection::vec(quantile, 0..3)).prop_map(
        |((attributes, start, time, flags), quantile_values)| SummaryDataPoint {
            attributes,
            start_time_unix_nano: start,
            time_unix_nano: time,
            flags,
            quantile_values,
            ..SummaryDataPoint::default()
        },
    );
    let summaries = prop::collection::vec(summaries, 0..3);
    prop_oneof![
        numbers
            .clone()
            .prop_map(|data_points| Data::Gauge(Gauge { data_points })),
        (numbers, 0..3_i32, any::<bool>()).prop_map(
            |(data_points, aggregation_temporality, is_monotonic)| {
                Data::Sum(Sum {
                    data_points,
                    aggregation_temporality,
                    is_monotonic,
                })
            }
        ),
        (histograms, 0..3_i32).prop_map(|(data_points, aggregation_temporality)| {
            Data::Histogram(Histogram {
                data_points,
                aggregation_temporality,
            })
        }),
        (exponentials, 0..3_i32).prop_map(|(data_points, aggregation_temporality)| {
            Data::ExponentialHistogram(ExponentialHistogram {
                data_points,
                aggregation_temporality,
            })
        }),
        summaries.prop_map(|data_points| Data::Summary(Summary { data_points })),
    ]
}

fn exemplar(value: f64) -> Exemplar {
    Exemplar {
        time_unix_nano: 7,
        value: Some(exemplar::Value::AsDouble(value)),
        trace_id: vec![1; 16],
        ..Exemplar::default()
    }
}

fn requests() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let metric = (
        0..NAMES.len(),
        prop::sample::select(vec!["", "1", "s", "By/s"]),
        data(),
    );
    let metrics = metric.prop_map(|(name, unit, data)| metric_of(NAMES[name], unit, data));
    let request = (
        pairs(),
        0..WORDS.len(),
        prop::collection::vec(metrics, 0..6),
        any::<bool>(),
    );
    let request = request.prop_map(|(pairs, scope, metrics, named)| {
        let mut resource: Vec<(String, String)> = Vec::new();
        for pair in pairs {
            resource.push((pair.key, "v".to_owned()));
        }
        if named {
            resource.push(("service.name".to_owned(), "n".to_owned()));
            resource.push(("service.instance.id".to_owned(), "i".to_owned()));
        }
        let resource: Vec<_> = resource
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect();
        from(&resource, WORDS[scope], metrics)
    });
    prop::collection::vec(request, 1..5)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]
    #[test]
    fn any_metrics_make_a_valid_page(
        requests in requests(),
        strategy in prop::sample::select(vec![
            super::super::Strategy::UnderscoreEscapingWithSuffixes,
            super::super::Strategy::UnderscoreEscapingWithoutSuffixes,
            super::super::Strategy::NoUTF8EscapingWithSuffixes,
            super::super::Strategy::NoTranslation,
        ]),
        converted: bool,
    ) {
        let mut config = Config {
            translation_strategy: Some(strategy),
            const_labels: [("zone".to_owned(), "z".to_owned())].into(),
            ..Config::default()
        };
        config.resource_to_telemetry_conversion.enabled = converted;
        let table = table(config);
        for request in &requests {
            table.take(request);
        }
        let read = |accept: &str| {
            let page = String::from_utf8(page(&table, accept)).unwrap();
            let samples = read(&page, accept.contains("openmetrics"));
            prop_assert!(samples.is_ok(), "{:?}\n{page}", samples);
            Ok(samples.unwrap().len())
        };
        let count = read(TEXT)?;
        let utf8 = ";escaping=allow-utf-8";
        prop_assert_eq!(read(&format!("{TEXT}{utf8}"))?, count);
        // The format leaves out samples that it cannot represent.
        let fewer = read(OPEN_METRICS)?;
        prop_assert!(fewer <= count);
        prop_assert_eq!(read(&format!("{OPEN_METRICS}{utf8}"))?, fewer);
        // The budget counts all memory, which is released at the end.
        let again = table.take(&requests[0]);
        prop_assert!(again.total() <= 100);
    }
}
