//! Reads profiles from files and URLs and detects their format: OTLP as protobuf or JSON, pprof,
//! folded stacks.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use prost::Message as _;

use super::fetch;
use tributary_compression::Codec;
use tributary_compression::decompress::decompress;
use tributary_memory::Budget;
use tributary_otlp::Signal;
use tributary_otlp::reader::{value, varint};
use tributary_profiles::{layout, pprof};

/// Maximum size of a file after decompression, in bytes.
pub(super) const LIMIT: u64 = 1 << 30;

/// Format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Otlp,
    OtlpJson,
    Pprof,
    Folded,
}

/// Detects the format of decompressed bytes, which may be truncated. Folded stacks are text without
/// control characters; no encoded message is.
pub(super) fn kind(bytes: &[u8]) -> Kind {
    let text = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
    if text.trim_ascii_start().first() == Some(&b'{') {
        return Kind::OtlpJson;
    }
    // The pprof reader reports the foreign format.
    if pprof::foreign(bytes).is_some() {
        return Kind::Pprof;
    }
    let control = |byte: &u8| *byte < b' ' && !matches!(byte, b'\n' | b'\r' | b'\t');
    if !bytes.is_empty() && !bytes.iter().any(control) && str::from_utf8(bytes).is_ok() {
        return Kind::Folded;
    }
    if bytes.first() == Some(&0) {
        return Kind::Otlp;
    }
    encoded(bytes)
}

/// The UTF-8 byte order mark, which some editors put before a text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Detects the format of an encoded message. A request of OTLP has only the fields 1 and 2, and
/// field 1 begins with a message or a string. A pprof file has more fields, and its field 1 is a
/// sample type, which has only integers.
fn encoded(bytes: &[u8]) -> Kind {
    let mut rest = bytes;
    while let Ok((key, after)) = varint(rest) {
        let (number, wire_type) = (key >> 3, key & 7);
        if number > 2 {
            return Kind::Pprof;
        }
        let after_length = varint(after).map_or(&[][..], |(_, after)| after);
        if wire_type == 2 {
            // The wire type of the first field in the message, unless the message is empty.
            let inner = after_length.first().filter(|_| after.first() != Some(&0));
            match (number, inner.map(|key| key & 7)) {
                (1, Some(0)) => return Kind::Pprof,
                (1, Some(2)) => return Kind::Otlp,
                // A sample may begin with an integer; the dictionary of OTLP has messages only.
                (2, Some(0)) => return Kind::Pprof,
                _ => {}
            }
        }
        let wire_type = u32::try_from(wire_type).unwrap_or_default();
        match value(wire_type, after) {
            Ok((_, after)) => rest = after,
            Err(_) => break,
        }
    }
    Kind::Otlp
}

/// Checks that the bytes are a message of OTLP.
pub(super) fn valid(bytes: &[u8]) -> Result<(), String> {
    // A message of an old layout often cannot be decoded; this error names the reason.
    layout::recognise(bytes).map_err(|error| error.to_string())?;
    tributary_otlp::validate(Signal::Profiles, bytes)
        .map_err(|error| format!("these are no OTLP profiles: {error}"))?;
    Ok(())
}

/// Decodes a message of OTLP.
pub(super) fn decode(bytes: &[u8]) -> Result<ExportProfilesServiceRequest, String> {
    valid(bytes)?;
    ExportProfilesServiceRequest::decode(bytes)
        .map_err(|error| format!("these are no OTLP profiles: {error}"))
}

/// Reads and decompresses a file or URL.
pub(super) fn read(file: &Path, fetching: &fetch::Fetching) -> Result<Vec<u8>, String> {
    let cannot = |error: io::Error| format!("cannot read it: {error}");
    let mut bytes = Vec::new();
    if let Some(url) = fetch::url(file) {
        bytes = fetching.fetch(url, LIMIT)?;
    } else if file.as_os_str() == "-" {
        limited(io::stdin().lock(), &mut bytes).map_err(cannot)?;
    } else {
        let file = File::open(file).map_err(cannot)?;
        // The current size plus one byte, to detect a file that is growing.
        let size = file.metadata().map_err(cannot)?.len().min(LIMIT) + 1;
        bytes.reserve_exact(usize::try_from(size).unwrap_or_default());
        limited(file, &mut bytes).map_err(cannot)?;
    }
    // A server or an archive may compress data that is compressed already.
    for _ in 0..2 {
        if bytes.starts_with(&[0x1f, 0x8b]) {
            bytes = decompressed(&bytes).map_err(cannot)?;
        }
    }
    Ok(bytes)
}

fn decompressed(bytes: &[u8]) -> io::Result<Vec<u8>> {
    // The size alone limits the memory.
    let limit = usize::try_from(LIMIT).unwrap_or(usize::MAX);
    let mut permit = Budget::new(usize::MAX).nothing();
    decompress(Codec::Gzip, bytes, limit, &mut permit).map_err(io::Error::other)
}

fn limited(reader: impl Read, output: &mut Vec<u8>) -> io::Result<()> {
    if reader.take(LIMIT + 1).read_to_end(output)? as u64 > LIMIT {
        return Err(io::Error::other(format!("it has more than {LIMIT} bytes")));
    }
    Ok(())
}

/// Splits a file into messages: one message, or several with four bytes of length (big-endian)
/// before each. No message begins with a zero byte, and every length below 16 MiB does.
pub(super) fn messages(bytes: &[u8]) -> Result<Vec<&[u8]>, String> {
    if bytes.first() != Some(&0) {
        return Ok(vec![bytes]);
    }
    let mut messages = Vec::new();
    let mut rest = bytes;
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let length = u32::from_be_bytes(*length) as usize;
        let Some((message, after)) = after.split_at_checked(length) else {
            let missing = length - after.len();
            return Err(format!(
                "it ends {missing} bytes before the end of its last message"
            ));
        };
        messages.push(message);
        rest = after;
    }
    match rest {
        [] => Ok(messages),
        _ => Err("it ends within the length of a message".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_off_pprof_file_is_called_a_pprof_file() {
        let file = include_bytes!("../../../../tests/profiles/cpu.pb.gz");
        let file = decompressed(file).unwrap();
        // The first sample type has a key and a length.
        for end in 3..file.len() {
            assert_eq!(kind(&file[..end]), Kind::Pprof, "{end}");
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
                let kind = kind(&request[..end]);
                assert!(matches!(kind, Kind::Otlp | Kind::Folded), "{kind:?}");
            }
        }
    }

    #[test]
    fn byte_order_mark_hides_no_json() {
        assert_eq!(kind(b"\xef\xbb\xbf{}"), Kind::OtlpJson);
    }

    #[test]
    fn messages_with_a_length_before_them_are_taken_apart() {
        let framed = [&[0, 0, 0, 2][..], b"ab", &[0, 0, 0, 1], b"c"].concat();
        assert_eq!(messages(&framed).unwrap(), [&b"ab"[..], b"c"]);
        assert_eq!(messages(b"abc").unwrap(), [b"abc"]);
        assert_eq!(messages(b"").unwrap(), [b""]);
        let short = messages(&framed[..8]).unwrap_err();
        assert!(short.contains("within the length"), "{short}");
        let short = messages(&[0, 0, 0, 2, 9]).unwrap_err();
        assert!(short.contains("1 bytes before"), "{short}");
    }
}
