//! Prometheus scrapes the metrics that arrived over OTLP, with correct values. The tests with a real Prometheus run if
//! `PROMETHEUS` is the path of its program, and `promtool` is beside it: version 2.40 or later.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::harness::{Collector, POLL_INTERVAL, raw, within};

/// Starts a collector whose metrics go to the exporter.
async fn collector(more: &str) -> Collector {
    let yaml = format!(
        "receivers:
  otlp:
    protocols:
      http: {{endpoint: '127.0.0.1:0'}}
      grpc: {{endpoint: '127.0.0.1:0'}}
exporters:
  prometheus: {{endpoint: '127.0.0.1:0', {more}}}
service:
  pipelines:
    metrics: {{receivers: [otlp], exporters: [prometheus]}}
    metrics/two: {{receivers: [otlp], exporters: [prometheus]}}
"
    );
    Collector::start(&yaml).await
}

fn page_at(collector: &Collector) -> SocketAddr {
    collector.server("Starting HTTP server", "prometheus")
}

/// Sends metrics of one service, as JSON.
async fn send(collector: &Collector, metrics: Value) {
    let text = |key: &str, value: &str| json!({"key": key, "value": {"stringValue": value}});
    let request = json!({"resourceMetrics": [{
        "resource": {"attributes": [
            text("service.name", "shop"),
            text("service.instance.id", "a"),
            text("host.name", "h1"),
        ]},
        "scopeMetrics": [{"scope": {"name": "lib"}, "metrics": metrics}],
    }]});
    let headers = [("content-type", "application/json")];
    let body = request.to_string();
    let answer = raw::http(
        collector.http(),
        Method::POST,
        "/v1/metrics",
        &headers,
        body,
    )
    .await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(now.as_nanos()).unwrap()
}

/// A counter with the value `total`, both kinds of histograms of its increase since `start`, and a gauge.
fn metrics(start: u64, total: u64, observed: u64) -> Value {
    let (start, time) = (start.to_string(), now().to_string());
    let point = |mut more: Value| {
        let point = more.as_object_mut().unwrap();
        point.insert("startTimeUnixNano".into(), json!(start));
        point.insert("timeUnixNano".into(), json!(time));
        more
    };
    json!([
        {"name": "jobs", "description": "Jobs", "sum": {
            "aggregationTemporality": 2, "isMonotonic": true,
            "dataPoints": [point(json!({"asInt": total.to_string()}))],
        }},
        {"name": "latency", "description": "Latency", "unit": "s", "histogram": {
            "aggregationTemporality": 1,
            "dataPoints": [point(json!({
                "count": observed.to_string(), "sum": 1.5 * observed as f64,
                "explicitBounds": [1.0, 2.0],
                "bucketCounts": ["0", observed.to_string(), "0"],
            }))],
        }},
        // Scale 0: the bucket (1, 2].
        {"name": "size", "description": "Size", "unit": "By", "exponentialHistogram": {
            "aggregationTemporality": 1,
            "dataPoints": [point(json!({
                "count": observed.to_string(), "sum": 1.5 * observed as f64, "scale": 0,
                "positive": {"offset": 0, "bucketCounts": [observed.to_string()]},
            }))],
        }},
        {"name": "temperature", "description": "Temperature", "unit": "Cel", "gauge": {
            "dataPoints": [point(json!({"asDouble": 20.5}))],
        }},
    ])
}

#[tokio::test]
async fn page_is_served_in_the_requested_format() {
    let collector = collector("enable_open_metrics: true").await;
    send(&collector, metrics(now(), 5, 10)).await;
    let scrape = async |method, path: &str, headers: &[(&str, &str)]| {
        raw::http(page_at(&collector), method, path, headers, "").await
    };
    let answer = scrape(Method::GET, "/metrics", &[]).await;
    assert_eq!(
        answer.header("content-type"),
        Some("text/plain; version=0.0.4; charset=utf-8")
    );
    let line = "jobs_total{job=\"shop\",instance=\"a\",otel_scope_name=\"lib\"} 5\n";
    assert!(answer.text().contains(line), "{}", answer.text());
    // Both pipelines delivered the same points: deltas count once.
    assert!(answer.text().contains(
        "latency_seconds_count{job=\"shop\",instance=\"a\",otel_scope_name=\"lib\"} 10\n"
    ));
    let open = [
        ("accept", "application/openmetrics-text;version=1.0.0"),
        ("accept-encoding", "gzip"),
    ];
    let answer = scrape(Method::GET, "/metrics", &open).await;
    assert_eq!(answer.header("content-encoding"), Some("gzip"));
    let text = crate::harness::codec::decompress("gzip", &answer.body);
    assert!(String::from_utf8(text).unwrap().ends_with("# EOF\n"));
    assert_eq!(scrape(Method::HEAD, "/metrics", &[]).await.body.len(), 0);
    assert_eq!(scrape(Method::GET, "/other", &[]).await.status, 404);
    assert_eq!(scrape(Method::POST, "/metrics", &[]).await.status, 405);
    // The second delivery of each delta.
    let own = collector.assert_conservation().await;
    let late = [("reason", "out_of_order")];
    assert_eq!(
        own.sum("tributary_exporter_prometheus_rejected_points", &late),
        2.0
    );
    collector.terminate().await;
}

#[tokio::test]
async fn points_beyond_max_series_are_logged_and_counted() {
    let collector = collector("max_series: 2").await;
    send(&collector, metrics(now(), 5, 10)).await;
    let message = "Dropped points of new series. Raise `max_series`, or send fewer series.";
    let line = collector.wait_for(message).await;
    assert_eq!(line.field("level"), "warn", "{}", line.text);
    assert_eq!(line.field("reason"), "the limit `max_series` is reached");
    assert_eq!(line.number("max_series"), 2);
    let own = collector.assert_conservation().await;
    let dropped = own.sum("tributary_exporter_dropped_items", &[]);
    assert!(dropped >= line.number("dropped_points") as f64, "{own}");
    assert_eq!(own.sum("tributary_exporter_prometheus_series", &[]), 2.0);
}

/// Requests overtake each other in the connector, and reloads replace it: each record is on the page once.
#[tokio::test]
async fn points_under_load_are_exposed_once_across_reloads() {
    let yaml = |number: usize| {
        format!(
            "receivers:
  otlp: {{protocols: {{http: {{endpoint: '127.0.0.1:0'}}}}}}
connectors:
  count: {{logs: {{records: {{description: 'Records {number}'}}}}}}
exporters:
  prometheus: {{endpoint: '127.0.0.1:0'}}
service:
  pipelines:
    logs: {{receivers: [otlp], exporters: [count]}}
    metrics: {{receivers: [count], exporters: [prometheus]}}
"
        )
    };
    let collector = Collector::start(&yaml(0)).await;
    let address = collector.http();
    let body =
        r#"{"resourceLogs": [{"scopeLogs": [{"logRecords": [{}, {"timeUnixNano": "7"}, {}]}]}]}"#;
    let enough = CancellationToken::new();
    let mut load = JoinSet::new();
    for _ in 0..4 {
        let enough = enough.clone();
        load.spawn(async move {
            let mut sent = 0;
            while !enough.is_cancelled() {
                let headers = [("content-type", "application/json")];
                let answer = raw::http(address, Method::POST, "/v1/logs", &headers, body).await;
                assert_eq!(answer.status, 200, "{}", answer.text());
                sent += 3;
            }
            sent
        });
    }
    for number in 1..4 {
        collector.reload(&yaml(number)).await.unwrap();
    }
    enough.cancel();
    let sent: u64 = load.join_all().await.iter().sum();
    assert!(sent > 0);
    let page = raw::http(page_at(&collector), Method::GET, "/metrics", &[], "").await;
    let line = format!("records_total{{otel_scope_name=\"tributary/connector/count\"}} {sent}\n");
    assert!(page.text().ends_with(&line), "{line}{}", page.text());
    collector.assert_conservation().await;
    collector.terminate().await;
}

struct Prometheus {
    process: Child,
    address: SocketAddr,
    program: PathBuf,
    _directory: tempfile::TempDir,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Prometheus {
    /// Scrapes these addresses every second. Returns `None` without Prometheus.
    fn start(targets: &[SocketAddr]) -> Option<Self> {
        let Some(program) = std::env::var_os("PROMETHEUS").map(PathBuf::from) else {
            println!("skipped: PROMETHEUS does not name a program");
            return None;
        };
        let directory = tempfile::tempdir().unwrap();
        let configuration = directory.path().join("prometheus.yml");
        let targets: Vec<String> = targets.iter().map(ToString::to_string).collect();
        let content = format!(
            "global: {{scrape_interval: 1s}}\nscrape_configs: \
             [{{job_name: tributary, honor_labels: true, static_configs: [{{targets: {targets:?}}}]}}]\n"
        );
        std::fs::write(&configuration, content).unwrap();
        // Prometheus does not report its port if the system chooses it.
        let address = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let process = Command::new(&program)
            .arg(format!("--config.file={}", configuration.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                directory.path().join("data").display()
            ))
            .arg(format!("--web.listen-address={address}"))
            .arg("--enable-feature=native-histograms")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Some(Prometheus {
            process,
            address,
            program,
            _directory: directory,
        })
    }

    /// Waits for a result of a query that `fits`.
    async fn wait(&self, query: &str, fits: impl Fn(f64) -> bool) -> f64 {
        within(query, async {
            loop {
                if let Some(value) = self.query(query).await.filter(|value| fits(*value)) {
                    return value;
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        })
        .await
    }

    async fn query(&self, query: &str) -> Option<f64> {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        tokio::net::TcpStream::connect(self.address).await.ok()?;
        let path = format!("/api/v1/query?query={encoded}");
        let answer = raw::http(self.address, Method::GET, &path, &[], "").await;
        let answer: Value = serde_json::from_slice(&answer.body).ok()?;
        let result = answer["data"]["result"].as_array()?;
        assert!(result.len() < 2, "{query}: {result:?}");
        result.first()?["value"][1].as_str()?.parse().ok()
    }
}

#[tokio::test]
async fn rates_and_quantiles_are_correct_in_prometheus() {
    let collector = collector("").await;
    let own = collector.server("Starting metrics server", "service");
    let Some(prometheus) = Prometheus::start(&[page_at(&collector), own]) else {
        return;
    };
    let began = now();
    send(&collector, metrics(began, 5, 10)).await;
    prometheus.wait("jobs_total", |value| value == 5.0).await;
    prometheus
        .wait("histogram_count(size_bytes)", |value| value == 10.0)
        .await;
    let between = now();
    send(&collector, metrics(between, 25, 30)).await;
    prometheus.wait("jobs_total", |value| value == 25.0).await;
    prometheus
        .wait("histogram_count(size_bytes)", |value| value == 40.0)
        .await;
    for (query, expected) in [
        (
            "max_over_time(jobs_total[1m]) - min_over_time(jobs_total[1m])",
            20.0,
        ),
        ("latency_seconds_count{job=\"shop\"}", 40.0),
        ("histogram_quantile(0.5, latency_seconds_bucket)", 1.5),
        (
            "histogram_quantile(0.5, rate(latency_seconds_bucket[1m]))",
            1.5,
        ),
        (
            "rate(latency_seconds_sum[1m]) / rate(latency_seconds_count[1m])",
            1.5,
        ),
        ("histogram_sum(size_bytes)", 60.0),
        ("histogram_fraction(1, 2, rate(size_bytes[1m]))", 1.0),
        (
            "temperature_celsius * on (job, instance) group_left (host_name) target_info{host_name=\"h1\"}",
            20.5,
        ),
        ("sum(up)", 2.0),
    ] {
        let value = prometheus.wait(query, |value| !value.is_nan()).await;
        assert!((value - expected).abs() < 1e-9, "{query}: {value}");
    }
    let page = raw::http(page_at(&collector), Method::GET, "/metrics", &[], "").await;
    check(&prometheus.program.with_file_name("promtool"), page.text());
}

fn check(promtool: &Path, page: &str) {
    use std::io::Write as _;
    let mut process = Command::new(promtool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    process
        .stdin
        .take()
        .unwrap()
        .write_all(page.as_bytes())
        .unwrap();
    let output = process.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&said)
    );
}
