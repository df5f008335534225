//! Symbolizes the addresses in profiles: functions, source files and lines, including inlined
//! functions.
//!
//! The processor changes only the locations in a request's dictionary: each address once, however
//! many samples use it. Locations with lines do not change. Symbols come from directories, an
//! object store or debuginfod servers. They are compiled once for each binary, and cached in a
//! directory of bounded size.
//!
//! By default, data does not wait for symbols: available symbols are used, and missing ones are
//! fetched in the background for later requests. With `wait`, the sender of a request waits for a
//! limited time. With `hold`, the processor buffers data within a limit and is responsible for it.

mod config;
mod metrics;
mod room;
mod stage;
mod symbolizer;
#[cfg(test)]
mod tests;

pub use self::config::{CacheConfig, CallSite, CallSites, Config, HoldConfig, WorkerConfig};

use std::sync::Arc;

use crate::component::{
    BuildContext, BuildError, Entry, Origin, ProcessorConfig, Stability, Stage,
};
use crate::entry;
use crate::metric::{self, Metric, shared};
use tributary_net::Owner;
use tributary_otlp::Signal;
use tributary_symbols::cache::Cache;
use tributary_symbols::find::debuginfod::Servers;
use tributary_symbols::find::directories::Directories;
#[cfg(feature = "object-store")]
use tributary_symbols::find::object_store::Store;
use tributary_symbols::find::{BinarySource, Tools};
use tributary_symbols::library::Library;
use tributary_symbols::worker::Worker;

/// Entry of the component registry.
pub const ENTRY: Entry<dyn ProcessorConfig> = entry!(
    dyn ProcessorConfig,
    Config,
    "symbolication",
    aliases: &[],
    "Replaces addresses in profiles by functions, files and lines.",
    &[(Signal::Profiles, Stability::Alpha)],
    collector: Origin::Own,
    metrics: &[shared::PROCESSOR, shared::TLS, METRICS]
);

const METRICS: &[Metric] = &[
    metric::counter(
        "tributary_processor_symbolication_locations",
        "Number of locations that arrived without lines, by outcome",
    ),
    metric::counter(
        "tributary_processor_symbolication_unreadable_requests",
        "Number of requests whose dictionary could not be read and which passed unchanged",
    ),
    metric::gauge(
        "otelcol_processor_symbolication_rate",
        "Share of the locations without lines that were symbolized since the start, from 0 to 1",
    ),
    metric::counter(
        "tributary_symbols_lookups",
        "Number of binaries looked up for requests, by whether their symbols were available",
    ),
    metric::counter(
        "tributary_symbols_fetches",
        "Number of binaries requested from sources, by source and outcome",
    ),
    metric::counter(
        "tributary_symbols_worker_failures",
        "Number of binaries that could not be compiled to symbol files, by reason",
    ),
    metric::gauge(
        "tributary_symbols_cache_bytes",
        "Size of the symbol files on disk, in bytes",
    ),
    metric::histogram(
        "tributary_symbols_compile_seconds",
        "Time to compile the symbols of a binary, in seconds",
    ),
];

impl ProcessorConfig for Config {
    fn build(&self, cx: &BuildContext, _: Signal) -> Result<Stage, BuildError> {
        let library = self.library(cx)?;
        let (config, cx) = (self.clone(), cx.clone());
        Ok(Stage::Buffering(Box::new(move |next| {
            stage::connect(&config, &cx, library, next)
        })))
    }
}

impl Config {
    fn library(&self, cx: &BuildContext) -> Result<Arc<Library>, BuildError> {
        let directory = &self.cache.directory;
        let cache = Cache::open(directory, self.cache.max_bytes.0).map_err(|error| {
            let place = directory.display();
            BuildError(format!(
                "cache::directory: cannot use {place}: {error}; the directory must belong to this user and must not \
                 be writable for other users"
            ))
        })?;
        let mut sources: Vec<Box<dyn BinarySource>> = Vec::new();
        if !self.directories.is_empty() {
            sources.push(Box::new(Directories::new(&self.directories)));
        }
        #[cfg(feature = "object-store")]
        if let Some(config) = &*self.object_store {
            let store = Store::new(config);
            let store = store.map_err(|error| BuildError(format!("object_store: {error}")))?;
            sources.push(Box::new(store));
        }
        if !self.debuginfod.servers.is_empty() {
            let owner = Owner::new(&cx.id, "processor");
            let servers = Servers::new(&self.debuginfod, &owner);
            let servers = servers.map_err(|error| BuildError(format!("debuginfod: {error}")))?;
            sources.push(Box::new(servers));
        }
        let worker = Worker::new(self.worker.limits(self.largest_input()));
        let tools = Tools::new(cache, Arc::new(worker));
        Ok(Library::new(&cx.id, tools, sources, self.missing_for.0))
    }
}
