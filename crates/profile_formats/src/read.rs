//! The entry points: detection of a format, and conversion.

use tributary_compression::Codec;
use tributary_compression::decompress::decompress;
use tributary_memory::Permit;
use tributary_profiles::model::ResourceProfiles;
use tributary_profiles::pprof::Converted;
use tributary_profiles::{Dictionary, Profiles};

use crate::builder::Builder;
use crate::error::{Fault, FormatError};
use crate::format::Format;
use crate::limits::FormatLimits;
use crate::{
    callgrind, cpuprofile, folded, go_text, gperftools, heap_text, jemalloc, jfr, perf_script,
    speedscope,
};

/// Recognizes the format of decompressed bytes, which may be truncated. pprof and OTLP are formats of other readers.
pub fn detect(bytes: &[u8]) -> Option<Format> {
    let is = |format: &Format| parser(*format).0(bytes);
    Format::ALL.iter().copied().find(is)
}

/// Converts a file, with or without gzip. Adds the entries to `into`. The format is detected unless the caller knows
/// `format`, for example from a request.
///
/// `permit` grows by the memory of the profiles before it is used. On an error, it has its previous size.
///
/// # Errors
/// See [`FormatError`]. After an error, entries may remain in the dictionary; unreferenced entries are not written.
pub fn read(
    file: &[u8],
    format: Option<Format>,
    limits: &FormatLimits,
    permit: &mut Permit,
    into: &mut Dictionary,
) -> Result<Converted, FormatError> {
    let held = permit.bytes();
    let converted = decompress_and_convert(file, format, limits, permit, into);
    if converted.is_err() {
        permit.shrink_to(held);
    }
    converted
}

/// Converts a file to profiles of an unknown resource: see [`read`].
///
/// # Errors
/// See [`FormatError`].
pub fn read_profiles(
    file: &[u8],
    format: Option<Format>,
    limits: &FormatLimits,
    permit: &mut Permit,
) -> Result<Profiles, FormatError> {
    let mut dictionary = Dictionary::new();
    let converted = read(file, format, limits, permit, &mut dictionary)?;
    Ok(Profiles {
        dictionary,
        resources: vec![ResourceProfiles {
            // Empty rather than absent: some readers fail on an absent resource.
            resource: Some(Default::default()),
            schema_url: String::new(),
            scopes: vec![converted.profiles],
        }],
    })
}

fn decompress_and_convert(
    file: &[u8],
    format: Option<Format>,
    limits: &FormatLimits,
    permit: &mut Permit,
    into: &mut Dictionary,
) -> Result<Converted, FormatError> {
    let held = permit.bytes();
    let decompressed = match file.starts_with(&[0x1f, 0x8b]) {
        true => Some(decompress(Codec::Gzip, file, limits.input, permit)?),
        false => None,
    };
    let bytes = decompressed.as_deref().unwrap_or(file);
    if bytes.len() > limits.input {
        let (what, limit) = ("bytes", limits.input);
        return Err(FormatError::TooLarge { what, limit });
    }
    let format = format.or_else(|| detect(bytes));
    let format = format.ok_or(FormatError::Unknown)?;
    let converted = convert(bytes, format, limits, permit, into);
    let (converted, kept) = converted.map_err(|fault| fault.of(format))?;
    permit.shrink_to(held + kept);
    Ok(converted)
}

/// Returns the profiles and their memory.
fn convert(
    bytes: &[u8],
    format: Format,
    limits: &FormatLimits,
    permit: &mut Permit,
    into: &mut Dictionary,
) -> Result<(Converted, usize), Fault> {
    let mut builder = Builder::new(into, limits, permit);
    parser(format).1(bytes, &mut builder)?;
    let (main, repairs) = (builder.main, builder.repairs);
    let (profiles, kept) = builder.finish()?;
    let converted = Converted {
        profiles,
        main,
        repairs,
    };
    Ok((converted, kept))
}

type Detect = fn(&[u8]) -> bool;
type Read = fn(&[u8], &mut Builder<'_>) -> Result<(), Fault>;

/// Returns the functions of a format.
fn parser(format: Format) -> (Detect, Read) {
    match format {
        Format::Folded => (folded::begins_like, folded::read),
        Format::Jfr => (jfr::begins_like, jfr::read),
        Format::Speedscope => (speedscope::begins_like, speedscope::read),
        Format::CpuProfile => (cpuprofile::begins_like, cpuprofile::read),
        Format::PerfScript => (perf_script::begins_like, perf_script::read),
        Format::GperftoolsCpu => (gperftools::begins_like, gperftools::read),
        Format::HeapText => (heap_text::begins_like, heap_text::read),
        Format::GoText => (go_text::begins_like, go_text::read),
        Format::Jemalloc => (jemalloc::begins_like, jemalloc::read),
        Format::Callgrind => (callgrind::begins_like, callgrind::read),
    }
}
