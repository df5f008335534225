//! Notes why there is no symbol file.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::failure::Kind;
use crate::worker::WorkerLimits;

/// The most bytes of a note.
const NOTE_BYTES: u64 = 4096;

/// What there is none of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Any symbols.
    Any,
    /// Symbols with lines, where there are some without.
    Better,
}

impl Wanted {
    pub(super) fn extension(self) -> &'static str {
        match self {
            Wanted::Any => "absent",
            Wanted::Better => "better",
        }
    }
}

/// Why there is no symbol file for a build id, and until when that counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Absence {
    /// Why.
    pub kind: Kind,
    /// Until when nobody need ask again.
    pub until: SystemTime,
    /// What a worker was allowed to use: with more, something else may come of it.
    pub limits: WorkerLimits,
    /// What was found and was of no use, by fingerprints: the same need not be tried again.
    pub rejected: Vec<u64>,
}

impl Absence {
    /// Why, until when, the limits, and the fingerprints.
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
        let kind = Kind::from_name(words.next()?)?;
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
