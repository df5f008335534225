//! Profiles are scraped from configured and discovered servers, and arrive with the attributes of their target.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::profiles::v1development::ResourceProfiles;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::harness::{Backend, Collector, Signal, Telemetry, grpc_to};

/// A pprof file of one sample.
fn file() -> Vec<u8> {
    let mut file = vec![0x0a, 4, 8, 1, 16, 2];
    file.extend([0x12, 4, 8, 1, 16, 7]);
    file.extend([0x1a, 6, 8, 1, 0x10, 1, 0x28, 4]);
    file.extend([0x22, 8, 8, 1, 0x10, 1, 0x22, 2, 8, 1]);
    file.extend([0x2a, 4, 8, 1, 16, 3]);
    for string in ["", "contentions", "count", "main", "/bin/checkout"] {
        file.extend([0x32, u8::try_from(string.len()).unwrap()]);
        file.extend(string.as_bytes());
    }
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    std::io::Write::write_all(&mut gzip, &file).unwrap();
    gzip.finish().unwrap()
}

/// A service with pprof endpoints. The drop closes all its sockets.
struct Service {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Service {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = asked.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let seen = seen.clone();
                let answer = service_fn(move |request: Request<Incoming>| {
                    let uri = request.uri().to_string();
                    seen.lock().unwrap().push(uri.clone());
                    async move {
                        if uri.starts_with("/never") {
                            std::future::pending::<()>().await;
                        }
                        Ok::<_, Infallible>(answer(&uri))
                    }
                });
                let http = hyper::server::conn::http1::Builder::new();
                let connection = http.serve_connection(TokioIo::new(stream), answer);
                tokio::spawn(async move {
                    let _ = connection.await;
                });
            }
        });
        Service {
            address,
            asked,
            task,
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn answer(uri: &str) -> Response<Full<Bytes>> {
    match uri {
        "/login" => Response::new(Full::from("<!DOCTYPE html><title>Log in</title>")),
        uri if uri.starts_with("/debug/pprof/") => Response::new(Full::from(file())),
        _ => Response::builder()
            .status(404)
            .body(Full::from("404 page not found"))
            .unwrap(),
    }
}

fn config(receivers: &str, ids: &str, backend: &Backend) -> String {
    let exporter = grpc_to(backend, "");
    format!(
        "receivers:\n{receivers}\nexporters:\n  otlp_grpc: {exporter}\nservice:\n  pipelines:\n    \
         profiles: {{receivers: [{ids}], exporters: [otlp_grpc]}}\n"
    )
}

fn texts(profiles: &ResourceProfiles) -> BTreeMap<String, String> {
    let resource = profiles.resource.iter().flat_map(|r| &r.attributes);
    let scopes = profiles.scope_profiles.iter().flat_map(|s| &s.scope);
    let attributes = resource.chain(scopes.flat_map(|scope| &scope.attributes));
    let texts = attributes.filter_map(|attribute| match &attribute.value.as_ref()?.value {
        Some(Value::StringValue(text)) => Some((attribute.key.clone(), text.clone())),
        _ => None,
    });
    texts.collect()
}

/// Returns the received attributes of each profile's resource and scope.
fn arrived(record: &crate::harness::backend::Record) -> Vec<BTreeMap<String, String>> {
    let requests = record.telemetry(Signal::Profiles);
    let all = requests.flat_map(|telemetry| match telemetry {
        Telemetry::Profiles(request) => request.resource_profiles.iter().map(texts).collect(),
        _ => Vec::new(),
    });
    all.collect()
}

#[tokio::test]
async fn scraped_profiles_have_target_attributes() {
    let (backend, service) = (Backend::start().await, Service::start().await);
    let directory = tempfile::tempdir().unwrap();
    let list = directory.path().join("targets.yaml");
    std::fs::write(
        &list,
        format!(
            "- targets: ['{}']\n  labels: {{zone: a}}\n",
            service.address
        ),
    )
    .unwrap();
    let receivers = format!(
        "  pprof:
    remote: {{endpoint: 'http://{address}/debug/pprof/heap', collection_interval: 50ms, initial_delay: 0s}}
    targets:
      - endpoint: http://{address}
        collection_interval: 1s
        profiles: [{{name: cpu, seconds: 1}}, {{name: mutex, collection_interval: 50ms}}]
        resource: {{service.name: shop}}
      - file_sd: {{files: ['{list}']}}
        collection_interval: 50ms
        profiles: [block]",
        address = service.address,
        list = list.display(),
    );
    let collector = Collector::start(&config(&receivers, "pprof", &backend)).await;
    let has = |wanted: &[(&str, &str)], all: &[BTreeMap<String, String>]| {
        all.iter().any(|texts| {
            let mut wanted = wanted.iter();
            wanted.all(|(key, value)| texts.get(*key).is_some_and(|text| text == value))
        })
    };
    let program = ("process.executable.path", "/bin/checkout");
    let expected = [
        [
            ("pprof.profile.name", "heap"),
            ("service.name", "checkout"),
            program,
        ],
        [
            ("pprof.profile.name", "cpu"),
            ("service.name", "shop"),
            program,
        ],
        [
            ("pprof.profile.name", "mutex"),
            ("service.name", "shop"),
            program,
        ],
        [("pprof.profile.name", "block"), ("zone", "a"), program],
    ];
    let complete = |record: &_| {
        let all = arrived(record);
        expected.iter().all(|wanted| has(wanted, &all))
    };
    backend.wait_for("every profile", complete).await;
    assert!(
        service
            .asked
            .lock()
            .unwrap()
            .contains(&"/debug/pprof/profile?seconds=1".to_owned())
    );
    let up = "tributary_scraper_up";
    let block = [("profile", "block")];
    collector
        .wait_for_metrics("the discovered target is up", |metrics| {
            metrics.sum(up, &block) == 1.0
        })
        .await;
    std::fs::write(&list, "[]\n").unwrap();
    let metrics = collector
        .wait_for_metrics("the target that is gone has no gauge", |metrics| {
            !metrics.has(up, &block)
        })
        .await;
    assert!(
        metrics.sum(
            "otelcol_scraper_scraped_profile_records",
            &[("scraper", "remote")]
        ) >= 1.0
    );
    assert!(metrics.has(up, &[("profile", "mutex")]));
    collector.assert_conservation_in_flight().await;
    assert!(collector.terminate().await.status.success());
}

#[tokio::test]
async fn invalid_scrape_response_is_logged_once() {
    let (backend, service) = (Backend::start().await, Service::start().await);
    let receivers = format!(
        "  pprof/login: {{remote: {{endpoint: 'http://{address}/login', collection_interval: 20ms, initial_delay: 0s}}}}
  pprof/missing: {{remote: {{endpoint: 'http://{address}/heap', collection_interval: 20ms, initial_delay: 0s}}}}",
        address = service.address,
    );
    let ids = "pprof/login, pprof/missing";
    let collector = Collector::start(&config(&receivers, ids, &backend)).await;
    collector
        .wait_for_metrics("three failures each", |metrics| {
            ["pprof/login", "pprof/missing"].iter().all(|id| {
                metrics.sum(
                    "otelcol_scraper_errored_profile_records",
                    &[("receiver", id)],
                ) >= 3.0
            })
        })
        .await;
    let lines = collector.lines();
    for (url, part) in [("/login", "an HTML page"), ("/heap", "404 page not found")] {
        let about = lines.iter().filter(|line| {
            line.message().starts_with("Cannot scrape a profile;")
                && line.field("url").ends_with(url)
        });
        let about: Vec<_> = about.collect();
        assert_eq!(about.len(), 1, "{url}");
        assert!(
            about[0].field("error").contains(part),
            "{}",
            about[0].field("error")
        );
    }
}

#[tokio::test]
async fn profile_dropped_at_shutdown_is_named() {
    let (backend, service) = (Backend::start().await, Service::start().await);
    let url = format!("http://{}/never/profile?seconds=30", service.address);
    let receivers = format!(
        "  pprof: {{remote: {{endpoint: '{url}', collection_interval: 60s, initial_delay: 0s}}}}"
    );
    let collector = Collector::start(&config(&receivers, "pprof", &backend)).await;
    let asked = |_: &_| !service.asked.lock().unwrap().is_empty();
    collector.wait_for_metrics("a request", asked).await;
    let ended = collector.terminate().await;
    let line = ended.line(
        "Cancelled a scrape in progress: the receiver is shutting down, or the target was removed",
    );
    assert_eq!(line.field("url"), url);
    assert!(line.field("after").ends_with('s'), "{}", line.text);
}
