//! The configuration of `profile_regressions`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::compare::Thresholds;
use super::history::Settings;
use super::versions::Schedule;
use tributary_config::units::{ByteSize, Duration};
use tributary_config::{Problems, Validate};

/// Comparison of the functions in profiles.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Windows to compare a series with: those of its previous `service.version`
    /// (`previous_version`), or those of the same hour of the day before (`day_before`). Default:
    /// `[previous_version]`.
    pub compare_with: Vec<Baseline>,
    /// Duration of a window; the values of a comparison are the shares of a function in each window.
    /// At least 1s, at most 1h, and longer than the time between two profiles of a process. Default: 1m.
    pub window: Duration,
    /// Maximum number of windows on each side of a comparison; the last comparison of a version has
    /// this many. At least `min_windows`, at most 60. Default: 30.
    pub windows: u32,
    /// Minimum number of windows on each side; the first comparison of a version has this many. At
    /// least 5. Default: 10.
    pub min_windows: u32,
    /// Maximum probability of one or more findings in a comparison of two versions, or of two hours,
    /// if nothing changed. Above 0, at most 0.1. Default: 0.001.
    pub error_rate: f64,
    /// Minimum relative change of a function's share, as a fraction. At least 0. Default: 0.03.
    pub min_change: f64,
    /// Minimum share of the total before or after, as a fraction. At least 0.001, below 1. Default:
    /// 0.01.
    pub min_share: f64,
    /// Maximum number of functions per window: those with the largest values including callees. Above
    /// 0. Default: 500.
    pub max_functions: u32,
    /// Maximum number of series: combinations of `service.name` and sample type. Above 0. Default:
    /// 1000.
    pub max_series: u32,
    /// Maximum memory for the windows of all series, as in `64MiB`. The current window may use the
    /// same amount again. At least 64KiB. Default: 64MiB.
    pub max_bytes: ByteSize,
    /// Address of a console with the profiles, as in `http://localhost:55679`, for links in the
    /// events. Default: none, events have no links.
    pub console_url: String,
}

/// Windows to compare with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Baseline {
    /// Windows of the previous version.
    PreviousVersion,
    /// Windows of the same hour of the day before.
    DayBefore,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            compare_with: vec![Baseline::PreviousVersion],
            window: Duration::secs(60),
            windows: 30,
            min_windows: 10,
            error_rate: 0.001,
            min_change: 0.03,
            min_share: 0.01,
            max_functions: 500,
            max_series: 1000,
            max_bytes: ByteSize::mib(64),
            console_url: String::new(),
        }
    }
}

const LEAST_BYTES: u64 = 64 << 10;
const MIN_INTERVAL: std::time::Duration = std::time::Duration::from_secs(1);
const HOUR: std::time::Duration = std::time::Duration::from_secs(3600);
/// With fewer windows no difference is significant.
const FEWEST_WINDOWS: u32 = 5;
const MOST_WINDOWS: u32 = 60;

impl Validate for Config {
    fn validate(&self, problems: &mut Problems) {
        if self.compare_with.is_empty() {
            problems.error(&["compare_with"], "must not be empty");
        }
        for (at, baseline) in self.compare_with.iter().enumerate() {
            if self
                .compare_with
                .iter()
                .take(at)
                .any(|other| other == baseline)
            {
                problems.error(&["compare_with", &at.to_string()], "duplicate entry");
            }
        }
        if self.window.0 < MIN_INTERVAL || self.window.0 > HOUR {
            problems.error(&["window"], "must be at least 1s and at most 1h");
        }
        if self.min_windows < FEWEST_WINDOWS {
            problems.error(&["min_windows"], "must be at least 5");
        }
        if self.windows < self.min_windows || self.windows > MOST_WINDOWS {
            problems.error(
                &["windows"],
                "must be at least `min_windows` and at most 60",
            );
        } else if self.compares_days()
            && HOUR.as_secs_f64() / self.window.0.as_secs_f64() < f64::from(self.min_windows)
        {
            let message =
                "must be so short that an hour has `min_windows` windows, for `day_before`";
            problems.error(&["window"], message);
        }
        if !(self.error_rate > 0.0 && self.error_rate <= 0.1) {
            problems.error(&["error_rate"], "must be above 0 and at most 0.1");
        }
        if !(self.min_change >= 0.0 && self.min_change.is_finite()) {
            problems.error(&["min_change"], "must be at least 0");
        }
        if !(self.min_share >= 0.001 && self.min_share < 1.0) {
            problems.error(&["min_share"], "must be at least 0.001 and below 1");
        }
        for (key, value) in [
            ("max_functions", self.max_functions),
            ("max_series", self.max_series),
        ] {
            if value == 0 {
                problems.error(&[key], "must be above 0");
            }
        }
        if self.max_bytes.0 < LEAST_BYTES {
            problems.error(&["max_bytes"], "must be at least 64KiB");
        }
        let is_web = ["http://", "https://"]
            .iter()
            .any(|scheme| self.console_url.starts_with(scheme));
        if !self.console_url.is_empty() && (!is_web || self.console_url.contains(['#', '?'])) {
            let message =
                "must be an address that begins with `http://` or `https://`, without `?` and `#`";
            problems.error(&["console_url"], message);
        }
    }
}

impl Config {
    fn compares_days(&self) -> bool {
        self.compare_with.contains(&Baseline::DayBefore)
    }

    pub(super) fn settings(&self) -> Settings {
        let number = |of: u32| usize::try_from(of).unwrap_or(usize::MAX);
        let schedule = Schedule {
            first: number(self.min_windows),
            last: number(self.windows),
        };
        // Windows spread over the hour depend less on each other than adjacent ones.
        let per_hour = HOUR.as_secs_f64() / self.window.0.as_secs_f64();
        let spread = (per_hour / f64::from(self.windows)).floor().max(1.0) as u64;
        Settings {
            schedule,
            thresholds: Thresholds {
                error_rate: self.error_rate,
                min_change: self.min_change,
                min_share: self.min_share,
                looks: schedule.looks(),
            },
            versions: self.compare_with.contains(&Baseline::PreviousVersion),
            hours: self.compares_days().then_some(spread),
            max_functions: number(self.max_functions),
            max_series: number(self.max_series),
            max_bytes: self.max_bytes.as_usize(),
        }
    }
}
