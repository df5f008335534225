//! `profile_store`: keeps the profiles of the last hours in a directory, for queries.
//!
//! The store is `tributary_profile_store`. This module appends requests to it, does its upkeep once a second, and makes
//! it known to queries through [`ProfileStores`](crate::profile_stores::ProfileStores). A reload hands the open store on:
//! the exporters of both configurations append to it until the old one has ended.

mod config;
mod metrics;
#[cfg(test)]
mod tests;

pub use self::config::Config;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use self::metrics::{METRICS, StoreMetrics};
use crate::component::{
    BuildContext, BuildError, Entry, ExporterConfig, Origin, Stability, Terminal,
};
use crate::metric::shared;
use crate::pipeline::batch::{Code, Progress};
use crate::pipeline::episode::Episode;
use crate::pipeline::output_memory::OutputMemory;
use crate::pipeline::{Component, Undelivered};
use crate::profile_stores::StoreLease;
use crate::queue;
use crate::queue::{Encoded, Fault, Outcome, SendError, Settings};
use crate::telemetry::disk;
use crate::telemetry::disk::Watched;
use futures_util::future::BoxFuture;
use tributary_config::ComponentId;
use tributary_memory::{Budget, Permit};
use tributary_otlp::Signal;
use tributary_profile_store::{ProfileStoreOptions, StoreAppendError};
use tributary_profiles::decoded_bytes;
use tributary_storage::own_files;

/// Entry of the component registry.
pub const ENTRY: Entry<dyn ExporterConfig> = crate::entry!(
    dyn ExporterConfig,
    Config,
    "profile_store",
    aliases: &[],
    "Stores recent profiles for flame graphs and other queries.",
    &[(Signal::Profiles, Stability::Alpha)],
    collector: Origin::Own,
    metrics: &[shared::EXPORTER, shared::STORED_QUEUE, shared::DISK, METRICS]
);

/// Time between two rounds of upkeep. A window is flushed 10 seconds after its first profile.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(1);
/// Mode of a new directory: profiles tell much about a program.
const DIRECTORY_MODE: u32 = 0o700;

impl ExporterConfig for Config {
    fn build(&self, cx: &BuildContext, signals: &[Signal]) -> Result<Terminal, BuildError> {
        let failed = |error: &dyn std::fmt::Display| BuildError(error.to_string());
        let directory = &self.directory;
        own_files::create_directories(directory, DIRECTORY_MODE)
            .and_then(|()| own_files::check(directory))
            .map_err(|error| failed(&format!("directory: {}: {error}", directory.display())))?;
        let options = self.options();
        let opened = cx.profile_stores.open(&cx.id, &options);
        let (lease, recovered) = opened.map_err(|error| failed(&error))?;
        if let Some(recovered) = recovered {
            if recovered.requests > 0 {
                info!(
                    otelcol.component.id = %cx.id,
                    otelcol.component.kind = "exporter",
                    requests = recovered.requests,
                    "Recovered profiles from the journal of the profile store."
                );
            }
            if recovered.damaged > 0 {
                warn!(
                    otelcol.component.id = %cx.id,
                    otelcol.component.kind = "exporter",
                    directory = %directory.display(),
                    files = recovered.damaged,
                    "Files of the profile store are damaged; renamed them to `*.damaged` and ignoring them."
                );
            }
        }
        let store = Arc::new(Store {
            metrics: StoreMetrics::new(&cx.id, lease.store().stats()),
            id: cx.id.clone(),
            lease,
            options,
            memory: Mutex::new(cx.budget.for_output()),
            budget: cx.budget.clone(),
            trouble: Episode::default(),
        });
        let queue = self.sending_queue.0.clone();
        let settings = Settings {
            // A sender without a queue in between still has the data and can retry.
            retry: self.retry_on_failure.0.clone().filter(|_| queue.is_some()),
            queue,
            timeout: Duration::ZERO,
        };
        let sender: Arc<dyn queue::Sender> = Arc::new(Exporter(store.clone()));
        let Terminal { inputs, component } = queue::terminal(cx, signals, &settings, &sender)?;
        let component = Box::new(Keeper {
            queues: component,
            store,
            stop: CancellationToken::new(),
            upkeep: None,
            _watched: disk::watch(directory.clone()),
        });
        Ok(Terminal { inputs, component })
    }
}

/// An open store as a part of the pipeline.
struct Store {
    id: ComponentId,
    lease: StoreLease,
    options: ProfileStoreOptions,
    budget: Arc<Budget>,
    /// Memory of the store, in the budget of the process.
    memory: Mutex<Permit>,
    metrics: StoreMetrics,
    trouble: Episode,
}

impl Store {
    /// Lets queries find the store, and applies the settings. Only now, because a configuration that is rejected in the
    /// end must not change the running one. By now the budget has its limit.
    fn take_over(&self) {
        let most = (self.budget.limit() / 2) as u64;
        let mut options = self.options.clone();
        options.max_memory = options.max_memory.min(most.max(LEAST_MEMORY));
        self.lease.publish();
        if let Err(error) = self.lease.store().reconfigure(options) {
            error!(
                otelcol.component.id = %self.id,
                otelcol.component.kind = "exporter",
                %error,
                "Cannot apply the changed settings of the profile store; still using the previous ones."
            );
        }
    }

    /// Appends requests. May block on the disk. `progress` has the requests that an earlier attempt appended.
    fn append(&self, requests: &[Bytes], progress: &Progress) -> Result<Outcome, SendError> {
        let mut outcome = Outcome::default();
        for (at, request) in requests.iter().enumerate() {
            if progress.has(at) {
                continue;
            }
            let memory = OutputMemory::new(&self.budget);
            let needed = memory.take(decoded_bytes(request));
            needed.map_err(|_| SendError::no_memory(&memory))?;
            let appended = self.lease.store().append(request.clone(), now());
            let appended = appended.map_err(send_error)?;
            progress.add(at);
            if appended.too_old > 0 {
                outcome.rejected_items += usize::try_from(appended.too_old).unwrap_or(usize::MAX);
                outcome.message =
                    "the profiles are older than the `retention` of the store".to_owned();
            }
            drop(memory);
            // Until the next round of upkeep measures the store.
            let mut memory = self.memory.lock();
            let _ = memory.grow(request.len());
        }
        Ok(outcome)
    }

    /// Does the work that is due, or at the end flushes the last profiles. May block on the disk.
    fn keep_up(&self, is_last: bool) {
        let store = self.lease.store();
        let done = match is_last {
            true => store.flush(now()),
            false => store.maintain(now()),
        };
        let stats = store.stats();
        {
            let memory = stats.memory.saturating_add(stats.query_memory);
            let memory = usize::try_from(memory).unwrap_or(usize::MAX);
            let mut permit = self.memory.lock();
            permit.shrink_to(memory);
            // The memory is in use already, so it counts as far as the budget has room.
            let lacking = memory - permit.bytes();
            let _ = permit.grow(lacking);
        }
        if self.lease.is_published() {
            self.metrics.show(&stats);
        }
        match done {
            Err(error) if self.trouble.occurs(0) => error!(
                otelcol.component.id = %self.id,
                otelcol.component.kind = "exporter",
                directory = %store.options().directory.display(),
                %error,
                "Cannot write profiles to blocks; they stay in the journal and are retried every second. Check the \
                 disk."
            ),
            Err(_) => {}
            Ok(()) => {
                if let Some(ended) = self.trouble.over() {
                    info!(
                        otelcol.component.id = %self.id,
                        otelcol.component.kind = "exporter",
                        outage = ?ended.lasted,
                        failed_attempts = ended.times,
                        "Profiles are written to blocks again."
                    );
                }
            }
        }
    }
}

/// Smallest `max_memory` of a store, in bytes.
const LEAST_MEMORY: u64 = 1 << 20;

/// Nanoseconds since 1970.
fn now() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_nanos()).unwrap_or(u64::MAX))
}

fn send_error(error: StoreAppendError) -> SendError {
    let reason = error.to_string();
    match error {
        StoreAppendError::Malformed(_) => {
            SendError::permanent(Code::InvalidArgument, Fault::Content, reason)
        }
        StoreAppendError::TooLarge(..) => {
            SendError::permanent(Code::ResourceExhausted, Fault::Size, reason)
        }
        StoreAppendError::Full(_) => SendError::transient(Code::ResourceExhausted, reason),
        StoreAppendError::Disk(_) => SendError::transient(Code::Unavailable, reason),
    }
}

struct Exporter(Arc<Store>);

impl queue::Sender for Exporter {
    fn send<'a>(&'a self, batch: &'a Encoded) -> BoxFuture<'a, Result<Outcome, SendError>> {
        Box::pin(async move {
            let store = self.0.clone();
            let (requests, identity) = (batch.chunks.clone(), batch.identity.clone());
            let appended = spawn_blocking(move || store.append(&requests, &identity.progress));
            let failed = |error| Err(SendError::transient(Code::Unavailable, format!("{error}")));
            appended.await.unwrap_or_else(failed)
        })
    }
}

/// The life of the exporter: its queues, and the upkeep of the store.
struct Keeper {
    queues: Box<dyn Component>,
    store: Arc<Store>,
    stop: CancellationToken,
    upkeep: Option<JoinHandle<()>>,
    _watched: Watched,
}

impl Component for Keeper {
    fn start(&mut self) {
        self.store.take_over();
        let (store, stop) = (self.store.clone(), self.stop.clone());
        self.upkeep = Some(tokio::spawn(async move {
            let mut ticks = interval(UPKEEP_INTERVAL);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            // Profiles of the configuration before may have other labels.
            let mut flushes = true;
            loop {
                let is_last = tokio::select! {
                    () = stop.cancelled() => true,
                    _ = ticks.tick() => false,
                };
                let store = store.clone();
                let flush = std::mem::take(&mut flushes) || is_last;
                // An error here is a panic, which ends the process.
                let _ = spawn_blocking(move || store.keep_up(flush)).await;
                if is_last {
                    return;
                }
            }
        }));
        self.queues.start();
    }

    fn idle(&self) -> bool {
        self.queues.idle()
    }

    fn flush(&self) {
        self.queues.flush();
    }

    fn shutdown(self: Box<Self>, deadline: Instant) -> BoxFuture<'static, Undelivered> {
        Box::pin(async move {
            let undelivered = self.queues.shutdown(deadline).await;
            self.stop.cancel();
            // Profiles that are not flushed in time are in the journal.
            if let Some(mut upkeep) = self.upkeep
                && timeout_at(deadline, &mut upkeep).await.is_err()
            {
                upkeep.abort();
            }
            undelivered
        })
    }
}
