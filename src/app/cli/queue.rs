//! `collector queue`: inspects and empties persistent queues that no collector uses.

mod drain;

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Subcommand, ValueEnum};
use jiff::Timestamp;

use super::options::{Locations, Shape};
use crate::queue::decode_record;
use crate::telemetry::terminal::Progress;
use tributary_config::units;
use tributary_storage::{LogContents, QueueName};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Show the contents of persistent queues: records, items, age, files, damage. Changes nothing.
    /// Exits with 1 if a record or file is damaged.
    Inspect {
        /// Directory of a queue or of a `file_storage` extension.
        #[arg(value_name = "DIRECTORY")]
        directory: PathBuf,
        #[command(flatten)]
        shape: Shape,
    },
    /// Send the records of a persistent queue and remove each record after delivery. No collector
    /// may use the queue at the same time.
    Drain(drain::Arguments),
    /// Write the records of a persistent queue to a file in order, as the `file` exporter does. The
    /// queue keeps the records.
    Export {
        /// Directory of the queue.
        #[arg(value_name = "DIRECTORY")]
        directory: PathBuf,
        /// Output file.
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        /// Output format: JSON lines, or protobuf messages with length prefixes.
        #[arg(long, value_enum, default_value_t = Format::Json)]
        format: Format,
    },
}

/// Format of the written requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    Json,
    Proto,
}

/// Output of a command, and its exit code.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Text for stdout.
    pub(super) output: String,
    /// Text for stderr.
    pub(super) notes: String,
    pub(super) code: u8,
}

impl Outcome {
    fn failed(error: &str) -> Self {
        Outcome {
            notes: format!("error: {error}\n"),
            code: 1,
            ..Outcome::default()
        }
    }
}

impl Command {
    /// Whether the command accepts a configuration.
    pub(super) fn reads_configuration(&self) -> bool {
        matches!(self, Command::Drain(_))
    }
}

/// Runs the command. `before` holds the options before the sub-command.
pub(super) fn run(command: &Command, before: &Locations) -> Outcome {
    let done = match command {
        Command::Inspect { directory, shape } => inspect(directory, *shape),
        Command::Drain(arguments) => drain::run(arguments, &arguments.sources(before)),
        Command::Export {
            directory,
            output,
            format,
        } => export(directory, output, *format),
    };
    done.unwrap_or_else(|error| Outcome::failed(&error))
}

/// Returns the queue's name, from the name of its directory.
fn name_of(directory: &Path) -> Result<QueueName, String> {
    let whole = directory
        .canonicalize()
        .map_err(|error| format!("{}: {error}", directory.display()))?;
    let name = whole.file_name().and_then(|name| name.to_str());
    name.and_then(QueueName::of_directory).ok_or_else(|| {
        format!(
            "{} is not a queue on disk, which has a name like `exporter_otlp_grpc_traces`; list the queues with \
             `collector queue inspect` and the directory of `file_storage`",
            directory.display()
        )
    })
}

fn inspect(directory: &Path, shape: Shape) -> Result<Outcome, String> {
    let queues = match name_of(directory) {
        Ok(name) => vec![(name, directory.to_owned())],
        Err(no_queue) => {
            let listed = tributary_storage::list(directory);
            let listed = listed.map_err(|error| format!("{}: {error}", directory.display()))?;
            if listed.is_empty() {
                return Err(no_queue);
            }
            listed
        }
    };
    let mut outcome = Outcome::default();
    let mut described = Vec::new();
    for (name, path) in queues {
        match tributary_storage::inspect(&path) {
            Ok(contents) => {
                match shape.json {
                    true => described.push(to_json(&name, &path, &contents)),
                    false => outcome.output += &describe(&name, &path, &contents),
                }
                if contents.found.lost_records > 0 || !contents.found.damaged.is_empty() {
                    outcome.code = 1;
                }
            }
            Err(error) => {
                outcome.notes += &format!("error: {error}\n");
                outcome.code = 1;
            }
        }
    }
    if shape.json {
        let text = serde_json::to_string_pretty(&described).map_err(|error| error.to_string())?;
        outcome.output = text + "\n";
    }
    Ok(outcome)
}

/// Returns the time at which the oldest record was written.
fn oldest(contents: &LogContents) -> Option<Timestamp> {
    let oldest = contents.found.oldest?;
    Timestamp::from_millisecond(oldest.try_into().ok()?).ok()
}

/// Returns the time since the oldest record was written.
fn age(oldest: Timestamp) -> Duration {
    let seconds = Timestamp::now().duration_since(oldest).as_secs();
    Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
}

fn to_json(name: &QueueName, path: &Path, contents: &LogContents) -> serde_json::Value {
    let found = &contents.found;
    let damaged = found.damaged.iter().map(|(file, offset, bytes)| {
        serde_json::json!({"file": file.display().to_string(), "offset": offset, "bytes": bytes})
    });
    let oldest = oldest(contents);
    serde_json::json!({
        "exporter": name.exporter.to_string(),
        "signal": name.signal.name(),
        "directory": path.display().to_string(),
        "records": found.records,
        "items": found.items,
        "oldest": oldest.map(|oldest| oldest.to_string()),
        "oldest_age_seconds": oldest.map(|oldest| age(oldest).as_secs()),
        "bytes": found.bytes,
        "files": contents.segments,
        "damaged": damaged.collect::<Vec<_>>(),
        "lost_records": found.lost_records,
        "position_lost": found.position_lost,
        "cut_bytes": found.cut_bytes,
        "in_use": contents.in_use,
    })
}

fn describe(name: &QueueName, path: &Path, contents: &LogContents) -> String {
    let found = &contents.found;
    let mut text = format!("{}, {}: {}\n", name.exporter, name.signal, path.display());
    if tributary_storage::has_dead_letters(path) {
        text.insert_str(0, "dead letters of ");
    }
    let waiting = format!(
        "{} records, {} {}",
        found.records,
        found.items,
        name.signal.items_name()
    );
    let oldest = oldest(contents).map_or_else(String::new, |oldest| {
        let age = units::Duration(age(oldest));
        format!(", the oldest is {age} old (from {oldest})")
    });
    // Writing to a string does not fail.
    let _ = writeln!(text, "  waiting: {waiting}{oldest}");
    let _ = writeln!(
        text,
        "  on disk: {} bytes in {} files",
        found.bytes, contents.segments
    );
    for (file, offset, bytes) in &found.damaged {
        let _ = writeln!(
            text,
            "  damaged: {bytes} bytes at {offset} of {}",
            file.display()
        );
    }
    if found.lost_records > 0 {
        let _ = writeln!(
            text,
            "  lost: {} records in damaged blocks",
            found.lost_records
        );
    }
    if found.position_lost {
        let _ = writeln!(
            text,
            "  position: damaged, so delivered records count as waiting"
        );
    }
    if found.cut_bytes > 0 {
        let _ = writeln!(
            text,
            "  incomplete: {} bytes of the last write",
            found.cut_bytes
        );
    }
    if contents.in_use {
        let _ = writeln!(text, "  in use by a running collector: the numbers change");
    }
    text
}

fn export(directory: &Path, output: &Path, format: Format) -> Result<Outcome, String> {
    name_of(directory)?;
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", output.display());
    let mut file = BufWriter::new(File::create(output).map_err(|error| failed(&error))?);
    let (mut records, mut items, mut strange) = (0_u64, 0_u64, 0_u64);
    let waiting = tributary_storage::backlog(directory).map_err(|error| error.to_string())?;
    let found = waiting.found;
    let mut progress = Progress::new("records", Some(found.records as u64));
    for record in waiting.records {
        progress.add(1);
        let (of_record, data) = record.map_err(|error| error.to_string())?;
        let Some(batch) = decode_record(vec![data], of_record) else {
            strange += 1;
            continue;
        };
        let signal = batch.signal();
        for request in batch.wire().parts() {
            let written = match format {
                Format::Json => {
                    let json = tributary_otlp::json::from_wire(signal, request);
                    let json = json.map_err(|error| failed(&error))?;
                    file.write_all(&json).and_then(|()| file.write_all(b"\n"))
                }
                Format::Proto => {
                    let length = u32::try_from(request.len()).map_err(|error| failed(&error))?;
                    file.write_all(&length.to_be_bytes())
                        .and_then(|()| file.write_all(request))
                }
            };
            written.map_err(|error| failed(&error))?;
        }
        records += 1;
        items += of_record as u64;
    }
    drop(progress);
    file.flush().map_err(|error| failed(&error))?;
    let mut outcome = Outcome {
        notes: format!(
            "wrote {records} records with {items} items to {}\n",
            output.display()
        ),
        ..Outcome::default()
    };
    if found.lost_records > 0 || !found.damaged.is_empty() {
        outcome.notes += &format!(
            "error: {} records in {} damaged blocks are lost; `collector queue inspect` lists the blocks\n",
            found.lost_records,
            found.damaged.len(),
        );
        outcome.code = 1;
    }
    if strange > 0 {
        outcome.notes += &format!("error: {strange} records are not valid batches; skipped them\n");
        outcome.code = 1;
    }
    Ok(outcome)
}
