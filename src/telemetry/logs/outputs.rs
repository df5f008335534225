//! Destinations of the collector's own log lines.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;

use tributary_storage::own_files;

/// Destinations of lines.
#[derive(Clone)]
pub(super) struct Outputs(Arc<[Output]>);

impl Outputs {
    /// Opens the destinations `stderr`, `stdout` and files.
    ///
    /// # Errors
    /// Returns an error that names the file that cannot be opened.
    pub(super) fn open(paths: &[String]) -> io::Result<Self> {
        let outputs = paths.iter().map(|path| Output::open(path));
        Ok(Outputs(outputs.collect::<io::Result<Vec<_>>>()?.into()))
    }
}

enum Output {
    Stderr,
    Stdout,
    File(File),
}

impl Output {
    fn open(path: &str) -> io::Result<Output> {
        match path {
            "stderr" => Ok(Output::Stderr),
            "stdout" => Ok(Output::Stdout),
            path => own_files::open(
                OpenOptions::new().append(true).create(true).mode(FILE_MODE),
                Path::new(path),
            )
            .map_or_else(
                |error| {
                    let text = format!("service.telemetry.logs.output_paths: {path}: {error}");
                    Err(io::Error::new(error.kind(), text))
                },
                |file| Ok(Output::File(file)),
            ),
        }
    }
}

impl Write for Outputs {
    /// Writes a line to all outputs. A failed write is not retried and does not affect other
    /// outputs.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        for output in self.0.iter() {
            let _ = match output {
                Output::Stderr => io::stderr().write_all(line),
                Output::Stdout => io::stdout().write_all(line),
                Output::File(file) => (&*file).write_all(line),
            };
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Mode of new log files: logs name clients and must not be readable by all users. Log shippers
/// read them by the group.
const FILE_MODE: u32 = 0o640;
