//! Pushed pprof files leave as OTLP profiles, and the client learns the true outcome.

use std::io::Write as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use http::Method;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use tributary_memory::Budget;
use tributary_profiles::dictionary::Dictionary;
use tributary_profiles::model::{Profile, ResourceProfiles, Samples, ScopeProfiles};
use tributary_profiles::pprof::write::write;
use tributary_profiles::pprof::{LinkLabels, PprofReader, ReadOptions};

use crate::harness::{Answer, Backend, Collector, Refusal, Signal, Telemetry, grpc_to, raw};

/// Starts a collector whose `pprof` receiver has these sections.
async fn start(sections: &str, backend: &Backend, exporter: &str) -> Collector {
    let exporter = grpc_to(backend, exporter);
    let yaml = format!(
        "receivers: {{pprof: {sections}}}
exporters: {{otlp_grpc: {exporter}}}
service: {{pipelines: {{profiles: {{receivers: [pprof], exporters: [otlp_grpc]}}}}}}
"
    );
    Collector::start(&yaml).await
}

const SERVER: &str = "{server: {endpoint: '127.0.0.1:0', max_request_body_size: 100000}}";

fn file(value: i64) -> Vec<u8> {
    let mut dictionary = Dictionary::new();
    let (kind, unit) = (dictionary.string("cpu"), dictionary.string("nanoseconds"));
    let mut profile = Profile::default();
    profile.header.sample_type.kind = kind;
    profile.header.sample_type.unit = unit;
    profile.header.time = 1;
    let mut samples = Samples::default();
    samples.push(Default::default(), &[value], &[]);
    profile.samples = samples;
    let scope = ScopeProfiles {
        profiles: vec![profile],
        ..ScopeProfiles::default()
    };
    let resource = ResourceProfiles::default();
    let files = write(&dictionary, &resource, &scope, &LinkLabels::default());
    let file = files.into_iter().next().unwrap();
    // The file is one that readers accept.
    let mut permit = Budget::new(1 << 20).empty_permit();
    let read = PprofReader::new().read(
        &file,
        &ReadOptions::default(),
        &mut permit,
        &mut dictionary,
        None,
    );
    assert_eq!(read.unwrap().profiles.profiles.len(), 1);
    file
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// The profiles that have arrived.
fn arrived(backend: &Backend) -> Vec<ExportProfilesServiceRequest> {
    let record = backend.record();
    let all = record
        .telemetry(Signal::Profiles)
        .map(|telemetry| match telemetry {
            Telemetry::Profiles(request) => request.clone(),
            other => panic!("{other:?}"),
        });
    all.collect()
}

/// Values of the samples, in ascending order.
fn values(backend: &Backend) -> Vec<i64> {
    let mut values: Vec<i64> = arrived(backend)
        .iter()
        .flat_map(|request| &request.resource_profiles)
        .flat_map(|resource| &resource.scope_profiles)
        .flat_map(|scope| &scope.profiles)
        .flat_map(|profile| &profile.samples)
        .flat_map(|sample| sample.values.clone())
        .collect();
    values.sort_unstable();
    values
}

#[tokio::test]
async fn pushed_file_arrives_with_query_parameters() {
    let backend = Backend::start().await;
    let collector = start(SERVER, &backend, "").await;
    let address = collector.server("Starting HTTP server", "pprof");
    let path = "/v1/pprof?service.name=checkout&profile=cpu";
    for (number, body) in [file(1), gzip(&file(2))].into_iter().enumerate() {
        let response = raw::http(address, Method::POST, path, &[], body).await;
        assert_eq!(response.status, 204, "{number}: {}", response.text());
    }
    let encoded = [("content-encoding", "gzip")];
    let response = raw::http(address, Method::POST, path, &encoded, gzip(&file(3))).await;
    assert_eq!(response.status, 204, "{}", response.text());
    backend
        .wait_for("three profiles", |record| {
            record.telemetry(Signal::Profiles).count() == 3
        })
        .await;
    assert_eq!(values(&backend), [1, 2, 3]);
    let all = format!("{:?}", arrived(&backend));
    assert_eq!(all.matches("StringValue(\"checkout\")").count(), 3, "{all}");
    let metrics = collector.assert_conservation().await;
    let labels = [("receiver", "pprof"), ("transport", "http")];
    assert_eq!(
        metrics.sum("otelcol_receiver_accepted_profile_samples", &labels),
        3.0
    );
}

/// A file of a profiler.
fn foreign(name: &str) -> Vec<u8> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/profile_formats/fixtures");
    std::fs::read(directory.join(name)).unwrap()
}

#[tokio::test]
async fn files_of_other_profilers_arrive_with_their_totals() {
    let backend = Backend::start().await;
    let collector = start(SERVER, &backend, "").await;
    let address = collector.server("Starting HTTP server", "pprof");
    let post = |body| raw::http(address, Method::POST, "/v1/pprof?service.name=a", &[], body);
    let recording = foreign("small.jfr");
    let broken = post(recording[..900].to_vec()).await;
    assert_eq!(broken.status, 400);
    let reason = broken.text();
    assert!(
        reason.contains("not a valid JFR file: byte 0: a chunk has"),
        "{reason}"
    );
    let recording = post(recording).await;
    assert_eq!(recording.status, 204, "{}", recording.text());
    let heap = post(gzip(&foreign("gperftools.heap"))).await;
    assert_eq!(heap.status, 204, "{}", heap.text());
    backend
        .wait_for("two files", |record| {
            record.telemetry(Signal::Profiles).count() == 2
        })
        .await;
    // 3 samples of 20 ms, then the objects and bytes of the heap.
    let values = values(&backend);
    assert_eq!(
        values.iter().sum::<i64>(),
        60_000_000 + 91 + 12_150_072 + 61 + 9_150_072
    );
    collector.assert_conservation().await;
}

/// Returns a file whose sample refers to a missing location.
fn dangling() -> Vec<u8> {
    let mut file = file(5);
    // A sample: location 9, value 7.
    file.extend([0x12, 6, 0x0a, 1, 9, 0x12, 1, 7]);
    file
}

#[tokio::test]
async fn lenient_receiver_repairs_and_counts() {
    let backend = Backend::start().await;
    let strict = start(SERVER, &backend, "").await;
    let address = strict.server("Starting HTTP server", "pprof");
    let refused = raw::http(address, Method::POST, "/v1/pprof", &[], dangling()).await;
    assert_eq!(refused.status, 400, "{}", refused.text());
    let sections = "{lenient: true, server: {endpoint: '127.0.0.1:0'}}";
    let collector = start(sections, &backend, "").await;
    let address = collector.server("Starting HTTP server", "pprof");
    let response = raw::http(address, Method::POST, "/v1/pprof", &[], dangling()).await;
    assert_eq!(response.status, 204, "{}", response.text());
    backend
        .wait_for("the file", |record| {
            record.telemetry(Signal::Profiles).count() == 1
        })
        .await;
    // The samples have no frames and are equal.
    assert_eq!(values(&backend), [12]);
    let metrics = collector.assert_conservation().await;
    let labels = [("receiver", "pprof"), ("kind", "references")];
    assert_eq!(
        metrics.sum("tributary_receiver_pprof_repairs", &labels),
        1.0
    );
}

#[tokio::test]
async fn refusals_have_matching_status() {
    let backend = Backend::start().await;
    let collector = start(SERVER, &backend, "").await;
    let address = collector.server("Starting HTTP server", "pprof");
    let post = |path, body: Vec<u8>| raw::http(address, Method::POST, path, &[], body);
    let bad = post("/v1/pprof", b"{}".to_vec()).await;
    assert_eq!(bad.status, 400);
    assert!(
        bad.text().starts_with("400 not a usable pprof file: "),
        "{}",
        bad.text()
    );
    let large = post("/v1/pprof", gzip(&vec![0; 100_001])).await;
    assert_eq!(large.status, 413);
    assert!(
        large.text().contains("max_request_body_size"),
        "{}",
        large.text()
    );
    let get = raw::http(address, Method::GET, "/v1/pprof", &[], Vec::new()).await;
    assert_eq!(
        (get.status.as_u16(), get.header("allow")),
        (405, Some("POST"))
    );
    assert_eq!(post("/v1/traces", file(1)).await.status, 404);
    // Other files are still accepted.
    assert_eq!(post("/v1/pprof", file(7)).await.status, 204);
    backend
        .wait_for("the profile", |record| {
            record.telemetry(Signal::Profiles).count() == 1
        })
        .await;
    assert_eq!(values(&backend), [7]);
}

#[tokio::test]
async fn full_queue_refuses_sender_until_room_is_free() {
    let backend = Backend::start().await;
    backend.always(Answer::Refuse(Refusal::UNAVAILABLE));
    let queue = "sending_queue: {queue_size: 1, sizer: requests, num_consumers: 1}";
    let collector = start(SERVER, &backend, queue).await;
    let address = collector.server("Starting HTTP server", "pprof");
    let mut taken = Vec::new();
    let refused = loop {
        let value = i64::try_from(taken.len()).unwrap() + 1;
        let response = raw::http(address, Method::POST, "/v1/pprof", &[], file(value)).await;
        match response.status.as_u16() {
            204 => taken.push(value),
            _ => break response,
        }
        assert!(taken.len() < 100, "the queue has no end");
    };
    assert!([429, 503].contains(&refused.status.as_u16()), "{refused:?}");
    let seconds: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!(seconds >= 1);
    backend.always(Answer::Accept);
    let count = taken.len();
    backend
        .wait_for("what was taken", |record| {
            record.telemetry(Signal::Profiles).count() == count
        })
        .await;
    assert_eq!(values(&backend), taken);
    // The backend has the file before its queue slot is free.
    collector
        .wait_for_metrics("an empty queue", |metrics| {
            metrics.sum("otelcol_exporter_queue_size", &[]) == 0.0
        })
        .await;
    let again = raw::http(address, Method::POST, "/v1/pprof", &[], file(1000)).await;
    assert_eq!(again.status, 204);
    backend
        .wait_for("the refused one", |record| {
            record.telemetry(Signal::Profiles).count() == count + 1
        })
        .await;
    collector.assert_conservation().await;
}

#[tokio::test]
async fn files_are_read_once_and_own_process_is_profiled() {
    let directory = tempfile::TempDir::new().unwrap();
    let place = |name: &str| directory.path().join(name);
    std::fs::write(place("a.pprof"), file(11)).unwrap();
    std::fs::write(place("broken.pprof"), b"no profile").unwrap();
    let include = Path::display(directory.path());
    let sections = format!(
        "{{file: {{include: '{include}/*.pprof', collection_interval: 20ms, initial_delay: 1ms}}}}"
    );
    let backend = Backend::start().await;
    let collector = start(&sections, &backend, "").await;
    collector.wait_for("Skipped a file until it changes").await;
    // Written under another name, then renamed, so that the file is complete at once.
    std::fs::write(place("b"), gzip(&file(12))).unwrap();
    std::fs::rename(place("b"), place("b.pprof")).unwrap();
    backend
        .wait_for("both files", |record| {
            record.telemetry(Signal::Profiles).count() == 2
        })
        .await;
    assert_eq!(values(&backend), [11, 12]);
    let skipped = collector
        .lines()
        .iter()
        .filter(|line| line.message().starts_with("Skipped"))
        .count();
    assert_eq!(skipped, 1);
}
