//! Writing to the files of an exporter with `group_by`, some of which are kept open.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use metrics::Counter;
use parking_lot::{Mutex, MutexGuard};
use tracing::error;

use super::backups;
use super::config::Config;
use super::ending::Framing;
use super::group::of_chunks;
use super::output::{Output, Written};
use crate::pipeline::batch::{Code, Progress};
use crate::queue::{Outcome, SendError};
use tributary_config::ComponentId;
use tributary_storage::own_files;

/// Open files by path. The least recently used files are closed.
#[derive(Debug)]
pub(super) struct OpenFiles {
    id: ComponentId,
    config: Config,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    outputs: HashMap<PathBuf, (Arc<Output>, u64)>,
    /// Number of writes so far, which orders the last uses.
    uses: u64,
}

impl OpenFiles {
    pub(super) fn new(id: &ComponentId, config: &Config) -> Self {
        OpenFiles {
            id: id.clone(),
            config: config.clone(),
            state: Mutex::default(),
        }
    }

    /// Writes a request to the file at `path`. Creates the file and its directories if they are missing.
    ///
    /// # Errors
    ///
    /// The request is not in the file.
    pub(super) fn write(
        &self,
        path: &Path,
        framing: Framing,
        request: &[u8],
    ) -> io::Result<Written> {
        let known = self.lock().outputs.get(path).map(|(open, _)| open.clone());
        let output = match known {
            Some(output) => output,
            None => {
                make_directory(path, &self.config)?;
                let output = Output::of(path);
                output.begin(self.config.is_continued(), self.config.rotation.0.clone())?;
                output
            }
        };
        let written = match output.write(framing, request) {
            // The directory of an open file was removed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make_directory(path, &self.config)?;
                output.write(framing, request)?
            }
            written => written?,
        };
        self.used(path, output);
        Ok(written)
    }

    /// Makes the file the most recently used file. The least recently used file may be closed. Its data is synced
    /// before, because the flusher only syncs open files.
    fn used(&self, path: &Path, output: Arc<Output>) {
        let mut state = self.lock();
        state.uses += 1;
        let now = state.uses;
        state.outputs.insert(path.to_owned(), (output, now));
        let mut closed = Vec::new();
        while state.outputs.len() > self.config.group_by.max_open_files {
            let oldest = state.outputs.iter().min_by_key(|(_, (_, used))| *used);
            let oldest = oldest.map(|(path, _)| path.clone());
            closed.extend(oldest.and_then(|path| state.outputs.remove(&path)));
        }
        drop(state);
        for (output, _) in closed {
            if let Err(error) = output.sync() {
                let reason = output.describe("cannot sync (fsync) the file", &error);
                error!(otelcol.component.id = %self.id, otelcol.component.kind = "exporter", "{reason}");
            }
        }
    }

    /// Returns the open files.
    pub(super) fn all(&self) -> Vec<Arc<Output>> {
        let state = self.lock();
        state
            .outputs
            .values()
            .map(|(open, _)| open.clone())
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// Creates the directory of a file, and its parents.
pub(super) fn make_directory(path: &Path, config: &Config) -> io::Result<()> {
    let mode = config.directory_mode().unwrap_or(0o755);
    own_files::create_directories(backups::directory(path), mode)
}

/// Writes each group to its file. A retry skips the groups that were written.
pub(super) fn write_groups(
    files: &OpenFiles,
    framing: Framing,
    chunks: &[Bytes],
    progress: &Progress,
    rotations: &Counter,
) -> Result<Outcome, SendError> {
    let mut outcome = Outcome::default();
    let mut failure = None;
    for (at, pair) in chunks.chunks(2).enumerate() {
        let Some((items, path, record)) = of_chunks(pair) else {
            continue;
        };
        let Some(path) = path else {
            outcome.rejected_items += items;
            outcome.message = NO_FILE.to_owned();
            continue;
        };
        if progress.has(at) {
            continue;
        }
        match files.write(&path, framing, record) {
            Ok(written) => {
                progress.add(at);
                rotations.increment(written.rotated.into());
            }
            Err(error) => {
                let reason = format!("cannot write to {}: {error}", path.display());
                if is_fault_of_name(&error) {
                    outcome.rejected_items += items;
                    outcome.message = reason;
                } else {
                    failure.get_or_insert(SendError::transient(Code::Unavailable, reason));
                }
            }
        }
    }
    failure.map_or(Ok(outcome), Err)
}

/// Message about resources without the attribute of `group_by`.
const NO_FILE: &str = "dropped resources that have no string attribute named by `group_by`";

/// Whether the error is caused by the file name, which comes from the data, so that a retry cannot succeed.
fn is_fault_of_name(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::InvalidInput
            | io::ErrorKind::InvalidFilename
            | io::ErrorKind::IsADirectory
            | io::ErrorKind::NotADirectory
    )
}
