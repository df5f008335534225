//! The collector needs no privileges: it opens only the configured ports, runs as any user, and reads its files only at
//! the start.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::harness::certificates::{Certificates, installed};
use crate::harness::collector::BINARY;
use crate::harness::{Backend, Client, Collector, Oracle, Signal, grpc_to, yaml};

/// A collector with everything that listens.
fn everything(backend: &Backend) -> String {
    let yaml = yaml(&[], &[("otlp_grpc", &grpc_to(backend, ""))]);
    let extension = "extensions: {health_check: {endpoint: '127.0.0.1:0'}}\n";
    extension.to_owned() + &yaml.replace("service:\n", "service:\n  extensions: [health_check]\n")
}

/// Returns the addresses that the collector logs as listening.
fn announced(collector: &Collector) -> BTreeSet<SocketAddr> {
    let lines = collector.lines();
    let starting = lines.iter().filter(|line| {
        let message = line.message();
        message.starts_with("Starting ") && message.ends_with(" server")
    });
    starting
        .map(|line| line.field("endpoint").parse().unwrap())
        .collect()
}

fn sockets(pid: u32) -> BTreeSet<u64> {
    let mut inodes = BTreeSet::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap() {
        // The descriptor may be closed in the meantime.
        let Ok(target) = std::fs::read_link(entry.unwrap().path()) else {
            continue;
        };
        let target = target.to_string_lossy();
        let inode = target.strip_prefix("socket:[");
        inodes.extend(inode.map(|inode| inode.trim_end_matches(']').parse::<u64>().unwrap()));
    }
    inodes
}

/// The local addresses of a process's sockets in a table of the kernel, in this state.
fn bound(pid: u32, table: &str, state: &str) -> BTreeSet<SocketAddr> {
    let own = sockets(pid);
    let table = std::fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap();
    let mut addresses = BTreeSet::new();
    for line in table.lines().skip(1) {
        // "sl local_address rem_address st tx:rx tr:tm retrnsmt uid timeout inode ..."
        let fields: Vec<&str> = line.split_whitespace().collect();
        if fields[3] == state && own.contains(&fields[9].parse().unwrap()) {
            addresses.insert(address(fields[1]));
        }
    }
    addresses
}

/// The kernel writes each 32 bits of an address as one number, and the port as another number.
fn address(text: &str) -> SocketAddr {
    let (host, port) = text.split_once(':').unwrap();
    let words = host.as_bytes().chunks(8).map(|word| {
        let word = std::str::from_utf8(word).unwrap();
        u32::from_str_radix(word, 16).unwrap().to_ne_bytes()
    });
    let bytes: Vec<u8> = words.flatten().collect();
    let host = match <[u8; 4]>::try_from(bytes.as_slice()) {
        Ok(bytes) => IpAddr::from(Ipv4Addr::from(bytes)),
        Err(_) => IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).unwrap())),
    };
    SocketAddr::new(host, u16::from_str_radix(port, 16).unwrap())
}

/// Every endpoint in a section of the effective configuration.
fn endpoints(part: &Value, found: &mut Vec<String>) {
    for (key, value) in part.as_object().into_iter().flatten() {
        if key == "endpoint" || key == "address" {
            found.extend(value.as_str().map(str::to_owned));
        }
        endpoints(value, found);
    }
}

#[test]
fn listeners_default_to_localhost() {
    let yaml = "yaml:{receivers: {otlp: {protocols: {grpc: {}, http: {}}}}, exporters: {debug: {}}, \
                extensions: {health_check: {}}, service: {extensions: [health_check], \
                pipelines: {traces: {receivers: [otlp], exporters: [debug]}}}}";
    let output = Command::new(BINARY)
        .args(["--config", yaml, "print-config", "--format=json"])
        .output()
        .unwrap();
    let config: Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut found = Vec::new();
    endpoints(&config, &mut found);
    assert!(found.len() >= 3, "{found:?}");
    for endpoint in found {
        assert!(endpoint.starts_with("localhost:"), "{endpoint}");
    }
}

#[tokio::test]
async fn collector_listens_only_on_configured_addresses() {
    let backend = Backend::start().await;
    let collector = Collector::start(&everything(&backend)).await;
    let oracle = Oracle::default();
    let client = Client::grpc("client", collector.grpc(), &oracle).await;
    client
        .send(&client.request(Signal::Traces, 1))
        .await
        .unwrap();
    assert_eq!(oracle.wait_for_delivery(&backend).await, 0);
    let announced = announced(&collector);
    assert_eq!(announced.len(), 4, "gRPC, HTTP, health, metrics");
    let pid = collector.pid();
    let listening: BTreeSet<SocketAddr> = ["tcp", "tcp6"]
        .iter()
        .flat_map(|table| bound(pid, table, LISTEN))
        .collect();
    assert_eq!(listening, announced);
    for table in ["udp", "udp6"] {
        assert_eq!(bound(pid, table, UNCONNECTED), BTreeSet::new(), "{table}");
    }
}

/// `TCP_LISTEN`.
const LISTEN: &str = "0A";
/// `TCP_CLOSE`: state of a UDP socket without a fixed peer.
const UNCONNECTED: &str = "07";

#[tokio::test]
async fn running_as_root_is_a_warning() {
    let backend = Backend::start().await;
    let collector = Collector::start(&everything(&backend)).await;
    let lines = collector.lines();
    let warned = lines
        .iter()
        .any(|line| line.message().starts_with("Running as root,"));
    assert_eq!(warned, rustix::process::geteuid().is_root());
}

#[test]
fn no_component_writes_through_link_in_shared_directory() {
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o1777)).unwrap();
    std::fs::write(path("precious"), "").unwrap();
    std::os::unix::fs::symlink(path("precious"), path("link")).unwrap();
    let link = path("link");
    for (what, exporter, logs) in [
        (
            "the log",
            "nop: {}".to_owned(),
            format!("output_paths: ['{link}']"),
        ),
        (
            "debug",
            format!("debug: {{use_internal_logger: false, output_paths: ['{link}']}}"),
            String::new(),
        ),
        ("file", format!("file: {{path: '{link}'}}"), String::new()),
    ] {
        let name = exporter.split(':').next().unwrap();
        let yaml = format!(
            "receivers: {{otlp: {{protocols: {{http: {{endpoint: '127.0.0.1:0'}}}}}}}}
exporters: {{{exporter}}}
service:
  telemetry: {{logs: {{{logs}}}, metrics: {{level: none}}}}
  pipelines: {{logs: {{receivers: [otlp], exporters: [{name}]}}}}
"
        );
        std::fs::write(path("config.yaml"), yaml).unwrap();
        let output = Command::new(BINARY)
            .arg(format!("--config={}", path("config.yaml")))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{what}: {said}");
        assert!(said.contains("is a symbolic link"), "{what}: {said}");
        assert_eq!(std::fs::read(path("precious")).unwrap(), b"", "{what}");
    }
}

#[tokio::test]
async fn collector_runs_as_nobody_without_capabilities() {
    let root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    if !root {
        eprintln!("skipped: only root can run it as somebody else");
        return;
    }
    if !installed("setpriv") {
        return;
    }
    // The directory of this repository may not be accessible to other users.
    let directory = TempDir::new().unwrap();
    std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let binary = directory.path().join("collector");
    // Copied by another process: a file that a thread of this process still has open for writing could not be executed.
    let copied = Command::new("cp").arg(BINARY).arg(&binary).status();
    assert!(copied.unwrap().success());
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .args(["--bounding-set=-all", "--no-new-privs", "--"])
        .arg(&binary);
    let backend = Backend::start().await;
    let collector = Collector::run(command, &everything(&backend), &[]).await;
    let status = std::fs::read_to_string(format!("/proc/{}/status", collector.pid())).unwrap();
    let line = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap().split_whitespace().next().unwrap().to_owned()
    };
    assert_eq!(line("Uid:"), "65534");
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        assert_eq!(line(set), "0000000000000000", "{set}");
    }
    let oracle = Oracle::default();
    let client = Client::http("client", collector.http(), &oracle);
    for signal in Signal::ALL {
        client.send(&client.request(signal, 10)).await.unwrap();
    }
    assert_eq!(oracle.wait_for_delivery(&backend).await, 0);
    collector.assert_conservation().await;
}

#[tokio::test]
async fn collector_raises_its_file_descriptor_limit() {
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -S -n 64 && exec \"$0\" \"$@\""])
        .arg(BINARY);
    let backend = Backend::start().await;
    let collector = Collector::run(command, &everything(&backend), &[]).await;
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", collector.pid())).unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let mut words = line.unwrap().split_whitespace().skip(3);
    let (soft, hard) = (words.next().unwrap(), words.next().unwrap());
    assert!(soft == hard && soft != "64", "{soft} {hard}");
}

#[tokio::test]
async fn collector_serves_after_its_files_are_removed() {
    let Some(certificates) = Certificates::make() else {
        return;
    };
    let backend = Backend::start().await;
    let tls = format!(
        "endpoint: '127.0.0.1:0', tls: {{cert_file: '{}', key_file: '{}', client_ca_file: '{}', \
         reload_interval: 10ms}}",
        certificates.file("rack.crt"),
        certificates.file("rack.key"),
        certificates.file("ca.crt"),
    );
    let server = yaml(&[], &[("otlp_grpc", &grpc_to(&backend, ""))]);
    let rack = Collector::start(&server.replace("endpoint: '127.0.0.1:0'", &tls)).await;
    let exporter = format!(
        "{{endpoint: '{}', tls: {{ca_file: '{}', cert_file: '{}', key_file: '{}', reload_interval: 10ms}}}}",
        rack.grpc(),
        certificates.file("ca.crt"),
        certificates.file("sidecar.crt"),
        certificates.file("sidecar.key"),
    );
    let sidecar = Collector::start(&yaml(&[], &[("otlp_grpc", &exporter)])).await;
    remove(certificates.directory());
    let oracle = Oracle::default();
    let client = Client::grpc("client", sidecar.grpc(), &oracle).await;
    for signal in Signal::ALL {
        client.send(&client.request(signal, 10)).await.unwrap();
    }
    assert_eq!(oracle.wait_for_delivery(&backend).await, 0);
    sidecar.assert_conservation().await;
    rack.assert_conservation().await;
}

fn remove(directory: &Path) {
    std::fs::remove_dir_all(directory).unwrap();
    std::fs::create_dir(directory).unwrap();
}

#[tokio::test]
async fn probe_command_works_without_a_shell() {
    let backend = Backend::start().await;
    let collector = Collector::start(&everything(&backend)).await;
    let url = format!(
        "http://{}/",
        collector.server("Starting HTTP server", "health_check")
    );
    let ask = || {
        Command::new(BINARY)
            .args(["health", &url])
            .output()
            .unwrap()
    };
    let answer = ask();
    assert!(answer.status.success(), "{answer:?}");
    let said = String::from_utf8(answer.stdout).unwrap();
    assert!(said.contains("Server available"), "{said}");
    assert!(collector.terminate().await.status.success());
    let answer = ask();
    assert_eq!(answer.status.code(), Some(1), "{answer:?}");
    let said = String::from_utf8(answer.stderr).unwrap();
    assert!(said.starts_with(&format!("error: {url}: ")), "{said}");
}
