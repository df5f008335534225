//! The manifests for Kubernetes, read as a cluster would.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde::Deserialize as _;
use serde_json::Value;
use tempfile::TempDir;

use crate::harness::certificates::Certificates;
use crate::harness::collector::BINARY;

/// Name of the image in the manifests.
const IMAGE: &str = "registry.example.com/tributary:";
/// Names that `make-certificates.sh` gives to the files in a Secret.
const TIERS: [&str; 3] = ["sidecar", "rack", "zone"];

/// The manifests in `examples/kubernetes`.
pub struct Cluster {
    pub manifests: Vec<Value>,
    pub tiers: Vec<Tier>,
    /// A directory for each Secret.
    pub secrets: TempDir,
}

impl Cluster {
    /// Reads the manifests. Without openssl for the certificates, returns `None`.
    pub fn read() -> Option<Self> {
        let certificates = Certificates::make()?;
        let secrets = TempDir::new().unwrap();
        for tier in TIERS {
            let secret = secrets.path().join(format!("{tier}-tls"));
            std::fs::create_dir(&secret).unwrap();
            let files = [("crt", "tls.crt"), ("key", "tls.key")];
            for (extension, name) in files {
                let file = certificates.file(&format!("{tier}.{extension}"));
                std::fs::copy(file, secret.join(name)).unwrap();
            }
            std::fs::copy(certificates.file("ca.crt"), secret.join("ca.crt")).unwrap();
        }
        let kustomization = &documents(&directory().join("kustomization.yaml"))[0];
        let files = list(&kustomization["resources"]).iter();
        let manifests: Vec<Value> = files
            .flat_map(|file| documents(&directory().join(text(file))))
            .collect();
        let tiers = manifests.iter();
        let tiers = tiers
            .filter_map(|workload| Tier::of(workload, &manifests))
            .collect();
        Some(Cluster {
            manifests,
            tiers,
            secrets,
        })
    }

    pub fn of_kind(&self, kind: &'static str) -> impl Iterator<Item = &Value> {
        self.manifests
            .iter()
            .filter(move |manifest| manifest["kind"] == kind)
    }

    pub fn tier(&self, name: &str) -> &Tier {
        self.tiers.iter().find(|tier| tier.name == name).unwrap()
    }

    /// The tiers that a selector in a namespace selects; at least one, unless the selector is empty.
    pub fn selected(&self, selecting: &Value, labels: &Value) -> Vec<&Tier> {
        let namespace = text(&selecting["metadata"]["namespace"]);
        let tiers = self
            .tiers
            .iter()
            .filter(|tier| tier.is_selected(namespace, labels));
        let tiers: Vec<&Tier> = tiers.collect();
        assert!(!tiers.is_empty(), "selects nothing: {selecting}");
        tiers
    }

    /// Whether a policy allows the pods of a tier to connect to this port in a namespace.
    pub fn allows_egress(&self, tier: &Tier, namespace: &str, port: u64) -> bool {
        let policies = self.of_kind("NetworkPolicy").filter(|policy| {
            let selector = &policy["spec"]["podSelector"]["matchLabels"];
            tier.is_selected(text(&policy["metadata"]["namespace"]), selector)
        });
        let mut rules = policies.flat_map(|policy| list(&policy["spec"]["egress"]));
        rules.any(|rule| {
            let there = list(&rule["to"]).iter().any(|peer| {
                let named =
                    &peer["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"];
                // Without a namespace, the namespace of the policy applies.
                named.as_str().unwrap_or(&tier.namespace) == namespace
            });
            there
                && list(&rule["ports"])
                    .iter()
                    .any(|allowed| allowed["port"] == port)
        })
    }
}

/// A pod that runs a collector, from its manifest.
pub struct Tier {
    pub name: String,
    pub namespace: String,
    pub labels: Value,
    pub pod: Value,
    pub container: Value,
    /// The configuration in the ConfigMap.
    pub yaml: String,
}

impl Tier {
    pub fn of(workload: &Value, manifests: &[Value]) -> Option<Self> {
        let template = &workload["spec"]["template"];
        let pod = &template["spec"];
        let containers = ["initContainers", "containers"].map(|key| list(&pod[key]));
        let container = containers
            .iter()
            .flat_map(|containers| containers.iter())
            .find(|container| text(&container["image"]).starts_with(IMAGE))?;
        let namespace = text(&workload["metadata"]["namespace"]);
        // The configuration is at the path of `--config`, in a mounted volume.
        let file = argument(container, "config");
        let file = Path::new(&file);
        let mount = named(
            &container["volumeMounts"],
            "mountPath",
            text_of(file.parent()),
        );
        let volume = named(&pod["volumes"], "name", text(&mount["name"]));
        let map = manifests.iter().find(|manifest| {
            manifest["kind"] == "ConfigMap"
                && manifest["metadata"]["namespace"] == namespace
                && manifest["metadata"]["name"] == volume["configMap"]["name"]
        });
        let yaml = text(&map.unwrap()["data"][text_of(file.file_name().map(Path::new))]);
        Some(Tier {
            name: text(&workload["metadata"]["name"]).to_owned(),
            namespace: namespace.to_owned(),
            labels: template["metadata"]["labels"].clone(),
            pod: pod.clone(),
            container: container.clone(),
            yaml: yaml.to_owned(),
        })
    }

    /// The variables set by the manifest.
    pub fn variables(&self) -> BTreeMap<String, String> {
        let entry = |variable: &Value| {
            let value = variable["value"].as_str().unwrap_or("from-the-pod");
            (text(&variable["name"]).to_owned(), value.to_owned())
        };
        list(&self.container["env"]).iter().map(entry).collect()
    }

    /// Returns the command with these variables, and with the certificates of a Secret at the mount paths of the
    /// manifest.
    pub fn command(&self, secrets: &Path) -> Command {
        let mut variables = self.variables();
        let directory = variables.get_mut("TLS_DIR").unwrap();
        let mount = named(
            &self.container["volumeMounts"],
            "mountPath",
            directory.as_str(),
        );
        let volume = named(&self.pod["volumes"], "name", text(&mount["name"]));
        let secret = text(&volume["secret"]["secretName"]);
        *directory = secrets.join(secret).to_str().unwrap().to_owned();
        let mut command = Command::new(BINARY);
        command.env_clear().envs(variables);
        command
    }

    pub fn run(&self, secrets: &Path, arguments: &[&str]) -> Output {
        let mut command = self.command(secrets);
        command.arg(format!("--config=yaml:{}", self.yaml));
        command.args(arguments).output().unwrap()
    }

    /// Returns the ports on which the tier listens for other hosts, each with its configuration
    /// key.
    pub fn listening(&self, secrets: &Path) -> BTreeMap<u64, String> {
        let printed = self.run(secrets, &["print-config", "--format=json"]);
        let config: Value = serde_json::from_slice(&printed.stdout).unwrap();
        let mut found = listeners(&config);
        found.retain(|(_, address)| !address.starts_with("localhost:"));
        let ports = found.into_iter().map(|(key, address)| {
            let (host, port) = address.rsplit_once(':').unwrap();
            assert_eq!(host, "0.0.0.0", "{}: {key}", self.name);
            (port.parse().unwrap(), key)
        });
        ports.collect()
    }

    /// Returns the number of a port, given as a number or as the name of a container port.
    pub fn port(&self, port: &Value) -> u64 {
        port.as_u64().unwrap_or_else(|| {
            let port = named(&self.container["ports"], "name", text(port));
            port["containerPort"].as_u64().unwrap()
        })
    }

    pub fn is_selected(&self, namespace: &str, selector: &Value) -> bool {
        let labels = selector.as_object().into_iter().flatten();
        self.namespace == namespace
            && labels
                .into_iter()
                .all(|(key, value)| self.labels[key] == *value)
    }

    /// The configuration, before the expansion of variables.
    pub fn config(&self) -> Value {
        serde_yaml::from_str(&self.yaml).unwrap()
    }
}

/// The keys of a configuration with listening addresses, and these addresses.
pub fn listeners(config: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for section in ["receivers", "extensions", "exporters", "service"] {
        collect(&config[section], section, &mut found);
    }
    // Endpoints of exporters and targets belong to other listeners.
    found.retain(|(key, _)| {
        !key.starts_with("exporters.") || key.starts_with("exporters.prometheus.")
    });
    found
}

pub fn collect(part: &Value, path: &str, found: &mut Vec<(String, String)>) {
    for (key, value) in part.as_object().into_iter().flatten() {
        let path = format!("{path}.{key}");
        match value.as_str() {
            Some(address) if key == "endpoint" || key == "address" => {
                found.push((path, address.to_owned()));
            }
            _ => collect(value, &path, found),
        }
    }
}

pub fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/kubernetes")
}

pub fn documents(path: &Path) -> Vec<Value> {
    let yaml = std::fs::read_to_string(path).unwrap();
    let documents = serde_yaml::Deserializer::from_str(&yaml);
    documents
        .map(|document| Value::deserialize(document).unwrap())
        .collect()
}

/// The value of `--NAME=` among a container's arguments.
pub fn argument(container: &Value, name: &str) -> String {
    let prefix = format!("--{name}=");
    let mut arguments = list(&container["args"]).iter();
    let found = arguments.find_map(|argument| text(argument).strip_prefix(&prefix));
    found.unwrap().to_owned()
}

/// Returns the entry of a list with this value of the key.
pub fn named(list_of: &Value, key: &str, value: impl Into<Value>) -> Value {
    let value = value.into();
    let found = list(list_of).iter().find(|entry| entry[key] == value);
    found
        .unwrap_or_else(|| panic!("no {key} {value} in {list_of}"))
        .clone()
}

pub fn list(value: &Value) -> &Vec<Value> {
    const NONE: &Vec<Value> = &Vec::new();
    value.as_array().unwrap_or(NONE)
}

pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

pub fn text_of(path: Option<&Path>) -> &str {
    path.and_then(Path::to_str).unwrap()
}
