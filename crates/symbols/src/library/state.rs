//! What a library has in memory.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use tokio::sync::watch;
use tokio::time::Instant;

use super::{ABSENT, LOOK_AGAIN, Lookup, OPEN, Pending, WAITING};
use crate::build_id::BuildId;
use crate::failure::Kind;
use crate::file::SymbolFile;

/// What is known of build ids.
pub(super) struct State {
    pub(super) known: HashMap<BuildId, Known>,
    /// Counts up with every use.
    clock: u64,
    pub(super) open: usize,
    /// Of what is open, which the cache may have deleted in the meantime.
    pub(super) open_bytes: u64,
    /// The most of these.
    max_bytes: u64,
    absent: usize,
    pub(super) waiting: usize,
}

pub(super) enum Known {
    Open(Open),
    Absent { kind: Kind, until: Instant },
    Pending(watch::Receiver<()>),
}

/// Symbols that are open.
pub(super) struct Open {
    file: Arc<SymbolFile>,
    used: u64,
    used_at: SystemTime,
    /// When a better one is looked for, if there may be one.
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

    /// The symbols of a build id, if it is time to look for better ones: who gets them does.
    pub(super) fn poor(&mut self, id: &BuildId, now: Instant) -> Option<Arc<SymbolFile>> {
        let Some(Known::Open(open)) = self.known.get_mut(id) else {
            return None;
        };
        open.better
            .filter(|time| *time <= now && self.waiting < WAITING)?;
        open.better = Some(now + LOOK_AGAIN);
        self.waiting += 1;
        Some(open.file.clone())
    }

    /// Opens symbols in the place of what was known. Better ones are looked for from `better` on, if there may be some.
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

    /// Closes the symbols of a build id, if they are open: they are looked for again when they are wanted.
    pub(super) fn close(&mut self, id: &BuildId) {
        if let Some(Known::Open(open)) = self.known.get(id) {
            self.open -= 1;
            self.open_bytes -= open.file.bytes();
            self.known.remove(id);
        }
    }

    /// What is open, and when it was used last.
    pub(super) fn in_use(&self) -> Vec<(BuildId, SystemTime)> {
        let open = self.known.iter().filter_map(|(id, known)| match known {
            Known::Open(open) => Some((id.clone(), open.used_at)),
            _ => None,
        });
        open.collect()
    }

    pub(super) fn absent(&mut self, id: BuildId, kind: Kind, until: Instant) {
        if self.absent >= ABSENT {
            // Who sends that many made-up ones makes everybody's be looked for again, no more.
            let present = |known: &Known| !matches!(known, Known::Absent { .. });
            self.known.retain(|_, known| present(known));
            self.absent = 0;
        }
        self.known.insert(id, Known::Absent { kind, until });
        self.absent += 1;
    }
}
