//! The signals of OTLP.

use std::fmt;

/// A signal of OTLP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Signal {
    /// Spans.
    Traces,
    /// Data points.
    Metrics,
    /// Log records.
    Logs,
    /// Samples of continuous profiles.
    Profiles,
}

impl Signal {
    /// All signals, in the order of their discriminants.
    pub const ALL: [Signal; 4] = [
        Signal::Traces,
        Signal::Metrics,
        Signal::Logs,
        Signal::Profiles,
    ];

    /// Name in the configuration: `traces`, `metrics`, `logs`, `profiles`.
    pub const fn name(self) -> &'static str {
        match self {
            Signal::Traces => "traces",
            Signal::Metrics => "metrics",
            Signal::Logs => "logs",
            Signal::Profiles => "profiles",
        }
    }

    /// Name of the items in metric names: `spans`, `metric_points`, `log_records`, `profile_samples`.
    pub const fn items_name(self) -> &'static str {
        match self {
            Signal::Traces => "spans",
            Signal::Metrics => "metric_points",
            Signal::Logs => "log_records",
            Signal::Profiles => "profile_samples",
        }
    }

    /// Returns the signal with this [`name`](Self::name).
    pub fn from_name(name: &str) -> Option<Signal> {
        Self::ALL.into_iter().find(|signal| signal.name() == name)
    }

    /// Index for tables with one entry per signal.
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
