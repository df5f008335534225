//! Symbols by build id, available at once or fetched in the background.
//!
//! A lookup never waits for a source. A symbol file that is neither in memory nor in the cache is fetched by a separate
//! task. All callers share the task, and it runs to its end even without waiting callers, because the next lookup will
//! likely need the same file.
//!
//! Symbols without lines are used at once, while a better file is searched for in the other sources. Debug information
//! is often installed after its absence was noticed. Therefore directories are searched again every minute, and servers
//! as often as for a missing file.

mod fetch;
mod metrics;
mod single_flight;
mod state;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use self::metrics::Metrics;
use self::state::{Known, State};
use super::build_id::BuildId;
use super::cache::{Absence, Cached, SymbolKind};
use super::failure::FailureKind;
use super::file::SymbolFile;
use super::find::{BinarySource, Tools};
use tributary_config::ComponentId;
use tributary_net::sampled_log::SampledLog;

/// Maximum number of parallel fetches from servers, compilation included. Each download takes disk space.
const MAX_FETCHES: usize = 4;
/// Maximum number of parallel searches on this machine. Local searches never wait for a slow server or for the queue of
/// made-up build ids at the servers.
const MAX_SEARCHES: usize = 16;
/// Maximum length of the queue of searches. Build ids beyond the maximum are not recorded, and the next profile queues
/// them again.
const QUEUE_LENGTH: usize = 4096;
/// Maximum number of new build ids that one lookup may queue; the next profile queues the rest. An eighth of the queue,
/// so that one sender with made-up build ids cannot fill it.
const MAX_NEW_IDS: usize = 512;
/// Maximum number of open symbol files. The files are mapped, so unused parts take no memory.
const OPEN: usize = 1024;
/// Maximum bytes of symbol files verified for the first time during one lookup, which take some tens of milliseconds.
/// Files beyond the maximum are handled like files to fetch.
const MAX_VERIFIED_BYTES: u64 = 64 << 20;
/// Maximum number of build ids remembered as having no symbols.
const MAX_ABSENT: usize = 1 << 16;
/// Interval at which directories are searched again for missing files. A search is cheap, and the file may have been
/// installed in the meantime.
const DIRECTORY_INTERVAL: Duration = Duration::from_secs(60);
/// Random share of the retry time, so that queries for all missing files do not coincide.
const JITTER: f64 = 0.25;
/// Maximum number of useless files remembered per build id.
const MAX_REJECTED: usize = 8;

/// Symbols by build id, from sources and a cache.
pub struct Library {
    tools: Tools,
    sources: Vec<Box<dyn BinarySource>>,
    /// Time before the next query for a file that no source has.
    missing_for: Duration,
    state: Mutex<State>,
    fetching: Semaphore,
    searching: Semaphore,
    metrics: Metrics,
    log: SampledLog,
}

/// Result of looking up a build id.
pub enum Lookup {
    /// The symbols.
    Ready(Arc<SymbolFile>),
    /// The build id has no symbols, permanently or at present.
    Absent(FailureKind),
    /// The symbols are being fetched.
    Pending(Pending),
}

/// Whether the metrics count a lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LookupAttempt {
    /// The first lookup, which the metrics count.
    First,
    /// A repeated lookup after waiting, which the metrics do not count.
    Repeated,
}

/// A symbol file that is being fetched.
#[derive(Clone)]
pub struct Pending(watch::Receiver<()>);

impl Pending {
    /// Waits until the fetch has ended.
    pub async fn finished(mut self) {
        // The channel closes when the fetch ends.
        while self.0.changed().await.is_ok() {}
    }
}

impl Library {
    /// Creates a library for the component `id`. The sources are queried in the given order.
    pub fn new(
        id: &ComponentId,
        tools: Tools,
        sources: Vec<Box<dyn BinarySource>>,
        missing_for: Duration,
    ) -> Arc<Self> {
        let metrics = Metrics::new(id);
        metrics.cache_bytes.set(tools.cache.bytes() as f64);
        Arc::new(Library {
            state: Mutex::new(State::new(tools.cache.max_bytes())),
            tools,
            sources,
            missing_for,
            fetching: Semaphore::new(MAX_FETCHES),
            searching: Semaphore::new(MAX_SEARCHES),
            metrics,
            log: SampledLog::default(),
        })
    }

    /// Looks up build ids, in order. Reads the cache for new build ids, which takes some microseconds each without
    /// verification. Starts to fetch missing files.
    pub async fn look_up(self: &Arc<Self>, ids: &[BuildId], asked: LookupAttempt) -> Vec<Lookup> {
        let mut known: Vec<Option<Lookup>> = {
            let mut state = self.state();
            ids.iter().map(|id| state.get(id)).collect()
        };
        let unknown_ids = known.iter().zip(ids).filter(|(known, _)| known.is_none());
        let unknown_ids: Vec<BuildId> = unknown_ids.map(|(_, id)| id.clone()).collect();
        let mut resolved = Vec::new();
        if !unknown_ids.is_empty() {
            let cache = self.tools.cache.clone();
            let search = move || {
                let mut left = MAX_VERIFIED_BYTES;
                let unknown_ids = unknown_ids.into_iter().take(MAX_NEW_IDS);
                let found = unknown_ids.map(|id| {
                    let cached = cache.find_within(&id, &mut left);
                    (id, cached)
                });
                found.collect::<Vec<_>>()
            };
            // `Err` occurs only if the runtime shuts down; then no file is found.
            let found = tokio::task::spawn_blocking(search).await;
            let found = found.unwrap_or_default().into_iter();
            resolved.extend(found.map(|(id, cached)| self.resolve(id, cached)));
        }
        // The files opened here are used directly, since they may exceed the number of files that stay open.
        let unknown = known.iter_mut().filter(|known| known.is_none());
        for (unknown, resolved) in unknown.zip(resolved) {
            *unknown = Some(resolved);
        }
        let known = known.into_iter();
        let known: Vec<Lookup> = known
            .map(|known| known.unwrap_or(Lookup::Absent(FailureKind::Busy)))
            .collect();
        if asked == LookupAttempt::First {
            let hit = |known: &&Lookup| matches!(known, Lookup::Ready(_));
            let hits = known.iter().filter(hit).count();
            self.metrics.hits.increment(hits as u64);
            let misses = known.len() - hits;
            self.metrics.misses.increment(misses as u64);
        }
        let now = Instant::now();
        let partial: Vec<(&BuildId, Arc<SymbolFile>)> = {
            let mut state = self.state();
            let partial = |id| Some((id, state.partial(id, now)?));
            ids.iter().filter_map(partial).collect()
        };
        for (id, file) in partial {
            self.search_better(id.clone(), file);
        }
        known
    }

    /// Searches for a file with more information than the present file.
    fn search_better(self: &Arc<Self>, id: BuildId, partial: Arc<SymbolFile>) {
        let library = self.clone();
        tokio::spawn(async move {
            let (cache, of) = (library.tools.cache.clone(), id.clone());
            let note = move || cache.absence(&of, SymbolKind::Better);
            let note = tokio::task::spawn_blocking(note).await.ok().flatten();
            let note = library.valid_note(note);
            let outcome = library.fetch(&id, note, Some(partial)).await;
            let mut state = library.state();
            state.waiting = state.waiting.saturating_sub(1);
            if let Ok(file) = outcome {
                state.open(id, file, Instant::now() + DIRECTORY_INTERVAL);
            }
        });
    }

    /// Records the cached result for a build id, or starts a fetch without a cached result.
    fn resolve(self: &Arc<Self>, id: BuildId, cached: Option<Cached>) -> Lookup {
        let mut state = self.state();
        if let Some(known) = state.get(&id) {
            return known;
        }
        let (absence, unverified) = match cached {
            Some(Cached::File(file)) => {
                state.open(id, file.clone(), Instant::now());
                return Lookup::Ready(file);
            }
            Some(Cached::Unverified) => (None, true),
            Some(Cached::Absent(absence)) => (self.valid_note(Some(absence)), false),
            None => (None, false),
        };
        let remote_only = self.sources.iter().all(|source| source.is_remote());
        let is_final = |absence: &&Absence| remote_only || absence.kind == FailureKind::Interrupted;
        if let Some(absence) = absence.as_ref().filter(is_final) {
            state.absent(id, absence.kind, self.next_search(absence));
            return Lookup::Absent(absence.kind);
        }
        if state.waiting >= QUEUE_LENGTH {
            return Lookup::Absent(FailureKind::Busy);
        }
        state.waiting += 1;
        let (settled, pending) = watch::channel(());
        let known = Known::Pending(pending.clone());
        state.known.insert(id.clone(), known);
        drop(state);
        let library = self.clone();
        tokio::spawn(async move {
            let outcome = match unverified {
                true => library.load_verified(&id).await,
                false => None,
            };
            let outcome = match outcome {
                Some(file) => Ok(file),
                None => library.fetch(&id, absence, None).await,
            };
            let mut state = library.state();
            state.waiting = state.waiting.saturating_sub(1);
            match outcome {
                Ok(file) => state.open(id, file, Instant::now() + DIRECTORY_INTERVAL),
                Err(absence) => {
                    let until = library.next_search(&absence);
                    state.absent(id, absence.kind, until);
                }
            }
            drop(state);
            drop(settled);
        });
        Lookup::Pending(Pending(pending))
    }

    /// Returns the cached symbols if their file verifies.
    async fn load_verified(&self, id: &BuildId) -> Option<Arc<SymbolFile>> {
        let _turn = self.searching.acquire().await;
        let (cache, id) = (self.tools.cache.clone(), id.clone());
        let find = move || cache.find(&id);
        match tokio::task::spawn_blocking(find).await.ok().flatten() {
            Some(Cached::File(file)) => Some(file),
            _ => None,
        }
    }

    /// Drops a note that was written under lower worker limits than the present limits.
    fn valid_note(&self, note: Option<Absence>) -> Option<Absence> {
        let limits = self.tools.compiler.limits();
        note.filter(|note| !limits.exceed(&note.limits))
    }

    /// Returns the time of the next search: the expiry of the absence, or earlier if a search is cheap.
    fn next_search(&self, absence: &Absence) -> Instant {
        let left = absence.until.duration_since(SystemTime::now());
        let left = left.unwrap_or_default();
        let local = self.sources.iter().any(|source| !source.is_remote());
        let left = match local && absence.kind != FailureKind::Interrupted {
            true => left.min(DIRECTORY_INTERVAL),
            false => left,
        };
        Instant::now() + left
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}
