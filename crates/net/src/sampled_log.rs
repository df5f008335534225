//! Rate limiter for repeated log lines: in every ten seconds, the first lines in full, then only the number of
//! suppressed lines.
//!
//! Callers usually write the suppressed lines at debug level.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Lines in full per window, as in the Collector's logger.
const LINES_PER_WINDOW: u64 = 10;
/// Length of a window, as in the Collector's logger.
const WINDOW: Duration = Duration::from_secs(10);

/// Rate limiter of one kind of line.
#[derive(Debug)]
pub struct SampledLog {
    lines: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    window: Option<Instant>,
    written: u64,
    suppressed: u64,
}

impl Default for SampledLog {
    /// Creates the limiter for lines that differ in content.
    fn default() -> Self {
        SampledLog {
            lines: LINES_PER_WINDOW,
            state: Mutex::default(),
        }
    }
}

impl SampledLog {
    /// Creates the limiter for a line with constant content: one line per window.
    pub fn of_one_line() -> Self {
        SampledLog {
            lines: 1,
            state: Mutex::default(),
        }
    }

    /// Returns `Some` if the line is to be written, with the number of lines suppressed since the last written line.
    pub fn admit(&self) -> Option<u64> {
        let mut state = self.state.lock();
        if state.window.is_none_or(|since| since.elapsed() >= WINDOW) {
            state.window = Some(Instant::now());
            state.written = 0;
        }
        if state.written == self.lines {
            state.suppressed += 1;
            return None;
        }
        state.written += 1;
        Some(std::mem::take(&mut state.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn ten_lines_pass_per_window_and_others_are_counted() {
        let log = SampledLog::default();
        let written = (0..25).filter(|_| log.admit() == Some(0)).count();
        assert_eq!(written, 10);
        tokio::time::advance(WINDOW).await;
        assert_eq!(log.admit(), Some(15));
        assert_eq!(log.admit(), Some(0));
    }
}
