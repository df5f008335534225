//! Scrapes of pages without HTTP.

mod golden;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use prost::Message as _;

use super::cache::Cache;
use super::config::Config;
use super::page::{Counts, PageReader};
use super::scrape::{ReceivedPage, Scraped, Scraper};
use super::settings::JobSettings;
use super::target::ScrapeTarget;
use super::transaction::Transaction;
use crate::receivers::scraping::found::Found;
use crate::serving::body::ReceivedBytes;
use tributary_config::{Problems, Validate};
use tributary_memory::{Budget, Permit};
use tributary_prometheus::ExpositionFormat;

/// Creates the scraper of the first target of a configuration.
fn scraper(config: &str, budget: &Arc<Budget>) -> Scraper {
    let config: Config = serde_yaml::from_str(config).unwrap();
    let job = &config.config.scrape_configs[0];
    let settings = Arc::new(JobSettings::new(&config, job).unwrap());
    let group = &job.static_configs[0];
    let found = Found {
        address: group.targets[0].clone(),
        name: None,
        labels: group.labels.clone(),
    };
    let target = ScrapeTarget::new(&found, &settings).unwrap().unwrap();
    Scraper::new(target, settings, budget.clone())
}

const SIMPLE: &str =
    "config: {scrape_configs: [{job_name: j, static_configs: [{targets: ['h:1']}]}]}";

/// Scrapes a page at a time in seconds.
fn scrape(
    scraper: &mut Scraper,
    budget: &Arc<Budget>,
    content_type: &str,
    page: &[u8],
    time: i64,
) -> Scraped {
    let page = ReceivedPage {
        held: ReceivedBytes {
            bytes: Bytes::copy_from_slice(page),
            permit: budget.empty_permit(),
        },
        content_type: content_type.to_owned(),
        is_compressed: false,
    };
    scraper.scrape(Ok(page), time * 1000, Duration::ZERO)
}

/// Returns the flags of the points of the histogram `h`.
fn flags_of_h(request: &[u8]) -> Vec<u32> {
    use opentelemetry_proto::tonic::metrics::v1::metric::Data;
    let request = ExportMetricsServiceRequest::decode(request).unwrap();
    let scopes = request
        .resource_metrics
        .into_iter()
        .flat_map(|resource| resource.scope_metrics);
    let metrics = scopes.flat_map(|scope| scope.metrics);
    let histograms = metrics.filter_map(|metric| match metric.data {
        Some(Data::Histogram(histogram)) if metric.name == "h" => Some(histogram),
        _ => None,
    });
    let points = histograms.flat_map(|histogram| histogram.data_points);
    points.map(|point| point.flags).collect()
}

/// Returns the names and numbers of the points of a scrape; `None` for ends of series.
fn numbers(scraped: Scraped) -> Vec<(String, Option<f64>)> {
    use opentelemetry_proto::tonic::metrics::v1::{metric::Data, number_data_point::Value};
    let (encoded, _permit) = scraped.request.unwrap();
    let request = ExportMetricsServiceRequest::decode(&*encoded.request).unwrap();
    let scopes = request
        .resource_metrics
        .into_iter()
        .flat_map(|resource| resource.scope_metrics);
    let metrics = scopes.flat_map(|scope| scope.metrics);
    let mut numbers = Vec::new();
    for metric in metrics {
        let points = match metric.data {
            Some(Data::Gauge(gauge)) => gauge.data_points,
            Some(Data::Sum(sum)) => sum.data_points,
            _ => Vec::new(),
        };
        for point in points {
            let value = point.value.map(|value| match value {
                Value::AsDouble(value) => value,
                Value::AsInt(value) => value as f64,
            });
            numbers.push((metric.name.clone(), value));
        }
    }
    numbers
}

fn number(numbers: &[(String, Option<f64>)], name: &str) -> Option<f64> {
    let mut found = numbers.iter().filter(|(other, _)| other == name);
    found.next().and_then(|(_, value)| *value)
}

#[test]
fn malformed_page_names_line_and_ends_series() {
    let budget = Budget::new(1 << 20);
    let mut scraper = scraper(SIMPLE, &budget);
    let first = scrape(&mut scraper, &budget, "text/plain", b"a 1\nb 2\n", 1);
    assert_eq!(number(&numbers(first), "up"), Some(1.0));
    let second = scrape(&mut scraper, &budget, "text/plain", b"a 1\nb{c=\"d} 2\n", 2);
    let reason = second.failure.as_ref().unwrap().to_string();
    assert_eq!(
        reason,
        "the page is malformed: line 2: a quoted text has no closing quote"
    );
    let second = numbers(second);
    assert_eq!(number(&second, "up"), Some(0.0));
    for name in ["a", "b"] {
        assert!(second.contains(&(name.to_owned(), None)), "{second:?}");
    }
}

#[test]
fn vanished_target_ends_all_series() {
    let budget = Budget::new(1 << 20);
    let mut scraper = scraper(SIMPLE, &budget);
    let page = b"# TYPE h histogram\nh_bucket{le=\"+Inf\"} 1\nh_count 1\nh_sum 1\na 1\n";
    scrape(&mut scraper, &budget, "text/plain", page, 1);
    let request = scraper.vanish(3000);
    let flags = flags_of_h(&request.as_ref().unwrap().0.request);
    assert_eq!(flags, [1], "the histogram must have no recorded value");
    let ended = numbers(Scraped {
        request,
        failure: None,
    });
    let names: Vec<&str> = ended.iter().map(|(name, _)| name.as_str()).collect();
    assert!(ended.iter().all(|(_, value)| value.is_none()), "{ended:?}");
    assert!(names.contains(&"a") && names.contains(&"up"), "{names:?}");
}

/// Returns the names of the metrics of a resource with this `service.name`.
fn metrics_of(scraped: Scraped, service: &str) -> Vec<String> {
    use opentelemetry_proto::tonic::common::v1::any_value::Value;
    let (encoded, _permit) = scraped.request.unwrap();
    let request = ExportMetricsServiceRequest::decode(&*encoded.request).unwrap();
    let mut metrics = Vec::new();
    for of_resource in request.resource_metrics {
        let attributes = of_resource.resource.unwrap_or_default().attributes;
        let is_of_service = attributes.into_iter().any(|attribute| {
            attribute.key == "service.name"
                && attribute.value.and_then(|value| value.value)
                    == Some(Value::StringValue(service.to_owned()))
        });
        if is_of_service {
            let scopes = of_resource.scope_metrics.into_iter();
            let all = scopes.flat_map(|scope| scope.metrics);
            metrics.extend(all.map(|metric| metric.name));
        }
    }
    metrics
}

#[test]
fn honored_origin_of_a_series_is_not_that_of_others() {
    let budget = Budget::new(1 << 20);
    let config = "config: {scrape_configs: [{job_name: j, honor_labels: true, static_configs: [{targets: ['h:1']}]}]}";
    let page = b"a{job=\"x\",instance=\"y\"} 1\nb 2\n";
    let scraped = |service: &str| {
        let mut scraper = scraper(config, &budget);
        let scraped = scrape(&mut scraper, &budget, "text/plain", page, 1);
        metrics_of(scraped, service)
    };
    assert_eq!(scraped("x"), ["a"]);
    let own = scraped("j");
    assert!(own.iter().any(|name| name == "b"), "{own:?}");
    assert!(own.iter().any(|name| name == "up"), "{own:?}");
}

#[test]
fn page_beyond_a_limit_is_dropped_with_its_key() {
    for (limit, page, key) in [
        ("sample_limit: 1", "a 1\nb 2\n", "`sample_limit` 1"),
        (
            "label_limit: 3",
            "a{b=\"c\",d=\"e\"} 1\n",
            "`label_limit` 3",
        ),
        (
            "label_name_length_limit: 8",
            "a{very_long=\"c\"} 1\n",
            "`label_name_length_limit` 8",
        ),
        (
            "label_value_length_limit: 5",
            "a{b=\"too long\"} 1\n",
            "`label_value_length_limit` 5",
        ),
        (
            "metric_name_validation_scheme: legacy",
            "{\"a.b\"} 1\n",
            "legacy` allows",
        ),
    ] {
        let config = format!(
            "config: {{scrape_configs: [{{job_name: j, {limit}, static_configs: [{{targets: ['h:1']}}]}}]}}"
        );
        let budget = Budget::new(1 << 20);
        let mut scraper = scraper(&config, &budget);
        let scraped = scrape(&mut scraper, &budget, "text/plain", page.as_bytes(), 1);
        let reason = scraped.failure.as_ref().unwrap().to_string();
        assert!(reason.contains(key), "{reason}");
        assert_eq!(number(&numbers(scraped), "up"), Some(0.0));
    }
}

#[test]
fn page_beyond_the_memory_budget_fails_its_scrape() {
    let budget = Budget::new(256 << 10);
    let mut scraper = scraper(SIMPLE, &budget);
    let page: String = (0..10_000)
        .map(|number| format!("series_{number} 1\n"))
        .collect();
    let scraped = scrape(&mut scraper, &budget, "text/plain", page.as_bytes(), 1);
    assert!(matches!(
        scraped.failure,
        Some(super::failure::ScrapeFailure::NoRoom(_))
    ));
    drop(scraped);
    let small = scrape(&mut scraper, &budget, "text/plain", b"a 1\n", 2);
    assert!(small.failure.is_none(), "{:?}", small.failure);
    drop(small);
    drop(scraper);
    assert_eq!(budget.used(), 0);
}

#[test]
fn unencoded_request_states_its_number_of_points() {
    let budget = Budget::new(256 << 10);
    let mut scraper = scraper(SIMPLE, &budget);
    let value = "x".repeat(60 << 10);
    let page = format!("a{{b=\"{value}\"}} 1\n");
    let scraped = scrape(&mut scraper, &budget, "text/plain", page.as_bytes(), 1);
    assert!(scraped.failure.is_none(), "{:?}", scraped.failure);
    drop(scraped);
    let _others: Vec<Permit> = std::iter::from_fn(|| budget.acquire(1024).ok()).collect();
    let request = scraper.vanish(2000);
    let Err(unencoded) = request else {
        unreachable!("the budget has no room")
    };
    assert_eq!(unencoded.points, 6);
}

#[test]
fn new_metrics_count_toward_the_budget() {
    let budget = Budget::new(64 << 20);
    let mut scraper = scraper(SIMPLE, &budget);
    let (mut permit, mut transaction) = (budget.empty_permit(), Transaction::new());
    let page: String = (0..1000).map(|number| format!("g_{number} 1\n")).collect();
    let mut cache = Cache::new(&budget);
    let mut reader = PageReader {
        job: &scraper.job,
        target: &scraper.target,
        cache: &mut cache,
        time: 1,
        permit: &mut permit,
        counts: Counts::default(),
        unreserved: 0,
        process_start: None,
    };
    let format = ExpositionFormat::Text;
    reader
        .read(format, page.as_bytes(), &mut transaction)
        .unwrap();
    // A metric with one point takes about 1 KB.
    assert!(permit.bytes() > 900 << 10, "{}", permit.bytes());
    scraper.vanish(2000).unwrap();
}

/// Returns the mistakes in a configuration, each with its key.
fn problems(config: &str) -> Vec<String> {
    let config: Config = serde_yaml::from_str(config).unwrap();
    let mut problems = Problems::default();
    config.validate(&mut problems);
    let found = problems.found().iter();
    let lines = found.map(|problem| {
        let kind = if problem.warning { "warning" } else { "error" };
        let key = problem.path.last().map_or("", String::as_str);
        format!("{kind}: {key}: {}", problem.message)
    });
    lines.collect()
}

#[test]
fn useless_and_reserved_keys_are_reported() {
    let job = |keys: &str| {
        format!(
            "config: {{scrape_configs: [{{job_name: j, {keys}, static_configs: [{{targets: ['h:1']}}]}}]}}"
        )
    };
    for (config, expected) in [
        (
            job("keep_dropped_targets: 1"),
            "warning: keep_dropped_targets: has no effect",
        ),
        (
            job("http_headers: {user-agent: {values: [a]}}"),
            "error: user-agent: `user-agent` is reserved",
        ),
        (job("tls_config: {cert: a}"), "error: "),
        (
            format!("scrape_on_shutdown: true\n{SIMPLE}"),
            "error: scrape_on_shutdown: `scrape_on_shutdown` is not supported",
        ),
        (
            format!("initial_scrape_offset: 1s\n{SIMPLE}"),
            "error: initial_scrape_offset: `initial_scrape_offset` is not supported",
        ),
    ] {
        let found = problems(&config);
        assert!(
            found.len() == 1 && found[0].starts_with(expected),
            "{config}: {found:?}"
        );
    }
    let files = "file_sd_configs: [{files: [a.json], refresh_interval: 1d}], http_headers: {x-key: {values: [a]}}";
    assert_eq!(problems(&job(files)), Vec::<String>::new());
}

#[test]
fn start_comes_from_a_metric_if_configured() {
    use opentelemetry_proto::tonic::metrics::v1::metric::Data;
    let budget = Budget::new(1 << 20);
    let mut scraper = scraper(&format!("use_start_time_metric: true\n{SIMPLE}"), &budget);
    let page = b"# TYPE c_total counter\nc_total 1\nprocess_start_time_seconds 1.5\n";
    let scraped = scrape(&mut scraper, &budget, "text/plain", page, 1);
    let (encoded, _permit) = scraped.request.unwrap();
    let request = ExportMetricsServiceRequest::decode(&*encoded.request).unwrap();
    let metrics = &request.resource_metrics[0].scope_metrics[0].metrics;
    let counter = metrics
        .iter()
        .find(|metric| metric.name == "c_total")
        .unwrap();
    let Some(Data::Sum(sum)) = &counter.data else {
        unreachable!("{counter:?}")
    };
    assert_eq!(sum.data_points[0].start_time_unix_nano, 1_500_000_000);
}
