//! Reads files of profiles, detects their format and takes them apart: OTLP as protobuf or JSON, pprof, and the formats of
//! `tributary-profile-formats`.

use std::borrow::Cow;

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;

use tributary_memory::{NoRoom, Permit};
use tributary_otlp::Signal;
use tributary_otlp::json;
use tributary_otlp::reader::{value, varint};
use tributary_profile_formats::{self as formats, Format, FormatError, FormatLimits};
use tributary_profiles::id::MappingId;
use tributary_profiles::model::ResourceProfiles;
use tributary_profiles::pprof;
use tributary_profiles::pprof::{PprofReader, Repairs, write};
use tributary_profiles::relocations::Relocations;
use tributary_profiles::{Compactor, Dictionary, Profiles, decoded_bytes, layout};

/// Format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileKind {
    Otlp,
    OtlpJson,
    Pprof,
    /// Another profiler's format.
    Foreign(Format),
}

impl FileKind {
    /// Returns the format of another profiler.
    pub(crate) fn format(self) -> Option<Format> {
        match self {
            FileKind::Foreign(format) => Some(format),
            FileKind::Otlp | FileKind::OtlpJson | FileKind::Pprof => None,
        }
    }
}

/// Detects the format of decompressed bytes, which may be truncated. Folded stacks are text without
/// control characters; no encoded message is.
pub(crate) fn file_kind(bytes: &[u8]) -> FileKind {
    if let Some(format) = formats::detect(bytes) {
        return FileKind::Foreign(format);
    }
    let text = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
    if text.trim_ascii_start().first() == Some(&b'{') {
        return FileKind::OtlpJson;
    }
    // The pprof reader reports the foreign format.
    if pprof::foreign(bytes).is_some() {
        return FileKind::Pprof;
    }
    let control = |byte: &u8| *byte < b' ' && !matches!(byte, b'\n' | b'\r' | b'\t');
    if !bytes.is_empty() && !bytes.iter().any(control) && str::from_utf8(bytes).is_ok() {
        return FileKind::Foreign(Format::Folded);
    }
    if bytes.first() == Some(&0) {
        return FileKind::Otlp;
    }
    encoded(bytes)
}

/// The UTF-8 byte order mark, which some editors put before a text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Detects the format of an encoded message. A request of OTLP has only the fields 1 and 2, and
/// field 1 begins with a message or a string. A pprof file has more fields, and its field 1 is a
/// sample type, which has only integers.
fn encoded(bytes: &[u8]) -> FileKind {
    let mut rest = bytes;
    while let Ok((key, after)) = varint(rest) {
        let (number, wire_type) = (key >> 3, key & 7);
        if number > 2 {
            return FileKind::Pprof;
        }
        let after_length = varint(after).map_or(&[][..], |(_, after)| after);
        if wire_type == 2 {
            // The wire type of the first field in the message, unless the message is empty.
            let inner = after_length.first().filter(|_| after.first() != Some(&0));
            match (number, inner.map(|key| key & 7)) {
                (1, Some(0)) => return FileKind::Pprof,
                (1, Some(2)) => return FileKind::Otlp,
                // A sample may begin with an integer; the dictionary of OTLP has messages only.
                (2, Some(0)) => return FileKind::Pprof,
                _ => {}
            }
        }
        let wire_type = u32::try_from(wire_type).unwrap_or_default();
        match value(wire_type, after) {
            Ok((_, after)) => rest = after,
            Err(_) => break,
        }
    }
    FileKind::Otlp
}

/// Checks that the bytes are a message of OTLP.
pub(crate) fn valid(bytes: &[u8]) -> Result<(), String> {
    // A message of an old layout often cannot be decoded; this error names the reason.
    layout::check(bytes).map_err(|error| error.to_string())?;
    tributary_otlp::validate(Signal::Profiles, bytes)
        .map_err(|error| format!("not OTLP profiles: {error}"))?;
    Ok(())
}

/// Decodes a message of OTLP.
pub(crate) fn decode(bytes: &[u8]) -> Result<ExportProfilesServiceRequest, String> {
    valid(bytes)?;
    ExportProfilesServiceRequest::decode(bytes)
        .map_err(|error| format!("not OTLP profiles: {error}"))
}

/// Splits a file into messages: one message, or several with four bytes of length (big-endian)
/// before each. No message begins with a zero byte, and every length below 16 MiB does.
///
/// The list would be larger than a file of many small messages, so there is none. Nothing follows an error.
pub(crate) fn messages(bytes: &[u8]) -> impl Iterator<Item = Result<&[u8], String>> {
    let mut rest = Some(bytes);
    let has_lengths = bytes.first() == Some(&0);
    std::iter::from_fn(move || {
        let left = rest.take()?;
        if !has_lengths {
            return Some(Ok(left));
        }
        let Some((length, after)) = left.split_first_chunk::<4>() else {
            let cut = || Err("the file ends within the length of a message".to_owned());
            return (!left.is_empty()).then(cut);
        };
        let length = u32::from_be_bytes(*length) as usize;
        let Some((message, after)) = after.split_at_checked(length) else {
            let missing = length - after.len();
            return Some(Err(format!(
                "the file ends {missing} bytes before the end of its last message"
            )));
        };
        rest = Some(after);
        Some(Ok(message))
    })
}

/// Reason why profiles were not read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    /// The bytes are no profiles.
    #[error("{0}")]
    Malformed(String),
    /// The memory budget has no room for the profiles.
    #[error("no memory to read the profiles: {0}")]
    NoRoom(#[from] NoRoom),
}

/// Reason why a file was not converted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConvertError {
    /// The file is not a usable pprof file, or there is no memory.
    #[error("{0}")]
    Pprof(#[from] pprof::Error),
    /// The file is not a usable file of another profiler, or there is no memory.
    #[error("{0}")]
    Foreign(#[from] FormatError),
}

impl From<ConvertError> for FileError {
    fn from(error: ConvertError) -> Self {
        match error {
            ConvertError::Pprof(pprof::Error::NoRoom(no_room))
            | ConvertError::Foreign(FormatError::NoRoom(no_room)) => FileError::NoRoom(no_room),
            error => FileError::Malformed(error.to_string()),
        }
    }
}

/// Memory of the profiles of a pprof file, as a multiple of its size: a sample of four bytes becomes 36.
const PER_BYTE_OF_PPROF: usize = 10;

/// Reads the profiles of decompressed bytes without loss. `permit` grows by the memory of the profiles, before they are
/// made.
///
/// # Errors
/// See [`FileError`].
pub(crate) fn read_profiles(
    bytes: &[u8],
    kind: FileKind,
    options: &pprof::ReadOptions,
    permit: &mut Permit,
) -> Result<(Profiles, Repairs), FileError> {
    let malformed = |error: &dyn std::fmt::Display| FileError::Malformed(error.to_string());
    let profiles = match kind {
        FileKind::Otlp | FileKind::OtlpJson => {
            let mut compactor = Compactor::new();
            permit.grow(bytes.len())?;
            for request in requests(bytes, kind).map_err(|error| malformed(&error))? {
                let request = request.map_err(|error| malformed(&error))?;
                valid(&request).map_err(|error| malformed(&error))?;
                permit.grow(decoded_bytes(&request))?;
                let added = compactor.add_encoded(&request);
                added.map_err(|error| malformed(&error))?;
            }
            compactor.finish()
        }
        FileKind::Pprof | FileKind::Foreign(_) => {
            let mut dictionary = Dictionary::new();
            let converted = convert(bytes, kind.format(), options, permit, &mut dictionary, None)?;
            let resource = executable(&dictionary, converted.main);
            let profiles = Profiles {
                dictionary,
                resources: vec![ResourceProfiles {
                    // Empty rather than absent: some readers fail on an absent resource.
                    resource: Some(resource.unwrap_or_default()),
                    schema_url: String::new(),
                    scopes: vec![converted.profiles],
                }],
            };
            return Ok((profiles, converted.repairs));
        }
    };
    Ok((profiles, Repairs::default()))
}

/// Converts a file of another profiler's format, or a pprof file if there is none, over a dictionary. `permit` grows by
/// the memory of the profiles, before they are made.
///
/// # Errors
/// See [`ConvertError`].
pub(crate) fn convert(
    bytes: &[u8],
    format: Option<Format>,
    options: &pprof::ReadOptions,
    permit: &mut Permit,
    into: &mut Dictionary,
    relocations: Option<&mut Relocations>,
) -> Result<pprof::Converted, ConvertError> {
    if let Some(format) = format {
        let limits = FormatLimits {
            input: options.limit,
            ..FormatLimits::default()
        };
        return Ok(formats::read(bytes, Some(format), &limits, permit, into)?);
    }
    let needed = bytes.len().saturating_mul(PER_BYTE_OF_PPROF);
    permit.grow(needed).map_err(pprof::Error::NoRoom)?;
    Ok(PprofReader::new().read(bytes, options, permit, into, relocations)?)
}

/// Returns the encoded requests of a file.
pub(crate) fn requests(
    bytes: &[u8],
    kind: FileKind,
) -> Result<impl Iterator<Item = Result<Cow<'_, [u8]>, String>>, String> {
    let mut json = None;
    if kind == FileKind::OtlpJson {
        let request = json::to_wire(Signal::Profiles, bytes)
            .map_err(|error| format!("not OTLP profiles as JSON: {error}"))?;
        if request.is_empty() && bytes.trim_ascii() != b"{}" {
            return Err("the JSON is not OTLP profiles: `resourceProfiles` is missing".into());
        }
        json = Some(Ok(Cow::Owned(request)));
    }
    let encoded = (kind != FileKind::OtlpJson).then(|| messages(bytes));
    let encoded = encoded.into_iter().flatten();
    let encoded = encoded.map(|message| message.map(Cow::Borrowed));
    Ok(json.into_iter().chain(encoded))
}

/// Returns a resource with the name of the program, because OTLP has no first mapping.
pub(crate) fn executable(dictionary: &Dictionary, main: Option<MappingId>) -> Option<Resource> {
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

#[cfg(test)]
mod tests {
    use tributary_compression::Codec;
    use tributary_compression::decompress::decompress;
    use tributary_memory::Budget;

    use super::*;

    #[test]
    fn cut_off_pprof_file_is_called_a_pprof_file() {
        let file = include_bytes!("../tests/profiles/cpu.pb.gz");
        let mut permit = Budget::new(usize::MAX).empty_permit();
        let file = decompress(Codec::Gzip, file, 1 << 20, &mut permit).unwrap();
        // The first sample type has a key and a length.
        for end in 3..file.len() {
            assert_eq!(file_kind(&file[..end]), FileKind::Pprof, "{end}");
        }
    }

    #[test]
    fn cut_off_request_is_called_otlp() {
        // A resource, and a dictionary, in both orders.
        let resource = [0x0a, 4, 0x12, 2, 0x12, 0];
        let dictionary = [0x12, 4, 0x0a, 0, 0x2a, 0];
        for request in [
            [resource, dictionary].concat(),
            [dictionary, resource].concat(),
            [&[0x0a, 0][..], &dictionary].concat(),
            vec![0x12, 0, 0x0a, 0],
        ] {
            for end in 0..=request.len() {
                let kind = file_kind(&request[..end]);
                assert!(
                    matches!(kind, FileKind::Otlp | FileKind::Foreign(Format::Folded)),
                    "{kind:?}"
                );
            }
        }
    }

    #[test]
    fn byte_order_mark_hides_no_json() {
        assert_eq!(file_kind(b"\xef\xbb\xbf{}"), FileKind::OtlpJson);
    }

    #[test]
    fn messages_with_a_length_before_them_are_taken_apart() {
        let framed = [&[0, 0, 0, 2][..], b"ab", &[0, 0, 0, 1], b"c"].concat();
        let all = |file| messages(file).collect::<Result<Vec<_>, _>>();
        assert_eq!(all(&framed).unwrap(), [&b"ab"[..], b"c"]);
        assert_eq!(all(b"abc").unwrap(), [b"abc"]);
        assert_eq!(all(b"").unwrap(), [b""]);
        let short = all(&framed[..8]).unwrap_err();
        assert!(short.contains("within the length"), "{short}");
        let short = all(&[0, 0, 0, 2, 9]).unwrap_err();
        assert!(short.contains("1 bytes before"), "{short}");
    }
}
