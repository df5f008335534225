//! The collector's own metrics as text, for `/metrics`.

use std::fmt;
use std::time::Duration;

use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::task::JoinHandle;

use super::page::{labels, ordered};
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
    pub fn in_flight(&self) -> Vec<ItemsInFlight> {
        let mut held = self.all_in_flight();
        held.retain(|component| component.kind != "pipeline");
        held
    }

    /// Exporters, connectors and pipelines with items in flight. Items that wait for an exporter without a queue
    /// count in both.
    pub fn all_in_flight(&self) -> Vec<ItemsInFlight> {
        items_in_flight(&self.handle.render())
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

/// The metrics that count items in flight, by kind of component.
const IN_FLIGHT: [(&str, &str); 3] = [
    ("exporter", "tributary_exporter_in_flight_items{"),
    ("connector", "tributary_connector_in_flight_items{"),
    ("pipeline", "tributary_pipeline_in_flight_items{"),
];

/// An exporter, connector or pipeline with items in flight.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ItemsInFlight {
    /// `exporter`, `connector` or `pipeline`.
    pub kind: &'static str,
    /// Id of the component.
    pub id: String,
    /// Signal, if the component counts by signal.
    pub signal: Option<String>,
    /// Number of items.
    pub items: u64,
}

impl fmt::Display for ItemsInFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.id)?;
        if let Some(signal) = &self.signal {
            write!(f, " ({signal})")?;
        }
        write!(f, ": {}", self.items)
    }
}

fn items_in_flight(page: &str) -> Vec<ItemsInFlight> {
    let mut found: Vec<ItemsInFlight> = page.lines().filter_map(parse_items).collect();
    found.sort_unstable();
    found
}

fn parse_items(line: &str) -> Option<ItemsInFlight> {
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
    (items >= 1.0).then_some(ItemsInFlight {
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
    fn page_with_items_in_flight_names_their_holders() {
        let page = "tributary_exporter_in_flight_items{exporter=\"otlp_grpc/a\",data_type=\"logs\"} 41600\n\
                    tributary_exporter_in_flight_items{exporter=\"file\",data_type=\"logs\"} 0\n\
                    tributary_connector_in_flight_items{connector=\"profile_metrics\"} 7\n";
        let shown: Vec<String> = items_in_flight(page)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            shown,
            [
                "connector profile_metrics: 7",
                "exporter otlp_grpc/a (logs): 41600"
            ]
        );
    }

    #[test]
    fn gauge_without_value_is_not_exposed() {
        let page = "tributary_scraper_up{target=\"a\"} 1\ntributary_scraper_up{target=\"b\"} NaN\n";
        let shown = up_to(MetricsLevel::Normal, page);
        assert_eq!(shown, "tributary_scraper_up{target=\"a\"} 1\n");
    }
}
