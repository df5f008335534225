//! Converts pprof files, and files of other profilers, to requests.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use prost::Message as _;

use super::ids;
use super::origin::Origin;
use crate::pipeline::batch::{Metadata, Nack, metadata_bytes};
use crate::profile_files::{self, ConvertError};
use crate::serving::body::ReceivedBytes;
use tributary_compression::Codec;
use tributary_compression::decompress::{DecompressError, decompress};
use tributary_memory::{NoRoom, Permit};
use tributary_profile_formats::{self as formats, Format, FormatError};
use tributary_profiles::id::MappingId;
use tributary_profiles::model::{Profile, ResourceProfiles, ScopeProfiles};
use tributary_profiles::pprof::ReadOptions;
use tributary_profiles::relocations::Relocations;
use tributary_profiles::{Dictionary, Profiles, pprof};

/// A converted file.
#[derive(Debug)]
pub(crate) struct Converted {
    /// Profiles of one request.
    pub(crate) profiles: Profiles,
    /// Headers of the request that contained the file, if they are kept.
    pub(crate) metadata: Option<Arc<Metadata>>,
    /// Memory permit of the profiles.
    permit: Permit,
}

/// Reason why a file was refused. The refusal is already counted.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(crate) enum Refused {
    /// The file is not a valid pprof file. A retry is useless.
    #[error("{0}")]
    Unreadable(pprof::Error),
    /// The request is malformed, as this text says. A retry is useless.
    #[error("{0}")]
    Malformed(String),
    /// The file has another format, and is not valid. A retry is useless.
    #[error("{0}")]
    Unusable(FormatError),
    /// The file exceeds the limit of this key of the configuration.
    #[error("the profile is larger than {0} bytes; raise `{1}` to accept it")]
    TooLarge(usize, &'static str),
    /// The memory budget has no room to convert the file.
    #[error("{0}")]
    NoRoom(NoRoom),
    /// The pipeline refused the profiles.
    #[error("{0}")]
    Pipeline(Nack),
    /// The collector is shutting down.
    #[error("the collector is shutting down")]
    ShuttingDown,
}

impl Refused {
    /// Whether the same file may be accepted later.
    pub(crate) fn is_retryable(&self) -> bool {
        match self {
            Refused::Unreadable(_)
            | Refused::Malformed(_)
            | Refused::Unusable(_)
            | Refused::TooLarge(..) => false,
            Refused::NoRoom(no_room) => no_room.may_fit_later(),
            Refused::Pipeline(nack) => nack.retryable,
            Refused::ShuttingDown => true,
        }
    }
}

impl Converted {
    /// Creates a converted file. The permit shrinks or grows to the memory of the profiles.
    pub(crate) fn new(profiles: Profiles, mut permit: Permit) -> Result<Self, Refused> {
        permit
            .resize(bytes_of(&profiles))
            .map_err(Refused::NoRoom)?;
        Ok(Converted {
            profiles,
            metadata: None,
            permit,
        })
    }

    pub(crate) fn encode(self) -> Result<ReceivedBytes, NoRoom> {
        let Converted {
            profiles,
            metadata,
            mut permit,
        } = self;
        let kept = metadata.as_deref().map_or(0, metadata_bytes) + BATCH_BYTES;
        permit.grow(bytes_of(&profiles).saturating_add(kept))?;
        let bytes = profiles.encode();
        drop(profiles);
        permit.shrink_to(bytes.len().saturating_add(kept));
        Ok(ReceivedBytes { bytes, permit })
    }
}

/// Rules for reading files.
#[derive(Clone)]
pub(crate) struct Rules {
    pub(crate) options: ReadOptions,
    pub(crate) limit_key: &'static str,
}

pub(crate) fn convert(
    held: ReceivedBytes,
    origin: &Origin,
    rules: &Rules,
) -> Result<(Converted, pprof::Repairs), Refused> {
    let mut dictionary = Dictionary::new();
    let (resource, permit, repairs) = read(held, origin, rules, &mut dictionary, None)?;
    let profiles = Profiles {
        dictionary,
        resources: vec![resource],
    };
    Ok((Converted::new(profiles, permit)?, repairs))
}

/// Reads a file into a dictionary. The permit covers more than the result until the caller shrinks it.
pub(crate) fn read(
    held: ReceivedBytes,
    origin: &Origin,
    rules: &Rules,
    dictionary: &mut Dictionary,
    relocations: Option<&mut Relocations>,
) -> Result<(ResourceProfiles, Permit, pprof::Repairs), Refused> {
    let held = inflated(held, rules)?;
    let file = ids::of_file(&held.bytes);
    let (converted, permit) = decode(held, None, rules, dictionary, relocations)?;
    let (profiles, main) = (converted.profiles, converted.main);
    let resource = complete(profiles, origin, dictionary, main, file);
    Ok((resource, permit, converted.repairs))
}

/// Decompresses a file with gzip, here and not in its reader, so that the memory for the profiles can be reserved by
/// size.
pub(crate) fn inflated(held: ReceivedBytes, rules: &Rules) -> Result<ReceivedBytes, Refused> {
    let ReceivedBytes { bytes, mut permit } = held;
    if !bytes.starts_with(&GZIP) {
        return Ok(ReceivedBytes { bytes, permit });
    }
    let output = decompress(Codec::Gzip, &bytes, rules.options.limit, &mut permit)
        .map_err(|error| refuse(error.into(), rules.limit_key))?;
    drop(bytes);
    permit.shrink_to(output.capacity());
    let bytes = Bytes::from(output);
    Ok(ReceivedBytes { bytes, permit })
}

/// Converts an inflated file, without the name of the scope, the times and the ids. Without a format, the content decides
/// between pprof and others. The permit covers more than the result until the caller shrinks it.
pub(crate) fn decode(
    held: ReceivedBytes,
    format: Option<Format>,
    rules: &Rules,
    dictionary: &mut Dictionary,
    relocations: Option<&mut Relocations>,
) -> Result<(pprof::Converted, Permit), Refused> {
    let ReceivedBytes { bytes, mut permit } = held;
    let Rules { options, limit_key } = rules;
    let format = format.or_else(|| formats::detect(&bytes));
    let read = profile_files::convert(
        &bytes,
        format,
        options,
        &mut permit,
        dictionary,
        relocations,
    );
    drop(bytes);
    let converted = read.map_err(|error| match error {
        ConvertError::Pprof(error) => refuse(error, limit_key),
        ConvertError::Foreign(error) => unusable(error, limit_key),
    })?;
    Ok((converted, permit))
}

/// Returns profiles with their resource, the name of their scope, the times that a file lacks, and ids. `file` is the
/// identity of the file.
pub(crate) fn complete(
    mut scope: ScopeProfiles,
    origin: &Origin,
    dictionary: &Dictionary,
    main: Option<MappingId>,
    file: u128,
) -> ResourceProfiles {
    let said = scope.scope.take();
    let types = scope.profiles.iter().map(|of| of.header.sample_type.kind);
    let types = types.map(|kind| dictionary.text(kind));
    scope.scope = Some(origin.scope(said, types));
    for profile in &mut scope.profiles {
        origin.complete_times(&mut profile.header);
    }
    let mut resource = ResourceProfiles {
        resource: Some(origin.subject.resource(dictionary, main)),
        schema_url: String::new(),
        scopes: vec![scope],
    };
    ids::assign(&mut resource, file);
    resource
}

pub(crate) fn refuse(error: pprof::Error, limit_key: &'static str) -> Refused {
    match error {
        pprof::Error::TooLarge(limit)
        | pprof::Error::Compressed(DecompressError::TooLarge(limit)) => {
            Refused::TooLarge(limit, limit_key)
        }
        pprof::Error::Compressed(DecompressError::NoMemory(no_room))
        | pprof::Error::NoRoom(no_room) => Refused::NoRoom(no_room),
        error => Refused::Unreadable(error),
    }
}

fn unusable(error: FormatError, limit_key: &'static str) -> Refused {
    match error {
        FormatError::NoRoom(no_room) => Refused::NoRoom(no_room),
        FormatError::Compressed(error) => refuse(error.into(), limit_key),
        error => Refused::Unusable(error),
    }
}

/// Returns the memory size of profiles in bytes.
fn bytes_of(profiles: &Profiles) -> usize {
    let samples = profiles.iter().map(|profile| profile.samples.bytes());
    let headers = profiles.resources.iter().map(header_bytes);
    profiles.dictionary.bytes() + samples.sum::<usize>() + headers.sum::<usize>()
}

/// Returns the memory size of a resource, its scopes and the metadata of its profiles, in bytes.
fn header_bytes(resource: &ResourceProfiles) -> usize {
    let attributes = resource
        .resource
        .iter()
        .flat_map(|resource| &resource.attributes);
    let text = |attribute: &KeyValue| attribute.key.len() + attribute.encoded_len();
    let attributes: usize = attributes
        .map(|one| size_of::<KeyValue>() + text(one))
        .sum();
    let profiles: usize = resource
        .scopes
        .iter()
        .map(|scope| scope.profiles.len())
        .sum();
    attributes + resource.scopes.len() * SCOPE_BYTES + profiles * size_of::<Profile>()
}

const GZIP: [u8; 2] = [0x1f, 0x8b];
/// Memory of a scope: its name and attributes, of which one has a number for each profile.
pub(crate) const SCOPE_BYTES: usize = 512;
/// Memory of a request in addition to its bytes: the batch, its permit, and an entry in a queue.
pub(crate) const BATCH_BYTES: usize = 512;
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(1);
