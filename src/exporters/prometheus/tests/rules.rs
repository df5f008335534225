//! Tests of the effect of each rule on points.

use super::*;

#[test]
fn reading_of_shared_large_resource_is_limited() {
    let scope = ScopeMetrics {
        metrics: vec![gauge("a", vec![point(&[], 1, 1.0)])],
        ..ScopeMetrics::default()
    };
    let request = ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(Resource {
                attributes: attributes(&[("large", &"x".repeat(1 << 20))]),
                ..Resource::default()
            }),
            scope_metrics: vec![scope; 200],
            ..ResourceMetrics::default()
        }],
    };
    let rejected = table(Config::default()).take(&request.encode_to_vec());
    // 64 for any request, and 16 for each of its bytes.
    assert!((119..=121).contains(&rejected.0[Rejection::NoRoom as usize]));
}

#[tokio::test]
async fn each_type_has_its_lines() {
    let table = table(Config::default());
    let resource = [
        ("service.name", "shop"),
        ("service.namespace", "eu"),
        ("service.instance.id", "a"),
        ("host.name", "h\"1\""),
    ];
    let histogram = Histogram {
        data_points: vec![HistogramDataPoint {
            time_unix_nano: 2,
            count: 6,
            sum: Some(7.5),
            bucket_counts: vec![1, 2, 3],
            explicit_bounds: vec![0.5, 1_000_000.0],
            ..HistogramDataPoint::default()
        }],
        aggregation_temporality: CUMULATIVE,
    };
    let summary = Summary {
        data_points: vec![SummaryDataPoint {
            time_unix_nano: 2,
            count: 3,
            sum: 4.5,
            quantile_values: vec![ValueAtQuantile {
                quantile: 0.99,
                value: 2.0,
            }],
            ..SummaryDataPoint::default()
        }],
    };
    let metrics = vec![
        sum(
            "http.requests",
            CUMULATIVE,
            vec![point(&[("http.method", "G\\ET")], 2, 5.0)],
        ),
        metric("latency", "s", Data::Histogram(histogram)),
        metric("pause", "ms", Data::Summary(summary)),
        metric(
            "memory",
            "By",
            Data::Gauge(Gauge {
                data_points: vec![point(&[], 2, 1.5e9)],
            }),
        ),
    ];
    take(&table, &from(&resource, "lib", metrics));
    let of = "otel_scope_name=\"lib\"";
    let shop = format!("job=\"eu/shop\",instance=\"a\",{of}");
    assert_eq!(
        text(&table),
        format!(
            "# HELP target_info Target metadata\n# TYPE target_info gauge\n\
             target_info{{job=\"eu/shop\",instance=\"a\",host_name=\"h\\\"1\\\"\"}} 1\n\
             # HELP http_requests_total What http.requests is\n# TYPE http_requests_total counter\n\
             http_requests_total{{http_method=\"G\\\\ET\",{shop}}} 5\n\
             # HELP latency_seconds What latency is\n# TYPE latency_seconds histogram\n\
             latency_seconds_bucket{{{shop},le=\"0.5\"}} 1\n\
             latency_seconds_bucket{{{shop},le=\"1e+06\"}} 3\n\
             latency_seconds_bucket{{{shop},le=\"+Inf\"}} 6\n\
             latency_seconds_sum{{{shop}}} 7.5\nlatency_seconds_count{{{shop}}} 6\n\
             # HELP memory_bytes What memory is\n# TYPE memory_bytes gauge\nmemory_bytes{{{shop}}} 1.5e+09\n\
             # HELP pause_milliseconds What pause is\n# TYPE pause_milliseconds summary\n\
             pause_milliseconds{{{shop},quantile=\"0.99\"}} 2\n\
             pause_milliseconds_sum{{{shop}}} 4.5\npause_milliseconds_count{{{shop}}} 3\n"
        )
    );
}

#[tokio::test]
async fn open_metrics_has_exemplars_units_and_an_end() {
    let table = table(Config::default());
    let mut counted = point(&[], 1_500_000_000, 5.0);
    counted.exemplars = vec![Exemplar {
        time_unix_nano: 1_250_000_000,
        trace_id: vec![0xab; 16],
        span_id: vec![0xcd; 8],
        value: Some(exemplar::Value::AsInt(2)),
        ..Exemplar::default()
    }];
    let mut io = sum("io", CUMULATIVE, vec![counted]);
    io.unit = "By".to_owned();
    take(&table, &from(&[], "", vec![io]));
    let (trace, span) = ("ab".repeat(16), "cd".repeat(8));
    assert_eq!(
        open_metrics(&table),
        format!(
            "# HELP io_bytes What io is\n# TYPE io_bytes counter\n# UNIT io_bytes bytes\n\
             io_bytes_total 5.0 # {{trace_id=\"{trace}\",span_id=\"{span}\"}} 2.0 1.250\n# EOF\n"
        )
    );
    let timed =
        String::from_utf8(page(&table, "application/openmetrics-text;timestamps=1")).unwrap();
    assert!(timed.contains("io_bytes_total 5.0 1.500 # {"), "{timed}");
    let timed = String::from_utf8(page(&table, "text/plain;timestamps=1")).unwrap();
    assert!(timed.ends_with("io_bytes_total 5 1500\n"), "{timed}");
}

/// In OpenMetrics a counter family may have the same name as a gauge, and a family may occur only once.
#[tokio::test]
async fn counter_and_gauge_of_one_name_are_both_exposed() {
    let table = table(Config::default());
    let metrics = vec![
        sum("jobs", CUMULATIVE, vec![point(&[], 2, 5.0)]),
        gauge("jobs", vec![point(&[], 2, 3.0)]),
    ];
    take(&table, &from(&[], "", metrics));
    let samples = read(&open_metrics(&table), true).unwrap();
    let names: Vec<_> = samples
        .iter()
        .map(|sample| (sample.name.as_str(), sample.value))
        .collect();
    assert_eq!(names, [("jobs", 3.0), ("jobs_total", 5.0)]);
    read(&text(&table), false).unwrap();
}

#[tokio::test]
async fn non_monotonic_sum_is_no_ratio() {
    let table = table(Config::default());
    let of = |name: &str, data| metric(name, "1", data);
    let up_down = || {
        Data::Sum(Sum {
            data_points: vec![point(&[], 1, 2.0)],
            aggregation_temporality: CUMULATIVE,
            is_monotonic: false,
        })
    };
    let level = || {
        Data::Gauge(Gauge {
            data_points: vec![point(&[], 1, 0.5)],
        })
    };
    let metrics = vec![
        of("updown", up_down()),
        of("load", level()),
        // One name with two types.
        of("both", up_down()),
        of("both", level()),
    ];
    take(&table, &from(&[], "", metrics));
    let page = text(&table);
    let shown = page.lines().filter(|line| line.starts_with("# TYPE "));
    let shown: Vec<&str> = shown.filter(|line| !line.contains("target_info")).collect();
    assert_eq!(
        shown,
        [
            "# TYPE both gauge",
            "# TYPE both_ratio gauge",
            "# TYPE load_ratio gauge",
            "# TYPE updown gauge",
        ]
    );
}

#[tokio::test]
async fn deltas_are_summed_without_duplicates() {
    let table = table(Config::default());
    let delta = |start, time, value| {
        let mut point = point(&[], time, value);
        point.start_time_unix_nano = start;
        from(&[], "", vec![sum("jobs", DELTA, vec![point])])
    };
    take(&table, &delta(10, 20, 3.0));
    take(&table, &delta(20, 30, 4.0));
    // The response was lost, and the sender retries.
    assert_eq!(
        rejected(&table, &delta(20, 30, 4.0), Rejection::OutOfOrder),
        1
    );
    // Some time is missing.
    take(&table, &delta(50, 60, 5.0));
    assert_eq!(value(&table, "jobs_total").as_deref(), Some("12"));
    // A late delta counts, and counts once.
    take(&table, &delta(30, 50, 6.0));
    assert_eq!(value(&table, "jobs_total").as_deref(), Some("18"));
    for (start, end) in [(30, 50), (50, 60), (20, 30), (10, 20)] {
        let again = delta(start, end, 7.0);
        assert_eq!(rejected(&table, &again, Rejection::OutOfOrder), 1);
    }
    assert_eq!(
        rejected(&table, &delta(60, 70, -1.0), Rejection::Invalid),
        1
    );
}

#[tokio::test]
async fn delta_histograms_are_added_up_bucket_by_bucket() {
    let table = table(Config::default());
    let delta = |time, bounds: &[f64], counts: &[u64]| {
        let data = Histogram {
            data_points: vec![HistogramDataPoint {
                time_unix_nano: time,
                count: counts.iter().sum(),
                sum: Some(1.0),
                bucket_counts: counts.to_vec(),
                explicit_bounds: bounds.to_vec(),
                ..HistogramDataPoint::default()
            }],
            aggregation_temporality: DELTA,
        };
        from(&[], "", vec![metric("h", "", Data::Histogram(data))])
    };
    take(&table, &delta(1, &[1.0, 2.0], &[1, 2, 3]));
    take(&table, &delta(2, &[1.0, 2.0], &[10, 20, 30]));
    let bucket = |le| value(&table, &format!("h_bucket{{le=\"{le}\"}}"));
    assert_eq!(bucket("1").as_deref(), Some("11"));
    assert_eq!(bucket("+Inf").as_deref(), Some("66"));
    assert_eq!(value(&table, "h_sum").as_deref(), Some("2"));
    // Deltas with other buckets cannot be added.
    take(&table, &delta(4, &[5.0], &[1, 1]));
    assert_eq!(bucket("5").as_deref(), Some("1"));
    assert_eq!(value(&table, "h_count").as_deref(), Some("2"));
    // A late delta does not restart a newer series.
    let late = delta(3, &[1.0, 2.0], &[1, 2, 3]);
    assert_eq!(rejected(&table, &late, Rejection::OutOfOrder), 1);
    assert_eq!(value(&table, "h_count").as_deref(), Some("2"));
    for (bounds, counts) in [
        (&[1.0][..], &[1][..]),
        (&[2.0, 1.0], &[1, 1, 1]),
        (&[f64::NAN], &[1, 1]),
    ] {
        assert_eq!(
            rejected(&table, &delta(5, bounds, counts), Rejection::Invalid),
            1
        );
    }
}

#[tokio::test]
async fn newest_value_wins_and_ended_series_is_removed() {
    let table = table(Config::default());
    let send = |time, value| from(&[], "", vec![gauge("g", vec![point(&[], time, value)])]);
    take(&table, &send(10, 1.0));
    take(&table, &send(20, 2.0));
    assert_eq!(rejected(&table, &send(15, 9.0), Rejection::OutOfOrder), 1);
    assert_eq!(value(&table, "g").as_deref(), Some("2"));
    let mut end = point(&[], 30, 0.0);
    (end.flags, end.value) = (1, None);
    take(&table, &from(&[], "", vec![gauge("g", vec![end])]));
    assert_eq!(text(&table), "");
    take(&table, &send(5, 3.0));
    assert_eq!(value(&table, "g").as_deref(), Some("3"));
}

#[tokio::test]
async fn sum_without_temporality_is_rejected() {
    let table = table(Config::default());
    let points = vec![point(&[], 1, 1.0), point(&[("a", "b")], 1, 1.0)];
    let request = from(&[], "", vec![sum("s", 0, points)]);
    assert_eq!(rejected(&table, &request, Rejection::Invalid), 2);
}

#[tokio::test]
async fn first_of_two_types_keeps_the_name() {
    let table = table(Config::default());
    let histogram = Histogram {
        data_points: vec![HistogramDataPoint::default()],
        aggregation_temporality: CUMULATIVE,
    };
    let histogram = metric("h", "", Data::Histogram(histogram));
    take(
        &table,
        &from(
            &[],
            "",
            vec![gauge("a.b", vec![point(&[], 1, 1.0)]), histogram],
        ),
    );
    for name in ["a_b", "h"] {
        let mut metric = sum(name, CUMULATIVE, vec![point(&[], 1, 1.0)]);
        if let Some(Data::Sum(sum)) = &mut metric.data {
            sum.is_monotonic = name == "a_b";
        }
        metric.name = if name == "a_b" {
            "a.b".to_owned()
        } else {
            "h_count".to_owned()
        };
        let conflict = table.take(&from(&[], "", vec![metric]));
        // A counter `a_b_total` is another name.
        let expected = usize::from(name == "h");
        assert_eq!(conflict.0[Rejection::Conflict as usize], expected, "{name}");
    }
    let mut untyped = gauge("a-b", vec![point(&[], 1, 7.0)]);
    untyped.metadata = attributes(&[("prometheus.type", "unknown")]);
    assert_eq!(
        rejected(&table, &from(&[], "", vec![untyped]), Rejection::Conflict),
        1
    );
    let target = gauge("target_info", vec![point(&[], 1, 1.0)]);
    assert_eq!(
        rejected(&table, &from(&[], "", vec![target]), Rejection::Conflict),
        1
    );
    read(&text(&table), false).unwrap();
}

#[tokio::test]
async fn labels_of_any_origin_identify_one_series() {
    let table = table(Config::default());
    let of_resource = from(
        &[("service.name", "x")],
        "",
        vec![gauge("g", vec![point(&[], 1, 1.0)])],
    );
    let of_point = from(
        &[],
        "",
        vec![gauge("g", vec![point(&[("job", "x")], 2, 2.0)])],
    );
    take(&table, &of_resource);
    take(&table, &of_point);
    let text = text(&table);
    assert_eq!(read(&text, false).unwrap().len(), 1, "{text}");
    assert!(text.ends_with("g{job=\"x\"} 2\n"), "{text}");
}

#[tokio::test]
async fn colliding_labels_are_joined_or_renamed() {
    let config = Config {
        const_labels: [("zone".to_owned(), "z1".to_owned())].into(),
        ..Config::default()
    };
    let table = table(config);
    let labels = [
        ("b.c", "2"),
        ("b-c", "1"),
        ("job", "theirs"),
        ("zone", "z2"),
        ("empty", ""),
        ("__name__", "n"),
    ];
    let resource = [("service.name", "ours")];
    take(
        &table,
        &from(
            &resource,
            "",
            vec![gauge("g", vec![point(&labels, 1, 1.0)])],
        ),
    );
    let samples = read(&text(&table), false).unwrap();
    let [Sample { labels, .. }] = samples.as_slice() else {
        panic!("{samples:?}");
    };
    let labels: Vec<_> = labels
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    assert_eq!(
        labels,
        [
            ("b_c", "1;2"),
            ("exported___name__", "n"),
            ("exported_job", "theirs"),
            ("exported_zone", "z2"),
            ("job", "ours"),
            ("zone", "z1"),
        ]
    );
}

#[tokio::test]
async fn names_are_quoted_only_for_utf8_clients() {
    let config = Config {
        translation_strategy: Some(Strategy::NoTranslation),
        ..Config::default()
    };
    let table = table(config);
    take(
        &table,
        &from(
            &[],
            "",
            vec![gauge("a.b", vec![point(&[("c.d", "1")], 1, 1.0)])],
        ),
    );
    assert!(text(&table).ends_with("a_b{c_d=\"1\"} 1\n"));
    let quoted = page(&table, "text/plain;version=1.0.0;escaping=allow-utf-8");
    let quoted = String::from_utf8(quoted).unwrap();
    assert_eq!(
        quoted,
        "# HELP \"a.b\" What a.b is\n# TYPE \"a.b\" gauge\n{\"a.b\",\"c.d\"=\"1\"} 1\n"
    );
    read(&quoted, false).unwrap();
}

#[tokio::test(start_paused = true)]
async fn series_expire_without_scrapes() {
    let table = table(Config {
        max_series: 2,
        ..Config::default()
    });
    let send = |label| {
        from(
            &[],
            "",
            vec![gauge("g", vec![point(&[("l", label)], 0, 1.0)])],
        )
    };
    take(&table, &send("a"));
    tokio::time::advance(Duration::from_secs(200)).await;
    take(&table, &send("b"));
    assert_eq!(rejected(&table, &send("c"), Rejection::NoRoom), 1);
    tokio::time::advance(Duration::from_secs(101)).await;
    // The stale series is not exposed even before it is removed.
    assert_eq!(read(&text(&table), false).unwrap().len(), 1);
    table.expire();
    take(&table, &send("c"));
    tokio::time::advance(Duration::from_secs(600)).await;
    table.expire();
    assert!(table.families().0.is_empty());
    // Another type may have the name now.
    let again = sum("g_total", CUMULATIVE, vec![point(&[], 0, 1.0)]);
    take(
        &table,
        &from(&[], "", vec![again, gauge("g", vec![point(&[], 0, 1.0)])]),
    );
}

#[tokio::test(start_paused = true)]
async fn all_memory_returns_to_the_budget() {
    let cx = context("prometheus");
    let table = Arc::new(Table::new(&Config::default(), &cx));
    let points = (0..5000).map(|number| point(&[("number", &number.to_string())], 0, 1.0));
    take(&table, &request(vec![gauge("g", points.collect())]));
    assert!(cx.budget.used() >= 5000 * 100);
    tokio::time::advance(Duration::from_secs(400)).await;
    table.expire();
    assert_eq!(cx.budget.used(), 0);
}

#[tokio::test]
async fn new_series_are_refused_without_memory() {
    let cx = context("prometheus");
    let table = Arc::new(Table::new(&Config::default(), &cx));
    take(&table, &request(vec![gauge("g", vec![point(&[], 1, 1.0)])]));
    let rest = cx
        .budget
        .acquire(cx.budget.limit() - cx.budget.used())
        .unwrap();
    let points = (0..5000).map(|number| point(&[("number", &number.to_string())], 1, 1.0));
    let request = request(vec![gauge(
        "g",
        [point(&[], 2, 2.0)].into_iter().chain(points).collect(),
    )]);
    let count = rejected(&table, &request, Rejection::NoRoom);
    assert!((1..=5000).contains(&count), "{count}");
    assert_eq!(
        value(&table, "g{job=\"shop\",instance=\"a\"}").as_deref(),
        Some("2")
    );
    drop(rest);
}

/// A histogram of so many buckets.
fn buckets(temporality: i32, time: u64, count: u64) -> Vec<u8> {
    let data = Histogram {
        data_points: vec![HistogramDataPoint {
            time_unix_nano: time,
            count,
            sum: Some(1.0),
            bucket_counts: (0..count).map(|_| 1).collect(),
            explicit_bounds: (1..count).map(|bound| bound as f64).collect(),
            ..HistogramDataPoint::default()
        }],
        aggregation_temporality: temporality,
    };
    from(&[], "", vec![metric("h", "", Data::Histogram(data))])
}

#[tokio::test]
async fn existing_series_does_not_exceed_limit() {
    for temporality in [DELTA, CUMULATIVE] {
        let table = table(Config {
            max_series: 6,
            ..Config::default()
        });
        take(&table, &buckets(temporality, 1, 4));
        let grown = buckets(temporality, 2, 5);
        assert_eq!(rejected(&table, &grown, Rejection::NoRoom), 1);
        assert_eq!(value(&table, "h_count").as_deref(), Some("4"));
        take(&table, &buckets(temporality, 3, 2));
        take(&table, &buckets(temporality, 4, 4));
    }
}

#[tokio::test]
async fn table_stays_within_half_of_budget() {
    const LIMIT: usize = 1 << 20;
    let cx = context("prometheus");
    cx.budget.set_limit(LIMIT);
    let table = Arc::new(Table::new(&Config::default(), &cx));
    let points = (0..5000).map(|number| point(&[("number", &number.to_string())], 1, 1.0));
    let series = from(&[], "", vec![gauge("g", points.collect())]);
    assert!(rejected(&table, &series, Rejection::NoRoom) > 100);
    assert!(cx.budget.used() > LIMIT / 3);
    // Names count as memory, and so does the growth of an existing series.
    let named = |number: u64| {
        let key = format!("{number}{}", "x".repeat(1000));
        point(&[(key.as_str(), "1")], number, 1.0)
    };
    let names = from(&[], "", vec![gauge("g", (1..1000).map(named).collect())]);
    assert!(rejected(&table, &names, Rejection::NoRoom) > 900);
    take(
        &table,
        &from(
            &[],
            "",
            vec![gauge("g", vec![point(&[("number", "1")], 2, 2.0)])],
        ),
    );
    let used = cx.budget.used();
    assert!(used <= LIMIT / 2 + (64 << 10), "{used}");
}

#[tokio::test]
async fn key_too_long_for_label_is_invalid() {
    let table = table(Config::default());
    let point = |length| point(&[("x".repeat(length).as_str(), "1")], 1, 1.0);
    let request = from(&[], "", vec![gauge("g", vec![point(1024), point(1025)])]);
    assert_eq!(rejected(&table, &request, Rejection::Invalid), 1);
}

#[tokio::test(start_paused = true)]
async fn aliases_of_a_metric_take_little_memory() {
    let cx = context("prometheus");
    let table = Arc::new(Table::new(&Config::default(), &cx));
    let spelled = |number: u64| {
        let dots = (0..12).map(|bit| if number >> bit & 1 == 1 { '.' } else { '-' });
        format!("a{}b", dots.collect::<String>())
    };
    for number in 0..4096 {
        let metric = gauge(&spelled(number), vec![point(&[], number, number as f64)]);
        take(&table, &from(&[], "", vec![metric]));
    }
    assert_eq!(value(&table, "a_b").as_deref(), Some("4095"));
    assert!(cx.budget.used() <= 64 << 10, "{}", cx.budget.used());
    tokio::time::advance(Duration::from_secs(400)).await;
    table.expire();
    assert_eq!(cx.budget.used(), 0);
}

#[tokio::test(start_paused = true)]
async fn slots_of_burst_of_series_are_released() {
    let table = table(Config::default());
    let points = |from: u64, to: u64| {
        let points = (from..to).map(|number| point(&[("number", &number.to_string())], 0, 1.0));
        vec![gauge("g", points.collect())]
    };
    take(&table, &from(&[], "", points(0, 5000)));
    tokio::time::advance(Duration::from_secs(200)).await;
    take(&table, &from(&[], "", points(0, 10)));
    tokio::time::advance(Duration::from_secs(200)).await;
    table.expire();
    assert_eq!(table.families().0[0].lock().len(), 10);
    take(&table, &from(&[], "", points(0, 20)));
    assert_eq!(read(&text(&table), false).unwrap().len(), 20);
}

#[tokio::test]
async fn target_has_labels_of_newest_resource() {
    let table = table(Config::default());
    let from_host = |host, time| {
        let resource = [
            ("service.name", "shop"),
            ("service.instance.id", "a"),
            ("host.name", host),
        ];
        from(
            &resource,
            "",
            vec![gauge("g", vec![point(&[], time, time as f64)])],
        )
    };
    take(&table, &from_host("one", 1));
    take(&table, &from_host("other", 2));
    let page = text(&table);
    assert!(
        page.contains("host_name=\"other\"") && !page.contains("one"),
        "{page}"
    );
    assert!(
        page.ends_with("g{job=\"shop\",instance=\"a\"} 2\n"),
        "{page}"
    );
}

#[tokio::test]
async fn open_metrics_omits_falling_sums_and_negative_counters() {
    let table = table(Config::default());
    let histogram = |name: &str, bound: f64, sum| {
        let data = Histogram {
            data_points: vec![HistogramDataPoint {
                count: 3,
                sum,
                bucket_counts: vec![1, 2],
                explicit_bounds: vec![bound],
                ..HistogramDataPoint::default()
            }],
            aggregation_temporality: CUMULATIVE,
        };
        metric(name, "", Data::Histogram(data))
    };
    let metrics = vec![
        histogram("below", -1.0, Some(5.0)),
        histogram("none", 1.0, None),
        histogram("whole", 1.0, Some(5.0)),
        sum("negative", CUMULATIVE, vec![point(&[], 1, -1.0)]),
        sum("not_a_number", CUMULATIVE, vec![point(&[], 1, f64::NAN)]),
    ];
    take(&table, &from(&[], "", metrics));
    let samples = read(&open_metrics(&table), true).unwrap();
    let names = samples.iter().map(|sample| sample.name.as_str());
    let names: Vec<&str> = names.filter(|name| !name.ends_with("_bucket")).collect();
    assert_eq!(names, ["whole_sum", "whole_count"]);
    // The older format exposes all samples.
    let text = text(&table);
    for line in [
        "below_sum 5",
        "below_count 3",
        "none_count 3",
        "negative_total -1",
        "not_a_number_total NaN",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
}

#[tokio::test]
async fn label_equal_to_name_is_renamed() {
    let table = table(Config {
        translation_strategy: Some(Strategy::NoTranslation),
        ..Config::default()
    });
    let labels = [(".-name..", "1")];
    let resource = [("service.name", "shop")];
    take(
        &table,
        &from(
            &resource,
            "",
            vec![gauge("g", vec![point(&labels, 1, 1.0)])],
        ),
    );
    let text = text(&table);
    assert!(text.contains("g{exported___name__=\"1\","), "{text}");
}

/// A series that moves to another slot while a page is written occurs at most once on the page.
#[tokio::test]
async fn page_is_consistent_while_series_change() {
    let table = table(Config::default());
    let name = |number: usize| format!("{number}{}", "-".repeat(100));
    let points = (0..2000).map(|number| point(&[("number", &name(number))], 1, 1.0));
    take(&table, &from(&[], "", vec![gauge("g", points.collect())]));
    let mut page = page::Page::new(table.clone(), Format::TEXT, false, false);
    let mut whole = page.chunk().unwrap().to_vec();
    let ended = |number: usize| {
        let mut point = point(&[("number", &name(number))], 2, 0.0);
        (point.flags, point.value) = (1, None);
        point
    };
    // The last series is removed, and the first series are removed and added again in its slot.
    take(
        &table,
        &from(
            &[],
            "",
            vec![gauge("g", (0..3).map(ended).chain([ended(1999)]).collect())],
        ),
    );
    let again = (0..3).map(|number| point(&[("number", &name(number))], 3, 1.0));
    take(&table, &from(&[], "", vec![gauge("g", again.collect())]));
    while let Some(chunk) = page.chunk() {
        whole.extend_from_slice(&chunk);
    }
    let samples = read(std::str::from_utf8(&whole).unwrap(), false).unwrap();
    assert_eq!(samples.len(), 1999);
}

#[tokio::test]
async fn rejected_points_are_counted_and_rest_is_delivered() {
    let recorded = Recorded::new();
    let config = Config {
        endpoint: tributary_config::Endpoint("127.0.0.1:0".to_owned()),
        max_series: 1,
        ..Config::default()
    };
    let exporter = recorded.within(|| {
        config
            .build(&context("prometheus"), &[Signal::Metrics])
            .unwrap()
    });
    let points = vec![point(&[], 1, 1.0), point(&[("a", "b")], 1, 1.0)];
    let batch = Batch::new(
        Signal::Metrics,
        2,
        bytes::Bytes::from(request(vec![gauge("g", points)])),
    );
    let input = exporter.inputs.get(Signal::Metrics).unwrap();
    input.consume(batch).await.unwrap();
    for (outcome, items) in [
        ("received", 2),
        ("delivered", 1),
        ("dropped", 1),
        ("refused", 0),
    ] {
        assert_eq!(recorded.items(outcome, Signal::Metrics), items, "{outcome}");
    }
    // The series are exposed before any has expired.
    assert_eq!(recorded.sum("tributary_exporter_prometheus_series"), 1.0);
    assert!(recorded.sum("tributary_exporter_prometheus_memory_bytes") > 0.0);
}
