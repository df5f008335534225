//! Tests of the exporter with an independent S3 server: moto, a package for Python.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use ::object_store::{ObjectStore, ObjectStoreExt as _};
use futures_util::TryStreamExt as _;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::{
    Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, metric, number_data_point,
};
use opentelemetry_proto::tonic::profiles::v1development::{
    Profile, ProfilesDictionary, ResourceProfiles, Sample, ScopeProfiles,
};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};

use super::super::place::store::testing::{Fault, Server, store_at};
use super::*;

/// The server, in a process of its own.
struct Moto {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    address: SocketAddr,
}

impl Moto {
    /// Starts the server; `None` if no Python with the server is configured.
    fn start() -> Option<Self> {
        let Ok(python) = std::env::var("S3_PYTHON") else {
            eprintln!("skipped: S3_PYTHON is not set; see tests/sdk/README.md");
            return None;
        };
        let mut process = Command::new(python)
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sdk/s3.py"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = process.stdin.take().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let mut moto = Moto {
            process,
            input,
            output,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
        };
        let port = moto.number();
        moto.address.set_port(port);
        Some(moto)
    }

    /// Returns the next number that the server prints.
    fn number(&mut self) -> u16 {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().parse().unwrap()
    }

    /// Returns uploads that were neither completed nor aborted.
    fn uploads(&mut self) -> u16 {
        self.input.write_all(b"?\n").unwrap();
        self.number()
    }

    /// Waits until all uploads have ended: they are aborted after the outcome of a file is known.
    async fn settle(&mut self) {
        let settled = async {
            while self.uploads() > 0 {
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(SECS(20), settled).await.unwrap();
    }

    fn store(&self) -> Arc<dyn ObjectStore> {
        store_at(self.address).bucket().client().unwrap().0
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// An exporter that finishes files at once, and the proxy between the exporter and the server.
async fn start(moto: &Moto, retries: &str) -> (Bench, Server) {
    let (server, object_store) = Server::in_front_of(moto.address).await;
    let yaml = format!(
        "{{rotation: {{interval: 50ms}}, row_group: {{max_rows: 40}}, retry_on_failure: {retries}}}"
    );
    let config: Config = serde_yaml::from_str(&yaml).unwrap();
    let config = Config {
        object_store: tributary_config::Section(Some(object_store)),
        ..config
    };
    (Bench::of(&config, TempDir::new().unwrap()), server)
}

fn column(signal: Signal) -> &'static str {
    match signal {
        Signal::Traces => "name",
        Signal::Metrics => "value_int",
        Signal::Logs => "body",
        Signal::Profiles => "value",
    }
}

fn request(signal: Signal, numbers: std::ops::Range<u64>) -> Batch {
    let count = numbers.end - numbers.start;
    let time = |number: u64| number % 2 * HOUR + number;
    let bytes = match signal {
        Signal::Logs => {
            let names: Vec<String> = numbers.map(|number| number.to_string()).collect();
            let names = names.iter().zip(0..);
            let records: Vec<_> = names.map(|(name, at)| (name.as_str(), at % 2)).collect();
            return logs(&records);
        }
        Signal::Traces => {
            let span = |number: u64| Span {
                trace_id: u128::from(number + 1).to_be_bytes().into(),
                span_id: (number + 1).to_be_bytes().into(),
                name: number.to_string(),
                start_time_unix_nano: time(number),
                end_time_unix_nano: time(number) + 1,
                ..Span::default()
            };
            let scope = ScopeSpans {
                spans: numbers.map(span).collect(),
                ..ScopeSpans::default()
            };
            let resource = ResourceSpans {
                scope_spans: vec![scope],
                ..ResourceSpans::default()
            };
            let request = ExportTraceServiceRequest {
                resource_spans: vec![resource],
            };
            request.encode_to_vec()
        }
        Signal::Metrics => {
            let point = |number: u64| NumberDataPoint {
                time_unix_nano: time(number),
                value: Some(number_data_point::Value::AsInt(number as i64)),
                ..NumberDataPoint::default()
            };
            let metric = Metric {
                name: "queue.length".to_owned(),
                data: Some(metric::Data::Gauge(Gauge {
                    data_points: numbers.map(point).collect(),
                })),
                ..Metric::default()
            };
            let scope = ScopeMetrics {
                metrics: vec![metric],
                ..ScopeMetrics::default()
            };
            let resource = ResourceMetrics {
                scope_metrics: vec![scope],
                ..ResourceMetrics::default()
            };
            let request = ExportMetricsServiceRequest {
                resource_metrics: vec![resource],
            };
            request.encode_to_vec()
        }
        Signal::Profiles => {
            let profile = |number: u64| Profile {
                time_unix_nano: time(number),
                samples: vec![Sample {
                    values: vec![number as i64],
                    ..Sample::default()
                }],
                ..Profile::default()
            };
            let scope = ScopeProfiles {
                profiles: numbers.map(profile).collect(),
                ..ScopeProfiles::default()
            };
            let resource = ResourceProfiles {
                scope_profiles: vec![scope],
                ..ResourceProfiles::default()
            };
            let dictionary = ProfilesDictionary {
                string_table: vec![String::new()],
                stack_table: vec![Default::default()],
                ..ProfilesDictionary::default()
            };
            let request = ExportProfilesServiceRequest {
                resource_profiles: vec![resource],
                dictionary: Some(dictionary),
            };
            request.encode_to_vec()
        }
    };
    Batch::new(signal, count as usize, Bytes::from(bytes))
}

/// Returns all objects in the bucket, by name. Fails if an object is not a complete file.
async fn objects(store: &Arc<dyn ObjectStore>) -> BTreeMap<String, Vec<String>> {
    let listed: Vec<_> = store.list(None).try_collect().await.unwrap();
    let mut objects = BTreeMap::new();
    for object in listed {
        let got = store.get(&object.location).await.unwrap();
        let bytes = got.bytes().await.unwrap();
        let name = object.location.to_string();
        let signals = Signal::ALL.into_iter();
        let mut signals = signals.filter(|signal| name.contains(&format!("/signal={signal}/")));
        let column = column(signals.next().unwrap());
        let reader = SerializedFileReader::new(bytes).unwrap();
        let rows = reader.get_row_iter(None).unwrap().map(|row| {
            let row = row.unwrap();
            let (_, field) = row
                .get_column_iter()
                .find(|(name, _)| *name == column)
                .unwrap();
            match field {
                Field::Str(text) => text.clone(),
                other => other.to_string(),
            }
        });
        objects.insert(name, rows.collect());
    }
    objects
}

/// The numbers of a signal's items in the bucket, in order.
fn numbers(objects: &BTreeMap<String, Vec<String>>, signal: Signal) -> Vec<u64> {
    let of_signal = format!("/signal={signal}/");
    let objects = objects.iter().filter(|(name, _)| name.contains(&of_signal));
    let rows = objects.flat_map(|(_, rows)| rows);
    let mut numbers: Vec<u64> = rows.map(|row| row.parse().unwrap()).collect();
    numbers.sort_unstable();
    numbers
}

/// Checks the bucket repeatedly while the exporter works, and returns the final objects.
async fn watch(bench: &Bench, store: &Arc<dyn ObjectStore>) -> BTreeMap<String, Vec<String>> {
    let watching = async {
        let mut before = BTreeMap::new();
        loop {
            let is_idle = bench.terminal.component.idle();
            let now = objects(store).await;
            for (name, rows) in &before {
                assert_eq!(now.get(name), Some(rows), "{name} has changed");
            }
            if is_idle {
                return now;
            }
            before = now;
        }
    };
    timeout(SECS(120), watching).await.unwrap()
}

#[tokio::test]
async fn real_server_has_each_row_once_despite_failures() {
    let Some(mut moto) = Moto::start() else {
        return;
    };
    let store = moto.store();
    let retries = "{initial_interval: 10ms, max_interval: 10ms}";
    let (mut bench, server) = start(&moto, retries).await;
    let parts = [
        Fault::Status(500),
        Fault::Slow,
        Fault::Cut,
        Fault::Status(503),
        Fault::Lost,
        // A permanent failure: the upload is aborted.
        Fault::Status(403),
        Fault::Slow,
        Fault::Cut,
    ];
    server.will("part", parts);
    server.will("begin", [Fault::Status(503), Fault::Cut]);
    let completions = [
        Fault::Lost,
        Fault::Status(503),
        Fault::Status(403),
        Fault::Cut,
    ];
    server.will("complete", completions);
    for at in 0..5 {
        for signal in Signal::ALL {
            let consumer = bench.terminal.inputs.get(signal).unwrap();
            let batch = request(signal, at * 100..(at + 1) * 100);
            consumer.consume(batch).await.unwrap();
        }
    }
    let found = watch(&bench, &store).await;
    let sent: Vec<u64> = (0..500).collect();
    for signal in Signal::ALL {
        assert_eq!(numbers(&found, signal), sent, "{signal}");
        assert_eq!(bench.recorded.items("delivered", signal), 500);
        assert_eq!(bench.recorded.items("dropped", signal), 0);
    }
    // All files were uploaded in parts, and all injected faults occurred.
    assert_eq!(server.requests("put"), 0);
    assert!(server.requests("part") > 4 * found.len());
    assert!(server.requests("abort") >= 2);
    assert!(server.is_done_failing());
    moto.settle().await;
    assert_eq!(bench.stop().await, Undelivered::default());
    drop(bench.terminal);
    assert_eq!(bench.cx.budget.used(), 0);
}

#[tokio::test]
async fn aborted_upload_leaves_no_parts_on_real_server() {
    let Some(mut moto) = Moto::start() else {
        return;
    };
    let store = moto.store();
    let (mut bench, server) = start(&moto, "{enabled: false}").await;
    // The server accepts all parts, but the completion fails.
    server.will("complete", [Fault::Status(403); 8]);
    let consumer = bench.terminal.inputs.get(Signal::Traces).unwrap();
    let batch = request(Signal::Traces, 0..100);
    consumer.consume(batch).await.unwrap();
    assert!(watch(&bench, &store).await.is_empty());
    moto.settle().await;
    assert!(server.requests("part") > 8);
    assert_eq!(server.requests("abort"), 2);
    assert_eq!(bench.recorded.items("dropped", Signal::Traces), 100);
    assert_eq!(bench.stop().await, Undelivered::default());
}
