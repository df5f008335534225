//! Converts pprof files to requests.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::delta::{Difference, Series};
use super::ids;
use super::origin::Origin;
use crate::pipeline::batch::{Metadata, Nack, metadata_bytes};
use crate::serving::body::ReceivedBytes;
use tributary_compression::Codec;
use tributary_compression::decompress::{DecompressError, decompress};
use tributary_memory::{NoRoom, Permit};
use tributary_profiles::model::ResourceProfiles;
use tributary_profiles::pprof::{PprofReader, ReadOptions};
use tributary_profiles::relocations::Relocations;
use tributary_profiles::write::encode;
use tributary_profiles::{Dictionary, Profiles, pprof};

/// A converted file.
#[derive(Debug)]
pub(super) struct Converted {
    /// A resource with one scope, with a profile for each sample type.
    pub(super) profiles: Profiles,
    /// Headers of the request that contained the file, if they are kept.
    pub(super) metadata: Option<Arc<Metadata>>,
    /// Memory permit of the profiles.
    permit: Permit,
}

/// Reason why a file was refused. The refusal is already counted.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(super) enum Refused {
    /// The file is not a valid pprof file. A retry is useless.
    #[error("{0}")]
    Unreadable(pprof::Error),
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
    pub(super) fn is_retryable(&self) -> bool {
        match self {
            Refused::Unreadable(_) | Refused::TooLarge(..) => false,
            Refused::NoRoom(no_room) => no_room.may_fit_later(),
            Refused::Pipeline(nack) => nack.retryable,
            Refused::ShuttingDown => true,
        }
    }
}

impl Converted {
    pub(super) fn encode(self) -> Result<ReceivedBytes, NoRoom> {
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
pub(super) struct Rules {
    pub(super) options: ReadOptions,
    pub(super) limit_key: &'static str,
}

pub(super) fn convert(
    held: ReceivedBytes,
    origin: &Origin,
    rules: &Rules,
) -> Result<(Converted, pprof::Repairs), Refused> {
    let mut dictionary = Dictionary::new();
    let (resource, mut permit, repairs) = read(held, origin, rules, &mut dictionary, None)?;
    let profiles = Profiles {
        dictionary,
        resources: vec![resource],
    };
    permit
        .resize(bytes_of(&profiles))
        .map_err(Refused::NoRoom)?;
    let converted = Converted {
        profiles,
        metadata: None,
        permit,
    };
    Ok((converted, repairs))
}

/// Computes the encoded difference to the previous file of a series.
pub(super) fn subtract(
    held: ReceivedBytes,
    origin: &Origin,
    rules: &Rules,
    series: &mut Series,
) -> Result<(ReceivedBytes, Difference, pprof::Repairs), Refused> {
    let (dictionary, relocations) = series.tables();
    let (mut resource, mut permit, repairs) =
        read(held, origin, rules, dictionary, Some(relocations))?;
    let scope = resource.scopes.pop().unwrap_or_default();
    let difference = series.difference(scope);
    resource.scopes.push(difference.profiles.clone());
    let bytes = encode(series.dictionary(), &[resource]);
    permit
        .resize(bytes.len().saturating_add(BATCH_BYTES))
        .map_err(Refused::NoRoom)?;
    Ok((ReceivedBytes { bytes, permit }, difference, repairs))
}

/// Reads a file into a dictionary. The permit covers more than the result until the caller shrinks it.
fn read(
    held: ReceivedBytes,
    origin: &Origin,
    rules: &Rules,
    dictionary: &mut Dictionary,
    relocations: Option<&mut Relocations>,
) -> Result<(ResourceProfiles, Permit, pprof::Repairs), Refused> {
    let ReceivedBytes { bytes, mut permit } = held;
    let Rules { options, limit_key } = rules;
    let refuse = |error| refuse(error, limit_key);
    // Decompress here and not in the reader, so that the memory for the profiles can be reserved by
    // size.
    let bytes = match bytes.starts_with(&GZIP) {
        true => {
            let output = decompress(Codec::Gzip, &bytes, options.limit, &mut permit)
                .map_err(|error| refuse(error.into()))?;
            drop(bytes);
            permit.shrink_to(output.capacity());
            Bytes::from(output)
        }
        false => bytes,
    };
    let needed = bytes.len().saturating_mul(CONVERTED_BYTES_PER_BYTE);
    permit.grow(needed).map_err(Refused::NoRoom)?;
    let read = PprofReader::new().read(&bytes, options, &mut permit, dictionary, relocations);
    let file = ids::of_file(&bytes);
    drop(bytes);
    let pprof::Converted {
        profiles: mut scope,
        main,
        repairs,
    } = read.map_err(refuse)?;
    let said = scope.scope.take();
    let types = scope.profiles.iter().map(|of| of.header.sample_type.kind);
    let types = types.map(|kind| dictionary.text(kind));
    scope.scope = Some(origin.scope(said, types));
    for profile in &mut scope.profiles {
        if profile.header.time == 0 {
            profile.header.time = origin.start;
            if profile.header.duration == 0 {
                let duration = u64::try_from(origin.duration.as_nanos());
                profile.header.duration = duration.unwrap_or(u64::MAX);
            }
        }
    }
    let mut resource = ResourceProfiles {
        resource: Some(origin.subject.resource(dictionary, main)),
        schema_url: String::new(),
        scopes: vec![scope],
    };
    ids::assign(&mut resource, file);
    Ok((resource, permit, repairs))
}

pub(super) fn refuse(error: pprof::Error, limit_key: &'static str) -> Refused {
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

/// Returns the memory size of profiles in bytes.
fn bytes_of(profiles: &Profiles) -> usize {
    let samples = profiles.iter().map(|profile| profile.samples.bytes());
    profiles.dictionary.bytes() + samples.sum::<usize>()
}

const GZIP: [u8; 2] = [0x1f, 0x8b];
/// Memory of profiles for each byte of the file.
const CONVERTED_BYTES_PER_BYTE: usize = 8;
/// Memory of a request in addition to its bytes: the batch, its permit, and an entry in a queue.
const BATCH_BYTES: usize = 512;
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(1);
