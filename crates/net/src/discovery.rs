//! Discovery of servers, for receivers that scrape servers and exporters that balance load between servers.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use serde::Deserialize;

use crate::files::read_regular;

/// Maximum size of a file of targets, in bytes: 400 bytes for each of `MAX_TARGETS`.
const MAX_FILE: u64 = 4 << 20;

/// Maximum number of targets in a file, and in all files of a receiver.
pub const MAX_TARGETS: usize = 10_000;

/// Maximum size in bytes of all labels in a file, and in all files of a receiver, where each target has a copy of the
/// labels of its group.
pub const MAX_LABELS: usize = 64 << 20;

/// A group of servers in a file in the format of Prometheus. The file is a list of groups, as JSON or YAML:
/// <https://prometheus.io/docs/prometheus/latest/configuration/configuration/#file_sd_config>.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetGroup {
    /// Addresses of the servers.
    #[serde(default)]
    pub targets: Vec<String>,
    /// Labels of all servers in the group.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// Whether a targets file may have this name. The check keeps other files from being read as targets.
pub fn is_targets_file(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    matches!(extension, Some("json" | "yml" | "yaml"))
}

/// Reads a targets file. An empty file has no targets.
///
/// # Errors
/// A sentence that describes why the file cannot be read.
pub fn read_targets(path: &Path) -> Result<Vec<TargetGroup>, String> {
    let bytes = read_regular(path, MAX_FILE).map_err(|error| error.to_string())?;
    let text = String::from_utf8(bytes).map_err(|error| error.to_string())?;
    parse_targets(&text, &path.display().to_string())
}

/// Reads a list of targets, as JSON or YAML. `name` is the name of the list in errors. An empty list has no targets.
///
/// # Errors
/// A sentence that describes why the list cannot be read.
pub fn parse_targets(text: &str, name: &str) -> Result<Vec<TargetGroup>, String> {
    // JSON is a subset of YAML.
    let groups: Vec<TargetGroup> = tributary_config::read_text(text)?;
    let count: usize = groups.iter().map(|group| group.targets.len()).sum();
    if count > MAX_TARGETS {
        return Err(format!(
            "{name} has {count} targets, more than {MAX_TARGETS}"
        ));
    }
    let labels: usize = groups.iter().map(TargetGroup::expanded_labels).sum();
    if labels > MAX_LABELS {
        return Err(format!(
            "{name} has more than {MAX_LABELS} bytes of labels, counted once for each target"
        ));
    }
    Ok(groups)
}

impl TargetGroup {
    /// Size of the labels in bytes, with a copy for each target.
    pub fn expanded_labels(&self) -> usize {
        let pairs = self.labels.iter();
        let bytes: usize = pairs.map(|(key, value)| key.len() + value.len()).sum();
        bytes.saturating_mul(self.targets.len())
    }
}

/// Keeps the addresses of one IP family: IPv4, or IPv6 if there are no IPv4 addresses. A server with both families
/// would otherwise count twice.
pub fn single_family(mut addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    if addresses.iter().any(SocketAddr::is_ipv4) {
        addresses.retain(SocketAddr::is_ipv4);
    }
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<TargetGroup>, String> {
        tributary_config::read_text(text)
    }

    #[test]
    fn targets_files_are_read_in_both_formats() {
        for text in [
            "- targets: [a:1, 'b:2']\n  labels: {job: x, port: 8080}\n",
            "[\n\t{\n\t\t\"targets\": [\"a:1\", \"b:2\"],\n\t\t\"labels\": {\"job\": \"x\", \"port\": \"8080\"}\n\t}\n]\n",
        ] {
            let groups = read(text).unwrap();
            assert_eq!(groups.len(), 1);
            assert_eq!(groups[0].targets, ["a:1", "b:2"]);
            assert_eq!(groups[0].labels["job"], "x");
            assert_eq!(groups[0].labels["port"], "8080");
        }
        for empty in ["", "# none yet\n", "[]"] {
            assert!(read(empty).unwrap().is_empty());
        }
    }

    #[test]
    fn hostile_targets_file_is_refused_with_position() {
        let bomb: String = (0..9)
            .map(|level: u32| {
                let of = level
                    .checked_sub(1)
                    .map_or("x".to_owned(), |below| format!("*a{below}"));
                format!("- &a{level} [{}]\n", [of.as_str(); 9].join(", "))
            })
            .collect();
        let deep = "[".repeat(100_000);
        let duplicate = "- targets: [a:1]\n  targets: [b:2]\n";
        let variable = "- targets: [a:1]\n  label: {}\n";
        for text in [
            bomb.as_str(),
            &deep,
            duplicate,
            variable,
            "a: b",
            "- targets: {",
        ] {
            let error = read(text).unwrap_err();
            assert!(error.starts_with("line "), "{error}");
        }
        let groups = read("- targets: ['${env:PATH}']\n").unwrap();
        assert_eq!(groups[0].targets, ["${env:PATH}"]);
    }

    #[test]
    fn server_with_ipv4_and_ipv6_counts_once() {
        let parse = |addresses: &[&str]| -> Vec<SocketAddr> {
            addresses.iter().map(|a| a.parse().unwrap()).collect()
        };
        let (v4, v6) = ("10.0.0.1:6060", "[fd00::1]:6060");
        assert_eq!(single_family(parse(&[v6, v4])), parse(&[v4]));
        assert_eq!(single_family(parse(&[v6])), parse(&[v6]));
    }

    #[test]
    fn targets_and_their_labels_are_bounded_per_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("targets.yaml");
        let read = |targets: usize, label: usize| {
            let (targets, label) = ("a,".repeat(targets), "x".repeat(label));
            let text = format!("- targets: [{targets}]\n  labels: {{k: '{label}'}}\n");
            std::fs::write(&path, text).unwrap();
            read_targets(&path)
        };
        assert_eq!(read(MAX_TARGETS, 1).unwrap()[0].targets.len(), MAX_TARGETS);
        for (targets, label, problem) in [
            (MAX_TARGETS + 1, 1, "has 10001 targets, more than 10000"),
            (MAX_TARGETS, 10_000, "bytes of labels"),
            (1, 5 << 20, "is larger than 4194304 bytes"),
        ] {
            let error = read(targets, label).unwrap_err();
            assert!(error.contains("targets.yaml"), "{error}");
            assert!(error.contains(problem), "{error}");
        }
    }
}
