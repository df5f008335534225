//! Why there are no symbols for a build id.

use std::time::Duration;

/// Why an attempt to get symbols came to nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// No source has it.
    #[error("no source has it")]
    NotFound,
    /// It is larger than may be fetched or compiled.
    #[error("it is too large: {0}")]
    TooLarge(String),
    /// What came is no binary with symbols.
    #[error("what was found is of no use: {0}")]
    Unusable(String),
    /// What came is another binary.
    #[error("what was found is another binary: its build id is {0}")]
    WrongBuildId(String),
    /// The worker that compiles it went beyond a limit, or crashed.
    #[error("the worker that compiles it failed: {0}")]
    Worker(String),
    /// The worker was ended from outside, or took too long on the clock: where memory or processors are short, whatever
    /// the file is like.
    #[error("the worker that compiles it did not get to its end: {0}")]
    Interrupted(String),
    /// A server cannot be reached, or not now.
    #[error("{0}")]
    Unreachable(String),
    /// Something is wrong on this machine.
    #[error("{0}")]
    Local(String),
    /// Too many are wanted at once.
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
    /// Whether without some of the files it could be better.
    pub fn may_be_of_companions(&self) -> bool {
        matches!(
            self,
            Failure::Unusable(_)
                | Failure::TooLarge(_)
                | Failure::Worker(_)
                | Failure::Interrupted(_)
        )
    }

    /// Whether the same files would fail again: neither this machine nor a server is to blame.
    pub fn is_of_files(&self) -> bool {
        matches!(
            self,
            Failure::Unusable(_)
                | Failure::TooLarge(_)
                | Failure::Worker(_)
                | Failure::WrongBuildId(_)
        )
    }

    /// What kind it is.
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
    /// All of them, in the order of their discriminants.
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

    /// The name in metrics and in the cache.
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

    /// The kind of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// How long nobody asks again after a failure of this kind. `missing` is the time for what no source has, which the
    /// configuration says.
    ///
    /// What a server has is the same a day later, so what is wrong with it is, too. A server that is away is asked
    /// again soon: its breaker protects it. What was interrupted took much of this machine, so it waits longer.
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
