//! The container image and the manifests for Kubernetes match their configurations: ports, variables, files and names
//! are the same in all of them.

mod cluster;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use self::cluster::{Cluster, argument, directory, documents, list, listeners, named, text};
use crate::harness::Collector;
use crate::harness::collector::BINARY;

#[test]
fn config_maps_are_valid_in_their_manifests() {
    let Some(cluster) = Cluster::read() else {
        return;
    };
    let maps = cluster.of_kind("ConfigMap").count();
    assert_eq!((maps, cluster.tiers.len()), (3, 3));
    for tier in &cluster.tiers {
        // Strict: an unset variable or an unused component is an error.
        let output = tier.run(cluster.secrets.path(), &["--validate", "--strict"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}:\n{said}", tier.name);
        // The example sets no unused variable.
        for name in tier.variables().keys() {
            let used = tier.yaml.contains(&format!("${{env:{name}}}"));
            assert!(used, "{}: {name} is of no use", tier.name);
        }
    }
}

#[tokio::test]
async fn collectors_of_all_config_maps_start_and_end() {
    let Some(cluster) = Cluster::read() else {
        return;
    };
    let volumes = TempDir::new().unwrap();
    for tier in &cluster.tiers {
        let printed = tier.run(cluster.secrets.path(), &["print-config", "--format=json"]);
        let config: Value = serde_json::from_slice(&printed.stdout).unwrap();
        let ports = listeners(&config);
        let ports = ports
            .iter()
            .map(|(key, _)| format!("--set={key}=127.0.0.1:0"));
        let ports: Vec<String> = ports.collect();
        let ports: Vec<&str> = ports.iter().map(String::as_str).collect();
        // The collector writes only into volumes, because the root is read-only.
        let mut yaml = tier.yaml.clone();
        for mount in list(&tier.container["volumeMounts"]) {
            if mount["readOnly"] != true {
                let path = text(&mount["mountPath"]);
                let place = volumes.path().join(path.trim_start_matches('/'));
                yaml = yaml.replace(path, place.to_str().unwrap());
            }
        }
        assert!(!yaml.contains(" /var/"), "{}: no volume", tier.name);
        let command = tier.command(cluster.secrets.path());
        let collector = Collector::run(command, &yaml, &ports).await;
        let ended = collector.terminate().await;
        assert!(ended.status.success(), "{}: {}", tier.name, ended.status);
    }
}

#[test]
fn declared_ports_match_listeners() {
    let Some(cluster) = Cluster::read() else {
        return;
    };
    for tier in &cluster.tiers {
        let listening = tier.listening(cluster.secrets.path());
        let named: BTreeSet<u64> = list(&tier.container["ports"])
            .iter()
            .map(|port| port["containerPort"].as_u64().unwrap())
            .collect();
        assert!(
            listening.keys().eq(&named),
            "{}: {listening:?} {named:?}",
            tier.name
        );
        let probes = ["startupProbe", "livenessProbe", "readinessProbe"];
        let probes: Vec<u64> = probes
            .iter()
            .map(|probe| &tier.container[probe]["httpGet"]["port"])
            .filter(|port| !port.is_null())
            .map(|port| tier.port(port))
            .collect();
        assert!(!probes.is_empty());
        for port in probes {
            assert_eq!(
                listening[&port], "extensions.health_check.endpoint",
                "{}",
                tier.name
            );
        }
    }
    let mut services = 0;
    for service in cluster.of_kind("Service") {
        for tier in cluster.selected(service, &service["spec"]["selector"]) {
            for port in list(&service["spec"]["ports"]) {
                let port = tier.port(&port["targetPort"]);
                assert!(
                    tier.listening(cluster.secrets.path()).contains_key(&port),
                    "{service}"
                );
                services += 1;
            }
        }
    }
    assert_eq!(services, 3);
}

#[test]
fn network_policies_match_listeners_and_endpoints() {
    let Some(cluster) = Cluster::read() else {
        return;
    };
    let mut let_in = BTreeSet::new();
    for policy in cluster.of_kind("NetworkPolicy") {
        for tier in cluster.selected(policy, &policy["spec"]["podSelector"]["matchLabels"]) {
            for port in list(&policy["spec"]["ingress"])
                .iter()
                .flat_map(|rule| list(&rule["ports"]))
            {
                let port = tier.port(&port["port"]);
                let listening = tier.listening(cluster.secrets.path());
                let_in.insert(format!("{}: {}", tier.name, listening[&port]));
            }
        }
    }
    // All except the probes of the kubelet, which come from the node.
    let expected = [
        "rack: receivers.otlp.protocols.grpc.endpoint",
        "rack: service.telemetry.metrics.address",
        "shop: service.telemetry.metrics.address",
        "zone: exporters.prometheus.endpoint",
        "zone: receivers.otlp.protocols.grpc.endpoint",
        "zone: service.telemetry.metrics.address",
    ];
    assert!(let_in.iter().eq(&expected), "{let_in:?}");

    let mut hops = 0;
    for tier in &cluster.tiers {
        for (name, target) in tier.variables() {
            let Some((host, port)) = target.split_once(".svc.cluster.local:") else {
                continue;
            };
            let (service, namespace) = host.trim_start_matches("http://").split_once('.').unwrap();
            let port: u64 = port.parse().unwrap();
            assert!(
                cluster.allows_egress(tier, namespace, port),
                "{}: no policy lets it go to {name}={target}",
                tier.name
            );
            // A Service has this port, and leads to a pod with it, because policies apply to the port of the pod.
            for service in cluster.of_kind("Service").filter(|found| {
                found["metadata"]["name"] == service && found["metadata"]["namespace"] == namespace
            }) {
                let port = named(&service["spec"]["ports"], "port", port);
                let tiers = cluster.selected(service, &service["spec"]["selector"]);
                assert!(
                    tiers
                        .iter()
                        .any(|tier| tier.port(&port["targetPort"]) == port["port"])
                );
            }
            hops += 1;
        }
    }
    assert_eq!(
        hops, 4,
        "to the rack, the zone, the backend and the debuginfod server"
    );
}

#[test]
fn tiers_have_the_names_expected_by_their_neighbours() {
    let Some(cluster) = Cluster::read() else {
        return;
    };
    let path = directory().join("certificates.yaml");
    let certificates: Vec<Value> = documents(&path);
    let names = |secret: &str, key: &str| {
        let mut certificates = certificates.iter();
        let found = certificates.find(|found| found["spec"]["secretName"] == secret);
        list(&found.unwrap()["spec"][key]).clone()
    };
    for (client, server) in [("sidecar", "rack"), ("rack", "zone")] {
        let allowed = cluster.tier(server).config()["receivers"]["otlp"]["protocols"]["grpc"]["tls"]
            ["allowed_client_names"]
            .clone();
        assert_eq!(list(&allowed), &names(&format!("{client}-tls"), "uris"));
        let host = format!("{server}.tributary.svc.cluster.local");
        assert_eq!(names(&format!("{server}-tls"), "dnsNames"), [host.as_str()]);
        let hop = match client {
            "sidecar" => cluster.tier("shop").variables()["RACK"].clone(),
            _ => cluster.tier("rack").variables()["ZONE"].clone(),
        };
        assert_eq!(hop, format!("{host}:4317"));
    }
}

#[test]
fn pods_have_time_to_drain_and_spare_memory() {
    let Some(cluster) = Cluster::read() else {
        return;
    };
    for tier in &cluster.tiers {
        let drain: u64 = argument(&tier.container, "drain-timeout").parse().unwrap();
        let grace = tier.pod["terminationGracePeriodSeconds"].as_u64().unwrap();
        // An application has the default grace period before its sidecar gets SIGTERM.
        let before = if tier.name == "shop" { 30 } else { 0 };
        assert!(
            before + drain + 5 <= grace,
            "{}: {drain} s of {grace} s",
            tier.name
        );
        let config = tier.config();
        let mib = |limit: &Value| {
            let limit = text(limit);
            let gib = limit
                .strip_suffix("Gi")
                .map(|number| number.parse::<u64>().unwrap() * 1024);
            gib.unwrap_or_else(|| limit.strip_suffix("Mi").unwrap().parse().unwrap())
        };
        let limit = mib(&tier.container["resources"]["limits"]["memory"]);
        let worker = &config["processors"]["symbolication"]["worker"]["max_memory"];
        let worker = if worker.is_null() {
            0
        } else {
            mib(&Value::from(text(worker).trim_end_matches('B')))
        };
        let telemetry = config["processors"]["memory_limiter"]["limit_mib"]
            .as_u64()
            .unwrap();
        // SECURITY.md: what the process needs besides telemetry.
        assert!(
            telemetry + worker + 48 <= limit,
            "{}: {limit} MiB",
            tier.name
        );
    }
}

#[test]
fn image_exposes_ports_and_copies_context_files() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let dockerfile = std::fs::read_to_string(root.join("Dockerfile")).unwrap();
    let instruction = |name: &'static str| {
        let lines = dockerfile.lines();
        lines.filter_map(move |line| line.strip_prefix(name)?.strip_prefix(' '))
    };
    let context = std::fs::read_to_string(root.join(".dockerignore")).unwrap();
    let copied = instruction("COPY").filter(|arguments| !arguments.starts_with("--"));
    let copied: Vec<&str> = copied.collect();
    let sources = copied
        .iter()
        .filter_map(|arguments| arguments.rsplit_once(' '));
    let sources: BTreeSet<&str> = sources.flat_map(|(from, _)| from.split(' ')).collect();
    for source in &sources {
        assert!(root.join(source).exists(), "{source}");
    }
    let let_through: BTreeSet<&str> = context
        .lines()
        .filter_map(|line| line.strip_prefix('!'))
        .collect();
    assert_eq!(
        sources, let_through,
        "and nothing else: keys and results of builds stay out"
    );

    let config = sources
        .iter()
        .find(|source| source.ends_with(".yaml"))
        .unwrap();
    // The COPY of the last stage, not of the build stage.
    let (_, place) = copied
        .iter()
        .rev()
        .find_map(|line| line.split_once(&format!("{config} ")))
        .unwrap();
    let command = instruction("CMD").collect::<String>();
    assert_eq!(command, format!("[\"--config={place}\"]"));
    let variables = instruction("ENV").filter_map(|variable| variable.split_once('='));
    let output = Command::new(BINARY)
        .env_clear()
        .envs(variables)
        .arg(format!("--config={}", root.join(config).display()))
        .args(["print-config", "--format=json"])
        .output()
        .unwrap();
    let config: Value = serde_json::from_slice(&output.stdout).unwrap();
    let listening: BTreeSet<String> = listeners(&config)
        .into_iter()
        .map(|(_, address)| address)
        // The console needs authentication beyond the container, which the default configuration does not have.
        .filter(|address| !address.starts_with("localhost:"))
        .collect();
    let exposed: Vec<&str> = instruction("EXPOSE")
        .flat_map(|ports| ports.split(' '))
        .collect();
    let exposed = exposed.iter().map(|port| format!("0.0.0.0:{port}"));
    assert_eq!(listening, exposed.collect());
}
