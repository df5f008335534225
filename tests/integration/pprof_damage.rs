//! Damaged pprof files, pushed or scraped, cause a clear error and do not affect other data.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{Method, StatusCode};
use prost::Message as _;

use crate::harness::site::{Site, page};
use crate::harness::{Backend, Collector, grpc_to, pprof, raw};

/// Number of damaged files made of each valid file, for each kind of damage.
const EACH: usize = 12;

/// The recorded profiles, with and without gzip.
fn recorded() -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/profiles");
    let names = ["cpu", "goroutine", "heap", "mutex"];
    let files = names.map(|name| std::fs::read(directory.join(format!("{name}.pb.gz"))).unwrap());
    let plain: Vec<_> = files
        .iter()
        .map(|file| pprof::read(file).encode_to_vec())
        .collect();
    files.into_iter().chain(plain).collect()
}

/// Files that are truncated, or have some flipped bits.
fn damaged() -> Vec<Bytes> {
    let mut random = fastrand::Rng::with_seed(11);
    let mut damaged = Vec::new();
    for file in recorded() {
        for cut in [0, 1, 2, 3, 10, file.len() - 1, file.len() - 8] {
            damaged.push(Bytes::copy_from_slice(&file[..cut]));
        }
        for _ in 0..EACH {
            let cut = random.usize(..file.len());
            damaged.push(Bytes::copy_from_slice(&file[..cut]));
            let mut turned = file.clone();
            for _ in 0..random.usize(1..4) {
                turned[random.usize(..file.len())] ^= 1 << random.u8(..8);
            }
            damaged.push(turned.into());
        }
    }
    damaged
}

/// A file with a unique sample.
fn good(number: i64) -> Vec<u8> {
    let strings = ["", "good", "count", "main"];
    let kind = pprof::ValueType { kind: 1, unit: 2 };
    let profile = pprof::Profile {
        sample_type: vec![kind],
        sample: vec![pprof::Sample {
            location_id: vec![1],
            value: vec![number],
            label: Vec::new(),
        }],
        location: vec![pprof::Location {
            id: 1,
            line: vec![pprof::Line {
                function_id: 1,
                line: 1,
            }],
            ..Default::default()
        }],
        function: vec![pprof::Function {
            id: 1,
            name: 3,
            ..Default::default()
        }],
        string_table: strings.map(str::to_owned).to_vec(),
        time_nanos: number,
        ..Default::default()
    };
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    std::io::Write::write_all(&mut gzip, &profile.encode_to_vec()).unwrap();
    gzip.finish().unwrap()
}

/// The values of the good files that have arrived.
fn arrived(backend: &Backend) -> i64 {
    let files = pprof::files_of(backend);
    let totals = pprof::totals(files.iter().map(|file| &**file));
    let good = totals.iter().filter(|(key, _)| key.starts_with("good "));
    good.map(|(_, value)| value).sum()
}

async fn start(sections: &str, backend: &Backend) -> Collector {
    let exporter = grpc_to(backend, "");
    Collector::start(&format!(
        "receivers: {{pprof: {sections}}}
processors: {{batch: {{timeout: 10ms}}}}
exporters: {{otlp_grpc: {exporter}}}
service: {{pipelines: {{profiles: {{receivers: [pprof], processors: [batch], exporters: [otlp_grpc]}}}}}}
"
    ))
    .await
}

#[tokio::test]
async fn damaged_pushed_files_are_refused_with_a_reason() {
    let backend = Backend::start().await;
    let collector = start("{server: {endpoint: '127.0.0.1:0'}}", &backend).await;
    let address = collector.server("Starting HTTP server", "pprof");
    let post = async |file: Bytes| raw::http(address, Method::POST, "/v1/pprof", &[], file).await;
    let (mut expected, mut refused) = (0, 0);
    let before = collector.memory();
    for (file, number) in damaged().into_iter().zip(1..) {
        let answer = post(file).await;
        match answer.status.as_u16() {
            // The damage has no effect on the structure, for example in a name or a value.
            204 => {}
            400 => {
                refused += 1;
                let text = answer.text();
                let reason = text.strip_prefix("400 not a usable pprof file: ");
                assert!(reason.is_some_and(|reason| reason.len() > 10), "{text}");
                assert!(!text.contains("OTLP"), "{text}");
            }
            _ => panic!("{answer:?}"),
        }
        assert_eq!(post(good(number).into()).await.status, 204);
        expected += number;
    }
    assert!(refused > 50, "{refused}");
    // The growth is that of one file, not of all files.
    assert!(collector.peak_memory() < before + (64 << 20));
    collector.assert_conservation().await;
    assert_eq!(arrived(&backend), expected);
    assert!(collector.terminate().await.status.success());
}

#[tokio::test]
async fn damaged_scraped_files_do_not_block_good_ones() {
    let backend = Backend::start().await;
    let damaged = damaged();
    let all = damaged.len();
    let (served, given) = (AtomicUsize::new(0), Arc::new(Mutex::new(0)));
    let last = given.clone();
    let site = Site::start(move |request| {
        let file = match request.uri().path() {
            "/damaged" => damaged[served.fetch_add(1, Relaxed) % all].clone(),
            _ => {
                // Each file has a unique number.
                let mut last = last.lock().unwrap();
                *last += 1;
                good(*last).into()
            }
        };
        async move { page(StatusCode::OK, file) }
    })
    .await;
    let section = |path: &str| {
        let url = format!("http://{}/{path}", site.address);
        format!("remote: {{endpoint: '{url}', collection_interval: 10ms, initial_delay: 0s}}")
    };
    let exporter = grpc_to(&backend, "");
    let collector = Collector::start(&format!(
        "receivers:
  pprof/damaged: {{{}}}
  pprof/good: {{{}}}
exporters: {{otlp_grpc: {exporter}}}
service: {{pipelines: {{profiles: {{receivers: [pprof/damaged, pprof/good], exporters: [otlp_grpc]}}}}}}
",
        section("damaged"),
        section("good"),
    ))
    .await;
    let of = |id| [("receiver", id)];
    let metrics = collector
        .wait_for_metrics("many of both", |metrics| {
            let had = "otelcol_scraper_scraped_profile_records";
            let failed = "otelcol_scraper_errored_profile_records";
            metrics.sum(had, &of("pprof/good")) >= 20.0
                && metrics.sum(failed, &of("pprof/damaged")) >= 5.0
        })
        .await;
    let failed = "otelcol_scraper_errored_profile_records";
    assert_eq!(metrics.sum(failed, &of("pprof/good")), 0.0);
    let lines = collector.lines();
    let errors: Vec<_> = lines
        .iter()
        .filter(|line| line.message().starts_with("Cannot scrape a profile;"))
        .map(|line| line.field("error"))
        .collect();
    assert!(!errors.is_empty());
    for error in errors {
        assert!(error.len() > 10 && !error.contains("OTLP"), "{error}");
    }
    assert!(collector.terminate().await.status.success());
    let values = arrived(&backend);
    // The last file may have been in flight at the end.
    let last = *given.lock().unwrap();
    assert!([last, last - 1].map(|n| n * (n + 1) / 2).contains(&values));
}
