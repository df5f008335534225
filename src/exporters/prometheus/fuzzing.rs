//! A table and its pages, for fuzz targets.

use std::sync::Arc;

use super::config::{Config, Strategy};
use super::negotiate::Format;
use super::page::Page;
use super::table::Table;
use super::testing;
use crate::component::Host;

/// Takes valid metrics requests, and parses the pages in all formats. Returns the number of
/// samples.
///
/// # Errors
/// If a page is invalid, if two pages of one format differ in their number of samples, or if
/// OpenMetrics, which cannot represent some samples, has more.
pub fn pages<'a>(strategy: u8, requests: impl Iterator<Item = &'a [u8]>) -> Result<usize, String> {
    let strategies = [
        Strategy::UnderscoreEscapingWithSuffixes,
        Strategy::UnderscoreEscapingWithoutSuffixes,
        Strategy::NoUTF8EscapingWithSuffixes,
        Strategy::NoTranslation,
    ];
    let mut config = Config {
        translation_strategy: strategies.get(usize::from(strategy & 3)).copied(),
        ..Config::default()
    };
    config.resource_to_telemetry_conversion.enabled = strategy & 4 != 0;
    let id = "prometheus".parse().map_err(|_| "an id".to_owned())?;
    let table = Arc::new(Table::new(&config, &Host::for_tests().context(&id)));
    for request in requests {
        table.take(request);
    }
    let mut counts = Vec::new();
    for (accept, open_metrics) in [
        ("text/plain", false),
        ("text/plain;version=1.0.0;escaping=allow-utf-8", false),
        ("application/openmetrics-text", true),
        (
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8",
            true,
        ),
    ] {
        let page = page(&table, accept);
        let page = String::from_utf8(page).map_err(|error| error.to_string())?;
        let samples = testing::read(&page, open_metrics).map_err(|why| format!("{why}\n{page}"))?;
        counts.push(samples.len());
    }
    page(
        &table,
        "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily",
    );
    match counts.as_slice() {
        [text, text_utf8, open, open_utf8]
            if text == text_utf8 && open == open_utf8 && open <= text =>
        {
            Ok(*text)
        }
        _ => Err(format!("{counts:?}")),
    }
}

fn page(table: &Arc<Table>, accept: &'static str) -> Vec<u8> {
    let mut headers = http::HeaderMap::new();
    headers.insert(http::header::ACCEPT, http::HeaderValue::from_static(accept));
    let format = Format::negotiate(&headers, true);
    let mut page = Page::new(table.clone(), format, true, false);
    std::iter::from_fn(|| page.chunk()).flatten().collect()
}
