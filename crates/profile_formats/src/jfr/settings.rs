//! The settings of a recording: sampling periods, and which event is wall-clock time.

use super::constants::Constants;
use super::cursor::Cursor;
use super::metadata::Value;
use crate::error::Fault;

/// Settings of a chunk, from events `jdk.ActiveSetting`.
#[derive(Debug, Default)]
pub(super) struct Settings {
    /// Profiler event of async-profiler, such as `cpu`, `itimer` or `wall`.
    event: String,
    /// Sampling periods in nanoseconds: of the event of async-profiler, of its option `wall`, and of the JDK's Java and
    /// native samples.
    interval: Option<i64>,
    wall: Option<i64>,
    java: Option<i64>,
    native: Option<i64>,
    /// Whether the recording is async-profiler's.
    is_async_profiler: bool,
}

/// Default interval of async-profiler's CPU samples, in nanoseconds.
const INTERVAL: i64 = 10_000_000;
/// Default interval of async-profiler's wall-clock samples, in nanoseconds.
const WALL_INTERVAL: i64 = 50_000_000;

impl Settings {
    /// Reads an event `jdk.ActiveSetting`.
    pub(super) fn add<'c>(
        &mut self,
        constants: &Constants<'c>,
        cursor: &mut Cursor<'c>,
        kind: i64,
    ) -> Result<(), Fault> {
        let (mut of, mut name, mut value) = (0, Value::Number(0), Value::Number(0));
        constants.metadata.check(cursor, kind)?;
        constants.metadata.visit(
            cursor,
            kind,
            &mut |field, found| match (&*field.name, found) {
                ("id", Value::Number(id)) => of = id,
                ("name", found) => name = found,
                ("value", found) => value = found,
                _ => {}
            },
        )?;
        let (name, value) = (constants.text(name)?, constants.text(value)?);
        match &*name {
            "engine" | "jstackdepth" => self.is_async_profiler = true,
            "event" => self.event = value.into_owned(),
            "interval" => self.interval = value.parse().ok(),
            "wall" => self.wall = value.parse().ok(),
            "period" => match constants.metadata.name(of) {
                "jdk.ExecutionSample" => self.java = period(&value),
                "jdk.NativeMethodSample" => self.native = period(&value),
                _ => {}
            },
            _ => {}
        }
        Ok(())
    }

    /// Returns true if samples `jdk.ExecutionSample` with this state are samples of wall-clock time.
    pub(super) fn is_wall(&self, state: &str) -> bool {
        match self.is_async_profiler {
            // Samples of CPU time have the state `STATE_DEFAULT`, and before version 3 `STATE_RUNNABLE`.
            true => self.event == "wall" || state == "STATE_SLEEPING",
            false => false,
        }
    }

    /// Returns the time that a sample stands for, in nanoseconds.
    pub(super) fn period(&self, of: &str) -> Option<i64> {
        let or =
            |period: Option<i64>, default| Some(period.filter(|of| *of > 0).unwrap_or(default));
        match (of, self.is_async_profiler) {
            ("cpu", true) if self.counts_time() => or(self.interval, INTERVAL),
            ("wall", true) if self.event == "wall" => or(self.interval, WALL_INTERVAL),
            ("wall", true) => or(self.wall, WALL_INTERVAL),
            ("cpu", false) => self.java,
            ("native", false) => self.native,
            _ => None,
        }
    }

    /// Whether the interval of async-profiler's event is a time. Of hardware counters, it is a number of events.
    fn counts_time(&self) -> bool {
        matches!(
            self.event.as_str(),
            "" | "cpu" | "itimer" | "ctimer" | "cpu-clock" | "task-clock"
        )
    }
}

/// Parses a period of the JDK, such as `20 ms`.
fn period(text: &str) -> Option<i64> {
    let (number, unit) = text.split_once(' ')?;
    let scale = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    number.parse::<i64>().ok()?.checked_mul(scale)
}
