//! Discovery by files, in the format of Prometheus:
//! <https://prometheus.io/docs/prometheus/latest/configuration/configuration/#file_sd_config>.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;
use tracing::warn;

use super::found::Found;
use crate::receivers::glob::Glob;
use tributary_config::units::Duration;
use tributary_config::{ComponentId, Problems, Validate};
use tributary_net::discovery::{
    MAX_LABELS, MAX_TARGETS, TargetGroup, is_targets_file, read_targets,
};
use tributary_net::files::FileWatch;

/// Maximum number of files per pattern.
const MAX_FILES: usize = 10_000;

/// Files that list servers, in the format of Prometheus' `file_sd_configs`: a list, as JSON or YAML, of
/// `{targets: ["host:port"], labels: {key: value}}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FileSd {
    /// Files, or patterns of files: `/etc/targets/*.yaml`; at least one. The names must end with `.json`, `.yml` or
    /// `.yaml`. Changes are detected within seconds. All files together may have 10000 targets, and 64 MiB of labels,
    /// counted once for each target; a file that would exceed the limits is not read, and the targets that it had
    /// before stay. Required.
    pub files: Vec<String>,
    /// Interval at which the files are read even without a detected change. Above 0. Default: 5m.
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
            problems.error(&["files"], "must not be empty: list at least one file");
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
pub(in crate::receivers) struct Files {
    patterns: Vec<Glob>,
    directories: Vec<PathBuf>,
    refresh: std::time::Duration,
    id: ComponentId,
    watch: Option<FileWatch>,
    known: Known,
}

/// Servers of each file when it was last readable.
#[derive(Default)]
struct Known {
    files: BTreeMap<PathBuf, OfFile>,
    /// Number of targets and bytes of labels of all files.
    targets: usize,
    labels: usize,
    file_label: bool,
}

/// Servers of a file, with their number of targets and bytes of labels.
#[derive(Default)]
struct OfFile {
    found: BTreeSet<Found>,
    targets: usize,
    labels: usize,
}

/// A file that was not read, and the reason.
type Unread = (PathBuf, String);

impl Files {
    /// Creates a watch for the receiver `id`. With `file_label`, each server has the label `__meta_filepath`.
    pub(in crate::receivers) fn new(config: &FileSd, id: &ComponentId, file_label: bool) -> Self {
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
            known: Known {
                file_label,
                ..Known::default()
            },
        }
    }

    /// Waits for a change or the next refresh, and returns the servers. The first refresh is immediate. The servers of
    /// unreadable files do not change.
    pub(in crate::receivers) async fn next(&mut self) -> BTreeSet<Found> {
        if let Some(watch) = &mut self.watch {
            let _ = timeout(self.refresh, watch.changed()).await;
        }
        let (patterns, directories) = (self.patterns.clone(), self.directories.clone());
        let mut known = std::mem::take(&mut self.known);
        let look = tokio::task::spawn_blocking(move || {
            // Directories are watched too, since files come and go. The watch starts before the
            // files are read.
            let paths = matching(&patterns);
            let watch = FileWatch::new(paths.iter().cloned().chain(directories));
            let unread = known.read(paths);
            (watch, known, unread)
        });
        // Only at shutdown.
        let Ok((watch, known, unread)) = look.await else {
            return std::future::pending().await;
        };
        self.watch = Some(watch);
        self.known = known;
        for (path, reason) in unread {
            warn!(
                otelcol.component.id = %self.id,
                otelcol.component.kind = "receiver",
                file = %path.display(),
                error = reason,
                "Cannot read a file of targets; still using its previous targets"
            );
        }
        let files = self.known.files.values();
        files.flat_map(|file| &file.found).cloned().collect()
    }
}

impl Known {
    /// Reads the existing files one after the other. Returns the files that were not read.
    fn read(&mut self, paths: BTreeSet<PathBuf>) -> Vec<Unread> {
        let gone = self.files.extract_if(.., |path, _| !paths.contains(path));
        for (_, file) in gone {
            self.targets -= file.targets;
            self.labels -= file.labels;
        }
        let unread = paths.into_iter().filter_map(|path| {
            let read = read_targets(&path).and_then(|groups| self.replace(&path, groups));
            read.err().map(|reason| (path, reason))
        });
        unread.collect()
    }

    /// Replaces the servers of a file, unless the totals of all files would exceed the limits.
    fn replace(&mut self, path: &Path, groups: Vec<TargetGroup>) -> Result<(), String> {
        let (targets, labels) = match self.files.get(path) {
            Some(before) => (self.targets - before.targets, self.labels - before.labels),
            None => (self.targets, self.labels),
        };
        let mut file = OfFile::default();
        for group in &groups {
            file.targets += group.targets.len();
            file.labels += group.expanded_labels();
        }
        let (targets, labels) = (targets + file.targets, labels + file.labels);
        if targets > MAX_TARGETS {
            return Err(format!(
                "with this file, all files have {targets} targets, more than {MAX_TARGETS}; use several receivers"
            ));
        }
        if labels > MAX_LABELS {
            return Err(format!(
                "with this file, all files have more than {MAX_LABELS} bytes of labels, counted once for each target"
            ));
        }
        let label = self.file_label.then(|| path.display().to_string());
        file.found = groups
            .into_iter()
            .flat_map(|group| found(group, label.as_deref()))
            .collect();
        (self.targets, self.labels) = (targets, labels);
        self.files.insert(path.to_owned(), file);
        Ok(())
    }
}

fn found(group: TargetGroup, file: Option<&str>) -> impl Iterator<Item = Found> + use<> {
    let TargetGroup {
        targets,
        mut labels,
    } = group;
    if let Some(file) = file {
        labels.insert("__meta_filepath".to_owned(), file.to_owned());
    }
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
    async fn changed_files_are_read_and_broken_ones_keep_targets() {
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
        let mut files = Files::new(&config, &"pprof".parse().unwrap(), false);
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

    #[tokio::test(start_paused = true)]
    async fn file_beyond_the_total_of_targets_keeps_its_old_targets() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, targets: usize| {
            let targets: Vec<String> = (0..targets).map(|at| format!("{name}:{at}")).collect();
            let text = format!("- targets: [{}]\n", targets.join(", "));
            std::fs::write(directory.path().join(format!("{name}.yaml")), text).unwrap();
        };
        let config = FileSd {
            files: vec![directory.path().join("*.yaml").display().to_string()],
            ..FileSd::default()
        };
        let mut files = Files::new(&config, &"pprof".parse().unwrap(), false);
        let most = MAX_TARGETS;
        for (name, targets, all) in [
            ("a", 2, 2),
            ("b", most - 2, most),
            ("c", 1, most),
            ("a", 3, most),
            ("b", 5, 8),
            ("c", most, 9),
        ] {
            write(name, targets);
            assert_eq!(files.next().await.len(), all, "{name} {targets}");
        }
        let few = files.next().await;
        assert_eq!(addresses(&few)[..2], ["a:0", "a:1"]);
    }
}
