//! `_manifest.jsonl`: a line for each finished file.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use jiff::Timestamp;
use serde::Serialize;
use tributary_storage::own_files;

use super::part::{Finished, Part};
use super::place::directory::{Directory, set_mode};

/// The destination of the lines.
#[derive(Debug)]
pub(super) struct Manifest {
    path: PathBuf,
    mode: u32,
}

#[derive(Serialize)]
struct Line<'a> {
    file: &'a str,
    signal: &'static str,
    /// Hour of the rows and service, as in the directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    hour: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    service: Option<&'a str>,
    rows: u64,
    bytes: u64,
    /// Timestamps of the first and the last row.
    first: Option<String>,
    last: Option<String>,
    finished: String,
}

impl Manifest {
    /// Returns the manifest in the root of the directory. Readers skip files that begin with `_`.
    pub(super) fn of(directory: &Directory) -> Self {
        Manifest {
            path: directory.root().join("_manifest.jsonl"),
            mode: directory.file_mode(),
        }
    }

    /// Appends the line of a file. A single call writes the line, so that lines of several
    /// processes do not mix.
    pub(super) fn add(&self, part: &Part, finished: Finished) -> io::Result<()> {
        let summary = finished.summary;
        let time = |nanos: i64| Timestamp::from_nanosecond(i128::from(nanos)).ok();
        let line = Line {
            file: &part.path,
            signal: part.key.kind.name(),
            hour: part.key.begin().map(|hour| hour.to_string()),
            service: part.key.service.as_deref(),
            rows: summary.rows,
            bytes: finished.bytes,
            first: summary
                .timestamps
                .and_then(|(first, _)| Some(time(first)?.to_string())),
            last: summary
                .timestamps
                .and_then(|(_, last)| Some(time(last)?.to_string())),
            finished: Timestamp::now().to_string(),
        };
        let mut line = serde_json::to_vec(&line)?;
        line.push(b'\n');
        let mut file = own_files::open(
            OpenOptions::new().append(true).create(true).mode(self.mode),
            &self.path,
        )?;
        let before = file.metadata()?.len();
        if before == 0 {
            set_mode(&file, self.mode)?;
        }
        file.write_all(&line).inspect_err(|_| {
            // A partial line would spoil the next one. No other process appends while the disk is
            // full.
            let _ = file.set_len(before);
        })
    }
}
