//! Loads profiles from a file.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use opentelemetry_proto::tonic::common::v1::{InstrumentationScope, KeyValue};

use super::fetch;
use super::input::{self, LIMIT};
use super::labels;
use super::selection::Selection;
use crate::profile_files::{
    FileKind, convert, executable, file_kind, read_profiles, requests, valid,
};
use crate::telemetry::terminal::Progress;
use tributary_memory::{Budget, Permit};
use tributary_profiles::merge::{MergeOptions, Merger};
use tributary_profiles::model::{ResourceProfiles, ScopeProfiles};
use tributary_profiles::pprof;
use tributary_profiles::pprof::{PprofReader, Repairs};
use tributary_profiles::{Dictionary, Profiles, names};

/// Profiles of a file, with notes about them.
pub(super) struct Loaded {
    pub(super) profiles: Profiles,
    /// Name of the source, for errors.
    pub(super) name: String,
    pub(super) notes: String,
    /// Format of the first file.
    pub(super) kind: FileKind,
}

/// Options for reading profiles.
#[derive(Debug, Default, Args)]
pub(in crate::app::cli) struct Reading {
    #[command(flatten)]
    pub(super) fetching: fetch::Fetching,
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    pub(super) labels: labels::Labels,
    /// Repair pprof files with invalid ids and references instead of refusing them. Notes on stderr count the repairs.
    #[arg(long)]
    lenient: bool,
}

impl Reading {
    /// Reads and decompresses a file, a URL, or the profiles that a query selects.
    fn read(&self, file: &Path) -> Result<Vec<u8>, String> {
        match self.selection.url(file)? {
            Some(url) => input::read(Path::new(&url), &self.fetching),
            None => input::read(file, &self.fetching),
        }
    }

    fn options(&self) -> pprof::ReadOptions {
        pprof::ReadOptions {
            limit: usize::try_from(LIMIT).unwrap_or(usize::MAX),
            links: self.labels.links(),
            lenient: self.lenient,
            ..pprof::ReadOptions::default()
        }
    }
}

/// Reads a file without loss.
pub(super) fn load(file: &Path, reading: &Reading) -> Result<Loaded, String> {
    let name = file.display();
    let failed = |error: String| format!("{name}: {error}");
    let bytes = reading.read(file).map_err(failed)?;
    let kind = file_kind(&bytes);
    let mut notes = String::new();
    let read = read_profiles(&bytes, kind, &reading.options(), &mut unlimited());
    let (profiles, repairs) = read.map_err(|error| failed(error.to_string()))?;
    note(&mut notes, file, repairs);
    Ok(Loaded {
        profiles,
        name: name.to_string(),
        notes,
        kind,
    })
}

pub(super) fn merge(files: &[PathBuf], reading: &Reading) -> Result<Loaded, String> {
    let mut merger = Merger::new(MergeOptions::default());
    let mut notes = String::new();
    let mut first = None;
    let mut main = None;
    let mut defaults = Defaults::default();
    let mut progress = Progress::new("files", Some(files.len() as u64));
    for file in files {
        progress.add(1);
        let name = file.display();
        let failed = |error: String| format!("{name}: {error}");
        let bytes = reading.read(file).map_err(failed)?;
        let kind = file_kind(&bytes);
        first.get_or_insert(kind);
        match kind {
            FileKind::Otlp | FileKind::OtlpJson => {
                for request in requests(&bytes, kind).map_err(failed)? {
                    let request = request.map_err(failed)?;
                    valid(&request).map_err(failed)?;
                    let added = merger.add_encoded(&request);
                    added.map_err(|error| failed(error.to_string()))?;
                }
            }
            FileKind::Pprof | FileKind::Foreign(_) => {
                let (dictionary, relocations) = merger.dictionary();
                let read = convert(
                    &bytes,
                    kind.format(),
                    &reading.options(),
                    &mut unlimited(),
                    dictionary,
                    Some(relocations),
                );
                let mut converted = read.map_err(|error| failed(error.to_string()))?;
                note(&mut notes, file, converted.repairs);
                defaults.take(&mut converted.profiles);
                if main.is_none() {
                    main = executable(merger.dictionary().0, converted.main);
                }
                // The files may come from processes with different paths, so the resource does not
                // keep the program's name.
                merger.add_profiles(&[ResourceProfiles {
                    scopes: vec![converted.profiles],
                    ..ResourceProfiles::default()
                }]);
            }
        }
    }
    let saturated = merger.counts().saturated;
    if saturated > 0 {
        let _ = writeln!(
            notes,
            "note: {saturated} sums exceed 64 bits and were set to the maximum"
        );
    }
    let mut profiles = defaults.restore(merger.finish())?;
    for resource in &mut profiles.resources {
        if resource.resource.is_none() {
            resource.resource = Some(main.clone().unwrap_or_default());
        }
    }
    let name = match files {
        [file] => file.display().to_string(),
        files => format!("these {} files", files.len()),
    };
    Ok(Loaded {
        profiles,
        name,
        notes,
        kind: first.unwrap_or(FileKind::Otlp),
    })
}

/// The default sample types of merged pprof files. Files with different default sample types are merged. As in pprof, the
/// result has the first default sample type that is not empty.
#[derive(Default)]
struct Defaults {
    /// The first default sample type for each order of sample types. Files with different numbers of sample types are not
    /// merged.
    first: Vec<(Option<KeyValue>, KeyValue)>,
}

impl Defaults {
    /// Removes the default sample type from the scope of a file and remembers it.
    fn take(&mut self, scope: &mut ScopeProfiles) {
        let order = attribute(&scope.scope, names::SAMPLE_TYPE_ORDER);
        let default = attribute(&scope.scope, names::DEFAULT_SAMPLE_TYPE);
        let Some(default) = default else { return };
        if let Some(scope) = &mut scope.scope {
            scope.attributes.retain(|kept| *kept != default);
        }
        if self.of(&order).is_none() {
            self.first.push((order, default));
        }
    }

    fn of(&self, order: &Option<KeyValue>) -> Option<&KeyValue> {
        let mut first = self.first.iter();
        let found = first.find(|(of, _)| of == order);
        found.map(|(_, default)| default)
    }

    /// Sets the default sample type of their order in all scopes without a default sample type.
    fn restore(&self, mut profiles: Profiles) -> Result<Profiles, String> {
        let mut are_equal = false;
        for resource in &mut profiles.resources {
            for scope in &mut resource.scopes {
                let order = attribute(&scope.scope, names::SAMPLE_TYPE_ORDER);
                if attribute(&scope.scope, names::DEFAULT_SAMPLE_TYPE).is_none()
                    && let (Some(default), Some(scope)) = (self.of(&order), &mut scope.scope)
                {
                    scope.attributes.push(default.clone());
                }
            }
            let mut scopes = resource.scopes.as_slice();
            while let [one, others @ ..] = scopes {
                let same = |other: &ScopeProfiles| other.scope == one.scope;
                are_equal |= others.iter().any(same);
                scopes = others;
            }
        }
        if !are_equal {
            return Ok(profiles);
        }
        // An OTLP file already had the default sample type, so its scope became equal to the scope of a pprof file.
        let mut merger = Merger::new(MergeOptions::default());
        let added = merger.add_encoded(&profiles.encode());
        added.map_err(|error| error.to_string())?;
        Ok(merger.finish())
    }
}

fn attribute(scope: &Option<InstrumentationScope>, key: &str) -> Option<KeyValue> {
    let mut attributes = scope.iter().flat_map(|scope| &scope.attributes);
    attributes.find(|attribute| attribute.key == key).cloned()
}

/// Reads decompressed bytes as a pprof file, for the reason of the error.
pub(super) fn check_pprof(bytes: &[u8]) -> Result<(), String> {
    let (options, mut dictionary) = (Reading::default().options(), Dictionary::new());
    let read = PprofReader::new().read(bytes, &options, &mut unlimited(), &mut dictionary, None);
    read.map(|_| ()).map_err(|error| error.to_string())
}

/// Returns a permit for a file that is already read and decompressed, so that its size limits the memory.
fn unlimited() -> Permit {
    Budget::new(usize::MAX).empty_permit()
}

fn note(notes: &mut String, file: &Path, repairs: Repairs) {
    for (kind, count) in repairs.counts() {
        let what = match kind {
            "strings" => "strings are not UTF-8: replaced invalid bytes by U+FFFD",
            "negative" => "lines, columns, periods or times are negative: replaced them by 0",
            "mappings" => "mappings are invalid or missing",
            "labels" => "labels have no key: removed them",
            "saturated" => "sums exceed 64 bits and were set to the maximum",
            "ids" => "entries have no id, or the id of another entry",
            "references" => "references to missing entries were removed",
            _ => "samples have a wrong number of values: dropped them",
        };
        if count > 0 {
            let _ = writeln!(notes, "{}: note: {count} {what}", file.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::common::v1::any_value::Value;

    use super::*;

    /// Writes a pprof file with the sample types `samples` and `cpu`; `default` selects the default
    /// sample type unless it is 0.
    fn pprof_file(directory: &Path, name: &str, default: u8) -> PathBuf {
        let mut file = vec![0x0a, 2, 8, 1, 0x0a, 2, 8, 2];
        // A sample of no location.
        file.extend([0x12, 4, 0x12, 2, 3, 4]);
        for text in ["", "samples", "cpu"] {
            file.extend([0x32, u8::try_from(text.len()).unwrap()]);
            file.extend(text.as_bytes());
        }
        file.extend([0x70, default]);
        let path = directory.join(name);
        std::fs::write(&path, file).unwrap();
        path
    }

    /// Returns the default sample types of merged files, by scope.
    fn defaults(files: &[PathBuf]) -> Vec<Option<String>> {
        let merged = merge(files, &Reading::default()).unwrap().profiles;
        let scopes = merged.resources.iter().flat_map(|of| &of.scopes);
        let text = |attribute: KeyValue| match attribute.value?.value? {
            Value::StringValue(text) => Some(text),
            _ => None,
        };
        scopes
            .map(|of| attribute(&of.scope, names::DEFAULT_SAMPLE_TYPE).and_then(text))
            .collect()
    }

    #[test]
    fn merged_files_keep_first_default_sample_type() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, default| pprof_file(directory.path(), name, default);
        let (none, samples, cpu) = (file("none", 0), file("samples", 1), file("cpu", 2));
        let cpu_first = Some("cpu".to_owned());
        assert_eq!(defaults(&[none.clone(), none.clone()]), [None]);
        let of_three = defaults(&[none.clone(), cpu.clone(), samples]);
        assert_eq!(of_three.first(), Some(&cpu_first));
        // The same file as OTLP.
        let mut loaded = load(&cpu, &Reading::default()).unwrap().profiles;
        loaded.resources[0].resource = None;
        let otlp = directory.path().join("otlp");
        std::fs::write(&otlp, loaded.encode()).unwrap();
        assert_eq!(defaults(&[otlp, none, cpu]), [cpu_first]);
    }
}
