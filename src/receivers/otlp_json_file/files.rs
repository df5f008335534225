//! The open files of the receiver.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::config::{Config, StartAt};
use super::intake::{Intake, Verdict};
use super::positions::{Positions, identity_of};
use super::tail::{Framing, Record, Tail};
use crate::receivers::glob::Glob;
use crate::receivers::polling::Poll;
use tributary_config::ComponentId;
use tributary_net::sampled_log::SampledLog;

pub(super) struct Files {
    pub(super) id: ComponentId,
    pub(super) config: Config,
    pub(super) include: Vec<Glob>,
    pub(super) exclude: Vec<Glob>,
    pub(super) framing: Framing,
    pub(super) intake: Intake,
    /// Read positions on disk, with `storage`.
    pub(super) positions: Option<Positions>,
    /// Open files, by device and inode.
    pub(super) tails: HashMap<(u64, u64), Following>,
    /// Whether a poll has been completed.
    pub(super) has_looked: bool,
    /// Whether there was neither a poll nor a stored position.
    pub(super) first: bool,
    /// Whether the log already says that there are too many files.
    pub(super) too_many: bool,
    pub(super) unreadable: SampledLog,
}

/// An open file.
pub(super) struct Following {
    /// `None` while another thread reads the file.
    tail: Option<Tail>,
    /// Whether no included path refers to the file any more. Such a file is closed at its end.
    nameless: bool,
    /// Time of the retry after the pipeline refused a record.
    not_before: Option<Instant>,
}

impl Poll for Files {
    async fn poll(&mut self, stop: &CancellationToken) {
        let is_first = !std::mem::replace(&mut self.has_looked, true);
        if is_first {
            self.load_positions().await;
        }
        // At the first poll, the positions at the ends of files are new.
        let mut has_moved = is_first;
        self.find().await;
        let mut identities: Vec<_> = self.tails.keys().copied().collect();
        identities.sort_unstable_by_key(|identity| {
            let tail = self.tails.get(identity).and_then(|one| one.tail.as_ref());
            tail.map(|tail| tail.path.clone())
        });
        for identity in identities {
            let Some(mut following) = self.tails.remove(&identity) else {
                continue;
            };
            let is_due = following
                .not_before
                .is_none_or(|time| time <= Instant::now());
            let before = following.tail.as_ref().map(Tail::offset);
            let at_end = is_due && !stop.is_cancelled() && self.follow(&mut following, stop).await;
            if at_end
                && self.config.replay_file
                && let Some(tail) = &mut following.tail
            {
                tail.rewind();
            }
            has_moved |= before != following.tail.as_ref().map(Tail::offset);
            let is_done = at_end && following.nameless;
            if following.tail.is_some() && !is_done {
                self.tails.insert(identity, following);
            }
        }
        if has_moved {
            self.store_positions().await;
        }
    }
}

/// The name of the file with a receiver's positions, in the directory of the storage extension.
pub(super) fn positions_file(id: &ComponentId) -> String {
    let mut name = "receiver_".to_owned();
    for character in id.to_string().chars() {
        match character {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '_' | '-' => name.push(character),
            other => name.push_str(&format!("~{:04X}", u32::from(other))),
        }
    }
    name.push_str("_positions");
    name
}

impl Files {
    /// Loads the stored positions at the first poll. If there are any, `start_at` has no effect, as in the Collector.
    async fn load_positions(&mut self) {
        let Some(mut positions) = self.positions.take() else {
            return;
        };
        let loading = spawn_blocking(move || {
            let loaded = positions.load();
            (positions, loaded)
        });
        // The task fails only at the shutdown of the runtime.
        let Ok((positions, loaded)) = loading.await else {
            return;
        };
        self.positions = Some(positions);
        match loaded {
            Ok(true) => self.first = false,
            Ok(false) => {}
            Err(error) => warn!(
                otelcol.component.id = %self.id,
                otelcol.component.kind = "receiver",
                %error,
                "Cannot load the read positions; starting at `start_at`"
            ),
        }
    }

    async fn store_positions(&mut self) {
        let Some(mut positions) = self.positions.take() else {
            return;
        };
        let tails = std::mem::take(&mut self.tails);
        let storing = spawn_blocking(move || {
            let open = tails.values().filter_map(|one| one.tail.as_ref());
            // A truncated file has no position before its next poll.
            let open = open.filter_map(|tail| tail.position().ok()).collect();
            let stored = positions.store(open);
            (tails, positions, stored)
        });
        let Ok((tails, positions, stored)) = storing.await else {
            return;
        };
        (self.tails, self.positions) = (tails, Some(positions));
        if let Err(error) = stored
            && let Some(suppressed) = self.unreadable.admit()
        {
            warn!(
                otelcol.component.id = %self.id,
                otelcol.component.kind = "receiver",
                %error,
                suppressed,
                "Cannot store the read positions; retrying. A restart before that reads some records twice"
            );
        }
    }

    /// Opens new files.
    async fn find(&mut self) {
        let (include, exclude) = (self.include.clone(), self.exclude.clone());
        let known: HashSet<(u64, u64)> = self.tails.keys().copied().collect();
        // File systems may block.
        let found = spawn_blocking(move || {
            let excluded: HashSet<PathBuf> = exclude
                .iter()
                .flat_map(|glob| glob.find(MAX_FOUND))
                .collect();
            let mut paths: Vec<PathBuf> = include
                .iter()
                .flat_map(|glob| glob.find(MAX_FOUND))
                .collect();
            paths.sort_unstable();
            paths.dedup();
            paths.retain(|path| !excluded.contains(path));
            let mut found = HashMap::new();
            for path in paths {
                let Ok(metadata) = std::fs::metadata(&path) else {
                    continue;
                };
                // Directories have no lines, and opening a pipe would wait for a writer.
                if !metadata.is_file() {
                    continue;
                }
                let identity = identity_of(&metadata);
                let room = MAX_OPEN.saturating_sub(known.len());
                if known.contains(&identity) {
                    found.insert(identity, Ok((path, None)));
                } else if found.len() < known.len() + room {
                    let opened = Tail::open(path.clone());
                    let opened = opened.map(|tail| (path.clone(), Some(tail)));
                    found.insert(identity, opened.map_err(|error| (path, error)));
                } else {
                    return (found, true);
                }
            }
            (found, false)
        });
        let Ok((found, too_many)) = found.await else {
            return;
        };
        if too_many && !std::mem::replace(&mut self.too_many, true) {
            warn!(
                otelcol.component.id = %self.id,
                otelcol.component.kind = "receiver",
                "More than {MAX_OPEN} files match `include`; the rest is not read. Use several receivers with narrower \
                 patterns"
            );
        }
        for (identity, following) in &mut self.tails {
            following.nameless = !found.contains_key(identity);
        }
        let from_end =
            self.first && self.config.start_at == StartAt::End && !self.config.replay_file;
        self.first = false;
        for (identity, opened) in found {
            match opened {
                Ok((path, None)) => {
                    let known = self.tails.get_mut(&identity);
                    if let Some(tail) = known.and_then(|known| known.tail.as_mut()) {
                        tail.path = path;
                    }
                }
                Ok((path, Some(mut tail))) => {
                    let resumed = match &self.positions {
                        Some(positions) => tail.resume(positions),
                        None => Ok(false),
                    };
                    let placed = match resumed {
                        Ok(false) if from_end => tail.skip_to_end(self.framing),
                        resumed => resumed.map(|_| ()),
                    };
                    if let Err(error) = placed {
                        self.log_unreadable(&path, &error);
                        continue;
                    }
                    // If the file at the path was replaced in the meantime, the open file is used.
                    let open = tail.identity;
                    let following = Following {
                        tail: Some(tail),
                        nameless: false,
                        not_before: None,
                    };
                    self.tails.insert(open, following);
                }
                Err((path, error)) => self.log_unreadable(&path, &error),
            }
        }
    }

    fn log_unreadable(&self, path: &std::path::Path, error: &io::Error) {
        if let Some(suppressed) = self.unreadable.admit() {
            warn!(
                otelcol.component.id = %self.id,
                otelcol.component.kind = "receiver",
                path = %path.display(),
                %error,
                suppressed,
                "Cannot read a file; retrying"
            );
        }
    }

    /// Forwards the new records of a file. Returns true if its end was reached.
    async fn follow(&self, following: &mut Following, stop: &CancellationToken) -> bool {
        following.not_before = None;
        loop {
            let Some(records) = self.read(following).await else {
                return false;
            };
            if records.is_empty() {
                return true;
            }
            for record in records {
                if stop.is_cancelled() {
                    return false;
                }
                let Some(tail) = &mut following.tail else {
                    return false;
                };
                match self.intake.take(&tail.path, &record).await {
                    Verdict::Done => tail.passed(&record),
                    Verdict::Later(wait) => {
                        following.not_before = Some(Instant::now() + wait);
                        return false;
                    }
                }
            }
        }
    }

    /// Returns the next records of a file, or `None` if the file cannot be read at the moment.
    async fn read(&self, following: &mut Following) -> Option<Vec<Record>> {
        let mut tail = following.tail.take()?;
        let (framing, limit) = (self.framing, self.config.max_log_size.as_usize());
        let read = spawn_blocking(move || {
            let records = tail.read(framing, limit);
            (tail, records)
        });
        // `None` at shutdown.
        let (tail, records) = read.await.ok()?;
        let outcome = match records {
            Ok((records, cut)) => {
                if cut {
                    info!(
                        otelcol.component.id = %self.id,
                        otelcol.component.kind = "receiver",
                        path = %tail.path.display(),
                        "A file was truncated; reading it from the beginning"
                    );
                }
                Some(records)
            }
            Err(error) => {
                self.log_unreadable(&tail.path, &error);
                None
            }
        };
        following.tail = Some(tail);
        outcome
    }
}

/// Maximum number of open files.
const MAX_OPEN: usize = 1000;
/// Maximum number of paths to examine.
const MAX_FOUND: usize = 10_000;
/// Minimum poll interval. A shorter interval would leave no time for other work.
pub(super) const MIN_INTERVAL: Duration = Duration::from_millis(1);
