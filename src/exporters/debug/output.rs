//! Destinations of the text.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use parking_lot::Mutex;
use tributary_storage::own_files;

use crate::component::BuildError;

/// Destination of the text: the collector's own log, or a list of sinks.
pub(super) enum Output {
    Log,
    Sinks(Mutex<Vec<Sink>>),
}

pub(super) enum Sink {
    Stdout,
    Stderr,
    File { path: String, file: File },
}

/// Mode of a new file. Only the user of the collector may read telemetry.
const FILE_MODE: u32 = 0o600;

impl Sink {
    pub(super) fn open(path: &str) -> Result<Sink, BuildError> {
        Ok(match path {
            "stdout" => Sink::Stdout,
            "stderr" => Sink::Stderr,
            path => Sink::File {
                path: path.to_owned(),
                file: own_files::open(
                    OpenOptions::new().append(true).create(true).mode(FILE_MODE),
                    Path::new(path),
                )
                .map_err(|error| BuildError(format!("cannot open \"{path}\": {error}")))?,
            },
        })
    }

    pub(super) fn write(&mut self, text: &[u8]) -> io::Result<()> {
        let (name, result) = match self {
            Sink::Stdout => ("stdout", io::stdout().write_all(text)),
            Sink::Stderr => ("stderr", io::stderr().write_all(text)),
            Sink::File { path, file } => (path.as_str(), file.write_all(text)),
        };
        result.map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))
    }
}
