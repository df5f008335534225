//! Our own metrics as text, for `/metrics`.

use std::collections::HashSet;
use std::fmt::Write;
use std::time::Duration;

use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::task::JoinHandle;

use super::{certificates, disk, help, process};
use crate::telemetry::config::MetricsLevel;
use tributary_memory::Budget;

/// The recorder behind all metrics of the process, and what is exposed beside them.
#[derive(Clone)]
pub struct Exposition {
    handle: PrometheusHandle,
}

/// Bucket bounds of batch sizes in items and in bytes: the Collector's.
const ITEMS: [f64; 17] = [
    10.0, 25.0, 50.0, 75.0, 100.0, 250.0, 500.0, 750.0, 1e3, 2e3, 3e3, 4e3, 5e3, 6e3, 7e3, 8e3, 1e4,
];
const BYTES: [f64; 13] = [
    10.0, 100.0, 1e3, 1e4, 5e4, 1e5, 2.5e5, 5e5, 1e6, 2e6, 4e6, 8e6, 1.6e7,
];
const SECONDS: [f64; 15] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0,
];
/// Those of latencies in milliseconds: the defaults of OpenTelemetry's SDKs.
const MILLISECONDS: [f64; 15] = [
    0.0, 5.0, 10.0, 25.0, 50.0, 75.0, 100.0, 250.0, 500.0, 750.0, 1e3, 2.5e3, 5e3, 7.5e3, 1e4,
];

/// How often the recorder folds what histograms have gathered. Scrapes do it too; without them it would pile up.
const UPKEEP: Duration = Duration::from_secs(5);

impl Exposition {
    /// Installs the recorder; call it once, before anything counts.
    ///
    /// # Errors
    /// When the process has a recorder already.
    pub fn install() -> Result<Self, BuildError> {
        process::started();
        let recorder = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Suffix("_bytes".to_owned()), &BYTES)?
            .set_buckets_for_metric(Matcher::Suffix("_size".to_owned()), &ITEMS)?
            .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS)?
            .set_buckets_for_metric(
                Matcher::Suffix("_backend_latency".to_owned()),
                &MILLISECONDS,
            )?
            .build_recorder();
        let handle = recorder.handle();
        metrics::set_global_recorder(recorder).map_err(BuildError::FailedToSetGlobalRecorder)?;
        help::describe();
        Ok(Exposition { handle })
    }

    /// One that nobody counts with.
    #[cfg(test)]
    pub(crate) fn for_tests() -> Self {
        Exposition {
            handle: PrometheusBuilder::new().build_recorder().handle(),
        }
    }

    /// Runs for as long as the process.
    pub async fn keep_up(self) {
        let mut every = tokio::time::interval(UPKEEP);
        let mut measuring: Option<JoinHandle<()>> = None;
        loop {
            every.tick().await;
            self.handle.run_upkeep();
            // Not a second time while a file system does not answer.
            if measuring.as_ref().is_none_or(JoinHandle::is_finished) {
                measuring = Some(tokio::task::spawn_blocking(disk::measure));
            }
        }
    }

    /// The page, in Prometheus' text format, with what belongs to `level`. `resource` becomes the labels of
    /// `target_info`.
    pub fn render(
        &self,
        level: MetricsLevel,
        budget: &Budget,
        resource: &[(String, String)],
    ) -> String {
        let mut page = up_to(level, &self.handle.render());
        process::render(&mut page);
        certificates::render(&mut page);
        for (name, meaning, bytes) in [
            (
                "limit",
                "Bytes of telemetry that the process may hold",
                budget.limit(),
            ),
            (
                "used",
                "Bytes of telemetry that the process holds",
                budget.used(),
            ),
        ] {
            let name = format!("tributary_memory_{name}_bytes");
            process::line(&mut page, &name, "gauge", meaning, bytes as f64);
        }
        page.push_str("# HELP target_info Target metadata\n# TYPE target_info gauge\ntarget_info{");
        for (at, (key, value)) in resource.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            let key: String = key
                .chars()
                .map(|c| {
                    if c.is_ascii_alphanumeric() || c == '_' {
                        c
                    } else {
                        '_'
                    }
                })
                .collect();
            let value = escaped(value);
            let _ = write!(page, "{comma}{key}=\"{value}\"");
        }
        page.push_str("} 1\n");
        page
    }
}

/// A label's value, between its quotes.
pub(super) fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// The page with `_total` at the end of the names of counters, as Prometheus' linter wants it.
pub(super) fn with_totals(page: &str) -> String {
    let counters: HashSet<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"))
        .filter(|name| !name.ends_with("_total"))
        .collect();
    let mut with = String::with_capacity(page.len() + page.len() / 16);
    for line in page.split_inclusive('\n') {
        let comment = ["# HELP ", "# TYPE "].into_iter();
        let start = comment
            .filter(|comment| line.starts_with(comment))
            .map(str::len)
            .sum();
        let (before, rest) = line.split_at(start);
        let end = rest.find([' ', '{']).unwrap_or(rest.len());
        let (name, rest) = rest.split_at(end);
        let total = if counters.contains(name) {
            "_total"
        } else {
            ""
        };
        with.extend([before, name, total, rest]);
    }
    with
}

/// Metrics that are shown from a level on; all others are always. The levels are the Collector's.
const LEVELS: [(&str, MetricsLevel); 3] = [
    (
        "otelcol_processor_batch_batch_send_size_bytes",
        MetricsLevel::Detailed,
    ),
    (
        "otelcol_exporter_queue_batch_send_size",
        MetricsLevel::Detailed,
    ),
    ("otelcol_processor_batch_", MetricsLevel::Normal),
];

/// The page without the metrics of higher levels, and without gauges that are no number: what they were about is gone,
/// and the recorder has no way to forget one. A metric's lines stand together: comments, then samples.
fn up_to(level: MetricsLevel, page: &str) -> String {
    let shown = |line: &&str| {
        if line.ends_with(" NaN\n") && !line.starts_with('#') {
            return false;
        }
        let name = line
            .strip_prefix("# ")
            .and_then(|line| line.split(' ').nth(1))
            .unwrap_or(line);
        let needed = LEVELS.iter().find(|(prefix, _)| name.starts_with(prefix));
        needed.is_none_or(|(_, needed)| level >= *needed)
    };
    page.split_inclusive('\n').filter(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_shows_what_belongs_to_it() {
        let page = "# HELP otelcol_processor_batch_batch_send_size_bytes Bytes\n\
                    # TYPE otelcol_processor_batch_batch_send_size_bytes histogram\n\
                    otelcol_processor_batch_batch_send_size_bytes_count{processor=\"batch\"} 1\n\
                    otelcol_processor_batch_timeout_trigger_send 1\n\
                    otelcol_exporter_sent_spans 1\n";
        let lines = |level| up_to(level, page).lines().count();
        assert_eq!(lines(MetricsLevel::Detailed), 5);
        assert_eq!(lines(MetricsLevel::Normal), 2);
        assert_eq!(
            up_to(MetricsLevel::Basic, page),
            "otelcol_exporter_sent_spans 1\n"
        );
    }

    #[test]
    fn counters_end_in_total_where_that_is_asked_for() {
        let page = "# HELP sent_spans Number of sent_spans that were sent_spans\n# TYPE sent_spans counter\n\
                    sent_spans{exporter=\"sent_spans\"} 1\nsent_spans 2\n# TYPE size gauge\nsize 3\n\
                    # TYPE seen_total counter\nseen_total 4\n";
        let expected = "# HELP sent_spans_total Number of sent_spans that were sent_spans\n\
                        # TYPE sent_spans_total counter\nsent_spans_total{exporter=\"sent_spans\"} 1\n\
                        sent_spans_total 2\n# TYPE size gauge\nsize 3\n# TYPE seen_total counter\nseen_total 4\n";
        assert_eq!(with_totals(page), expected);
    }

    #[test]
    fn a_gauge_without_a_value_is_not_shown() {
        let page = "tributary_scraper_up{target=\"a\"} 1\ntributary_scraper_up{target=\"b\"} NaN\n";
        let shown = up_to(MetricsLevel::Normal, page);
        assert_eq!(shown, "tributary_scraper_up{target=\"a\"} 1\n");
    }
}
