//! The configuration.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use tributary_config::units::{ByteSize, Duration};
use tributary_config::{Problems, Section, Validate};
use tributary_profiles::naming::ReturnAddresses;
use tributary_profiles::reindex::Fault;
use tributary_symbols::find::debuginfod::Debuginfod;
use tributary_symbols::find::object_store::StoreConfig;
use tributary_symbols::worker::WorkerLimits;

/// Where symbols come from, where they are kept, and how long data waits for them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Directories with binaries and debug information by build id, searched first and in this order: `/usr/lib/debug`
    /// of a distribution, the directory of the extension `symbol_upload`, the cache of a debuginfod client. What is put
    /// there is found within a minute. Split debug information is a package (`.dwp`) beside a file, or `.dwo` files
    /// below a directory, under the paths at which they were built. Default: `/usr/lib/debug`.
    pub directories: Vec<PathBuf>,
    /// A bucket with the same, asked when no directory has it. Default: off.
    pub object_store: Section<StoreConfig>,
    /// debuginfod servers, asked last. Default: none.
    pub debuginfod: Debuginfod,
    /// Where compiled symbols are kept.
    pub cache: CacheConfig,
    /// For how long nobody asks again for a binary that no source has. Directories are looked into again after a minute
    /// all the same. Default: 1h.
    pub missing_for: Duration,
    /// How long the sender of a request may wait for symbols that are being fetched. Default: 0s, not at all.
    pub wait: Duration,
    /// Keep requests here while their symbols are being fetched, after `wait`. Present but empty means on with its
    /// defaults. Default: off, requests go on without the names that are missing.
    pub hold: Section<HoldConfig>,
    /// Which profilers send the addresses of callers as they are on the stack.
    pub call_sites: CallSites,
    /// What the process may use that reads the binaries.
    pub worker: WorkerConfig,
}

/// What the addresses of callers are, that is, of all frames but the innermost one. Only the lookup depends on it: in
/// the profile addresses stay as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CallSites {
    /// For the profiles of all scopes that are not in `scopes`. Default: `adjusted`.
    pub default: CallSite,
    /// By the name of a profile's scope, which says who made it, or `tributary/receiver/pprof` for whatever came as pprof and has
    /// a scope of another name. Default: none.
    pub scopes: BTreeMap<String, CallSite>,
}

/// Stands for the scopes of all profiles that came as pprof. It was their name.
const PPROF: &str = "tributary/receiver/pprof";

/// What the address of a caller is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CallSite {
    /// Inside of the call instruction, as OTLP and pprof have it. It is looked up as it is.
    #[default]
    Adjusted,
    /// Of the instruction behind the call, as it is on the stack. What is looked up is the address before it, unless
    /// the same location is the innermost frame of another stack, or a caller in a profile whose addresses are
    /// adjusted.
    ReturnAddresses,
}

/// A directory for compiled symbols. Several processes of one user may share it, and it may be lost: then it is filled
/// again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CacheConfig {
    /// The directory; made if there is none. It has to belong to the user that the collector runs as, and nobody else
    /// may write to it. Downloads that are under way are here, too. Default: `/var/cache/tributary/symbols`.
    pub directory: PathBuf,
    /// The most bytes of compiled symbols, on disk and mapped by each pipeline; what was not used for longest is
    /// deleted. It should have room for those of all binaries that are profiled. Default: 2GiB.
    pub max_bytes: ByteSize,
}

/// How long, and how much, data is kept here while its symbols are being fetched.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HoldConfig {
    /// The longest time; then data goes on with the names that are there. More than 0. Default: 30s.
    pub max_wait: Duration,
    /// The most bytes of data, which count in the memory budget; beyond them data goes on at once. At least 1MiB. Default:
    /// 64MiB.
    pub max_bytes: ByteSize,
}

/// Limits of the process that compiles one binary. One that needs more has no symbols; others are not affected.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WorkerConfig {
    /// The most memory, besides the files it reads; binaries are compiled one after the other. At least 64MiB. Default:
    /// 1GiB.
    pub max_memory: ByteSize,
    /// The most CPU time for one binary, in whole seconds. At least 1s. Default: 60s.
    pub max_cpu: Duration,
    /// The most bytes of one compiled file. At least 1MiB. Default: 512MiB.
    pub max_output: ByteSize,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            directories: vec![PathBuf::from("/usr/lib/debug")],
            object_store: Section::default(),
            debuginfod: Debuginfod::default(),
            cache: CacheConfig::default(),
            missing_for: Duration::secs(60 * 60),
            wait: Duration::default(),
            hold: Section::default(),
            call_sites: CallSites::default(),
            worker: WorkerConfig::default(),
        }
    }
}

impl Default for CacheConfig {
    fn default() -> Self {
        CacheConfig {
            directory: PathBuf::from("/var/cache/tributary/symbols"),
            max_bytes: ByteSize::mib(2048),
        }
    }
}

impl Default for HoldConfig {
    fn default() -> Self {
        HoldConfig {
            max_wait: Duration::secs(30),
            max_bytes: ByteSize::mib(64),
        }
    }
}

impl Default for WorkerConfig {
    fn default() -> Self {
        WorkerConfig {
            max_memory: ByteSize::mib(1024),
            max_cpu: Duration::secs(60),
            max_output: ByteSize::mib(512),
        }
    }
}

impl CallSites {
    /// The locations of a request that have return addresses.
    ///
    /// # Errors
    /// When these bytes are no request.
    pub(super) fn return_addresses(&self, request: &[u8]) -> Result<ReturnAddresses, Fault> {
        let all_are = |call_site| {
            self.default == call_site && self.scopes.values().all(|scope| *scope == call_site)
        };
        if all_are(CallSite::Adjusted) {
            return Ok(ReturnAddresses::none());
        }
        if all_are(CallSite::ReturnAddresses) {
            return ReturnAddresses::of_all(request);
        }
        ReturnAddresses::of_scopes(request, |scope, is_pprof| {
            let scope = str::from_utf8(scope).ok();
            let of_scope = scope.and_then(|scope| self.scopes.get(scope));
            let of_pprof = self.scopes.get(PPROF).filter(|_| is_pprof);
            *of_scope.or(of_pprof).unwrap_or(&self.default) == CallSite::ReturnAddresses
        })
    }
}

impl WorkerConfig {
    /// With files of at most `input` bytes.
    pub(crate) fn limits(&self, input: u64) -> WorkerLimits {
        WorkerLimits {
            memory: self.max_memory.0,
            cpu: self.max_cpu.0,
            input,
            output: self.max_output.0,
        }
    }
}

/// A binary, its debug information and what it has in common with others.
const FILES_OF_A_BINARY: u64 = 3;

impl Config {
    /// The most bytes of the files of one binary. Files of this machine may have as many as downloads.
    pub(super) fn largest_input(&self) -> u64 {
        let store = (*self.object_store).as_ref();
        let largest = store.map_or(0, |store| store.max_bytes.0);
        let largest = largest.max(self.debuginfod.max_bytes.0);
        largest.saturating_mul(FILES_OF_A_BINARY)
    }
}

impl Validate for Config {
    fn validate(&self, problems: &mut Problems) {
        for (at, directory) in self.directories.iter().enumerate() {
            if !directory.is_absolute() {
                problems.error(
                    &["directories", &at.to_string()],
                    "must be an absolute path, as in `/usr/lib/debug`",
                );
            }
        }
        let nothing_remote = self.debuginfod.servers.is_empty() && self.object_store.is_none();
        if self.directories.is_empty() && nothing_remote {
            problems.error(
                &["directories"],
                "there is nowhere to take symbols from: name a directory, an `object_store`, or `debuginfod::servers`",
            );
        }
        if let Some(store) = &*self.object_store {
            problems.within("object_store", store);
        }
        problems.within("debuginfod", &self.debuginfod);
        if !self.cache.directory.is_absolute() {
            problems.error(
                &["cache", "directory"],
                "must be an absolute path, as in `/var/cache/tributary/symbols`",
            );
        }
        if self.missing_for.is_zero() {
            problems.error(
                &["missing_for"],
                "must be above 0: every profile would ask again",
            );
        }
        if let Some(hold) = &*self.hold {
            if hold.max_wait.is_zero() {
                problems.error(&["hold", "max_wait"], "must be above 0");
            }
            at_least(&["hold", "max_bytes"], hold.max_bytes, 1, problems);
        }
        let worker = &self.worker;
        at_least(&["worker", "max_memory"], worker.max_memory, 64, problems);
        at_least(&["worker", "max_output"], worker.max_output, 1, problems);
        at_least(&["cache", "max_bytes"], self.cache.max_bytes, 1, problems);
        if worker.max_cpu.as_secs() == 0 {
            problems.error(&["worker", "max_cpu"], "must be at least 1s");
        }
    }
}

fn at_least(key: &[&str], size: ByteSize, mebibytes: u64, problems: &mut Problems) {
    if size < ByteSize::mib(mebibytes) {
        problems.error(key, format!("must be at least {mebibytes}MiB"));
    }
}
