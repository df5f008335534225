//! Profiles in the protocols of Pyroscope's agents leave as OTLP, and the client learns the true outcome.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::SocketAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{Method, StatusCode};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use tributary_profiles::dictionary::Dictionary;
use tributary_profiles::model::{Profile, ResourceProfiles, Samples, ScopeProfiles};
use tributary_profiles::pprof::LinkLabels;
use tributary_profiles::pprof::write::write;
use tributary_pyroscope::labels::SeriesLabel;
use tributary_pyroscope::push::put_series;

use crate::harness::backend::Record;
use crate::harness::site::{Site, page};
use crate::harness::{Answer, Backend, Collector, Refusal, Signal, Telemetry, grpc_to, raw};

/// A collector with the receiver `pyroscope`, and a backend behind.
pub struct Chain {
    pub backend: Backend,
    pub collector: Collector,
}

/// Method of `push.v1`.
const PUSH: &str = "/push.v1.PusherService/Push";

impl Chain {
    pub async fn start(exporter: &str) -> Self {
        let backend = Backend::start().await;
        let exporter = grpc_to(&backend, exporter);
        let http = "{endpoint: '127.0.0.1:0', max_request_body_size: 200000}";
        let yaml = format!(
            "receivers: {{pyroscope: {{protocols: {{http: {http}}}}}}}
exporters: {{otlp_grpc: {exporter}}}
service: {{pipelines: {{profiles: {{receivers: [pyroscope], exporters: [otlp_grpc]}}}}}}
"
        );
        let collector = Collector::start(&yaml).await;
        Chain { backend, collector }
    }

    pub fn address(&self) -> SocketAddr {
        self.collector.server("Starting HTTP server", "pyroscope")
    }

    async fn post(&self, path: &str, headers: &[(&str, &str)], body: Vec<u8>) -> raw::Response {
        raw::http(self.address(), Method::POST, path, headers, body).await
    }

    /// Waits for this many requests, and returns the profiles of all.
    async fn arrived(&self, requests: usize) -> Vec<Arrived> {
        let complete = |record: &Record| record.telemetry(Signal::Profiles).count() == requests;
        self.backend.wait_for("all profiles", complete).await;
        profiles(&self.backend.record())
    }
}

/// A profile behind the collector.
#[derive(Debug, Clone, PartialEq)]
pub struct Arrived {
    /// Resource attributes with texts.
    pub resource: BTreeMap<String, String>,
    /// Name of the scope.
    pub scope: String,
    /// Sample type and unit.
    pub kind: String,
    pub total: i64,
    pub time: u64,
    pub duration: u64,
    /// Keys of the samples' attributes.
    pub labels: Vec<String>,
}

fn texts(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |attribute: &KeyValue| match &attribute.value {
        Some(AnyValue {
            value: Some(Value::StringValue(text)),
        }) => Some((attribute.key.clone(), text.clone())),
        _ => None,
    };
    attributes.iter().filter_map(text).collect()
}

/// Returns the profiles that a backend has.
pub fn profiles(record: &Record) -> Vec<Arrived> {
    let mut all = Vec::new();
    for telemetry in record.telemetry(Signal::Profiles) {
        let Telemetry::Profiles(request) = telemetry else {
            panic!("{telemetry:?}");
        };
        let tables = request.dictionary.as_ref().unwrap();
        let text = |index: i32| tables.string_table[usize::try_from(index).unwrap()].as_str();
        for resource in &request.resource_profiles {
            let attributes = texts(&resource.resource.as_ref().unwrap().attributes);
            for scope in &resource.scope_profiles {
                for profile in &scope.profiles {
                    let kind = profile.sample_type.unwrap_or_default();
                    let kind = [kind.type_strindex, kind.unit_strindex].map(text).join(":");
                    let indices = profile.samples.iter().flat_map(|of| &of.attribute_indices);
                    let keys = indices.map(|at| {
                        let at = usize::try_from(*at).unwrap();
                        text(tables.attribute_table[at].key_strindex).to_owned()
                    });
                    let mut labels: Vec<String> = keys.collect();
                    labels.sort();
                    labels.dedup();
                    all.push(Arrived {
                        resource: attributes.clone(),
                        scope: scope.scope.as_ref().unwrap().name.clone(),
                        kind,
                        total: profile.samples.iter().flat_map(|of| &of.values).sum(),
                        time: profile.time_unix_nano,
                        duration: profile.duration_nano,
                        labels,
                    });
                }
            }
        }
    }
    all
}

/// A pprof file of one sample with this value of `alloc_space`.
fn file(value: i64) -> Vec<u8> {
    let mut dictionary = Dictionary::new();
    let mut profile = Profile::default();
    profile.header.sample_type.kind = dictionary.string("alloc_space");
    profile.header.sample_type.unit = dictionary.string("bytes");
    let mut samples = Samples::default();
    samples.push(Default::default(), &[value], &[]);
    profile.samples = samples;
    let scope = ScopeProfiles {
        profiles: vec![profile],
        ..ScopeProfiles::default()
    };
    let resource = ResourceProfiles::default();
    let files = write(&dictionary, &resource, &scope, &LinkLabels::default());
    files.into_iter().next().unwrap()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A request of two series.
fn push(value: i64) -> Vec<u8> {
    let label = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let labels = |pod: &str| -> Vec<SeriesLabel> {
        let own = [
            ("__name__", "memory"),
            ("__delta__", "false"),
            ("service_name", "shop"),
        ];
        let own = own.map(|(name, value)| label(name, value));
        own.into_iter().chain([label("pod", pod)]).collect()
    };
    let mut request = Vec::new();
    put_series(&labels("a"), &file(value), "", &mut request);
    put_series(&labels("b"), &gzip(&file(value + 1)), "", &mut request);
    request
}

const PROTO: (&str, &str) = ("content-type", "application/proto");
const JSON: (&str, &str) = ("content-type", "application/json");
const GZIP: (&str, &str) = ("content-encoding", "gzip");

/// Header of a form whose parts [`part`] writes.
const FORM: (&str, &str) = ("content-type", "multipart/form-data; boundary=xyz");

fn part(name: &str, data: &[u8]) -> Vec<u8> {
    let head = format!("--xyz\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n");
    [head.as_bytes(), data, b"\r\n"].concat()
}

#[tokio::test]
async fn pushed_series_arrive_over_connect_and_grpc() {
    let chain = Chain::start("").await;
    let tenant = ("X-Scope-OrgID", "team-a");
    let binary = chain.post(PUSH, &[PROTO, tenant], push(10)).await;
    assert_eq!(
        (binary.status.as_u16(), binary.header("content-type")),
        (200, Some("application/proto"))
    );
    assert!(binary.body.is_empty());
    let compressed = chain
        .post(PUSH, &[PROTO, GZIP, tenant], gzip(&push(20)))
        .await;
    assert_eq!(compressed.status, 200, "{}", compressed.text());
    let profile = STANDARD.encode(file(30));
    let labels =
        r#"[{"name": "__name__", "value": "memory"}, {"name": "service_name", "value": "shop"}]"#;
    let json = format!(
        r#"{{"series": [{{"labels": {labels}, "samples": [{{"rawProfile": "{profile}"}}]}}]}}"#
    );
    let json = chain.post(PUSH, &[JSON, tenant], json.into_bytes()).await;
    assert_eq!((json.status.as_u16(), json.text()), (200, "{}"));
    let frame = raw::frame(true, &gzip(&push(40)));
    let encoding = ("grpc-encoding", "gzip");
    let reply = raw::grpc(chain.address(), PUSH, &[encoding, tenant], frame).await;
    assert_eq!(reply.code, 0, "{}", reply.message);

    let all = chain.arrived(4).await;
    let mut totals: Vec<i64> = all.iter().map(|profile| profile.total).collect();
    totals.sort_unstable();
    assert_eq!(totals, [10, 11, 20, 21, 30, 40, 41]);
    for profile in &all {
        assert_eq!(
            (&*profile.scope, &*profile.kind),
            ("memory", "alloc_space:bytes")
        );
        assert_eq!(profile.resource["service.name"], "shop");
        assert_eq!(profile.resource["tenant.id"], "team-a");
        assert!(!profile.resource.contains_key("__delta__"));
        assert!(profile.time > 1_700_000_000_000_000_000);
    }
    let metrics = chain.collector.assert_conservation().await;
    let labels = [("receiver", "pyroscope"), ("transport", "http")];
    assert_eq!(
        metrics.sum("otelcol_receiver_accepted_profile_samples", &labels),
        7.0
    );
}

#[tokio::test]
async fn ingested_formats_have_names_and_totals_of_pyroscope() {
    let chain = Chain::start("").await;
    let query = |name: &str, format: &str| {
        format!(
            "/ingest?name={name}%7Bregion%3Deu%7D&from=1700000000&until=1700000010&sampleRate=100&spyName=gospy&\
             format={format}"
        )
    };
    let config =
        br#"{"alloc_space": {"units": "bytes", "aggregation": "sum", "cumulative": false}}"#;
    let body = [
        part("profile", &gzip(&file(7))),
        part("sample_type_config", config),
        b"--xyz--\r\n".to_vec(),
    ];
    let trie = [&[0, 0, 1][..], b"\x06main;a\x03\x00"].concat();
    let tree = [&[0, 0, 1][..], b"\x04main\x00\x01", b"\x01a\x04\x00"].concat();
    let speedscope = br#"{"$schema": "https://www.speedscope.app/file-format-schema.json",
        "shared": {"frames": [{"name": "main"}]}, "profiles": [{"type": "sampled", "name": "a", "unit": "milliseconds",
        "startValue": 0, "endValue": 5, "samples": [[0]], "weights": [5]}]}"#;
    let folded = b"main;a 2\n";
    for (path, headers, body) in [
        (query("shop", "pprof"), vec![], file(6)),
        (
            format!("/pyroscope{}", query("shop", "")),
            vec![FORM],
            body.concat(),
        ),
        (query("shop.cpu", "folded"), vec![], folded.to_vec()),
        (query("shop.cpu", ""), vec![GZIP], gzip(folded)),
        (
            query("shop.alloc_objects", "lines"),
            vec![],
            b"main;a\nmain;a\n".to_vec(),
        ),
        (query("shop.mutex_duration", "trie"), vec![], trie),
        (query("shop.wall", "tree"), vec![], tree),
        (
            query("shop.wall", "speedscope"),
            vec![],
            speedscope.to_vec(),
        ),
    ] {
        let response = chain.post(&path, &headers, body).await;
        assert_eq!(response.status, 200, "{path}: {}", response.text());
        assert_eq!(response.text(), "");
    }
    let all = chain.arrived(8).await;
    let mut found: Vec<(&str, &str, i64)> = all
        .iter()
        .map(|profile| (&*profile.scope, &*profile.kind, profile.total))
        .collect();
    found.sort_unstable();
    let expected = [
        ("memory", "alloc_objects:count", 2),
        ("memory", "alloc_space:bytes", 6),
        ("memory", "alloc_space:bytes", 7),
        ("mutex", "delay:nanoseconds", 3),
        ("process_cpu", "cpu:nanoseconds", 20_000_000),
        ("process_cpu", "cpu:nanoseconds", 20_000_000),
        ("wall", "wall:nanoseconds", 5_000_000),
        ("wall", "wall:nanoseconds", 40_000_000),
    ];
    assert_eq!(found, expected);
    for profile in &all {
        let attribute = |key: &str| profile.resource.get(key).map(String::as_str);
        let names = ["service.name", "region", "pyroscope_spy", "tenant.id"].map(attribute);
        assert_eq!(names, [Some("shop"), Some("eu"), Some("gospy"), None]);
        assert_eq!(profile.time, 1_700_000_000_000_000_000, "{profile:?}");
    }
    chain.collector.assert_conservation().await;
}

#[tokio::test]
async fn recording_arrives_as_profiles_of_pyroscope() {
    let chain = Chain::start("").await;
    let recording = include_bytes!("../../crates/profile_formats/fixtures/async-profiler.jfr.gz");
    let query = "/ingest?name=shop&format=jfr&from=1700000000&until=1700000010&sampleRate=100&spyName=javaspy";
    let post = chain.post(query, &[], recording.to_vec()).await;
    assert_eq!(post.status, 200, "{}", post.text());
    let all = chain.arrived(1).await;
    let kinds: Vec<String> = all
        .iter()
        .map(|of| format!("{}:{}", of.scope, of.kind))
        .collect();
    assert!(
        kinds.contains(&"process_cpu:cpu:nanoseconds".to_owned()),
        "{kinds:?}"
    );
    for profile in &all {
        assert!(
            profile.total > 0 && profile.resource["service.name"] == "shop",
            "{profile:?}"
        );
        assert!(!profile.labels.iter().any(|label| label == "jfr.context_id"));
    }
}

#[tokio::test]
async fn ingest_without_times_is_no_counter_from_the_start() {
    let chain = Chain::start("").await;
    let query = "/ingest?name=shop&format=pprof";
    let post = chain.post(query, &[], file(6)).await;
    assert_eq!(post.status, 200, "{}", post.text());
    let durations: Vec<u64> = chain
        .arrived(1)
        .await
        .iter()
        .map(|of| of.duration)
        .collect();
    assert_eq!(durations, [1]);
    chain.collector.assert_conservation().await;
}

#[tokio::test]
async fn contexts_of_a_recording_become_its_labels() {
    let chain = Chain::start("").await;
    // The samples have the context 9, and context 9 has the label `route=/cart`.
    let labels = b"\x0a\x0a\x08\x09\x12\x06\x0a\x04\x08\x01\x10\x02\x12\x09\x08\x01\x12\x05route\x12\x09\x08\x02\x12\x05/cart";
    let body = [
        part(
            "jfr",
            include_bytes!("../../crates/profile_formats/fixtures/small.jfr"),
        ),
        part("labels", &gzip(labels)),
        b"--xyz--\r\n".to_vec(),
    ];
    let query = "/ingest?name=shop&format=jfr&from=1700000000&until=1700000010";
    let post = chain.post(query, &[FORM], body.concat()).await;
    assert_eq!(post.status, 200, "{}", post.text());
    let all = chain.arrived(1).await;
    let [profile] = all.as_slice() else {
        panic!("{all:?}");
    };
    assert_eq!(
        (&*profile.scope, &*profile.kind, profile.total),
        ("process_cpu", "cpu:nanoseconds", 60_000_000)
    );
    assert_eq!(profile.labels, ["route", "thread.id", "thread.name"]);
    chain.collector.assert_conservation().await;
}

#[tokio::test]
async fn malformed_requests_get_clear_text() {
    let chain = Chain::start("").await;
    for (path, headers, body, status, text) in [
        (
            "/ingest?name=a&from=yesterday",
            vec![],
            vec![],
            400,
            "the parameter `from` must be a time",
        ),
        (
            "/ingest",
            vec![],
            vec![],
            400,
            "the parameter `name` is not usable",
        ),
        (
            "/ingest?name=a.b",
            vec![],
            b"main 1".to_vec(),
            400,
            "must end with the type of the stacks",
        ),
        (
            "/ingest?name=a",
            vec![],
            b"main".to_vec(),
            400,
            "line 1 is not a folded stack",
        ),
        (
            "/ingest?name=a&format=pprof",
            vec![],
            vec![0xff],
            400,
            "not a usable pprof file",
        ),
        (
            "/ingest?name=a&format=jfr",
            vec![],
            b"FLR".to_vec(),
            400,
            "JFR",
        ),
        (
            "/ingest?name=a&format=tree",
            vec![],
            vec![5],
            400,
            "the tree is damaged at byte 1",
        ),
        (
            "/ingest?name=a&format=perf",
            vec![],
            vec![],
            400,
            "unknown format `perf`",
        ),
        (
            "/ingest?name=a&format=pprof",
            vec![],
            gzip(&vec![0; 200_001]),
            413,
            "max_request_body_size",
        ),
        (
            PUSH,
            vec![PROTO],
            vec![0x0a, 9],
            400,
            "{\"code\":\"invalid_argument\"",
        ),
        (
            PUSH,
            vec![JSON],
            b"[".to_vec(),
            400,
            "not a PushRequest as JSON",
        ),
        (PUSH, vec![], vec![], 415, "the content type must be"),
        (
            PUSH,
            vec![PROTO, ("X-Scope-OrgID", "\u{e9}")],
            push(1),
            400,
            "the header `X-Scope-OrgID` must be ASCII text",
        ),
        (
            "/v1/pprof",
            vec![],
            vec![],
            404,
            "the paths for profiles are /ingest and",
        ),
    ] {
        let response = chain.post(path, &headers, body).await;
        assert_eq!(
            response.status.as_u16(),
            status,
            "{path}: {}",
            response.text()
        );
        assert!(
            response.text().contains(text),
            "{path}: {}",
            response.text()
        );
    }
    let get = raw::http(
        chain.address(),
        Method::GET,
        "/ingest?name=a",
        &[],
        Vec::new(),
    )
    .await;
    assert_eq!(
        (get.status.as_u16(), get.header("allow")),
        (405, Some("POST"))
    );
    let unknown = "/push.v1.PusherService/GetFeatureFlags";
    let reply = raw::grpc(chain.address(), unknown, &[], raw::frame(false, b"")).await;
    assert_eq!(reply.code, 12);
    // An agent sends an empty profile when nothing happened.
    let empty = chain.post("/ingest?name=a&format=pprof", &[], vec![]).await;
    assert_eq!(empty.status, 200, "{}", empty.text());
    let metrics = chain.collector.assert_conservation().await;
    assert_eq!(
        metrics.sum("otelcol_receiver_accepted_profile_samples", &[]),
        0.0
    );
}

#[tokio::test]
async fn refused_agent_is_told_when_to_retry() {
    let queue = "sending_queue: {queue_size: 1, sizer: requests, num_consumers: 1}";
    let chain = Chain::start(queue).await;
    chain.backend.always(Answer::Refuse(Refusal::UNAVAILABLE));
    let mut taken = 0;
    let refused = loop {
        let response = chain.post(PUSH, &[PROTO], push(1)).await;
        match response.status.as_u16() {
            200 => taken += 1,
            _ => break response,
        }
        assert!(taken < 100, "the queue has no end");
    };
    assert!([429, 503].contains(&refused.status.as_u16()), "{refused:?}");
    let seconds: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!(seconds >= 1);
    let plain = chain.post("/ingest?name=a", &[], b"main 1".to_vec()).await;
    assert!(plain.header("retry-after").is_some(), "{plain:?}");
    let reply = raw::grpc(chain.address(), PUSH, &[], raw::frame(false, &push(1))).await;
    assert!([8, 14].contains(&reply.code), "{reply:?}");
    chain.backend.always(Answer::Accept);
    let all = chain.arrived(taken).await;
    assert_eq!(all.len(), taken * 2);
    chain.collector.assert_conservation().await;
}

/// A collector that receives and sends in Pyroscope's protocols, with a chain behind.
async fn relay(next: &Chain, exporter: &str) -> Collector {
    let http = "{endpoint: '127.0.0.1:0'}";
    let next = next.address();
    let yaml = format!(
        "receivers: {{pyroscope: {{protocols: {{http: {http}}}}}}}
exporters: {{pyroscope: {{endpoint: 'http://{next}', {exporter}}}}}
service: {{pipelines: {{profiles: {{receivers: [pyroscope], exporters: [pyroscope]}}}}}}
"
    );
    Collector::start(&yaml).await
}

#[tokio::test]
async fn profiles_that_leave_through_the_exporter_are_equal() {
    let direct = Chain::start("").await;
    let behind = Chain::start("").await;
    let first = relay(&behind, "compression: gzip").await;
    let query = "/ingest?name=shop.cpu%7Bk8s.pod.name%3Da%2C__session_id__%3D0a%7D&from=1700000000&until=1700000010";
    let folded = b"main;a 2\nmain;b 3\n";
    for address in [
        direct.address(),
        first.server("Starting HTTP server", "pyroscope"),
    ] {
        let post = raw::http(address, Method::POST, query, &[], folded.to_vec()).await;
        assert_eq!(post.status, 200, "{}", post.text());
        let series = raw::http(address, Method::POST, PUSH, &[PROTO], push(10)).await;
        assert_eq!(series.status, 200, "{}", series.text());
    }
    let sorted = |mut all: Vec<Arrived>| {
        for profile in &mut all {
            // Series without a time have that of their arrival.
            if profile.time > 1_700_000_100_000_000_000 {
                profile.time = 0;
            }
        }
        all.sort_by_key(|profile| (profile.kind.clone(), profile.total));
        all
    };
    let expected = sorted(direct.arrived(2).await);
    assert_eq!(expected.len(), 3);
    let complete = |record: &Record| profiles(record).len() == expected.len();
    behind.backend.wait_for("all profiles", complete).await;
    assert_eq!(sorted(profiles(&behind.backend.record())), expected);
    first.assert_conservation().await;
    behind.collector.assert_conservation().await;
}

#[tokio::test]
async fn exporter_counts_profiles_that_are_too_old() {
    let refusal = r#"{"code": "invalid_argument", "message": "profile with labels '{}' is outside of ingestion window"}"#;
    let site = Site::start(move |_| async move { page(StatusCode::BAD_REQUEST, refusal) }).await;
    let yaml = format!(
        "receivers: {{pyroscope: {{protocols: {{http: {{endpoint: '127.0.0.1:0'}}}}}}}}
exporters: {{pyroscope: {{endpoint: 'http://{}', tenant: team-a}}}}
service: {{pipelines: {{profiles: {{receivers: [pyroscope], exporters: [pyroscope]}}}}}}
",
        site.address
    );
    let collector = Collector::start(&yaml).await;
    let address = collector.server("Starting HTTP server", "pyroscope");
    let post = raw::http(
        address,
        Method::POST,
        "/ingest?name=a",
        &[],
        b"main 1".to_vec(),
    )
    .await;
    assert_eq!(post.status, 200);
    let metrics = collector
        .wait_for_metrics("the refusal", |metrics| {
            metrics.sum("tributary_exporter_pyroscope_too_old_requests", &[]) == 1.0
                && metrics.sum("tributary_exporter_dropped_items", &[]) == 1.0
        })
        .await;
    let permanent = [("reason", "permanent")];
    assert_eq!(
        metrics.sum("tributary_exporter_dropped_items", &permanent),
        1.0
    );
}
