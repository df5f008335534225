//! `collector health`: whether a running collector does its job.

use super::fetch::Fetching;
use super::{Failure, printable};

/// How long an answer may be, in bytes: it has a line for every exporter that is in trouble.
const LONGEST: u64 = 1 << 20;

/// What the collector's `health_check` answers.
pub(super) fn ask(url: &str, fetching: &Fetching) -> Result<String, Failure> {
    match fetching.fetch(url, LONGEST) {
        Ok(answer) => Ok(printable(String::from_utf8_lossy(&answer).trim_end()) + "\n"),
        Err(error) => Err(Failure {
            code: 1,
            text: format!("error: {url}: {error}\n"),
        }),
    }
}
