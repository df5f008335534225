//! The symbols of a build id: at once if they are here, else later.
//!
//! A question never waits for a source. What is neither in memory nor in the cache is fetched by a task of its own, once
//! however many ask, and to its end even if nobody waits for it any more: the next question will be for the same.
//!
//! Symbols without lines are used at once, and a better file is looked for in the other sources, then in directories every
//! minute, and on servers as often as for what is missing: debug information is often installed after somebody misses it.

mod single_flight;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use tracing::{debug, warn};

use super::build_id::BuildId;
use super::cache::{Absence, Cached, Wanted};
use super::failure::{Failure, Kind};
use super::file::SymbolFile;
use super::find::{Found, Source, Tools};
use crate::config::ComponentId;
use crate::telemetry::sampled_log::SampledLog;

/// How many are fetched at once.
const AT_ONCE: usize = 4;
/// How many are compiled at once: more would only take the processors, and so much memory more, from the pipelines.
const COMPILED_AT_ONCE: usize = 1;
/// How many may wait for that; more are not noted down, and asked for again with the next profile.
const WAITING: usize = 4096;
/// How many symbol files are kept open. They are mapped: what is not used is not in memory.
const OPEN: usize = 1024;
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
    turns: Semaphore,
    compiling: Semaphore,
    metrics: Metrics,
    log: SampledLog,
}

#[derive(Default)]
struct State {
    known: HashMap<BuildId, Known>,
    /// Counts up with every use.
    clock: u64,
    open: usize,
    absent: usize,
    waiting: usize,
}

enum Known {
    Open {
        file: Arc<SymbolFile>,
        used: u64,
        /// When a better one is looked for, if there may be one.
        better: Option<Instant>,
    },
    Absent {
        kind: Kind,
        until: Instant,
    },
    Pending(watch::Receiver<()>),
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
        Arc::new(Library {
            tools,
            sources,
            missing_for,
            state: Mutex::default(),
            turns: Semaphore::new(AT_ONCE),
            compiling: Semaphore::new(COMPILED_AT_ONCE),
            metrics: Metrics::new(id),
            log: SampledLog::default(),
        })
    }

    /// What is known of these, in their order. Looks into the cache for those that were not asked for before, which takes
    /// some microseconds each, and begins to fetch those that are not there.
    pub async fn look_up(self: &Arc<Self>, ids: &[BuildId]) -> Vec<Lookup> {
        let strangers: Vec<BuildId> = {
            let mut state = self.state();
            let unknown = |id: &&BuildId| state.get(id).is_none();
            ids.iter().filter(unknown).cloned().collect()
        };
        if !strangers.is_empty() {
            let cache = self.tools.cache.clone();
            let search = move || {
                let found = strangers.into_iter().map(|id| {
                    let cached = cache.find(&id);
                    (id, cached)
                });
                found.collect::<Vec<_>>()
            };
            // None when the runtime ends: then nothing is found.
            let found = tokio::task::spawn_blocking(search).await;
            for (id, cached) in found.unwrap_or_default() {
                self.meet(id, cached);
            }
        }
        let mut state = self.state();
        let known = ids.iter().map(|id| {
            let known = state.get(id).unwrap_or(Lookup::Absent(Kind::Busy));
            match known {
                Lookup::Ready(_) => self.metrics.hits.increment(1),
                _ => self.metrics.misses.increment(1),
            }
            known
        });
        let known = known.collect();
        let now = Instant::now();
        let poor: Vec<(&BuildId, Arc<SymbolFile>)> = ids
            .iter()
            .filter_map(|id| Some((id, state.poor(id, now)?)))
            .collect();
        drop(state);
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
            let outcome = library.fetch(&id, note, Some(poor)).await;
            let mut state = library.state();
            state.waiting = state.waiting.saturating_sub(1);
            if let Ok(file) = outcome {
                state.open(id, file, Instant::now() + LOOK_AGAIN);
            }
        });
    }

    /// Notes what the cache has for a build id; what it does not have is fetched.
    fn meet(self: &Arc<Self>, id: BuildId, cached: Option<Cached>) {
        let mut state = self.state();
        if state.get(&id).is_some() {
            return;
        }
        let absence = match cached {
            Some(Cached::File(file)) => return state.open(id, file, Instant::now()),
            Some(Cached::Absent(absence)) => Some(absence),
            None => None,
        };
        let remote_only = self.sources.iter().all(|source| source.is_remote());
        if let Some(absence) = absence.as_ref().filter(|_| remote_only) {
            return state.absent(id, absence.kind, self.look_again(absence));
        }
        if state.waiting >= WAITING {
            return;
        }
        state.waiting += 1;
        let (settled, pending) = watch::channel(());
        state.known.insert(id.clone(), Known::Pending(pending));
        drop(state);
        let library = self.clone();
        tokio::spawn(async move {
            let outcome = library.fetch(&id, absence, None).await;
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
    }

    /// When a build id is asked for again: as the absence says, or earlier if that is cheap.
    fn look_again(&self, absence: &Absence) -> Instant {
        let left = absence.until.duration_since(SystemTime::now());
        let left = left.unwrap_or_default();
        let local = self.sources.iter().any(|source| !source.is_remote());
        let left = match local {
            true => left.min(LOOK_AGAIN),
            false => left,
        };
        Instant::now() + left
    }

    /// Fetches and compiles. With an `absence` that still counts, servers are not asked, and files that were of no use
    /// before are not tried. What has no lines, as what was there before, is only taken if there is nothing better.
    async fn fetch(
        &self,
        id: &BuildId,
        mut absence: Option<Absence>,
        mut poor: Option<Arc<SymbolFile>>,
    ) -> Result<Arc<SymbolFile>, Absence> {
        // Another library of this process with the same cache may be at it.
        let flight = single_flight::enter(self.tools.cache.directory(), id).await;
        if flight.has_waited() {
            let (cache, of) = (self.tools.cache.clone(), id.clone());
            let look = move || cache.find(&of);
            match tokio::task::spawn_blocking(look).await.ok().flatten() {
                Some(Cached::File(file)) if file.has_lines() || poor.is_none() => {
                    return Ok(file);
                }
                Some(Cached::Absent(other)) if poor.is_none() => absence = Some(other),
                _ => {}
            }
        }
        let _turn = self.turns.acquire().await;
        let mut failures = Vec::new();
        let mut rejected = match &absence {
            Some(absence) => absence.rejected.clone(),
            None => Vec::new(),
        };
        for source in &self.sources {
            if absence.is_some() && source.is_remote() {
                continue;
            }
            let found = match source.find(id, &self.tools).await {
                Ok(found) => found,
                Err(failure) => {
                    self.metrics.found(source.name(), failure.kind().name());
                    failures.push(failure);
                    continue;
                }
            };
            let fingerprint = found.fingerprint();
            if fingerprint.is_some_and(|print| rejected.contains(&print)) {
                continue;
            }
            match self.compile(id, found, poor.is_some()).await {
                Ok(file) => {
                    self.metrics.found(source.name(), "found");
                    let file = Arc::new(file);
                    if file.has_lines() {
                        return Ok(file);
                    }
                    if rejected.len() < REJECTED {
                        rejected.extend(fingerprint);
                    }
                    if poor.is_none() {
                        let mut state = self.state();
                        state.open(id.clone(), file.clone(), Instant::now() + LOOK_AGAIN);
                        poor = Some(file);
                    }
                }
                Err(failure) => {
                    self.metrics.found(source.name(), failure.kind().name());
                    failures.push(failure);
                    if rejected.len() < REJECTED {
                        rejected.extend(fingerprint);
                    }
                }
            }
        }
        let wanted = match poor {
            Some(_) => Wanted::Better,
            None => Wanted::Any,
        };
        let absence = self.give_up(id, wanted, absence, &failures, rejected).await;
        poor.ok_or(absence)
    }

    /// Compiles the files, and keeps what comes of it, unless it `must_have_lines` and has none. A binary whose debug file
    /// is of no use is compiled without.
    async fn compile(
        &self,
        id: &BuildId,
        mut found: Found,
        must_have_lines: bool,
    ) -> Result<SymbolFile, Failure> {
        let turn = self.compiling.acquire().await;
        let began = Instant::now();
        let local = |error: std::io::Error| Failure::Local(error.to_string());
        let output = self.tools.cache.scratch().map_err(local)?;
        output.create().map_err(local)?;
        let compiler = &self.tools.compiler;
        let mut compiled = compiler
            .compile(&found.binary, &found.supplementary, output.path())
            .await;
        if let Err(failure) = &compiled
            && failure.is_of_files()
            && found.leave_alone()
        {
            debug!(build_id = %id, reason = %failure, "A binary is compiled without its debug file");
            File::options()
                .write(true)
                .truncate(true)
                .open(output.path())
                .map_err(local)?;
            compiled = compiler.compile(&found.binary, &[], output.path()).await;
        }
        let took = began.elapsed().as_secs_f64();
        self.metrics.compile_seconds.record(took);
        if let Err(failure) = &compiled {
            let kind = failure.kind().name();
            counter!("tributary_symbols_worker_failures", "processor" => self.metrics.id.clone(), "reason" => kind)
                .increment(1);
        }
        compiled?;
        drop((turn, found));
        let (cache, id) = (self.tools.cache.clone(), id.clone());
        let keep = move || {
            let compiled = SymbolFile::open(output.path());
            let compiled = compiled.map_err(|error| Failure::Unusable(error.to_string()))?;
            if compiled.build_id() != Some(&id) {
                let other = compiled.build_id().map(BuildId::to_string);
                let other = other.unwrap_or_else(|| "not there".to_owned());
                return Err(Failure::WrongBuildId(other));
            }
            let file = match must_have_lines && !compiled.has_lines() {
                true => compiled,
                false => cache.store(&id, output).map_err(local)?,
            };
            Ok((file, cache.trim().map_err(local)?))
        };
        let kept = tokio::task::spawn_blocking(keep).await;
        let (file, bytes) =
            kept.unwrap_or_else(|_| Err(Failure::Local("the collector ends".to_owned())))?;
        self.metrics.cache_bytes.set(bytes as f64);
        self.keep_in_use();
        Ok(file)
    }

    /// Why there is nothing, from all that went wrong. It counts for as long as none of that may be over.
    async fn give_up(
        &self,
        id: &BuildId,
        wanted: Wanted,
        before: Option<Absence>,
        failures: &[Failure],
        rejected: Vec<u64>,
    ) -> Absence {
        let counts_for = |failure: &Failure| failure.kind().counts_for(self.missing_for);
        let others = failures
            .iter()
            .filter(|failure| **failure != Failure::NotFound);
        let failure = others.min_by_key(|failure| counts_for(failure));
        let failure = failure.unwrap_or(&Failure::NotFound);
        let absence = match before {
            // Servers were not asked, so what they said counts as long as it did; of files, only what was tried is new.
            Some(before) => Absence { rejected, ..before },
            None => {
                let counts = failures.iter().map(counts_for).min();
                let counts = counts.unwrap_or(self.missing_for);
                let chance = 1.0 - JITTER + 2.0 * JITTER * fastrand::f64();
                Absence {
                    kind: failure.kind(),
                    until: SystemTime::now() + counts.mul_f64(chance),
                    rejected,
                }
            }
        };
        let what = match wanted {
            Wanted::Any => "There are no symbols",
            Wanted::Better => "There are symbols without lines, and no better ones",
        };
        // That nobody has it is no news.
        let news = match failure {
            Failure::NotFound => None,
            _ => self.log.admit(),
        };
        match news {
            None => debug!(build_id = %id, reason = %failure, "{what}"),
            Some(suppressed) => warn!(
                otelcol.component.id = %self.metrics.id,
                otelcol.component.kind = "processor",
                build_id = %id,
                reason = %failure,
                suppressed,
                "{what}"
            ),
        }
        let (cache, id, noted) = (self.tools.cache.clone(), id.clone(), absence.clone());
        // Without the note it is asked for again after a restart, no more.
        let note = move || cache.store_absence(&id, wanted, &noted);
        let _ = tokio::task::spawn_blocking(note).await;
        absence
    }

    /// What is open is in use, whoever has not opened it again: it must not look forgotten in the cache.
    fn keep_in_use(&self) {
        let open: Vec<BuildId> = {
            let state = self.state();
            let open = state.known.iter();
            open.filter(|(_, known)| matches!(known, Known::Open { .. }))
                .map(|(id, _)| id.clone())
                .collect()
        };
        let cache = self.tools.cache.clone();
        tokio::task::spawn_blocking(move || open.iter().for_each(|id| cache.touch(id)));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn get(&mut self, id: &BuildId) -> Option<Lookup> {
        self.clock += 1;
        match self.known.get_mut(id)? {
            Known::Open { file, used, .. } => {
                *used = self.clock;
                Some(Lookup::Ready(file.clone()))
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
    fn poor(&mut self, id: &BuildId, now: Instant) -> Option<Arc<SymbolFile>> {
        let Some(Known::Open { file, better, .. }) = self.known.get_mut(id) else {
            return None;
        };
        better.filter(|time| *time <= now && self.waiting < WAITING)?;
        *better = Some(now + LOOK_AGAIN);
        self.waiting += 1;
        Some(file.clone())
    }

    /// Opens symbols in the place of what was known. Better ones are looked for from `better` on, if there may be some.
    fn open(&mut self, id: BuildId, file: Arc<SymbolFile>, better: Instant) {
        if let Some(Known::Open { .. }) = self.known.remove(&id) {
            self.open -= 1;
        }
        if self.open >= OPEN {
            let open = self.known.iter().filter_map(|(id, known)| match known {
                Known::Open { used, .. } => Some((*used, id)),
                _ => None,
            });
            if let Some(oldest) = open.min().map(|(_, id)| id.clone()) {
                self.known.remove(&oldest);
                self.open -= 1;
            }
        }
        self.clock += 1;
        let used = self.clock;
        let better = (!file.has_lines()).then_some(better);
        self.known.insert(id, Known::Open { file, used, better });
        self.open += 1;
    }

    fn absent(&mut self, id: BuildId, kind: Kind, until: Instant) {
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

struct Metrics {
    id: String,
    hits: Counter,
    misses: Counter,
    cache_bytes: Gauge,
    compile_seconds: Histogram,
}

impl Metrics {
    fn new(id: &ComponentId) -> Self {
        let id = id.to_string();
        let label = [("processor", id.clone())];
        let lookups = |result: &'static str| counter!("tributary_symbols_lookups", "processor" => id.clone(), "result" => result);
        Metrics {
            hits: lookups("hit"),
            misses: lookups("miss"),
            cache_bytes: gauge!("tributary_symbols_cache_bytes", &label),
            compile_seconds: histogram!("tributary_symbols_compile_seconds", &label),
            id,
        }
    }

    fn found(&self, source: &'static str, outcome: &'static str) {
        counter!(
            "tributary_symbols_fetches",
            "processor" => self.id.clone(),
            "source" => source,
            "outcome" => outcome
        )
        .increment(1);
    }
}
