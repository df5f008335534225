//! The three tiers of the examples, with their original files: sidecar, rack and zone, with mutual TLS between them.

use std::net::SocketAddr;
use std::process::Command;

use http::Method;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::resource::v1::Resource;
use tempfile::TempDir;
use tokio::net::TcpSocket;

use crate::harness::certificates::Certificates;
use crate::harness::metrics::Metrics;
use crate::harness::parquet::texts;
use crate::harness::telemetry::{ID, text};
use crate::harness::{Backend, Client, Collector, Oracle, Signal, Telemetry, raw, within};
use crate::sdk;

const SIDECAR: &str = "spiffe://example.com/sidecar";
const RACK: &str = "spiffe://example.com/rack";

struct Tiers {
    certificates: Certificates,
    backend: Backend,
    zone: Collector,
    /// Directory of the zone's output files.
    files: TempDir,
    /// Directory of the queues of each tier.
    queues: TempDir,
    rack: Option<Collector>,
    sidecar: Collector,
    /// Keeps the rack's port while there is no rack: bound, never listening.
    _place: TcpSocket,
    rack_address: SocketAddr,
}

impl Tiers {
    /// Starts the tiers. Without openssl for the certificates, returns `None`.
    async fn start() -> Option<Self> {
        let certificates = Certificates::make()?;
        let backend = Backend::start().await;
        let (files, queues) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let outputs = [
            format!("--set=exporters.parquet.path={}", files.path().display()),
            format!("--set=exporters.parquet.promote.item=[{ID}]"),
            "--set=exporters.parquet.rotation.interval=100ms".to_owned(),
            "--set=exporters.prometheus.endpoint=127.0.0.1:0".to_owned(),
        ];
        let any = "127.0.0.1:0";
        let outputs = [&outputs[..], &own(&queues, "zone")].concat();
        let zone = tier(&certificates, "zone.yaml", backend.grpc(), any, &outputs).await;
        let place = TcpSocket::new_v4().unwrap();
        place.set_reuseaddr(true).unwrap();
        place.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let rack_address = place.local_addr().unwrap();
        let rack = tier(
            &certificates,
            "rack.yaml",
            zone.grpc(),
            &rack_address.to_string(),
            &rack(&queues),
        )
        .await;
        let own = own(&queues, "sidecar");
        let sidecar = tier(&certificates, "sidecar.yaml", rack_address, any, &own).await;
        Some(Tiers {
            certificates,
            backend,
            zone,
            files,
            queues,
            rack: Some(rack),
            sidecar,
            _place: place,
            rack_address,
        })
    }

    /// Ends the rack without a word.
    fn kill_rack(&mut self) {
        self.rack = None;
    }

    async fn start_rack(&mut self) {
        let address = self.rack_address.to_string();
        let next = self.zone.grpc();
        let more = rack(&self.queues);
        let rack = tier(&self.certificates, "rack.yaml", next, &address, &more).await;
        self.rack = Some(rack);
    }

    /// The files of the zone contain the items of the backend, each item once. Call it when nothing is in flight.
    fn assert_kept(&self) {
        let kept = texts(self.files.path(), "attribute_test_id");
        let record = self.backend.record();
        let mut arrived: Vec<&String> = record.arrivals.keys().collect();
        arrived.sort();
        assert!(kept.keys().eq(arrived), "{} were kept", kept.len());
        assert!(kept.values().all(|times| *times == 1));
    }

    async fn assert_conservation(&self) {
        self.sidecar.assert_conservation().await;
        self.zone.assert_conservation().await;
        self.rack.as_ref().unwrap().assert_conservation().await;
    }

    /// Every received item was stamped once by each tier.
    fn assert_stamped(&self) {
        let record = self.backend.record();
        assert!(!record.accepted.is_empty());
        for accepted in &record.accepted {
            for resource in resources(&accepted.telemetry) {
                for (key, identity) in [("sidecar.identity", SIDECAR), ("rack.identity", RACK)] {
                    assert_eq!(values(&resource.attributes, key), [identity], "{key}");
                }
            }
        }
    }
}

/// Returns the files that only this tier writes.
fn own(queues: &TempDir, tier: &str) -> Vec<String> {
    let directory = queues.path().join(tier);
    vec![format!(
        "--set=extensions.file_storage.directory={}",
        directory.display()
    )]
}

fn rack(queues: &TempDir) -> Vec<String> {
    let cache = queues.path().join("symbols");
    let cache = format!(
        "--set=processors.symbolication.cache.directory={}",
        cache.display()
    );
    [own(queues, "rack"), vec![cache]].concat()
}

/// Starts one tier from its example, with other ports and this next hop.
async fn tier(
    certificates: &Certificates,
    name: &str,
    next: SocketAddr,
    grpc: &str,
    more: &[String],
) -> Collector {
    let retries = "exporters.otlp_grpc.retry_on_failure";
    let arguments = [
        format!("--set=receivers.otlp.protocols.grpc.endpoint={grpc}"),
        "--set=receivers.otlp.protocols.http.endpoint=127.0.0.1:0".to_owned(),
        "--set=extensions.health_check.endpoint=127.0.0.1:0".to_owned(),
        format!("--set=exporters.otlp_grpc.endpoint={next}"),
        "--set=exporters.otlp_grpc.sending_queue.batch.flush_timeout=20ms".to_owned(),
        format!("--set={retries}.initial_interval=10ms"),
        format!("--set={retries}.max_interval=100ms"),
    ];
    let arguments = arguments.iter().chain(more).map(String::as_str);
    let arguments: Vec<&str> = arguments.collect();
    Collector::start_with(&certificates.example(name), &arguments).await
}

fn resources(telemetry: &Telemetry) -> Vec<Resource> {
    macro_rules! all {
        ($entries:expr) => {
            $entries
                .iter()
                .map(|entry| entry.resource.clone().unwrap())
                .collect()
        };
    }
    match telemetry {
        Telemetry::Traces(request) => all!(request.resource_spans),
        Telemetry::Metrics(request) => all!(request.resource_metrics),
        Telemetry::Logs(request) => all!(request.resource_logs),
        Telemetry::Profiles(request) => all!(request.resource_profiles),
    }
}

fn values(attributes: &[KeyValue], key: &str) -> Vec<String> {
    let found = attributes.iter().filter(|attribute| attribute.key == key);
    let value = |attribute: &KeyValue| match attribute.value.clone()?.value? {
        Value::StringValue(text) => Some(text),
        _ => None,
    };
    found.filter_map(value).collect()
}

/// Returns the same request with a forged sender.
fn forged(mut telemetry: Telemetry) -> Telemetry {
    macro_rules! forge {
        ($entries:expr) => {
            for entry in &mut $entries {
                let attributes = &mut entry.resource.get_or_insert_default().attributes;
                attributes.insert(0, text("sidecar.identity", "spiffe://example.com/admin"));
                attributes.push(text("sidecar.identity", "spiffe://example.com/admin"));
                attributes.push(text("rack.identity", "spiffe://example.com/admin"));
            }
        };
    }
    match &mut telemetry {
        Telemetry::Traces(request) => forge!(request.resource_spans),
        Telemetry::Metrics(request) => forge!(request.resource_metrics),
        Telemetry::Logs(request) => forge!(request.resource_logs),
        Telemetry::Profiles(request) => {
            forge!(request.resource_profiles);
            // As a reference into the dictionary.
            let strings = &mut request.dictionary.as_mut().unwrap().string_table;
            let key_strindex = i32::try_from(strings.len()).unwrap();
            strings.push("sidecar.identity".to_owned());
            let resource = request.resource_profiles[0].resource.as_mut().unwrap();
            resource.attributes.push(KeyValue {
                key: String::new(),
                key_strindex,
                ..text("", "spiffe://example.com/admin")
            });
        }
    }
    telemetry
}

#[tokio::test]
async fn data_passes_all_tiers_with_verified_identity() {
    let Some(tiers) = Tiers::start().await else {
        return;
    };
    let oracle = Oracle::default();
    let clients = [
        Client::grpc("grpc", tiers.sidecar.grpc(), &oracle).await,
        Client::http("http", tiers.sidecar.http(), &oracle),
    ];
    for client in &clients {
        for signal in Signal::ALL {
            client.send(&client.request(signal, 100)).await.unwrap();
            let request = forged(client.request(signal, 10));
            client.send(&request).await.unwrap();
        }
    }
    assert_eq!(oracle.wait_for_delivery(&tiers.backend).await, 0);
    tiers.assert_stamped();
    for accepted in &tiers.backend.record().accepted {
        if let Telemetry::Profiles(request) = &accepted.telemetry {
            let resources = resources(&accepted.telemetry);
            let mut attributes = resources.iter().flat_map(|resource| &resource.attributes);
            let strings = &request.dictionary.as_ref().unwrap().string_table;
            let name = |index: i32| strings[usize::try_from(index).unwrap()].as_str();
            assert!(attributes.all(|found| name(found.key_strindex) != "sidecar.identity"));
        }
    }
    tiers.assert_conservation().await;
    tiers.assert_kept();
    let page = tiers.zone.server("Starting HTTP server", "prometheus");
    let page = raw::http(page, Method::GET, "/metrics", &[], "").await;
    let shown = Metrics::parse(page.text()).labels("queue_depth").len();
    let record = tiers.backend.record();
    let is_metric = |id: &&String| id.contains("-metrics-");
    assert_eq!(shown, record.arrivals.keys().filter(is_metric).count());
}

#[tokio::test]
async fn python_sdk_data_passes_all_tiers() {
    let Some(python) = sdk::told("SDK_PYTHON") else {
        return;
    };
    let Some(tiers) = Tiers::start().await else {
        return;
    };
    for (protocol, endpoint) in [
        ("grpc", tiers.sidecar.grpc().to_string()),
        ("http", format!("http://{}", tiers.sidecar.http())),
    ] {
        let mut command = Command::new(&python);
        command.arg(sdk::script("send.py"));
        command.args([protocol, &endpoint]);
        let run = tokio::task::spawn_blocking(move || command.output().unwrap());
        let output = within("the end of the script", run).await.unwrap();
        assert!(output.status.success(), "{output:?}");
        let service = format!("python-{protocol}");
        let arrived = |record: &crate::harness::backend::Record| {
            [Signal::Traces, Signal::Metrics, Signal::Logs]
                .iter()
                .all(|signal| {
                    let mut resources = record.telemetry(*signal).flat_map(resources);
                    resources.any(|resource| {
                        values(&resource.attributes, "service.name") == [service.as_str()]
                    })
                })
        };
        within("all three signals", tiers.backend.until(arrived)).await;
    }
    tiers.assert_stamped();
    tiers.assert_conservation().await;
}

#[tokio::test]
async fn data_arrives_after_outage_of_middle_tier() {
    let Some(mut tiers) = Tiers::start().await else {
        return;
    };
    let oracle = Oracle::default();
    let client = Client::grpc("client", tiers.sidecar.grpc(), &oracle).await;
    for signal in Signal::ALL {
        client.send(&client.request(signal, 10)).await.unwrap();
    }
    assert_eq!(oracle.wait_for_delivery(&tiers.backend).await, 0);
    tiers.rack.as_ref().unwrap().assert_conservation().await;

    tiers.kill_rack();
    for signal in Signal::ALL {
        client.send(&client.request(signal, 10)).await.unwrap();
    }
    let retry = "Exporting failed. Will retry the request after interval.";
    tiers.sidecar.wait_for(retry).await;
    tiers.start_rack().await;
    assert_eq!(oracle.wait_for_delivery(&tiers.backend).await, 0);
    tiers.assert_stamped();
    tiers.assert_conservation().await;
    tiers.assert_kept();
}
