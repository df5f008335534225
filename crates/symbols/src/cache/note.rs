//! Notes about missing symbol files.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::failure::FailureKind;
use crate::worker::WorkerLimits;

/// Maximum size of a note in bytes.
const NOTE_BYTES: u64 = 4096;

/// Kind of the missing symbols.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SymbolKind {
    /// Any symbols.
    Any,
    /// Symbols with lines, for a build id with symbols without lines.
    Better,
}

impl SymbolKind {
    pub(super) fn extension(self) -> &'static str {
        match self {
            SymbolKind::Any => "absent",
            SymbolKind::Better => "better",
        }
    }
}

/// The reason why a build id has no symbol file, and its expiry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Absence {
    /// Kind of the failure.
    pub kind: FailureKind,
    /// Time until which no query to a source is needed.
    pub until: SystemTime,
    /// Limits of the worker at the time of the note; higher limits may give another result.
    pub limits: WorkerLimits,
    /// Fingerprints of useless files, which are not tried again.
    pub rejected: Vec<u64>,
}

impl Absence {
    /// Formats the note: reason, expiry, limits and fingerprints.
    pub(super) fn note(&self) -> String {
        let until = self.until.duration_since(UNIX_EPOCH).unwrap_or_default();
        let WorkerLimits {
            memory,
            cpu,
            input,
            output,
        } = self.limits;
        let (kind, until, cpu) = (self.kind.name(), until.as_secs(), cpu.as_secs());
        let mut note = format!("{kind} {until} {memory}:{cpu}:{input}:{output}");
        for fingerprint in &self.rejected {
            note.push_str(&format!(" {fingerprint:x}"));
        }
        note
    }

    pub(super) fn read(path: &Path) -> Option<Self> {
        let mut note = String::new();
        let file = File::open(path).ok()?;
        file.take(NOTE_BYTES).read_to_string(&mut note).ok()?;
        let mut words = note.split(' ');
        let kind = FailureKind::from_name(words.next()?)?;
        let until = Duration::from_secs(words.next()?.parse().ok()?);
        let limits: Result<Vec<u64>, _> = words.next()?.split(':').map(str::parse).collect();
        let [memory, cpu, input, output] = *limits.ok()?.as_slice() else {
            return None;
        };
        let rejected = words.map(|word| u64::from_str_radix(word, 16));
        Some(Absence {
            kind,
            until: UNIX_EPOCH.checked_add(until)?,
            limits: WorkerLimits {
                memory,
                cpu: Duration::from_secs(cpu),
                input,
                output,
            },
            rejected: rejected.collect::<Result<_, _>>().ok()?,
        })
    }
}
