//! Writes profiles to a file.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use clap::{Args, ValueEnum};

use super::load::Loaded;
use crate::app::cli::printable;
use tributary_compression::Codec;
use tributary_compression::compress::Compressor;
use tributary_otlp::Signal;
use tributary_otlp::json;
use tributary_profiles::dictionary::ValueType;
use tributary_profiles::pprof::{LinkLabels, write};
use tributary_profiles::{Profiles, folded, top};

/// Destination and format of the output.
#[derive(Debug, Args)]
pub(in crate::app::cli) struct Arguments {
    /// Output format. Default: by the extension of the name after -o (`.pb.gz` and `.pprof`,
    /// `.otlp`, `.json`, `.folded`); merged files keep the format of the first file.
    #[arg(long, value_enum, value_name = "FORMAT")]
    to: Option<Format>,
    /// Output file. Default: stdout. Several pprof files need a directory, in which they are
    /// numbered.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Sample type to count in folded stacks, such as `cpu`. Default: the default sample type of
    /// the profile, else the last sample type of a pprof file.
    #[arg(long, value_name = "NAME")]
    sample_type: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(in crate::app::cli) enum Format {
    /// pprof, with gzip.
    Pprof,
    /// OTLP `ProfilesData` as protobuf.
    Otlp,
    /// OTLP `ProfilesData` as JSON.
    OtlpJson,
    /// Folded stacks, for flame graphs.
    Folded,
}

impl Arguments {
    /// Writes the profiles in the requested or default format; returns the bytes for stdout.
    pub(super) fn write(
        &self,
        loaded: &Loaded,
        links: &LinkLabels,
        default: Option<Format>,
    ) -> Result<Vec<u8>, String> {
        let Loaded { profiles, name, .. } = loaded;
        let several = |count| match count {
            0 => format!("{name}: the file has no profiles"),
            _ => format!(
                "{name}: the output has {count} pprof files, because a pprof file has one resource and one list of \
                 sample types: name an existing directory with -o, or write OTLP with --to otlp"
            ),
        };
        let output = self.output.as_deref();
        let format = match self.to.or_else(|| output.and_then(by_name)).or(default) {
            Some(format) => format,
            None => {
                return Err(
                    "the output format is missing: add --to pprof, otlp, otlp-json or folded"
                        .into(),
                );
            }
        };
        let mut encoded = match format {
            Format::Pprof => pprof(profiles, links)?,
            Format::Otlp => vec![profiles.encode().to_vec()],
            Format::OtlpJson => {
                let json = json::from_wire(Signal::Profiles, &profiles.encode());
                vec![json.map_err(|error| error.to_string())?]
            }
            Format::Folded => {
                let kind = kind(loaded, self.sample_type.as_deref())?;
                vec![folded::write(profiles, kind).into_bytes()]
            }
        };
        let Some(output) = output else {
            return match encoded.len() {
                1 => Ok(encoded.pop().unwrap_or_default()),
                count => Err(several(count)),
            };
        };
        if output.is_dir() && format == Format::Pprof {
            for (bytes, number) in encoded.iter().zip(1..) {
                save(&output.join(format!("profile-{number}.pb.gz")), bytes)?;
            }
            return Ok(Vec::new());
        }
        match encoded.as_slice() {
            [bytes] => save(output, bytes)?,
            files => return Err(several(files.len())),
        }
        Ok(Vec::new())
    }
}

pub(super) fn save(file: &Path, bytes: &[u8]) -> Result<(), String> {
    std::fs::write(file, bytes).map_err(|error| format!("cannot write {}: {error}", file.display()))
}

/// Returns the sample type to count.
pub(super) fn kind(loaded: &Loaded, name: Option<&str>) -> Result<ValueType, String> {
    let Loaded {
        profiles,
        name: file,
        ..
    } = loaded;
    top::sample_type(profiles, name).ok_or_else(|| {
        let Some(name) = name else {
            return format!("{file}: the file has no profiles");
        };
        let types = profiles.iter().map(|profile| {
            let kind = profile.header.sample_type.kind;
            profiles.dictionary.text(kind).to_owned()
        });
        let mut types: Vec<String> = types.collect();
        types.sort_unstable();
        types.dedup();
        format!(
            "{file}: no sample type `{name}`; available: {}",
            printable(&types.join(", "))
        )
    })
}

fn by_name(file: &Path) -> Option<Format> {
    let name = file.file_name()?.to_str()?;
    let endings = [
        (".pb.gz", Format::Pprof),
        (".pprof", Format::Pprof),
        (".otlp", Format::Otlp),
        (".json", Format::OtlpJson),
        (".folded", Format::Folded),
    ];
    let mut endings = endings.into_iter();
    endings
        .find(|(ending, _)| name.ends_with(ending))
        .map(|(_, format)| format)
}

fn pprof(profiles: &Profiles, links: &LinkLabels) -> Result<Vec<Vec<u8>>, String> {
    let gzip = Compressor::new(Codec::Gzip, None);
    let mut files = Vec::new();
    for resource in &profiles.resources {
        for scope in &resource.scopes {
            for file in write::write(&profiles.dictionary, resource, scope, links) {
                let compressed = gzip.compress(&[Bytes::from(file)]);
                files.push(compressed.map_err(|error| error.to_string())?.to_vec());
            }
        }
    }
    Ok(files)
}
