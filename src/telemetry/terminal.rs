//! Output for interactive use: colours, and progress.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// Whether stderr supports colours: it is a terminal, and `NO_COLOR` (<https://no-color.org>) is
/// not set.
pub(crate) fn has_colours() -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    std::io::stderr().is_terminal() && !set("NO_COLOR") && !is_dumb
}

/// Delay before progress is shown.
const PROGRESS_DELAY: Duration = Duration::from_secs(1);

const INTERVAL: Duration = Duration::from_millis(200);

/// A progress line on the terminal. Without a terminal, nothing is shown.
pub(crate) struct Progress {
    what: &'static str,
    total: Option<u64>,
    done: u64,
    next: Instant,
    is_shown: bool,
    is_terminal: bool,
}

impl Progress {
    /// Starts the progress of `what`, the counted objects, as in `files`.
    pub(crate) fn new(what: &'static str, total: Option<u64>) -> Self {
        Progress {
            what,
            total,
            done: 0,
            next: Instant::now() + PROGRESS_DELAY,
            is_shown: false,
            is_terminal: std::io::stderr().is_terminal(),
        }
    }

    /// Adds finished objects.
    pub(crate) fn add(&mut self, done: u64) {
        self.done += done;
        if !self.is_terminal || Instant::now() < self.next {
            return;
        }
        self.next = Instant::now() + INTERVAL;
        self.is_shown = true;
        // A failed write to the terminal does not matter.
        let _ = write!(std::io::stderr(), "\r\x1b[K{}", self.line());
    }

    fn line(&self) -> String {
        match self.total {
            Some(total) => format!("{} of {total} {}", self.done, self.what),
            None => format!("{} {}", self.done, self.what),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_names_counted_objects() {
        let mut progress = Progress::new("files", Some(3));
        progress.add(2);
        assert_eq!(progress.line(), "2 of 3 files");
        assert_eq!(Progress::new("records", None).line(), "0 records");
    }
}
