//! The tables of each signal, and the files of a table.

use std::sync::Arc;

use tributary_otlp::Signal;

/// Kind of a table's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TableKind {
    /// Log records.
    Logs,
    /// Spans.
    Traces,
    /// Data points.
    Metrics,
    /// Samples of profiles.
    Profiles,
    /// Stacks that samples refer to; only with `ProfilesLayout::Stacks`.
    Stacks,
}

impl TableKind {
    /// All kinds, in the order of their discriminants.
    pub const ALL: [TableKind; 5] = [
        TableKind::Logs,
        TableKind::Traces,
        TableKind::Metrics,
        TableKind::Profiles,
        TableKind::Stacks,
    ];

    /// Returns the signal whose requests have such rows.
    pub const fn signal(self) -> Signal {
        match self {
            TableKind::Logs => Signal::Logs,
            TableKind::Traces => Signal::Traces,
            TableKind::Metrics => Signal::Metrics,
            TableKind::Profiles | TableKind::Stacks => Signal::Profiles,
        }
    }

    /// Returns the name for directories: `logs`, `traces`, `metrics`, `profiles`, `stacks`.
    pub const fn name(self) -> &'static str {
        match self {
            TableKind::Logs => "logs",
            TableKind::Traces => "traces",
            TableKind::Metrics => "metrics",
            TableKind::Profiles => "profiles",
            TableKind::Stacks => "stacks",
        }
    }
}

/// Properties that decide which file a row belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Partition {
    /// Hours since 1970 (UTC) of the row's timestamp. A stack has the hour of its samples.
    pub hour: i64,
    /// Service of the rows, if files are partitioned by service; empty for rows without a service.
    pub service: Option<Arc<str>>,
}
