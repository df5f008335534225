//! Reasons why a store does not open, accept a request, or serve a query.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tributary_profiles::reindex::ProfileFault;

use super::options::OptionsError;
use super::series::PROFILE_TYPE;

/// Maximum number of steps of a time series, as in Prometheus.
pub(crate) const MAX_STEPS: u64 = 11_000;

/// Reason why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum StoreOpenError {
    /// The options contradict each other.
    #[error(transparent)]
    ProfileStoreOptions(#[from] OptionsError),
    /// Another process has the store open.
    #[error("the profile store {} is in use by another process{owner}: set a different directory for each \
             collector", directory.display())]
    Locked {
        /// Directory of the store.
        directory: PathBuf,
        /// Description of the other process, or empty if unknown.
        owner: String,
    },
    /// The file system returned an error.
    #[error("cannot open the profile store {}: {error}", directory.display())]
    Io {
        /// Directory of the store.
        directory: PathBuf,
        /// Error of the operating system.
        error: io::Error,
    },
}

/// Reason why a request was not appended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreAppendError {
    /// The request breaks the rules of the protocol. A retry does not help.
    #[error("cannot store the profiles: {0}")]
    Malformed(ProfileFault),
    /// The request is too large. A retry does not help.
    #[error(
        "a request of {0} bytes is above the limit of the profile store, {1}; raise `max_memory`"
    )]
    TooLarge(u64, u64),
    /// The profiles that arrived before are not in blocks yet. A retry helps.
    #[error(
        "the open window of the profile store is full ({0} bytes); raise `max_memory` or check the disk"
    )]
    Full(u64),
    /// The disk is full, read-only or broken. A retry may help.
    #[error("cannot write to the profile store: {0}")]
    Disk(String),
}

/// Reason for a failed query.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// The result needs more memory than the query may use.
    #[error(
        "the query needs {needed} bytes of memory, and the limit is {limit}: select a shorter range or fewer series, \
         or raise the limit"
    )]
    TooLarge {
        /// Bytes needed, at least.
        needed: u64,
        /// Limit in bytes.
        limit: u64,
    },
    /// The query exceeds its maximum time.
    #[error(
        "the query took longer than {0:?}: select a shorter range or fewer series, or raise the limit"
    )]
    TooSlow(Duration),
    /// Other queries use the memory.
    #[error("the memory for queries is used up; retry later")]
    Busy,
    /// Profiles of different types cannot be added.
    #[error("the query selects several profile types: add `{PROFILE_TYPE}` with one of: {}", .0.join(", "))]
    SeveralTypes(Vec<String>),
    /// The step is too short for the range, or 0.
    #[error("the range has more than {MAX_STEPS} steps: set a longer step")]
    TooManySteps,
    /// The disk returned an error.
    #[error("cannot read the profile store: {0}")]
    Disk(String),
}

impl From<io::Error> for QueryError {
    fn from(error: io::Error) -> Self {
        QueryError::Disk(error.to_string())
    }
}
