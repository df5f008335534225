//! Targets that read OTLP: protobuf and JSON.

use std::sync::LazyLock;

use bytes::Bytes;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use tributary_otlp::{Decoded, Signal};
use tributary_otlp::attributes::{Action, Actions, AttributeLevel, Operation, ValueSource};
use tributary_otlp::{Limit, json};

use crate::generator::{Entropy, Generator};
use crate::{oracle, rebuild};

static WILD: LazyLock<Generator> = LazyLock::new(|| Generator::new(true));

/// Accepts exactly what prost accepts, and counts the same.
pub fn validate(input: &[u8]) {
    if let [signal, request @ ..] = input {
        oracle::validates_like_prost(signal_of(*signal), request);
    }
}

/// Editing attributes on the wire equals decoding, editing and encoding.
pub fn edit(input: &[u8]) {
    let (signal, request, mut entropy) = request(input);
    let level = [AttributeLevel::Items, AttributeLevel::Resources][usize::from(entropy.below(2))];
    let actions = (0..=entropy.below(4)).map(|_| action(&mut entropy));
    oracle::edits_like_prost(signal, &request, level, &Actions::new(actions.collect()));
}

/// The client's identity is on every resource, and no other attribute with the same key remains.
pub fn stamp(input: &[u8]) {
    let (signal, request, mut entropy) = request(input);
    let key = ["a", "b", "c", "d", "text.7"][usize::from(entropy.below(5))];
    let identity = (entropy.below(4) > 0).then(|| "v".repeat(entropy.byte().into()));
    oracle::stamps_like_prost(signal, &request, key, identity.as_deref());
}

/// Splitting keeps all items in order, and the parts are within the limits.
pub fn split(input: &[u8]) {
    let (signal, request, mut entropy) = request(input);
    let limit = Limit {
        items: 1 + usize::from(entropy.below(16)),
        bytes: 1 + usize::from(entropy.byte()) * 16,
    };
    let request = Bytes::from(request);
    let pieces = tributary::pipeline::split(signal, &request, limit);
    oracle::divided_without_loss(signal, &request, limit, pieces);
}

/// Any text that the JSON transcoder accepts gives a valid request, which survives a round trip
/// through JSON.
pub fn json(input: &[u8]) {
    let [signal, text @ ..] = input else {
        return;
    };
    let signal = signal_of(*signal);
    match json::to_wire(signal, text) {
        Ok(request) => there_and_back(signal, &request),
        // Messages have one line, because they are logged.
        Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
    }
}

/// Every valid request can be transcoded to JSON, which other readers accept, and back without a
/// change.
pub fn transcode(input: &[u8]) {
    let (signal, request, _) = request(input);
    there_and_back(signal, &request);
}

fn there_and_back(signal: Signal, request: &[u8]) {
    let expected = Decoded::decode(signal, request).unwrap();
    assert_eq!(
        tributary_otlp::validate(signal, request),
        Ok(oracle::items(&expected))
    );
    let text = json::from_wire(signal, request).unwrap();
    let read: serde_json::Value = serde_json::from_slice(&text).unwrap();
    assert!(read.is_object());
    let back = json::to_wire(signal, &text).unwrap();
    let back = Decoded::decode(signal, &back).unwrap();
    assert_eq!(format!("{back:?}"), format!("{expected:?}"));
}

/// Views read the same values as prost's decoder, and a request that a receiver accepts keeps its
/// content.
pub fn view(input: &[u8]) {
    let (signal, request, _) = request(input);
    rebuild::reads_like_prost(signal, Bytes::from(request));
}

pub(crate) fn signal_of(byte: u8) -> Signal {
    Signal::ALL[usize::from(byte % 4)]
}

/// Returns a valid request: the input if it is valid, otherwise a request generated from its bytes.
pub(crate) fn request(input: &[u8]) -> (Signal, Vec<u8>, Entropy<'_>) {
    // The first half decides about the operation, the second half is the request.
    let (decisions, request) = input.split_at(input.len().min(64) / 2);
    let mut entropy = Entropy(decisions);
    let signal = signal_of(entropy.byte());
    let request = match tributary_otlp::validate(signal, request) {
        Ok(_) => request.to_vec(),
        Err(_) => WILD.request(signal, &mut Entropy(request)),
    };
    (signal, request, entropy)
}

fn action(entropy: &mut Entropy<'_>) -> Action {
    // The keys that the generator uses most.
    let key = |entropy: &mut Entropy<'_>| {
        ["a", "b", "c", "d", ""][usize::from(entropy.below(5))].to_owned()
    };
    let source = |entropy: &mut Entropy<'_>| match entropy.below(3) {
        0 => ValueSource::Attribute(key(entropy)),
        1 => ValueSource::Value(Value::IntValue(entropy.byte().into())),
        _ => ValueSource::Value(Value::StringValue("v".repeat(entropy.byte().into()))),
    };
    Action {
        key: key(entropy),
        operation: match entropy.below(4) {
            0 => Operation::Insert(source(entropy)),
            1 => Operation::Update(source(entropy)),
            2 => Operation::Upsert(source(entropy)),
            _ => Operation::Delete,
        },
    }
}
