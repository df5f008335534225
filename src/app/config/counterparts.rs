//! Components of the Collector's distributions that this collector does not have, and what does their job here.
//!
//! Messages about unknown components and the page `docs/reference/compatibility.md` come from this table. The table has
//! the components that published configurations use most, and renamed ones.

use super::facts::Kind;
use Kind::{Connector, Exporter, Extension, Processor, Receiver};
use Outlook::{NotPlanned, Planned};

/// A component that does not exist here.
pub(in crate::app) struct Counterpart {
    pub(in crate::app) kind: Kind,
    /// The type, and its older names.
    pub(in crate::app) names: &'static [&'static str],
    pub(in crate::app) outlook: Outlook,
    /// The way to do the same job, in whole sentences; empty if there is none.
    pub(in crate::app) instead: &'static str,
}

/// Prospect of a missing component.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::app) enum Outlook {
    Planned,
    NotPlanned,
}

impl Outlook {
    /// Returns the words to follow the name of the component.
    pub(in crate::app) fn words(self) -> &'static str {
        match self {
            Planned => "is planned",
            NotPlanned => "is not planned",
        }
    }
}

/// Returns the row of a component.
pub(in crate::app) fn find(kind: Kind, name: &str) -> Option<&'static Counterpart> {
    let mut rows = TABLE.iter();
    rows.find(|row| row.kind == kind && row.names.contains(&name))
}

const fn row(
    kind: Kind,
    names: &'static [&'static str],
    outlook: Outlook,
    instead: &'static str,
) -> Counterpart {
    Counterpart {
        kind,
        names,
        outlook,
        instead,
    }
}

const BESIDE: &str =
    "Run the Collector beside this one, and let it send OTLP to the receiver `otlp`.";
const VENDOR: &str =
    "Send OTLP with `otlp_http` if the vendor accepts it, or to a Collector with this exporter.";
const CLIENT: &str = "Send OTLP from the application, or from a Collector with this receiver.";
const BY_SETTINGS: &str =
    "Use `transform`, `attributes`, `resource` and `filter` for the changes that they can make.";

/// All rows, by kind, each kind by name.
pub(in crate::app) const TABLE: &[Counterpart] = &[
    row(Receiver, &["awsxray"], NotPlanned, CLIENT),
    row(Receiver, &["docker_stats"], NotPlanned, BESIDE),
    row(Receiver, &["file_log", "filelog"], Planned, BESIDE),
    row(
        Receiver,
        &["fluentforward", "fluent_forward"],
        NotPlanned,
        BESIDE,
    ),
    row(Receiver, &["host_metrics", "hostmetrics"], Planned, BESIDE),
    row(Receiver, &["httpcheck", "http_check"], NotPlanned, BESIDE),
    row(Receiver, &["journald"], Planned, BESIDE),
    row(Receiver, &["k8s_cluster"], NotPlanned, BESIDE),
    row(Receiver, &["k8s_events"], NotPlanned, BESIDE),
    row(Receiver, &["k8sobjects", "k8s_objects"], NotPlanned, BESIDE),
    row(
        Receiver,
        &["kubeletstats", "kubelet_stats"],
        NotPlanned,
        BESIDE,
    ),
    row(Receiver, &["mongodb"], NotPlanned, BESIDE),
    row(Receiver, &["mysql"], NotPlanned, BESIDE),
    row(Receiver, &["nginx"], NotPlanned, BESIDE),
    row(Receiver, &["opencensus"], NotPlanned, CLIENT),
    row(Receiver, &["postgresql"], NotPlanned, BESIDE),
    row(
        Receiver,
        &["prometheus_simple"],
        NotPlanned,
        "Use `prometheus` with the target in `static_configs`.",
    ),
    row(Receiver, &["redis"], NotPlanned, BESIDE),
    row(Receiver, &["statsd"], NotPlanned, BESIDE),
    row(Receiver, &["syslog"], NotPlanned, BESIDE),
    row(
        Receiver,
        &["tcplog", "tcp_log", "udplog", "udp_log"],
        NotPlanned,
        BESIDE,
    ),
    row(
        Receiver,
        &["windowseventlog", "windows_event_log"],
        NotPlanned,
        BESIDE,
    ),
    row(
        Processor,
        &["deltatocumulative", "delta_to_cumulative"],
        Planned,
        "",
    ),
    row(
        Processor,
        &["groupbytrace", "group_by_trace"],
        NotPlanned,
        "`load_balancing` with `routing_key: traceID` sends the spans of a trace to one collector.",
    ),
    row(
        Processor,
        &["k8s_attributes", "k8sattributes"],
        Planned,
        "Set the attributes of a pod with `OTEL_RESOURCE_ATTRIBUTES` and the downward API; `resource_detection` adds \
         those of the node.",
    ),
    row(
        Processor,
        &[
            "metricstransform",
            "metrics_transform",
            "metricsgeneration",
            "metrics_generation",
        ],
        NotPlanned,
        BY_SETTINGS,
    ),
    row(
        Processor,
        &["span", "spanname"],
        NotPlanned,
        "Rename spans in the applications.",
    ),
    row(
        Processor,
        &["tail_sampling", "tailsampling"],
        Planned,
        "`probabilistic_sampler` samples by trace id, without looking at whole traces.",
    ),
    row(Exporter, &["awsemf", "aws_emf"], NotPlanned, VENDOR),
    row(
        Exporter,
        &["awss3", "aws_s3"],
        NotPlanned,
        "`parquet` writes to object stores, in builds with the feature `object-store`.",
    ),
    row(Exporter, &["awsxray", "aws_xray"], NotPlanned, VENDOR),
    row(
        Exporter,
        &["azuremonitor", "azure_monitor"],
        NotPlanned,
        VENDOR,
    ),
    row(
        Exporter,
        &["clickhouse"],
        NotPlanned,
        "ClickHouse reads the files of `parquet`.",
    ),
    row(Exporter, &["datadog"], NotPlanned, VENDOR),
    row(Exporter, &["elasticsearch"], NotPlanned, VENDOR),
    row(
        Exporter,
        &["googlecloud", "google_cloud"],
        NotPlanned,
        VENDOR,
    ),
    row(
        Exporter,
        &["jaeger", "jaeger_thrift"],
        NotPlanned,
        "Jaeger accepts OTLP: use `otlp_grpc` with its port 4317. The Collector has removed this exporter.",
    ),
    row(
        Exporter,
        &["loki"],
        NotPlanned,
        "Loki accepts OTLP: use `otlp_http` with its path `/otlp`. The Collector has removed this exporter.",
    ),
    row(Exporter, &["opencensus"], NotPlanned, "Use `otlp_grpc`."),
    row(
        Exporter,
        &["prometheus_remote_write", "prometheusremotewrite"],
        Planned,
        "Prometheus accepts OTLP at `/api/v1/otlp`: use `otlp_http`. Or let it scrape the exporter `prometheus`.",
    ),
    row(Exporter, &["splunk_hec"], NotPlanned, VENDOR),
    row(
        Connector,
        &["exceptions"],
        NotPlanned,
        "`count` counts span events that match a condition.",
    ),
    row(
        Connector,
        &["routing"],
        Planned,
        "Several pipelines with a `filter` each select data by conditions.",
    ),
    row(Connector, &["servicegraph", "service_graph"], Planned, ""),
    row(
        Connector,
        &["span_metrics", "spanmetrics"],
        Planned,
        "`count` counts spans by their attributes; durations need the Collector's connector.",
    ),
    row(
        Extension,
        &[
            "ecs_observer",
            "docker_observer",
            "host_observer",
            "k8s_observer",
        ],
        NotPlanned,
        "The receiver `pprof` has discovery of its own.",
    ),
    row(
        Extension,
        &["memory_ballast"],
        NotPlanned,
        "Remove it: the process is no Go program, and needs no ballast.",
    ),
    row(
        Extension,
        &["oidc"],
        NotPlanned,
        "`basicauth`, `bearertokenauth` or client certificates authenticate clients.",
    ),
    row(
        Extension,
        &["opamp"],
        NotPlanned,
        "Replace the configuration file and send SIGHUP.",
    ),
    row(
        Extension,
        &["pprof"],
        NotPlanned,
        "Remove it: its profiles are those of Go programs. `perf` profiles this process.",
    ),
    row(Extension, &["sigv4auth", "sigv4_auth"], NotPlanned, ""),
];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::component::Entry;
    use crate::{connectors, exporters, extensions, processors, receivers};

    fn names<C: ?Sized>(registry: &'static [Entry<C>]) -> Vec<&'static str> {
        let entries = registry.iter();
        let names = entries.flat_map(|entry| entry.aliases.iter().chain([&entry.name]));
        names.copied().collect()
    }

    #[test]
    fn components_of_the_table_are_in_no_registry() {
        for row in TABLE {
            let known = match row.kind {
                Receiver => names(receivers::REGISTRY),
                Processor => names(processors::REGISTRY),
                Exporter => names(exporters::REGISTRY),
                Connector => names(connectors::REGISTRY),
                Extension => names(extensions::REGISTRY),
            };
            for name in row.names {
                assert!(!known.contains(name), "{} `{name}` exists", row.kind.name());
            }
        }
    }

    #[test]
    fn components_occur_once() {
        let mut seen = HashSet::new();
        for row in TABLE {
            for name in row.names {
                assert!(seen.insert((row.kind.name(), name)), "{name} occurs twice");
            }
            assert!(
                row.instead.is_empty() || row.instead.ends_with('.'),
                "{}",
                row.instead
            );
        }
    }
}
