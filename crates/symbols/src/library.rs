//! The symbols of a build id: at once if they are here, else later.
//!
//! A question never waits for a source. What is neither in memory nor in the cache is fetched by a task of its own, once
//! however many ask, and to its end even if nobody waits for it any more: the next question will be for the same.
//!
//! Symbols without lines are used at once, and a better file is looked for in the other sources, then in directories every
//! minute, and on servers as often as for what is missing: debug information is often installed after somebody misses it.

mod fetch;
mod metrics;
mod single_flight;
mod state;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use self::metrics::Metrics;
use self::state::{Known, State};
use super::build_id::BuildId;
use super::cache::{Absence, Cached, Wanted};
use super::failure::Kind;
use super::file::SymbolFile;
use super::find::{Source, Tools};
use tributary_config::ComponentId;
use tributary_net::sampled_log::SampledLog;

/// How many are fetched from servers at once, their compilation included: downloads take room on the disk.
const FETCHED_AT_ONCE: usize = 4;
/// How many are looked for on this machine at once. They never wait for a server, which may be slow, or be asked for
/// what somebody made up.
const SEARCHED_AT_ONCE: usize = 16;
/// How many may wait for that; more are not noted down, and asked for again with the next profile.
const WAITING: usize = 4096;
/// How many that were never asked for one question may bring; the others come with the next profile. An eighth of the
/// queue: one sender who makes them up does not fill it.
const NEW_AT_ONCE: usize = 512;
/// How many symbol files are kept open. They are mapped: what is not used is not in memory.
const OPEN: usize = 1024;
/// So many bytes of symbol files that were not read before are compared with their checksums while a question waits,
/// some tens of milliseconds; others are as those that have to be fetched.
const VERIFIED_AT_ONCE: u64 = 64 << 20;
/// How many build ids are remembered that have no symbols.
const ABSENT: usize = 1 << 16;
/// How often directories are looked at again for what was missing: that is cheap, and somebody may put it there.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// How much of the time for which something is missing is chance, so that not all is asked for again at once.
const JITTER: f64 = 0.25;
/// How many files that were of no use are remembered for a build id.
const REJECTED: usize = 8;

/// Symbols by build id, from sources and through a cache.
pub struct Library {
    tools: Tools,
    sources: Vec<Box<dyn Source>>,
    /// For how long nobody asks again for what no source has.
    missing_for: Duration,
    state: Mutex<State>,
    fetching: Semaphore,
    searching: Semaphore,
    metrics: Metrics,
    log: SampledLog,
}

/// What is known of a build id at the moment.
pub enum Lookup {
    /// Its symbols.
    Ready(Arc<SymbolFile>),
    /// There are none, or not for now.
    Absent(Kind),
    /// It is being fetched.
    Pending(Pending),
}

/// Whether a question is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// It is.
    First,
    /// It was before, and somebody has waited since.
    Again,
}

/// Something that is being fetched.
#[derive(Clone)]
pub struct Pending(watch::Receiver<()>);

impl Pending {
    /// Waits until it is known what came of it.
    pub async fn settled(mut self) {
        // The sender goes when it is.
        while self.0.changed().await.is_ok() {}
    }
}

impl Library {
    /// A library for the component `id`, with sources in the order in which they are asked.
    pub fn new(
        id: &ComponentId,
        tools: Tools,
        sources: Vec<Box<dyn Source>>,
        missing_for: Duration,
    ) -> Arc<Self> {
        let metrics = Metrics::new(id);
        metrics.cache_bytes.set(tools.cache.bytes() as f64);
        Arc::new(Library {
            state: Mutex::new(State::new(tools.cache.max_bytes())),
            tools,
            sources,
            missing_for,
            fetching: Semaphore::new(FETCHED_AT_ONCE),
            searching: Semaphore::new(SEARCHED_AT_ONCE),
            metrics,
            log: SampledLog::default(),
        })
    }

    /// What is known of these, in their order. Looks into the cache for those that were not asked for before, which
    /// takes some microseconds each unless they have to be verified, and begins to fetch those that are not there.
    pub async fn look_up(self: &Arc<Self>, ids: &[BuildId], asked: Asked) -> Vec<Lookup> {
        let mut known: Vec<Option<Lookup>> = {
            let mut state = self.state();
            ids.iter().map(|id| state.get(id)).collect()
        };
        let strangers = known.iter().zip(ids).filter(|(known, _)| known.is_none());
        let strangers: Vec<BuildId> = strangers.map(|(_, id)| id.clone()).collect();
        let mut met = Vec::new();
        if !strangers.is_empty() {
            let cache = self.tools.cache.clone();
            let search = move || {
                let mut left = VERIFIED_AT_ONCE;
                let strangers = strangers.into_iter().take(NEW_AT_ONCE);
                let found = strangers.map(|id| {
                    let cached = cache.find_within(&id, &mut left);
                    (id, cached)
                });
                found.collect::<Vec<_>>()
            };
            // None when the runtime ends: then nothing is found.
            let found = tokio::task::spawn_blocking(search).await;
            let found = found.unwrap_or_default().into_iter();
            met.extend(found.map(|(id, cached)| self.meet(id, cached)));
        }
        // What was met is used from here: there may be more than are kept open.
        let unknown = known.iter_mut().filter(|known| known.is_none());
        for (unknown, met) in unknown.zip(met) {
            *unknown = Some(met);
        }
        let known = known.into_iter();
        let known: Vec<Lookup> = known
            .map(|known| known.unwrap_or(Lookup::Absent(Kind::Busy)))
            .collect();
        if asked == Asked::First {
            let hit = |known: &&Lookup| matches!(known, Lookup::Ready(_));
            let hits = known.iter().filter(hit).count();
            self.metrics.hits.increment(hits as u64);
            let misses = known.len() - hits;
            self.metrics.misses.increment(misses as u64);
        }
        let now = Instant::now();
        let poor: Vec<(&BuildId, Arc<SymbolFile>)> = {
            let mut state = self.state();
            let poor = |id| Some((id, state.poor(id, now)?));
            ids.iter().filter_map(poor).collect()
        };
        for (id, file) in poor {
            self.improve(id.clone(), file);
        }
        known
    }

    /// Looks for a file that says more than this one.
    fn improve(self: &Arc<Self>, id: BuildId, poor: Arc<SymbolFile>) {
        let library = self.clone();
        tokio::spawn(async move {
            let (cache, of) = (library.tools.cache.clone(), id.clone());
            let note = move || cache.absence(&of, Wanted::Better);
            let note = tokio::task::spawn_blocking(note).await.ok().flatten();
            let note = library.still_counts(note);
            let outcome = library.fetch(&id, note, Some(poor)).await;
            let mut state = library.state();
            state.waiting = state.waiting.saturating_sub(1);
            if let Ok(file) = outcome {
                state.open(id, file, Instant::now() + LOOK_AGAIN);
            }
        });
    }

    /// Notes what the cache has for a build id; what it does not have is fetched.
    fn meet(self: &Arc<Self>, id: BuildId, cached: Option<Cached>) -> Lookup {
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
            Some(Cached::Absent(absence)) => (self.still_counts(Some(absence)), false),
            None => (None, false),
        };
        let remote_only = self.sources.iter().all(|source| source.is_remote());
        let nobody_asks = |absence: &&Absence| remote_only || absence.kind == Kind::Interrupted;
        if let Some(absence) = absence.as_ref().filter(nobody_asks) {
            state.absent(id, absence.kind, self.look_again(absence));
            return Lookup::Absent(absence.kind);
        }
        if state.waiting >= WAITING {
            return Lookup::Absent(Kind::Busy);
        }
        state.waiting += 1;
        let (settled, pending) = watch::channel(());
        let known = Known::Pending(pending.clone());
        state.known.insert(id.clone(), known);
        drop(state);
        let library = self.clone();
        tokio::spawn(async move {
            let outcome = match unverified {
                true => library.verified(&id).await,
                false => None,
            };
            let outcome = match outcome {
                Some(file) => Ok(file),
                None => library.fetch(&id, absence, None).await,
            };
            let mut state = library.state();
            state.waiting = state.waiting.saturating_sub(1);
            match outcome {
                Ok(file) => state.open(id, file, Instant::now() + LOOK_AGAIN),
                Err(absence) => {
                    let until = library.look_again(&absence);
                    state.absent(id, absence.kind, until);
                }
            }
            drop(state);
            drop(settled);
        });
        Lookup::Pending(Pending(pending))
    }

    /// The symbols that the cache has, if they are good.
    async fn verified(&self, id: &BuildId) -> Option<Arc<SymbolFile>> {
        let _turn = self.searching.acquire().await;
        let (cache, id) = (self.tools.cache.clone(), id.clone());
        let find = move || cache.find(&id);
        match tokio::task::spawn_blocking(find).await.ok().flatten() {
            Some(Cached::File(file)) => Some(file),
            _ => None,
        }
    }

    /// A note, unless a worker may use more now than it could when that was written.
    fn still_counts(&self, note: Option<Absence>) -> Option<Absence> {
        let limits = self.tools.compiler.limits();
        note.filter(|note| !limits.allow_more_than(&note.limits))
    }

    /// When a build id is asked for again: as the absence says, or earlier if that is cheap.
    fn look_again(&self, absence: &Absence) -> Instant {
        let left = absence.until.duration_since(SystemTime::now());
        let left = left.unwrap_or_default();
        let local = self.sources.iter().any(|source| !source.is_remote());
        let left = match local && absence.kind != Kind::Interrupted {
            true => left.min(LOOK_AGAIN),
            false => left,
        };
        Instant::now() + left
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
