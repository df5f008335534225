//! The configuration.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use tributary_config::units::{ByteSize, Duration};
use tributary_config::{Problems, Section, Validate};
use tributary_profiles::naming::ReturnAddresses;
use tributary_profiles::reindex::ProfileFault;
use tributary_symbols::find::debuginfod::Debuginfod;
use tributary_symbols::find::object_store::StoreConfig;
use tributary_symbols::worker::WorkerLimits;

/// Sources of symbols, the symbol cache, and the time that data waits for symbols.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Directories with binaries and debug information by build id, searched first and in this
    /// order: `/usr/lib/debug` of a distribution, the directory of the extension `symbol_upload`,
    /// the cache of a debuginfod client. New files are found within a minute. Split debug
    /// information is a package (`.dwp`) next to the binary, or `.dwo` files below a directory,
    /// under the paths at which they were built. Default: `/usr/lib/debug`.
    pub directories: Vec<PathBuf>,
    /// Bucket with the same layout, searched if no directory has the file. Default: off.
    pub object_store: Section<StoreConfig>,
    /// debuginfod servers, searched last. Default: none.
    pub debuginfod: Debuginfod,
    /// Cache of compiled symbols.
    pub cache: CacheConfig,
    /// Time for which a binary that no source has is not requested again. Directories are still searched again after a
    /// minute. Above 0. Default: 1h.
    pub missing_for: Duration,
    /// Longest time that a request waits for symbols while they are fetched; its sender waits as
    /// well. Default: 0s, no waiting.
    pub wait: Duration,
    /// Buffers requests while their symbols are fetched, after `wait`. Present but empty means on
    /// with its defaults. Default: off; requests are forwarded without the missing symbols.
    pub hold: Section<HoldConfig>,
    /// Profilers that send return addresses for the callers of a stack.
    pub call_sites: CallSites,
    /// Resource limits of the process that reads the binaries.
    pub worker: WorkerConfig,
}

/// Meaning of caller addresses, that is, of the addresses of all frames except the innermost one.
/// The setting affects the lookup only; the addresses in the profile do not change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CallSites {
    /// Meaning for the profiles of all scopes that are not in `scopes`. Default: `adjusted`.
    pub default: CallSite,
    /// Meaning by the name of a profile's scope, which identifies the profiler.
    /// `tributary/receiver/pprof` stands for profiles that were received as pprof and have a scope
    /// with another name. Default: none.
    pub scopes: BTreeMap<String, CallSite>,
}

/// Stands for the scopes of all profiles that were received as pprof; earlier versions gave them
/// this name.
const PPROF: &str = "tributary/receiver/pprof";

/// Meaning of a caller's address.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CallSite {
    /// An address within the call instruction, as in OTLP and pprof. The lookup uses the address
    /// itself.
    #[default]
    Adjusted,
    /// The return address, that is, the address of the instruction after the call. The lookup uses
    /// the preceding address, unless the same location is the innermost frame of another stack, or
    /// a caller in a profile with adjusted addresses.
    ReturnAddresses,
}

/// Directory of compiled symbols. Several processes of one user may share the directory. If it is
/// lost, it is filled again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CacheConfig {
    /// Directory of the cache, created if missing. It must belong to the user that runs the
    /// collector, and other users must not have write permission. The directory also contains
    /// downloads in progress. Default: `/var/cache/tributary/symbols`.
    pub directory: PathBuf,
    /// Maximum size of compiled symbols, on disk and mapped by each pipeline; the least recently
    /// used ones are evicted. The cache should have room for the symbols of all profiled binaries.
    /// Default: 2GiB.
    pub max_bytes: ByteSize,
}

/// Limits of the requests buffered while their symbols are fetched.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HoldConfig {
    /// Longest time that a request is buffered; then it is forwarded with the symbols found so far.
    /// More than 0. Default: 30s.
    pub max_wait: Duration,
    /// Maximum size of buffered requests, which counts toward the memory budget; further requests
    /// are forwarded at once. At least 1MiB. Default: 64MiB.
    pub max_bytes: ByteSize,
}

/// Limits of the process that compiles one binary. A binary that exceeds a limit gets no symbols;
/// other binaries are not affected.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WorkerConfig {
    /// Maximum memory, in addition to the files that the process reads. Binaries are compiled one
    /// at a time. At least 64MiB. Default: 1GiB.
    pub max_memory: ByteSize,
    /// Maximum CPU time for one binary, in whole seconds. At least 1s. Default: 1m.
    pub max_cpu: Duration,
    /// Maximum size of one compiled file. At least 1MiB. Default: 512MiB.
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
    /// Returns the locations of a request that have return addresses.
    ///
    /// # Errors
    /// Returns an error if the bytes are not a valid request.
    pub(super) fn return_addresses(&self, request: &[u8]) -> Result<ReturnAddresses, ProfileFault> {
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
    /// Returns the limits of a worker that reads files of at most `input` bytes.
    pub(crate) fn limits(&self, input: u64) -> WorkerLimits {
        WorkerLimits {
            memory: self.max_memory.0,
            cpu: self.max_cpu.0,
            input,
            output: self.max_output.0,
        }
    }
}

/// A binary, its debug information, and the supplementary debug file that it shares with other
/// binaries.
const FILES_OF_A_BINARY: u64 = 3;

impl Config {
    /// Returns the maximum size of the files of one binary. The limit for downloads also applies to
    /// local files.
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
                "there is no source of symbols: set `directories`, `object_store` or `debuginfod::servers`",
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
            problems.error(&["missing_for"], "must be above 0");
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
