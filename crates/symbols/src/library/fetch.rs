//! Fetches the symbols of a build id: queries the sources, compiles their files, and stores the result.

use std::fs::File;
use std::sync::Arc;
use std::time::SystemTime;

use tokio::time::Instant;
use tracing::{debug, warn};

use super::{DIRECTORY_INTERVAL, JITTER, Library, MAX_REJECTED, single_flight};
use crate::build_id::BuildId;
use crate::cache::{Absence, Cached, SymbolKind, open_verified};
use crate::failure::{Failure, FailureKind};
use crate::file::SymbolFile;
use crate::find::{BinaryFiles, BinarySource, blocking};

pub(super) struct Compiled {
    pub(super) file: SymbolFile,
    /// Failure of the companion files, if only the binary was compiled.
    left_out: Option<Failure>,
}

impl Library {
    /// Fetches and compiles. While an `absence` is valid, servers are not queried, and files known as useless are not
    /// tried. A file without lines is stored only if no better file is found.
    pub(super) async fn fetch(
        &self,
        id: &BuildId,
        mut absence: Option<Absence>,
        mut partial: Option<Arc<SymbolFile>>,
    ) -> Result<Arc<SymbolFile>, Absence> {
        // Another library of this process with the same cache may be fetching the build id.
        let flight = single_flight::enter(self.tools.cache.directory(), id).await;
        if flight.has_waited() {
            let (cache, of) = (self.tools.cache.clone(), id.clone());
            let look = move || cache.find(&of);
            match tokio::task::spawn_blocking(look).await.ok().flatten() {
                Some(Cached::File(file)) if file.has_lines() || partial.is_none() => {
                    return Ok(file);
                }
                Some(Cached::Absent(other)) if partial.is_none() => {
                    absence = self.valid_note(Some(other));
                }
                _ => {}
            }
        }
        if let Some(absence) = &absence
            && absence.kind == FailureKind::Interrupted
        {
            return partial.ok_or_else(|| absence.clone());
        }
        let mut turn = None;
        let mut failures = Vec::new();
        let mut rejected = match &absence {
            Some(absence) => absence.rejected.clone(),
            None => Vec::new(),
        };
        for source in &self.sources {
            if source.is_remote() {
                if absence.is_some() {
                    continue;
                }
                if turn.is_none() {
                    turn = self.fetching.acquire().await.ok();
                }
            }
            let (found, fingerprint) = match self.find(&**source, id).await {
                Ok(found) => found,
                Err(failure) => {
                    self.metrics
                        .count_fetch(source.name(), failure.kind().name());
                    failures.push(failure);
                    continue;
                }
            };
            if fingerprint.is_some_and(|print| rejected.contains(&print)) {
                continue;
            }
            let mut reject = || {
                if rejected.len() < MAX_REJECTED {
                    rejected.extend(fingerprint);
                }
            };
            match self.compile(id, found, partial.is_some()).await {
                Ok(Compiled { file, left_out }) => {
                    self.metrics.count_fetch(source.name(), "found");
                    let file = Arc::new(file);
                    if file.has_lines() {
                        return Ok(file);
                    }
                    match left_out {
                        Some(failure) if !failure.is_caused_by_files() => failures.push(failure),
                        _ => reject(),
                    }
                    if partial.is_none() {
                        let mut state = self.state();
                        state.open(
                            id.clone(),
                            file.clone(),
                            Instant::now() + DIRECTORY_INTERVAL,
                        );
                        partial = Some(file);
                    }
                }
                Err(failure) => {
                    self.metrics
                        .count_fetch(source.name(), failure.kind().name());
                    if failure.is_caused_by_files() {
                        reject();
                    }
                    failures.push(failure);
                }
            }
        }
        drop(turn);
        let wanted = match partial {
            Some(_) => SymbolKind::Better,
            None => SymbolKind::Any,
        };
        let absence = self
            .combine_failures(id, wanted, absence, &failures, rejected)
            .await;
        partial.ok_or(absence)
    }

    /// Queries a source. Returns its files with their fingerprint.
    async fn find(
        &self,
        source: &dyn BinarySource,
        id: &BuildId,
    ) -> Result<(BinaryFiles, Option<u64>), Failure> {
        let _turn = match source.is_remote() {
            true => None,
            false => self.searching.acquire().await.ok(),
        };
        let found = source.find(id, &self.tools).await?;
        blocking(move || {
            let fingerprint = found.fingerprint();
            Ok((found, fingerprint))
        })
        .await
    }

    /// Compiles the files and stores the result, unless the result `must_have_lines` and has none. If the debug
    /// file is useless, compiles the binary alone.
    pub(super) async fn compile(
        &self,
        id: &BuildId,
        mut found: BinaryFiles,
        must_have_lines: bool,
    ) -> Result<Compiled, Failure> {
        let turn = self.tools.compiling.acquire().await;
        let began = Instant::now();
        let local = |error: std::io::Error| Failure::Local(error.to_string());
        let cache = self.tools.cache.clone();
        let begin = move || {
            let output = cache.scratch().map_err(local)?;
            output.create().map_err(local)?;
            Ok(output)
        };
        let output = blocking(begin).await?;
        let compiler = &self.tools.compiler;
        let mut compiled = compiler
            .compile(&found.binary, &found.supplementary, output.path())
            .await;
        let mut left_out = None;
        if let Err(failure) = &compiled
            && failure.may_be_caused_by_companions()
            && found.drop_companions()
        {
            debug!(build_id = %id, reason = %failure, "Compiling a binary without its debug file");
            left_out = Some(failure.clone());
            let path = output.path().to_owned();
            let begin_again = move || {
                let mut options = File::options();
                let file = options.write(true).truncate(true).open(path);
                file.map_err(local)
            };
            drop(blocking(begin_again).await?);
            compiled = compiler.compile(&found.binary, &[], output.path()).await;
        }
        let took = began.elapsed().as_secs_f64();
        self.metrics.compile_seconds.record(took);
        if let Err(failure) = &compiled {
            self.metrics.count_compile_failure(failure.kind());
        }
        let (cache, id) = (self.tools.cache.clone(), id.clone());
        let in_use = self.state().in_use();
        let keep = move || {
            // Dropping `found` deletes downloads.
            drop(found);
            compiled?;
            let compiled = open_verified(output.path());
            let compiled = compiled.map_err(|error| Failure::Unusable(error.to_string()))?;
            if compiled.build_id() != Some(&id) {
                let other = compiled.build_id().map(BuildId::to_string);
                let other = other.unwrap_or_else(|| "missing".to_owned());
                return Err(Failure::WrongBuildId(other));
            }
            // Recording the use of open files keeps the cache from deleting them as unused.
            for (id, used) in in_use {
                cache.touch(&id, used);
            }
            let file = match must_have_lines && !compiled.has_lines() {
                true => compiled,
                false => cache.store(&id, output).map_err(local)?,
            };
            Ok((file, cache.trim().map_err(local)?))
        };
        let kept = blocking(keep).await;
        drop(turn);
        let (file, trimmed) = kept?;
        self.metrics.cache_bytes.set(trimmed.bytes as f64);
        let mut state = self.state();
        // The disk space of a deleted file is freed when no process has the file open.
        trimmed.deleted.iter().for_each(|id| state.close(id));
        Ok(Compiled { file, left_out })
    }

    /// Combines all failures into one. The combined failure is valid until the first of its causes may have ended.
    async fn combine_failures(
        &self,
        id: &BuildId,
        wanted: SymbolKind,
        before: Option<Absence>,
        failures: &[Failure],
        rejected: Vec<u64>,
    ) -> Absence {
        let retry_delay = |failure: &Failure| failure.kind().retry_delay(self.missing_for);
        let others = failures
            .iter()
            .filter(|failure| **failure != Failure::NotFound);
        let failure = others.min_by_key(|failure| retry_delay(failure));
        let failure = failure.unwrap_or(&Failure::NotFound);
        let interrupted = failure.kind() == FailureKind::Interrupted;
        let absence = match &before {
            // Servers were not queried, so their previous result keeps its expiry; only the files tried now are new.
            Some(before) if !interrupted => Absence {
                rejected,
                ..before.clone()
            },
            _ => {
                let counts = failures.iter().map(retry_delay).min();
                let counts = counts.unwrap_or(self.missing_for);
                let chance = 1.0 - JITTER + 2.0 * JITTER * fastrand::f64();
                Absence {
                    kind: failure.kind(),
                    until: SystemTime::now() + counts.mul_f64(chance),
                    limits: self.tools.compiler.limits(),
                    rejected,
                }
            }
        };
        let what = match wanted {
            SymbolKind::Any => "Found no symbols for a binary",
            SymbolKind::Better => "Found only symbols without line numbers for a binary",
        };
        // A missing build id is expected and logged at debug level only.
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
        // Directories are searched again after a minute in any case, so their failure needs no note. With notes, a
        // sender with made-up build ids could cause any number of notes.
        let remote = self.sources.iter().any(|source| source.is_remote());
        let needs_note =
            remote || absence.kind != FailureKind::NotFound || !absence.rejected.is_empty();
        if needs_note && before.as_ref() != Some(&absence) {
            let (cache, id, noted) = (self.tools.cache.clone(), id.clone(), absence.clone());
            // Without the note, the build id is only queried again after a restart.
            let note = move || cache.store_absence(&id, wanted, &noted);
            let _ = tokio::task::spawn_blocking(note).await;
        }
        absence
    }
}
