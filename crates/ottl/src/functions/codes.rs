//! Functions of encodings and ids.

use base64::Engine as _;
use base64::engine::GeneralPurpose;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use std::borrow::Cow;
use std::time::SystemTime;

use super::ParameterKind::{Any, Text};
use super::{Arguments, Function, Literals, Parameter, TARGET, TARGET_TEXT};
use crate::value::{Undecided, Value, hexadecimal};

const ID: Parameter = Parameter::new("target", Any);

pub(super) const ALL: &[Function] = &[
    Function::new("Hex", &[TARGET], |arguments| {
        let bytes = arguments.bytes(0)?.unwrap_or_default();
        Ok(Value::owned_text(hexadecimal(&bytes)))
    }),
    Function::new("Base64Decode", &[TARGET_TEXT], |arguments| {
        decoded(&STANDARD, arguments.text(0)?.as_bytes())
    }),
    Function::new(
        "Base64Encode",
        &[TARGET_TEXT, Parameter::optional("variant", Text)],
        |arguments| {
            let engine = engine(arguments.text_or(1, "base64")?);
            let engine = engine.ok_or(Undecided::Because("unknown variant of base64"))?;
            Ok(Value::owned_text(engine.encode(arguments.text(0)?)))
        },
    )
    .checked(|literals| variant(literals, 1)),
    Function::new(
        "Decode",
        &[TARGET, Parameter::new("encoding", Text)],
        decode,
    )
    .checked(|literals| encoding(literals, 1)),
    Function::new("TraceID", &[ID], |arguments| id::<16>(arguments)),
    Function::new("SpanID", &[ID], |arguments| id::<8>(arguments)),
    Function::new("ProfileID", &[ID], |arguments| id::<16>(arguments)),
    Function::new("UUID", &[], |_| {
        Ok(Value::owned_text(uuid(fastrand::u128(..), 4)))
    })
    .impure(),
    Function::new("UUIDv7", &[], |_| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let milliseconds = now.map_or(0, |now| now.as_millis());
        let random = fastrand::u128(..) & (u128::MAX >> 48);
        Ok(Value::owned_text(uuid(milliseconds << 80 | random, 7)))
    })
    .impure(),
];

fn engine(variant: &str) -> Option<&'static GeneralPurpose> {
    Some(match variant {
        "base64" => &STANDARD,
        "base64-raw" => &STANDARD_NO_PAD,
        "base64-url" => &URL_SAFE,
        "base64-raw-url" => &URL_SAFE_NO_PAD,
        _ => return None,
    })
}

fn variant(literals: &Literals<'_>, at: usize) -> Result<(), String> {
    match literals.text(at) {
        Some(name) if engine(name).is_none() => Err(format!(
            "`{name}` is not base64, base64-raw, base64-url or base64-raw-url"
        )),
        _ => Ok(()),
    }
}

/// A text encoding whose decoder is small.
#[derive(Debug, Clone, Copy)]
enum Charset {
    Utf8,
    Latin1,
    Utf16(bool),
}

fn charset(name: &str) -> Option<Charset> {
    Some(match name.to_ascii_lowercase().as_str() {
        "utf-8" | "utf8" | "utf8-raw" | "ascii" | "us-ascii" => Charset::Utf8,
        "iso-8859-1" | "latin1" => Charset::Latin1,
        "utf-16le" => Charset::Utf16(false),
        "utf-16be" => Charset::Utf16(true),
        _ => return None,
    })
}

fn encoding(literals: &Literals<'_>, at: usize) -> Result<(), String> {
    match literals.text(at) {
        Some(name) if engine(name).is_none() && charset(name).is_none() => Err(format!(
            "the encoding `{name}` is not built in; built in: base64, base64-raw, base64-url, base64-raw-url, utf-8, \
             us-ascii, iso-8859-1, utf-16le, utf-16be"
        )),
        _ => Ok(()),
    }
}

fn decode<'v>(arguments: &mut Arguments<'_, 'v>) -> Result<Value<'v>, Undecided> {
    let name = arguments.text(1)?;
    let bytes: Cow<'_, [u8]> = match arguments.value(0) {
        Value::Bytes(bytes) => Cow::Borrowed(bytes),
        Value::Text(text) => Cow::Borrowed(text.as_bytes()),
        _ => return Err(Undecided::NoText),
    };
    if let Some(engine) = engine(name) {
        return decoded(engine, &bytes);
    }
    let text = match charset(name) {
        Some(Charset::Utf8) => String::from_utf8_lossy(&bytes).into_owned(),
        Some(Charset::Latin1) => bytes.iter().map(|byte| char::from(*byte)).collect(),
        Some(Charset::Utf16(is_big)) => {
            let units = bytes.chunks(2).map(|pair| match (pair, is_big) {
                ([first, second], true) => u16::from_be_bytes([*first, *second]),
                ([first, second], false) => u16::from_le_bytes([*first, *second]),
                _ => u16::MAX,
            });
            char::decode_utf16(units)
                .map(|found| found.unwrap_or(char::REPLACEMENT_CHARACTER))
                .collect()
        }
        None => return Err(Undecided::Because("the encoding is not built in")),
    };
    Ok(Value::owned_text(text))
}

fn decoded(engine: &GeneralPurpose, bytes: &[u8]) -> Result<Value<'static>, Undecided> {
    // As in Go, line breaks are skipped.
    let bytes: Vec<u8> = bytes
        .iter()
        .copied()
        .filter(|byte| !matches!(byte, b'\r' | b'\n'))
        .collect();
    let decoded = engine.decode(bytes);
    let decoded = decoded.map_err(|_| Undecided::Because("a text is not valid base64"))?;
    // A text of OTLP is UTF-8.
    Ok(Value::owned_text(
        String::from_utf8_lossy(&decoded).into_owned(),
    ))
}

fn id<'v, const N: usize>(arguments: &mut Arguments<'_, 'v>) -> Result<Value<'v>, Undecided> {
    const NO_ID: Undecided =
        Undecided::Because("an id needs its bytes or their hexadecimal digits");
    let bytes = arguments.bytes(0)?.ok_or(NO_ID)?;
    if bytes.len() == N {
        return Ok(Value::Id(Cow::Owned(bytes.into_owned())));
    }
    if bytes.len() != 2 * N {
        return Err(NO_ID);
    }
    let pairs = bytes.chunks(2).map(|pair| {
        let text = std::str::from_utf8(pair).ok()?;
        let is_hexadecimal = text.bytes().all(|digit| digit.is_ascii_hexdigit());
        u8::from_str_radix(text, 16).ok().filter(|_| is_hexadecimal)
    });
    let id: Option<Vec<u8>> = pairs.collect();
    id.map(|id| Value::Id(Cow::Owned(id))).ok_or(NO_ID)
}

/// Formats a UUID of a version (RFC 9562).
fn uuid(bits: u128, version: u128) -> String {
    let bits = bits & !(0xf << 76) & !(0x3 << 62) | version << 76 | 0x2 << 62;
    let digits = format!("{bits:032x}");
    let part = |from: usize, to: usize| digits.get(from..to).unwrap_or_default();
    format!(
        "{}-{}-{}-{}-{}",
        part(0, 8),
        part(8, 12),
        part(12, 16),
        part(16, 20),
        part(20, 32)
    )
}
