//! `file`: reads the pprof files that appear in a directory, each version once.
//!
//! The directories are polled every `collection_interval`. A file is read once it is unchanged
//! (device, inode, size, times) between two polls, so that a file is complete, no matter how it is
//! written. This delay is one to two intervals. A file that was delivered, or that is not a valid
//! profile, is not read again until it changes. A file that the pipeline refuses temporarily is
//! retried at every poll. The Collector reads all files at every poll.
//!
//! The set of read files is not persisted: after a restart of the collector, all files are read
//! again. Their profiles are equal byte by byte, so a `dedup` processor recognizes the duplicates.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use opentelemetry_proto::tonic::common::v1::KeyValue;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::component::BuildError;
use crate::pipeline::Component;
use crate::receivers::glob::Glob;
use crate::receivers::polling::{Poll, Polling};
use crate::receivers::profile_intake::{Intake, Origin, ReceivedBytes, Refused, Subject, text};
use crate::serving::body::out_of_memory;
use tributary_config::units::Duration;
use tributary_config::{ComponentId, Problems, Validate};
use tributary_net::files::{FileStamp, open_regular};
use tributary_net::sampled_log::SampledLog;

/// Reads the pprof files whose paths match a pattern, each version of a file once. A file is read
/// after its last write.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FileConfig {
    /// Pattern of paths to read. In the pattern, `*` matches any text without `/`, `?` one ASCII
    /// character, `[a-z]` one character of the range, `[^a-z]` one character outside of the range,
    /// and `{a,b}` one of the two. `\` before a character removes its meaning. Required.
    pub include: String,
    /// Interval of polls. A file is read when it has not changed between two polls. Above 0. Default: 10s.
    pub collection_interval: Duration,
    /// Delay of the first poll. Default: 1s.
    pub initial_delay: Duration,
    /// Resource attributes of all profiles. Default: none. (The Collector has no such key.)
    pub resource: BTreeMap<String, String>,
    /// Maximum size of a file in bytes, both as stored and after decompression; 0 means the default. Default: 67108864
    /// (64 MiB). (The Collector has no such key.)
    pub max_file_size: usize,
}

impl Default for FileConfig {
    fn default() -> Self {
        FileConfig {
            include: String::new(),
            collection_interval: Duration::secs(10),
            initial_delay: Duration::secs(1),
            resource: BTreeMap::new(),
            max_file_size: DEFAULT_SIZE,
        }
    }
}

impl FileConfig {
    /// Returns the maximum size of a file in bytes.
    pub(super) fn max_file(&self) -> usize {
        match self.max_file_size {
            0 => DEFAULT_SIZE,
            size => size,
        }
    }

    /// Builds the section of the receiver `id`. `intake` must belong to this section alone, with
    /// [`LIMIT_KEY`] as the key of its limit.
    pub(super) fn build(
        &self,
        id: &ComponentId,
        intake: Intake,
    ) -> Result<Box<dyn Component>, BuildError> {
        let resource = self.resource.iter();
        let resource = resource.map(|(key, value)| text(key, value));
        let glob = Glob::new(&self.include).map_err(BuildError)?;
        let files = Files::new(id.clone(), glob, resource.collect(), intake);
        let interval = self.collection_interval.unless_zero();
        let interval =
            interval.ok_or_else(|| BuildError("`collection_interval` is 0".to_owned()))?;
        Ok(Box::new(Polling::new(files, *self.initial_delay, interval)))
    }
}

impl Validate for FileConfig {
    fn validate(&self, problems: &mut Problems) {
        match Glob::new(&self.include) {
            _ if self.include.is_empty() => {
                problems.error(&["include"], "file.include must be specified");
            }
            Err(why) => problems.error(&["include"], why),
            Ok(_) => {}
        }
        if self.collection_interval.unless_zero().is_none() {
            problems.error(&["collection_interval"], "must be above 0");
        }
        for key in self.resource.keys().filter(|key| key.is_empty()) {
            problems.error(
                &["resource", key],
                "the name of an attribute must not be empty",
            );
        }
    }
}

/// State of the files.
struct Files {
    id: ComponentId,
    glob: Glob,
    /// Resource attributes of all profiles.
    resource: Vec<KeyValue>,
    intake: Intake,
    seen: HashMap<PathBuf, FileState>,
    /// Log of temporary read failures.
    failures: SampledLog,
    /// Whether the log already says that there are too many files.
    too_many: bool,
}

/// State of a file at the last poll.
struct FileState {
    stamp: FileStamp,
    /// Whether this version of the file needs no more work.
    done: bool,
}

/// Reason why a file was not read.
#[derive(Debug, thiserror::Error)]
enum Unread {
    #[error("cannot read the file: {0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Refused(#[from] Refused),
}

impl Poll for Files {
    async fn poll(&mut self, stop: &CancellationToken) {
        let glob = self.glob.clone();
        // File systems may block.
        let found = tokio::task::spawn_blocking(move || {
            let mut paths = glob.find(MAX_FILES + 1);
            paths.sort_unstable();
            let stamped = paths.into_iter();
            let stamped = stamped.filter_map(|path| Some((FileStamp::of(&path)?, path)));
            stamped.collect::<Vec<_>>()
        });
        let Ok(mut found) = found.await else {
            return;
        };
        if found.len() > MAX_FILES && !std::mem::replace(&mut self.too_many, true) {
            warn!(
                otelcol.component.id = %self.id,
                otelcol.component.kind = "receiver",
                "More than {MAX_FILES} files match `include`; the rest is not read. Use several receivers with narrower \
                 patterns"
            );
        }
        found.truncate(MAX_FILES);
        let there: HashSet<&Path> = found.iter().map(|(_, path)| path.as_path()).collect();
        self.seen.retain(|path, _| there.contains(path.as_path()));
        for (stamp, path) in found {
            let settled = match self.seen.get(&path) {
                Some(seen) if seen.stamp == stamp && seen.done => continue,
                Some(seen) => seen.stamp == stamp,
                None => false,
            };
            let done = settled && !stop.is_cancelled() && self.take(&path, &stamp).await;
            self.seen.insert(path, FileState { stamp, done });
        }
    }
}

impl Files {
    fn new(id: ComponentId, glob: Glob, resource: Vec<KeyValue>, intake: Intake) -> Self {
        Files {
            id,
            glob,
            resource,
            intake,
            seen: HashMap::new(),
            failures: SampledLog::default(),
            too_many: false,
        }
    }

    /// Reads a file. Returns true if this version of the file needs no more work.
    async fn take(&self, path: &Path, stamp: &FileStamp) -> bool {
        match self.read(path, stamp).await {
            Ok(true) => true,
            // The file is still being written.
            Ok(false) => false,
            Err(Unread::Refused(refused)) if refused.is_retryable() => {
                debug!(
                    otelcol.component.id = %self.id,
                    otelcol.component.kind = "receiver",
                    path = %path.display(),
                    error = %refused,
                    "Cannot deliver a file; retrying"
                );
                false
            }
            // The file was deleted after the poll.
            Err(Unread::Io(error)) if error.kind() == io::ErrorKind::NotFound => false,
            // The failure has another cause than the file, such as too many open files or an
            // unavailable file server.
            Err(Unread::Io(error)) if error.kind() != io::ErrorKind::PermissionDenied => {
                if let Some(suppressed) = self.failures.admit() {
                    warn!(
                        otelcol.component.id = %self.id,
                        otelcol.component.kind = "receiver",
                        path = %path.display(),
                        %error,
                        suppressed,
                        "Cannot read a file; retrying"
                    );
                }
                false
            }
            Err(error) => {
                warn!(
                    otelcol.component.id = %self.id,
                    otelcol.component.kind = "receiver",
                    path = %path.display(),
                    %error,
                    "Skipped a file until it changes"
                );
                true
            }
        }
    }

    /// Reads and delivers a file. Returns false if the file has changed since the poll.
    async fn read(&self, path: &Path, stamp: &FileStamp) -> Result<bool, Unread> {
        let (limit, key) = (self.intake.limit, self.intake.limit_key);
        let size = tokio::fs::metadata(path).await?.len();
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        if size > limit {
            return Err(Refused::TooLarge(limit, key).into());
        }
        let permit = self.intake.budget.acquire(size);
        let permit = permit.map_err(|no_room| Refused::Pipeline(out_of_memory(no_room)))?;
        let (from, before) = (path.to_owned(), stamp.clone());
        let read = move || -> io::Result<Option<Vec<u8>>> {
            let mut bytes = Vec::new();
            bytes.reserve_exact(size);
            let file = open_regular(&from)?;
            file.take(size as u64).read_to_end(&mut bytes)?;
            let same = bytes.len() == size && FileStamp::of(&from).as_ref() == Some(&before);
            Ok(same.then_some(bytes))
        };
        let read = tokio::task::spawn_blocking(read).await;
        let Some(bytes) = read.map_err(|_| Refused::ShuttingDown)?? else {
            return Ok(false);
        };
        let modified = tokio::fs::metadata(path).await?.modified()?;
        let modified = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
        let origin = Origin {
            subject: Subject::new(self.resource.clone(), None).into(),
            profile: None,
            start: u64::try_from(modified.as_nanos()).unwrap_or(u64::MAX),
            duration: std::time::Duration::ZERO,
            is_interval: false,
        };
        let held = ReceivedBytes {
            bytes: bytes.into(),
            permit,
        };
        self.intake.take(held, origin).await?;
        Ok(true)
    }
}

const DEFAULT_SIZE: usize = 64 << 20;
/// Key of the limit on the size of a file.
pub(super) const LIMIT_KEY: &str = "max_file_size";
/// Maximum number of tracked files, whose states take a few MB at most.
const MAX_FILES: usize = 10_000;

#[cfg(test)]
mod tests;
