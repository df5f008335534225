//! `collector top`: shows the pipelines of a running collector in a terminal.

mod screen;

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;

use super::fetch::Fetching;
use super::{Failure, Invocation, deliver, pretty};

/// Interval between two snapshots. The console creates at most one snapshot per second.
const INTERVAL: Duration = Duration::from_secs(1);
/// Maximum length of a snapshot, in bytes.
const MAX_SNAPSHOT: u64 = 16 << 20;

/// Shows snapshots from the console at this URL: once, or repeatedly until the process is interrupted.
///
/// # Errors
/// There is no response, or the response is not a snapshot. A repeated view does not fail but waits for the collector.
pub(super) fn run(
    url: &str,
    once: bool,
    as_json: bool,
    fetching: &Fetching,
) -> Result<Invocation, Failure> {
    let url = format!("{}/api/v1/pipeline", url.trim_end_matches('/'));
    if once || as_json || !std::io::stdout().is_terminal() {
        // Rates need two snapshots.
        let first = snapshot(&url, fetching);
        first.map_err(|error| failure(&url, &error))?;
        sleep(INTERVAL);
        let latest = snapshot(&url, fetching).map_err(|error| failure(&url, &error))?;
        let text = match as_json {
            true => pretty(&latest)?,
            false => screen::render(&latest, screen::Size::default()),
        };
        return deliver(text.as_bytes(), ExitCode::SUCCESS);
    }
    loop {
        let text = match snapshot(&url, fetching) {
            Ok(latest) => screen::render(&latest, screen::size()),
            Err(error) => format!("{url}: {error}\n\nWaiting for the collector. Ctrl-C ends.\n"),
        };
        // Overwrites line by line, so that the screen does not flicker.
        let text = text.replace('\n', "\x1b[K\n");
        let mut stdout = std::io::stdout().lock();
        let written = write!(stdout, "\x1b[H{text}\x1b[J").and_then(|()| stdout.flush());
        if written.is_err() {
            return Ok(Invocation::Done(ExitCode::SUCCESS));
        }
        drop(stdout);
        sleep(INTERVAL);
    }
}

fn snapshot(url: &str, fetching: &Fetching) -> Result<Value, String> {
    let answer = fetching.fetch(url, MAX_SNAPSHOT)?;
    let snapshot: Value = serde_json::from_slice(&answer)
        .map_err(|error| format!("the answer is not a snapshot of a collector: {error}"))?;
    match snapshot["nodes"].is_array() {
        true => Ok(snapshot),
        false => Err("the answer is not a snapshot of a collector".to_owned()),
    }
}

fn failure(url: &str, error: &str) -> Failure {
    Failure {
        code: 1,
        text: format!(
            "error: {url}: {error}\n  = help: the collector needs the extension `console` at this address\n"
        ),
    }
}
