//! Reasons why a build id has no symbols.

use std::time::Duration;

/// Reason why an attempt to get symbols failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// No source has the build id.
    #[error("no source has this build id")]
    NotFound,
    /// The file is too large to fetch or compile.
    #[error("file too large: {0}")]
    TooLarge(String),
    /// The found file is not a binary with symbols.
    #[error("unusable file: {0}")]
    Unusable(String),
    /// The found file has another build id.
    #[error("wrong binary: its build id is {0}")]
    WrongBuildId(String),
    /// The worker exceeded a limit or crashed.
    #[error("the symbol worker failed: {0}")]
    Worker(String),
    /// The worker was killed from outside or exceeded the wall-clock limit. The cause is a shortage of memory or
    /// processors, not the file.
    #[error("the symbol worker was interrupted: {0}")]
    Interrupted(String),
    /// A server cannot be reached at present.
    #[error("{0}")]
    Unreachable(String),
    /// An error of this machine.
    #[error("{0}")]
    Local(String),
    /// Too many build ids are requested at once.
    #[error("too many build ids are queued")]
    Busy,
}

/// The kinds of [`Failure`], for metrics and the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FailureKind {
    /// See [`Failure::NotFound`].
    NotFound,
    /// See [`Failure::TooLarge`].
    TooLarge,
    /// See [`Failure::Unusable`].
    Unusable,
    /// See [`Failure::WrongBuildId`].
    WrongBuildId,
    /// See [`Failure::Worker`].
    Worker,
    /// See [`Failure::Interrupted`].
    Interrupted,
    /// See [`Failure::Unreachable`].
    Unreachable,
    /// See [`Failure::Local`].
    Local,
    /// See [`Failure::Busy`].
    Busy,
}

impl Failure {
    /// Whether another attempt without the companion files may succeed.
    pub fn may_be_caused_by_companions(&self) -> bool {
        matches!(
            self,
            Failure::Unusable(_)
                | Failure::TooLarge(_)
                | Failure::Worker(_)
                | Failure::Interrupted(_)
        )
    }

    /// Whether the same files would fail again, because the cause is neither this machine nor a server.
    pub fn is_caused_by_files(&self) -> bool {
        matches!(
            self,
            Failure::Unusable(_)
                | Failure::TooLarge(_)
                | Failure::Worker(_)
                | Failure::WrongBuildId(_)
        )
    }

    /// Returns the kind of the failure.
    pub fn kind(&self) -> FailureKind {
        match self {
            Failure::NotFound => FailureKind::NotFound,
            Failure::TooLarge(_) => FailureKind::TooLarge,
            Failure::Unusable(_) => FailureKind::Unusable,
            Failure::WrongBuildId(_) => FailureKind::WrongBuildId,
            Failure::Worker(_) => FailureKind::Worker,
            Failure::Interrupted(_) => FailureKind::Interrupted,
            Failure::Unreachable(_) => FailureKind::Unreachable,
            Failure::Local(_) => FailureKind::Local,
            Failure::Busy => FailureKind::Busy,
        }
    }
}

impl FailureKind {
    /// All kinds, in the order of their discriminants.
    pub const ALL: [FailureKind; 9] = [
        FailureKind::NotFound,
        FailureKind::TooLarge,
        FailureKind::Unusable,
        FailureKind::WrongBuildId,
        FailureKind::Worker,
        FailureKind::Interrupted,
        FailureKind::Unreachable,
        FailureKind::Local,
        FailureKind::Busy,
    ];

    /// Name of the kind in metrics and in the cache.
    pub const fn name(self) -> &'static str {
        match self {
            FailureKind::NotFound => "not_found",
            FailureKind::TooLarge => "too_large",
            FailureKind::Unusable => "unusable",
            FailureKind::WrongBuildId => "wrong_build_id",
            FailureKind::Worker => "worker",
            FailureKind::Interrupted => "interrupted",
            FailureKind::Unreachable => "unreachable",
            FailureKind::Local => "local",
            FailureKind::Busy => "busy",
        }
    }

    /// Returns the kind with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Returns the time before the next attempt after a failure of this kind. `missing` is the configured time for
    /// build ids that no source has.
    ///
    /// Files on a server rarely change within a day, so defects of a file count for a day. Queries to an unreachable
    /// server are repeated soon, protected by its circuit breaker. An interrupted compilation was expensive for this
    /// machine, so its retry waits longer.
    pub fn retry_delay(self, missing: Duration) -> Duration {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        match self {
            FailureKind::NotFound => missing,
            FailureKind::TooLarge
            | FailureKind::Unusable
            | FailureKind::WrongBuildId
            | FailureKind::Worker => DAY,
            FailureKind::Interrupted => Duration::from_secs(600),
            FailureKind::Unreachable | FailureKind::Local => Duration::from_secs(120),
            FailureKind::Busy => Duration::from_secs(1),
        }
    }
}
