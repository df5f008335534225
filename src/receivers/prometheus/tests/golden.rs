//! Comparison with the Collector's receiver, on the same pages. `crates/prometheus/tests/generators/receiver` wrote the
//! expected requests.

use serde_json::{Map, Value};

use super::*;
use tributary_otlp::{Signal, json};

const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
const OPEN: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PROTOBUF: &str =
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";

/// Seconds from 1970 to the first scrape: after the timestamps of the pages.
const START: i64 = 1_800_000_000;

/// Removes what has no meaning: default values, the order of lists, the version of the scope, durations.
fn normal(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let is_duration = map
                .get("name")
                .and_then(Value::as_str)
                .is_some_and(|name| name.starts_with("scrape_duration"));
            let mut map: Map<String, Value> = map
                .into_iter()
                .filter(|(key, _)| key != "version" && !(is_duration && key == "gauge"))
                .map(|(key, value)| (key, normal(value)))
                .filter(|(_, value)| !is_default(value))
                .collect();
            map.sort_keys();
            Value::Object(map)
        }
        Value::Array(values) => {
            let is_of_numbers = values
                .iter()
                .all(|value| value.is_number() || value.is_string());
            let mut values: Vec<Value> = values.into_iter().map(normal).collect();
            // Buckets and bounds have an order.
            if !is_of_numbers {
                values.sort_by_key(Value::to_string);
            }
            Value::Array(values)
        }
        Value::Number(number) => Value::from(number.as_f64()),
        other => other,
    }
}

fn is_default(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        // The Collector converts the end of a `_created` series to this start.
        Value::String(text) => matches!(text.as_str(), "" | "0" | "9223372036854775808"),
        Value::Array(values) => values.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

/// Scrapes the pages of a case, and compares each request. In the expected ones, scrape N is at N seconds.
fn compare(config: &str, pages: &[(&str, &[u8])], expected: &str) {
    let budget = Budget::new(64 << 20);
    let mut scraper = scraper(config, &budget);
    assert_eq!(expected.lines().count(), pages.len());
    for (number, ((content_type, page), expected)) in (1..).zip(pages.iter().zip(expected.lines()))
    {
        let time = START + number;
        let scraped = scrape(&mut scraper, &budget, content_type, page, time);
        let (encoded, _permit) = scraped.request.unwrap();
        let made = json::from_wire(Signal::Metrics, &encoded.request).unwrap();
        let made = String::from_utf8(made).unwrap();
        let made = made.replace(
            &format!("\"{time}000000000\""),
            &format!("\"{number}000000000\""),
        );
        let made: Value = serde_json::from_str(&made).unwrap();
        let expected: Value = serde_json::from_str(expected).unwrap();
        let (made, expected) = (normal(made), normal(expected));
        let show = |value: &Value| serde_json::to_string_pretty(value).unwrap();
        if made != expected {
            let (made, expected) = (show(&made), show(&expected));
            let different = made.lines().zip(expected.lines()).position(|(a, b)| a != b);
            let at = different.unwrap_or(0).saturating_sub(12);
            let part = |text: &str| {
                text.lines()
                    .skip(at)
                    .take(40)
                    .collect::<Vec<_>>()
                    .join("\n")
            };
            panic!(
                "scrape {number}\n--- made\n{}\n--- expected\n{}",
                part(&made),
                part(&expected)
            );
        }
    }
}

macro_rules! page {
    ($name:literal) => {
        include_bytes!(concat!("cases/", $name))
    };
}

#[test]
fn text_pages_become_the_metrics_of_the_collector() {
    compare(
        include_str!("cases/text/config.yaml"),
        &[
            (TEXT, page!("text/1.txt")),
            (TEXT, page!("text/2.txt")),
            (TEXT, page!("text/3.txt")),
            (TEXT, page!("text/4.txt")),
        ],
        include_str!("cases/text/expected.jsonl"),
    );
}

#[test]
fn openmetrics_become_the_metrics_of_the_collector() {
    compare(
        include_str!("cases/openmetrics/config.yaml"),
        &[
            (OPEN, page!("openmetrics/1.om")),
            (OPEN, page!("openmetrics/2.om")),
        ],
        include_str!("cases/openmetrics/expected.jsonl"),
    );
}

#[test]
fn relabelled_pages_become_the_metrics_of_the_collector() {
    compare(
        include_str!("cases/rules/config.yaml"),
        &[(OPEN, page!("rules/1.om"))],
        include_str!("cases/rules/expected.jsonl"),
    );
}

#[test]
fn protobuf_pages_become_the_metrics_of_the_collector() {
    compare(
        include_str!("cases/protobuf/config.yaml"),
        &[
            (PROTOBUF, page!("protobuf/1.pb")),
            (PROTOBUF, page!("protobuf/2.pb")),
        ],
        include_str!("cases/protobuf/expected.jsonl"),
    );
}
