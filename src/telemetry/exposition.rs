//! The collector's own metrics as text, for `/metrics`.

use std::collections::HashSet;
use std::fmt::{self, Write};
use std::time::Duration;

use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::task::JoinHandle;

use super::{certificates, disk, process};
use crate::telemetry::config::MetricsLevel;
use tributary_memory::Budget;

/// Recorder of all metrics in the process, and further exposed data.
#[derive(Clone)]
pub struct Exposition {
    handle: PrometheusHandle,
}

/// Bucket bounds of batch sizes in items and in bytes, as in the Collector.
const ITEMS: [f64; 17] = [
    10.0, 25.0, 50.0, 75.0, 100.0, 250.0, 500.0, 750.0, 1e3, 2e3, 3e3, 4e3, 5e3, 6e3, 7e3, 8e3, 1e4,
];
const BYTES: [f64; 13] = [
    10.0, 100.0, 1e3, 1e4, 5e4, 1e5, 2.5e5, 5e5, 1e6, 2e6, 4e6, 8e6, 1.6e7,
];
const SECONDS: [f64; 15] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0,
];
/// Bucket bounds of calls in seconds, as in the Collector's instrumentation.
const CALLS: [f64; 14] = [
    0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
];
/// Bucket bounds of durations in seconds, from a microsecond: a processor of encoded bytes takes
/// little more.
const DURATIONS: [f64; 10] = [1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 0.5, 1.0, 5.0, 10.0];
/// Bucket bounds of latencies in milliseconds: the defaults of OpenTelemetry's SDKs.
const MILLISECONDS: [f64; 15] = [
    0.0, 5.0, 10.0, 25.0, 50.0, 75.0, 100.0, 250.0, 500.0, 750.0, 1e3, 2.5e3, 5e3, 7.5e3, 1e4,
];

/// Interval at which the recorder aggregates histogram samples. Scrapes do so too; without any,
/// samples would accumulate.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

impl Exposition {
    /// Installs the recorder. Call it once, before the first metric is counted.
    ///
    /// # Errors
    /// Returns an error if the process already has a recorder.
    pub fn install() -> Result<Self, BuildError> {
        process::started();
        let recorder = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Suffix("_bytes".to_owned()), &BYTES)?
            .set_buckets_for_metric(Matcher::Suffix("_size".to_owned()), &ITEMS)?
            .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS)?
            .set_buckets_for_metric(Matcher::Suffix("_internal_duration".to_owned()), &DURATIONS)?
            .set_buckets_for_metric(Matcher::Suffix("_call_duration".to_owned()), &CALLS)?
            .set_buckets_for_metric(
                Matcher::Suffix("_backend_latency".to_owned()),
                &MILLISECONDS,
            )?
            .build_recorder();
        let handle = recorder.handle();
        metrics::set_global_recorder(recorder).map_err(BuildError::FailedToSetGlobalRecorder)?;
        Ok(Exposition { handle })
    }

    /// Creates an exposition that no metric uses.
    #[cfg(test)]
    pub(crate) fn for_tests() -> Self {
        Exposition {
            handle: PrometheusBuilder::new().build_recorder().handle(),
        }
    }

    /// Runs until the process ends.
    pub async fn keep_up(self) {
        let mut every = tokio::time::interval(UPKEEP_INTERVAL);
        let mut measuring: Option<JoinHandle<()>> = None;
        loop {
            every.tick().await;
            self.handle.run_upkeep();
            // No second measurement while a file system does not respond.
            if measuring.as_ref().is_none_or(JoinHandle::is_finished) {
                measuring = Some(tokio::task::spawn_blocking(disk::measure));
            }
        }
    }

    /// Exporters and connectors with items in flight.
    pub fn in_flight(&self) -> Vec<Holder> {
        let mut held = self.all_in_flight();
        held.retain(|holder| holder.kind != "pipeline");
        held
    }

    /// Exporters, connectors and pipelines with items in flight. Items that wait for an exporter without a queue
    /// count in both.
    pub fn all_in_flight(&self) -> Vec<Holder> {
        holders(&self.handle.render())
    }

    /// Renders the metrics of `level` in Prometheus' text format. `resource` becomes the labels of
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
        process::line(
            &mut page,
            "tributary_memory_limit_bytes",
            budget.limit() as f64,
        );
        process::line(
            &mut page,
            "tributary_memory_used_bytes",
            budget.used() as f64,
        );
        process::head(&mut page, "target_info");
        page.push_str("target_info{");
        page.push_str(&labels(resource));
        page.push_str("} 1\n");
        ordered(&page)
    }
}

pub(super) fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// Adds `_total` to the names of counters, as Prometheus' linter requires.
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

fn labels(attributes: &[(String, String)]) -> String {
    let allowed = |c: char| match c.is_ascii_alphanumeric() {
        true => c,
        false => '_',
    };
    let labels = attributes.iter().map(|(key, value)| {
        let key: String = key.chars().map(allowed).collect();
        format!("{key}=\"{}\"", escaped(value))
    });
    labels.collect::<Vec<_>>().join(",")
}

/// Adds these attributes as labels to every series that does not have them.
pub(super) fn labelled(page: String, attributes: &[(String, String)]) -> String {
    if attributes.is_empty() {
        return page;
    }
    let constant = labels(attributes);
    let mut out = String::with_capacity(page.len() * 2);
    for line in page.split_inclusive('\n') {
        if line.starts_with('#') || line.starts_with("target_info") {
            out.push_str(line);
        } else if let Some((name, rest)) = line.split_once('{') {
            let _ = write!(out, "{name}{{{constant},{rest}");
        } else if let Some((name, value)) = line.split_once(' ') {
            let _ = write!(out, "{name}{{{constant}}} {value}");
        }
    }
    out
}

/// Sorts the metrics and the series of each metric: the recorder's order differs between starts.
fn ordered(page: &str) -> String {
    let mut metrics: Vec<Vec<&str>> = Vec::new();
    for line in page.split_inclusive('\n').filter(|line| *line != "\n") {
        let begins = line.starts_with("# HELP ")
            || line.starts_with("# TYPE ")
                && !metrics
                    .last()
                    .is_some_and(|metric| metric.len() == 1 && metric[0].starts_with("# HELP "));
        match metrics.last_mut() {
            Some(metric) if !begins => metric.push(line),
            _ => metrics.push(vec![line]),
        }
    }
    let name = |metric: &[&str]| {
        let first = metric.first().copied().unwrap_or_default();
        first.split(' ').nth(2).unwrap_or_default().to_owned()
    };
    metrics.sort_by_cached_key(|metric| name(metric));
    for metric in &mut metrics {
        // The sort is stable: the buckets of a histogram keep their order.
        metric.sort_by_cached_key(|line| series(line));
    }
    metrics.concat().concat()
}

/// Returns the sort key of a line: comments first, then the labels without the bound of a bucket.
fn series(line: &str) -> (bool, String) {
    if line.starts_with('#') {
        return (false, String::new());
    }
    let labels = line
        .split_once('{')
        .and_then(|(_, rest)| rest.rsplit_once('}'));
    let mut labels = labels.map_or("", |(labels, _)| labels).to_owned();
    if let Some(begin) = labels.rfind("le=\"") {
        labels.truncate(begin);
    }
    (true, labels.trim_end_matches(',').to_owned())
}

/// The metrics that count items in flight, by kind of component.
const IN_FLIGHT: [(&str, &str); 3] = [
    ("exporter", "tributary_exporter_in_flight_items{"),
    ("connector", "tributary_connector_in_flight_items{"),
    ("pipeline", "tributary_pipeline_in_flight_items{"),
];

/// An exporter, connector or pipeline with items in flight.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holder {
    /// `exporter`, `connector` or `pipeline`.
    pub kind: &'static str,
    /// Id of the component.
    pub id: String,
    /// Signal, if the component counts by signal.
    pub signal: Option<String>,
    /// Number of items.
    pub items: u64,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.id)?;
        if let Some(signal) = &self.signal {
            write!(f, " ({signal})")?;
        }
        write!(f, ": {}", self.items)
    }
}

/// The components with items in flight, by a page of metrics.
fn holders(page: &str) -> Vec<Holder> {
    let mut holders: Vec<Holder> = page.lines().filter_map(holder).collect();
    holders.sort_unstable();
    holders
}

fn holder(line: &str) -> Option<Holder> {
    let of_kind = |(kind, prefix): &(&'static str, &str)| Some((*kind, line.strip_prefix(prefix)?));
    let (kind, rest) = IN_FLIGHT.iter().find_map(of_kind)?;
    let (labels, value) = rest.rsplit_once("} ")?;
    let items: f64 = value.parse().ok()?;
    let label = |name: &str| {
        let (_, after) = labels.split_once(&format!("{name}=\""))?;
        after.split_once('"').map(|(value, _)| value.to_owned())
    };
    let id = label(kind)?;
    let signal = label("data_type");
    (items >= 1.0).then_some(Holder {
        kind,
        id,
        signal,
        items: items as u64,
    })
}

/// Minimum levels of metrics; all other metrics are always shown. The levels are the Collector's.
const LEVELS: [(&str, MetricsLevel); 5] = [
    (
        "otelcol_processor_batch_batch_send_size_bytes",
        MetricsLevel::Detailed,
    ),
    (
        "otelcol_exporter_queue_batch_send_size",
        MetricsLevel::Detailed,
    ),
    ("otelcol_processor_batch_", MetricsLevel::Normal),
    (
        "otelcol_processor_internal_duration",
        MetricsLevel::Detailed,
    ),
    ("rpc_", MetricsLevel::Detailed),
];

/// Removes metrics of higher levels, and gauges with the value NaN: their objects no longer exist,
/// and the recorder cannot remove a gauge. Each metric's lines are adjacent: comments, then
/// samples.
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
    fn metrics_level_selects_metrics() {
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
    fn total_suffix_follows_setting() {
        let page = "# HELP sent_spans Number of sent_spans that were sent_spans\n# TYPE sent_spans counter\n\
                    sent_spans{exporter=\"sent_spans\"} 1\nsent_spans 2\n# TYPE size gauge\nsize 3\n\
                    # TYPE seen_total counter\nseen_total 4\n";
        let expected = "# HELP sent_spans_total Number of sent_spans that were sent_spans\n\
                        # TYPE sent_spans_total counter\nsent_spans_total{exporter=\"sent_spans\"} 1\n\
                        sent_spans_total 2\n# TYPE size gauge\nsize 3\n# TYPE seen_total counter\nseen_total 4\n";
        assert_eq!(with_totals(page), expected);
    }

    #[test]
    fn page_with_items_in_flight_names_their_holders() {
        let page = "tributary_exporter_in_flight_items{exporter=\"otlp_grpc/a\",data_type=\"logs\"} 41600\n\
                    tributary_exporter_in_flight_items{exporter=\"file\",data_type=\"logs\"} 0\n\
                    tributary_connector_in_flight_items{connector=\"profile_metrics\"} 7\n";
        let shown: Vec<String> = holders(page).iter().map(ToString::to_string).collect();
        assert_eq!(
            shown,
            [
                "connector profile_metrics: 7",
                "exporter otlp_grpc/a (logs): 41600"
            ]
        );
    }

    #[test]
    fn attributes_are_labels_of_every_series() {
        let page =
            "# TYPE a counter\na 1\nb{x=\"1\"} 2\ntarget_info{service_name=\"s\"} 1\n".to_owned();
        let attributes = [("service.name".to_owned(), "s".to_owned())];
        assert_eq!(
            labelled(page, &attributes),
            "# TYPE a counter\na{service_name=\"s\"} 1\nb{service_name=\"s\",x=\"1\"} 2\n\
             target_info{service_name=\"s\"} 1\n"
        );
    }

    #[test]
    fn page_order_does_not_depend_on_recorder() {
        let page = "# HELP b B\n# TYPE b histogram\nb_bucket{x=\"2\",le=\"5\"} 1\nb_bucket{x=\"2\",le=\"10\"} 1\n\
                    b_sum{x=\"2\"} 3\nb_count{x=\"2\"} 1\nb_bucket{x=\"1\",le=\"5\"} 1\nb_sum{x=\"1\"} 3\n\n\
                    # TYPE a counter\na{y=\"2\"} 1\na{y=\"1\"} 1\n\n";
        let expected = "# TYPE a counter\na{y=\"1\"} 1\na{y=\"2\"} 1\n# HELP b B\n# TYPE b histogram\n\
                        b_bucket{x=\"1\",le=\"5\"} 1\nb_sum{x=\"1\"} 3\nb_bucket{x=\"2\",le=\"5\"} 1\n\
                        b_bucket{x=\"2\",le=\"10\"} 1\nb_sum{x=\"2\"} 3\nb_count{x=\"2\"} 1\n";
        assert_eq!(ordered(page), expected);
    }

    #[test]
    fn gauge_without_value_is_not_exposed() {
        let page = "tributary_scraper_up{target=\"a\"} 1\ntributary_scraper_up{target=\"b\"} NaN\n";
        let shown = up_to(MetricsLevel::Normal, page);
        assert_eq!(shown, "tributary_scraper_up{target=\"a\"} 1\n");
    }
}
