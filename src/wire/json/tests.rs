//! Round trips over all fields of all signals; forms that are read, errors that are given.
#![allow(clippy::unwrap_used)]

use fastrand::Rng;
use proptest::prelude::*;
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};
use prost_types::field_descriptor_proto::Type;

use super::*;
use crate::batch::Decoded;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn every_request_survives_the_way_to_json_and_back(seed: u64, signal in 0_usize..4) {
        let signal = Signal::ALL[signal];
        let request = random_request(signal, seed);
        let json = from_wire(signal, &request).unwrap();
        let parsed: serde_json::Value = serde_json::from_slice(&json).unwrap();
        prop_assert!(parsed.is_object());
        let back = to_wire(signal, &json).unwrap();
        prop_assert_eq!(Decoded::decode(signal, &back).unwrap().encode(), request);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes: Vec<u8>, signal in 0_usize..4) {
        let _ = to_wire(Signal::ALL[signal], &bytes);
        let _ = from_wire(Signal::ALL[signal], &bytes);
    }

    #[test]
    fn damaged_json_never_panics_and_what_is_accepted_decodes(
        seed: u64,
        signal in 0_usize..4,
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let signal = Signal::ALL[signal];
        let mut json = from_wire(signal, &random_request(signal, seed)).unwrap();
        for (at, byte) in edits {
            let at = at.index(json.len());
            json[at] = byte;
        }
        if let Ok(request) = to_wire(signal, &json) {
            prop_assert!(Decoded::decode(signal, &request).is_ok());
        }
    }

    #[test]
    fn damaged_bytes_never_panic_and_prost_agrees_on_what_is_accepted(
        seed: u64,
        signal in 0_usize..4,
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let signal = Signal::ALL[signal];
        let mut request = random_request(signal, seed).to_vec();
        prop_assume!(!request.is_empty());
        for (at, byte) in edits {
            let at = at.index(request.len());
            request[at] = byte;
        }
        match (from_wire(signal, &request), Decoded::decode(signal, &request)) {
            (Ok(json), Ok(decoded)) => {
                let back = to_wire(signal, &json).unwrap();
                prop_assert_eq!(
                    Decoded::decode(signal, &back).unwrap().encode(),
                    without_nan_payloads(signal, &decoded)
                );
            }
            (Err(error), decoded) => {
                prop_assert!(decoded.is_err() || error.reason.contains("group"), "{}", error);
            }
            (Ok(_), Err(error)) => prop_assert!(false, "only prost refuses: {}", error),
        }
    }
}

/// JSON has one NaN, the wire has many.
fn without_nan_payloads(signal: Signal, decoded: &Decoded) -> bytes::Bytes {
    let json = from_wire(signal, &decoded.encode()).unwrap();
    let request = to_wire(signal, &json).unwrap();
    Decoded::decode(signal, &request).unwrap().encode()
}

/// A request with any fields set, also to zero, as prost encodes it.
fn random_request(signal: Signal, seed: u64) -> bytes::Bytes {
    let mut rng = Rng::with_seed(seed);
    let mut request = Vec::new();
    let root = DESCRIPTORS.root(signal);
    random_message(&mut rng, root, 6, &mut request);
    Decoded::decode(signal, &request).unwrap().encode()
}

fn random_message(rng: &mut Rng, message: usize, depth: usize, out: &mut Vec<u8>) {
    let mut oneofs_set = Vec::new();
    let mut fields: Vec<_> = DESCRIPTORS.messages[message].fields.iter().collect();
    rng.shuffle(&mut fields);
    for field in fields {
        if rng.u8(..4) == 0 || field.kind == Type::Message && depth == 0 {
            continue;
        }
        if let Some(oneof) = field.oneof {
            if oneofs_set.contains(&oneof) {
                continue;
            }
            oneofs_set.push(oneof);
        }
        let count = if field.repeated { rng.usize(..3) } else { 1 };
        for _ in 0..count {
            random_value(rng, field, depth, out);
        }
    }
}

fn random_value(rng: &mut Rng, field: &FieldDescriptor, depth: usize, out: &mut Vec<u8>) {
    let bits = [
        0,
        1,
        127,
        128,
        u64::MAX,
        1 << 63,
        u64::from(u32::MAX),
        rng.u64(..),
    ][rng.usize(..8)];
    match field.kind {
        Type::Message => {
            let mut inner = Vec::new();
            random_message(rng, field.message.unwrap(), depth - 1, &mut inner);
            delimited(field, &inner, out);
        }
        Type::String => {
            let length = [0, 3, 3, 200][rng.usize(..4)];
            let text: String = (0..length)
                .map(|_| {
                    [
                        'a',
                        '"',
                        '\\',
                        '\n',
                        '\u{0}',
                        '\u{7f}',
                        '\u{e9}',
                        '\u{1f600}',
                    ][rng.usize(..8)]
                })
                .collect();
            delimited(field, text.as_bytes(), out);
        }
        Type::Bytes => {
            let bytes: Vec<u8> = (0..[0, 1, 8, 16][rng.usize(..4)])
                .map(|_| rng.u8(..))
                .collect();
            delimited(field, &bytes, out);
        }
        Type::Double => {
            let value = [
                0.0,
                -0.0,
                0.1,
                1e300,
                f64::NAN,
                f64::NEG_INFINITY,
                rng.f64(),
                f64::MIN_POSITIVE,
            ][rng.usize(..8)];
            encode_key(field.number, WireType::SixtyFourBit, out);
            out.extend_from_slice(&value.to_le_bytes());
        }
        Type::Fixed64 | Type::Sfixed64 => {
            encode_key(field.number, WireType::SixtyFourBit, out);
            out.extend_from_slice(&bits.to_le_bytes());
        }
        Type::Fixed32 => {
            encode_key(field.number, WireType::ThirtyTwoBit, out);
            out.extend_from_slice(&(bits as u32).to_le_bytes());
        }
        Type::Bool => {
            encode_key(field.number, WireType::Varint, out);
            out.push(rng.u8(..2));
        }
        Type::Int32 | Type::Int64 | Type::Uint32 | Type::Uint64 | Type::Sint32 | Type::Enum => {
            encode_key(field.number, WireType::Varint, out);
            encode_varint(bits, out);
        }
        other => panic!("OTLP has a new kind of field: {other:?}"),
    }
}

fn delimited(field: &FieldDescriptor, content: &[u8], out: &mut Vec<u8>) {
    encode_key(field.number, WireType::LengthDelimited, out);
    encode_varint(content.len() as u64, out);
    out.extend_from_slice(content);
}

#[test]
fn the_sets_of_seen_fields_are_large_enough() {
    for message in &DESCRIPTORS.messages {
        assert!(message.fields.len() <= 64, "{}", message.name);
        assert!(message.fields.iter().all(|field| field.oneof < Some(64)));
    }
}
