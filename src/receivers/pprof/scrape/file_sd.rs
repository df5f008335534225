//! Discovery by files, in the format of Prometheus:
//! <https://prometheus.io/docs/prometheus/latest/configuration/configuration/#file_sd_config>.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;
use tracing::warn;

use super::discovery::Found;
use crate::receivers::glob::Glob;
use tributary_config::units::Duration;
use tributary_config::{ComponentId, Problems, Validate};
use tributary_net::discovery::{Group, is_targets_file, read_targets};
use tributary_net::files::FileWatch;

/// Maximum number of files per pattern.
const MAX_FILES: usize = 10_000;

/// Files that list servers, in the format of Prometheus' `file_sd_configs`: a list, as JSON or
/// YAML, of `{targets: ["host:port"], labels: {key: value}}`.
///
/// Labels become resource attributes: `job` and `service_name` become `service.name`, `instance`
/// becomes `service.instance.id`, all others keep their names. Of the labels that begin with `__`,
/// `__scheme__` and `__profile_path__` replace `scheme` and `path_prefix`; all others are ignored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FileSd {
    /// Files, or patterns of files: `/etc/targets/*.yaml`. The names must end with `.json`, `.yml`
    /// or `.yaml`. Changes are detected within seconds.
    pub files: Vec<String>,
    /// Interval at which the files are read even without a detected change. Default: 5m.
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
            if !is_targets_file(path) {
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

/// Watched files.
pub(super) struct Files {
    patterns: Vec<Glob>,
    directories: Vec<PathBuf>,
    refresh: std::time::Duration,
    id: ComponentId,
    watch: Option<FileWatch>,
    /// Servers of each file when it was last readable.
    known: BTreeMap<PathBuf, BTreeSet<Found>>,
}

impl Files {
    pub(super) fn new(config: &FileSd, id: &ComponentId) -> Self {
        Files {
            // Validation has rejected invalid patterns.
            patterns: config
                .files
                .iter()
                .flat_map(|file| Glob::new(file))
                .collect(),
            directories: config.files.iter().map(|file| directory(file)).collect(),
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
        let (patterns, directories) = (self.patterns.clone(), self.directories.clone());
        let look = tokio::task::spawn_blocking(move || {
            // Directories are watched too, since files come and go. The watch starts before the
            // files are read.
            let paths = matching(&patterns);
            let watch = FileWatch::new(paths.iter().cloned().chain(directories));
            let read = paths.into_iter().map(|path| {
                let groups = read_targets(&path);
                (path, groups)
            });
            (watch, read.collect::<Vec<_>>())
        });
        // Only at shutdown.
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

/// Returns the existing files, each once.
fn matching(patterns: &[Glob]) -> BTreeSet<PathBuf> {
    let found = patterns.iter().flat_map(|pattern| pattern.find(MAX_FILES));
    found.collect()
}

/// Returns the directory to watch for new and deleted files of a pattern.
fn directory(pattern: &str) -> PathBuf {
    match Path::new(pattern).parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory.to_owned(),
        _ => PathBuf::from("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(found: &BTreeSet<Found>) -> Vec<&str> {
        found.iter().map(|found| found.address.as_str()).collect()
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
