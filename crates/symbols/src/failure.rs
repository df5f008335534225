//! Reasons why a build id has no symbols.

use std::time::Duration;

/// The reason why an attempt to get symbols failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// No source has the build id.
    #[error("no source has it")]
    NotFound,
    /// The file is too large to fetch or compile.
    #[error("it is too large: {0}")]
    TooLarge(String),
    /// The found file is not a binary with symbols.
    #[error("what was found is of no use: {0}")]
    Unusable(String),
    /// The found file has another build id.
    #[error("what was found is another binary: its build id is {0}")]
    WrongBuildId(String),
    /// The worker exceeded a limit or crashed.
    #[error("the worker that compiles it failed: {0}")]
    Worker(String),
    /// The worker was killed from outside or exceeded the wall-clock limit. The cause is a shortage of memory or
    /// processors, not the file.
    #[error("the worker that compiles it did not get to its end: {0}")]
    Interrupted(String),
    /// A server cannot be reached at present.
    #[error("{0}")]
    Unreachable(String),
    /// An error of this machine.
    #[error("{0}")]
    Local(String),
    /// Too many build ids are wanted at once.
    #[error("too many are wanted at once")]
    Busy,
}

/// The kinds of [`Failure`], for metrics and the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
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
    pub fn may_be_of_companions(&self) -> bool {
        matches!(
            self,
            Failure::Unusable(_)
                | Failure::TooLarge(_)
                | Failure::Worker(_)
                | Failure::Interrupted(_)
        )
    }

    /// Whether the same files would fail again, because the cause is neither this machine nor a server.
    pub fn is_of_files(&self) -> bool {
        matches!(
            self,
            Failure::Unusable(_)
                | Failure::TooLarge(_)
                | Failure::Worker(_)
                | Failure::WrongBuildId(_)
        )
    }

    /// Returns the kind of the failure.
    pub fn kind(&self) -> Kind {
        match self {
            Failure::NotFound => Kind::NotFound,
            Failure::TooLarge(_) => Kind::TooLarge,
            Failure::Unusable(_) => Kind::Unusable,
            Failure::WrongBuildId(_) => Kind::WrongBuildId,
            Failure::Worker(_) => Kind::Worker,
            Failure::Interrupted(_) => Kind::Interrupted,
            Failure::Unreachable(_) => Kind::Unreachable,
            Failure::Local(_) => Kind::Local,
            Failure::Busy => Kind::Busy,
        }
    }
}

impl Kind {
    /// All kinds, in the order of their discriminants.
    pub const ALL: [Kind; 9] = [
        Kind::NotFound,
        Kind::TooLarge,
        Kind::Unusable,
        Kind::WrongBuildId,
        Kind::Worker,
        Kind::Interrupted,
        Kind::Unreachable,
        Kind::Local,
        Kind::Busy,
    ];

    /// Name of the kind in metrics and in the cache.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::NotFound => "not_found",
            Kind::TooLarge => "too_large",
            Kind::Unusable => "unusable",
            Kind::WrongBuildId => "wrong_build_id",
            Kind::Worker => "worker",
            Kind::Interrupted => "interrupted",
            Kind::Unreachable => "unreachable",
            Kind::Local => "local",
            Kind::Busy => "busy",
        }
    }

    /// Returns the kind with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Returns the time before the next attempt after a failure of this kind. `missing` is the configured time for
    /// build ids that no source has.
    ///
    /// Files on a server rarely change within a day, so defects of a file count that long. An unreachable server is
    /// asked again soon, protected by its circuit breaker. An interrupted compilation was expensive for this
    /// machine, so its retry waits longer.
    pub fn counts_for(self, missing: Duration) -> Duration {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        match self {
            Kind::NotFound => missing,
            Kind::TooLarge | Kind::Unusable | Kind::WrongBuildId | Kind::Worker => DAY,
            Kind::Interrupted => Duration::from_secs(600),
            Kind::Unreachable | Kind::Local => Duration::from_secs(120),
            Kind::Busy => Duration::from_secs(1),
        }
    }
}
