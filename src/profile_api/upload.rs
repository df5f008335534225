//! Views of an uploaded file, which is not stored.

use std::collections::BTreeSet;
use std::time::Instant;

use bytes::Bytes;
use http::{Response, StatusCode};

use super::Asked;
use super::error::ApiError;
use super::flame::{Shown, Source};
use super::index::Kind;
use super::params::{Params, millis};
use crate::profile_files::{FileError, file_kind, read_profiles};
use tributary_compression::Codec;
use tributary_compression::decompress::{DecompressError, decompress};
use tributary_memory::{NoRoom, Permit};
use tributary_profile_store::Tree;
use tributary_profiles::dictionary::ValueType;
use tributary_profiles::{Dictionary, Profiles, pprof, top};

/// Maximum size of a file after decompression, in bytes.
const MAX_FILE_BYTES: usize = 128 << 20;

struct File {
    profiles: Profiles,
    permit: Permit,
    deadline: Instant,
}

impl Source for File {
    fn dictionaries(&self) -> Vec<&Dictionary> {
        vec![&self.profiles.dictionary]
    }

    fn meter(&mut self) -> Box<dyn FnMut(usize) -> Result<(), ApiError> + '_> {
        let meter = meter(&mut self.permit, self.deadline);
        Box::new(meter)
    }
}

/// Takes memory from the budget of the process, and checks the time.
fn meter(permit: &mut Permit, deadline: Instant) -> impl FnMut(usize) -> Result<(), ApiError> + '_ {
    let base = permit.bytes();
    move |bytes| {
        if Instant::now() > deadline {
            return Err(ApiError::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "the file takes too long to read: use `collector profiles` for large files",
            ));
        }
        let lacking = base.saturating_add(bytes).saturating_sub(permit.bytes());
        permit.grow(lacking).map_err(no_room)
    }
}

fn no_room(error: NoRoom) -> ApiError {
    match error.may_fit_later() {
        true => ApiError::busy(format!(
            "not enough memory to read the file now: {error}; retry later"
        )),
        false => ApiError::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            format!("the file is too large: {error}; use `collector profiles` for large files"),
        ),
    }
}

pub(super) fn view(
    asked: &Asked,
    params: &Params,
    body: Bytes,
) -> Result<Response<Bytes>, ApiError> {
    let form = params.word("as", &["flamegraph", "table", "sandwich"])?;
    let mut shown = asked.uploaded(params, body)?;
    match form {
        "table" => shown.table(params),
        "sandwich" => shown.sandwich(params),
        _ => shown.flamegraph(params),
    }
}

impl Asked {
    fn uploaded(&self, params: &Params, mut body: Bytes) -> Result<Shown, ApiError> {
        let mut permit = self.budget.acquire(body.len()).map_err(no_room)?;
        // A server or an archive may compress data that is compressed already.
        for _ in 0..2 {
            if body.starts_with(&[0x1f, 0x8b]) {
                let file = decompress(Codec::Gzip, &body, MAX_FILE_BYTES, &mut permit);
                body = file.map_err(undecompressed)?.into();
            }
        }
        let options = pprof::ReadOptions {
            limit: MAX_FILE_BYTES,
            ..pprof::ReadOptions::default()
        };
        let read = read_profiles(&body, file_kind(&body), &options, &mut permit);
        let (profiles, _) = read.map_err(|error| match error {
            FileError::Malformed(error) => ApiError::bad(format!(
                "the body is not a profile of a known format: {error}"
            )),
            FileError::NoRoom(error) => no_room(error),
        })?;
        drop(body);
        let (types, kind) = types(&profiles, params.get("type"))?;
        let tree = match kind {
            None => Tree::default(),
            Some(kind) => Tree::of_within(&profiles, kind, meter(&mut permit, self.deadline))?,
        };
        let times = || profiles.iter().map(|profile| profile.header.time);
        let ends = profiles.iter().map(|profile| {
            let header = &profile.header;
            header.time.saturating_add(header.duration)
        });
        let covered = [times().min(), ends.max()];
        Ok(Shown {
            tree,
            scales: [1.0; 2],
            compares: false,
            covered: covered.map(|time| millis(time.unwrap_or_default())),
            damaged: 0,
            types: Some(types),
            source: Box::new(File {
                profiles,
                permit,
                deadline: self.deadline,
            }),
        })
    }
}

fn undecompressed(error: DecompressError) -> ApiError {
    match error {
        DecompressError::TooLarge(_) => {
            ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, error.to_string())
        }
        DecompressError::NoMemory(error) => no_room(error),
        DecompressError::Corrupt(_) => ApiError::bad(format!("the body is not gzip: {error}")),
    }
}

/// Returns the sample types of a file, and the one to show.
fn types(
    profiles: &Profiles,
    wanted: Option<&str>,
) -> Result<(Vec<Kind>, Option<ValueType>), ApiError> {
    let text = |id| profiles.dictionary.text(id).to_owned();
    let kind = |kind: ValueType| {
        let (name, unit) = (text(kind.kind), text(kind.unit));
        Kind {
            id: format!("{name}:{unit}"),
            profile: name.clone(),
            name,
            unit,
        }
    };
    let all = || profiles.iter().map(|profile| profile.header.sample_type);
    let types: BTreeSet<Kind> = all().map(kind).collect();
    let types: Vec<Kind> = types.into_iter().collect();
    let Some(wanted) = wanted else {
        return Ok((types, top::sample_type(profiles, None)));
    };
    let found = all().find(|one| {
        let one = kind(*one);
        one.id == wanted || one.name == wanted
    });
    match found {
        Some(found) => Ok((types, Some(found))),
        None => {
            let ids: Vec<&str> = types.iter().map(|kind| kind.id.as_str()).collect();
            Err(ApiError::bad(format!(
                "the file has no profile type `{wanted}`; available: {}",
                ids.join(", ")
            )))
        }
    }
}
