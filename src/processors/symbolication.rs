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

use crate::component::{BuildContext, BuildError, Entry, ProcessorConfig, Stability, Stage};
use crate::entry;
use tributary_net::Owner;
use tributary_otlp::Signal;
use tributary_symbols::cache::Cache;
use tributary_symbols::find::debuginfod::Servers;
use tributary_symbols::find::directories::Directories;
#[cfg(feature = "object-store")]
use tributary_symbols::find::object_store::Store;
use tributary_symbols::find::{Source, Tools};
use tributary_symbols::library::Library;
use tributary_symbols::worker::Worker;

/// Entry of the component registry.
pub const ENTRY: Entry<dyn ProcessorConfig> = entry!(
    dyn ProcessorConfig,
    Config,
    "symbolication",
    aliases: &[],
    "Gives names to the addresses in profiles.",
    &[(Signal::Profiles, Stability::Alpha)]
);

impl ProcessorConfig for Config {
    fn build(&self, cx: &BuildContext, _: Signal) -> Result<Stage, BuildError> {
        let library = self.library(cx)?;
        let (config, cx) = (self.clone(), cx.clone());
        Ok(Stage::Holding(Box::new(move |next| {
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
                "cache::directory: {place} cannot be used: {error}; it must be a directory of this user that nobody else may write to"
            ))
        })?;
        let mut sources: Vec<Box<dyn Source>> = Vec::new();
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
