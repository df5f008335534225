//! Services, sidecars, a rack that makes summaries, a zone: a lost response does not cause duplicate samples.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use prost::Message as _;
use tokio::sync::watch;

use crate::harness::site::{Site, page};
use crate::harness::{Backend, Collector, grpc_at, grpc_to, http_at, pprof, raw, within, yaml};

/// Services, and the names of their files.
const SERVICES: [&str; 2] = ["shop", "till"];
const EACH: usize = 3;

/// Profiles that services have served.
type Given = Arc<Mutex<Vec<Bytes>>>;

/// A service with a recorded file, each time with another second, up to the allowed number.
async fn service(given: &Given, may: &Arc<AtomicUsize>) -> Site {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/profiles");
    let recorded = pprof::read(&std::fs::read(directory.join("mutex.pb.gz")).unwrap());
    let (given, may, count) = (given.clone(), may.clone(), Mutex::new(0));
    Site::start(move |_| {
        let mut count = count.lock().unwrap();
        let answer = if *count < may.load(Relaxed) {
            *count += 1;
            let mut profile = recorded.clone();
            profile.time_nanos += i64::try_from(*count).unwrap() * 1_000_000_000;
            // Cumulative values would not be added up, so the profile is a delta.
            profile.duration_nanos = 1_000_000_000;
            let file = Bytes::from(profile.encode_to_vec());
            given.lock().unwrap().push(file.clone());
            page(StatusCode::OK, file)
        } else {
            page(StatusCode::SERVICE_UNAVAILABLE, "not now")
        };
        async move { answer }
    })
    .await
}

struct Services {
    given: Given,
    /// Number of files that each service may still serve.
    may: Arc<AtomicUsize>,
    _sites: Vec<Site>,
    sidecars: Vec<Collector>,
}

impl Services {
    async fn start(may: usize, rack: SocketAddr) -> Self {
        let (given, may) = (Given::default(), Arc::new(AtomicUsize::new(may)));
        let (mut sites, mut sidecars) = (Vec::new(), Vec::new());
        for name in SERVICES {
            let site = service(&given, &may).await;
            sidecars.push(sidecar(&site, name, rack).await);
            sites.push(site);
        }
        Services {
            given,
            may,
            _sites: sites,
            sidecars,
        }
    }
}

async fn sidecar(service: &Site, name: &str, rack: SocketAddr) -> Collector {
    Collector::start(&format!(
        "receivers:
  pprof:
    remote: {{endpoint: 'http://{}/debug/pprof/mutex', collection_interval: 50ms, initial_delay: 0s}}
exporters:
  otlp_http: {}
processors:
  resource: {{attributes: [{{key: service.name, value: {name}, action: upsert}}]}}
service:
  pipelines:
    profiles: {{receivers: [pprof], processors: [resource], exporters: [otlp_http]}}
",
        service.address,
        http_at(rack, ""),
    ))
    .await
}

/// A proxy in front of the rack that loses responses: it delays them until a signal, then closes the connection.
struct LossyProxy {
    site: Site,
    rack: Arc<Mutex<SocketAddr>>,
    /// Number of delayed responses.
    kept: watch::Receiver<usize>,
    /// Number of profiles to keep.
    lost: Arc<Mutex<usize>>,
    /// Whether connections of waiting clients are closed.
    closing: watch::Sender<bool>,
}

impl LossyProxy {
    async fn to(rack: SocketAddr, lost: usize) -> Self {
        let (rack, lost) = (Arc::new(Mutex::new(rack)), Arc::new(Mutex::new(lost)));
        let (count, kept) = watch::channel(0);
        let closing = watch::Sender::new(false);
        let (to, close, count) = (rack.clone(), closing.clone(), Arc::new(count));
        let most = lost.clone();
        let site = Site::start(move |request| {
            let (to, count, mut close) = (*to.lock().unwrap(), count.clone(), close.subscribe());
            let most = most.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.ok()?.to_bytes();
                let headers = ["content-type", "content-encoding"].into_iter();
                let headers: Vec<_> = headers
                    .filter_map(|name| Some((name, parts.headers.get(name)?.to_str().ok()?)))
                    .collect();
                let path = parts.uri.path();
                let answer = raw::http(to, Method::POST, path, &headers, body).await;
                let mut is_lost = false;
                if answer.status == StatusCode::OK {
                    count.send_if_modified(|count| {
                        is_lost = *count < *most.lock().unwrap();
                        *count += usize::from(is_lost);
                        is_lost
                    });
                }
                if is_lost {
                    close.wait_for(|closing| *closing).await.ok()?;
                    return None;
                }
                let mut response = page(answer.status, answer.body)?;
                *response.headers_mut() = answer.headers;
                Some(response)
            }
        })
        .await;
        LossyProxy {
            site,
            rack,
            kept,
            lost,
            closing,
        }
    }
}

impl LossyProxy {
    /// Loses up to this many responses in total.
    fn lose(&self, answers: usize) {
        *self.lost.lock().unwrap() = answers;
    }

    /// Waits until this many responses are delayed.
    async fn wait_for(&mut self, answers: usize) {
        let kept = self.kept.wait_for(|kept| *kept >= answers);
        within("answers of the rack", kept).await.unwrap();
    }

    /// Closes the connections of all waiting clients, and switches to this rack without loss.
    fn forward_to(&self, rack: SocketAddr) {
        *self.rack.lock().unwrap() = rack;
        self.lose(0);
        self.closing.send_replace(true);
    }
}

/// Starts a rack that drops duplicates and summarizes by service.
async fn rack(zone: &Collector, interval: &str) -> Collector {
    let summaries = format!("{{mode: aggregate, interval: {interval}, group_by: [service.name]}}");
    let processors = [("dedup", "{}"), ("compression", &*summaries)];
    let exporter = grpc_at(zone.grpc(), "");
    Collector::start(&yaml(&processors, &[("otlp_grpc", &exporter)])).await
}

async fn zone(backend: &Backend) -> Collector {
    let exporter = grpc_to(backend, "");
    Collector::start(&yaml(&[("dedup", "{}")], &[("otlp_grpc", &exporter)])).await
}

/// Waits until each service has sent this many files, and compares their content with the received items.
async fn check(backend: &Backend, services: &Services, each: usize) {
    let given = &services.given;
    backend
        .wait_for("all that the services have given", |record| {
            let given = given.lock().unwrap();
            given.len() == SERVICES.len() * each && pprof::sum(record) >= sum(&given)
        })
        .await;
    for sidecar in &services.sidecars {
        sidecar.assert_conservation().await;
    }
    let expected = pprof::totals(given.lock().unwrap().iter().map(|file| &**file));
    assert!(!expected.is_empty());
    let arrived = pprof::files_of(backend);
    let arrived = pprof::totals(arrived.iter().map(|file| &**file));
    assert_eq!(arrived, expected);
}

fn sum(given: &[Bytes]) -> i64 {
    let profiles = given.iter().map(|file| pprof::read(file));
    let samples = profiles.flat_map(|profile| profile.sample);
    samples.flat_map(|sample| sample.value).sum()
}

/// Returns the duplicates that the `dedup` of a collector counted.
async fn duplicates(collector: &Collector) -> f64 {
    let metrics = collector.assert_conservation().await;
    metrics.sum("tributary_processor_dedup_duplicate_items", &[])
}

#[tokio::test]
async fn lost_responses_do_not_duplicate_summary_samples() {
    let backend = Backend::start().await;
    let zone = zone(&backend).await;
    let rack = rack(&zone, "200ms").await;
    let lost = SERVICES.len() * EACH - 1;
    let way = LossyProxy::to(rack.http(), lost).await;
    way.closing.send_replace(true);
    let services = Services::start(EACH, way.site.address).await;
    check(&backend, &services, EACH).await;
    assert_eq!(*way.kept.borrow(), lost);
    let again = duplicates(&rack).await;
    assert!(again >= lost as f64, "{again}");
}

#[tokio::test]
async fn unacknowledged_samples_of_killed_rack_count_once() {
    let backend = Backend::start().await;
    let zone = zone(&backend).await;
    // The rack buffers all profiles of a service after the first one until it is killed.
    let first = rack(&zone, "1h").await;
    let mut way = LossyProxy::to(first.http(), 0).await;
    let services = Services::start(1, way.site.address).await;
    check(&backend, &services, 1).await;
    way.lose(usize::MAX);
    services.may.store(EACH, Relaxed);
    let unanswered = SERVICES.len() * (EACH - 1);
    way.wait_for(unanswered).await;
    first.signal("KILL");
    first.ended().await;
    let second = rack(&zone, "200ms").await;
    way.forward_to(second.http());
    check(&backend, &services, EACH).await;
    assert_eq!(duplicates(&zone).await, 0.0);
}

#[tokio::test]
async fn forwarded_samples_of_killed_rack_count_once() {
    let backend = Backend::start().await;
    let zone = zone(&backend).await;
    let first = rack(&zone, "1h").await;
    let mut way = LossyProxy::to(first.http(), usize::MAX).await;
    let services = Services::start(1, way.site.address).await;
    way.wait_for(SERVICES.len()).await;
    // The first profile of a series does not wait for an interval.
    backend
        .wait_for("the first profiles", |record| {
            pprof::sum(record) == sum(&services.given.lock().unwrap())
        })
        .await;
    first.signal("KILL");
    first.ended().await;
    let second = rack(&zone, "1h").await;
    way.forward_to(second.http());
    check(&backend, &services, 1).await;
    zone.wait_for_metrics("what came again", |metrics| {
        metrics.sum("tributary_processor_dedup_duplicate_items", &[]) > 0.0
    })
    .await;
    check(&backend, &services, 1).await;
}
