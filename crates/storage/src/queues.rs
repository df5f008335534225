//! The queues of a `file_storage` extension and their directories.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::lock::Lock;
use super::{Lease, LogRegistry, OpenError, Options, Recovered};
use crate::metrics::StorageMetrics;
use tributary_config::ComponentId;
use tributary_otlp::Signal;

/// Minimum segment size, in bytes. In smaller segments, the overhead of the files would exceed their content.
const MIN_SEGMENT_BYTES: u64 = 1 << 10;
/// Minimum number of segments of a queue with a size limit, so that space is freed in small steps.
const SEGMENTS: u64 = 8;

/// A directory with a queue for each exporter and signal.
#[derive(Debug, Clone)]
pub struct Storage {
    /// Parent directory of the queues.
    pub directory: PathBuf,
    /// Settings of the queues.
    pub options: Options,
}

/// Name of a queue in the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueName {
    /// Exporter that owns the queue.
    pub exporter: ComponentId,
    /// Signal of the records.
    pub signal: Signal,
}

impl Storage {
    /// Opens the queue of an exporter. `most_bytes` is its maximum size on disk, if limited. The second value describes
    /// the recovered data, unless the queue was already open.
    ///
    /// # Errors
    /// See [`LogRegistry::open`].
    pub fn open(
        &self,
        logs: &LogRegistry,
        queue: &QueueName,
        most_bytes: Option<u64>,
    ) -> Result<(Lease, Option<Recovered>), OpenError> {
        let options = bounded(&self.options, most_bytes);
        let labels = [
            ("exporter", queue.exporter.to_string()),
            ("data_type", queue.signal.name().to_owned()),
        ];
        let metrics = StorageMetrics::new(&labels);
        logs.open(&self.directory.join(queue.directory()), &options, metrics)
    }

    /// Opens the dead letters of an exporter's queue: a queue without a reader.
    ///
    /// # Errors
    /// See [`LogRegistry::open`].
    pub fn open_dead_letters(
        &self,
        logs: &LogRegistry,
        queue: &QueueName,
    ) -> Result<Lease, OpenError> {
        // The metrics of dead letters must be separate from the metrics of the queue.
        let metrics =
            metrics::with_local_recorder(&metrics::NoopRecorder, || StorageMetrics::new(&[]));
        let directory = self.directory.join(queue.directory() + DEAD_LETTERS);
        Ok(logs.open(&directory, &self.options, metrics)?.0)
    }
}

const DEAD_LETTERS: &str = ".dead_letters";

/// Whether a directory has dead letters: records that failed again and again.
pub fn has_dead_letters(directory: &Path) -> bool {
    let name = directory.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.ends_with(DEAD_LETTERS))
}

fn bounded(options: &Options, most_bytes: Option<u64>) -> Options {
    let part = most_bytes.map_or(u64::MAX, |most| most / SEGMENTS);
    let part = part.max(MIN_SEGMENT_BYTES);
    Options {
        segment_bytes: options.segment_bytes.min(part),
        busy_segment_bytes: options.busy_segment_bytes.min(part),
        ..options.clone()
    }
}

impl QueueName {
    /// Returns the directory name of the queue. The name resembles the file names of the Collector's `file_storage`,
    /// and is reversible.
    pub fn directory(&self) -> String {
        let mut name = "exporter_".to_owned();
        for letter in self.exporter.to_string().chars() {
            match letter {
                'a'..='z' | 'A'..='Z' | '0'..='9' | '_' | '-' | '.' => name.push(letter),
                // A character outside the basic plane takes two UTF-16 units.
                other => other.encode_utf16(&mut [0; 2]).iter().for_each(|unit| {
                    name.push_str(&format!("~{unit:04X}"));
                }),
            }
        }
        name.push('_');
        name.push_str(self.signal.name());
        name
    }

    /// Parses a directory name. Returns `None` for a directory that is not a queue.
    pub fn of_directory(name: &str) -> Option<Self> {
        let name = name.strip_suffix(DEAD_LETTERS).unwrap_or(name);
        let (id, signal) = name.strip_prefix("exporter_")?.rsplit_once('_')?;
        let mut pieces = id.split('~');
        let mut units: Vec<u16> = pieces.next()?.encode_utf16().collect();
        for piece in pieces {
            let (digits, rest) = piece.split_at_checked(4)?;
            units.push(u16::from_str_radix(digits, 16).ok()?);
            units.extend(rest.encode_utf16());
        }
        Some(QueueName {
            exporter: String::from_utf16(&units).ok()?.parse().ok()?,
            signal: Signal::from_name(signal)?,
        })
    }
}

/// Lists the queues in a directory, by name.
///
/// # Errors
/// The directory cannot be listed.
pub fn list(directory: &Path) -> io::Result<Vec<(QueueName, PathBuf)>> {
    let mut queues = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if let Some(name) = name.and_then(QueueName::of_directory) {
            queues.push((name, path));
        }
    }
    queues.sort_by(|(_, one), (_, other)| one.cmp(other));
    Ok(queues)
}

/// Lists the queues in a directory that no process has open.
///
/// # Errors
/// See [`list`].
pub fn unused(directory: &Path) -> io::Result<Vec<(QueueName, PathBuf)>> {
    let mut queues = list(directory)?;
    queues.retain(|(_, path)| !Lock::is_taken(path));
    Ok(queues)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounded_queue_has_several_segments() {
        let options = Options::default();
        let sizes = |most_bytes| {
            let bounded = bounded(&options, most_bytes);
            (bounded.segment_bytes, bounded.busy_segment_bytes)
        };
        assert_eq!(sizes(None), (16 << 20, 64 << 20));
        assert_eq!(sizes(Some(1 << 40)), (16 << 20, 64 << 20));
        assert_eq!(sizes(Some(256 << 20)), (16 << 20, 32 << 20));
        assert_eq!(sizes(Some(64 << 20)), (8 << 20, 8 << 20));
        assert_eq!(sizes(Some(1)), (MIN_SEGMENT_BYTES, MIN_SEGMENT_BYTES));
    }

    #[test]
    fn each_exporter_has_its_own_named_directory() {
        for (id, signal, directory) in [
            ("otlp_grpc", Signal::Traces, "exporter_otlp_grpc_traces"),
            (
                "otlp_grpc/rack:2",
                Signal::Logs,
                "exporter_otlp_grpc~002Frack~003A2_logs",
            ),
            (
                "otlp/\u{fc}\u{1f600}",
                Signal::Metrics,
                "exporter_otlp~002F~00FC~D83D~DE00_metrics",
            ),
            (
                "file/a_b",
                Signal::Profiles,
                "exporter_file~002Fa_b_profiles",
            ),
        ] {
            let name = QueueName {
                exporter: id.parse().unwrap(),
                signal,
            };
            assert_eq!(name.directory(), directory);
            let dead_letters = format!("{directory}.dead_letters");
            assert_eq!(QueueName::of_directory(&dead_letters), Some(name.clone()));
            assert_eq!(QueueName::of_directory(directory), Some(name));
        }
        for other in [
            "lost+found",
            "exporter_otlp",
            "exporter_otlp_spans",
            "exporter__traces",
        ] {
            assert_eq!(QueueName::of_directory(other), None, "{other}");
        }
    }
}
