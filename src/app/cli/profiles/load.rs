//! From a file to profiles.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;

use super::fetch;
use super::input::{self, Kind, LIMIT};
use super::labels;
use tributary_memory::Budget;
use tributary_otlp::Signal;
use tributary_otlp::json;
use tributary_profiles::id::MappingId;
use tributary_profiles::merge::{Merger, Options};
use tributary_profiles::model::{ResourceProfiles, ScopeProfiles};
use tributary_profiles::pprof;
use tributary_profiles::pprof::{Reader, Repairs, write};
use tributary_profiles::{Compactor, Dictionary, Profiles, folded, names};

/// A file's profiles, and what to say about them.
pub(super) struct Loaded {
    pub(super) profiles: Profiles,
    /// What they are of, for errors.
    pub(super) name: String,
    pub(super) notes: String,
    /// Of the first file.
    pub(super) kind: Kind,
}

/// How profiles are read.
#[derive(Debug, Default, Args)]
pub(in crate::app::cli) struct Reading {
    #[command(flatten)]
    pub(super) fetching: fetch::Fetching,
    #[command(flatten)]
    pub(super) labels: labels::Labels,
}

/// Reads a file without a loss.
pub(super) fn load(file: &Path, reading: &Reading) -> Result<Loaded, String> {
    let name = file.display();
    let failed = |error: String| format!("{name}: {error}");
    let bytes = input::read(file, &reading.fetching).map_err(failed)?;
    let kind = input::kind(&bytes);
    let mut notes = String::new();
    let profiles = match kind {
        Kind::Otlp | Kind::OtlpJson => {
            let mut compactor = Compactor::new();
            for request in requests(&bytes, kind).map_err(failed)? {
                input::valid(&request).map_err(failed)?;
                let added = compactor.add_encoded(&request);
                added.map_err(|error| failed(error.to_string()))?;
            }
            compactor.finish()
        }
        Kind::Pprof => {
            let mut dictionary = Dictionary::new();
            let mut reader = Reader::new();
            let converted = read_pprof(
                &mut reader,
                &bytes,
                reading,
                |bytes, reader, options, permit| {
                    reader.read(bytes, options, permit, &mut dictionary, None)
                },
            );
            let converted = converted.map_err(failed)?;
            note(&mut notes, file, converted.repairs);
            let resource = executable(&dictionary, converted.main);
            Profiles {
                dictionary,
                resources: vec![ResourceProfiles {
                    // Empty rather than absent: there are readers that fail on an absent one.
                    resource: Some(resource.unwrap_or_default()),
                    schema_url: String::new(),
                    scopes: vec![converted.profiles],
                }],
            }
        }
        Kind::Folded => folded::read(&text(bytes)).map_err(|error| failed(error.to_string()))?,
    };
    Ok(Loaded {
        profiles,
        name: name.to_string(),
        notes,
        kind,
    })
}

/// Adds files up.
pub(super) fn merge(files: &[PathBuf], reading: &Reading) -> Result<Loaded, String> {
    let mut merger = Merger::new(Options::default());
    let mut reader = Reader::new();
    let mut notes = String::new();
    let mut first = None;
    let mut main = None;
    let mut shown = None;
    for file in files {
        let name = file.display();
        let failed = |error: String| format!("{name}: {error}");
        let bytes = input::read(file, &reading.fetching).map_err(failed)?;
        let kind = input::kind(&bytes);
        first.get_or_insert(kind);
        match kind {
            Kind::Otlp | Kind::OtlpJson => {
                for request in requests(&bytes, kind).map_err(failed)? {
                    input::valid(&request).map_err(failed)?;
                    let added = merger.add_encoded(&request);
                    added.map_err(|error| failed(error.to_string()))?;
                }
            }
            Kind::Pprof => {
                let (dictionary, relocations) = merger.dictionary();
                let read = read_pprof(
                    &mut reader,
                    &bytes,
                    reading,
                    |bytes, reader, options, permit| {
                        reader.read(bytes, options, permit, dictionary, Some(relocations))
                    },
                );
                let mut converted = read.map_err(failed)?;
                note(&mut notes, file, converted.repairs);
                shown_as(&mut shown, &mut converted.profiles);
                if main.is_none() {
                    main = executable(merger.dictionary().0, converted.main);
                }
                // The files may be of processes with different paths: what they are is not kept in the resource.
                merger.add_profiles(&[ResourceProfiles {
                    scopes: vec![converted.profiles],
                    ..ResourceProfiles::default()
                }]);
            }
            Kind::Folded => {
                let read = folded::read(&text(bytes)).map_err(|error| failed(error.to_string()))?;
                let added = merger.add_encoded(&read.encode());
                added.map_err(|error| failed(error.to_string()))?;
            }
        }
    }
    let saturated = merger.counts().saturated;
    if saturated > 0 {
        let _ = writeln!(notes, "note: {saturated} sums do not fit and were cut");
    }
    let mut profiles = merger.finish();
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
        kind: first.unwrap_or(Kind::Otlp),
    })
}

/// What is shown first is no reason to keep the profiles of two files apart: as in pprof, it is what the first one says.
/// `first` is the scope of that one. Files with another number of sample types stay as they are.
fn shown_as(first: &mut Option<Option<InstrumentationScope>>, scope: &mut ScopeProfiles) {
    let order = |scope: &Option<InstrumentationScope>| {
        let mut attributes = scope.iter().flat_map(|scope| &scope.attributes);
        attributes
            .find(|attribute| attribute.key == names::SAMPLE_TYPE_ORDER)
            .cloned()
    };
    let first = first.get_or_insert_with(|| scope.scope.clone());
    if order(first) == order(&scope.scope) {
        scope.scope.clone_from(first);
    }
}

fn read_pprof(
    reader: &mut Reader,
    bytes: &[u8],
    reading: &Reading,
    read: impl FnOnce(
        &[u8],
        &mut Reader,
        &pprof::Options,
        &mut tributary_memory::Permit,
    ) -> Result<pprof::Converted, pprof::Error>,
) -> Result<pprof::Converted, String> {
    let limit = usize::try_from(LIMIT).unwrap_or(usize::MAX);
    let options = pprof::Options {
        limit,
        links: reading.labels.links(),
        ..pprof::Options::default()
    };
    // The file is read and decompressed already: nothing more is needed.
    let budget = Budget::new(limit);
    let mut permit = budget.acquire(0).map_err(|error| error.to_string())?;
    read(bytes, reader, &options, &mut permit).map_err(|error| error.to_string())
}

/// Whether these decompressed bytes can be read as a pprof file.
pub(super) fn is_pprof(bytes: &[u8]) -> bool {
    let (mut reader, mut dictionary) = (Reader::new(), Dictionary::new());
    let read = read_pprof(
        &mut reader,
        bytes,
        &Reading::default(),
        |bytes, reader, options, permit| reader.read(bytes, options, permit, &mut dictionary, None),
    );
    read.is_ok()
}

/// The encoded requests of a file.
pub(super) fn requests(bytes: &[u8], kind: Kind) -> Result<Vec<Vec<u8>>, String> {
    if kind == Kind::OtlpJson {
        let request = json::to_wire(Signal::Profiles, bytes)
            .map_err(|error| format!("these are no OTLP profiles as JSON: {error}"))?;
        if request.is_empty() && bytes.trim_ascii() != b"{}" {
            return Err("this is JSON, but no OTLP profiles: it has no `resourceProfiles`".into());
        }
        return Ok(vec![request]);
    }
    let messages = input::messages(bytes)?;
    Ok(messages.into_iter().map(<[u8]>::to_vec).collect())
}

/// What was found to be UTF-8.
fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_default()
}

/// A resource that names the program, as OTLP has no first mapping.
fn executable(dictionary: &Dictionary, main: Option<MappingId>) -> Option<Resource> {
    let file = dictionary.text(dictionary.get_mapping(main?).filename);
    if file.is_empty() {
        return None;
    }
    let key = match file.starts_with('/') {
        true => write::EXECUTABLE_PATH,
        false => write::EXECUTABLE_NAME,
    };
    Some(Resource {
        attributes: vec![KeyValue {
            key: key.to_owned(),
            value: Some(AnyValue {
                value: Some(Value::StringValue(file.to_owned())),
            }),
            key_strindex: 0,
        }],
        ..Resource::default()
    })
}

fn note(notes: &mut String, file: &Path, repairs: Repairs) {
    let Repairs {
        strings,
        negative,
        mappings,
        labels,
        saturated,
    } = repairs;
    let counts = [
        (strings, "strings are not UTF-8: what is not became U+FFFD"),
        (
            negative,
            "lines, columns, periods or times are negative and became 0",
        ),
        (mappings, "mappings are invalid or missing"),
        (labels, "labels have no key and were left out"),
        (saturated, "sums do not fit and were cut"),
    ];
    for (count, what) in counts {
        if count > 0 {
            let _ = writeln!(notes, "{}: note: {count} {what}", file.display());
        }
    }
}
