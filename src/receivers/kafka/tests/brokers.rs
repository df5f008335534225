//! Exporter and receiver with Kafka itself, where `KAFKA_HOME` is a directory with its jars in `libs`, as an archive of
//! Kafka and `mvn dependency:copy-dependencies` leave them.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::*;
use crate::component::{ExporterConfig as _, Terminal};
use crate::exporters::kafka;
use crate::testing::context;

/// A broker in a process of its own.
struct Kafka {
    classes: String,
    directory: TempDir,
    port: u16,
    secure_port: u16,
    authority: String,
    process: Child,
}

impl Kafka {
    /// Starts a broker; `None` if Kafka is not available.
    fn start() -> Option<Self> {
        let Some(home) = std::env::var_os("KAFKA_HOME") else {
            eprintln!("skipped: KAFKA_HOME is not set");
            return None;
        };
        let classes = PathBuf::from(home).join("libs/*").display().to_string();
        let directory = TempDir::new().unwrap();
        // Bind all ports at the same time, so that the ports differ.
        let sockets: Vec<TcpListener> = (0..3)
            .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
            .collect();
        let ports: Vec<u16> = sockets
            .iter()
            .map(|socket| socket.local_addr().unwrap().port())
            .collect();
        let (port, secure_port, controller) = (ports[0], ports[1], ports[2]);
        let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let authority = pair.cert.pem();
        let keys = directory.path().join("keys.pem");
        fs::write(
            &keys,
            format!("{}{authority}", pair.signing_key.serialize_pem()),
        )
        .unwrap();
        let settings = format!(
            "process.roles=broker,controller\n\
             node.id=1\n\
             controller.quorum.voters=1@127.0.0.1:{controller}\n\
             controller.listener.names=CONTROLLER\n\
             listeners=PLAIN://127.0.0.1:{port},SECURE://localhost:{secure_port},CONTROLLER://127.0.0.1:{controller}\n\
             advertised.listeners=PLAIN://127.0.0.1:{port},SECURE://localhost:{secure_port}\n\
             listener.security.protocol.map=PLAIN:PLAINTEXT,SECURE:SASL_SSL,CONTROLLER:PLAINTEXT\n\
             inter.broker.listener.name=PLAIN\n\
             log.dirs={}\n\
             num.partitions=3\n\
             offsets.topic.num.partitions=1\n\
             offsets.topic.replication.factor=1\n\
             group.initial.rebalance.delay.ms=0\n\
             ssl.keystore.type=PEM\n\
             ssl.keystore.location={}\n\
             sasl.enabled.mechanisms=SCRAM-SHA-512\n\
             listener.name.secure.scram-sha-512.sasl.jaas.config=\
             org.apache.kafka.common.security.scram.ScramLoginModule required;\n",
            directory.path().join("data").display(),
            keys.display(),
        );
        fs::write(directory.path().join("settings"), settings).unwrap();
        let formatted = Command::new("java")
            .args(["-cp", &classes, "kafka.tools.StorageTool", "format"])
            .args(["--cluster-id", "MkU3OEVBNTcwNTJENDM2Qg"])
            .args(["--add-scram", "SCRAM-SHA-512=[name=me,password=hush]"])
            .arg("--config")
            .arg(directory.path().join("settings"))
            .output()
            .unwrap();
        assert!(formatted.status.success(), "{formatted:?}");
        drop(sockets);
        let process = run(&classes, &directory);
        Some(Kafka {
            classes,
            directory,
            port,
            secure_port,
            authority,
            process,
        })
    }

    /// Ends without leaving the group, and restarts.
    fn restart(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        self.process = run(&self.classes, &self.directory);
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

impl Drop for Kafka {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn run(classes: &str, directory: &TempDir) -> Child {
    Command::new("java")
        .args([
            "-Xmx384m",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            classes,
            "kafka.Kafka",
        ])
        .arg(directory.path().join("settings"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn exporter(yaml: &str) -> Terminal {
    let config: kafka::Config = serde_yaml::from_str(yaml).unwrap();
    let mut terminal = config.build(&context("kafka"), &[Signal::Logs]).unwrap();
    terminal.component.start();
    terminal
}

async fn send(exporter: &Terminal, request: Vec<u8>) {
    let batch = Batch::new(Signal::Logs, 1, bytes::Bytes::from(request));
    exporter
        .inputs
        .get(Signal::Logs)
        .unwrap()
        .consume(batch)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn restarts_lose_nothing_and_keep_order_per_key() {
    const SENT: usize = 3000;
    const SOURCES: usize = 7;
    let Some(mut kafka) = Kafka::start() else {
        return;
    };
    let address = kafka.address();
    let exporter = exporter(&format!(
        "{{brokers: ['{address}'], partition_logs_by_resource_attributes: true, timeout: 2s, \
         retry_on_failure: {{initial_interval: 200ms, max_interval: 1s}}, \
         sending_queue: {{num_consumers: 1, queue_size: 100000}}}}"
    ));
    let yaml = "{metadata: {refresh_interval: 1s}}";
    let mut receiver = Trial::within(Host::for_tests(), &address, yaml, []);
    let mut arrived = Vec::new();
    for number in 0..SENT {
        let source = format!("source-{}", number % SOURCES);
        let body = format!("{source} {number}");
        send(&exporter, logs(&[(&[("service.name", &source)], &[&body])])).await;
        if number == SENT / 3 {
            arrived.extend(receiver.bodies(1).await);
            kafka.restart();
        }
        if number == 2 * SENT / 3 {
            arrived.extend(receiver.end().await);
            receiver = Trial::within(Host::for_tests(), &address, yaml, []);
        }
    }
    // Acknowledged messages are delivered before the end.
    let deadline = Instant::now() + Duration::from_secs(60);
    assert_eq!(exporter.component.shutdown(deadline).await.items, 0);
    let mut seen: HashSet<String> = arrived.iter().cloned().collect();
    while seen.len() < SENT {
        let next = receiver.bodies(1).await;
        seen.extend(next.iter().cloned());
        arrived.extend(next);
    }
    arrived.extend(receiver.end().await);
    let repeated = arrived.len() - SENT;
    eprintln!("{SENT} messages, of which {repeated} came again");
    let mut order: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    let mut first = HashSet::new();
    for body in arrived
        .into_iter()
        .filter(|body| first.insert(body.clone()))
    {
        let (source, number) = body.split_once(' ').unwrap();
        order
            .entry(source.to_owned())
            .or_default()
            .push(number.parse().unwrap());
    }
    assert_eq!(order.len(), SOURCES);
    assert_eq!(order.values().map(Vec::len).sum::<usize>(), SENT);
    for (source, numbers) in order {
        assert!(numbers.is_sorted(), "{source}: {numbers:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_is_proved_over_tls_and_a_wrong_one_is_refused() {
    let Some(kafka) = Kafka::start() else {
        return;
    };
    let connection = |password: &str| {
        format!(
            "brokers: ['localhost:{}'], auth: {{sasl: {{username: me, password: {password}, \
             mechanism: SCRAM-SHA-512}}}}, \
             tls: {{ca_pem: {:?}}}",
            kafka.secure_port, kafka.authority
        )
    };
    let queue = "sending_queue: {wait_for_result: true}, \
        retry_on_failure: {initial_interval: 100ms, max_interval: 100ms";
    let right = exporter(&format!("{{{}, {queue}}}}}", connection("hush")));
    soon(send(&right, log("secret"))).await;
    let wrong = exporter(&format!(
        "{{{}, {queue}, max_elapsed_time: 3s}}, timeout: 1s}}",
        connection("guess")
    ));
    let batch = Batch::new(Signal::Logs, 1, bytes::Bytes::from(log("never")));
    let input = wrong.inputs.get(Signal::Logs).unwrap();
    soon(input.consume(batch)).await.unwrap_err();
    let mut receiver = Trial::within(Host::for_tests(), &kafka.address(), "{}", []);
    assert_eq!(receiver.bodies(1).await, ["secret"]);
    assert_eq!(receiver.end().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn renewed_ca_file_is_used_at_once() {
    let Some(kafka) = Kafka::start() else {
        return;
    };
    let file = kafka.directory.path().join("authority.pem");
    let stranger = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    fs::write(&file, stranger.cert.pem()).unwrap();
    let connection = format!(
        "auth: {{sasl: {{username: me, password: hush, mechanism: SCRAM-SHA-512}}}}, tls: {{ca_file: '{}'}}",
        file.display()
    );
    let address = format!("localhost:{}", kafka.secure_port);
    let exporter = exporter(&format!(
        "{{brokers: ['{address}'], {connection}, timeout: 1s, sending_queue: {{wait_for_result: true}}, \
         retry_on_failure: {{initial_interval: 100ms, max_interval: 100ms}}}}"
    ));
    let mut receiver = Trial::within(
        Host::for_tests(),
        &address,
        &format!("{{{connection}}}"),
        [],
    );
    fs::write(&file, &kafka.authority).unwrap();
    soon(send(&exporter, log("trusted"))).await;
    assert_eq!(receiver.bodies(1).await, ["trusted"]);
    receiver.end().await;
}
