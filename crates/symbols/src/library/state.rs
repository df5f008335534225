//! In-memory state of a library.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use tokio::sync::watch;
use tokio::time::Instant;

use super::{DIRECTORY_INTERVAL, Lookup, MAX_ABSENT, OPEN, Pending, QUEUE_LENGTH};
use crate::build_id::BuildId;
use crate::failure::FailureKind;
use crate::file::SymbolFile;

/// Known build ids: open symbol files and absences.
pub(super) struct State {
    pub(super) known: HashMap<BuildId, Known>,
    /// Logical clock, incremented by every use.
    clock: u64,
    pub(super) open: usize,
    /// Size in bytes of the open files, which the cache may have deleted meanwhile.
    pub(super) open_bytes: u64,
    /// Maximum of `open_bytes`.
    max_bytes: u64,
    absent: usize,
    pub(super) waiting: usize,
}

pub(super) enum Known {
    Open(Open),
    Absent { kind: FailureKind, until: Instant },
    Pending(watch::Receiver<()>),
}

pub(super) struct Open {
    file: Arc<SymbolFile>,
    used: u64,
    used_at: SystemTime,
    /// Time of the next search for a better file, if a better file may exist.
    better: Option<Instant>,
}

impl State {
    pub(super) fn new(max_bytes: u64) -> Self {
        State {
            known: HashMap::new(),
            clock: 0,
            open: 0,
            open_bytes: 0,
            max_bytes,
            absent: 0,
            waiting: 0,
        }
    }

    pub(super) fn get(&mut self, id: &BuildId) -> Option<Lookup> {
        self.clock += 1;
        match self.known.get_mut(id)? {
            Known::Open(open) => {
                open.used = self.clock;
                open.used_at = SystemTime::now();
                Some(Lookup::Ready(open.file.clone()))
            }
            Known::Absent { kind, until } if Instant::now() < *until => Some(Lookup::Absent(*kind)),
            Known::Absent { .. } => {
                self.known.remove(id);
                self.absent -= 1;
                None
            }
            Known::Pending(pending) => Some(Lookup::Pending(Pending(pending.clone()))),
        }
    }

    /// Returns the symbols of a build id if a search for better symbols is due. The caller starts the search.
    pub(super) fn partial(&mut self, id: &BuildId, now: Instant) -> Option<Arc<SymbolFile>> {
        let Some(Known::Open(open)) = self.known.get_mut(id) else {
            return None;
        };
        open.better
            .filter(|time| *time <= now && self.waiting < QUEUE_LENGTH)?;
        open.better = Some(now + DIRECTORY_INTERVAL);
        self.waiting += 1;
        Some(open.file.clone())
    }

    /// Replaces the state of a build id by open symbols. From `better` on, a search for better symbols may start.
    pub(super) fn open(&mut self, id: BuildId, file: Arc<SymbolFile>, better: Instant) {
        self.close(&id);
        let bytes = file.bytes();
        while self.open > 0
            && (self.open >= OPEN || self.open_bytes.saturating_add(bytes) > self.max_bytes)
        {
            let open = self.known.iter().filter_map(|(id, known)| match known {
                Known::Open(open) => Some((open.used, id)),
                _ => None,
            });
            let Some(oldest) = open.min().map(|(_, id)| id.clone()) else {
                break;
            };
            self.close(&oldest);
        }
        self.clock += 1;
        let open = Open {
            used: self.clock,
            used_at: SystemTime::now(),
            better: (!file.has_lines()).then_some(better),
            file,
        };
        self.known.insert(id, Known::Open(open));
        self.open += 1;
        self.open_bytes += bytes;
    }

    /// Closes the symbols of a build id, so that the next lookup searches for them again.
    pub(super) fn close(&mut self, id: &BuildId) {
        if let Some(Known::Open(open)) = self.known.get(id) {
            self.open -= 1;
            self.open_bytes -= open.file.bytes();
            self.known.remove(id);
        }
    }

    /// Returns the open files and the times of their last use.
    pub(super) fn in_use(&self) -> Vec<(BuildId, SystemTime)> {
        let open = self.known.iter().filter_map(|(id, known)| match known {
            Known::Open(open) => Some((id.clone(), open.used_at)),
            _ => None,
        });
        open.collect()
    }

    pub(super) fn absent(&mut self, id: BuildId, kind: FailureKind, until: Instant) {
        if self.absent >= MAX_ABSENT {
            // A sender with that many made-up build ids only causes new searches for absent build ids.
            let present = |known: &Known| !matches!(known, Known::Absent { .. });
            self.known.retain(|_, known| present(known));
            self.absent = 0;
        }
        self.known.insert(id, Known::Absent { kind, until });
        self.absent += 1;
    }
}
