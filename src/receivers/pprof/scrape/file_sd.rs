//! Discovery by files, in the format of Prometheus:
//! <https://prometheus.io/docs/prometheus/latest/configuration/configuration/#file_sd_config>.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;
use tracing::warn;

use super::discovery::Found;
use crate::config::units::Duration;
use crate::config::{ComponentId, Problems, Validate};
use crate::files::FileWatch;

/// The most bytes of a file; it is for people and small programs.
const MAX_FILE: u64 = 16 << 20;

/// Files that name servers, in the format of Prometheus' `file_sd_configs`: a list, as JSON or YAML, of
/// `{targets: ["host:port"], labels: {key: value}}`.
///
/// Labels become attributes of the resource: `job` and `service_name` are `service.name`, `instance` is
/// `service.instance.id`, all others keep their names. Of those that begin with `__`, `__scheme__` and
/// `__profile_path__` take the place of `scheme` and `path_prefix`; others are left out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FileSd {
    /// Files, or patterns of them with `*` in the last part: `/etc/targets/*.yaml`. They end with `.json`, `.yml` or
    /// `.yaml`. Changes are seen within seconds.
    pub files: Vec<String>,
    /// How often they are read even if no change was seen. Default: 5m.
    pub refresh_interval: Duration,
}

impl Default for FileSd {
    fn default() -> Self {
        FileSd {
            files: Vec::new(),
            refresh_interval: Duration::secs(300),
        }
    }
}

impl Validate for FileSd {
    fn validate(&self, problems: &mut Problems) {
        if self.files.is_empty() {
            problems.error(&["files"], "there must be at least one");
        }
        for (at, file) in self.files.iter().enumerate() {
            let at = at.to_string();
            let path = Path::new(file);
            let extension = path.extension().and_then(|extension| extension.to_str());
            if !matches!(extension, Some("json" | "yml" | "yaml")) {
                problems.error(&["files", &at], "must end with .json, .yml or .yaml");
            }
            let directory = path.parent().and_then(Path::to_str);
            if directory.is_some_and(|directory| directory.contains('*')) {
                problems.error(
                    &["files", &at],
                    "`*` can only be in the last part of a path",
                );
            }
        }
        if self.refresh_interval.is_zero() {
            problems.error(&["refresh_interval"], "must be above 0");
        }
    }
}

/// A list of such is what a file holds.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    #[serde(default)]
    targets: Vec<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

/// Files that are looked at.
pub(super) struct Files {
    patterns: Vec<PathBuf>,
    refresh: std::time::Duration,
    id: ComponentId,
    watch: Option<FileWatch>,
    /// What each file said when it could last be read.
    known: BTreeMap<PathBuf, BTreeSet<Found>>,
}

impl Files {
    pub(super) fn new(config: &FileSd, id: &ComponentId) -> Self {
        Files {
            patterns: config.files.iter().map(PathBuf::from).collect(),
            refresh: *config.refresh_interval,
            id: id.clone(),
            watch: None,
            known: BTreeMap::new(),
        }
    }

    pub(super) async fn next(&mut self) -> BTreeSet<Found> {
        if let Some(watch) = &mut self.watch {
            let _ = timeout(self.refresh, watch.changed()).await;
        }
        let patterns = self.patterns.clone();
        let look = tokio::task::spawn_blocking(move || {
            // The directories too: files come and go. Watched from before they are read.
            let paths = matching(&patterns);
            let directories = patterns.iter().map(|pattern| directory(pattern).to_owned());
            let watch = FileWatch::new(paths.iter().cloned().chain(directories));
            let read = paths.into_iter().map(|path| {
                let groups = read(&path);
                (path, groups)
            });
            (watch, read.collect::<Vec<_>>())
        });
        // Not when the process ends.
        let Ok((watch, read)) = look.await else {
            return std::future::pending().await;
        };
        self.watch = Some(watch);
        let mut before = std::mem::take(&mut self.known);
        for (path, groups) in read {
            let found = match groups {
                Ok(groups) => groups.into_iter().flat_map(found).collect(),
                Err(reason) => {
                    warn!(
                        otelcol.component.id = %self.id,
                        otelcol.component.kind = "receiver",
                        file = %path.display(),
                        error = reason,
                        "Cannot read the targets in a file; those it had before stay"
                    );
                    before.remove(&path).unwrap_or_default()
                }
            };
            self.known.insert(path, found);
        }
        self.known.values().flatten().cloned().collect()
    }
}

fn found(group: Group) -> impl Iterator<Item = Found> {
    let Group { targets, labels } = group;
    targets.into_iter().map(move |address| Found {
        address,
        name: None,
        labels: labels.clone(),
    })
}

fn read(path: &Path) -> Result<Vec<Group>, String> {
    let metadata = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if metadata.len() > MAX_FILE {
        return Err(format!("it has more than {MAX_FILE} bytes"));
    }
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    // JSON is YAML, too. An empty file has no targets.
    let groups: Option<Vec<Group>> = serde_yaml::from_str(&text).map_err(|e| e.to_string())?;
    Ok(groups.unwrap_or_default())
}

fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory,
        _ => Path::new("."),
    }
}

/// The files that are there, each once.
fn matching(patterns: &[PathBuf]) -> BTreeSet<PathBuf> {
    let mut files = BTreeSet::new();
    for pattern in patterns {
        let name = pattern.file_name().and_then(|name| name.to_str());
        let Some(name) = name.filter(|name| name.contains('*')) else {
            files.extend(pattern.is_file().then(|| pattern.clone()));
            continue;
        };
        let entries = std::fs::read_dir(directory(pattern)).into_iter().flatten();
        for entry in entries.flatten() {
            let file = entry.file_name();
            if file.to_str().is_some_and(|file| is_match(name, file)) {
                files.insert(entry.path());
            }
        }
    }
    files.retain(|file| file.is_file());
    files
}

/// Whether a name is one of a pattern; `*` stands for any letters, but not for the dot that hides a file.
fn is_match(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    if name.starts_with('.') && !first.starts_with('.') {
        return false;
    }
    let Some(mut rest) = name.strip_prefix(first) else {
        return false;
    };
    let Some(last) = parts.next_back() else {
        return rest.is_empty();
    };
    for part in parts {
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = rest.get(at + part.len()..).unwrap_or_default();
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(found: &BTreeSet<Found>) -> Vec<&str> {
        found.iter().map(|found| found.address.as_str()).collect()
    }

    #[test]
    fn a_star_stands_for_any_letters_but_not_for_a_leading_dot() {
        for (pattern, name, is) in [
            ("*.yaml", "a.yaml", true),
            ("*.yaml", ".a.yaml", false),
            ("tg_*.json", "tg_1.json", true),
            ("tg_*.json", "tg_.json", true),
            ("tg_*.json", "x_tg_1.json", false),
            ("a*b*c.yml", "a-b-b-c.yml", true),
            ("a*b*c.yml", "a-c.yml", false),
            ("ab*ba.yml", "aba.yml", false),
            ("a.yml", "a.ymlx", false),
        ] {
            assert_eq!(is_match(pattern, name), is, "{pattern} {name}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn files_are_read_again_when_they_change_and_a_broken_one_keeps_what_it_said() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let write = |name: &str, text: &str| std::fs::write(path(name), text).unwrap();
        write(
            "a.json",
            r#"[{"targets": ["a:1", "a:2"], "labels": {"job": "x"}}]"#,
        );
        write("ignored.txt", "- targets: [c:1]");
        let config = FileSd {
            files: ["*.json", "*.yaml"]
                .map(|name| path(name).display().to_string())
                .into(),
            ..FileSd::default()
        };
        let mut files = Files::new(&config, &"pprof".parse().unwrap());
        let found = files.next().await;
        assert_eq!(addresses(&found), ["a:1", "a:2"]);
        assert!(found.iter().all(|found| found.labels["job"] == "x"));
        write("b.yaml", "- targets: [b:1]\n  labels: {zone: z}\n");
        assert_eq!(addresses(&files.next().await), ["a:1", "a:2", "b:1"]);
        write("a.json", "[{");
        assert_eq!(addresses(&files.next().await), ["a:1", "a:2", "b:1"]);
        std::fs::remove_file(path("a.json")).unwrap();
        assert_eq!(addresses(&files.next().await), ["b:1"]);
        write("b.yaml", "");
        assert!(files.next().await.is_empty());
    }
}
