//! Targets in Prometheus' formats are discovered and scraped, and their metrics arrive with the labels of the target.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{NumberDataPoint, number_data_point};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::harness::backend::Record;
use crate::harness::collector::Line;
use crate::harness::{Backend, Collector, Signal, Telemetry, grpc_to};

/// A number as it arrived.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Arrived {
    service: String,
    metric: String,
    /// `None` for the end of a series.
    value: Option<String>,
}

/// A server with a page and a list of targets. The drop closes all its sockets.
struct Exposition {
    address: SocketAddr,
    /// Whether the page is malformed.
    is_broken: Arc<AtomicBool>,
    /// Requests for `/elsewhere` with credentials.
    leaked: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Exposition {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (is_broken, leaked) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let (broken, leaks) = (is_broken.clone(), leaked.clone());
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (broken, leaks) = (broken.clone(), leaks.clone());
                let answer = service_fn(move |request: Request<Incoming>| {
                    let answer = answer(&request, address, broken.load(Relaxed), &leaks);
                    async move { Ok::<_, Infallible>(answer) }
                });
                let http = hyper::server::conn::http1::Builder::new();
                let connection = http.serve_connection(TokioIo::new(stream), answer);
                tokio::spawn(async move {
                    let _ = connection.await;
                });
            }
        });
        Exposition {
            address,
            is_broken,
            leaked,
            task,
        }
    }
}

impl Drop for Exposition {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn answer(
    request: &Request<Incoming>,
    address: SocketAddr,
    is_broken: bool,
    leaks: &AtomicUsize,
) -> Response<Full<Bytes>> {
    let authorization = request.headers().get("authorization");
    let status = |status: u16| {
        Response::builder()
            .status(status)
            .body(Full::default())
            .unwrap()
    };
    match request.uri().path() {
        "/targets" => {
            let list =
                format!("[{{\"targets\": [\"{address}\"], \"labels\": {{\"zone\": \"a\"}}}}]");
            Response::new(Full::from(list))
        }
        "/moved" if !request.headers().contains_key("x-key") => status(403),
        "/moved" => {
            let elsewhere = format!("http://localhost:{}/elsewhere", address.port());
            let answer = Response::builder()
                .status(302)
                .header("location", elsewhere);
            answer.body(Full::default()).unwrap()
        }
        "/elsewhere" => {
            let is_leaked = authorization.is_some() || request.headers().contains_key("x-key");
            leaks.fetch_add(usize::from(is_leaked), Relaxed);
            Response::new(Full::from("moved 1\n"))
        }
        "/metrics" if authorization.is_none_or(|value| value != "Bearer right") => status(401),
        "/metrics" if is_broken => Response::new(Full::from("jobs_total{code=\"200\" 7\n")),
        "/metrics" => {
            let page = "# TYPE jobs_total counter\njobs_total{code=\"200\"} 7\n";
            let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
            std::io::Write::write_all(&mut gzip, page.as_bytes()).unwrap();
            let answer = Response::builder()
                .header("content-encoding", "gzip")
                .header("content-type", "text/plain; version=0.0.4");
            answer.body(Full::from(gzip.finish().unwrap())).unwrap()
        }
        _ => status(404),
    }
}

fn config(jobs: &str, backend: &Backend) -> String {
    let exporter = grpc_to(backend, "");
    format!(
        "receivers:
  prometheus:
    config:
      global: {{scrape_interval: 1s}}
      scrape_configs:
{jobs}
exporters:
  otlp_grpc: {exporter}
service:
  pipelines:
    metrics: {{receivers: [prometheus], exporters: [otlp_grpc]}}
"
    )
}

/// Returns the numbers that have arrived.
fn arrived(record: &Record) -> BTreeSet<Arrived> {
    let requests = record.telemetry(Signal::Metrics);
    let requests = requests.filter_map(|telemetry| match telemetry {
        Telemetry::Metrics(request) => Some(request),
        _ => None,
    });
    let mut arrived = BTreeSet::new();
    for of_resource in requests.flat_map(|request| &request.resource_metrics) {
        let attributes = of_resource
            .resource
            .iter()
            .flat_map(|resource| &resource.attributes);
        let mut names = attributes.filter(|attribute| attribute.key == "service.name");
        let name = names
            .next()
            .and_then(|attribute| attribute.value.as_ref()?.value.as_ref());
        let service = match name {
            Some(Value::StringValue(name)) => name.clone(),
            _ => String::new(),
        };
        for metric in of_resource
            .scope_metrics
            .iter()
            .flat_map(|scope| &scope.metrics)
        {
            let points: &[NumberDataPoint] = match &metric.data {
                Some(Data::Gauge(gauge)) => &gauge.data_points,
                Some(Data::Sum(sum)) => &sum.data_points,
                _ => &[],
            };
            arrived.extend(points.iter().map(|point| Arrived {
                service: service.clone(),
                metric: metric.name.clone(),
                value: match point.value {
                    Some(number_data_point::Value::AsDouble(value)) => Some(value.to_string()),
                    _ => None,
                },
            }));
        }
    }
    arrived
}

fn expect(service: &str, metric: &str, value: Option<&str>) -> Arrived {
    Arrived {
        service: service.to_owned(),
        metric: metric.to_owned(),
        value: value.map(str::to_owned),
    }
}

#[tokio::test]
async fn scraped_metrics_arrive_and_a_broken_page_ends_series() {
    let (backend, target) = (Backend::start().await, Exposition::start().await);
    let jobs = format!(
        "        - job_name: list
          authorization: {{credentials: right}}
          http_sd_configs: [{{url: 'http://{0}/targets'}}]
        - job_name: wrong
          params: {{job: [wrong]}}
          static_configs: [{{targets: ['{0}']}}]",
        target.address
    );
    let collector = Collector::start(&config(&jobs, &backend)).await;
    let seven = expect("list", "jobs_total", Some("7"));
    let refused = expect("wrong", "up", Some("0"));
    backend
        .wait_for("the metrics of both jobs", |record| {
            let arrived = arrived(record);
            arrived.contains(&seven) && arrived.contains(&refused)
        })
        .await;
    let right = format!("http://{}/metrics", target.address);
    let wrong = format!("{right}?job=wrong");
    let is_failure = |line: &Line, url: &str| {
        line.message() == "Cannot scrape a target" && line.field("url") == url
    };
    let line = collector
        .wait_for_line("the wrong job fails", 0, |line| is_failure(line, &wrong))
        .await;
    assert!(
        line.field("error").contains("401"),
        "{}",
        line.field("error")
    );
    target.is_broken.store(true, Relaxed);
    let ended = expect("list", "jobs_total", None);
    backend
        .wait_for("the end of the series", |record| {
            arrived(record).contains(&ended)
        })
        .await;
    collector
        .wait_for_line("the right job fails", 0, |line| is_failure(line, &right))
        .await;
    for url in [&right, &wrong] {
        let lines = collector.lines();
        let failures = lines.iter().filter(|line| is_failure(line, url));
        assert_eq!(failures.count(), 1, "{url}");
    }
    target.is_broken.store(false, Relaxed);
    let line = collector.wait_for("Scraping a target works again").await;
    assert!(line.number("failures") >= 1);
    let metrics = collector.metrics().await;
    let failed = [("job", "wrong"), ("outcome", "failure")];
    assert!(metrics.sum("tributary_receiver_prometheus_scrapes", &failed) >= 1.0);
    assert!(metrics.sum("otelcol_receiver_accepted_metric_points", &[]) >= 6.0);
}

#[tokio::test]
async fn redirect_to_another_host_gets_no_credentials() {
    let (backend, target) = (Backend::start().await, Exposition::start().await);
    let jobs = format!(
        "        - job_name: moved
          metrics_path: /moved
          basic_auth: {{username: jane, password: secret}}
          http_headers: {{X-Key: {{secrets: [hidden]}}}}
          static_configs: [{{targets: ['{}']}}]",
        target.address
    );
    let _collector = Collector::start(&config(&jobs, &backend)).await;
    let moved = expect("moved", "moved", Some("1"));
    backend
        .wait_for("the page behind the redirect", |record| {
            arrived(record).contains(&moved)
        })
        .await;
    assert_eq!(target.leaked.load(Relaxed), 0);
}
