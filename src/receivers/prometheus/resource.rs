//! Resource attributes of metrics.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// Attributes that follow from labels of Kubernetes' service discovery.
const KUBERNETES: [(&str, &str); 7] = [
    ("__meta_kubernetes_pod_name", "k8s.pod.name"),
    ("__meta_kubernetes_pod_uid", "k8s.pod.uid"),
    ("__meta_kubernetes_pod_container_name", "k8s.container.name"),
    ("__meta_kubernetes_namespace", "k8s.namespace.name"),
    ("__meta_kubernetes_pod_node_name", "k8s.node.name"),
    ("__meta_kubernetes_node_name", "k8s.node.name"),
    ("__meta_kubernetes_endpoint_node_name", "k8s.node.name"),
];

/// Attributes of workloads, by the kind of the controller of a pod.
const CONTROLLERS: [(&str, &str); 5] = [
    ("ReplicaSet", "k8s.replicaset.name"),
    ("DaemonSet", "k8s.daemonset.name"),
    ("StatefulSet", "k8s.statefulset.name"),
    ("Job", "k8s.job.name"),
    ("CronJob", "k8s.cronjob.name"),
];

/// Resource attributes, by name.
pub(super) type Attributes = BTreeMap<String, String>;

/// Returns the attributes that the labels of a target add: URL scheme and Kubernetes' names. The labels are those before
/// relabelling.
pub(super) fn of_target<'a>(label: impl Fn(&str) -> &'a str) -> Attributes {
    let mut attributes = Attributes::new();
    let mut set = |name: &str, value: &str| {
        if !value.is_empty() {
            attributes.insert(name.to_owned(), value.to_owned());
        }
    };
    set("url.scheme", label("__scheme__"));
    for (from, to) in KUBERNETES {
        set(to, label(from));
    }
    let kind = label("__meta_kubernetes_pod_controller_kind");
    if let Some((_, attribute)) = CONTROLLERS.iter().find(|(name, _)| *name == kind) {
        set(attribute, label("__meta_kubernetes_pod_controller_name"));
    }
    attributes
}

/// Returns the resource of metrics of this job and instance.
pub(super) fn resource(job: &str, instance: &str, of_target: &Attributes) -> Attributes {
    let mut attributes = of_target.clone();
    let mut set = |name: &str, value: &str| attributes.insert(name.to_owned(), value.to_owned());
    set("service.name", job);
    set("service.instance.id", instance);
    let (host, port) = split(instance).unwrap_or((instance, ""));
    if is_discernible(host) {
        set("server.address", host);
    }
    set("server.port", port);
    attributes
}

/// Splits `host:port` as Go's `net.SplitHostPort` does.
fn split(address: &str) -> Option<(&str, &str)> {
    let (host, port) = address.rsplit_once(':')?;
    match host.strip_prefix('[') {
        Some(host) => Some((host.strip_suffix(']')?, port)),
        None => (!host.contains([':', '[', ']'])).then_some((host, port)),
    }
}

/// Whether a host tells targets apart, other than `localhost`.
fn is_discernible(host: &str) -> bool {
    match host.parse::<IpAddr>() {
        Ok(address) => !address.is_loopback() && !address.is_unspecified(),
        Err(_) => host != "localhost",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_name_service_and_server() {
        let labels = |name: &str| match name {
            "__scheme__" => "https",
            "__meta_kubernetes_pod_name" => "web-1",
            "__meta_kubernetes_pod_controller_kind" => "StatefulSet",
            "__meta_kubernetes_pod_controller_name" => "web",
            _ => "",
        };
        let of_target = of_target(labels);
        let made = resource("job", "host.example:9100", &of_target);
        for (name, value) in [
            ("service.name", "job"),
            ("service.instance.id", "host.example:9100"),
            ("server.address", "host.example"),
            ("server.port", "9100"),
            ("url.scheme", "https"),
            ("k8s.pod.name", "web-1"),
            ("k8s.statefulset.name", "web"),
        ] {
            assert_eq!(made.get(name).map(String::as_str), Some(value), "{name}");
        }
        for (instance, address, port) in [
            ("localhost:80", None, ""),
            ("127.0.0.1:80", None, ""),
            ("[::1]:80", None, ""),
            ("[fd00::1]:80", Some("fd00::1"), "80"),
            ("plain", Some("plain"), ""),
        ] {
            let made = resource("job", instance, &Attributes::new());
            assert_eq!(
                made.get("server.address").map(String::as_str),
                address,
                "{instance}"
            );
            if address.is_some() {
                assert_eq!(made["server.port"], port, "{instance}");
            }
        }
    }
}
