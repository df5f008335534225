//! Round trips of all fields of all signals, accepted notations, and errors.
#![allow(clippy::unwrap_used)]

use fastrand::Rng;
use proptest::prelude::*;
use prost::encoding::{WireType, encode_key, encode_varint};
use prost_types::field_descriptor_proto::Type;

use super::*;
use crate::Decoded;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn json_round_trip_keeps_every_request(seed: u64, signal in 0_usize..4) {
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
    fn damaged_json_never_panics(
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
    fn damaged_request_is_transcoded_or_refused_like_prost(
        seed: u64,
        signal in 0_usize..4,
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let signal = Signal::ALL[signal];
        let mut request = random_request(signal, seed).to_vec();
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
            // Receivers validate every occurrence of a field before transcoding. The transcoder reads only the last
            // occurrence of a singular field, and skips damage in earlier occurrences.
            (Ok(_), Err(error)) => {
                prop_assert!(crate::validate(signal, &request).is_err(), "only prost refuses: {}", error);
            }
        }
    }
}

/// JSON has one NaN, protobuf has many.
fn without_nan_payloads(signal: Signal, decoded: &Decoded) -> bytes::Bytes {
    let json = from_wire(signal, &decoded.encode()).unwrap();
    let request = to_wire(signal, &json).unwrap();
    Decoded::decode(signal, &request).unwrap().encode()
}

/// Returns a request with random fields, also zeros, as encoded by prost.
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
        // Every level down to the items is present; below the items, any field may be missing.
        let sparse = depth < 4;
        if field.kind == Type::Message && depth == 0 || sparse && rng.u8(..4) == 0 {
            continue;
        }
        if let Some(oneof) = field.oneof {
            if oneofs_set.contains(&oneof) {
                continue;
            }
            oneofs_set.push(oneof);
        }
        let count = match field.repeated {
            true => rng.usize(usize::from(!sparse)..3),
            false => 1,
        };
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
fn seen_field_sets_cover_all_field_numbers() {
    for message in &DESCRIPTORS.messages {
        assert!(message.fields.len() <= 64, "{}", message.name);
        assert!(message.fields.iter().all(|field| field.oneof < Some(64)));
    }
}

fn decode(signal: Signal, json: &str) -> Decoded {
    let request =
        to_wire(signal, json.as_bytes()).unwrap_or_else(|error| panic!("{error}: {json}"));
    Decoded::decode(signal, &request).unwrap()
}

/// Transcodes the request to protobuf and back to JSON.
fn canonical(signal: Signal, json: &str) -> String {
    let request =
        to_wire(signal, json.as_bytes()).unwrap_or_else(|error| panic!("{error}: {json}"));
    String::from_utf8(from_wire(signal, &request).unwrap()).unwrap()
}

fn span(content: &str) -> String {
    format!(r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{{{content}}}]}}]}}]}}"#)
}

fn metric(content: &str) -> String {
    format!(r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{{{content}}}]}}]}}]}}"#)
}

#[test]
fn every_allowed_json_form_is_read() {
    use Signal::{Metrics, Traces};
    let value = |value: &str| {
        span(&format!(
            r#""attributes":[{{"key":"k","value":{{{value}}}}}]"#
        ))
    };
    let sum = |content: &str| metric(&format!(r#""histogram":{{"dataPoints":[{{{content}}}]}}"#));
    let point = |content: &str| metric(&format!(r#""gauge":{{"dataPoints":[{{{content}}}]}}"#));
    for (signal, given, expected) in [
        // Integers: numbers, strings, integral fractions and exponents.
        (
            Traces,
            span(r#""endTimeUnixNano":1700000000000000001"#),
            span(r#""endTimeUnixNano":"1700000000000000001""#),
        ),
        (
            Traces,
            span(r#""endTimeUnixNano":"17e3""#),
            span(r#""endTimeUnixNano":"17000""#),
        ),
        (
            Traces,
            span(r#""endTimeUnixNano":1.5e3"#),
            span(r#""endTimeUnixNano":"1500""#),
        ),
        (Traces, span(r#""flags":"257""#), span(r#""flags":257"#)),
        (
            Traces,
            span(r#""droppedLinksCount":"4294967295""#),
            span(r#""droppedLinksCount":4294967295"#),
        ),
        (
            Traces,
            value(r#""intValue":-9223372036854775808"#),
            value(r#""intValue":"-9223372036854775808""#),
        ),
        // Zeros are kept if they differ from a missing value.
        (
            Traces,
            value(r#""intValue":"0""#),
            value(r#""intValue":"0""#),
        ),
        (
            Traces,
            value(r#""intValue":-0"#),
            value(r#""intValue":"0""#),
        ),
        (
            Traces,
            value(r#""stringValue":"""#),
            value(r#""stringValue":"""#),
        ),
        (
            Traces,
            value(r#""boolValue":false"#),
            value(r#""boolValue":false"#),
        ),
        (
            Traces,
            value(r#""arrayValue":{}"#),
            value(r#""arrayValue":{}"#),
        ),
        (
            Traces,
            value(r#""bytesValue":"""#),
            value(r#""bytesValue":"""#),
        ),
        (Metrics, point(r#""asInt":0"#), point(r#""asInt":"0""#)),
        (
            Metrics,
            sum(r#""sum":0,"min":0"#),
            sum(r#""sum":0.0,"min":0.0"#),
        ),
        (
            Metrics,
            sum(r#""count":"0","bucketCounts":["0"]"#),
            sum(r#""bucketCounts":["0"]"#),
        ),
        (
            Traces,
            span(r#""name":"","kind":0,"flags":0,"traceId":"""#),
            span(""),
        ),
        (Traces, span(r#""status":{}"#), span(r#""status":{}"#)),
        // Lists of scalars with both numbers and strings.
        (
            Metrics,
            sum(r#""bucketCounts":[1,"2",3e0],"explicitBounds":[1,"2.5"]"#),
            sum(r#""bucketCounts":["1","2","3"],"explicitBounds":[1.0,2.5]"#),
        ),
        (Metrics, sum(r#""bucketCounts":[]"#), sum("")),
        (
            Metrics,
            point(r#""asDouble":"NaN""#),
            point(r#""asDouble":"NaN""#),
        ),
        (
            Metrics,
            point(r#""asDouble":"-Infinity""#),
            point(r#""asDouble":"-Infinity""#),
        ),
        (
            Metrics,
            point(r#""asDouble":"1.5e1""#),
            point(r#""asDouble":15.0"#),
        ),
        (
            Metrics,
            point(r#""asDouble":7"#),
            point(r#""asDouble":7.0"#),
        ),
        (
            Metrics,
            point(r#""asDouble":2.2250738585072014e-308"#),
            point(r#""asDouble":2.2250738585072014e-308"#),
        ),
        // Enums as numbers, also unknown ones.
        (Traces, span(r#""kind":"2""#), span(r#""kind":2"#)),
        (Traces, span(r#""kind":77"#), span(r#""kind":77"#)),
        // Ids in hex of either case and any length, other bytes in any base64.
        (
            Traces,
            span(r#""traceId":"5B8EFFF798038103D269B633813FC60C""#),
            span(r#""traceId":"5b8efff798038103d269b633813fc60c""#),
        ),
        (
            Traces,
            span(r#""parentSpanId":"0a""#),
            span(r#""parentSpanId":"0a""#),
        ),
        (
            Traces,
            value(r#""bytesValue":"-_8=""#),
            value(r#""bytesValue":"+/8=""#),
        ),
        (
            Traces,
            value(r#""bytesValue":"+/8""#),
            value(r#""bytesValue":"+/8=""#),
        ),
        // null means absent, except in a list.
        (
            Traces,
            span(r#""name":null,"kind":null,"attributes":null,"status":null,"traceId":null"#),
            span(""),
        ),
        (
            Traces,
            value(r#""stringValue":null,"intValue":1"#),
            value(r#""intValue":"1""#),
        ),
        (
            Traces,
            r#"{"resourceSpans":null}"#.to_owned(),
            "{}".to_owned(),
        ),
        (
            Traces,
            value(r#""dateValue":[[{"x":1}],"\ud800"],"boolValue":true"#),
            value(r#""boolValue":true"#),
        ),
        (
            Traces,
            r#"{"newThing":{"resourceSpans":[1,2,{"deep":[]}]}}"#.to_owned(),
            "{}".to_owned(),
        ),
        // Both spellings of names, escapes in names, white space, order, byte order mark.
        (
            Traces,
            r#"{"resource_spans":[{"scope_spans":[{"spans":[{"span_id":"ff"}]}]}]}"#.to_owned(),
            span(r#""spanId":"ff""#),
        ),
        (Traces, span(r#""n\u0061me":"n""#), span(r#""name":"n""#)),
        (
            Traces,
            span(" \n\"kind\" :\t1 , \"name\" : \"n\" "),
            span(r#""name":"n","kind":1"#),
        ),
        (Traces, "\u{feff}{}".to_owned(), "{}".to_owned()),
        (
            Traces,
            span(r#""name":"\ud83d\ude00\u0000\/""#),
            span("\"name\":\"\u{1f600}\\u0000/\""),
        ),
        (
            Traces,
            span(r#""name":"a\ud83d""#),
            span("\"name\":\"a\u{fffd}\""),
        ),
        (
            Traces,
            span(r#""name":"\ude00\ud83db""#),
            span("\"name\":\"\u{fffd}\u{fffd}b\""),
        ),
        (
            Traces,
            value(r#""stringValueStrindex":3"#),
            value(r#""stringValueStrindex":3"#),
        ),
        (Traces, span("\"name\":\"a\nb\""), span(r#""name":"a\nb""#)),
        (
            Traces,
            r#"{"resourceSpans":[]}"#.to_owned(),
            "{}".to_owned(),
        ),
        (
            Traces,
            r#"{"resourceSpans":[{}]}"#.to_owned(),
            r#"{"resourceSpans":[{}]}"#.to_owned(),
        ),
    ] {
        assert_eq!(canonical(signal, &given), expected, "{given}");
    }
}

#[test]
fn errors_name_path_and_expected_value() {
    use Signal::{Metrics, Profiles, Traces};
    const SPAN: &str = "resourceSpans[0].scopeSpans[0].spans[0]";
    const METRIC: &str = "resourceMetrics[0].scopeMetrics[0].metrics[0]";
    let integer = "expected an integer, as a number or in a string, found";
    let double = "expected a number, \"NaN\", \"Infinity\" or \"-Infinity\", found";
    let hex = "expected an even number of hexadecimal digits (OTLP/JSON writes ids in hex, not in base64)";
    for (signal, json, path, reason) in [
        (Traces, span(r#""traceId":"5b8""#), format!("{SPAN}.traceId"), hex.to_owned()),
        (Traces, span(r#""spanId":"W47/95gDgQPSabYzgT/GDA==""#), format!("{SPAN}.spanId"), hex.to_owned()),
        (Traces, span(r#""links":[{},{"traceId":"xx"}]"#), format!("{SPAN}.links[1].traceId"), hex.to_owned()),
        (Traces, span(r#""trace_id":7"#), format!("{SPAN}.traceId"), "expected hexadecimal digits in a string, found a number".to_owned()),
        (Profiles, r#"{"dictionary":{"linkTable":[{"spanId":"0"}]}}"#.to_owned(), "dictionary.linkTable[0].spanId".to_owned(), hex.to_owned()),
        (Profiles, r#"{"resourceProfiles":[{"scopeProfiles":[{"profiles":[{"originalPayload":"*"}]}]}]}"#.to_owned(), "resourceProfiles[0].scopeProfiles[0].profiles[0].originalPayload".to_owned(), "expected base64".to_owned()),
        (Traces, span(r#""kind":"SPAN_KIND_SERVER""#), format!("{SPAN}.kind"), "OTLP/JSON does not allow enum names; write 2 instead of \"SPAN_KIND_SERVER\"".to_owned()),
        (Traces, span(r#""kind":"secret""#), format!("{SPAN}.kind"), "expected the number of an enum value, found a string".to_owned()),
        (Traces, span(r#""kind":1.5"#), format!("{SPAN}.kind"), "expected the number of an enum value, found a fraction".to_owned()),
        (Traces, span(r#""kind":2147483648"#), format!("{SPAN}.kind"), "the number is out of range for a signed 32-bit integer".to_owned()),
        (Traces, span(r#""flags":-1"#), format!("{SPAN}.flags"), "the number is out of range for an unsigned 32-bit integer".to_owned()),
        (Traces, span(r#""endTimeUnixNano":18446744073709551616"#), format!("{SPAN}.endTimeUnixNano"), "the number is out of range for an unsigned 64-bit integer".to_owned()),
        (Traces, span(r#""endTimeUnixNano":"1e20""#), format!("{SPAN}.endTimeUnixNano"), "the number is out of range for an unsigned 64-bit integer".to_owned()),
        (Traces, span(r#""endTimeUnixNano":1e300"#), format!("{SPAN}.endTimeUnixNano"), "the number is out of range for an unsigned 64-bit integer".to_owned()),
        (Traces, span(r#""endTimeUnixNano":"yesterday""#), format!("{SPAN}.endTimeUnixNano"), format!("{integer} another string")),
        (Traces, span(r#""endTimeUnixNano":1.5"#), format!("{SPAN}.endTimeUnixNano"), format!("{integer} a fraction")),
        (Traces, span(r#""endTimeUnixNano":true"#), format!("{SPAN}.endTimeUnixNano"), format!("{integer} a boolean")),
        (Traces, span(r#""endTimeUnixNano":[1]"#), format!("{SPAN}.endTimeUnixNano"), format!("{integer} a list")),
        (Traces, span(r#""name":5"#), format!("{SPAN}.name"), "expected a string, found a number".to_owned()),
        (Traces, span(r#""name":["n"]"#), format!("{SPAN}.name"), "expected a string, found a list".to_owned()),
        (Traces, span(r#""status":[]"#), format!("{SPAN}.status"), "expected an object, found a list".to_owned()),
        (Traces, span(r#""attributes":{}"#), format!("{SPAN}.attributes"), "expected a list, found an object".to_owned()),
        (Traces, span(r#""attributes":[[]]"#), format!("{SPAN}.attributes[0]"), "expected an object, found a list".to_owned()),
        (Traces, span(r#""attributes":[{},null]"#), format!("{SPAN}.attributes[1]"), "null is not allowed in a list".to_owned()),
        (Traces, span(r#""attributes":[{"value":{"boolValue":"true"}}]"#), format!("{SPAN}.attributes[0].value.boolValue"), "expected true or false, found a string".to_owned()),
        (Traces, span(r#""attributes":[{"value":{"boolValue":true,"intValue":1}}]"#), format!("{SPAN}.attributes[0].value.intValue"), "only one of the alternatives may be set".to_owned()),
        (Traces, span(r#""name":"a","name":"b""#), format!("{SPAN}.name"), "the key occurs twice".to_owned()),
        (Traces, span(r#""spanId":"","span_id":"00""#), format!("{SPAN}.spanId"), "the key occurs twice".to_owned()),
        (Metrics, metric(r#""gauge":"haha""#), format!("{METRIC}.gauge"), "expected an object, found a string".to_owned()),
        (Metrics, metric(r#""gauge":{},"sum":{}"#), format!("{METRIC}.sum"), "only one of the alternatives may be set".to_owned()),
        (Metrics, metric(r#""gauge":{"dataPoints":[{"asDouble":"nan"}]}"#), format!("{METRIC}.gauge.dataPoints[0].asDouble"), format!("{double} another string")),
        (Metrics, metric(r#""gauge":{"dataPoints":[{"asDouble":false}]}"#), format!("{METRIC}.gauge.dataPoints[0].asDouble"), format!("{double} a boolean")),
        (Metrics, metric(r#""histogram":{"dataPoints":[{"bucketCounts":[1,"x"]}]}"#), format!("{METRIC}.histogram.dataPoints[0].bucketCounts[1]"), format!("{integer} another string")),
        (Metrics, metric(r#""sum":{"aggregationTemporality":"AGGREGATION_TEMPORALITY_DELTA"}"#), format!("{METRIC}.sum.aggregationTemporality"), "OTLP/JSON does not allow enum names; write 1 instead of \"AGGREGATION_TEMPORALITY_DELTA\"".to_owned()),
        (Traces, "[]".to_owned(), String::new(), "expected an object, found a list".to_owned()),
        (Traces, "null".to_owned(), String::new(), "expected an object, found null".to_owned()),
        (Traces, String::new(), String::new(), "EOF while parsing a value".to_owned()),
        (Traces, "{} {}".to_owned(), String::new(), "trailing characters".to_owned()),
        (Traces, r#"{"resourceSpans":[{},]}"#.to_owned(), "resourceSpans[1]".to_owned(), "trailing comma".to_owned()),
        (Traces, r#"{"resourceSpans":[{"scopeSpans":[{"#.to_owned(), "resourceSpans[0].scopeSpans[0]".to_owned(), "EOF while parsing an object".to_owned()),
        (Metrics, metric(r#""gauge":{"dataPoints":[{"asDouble":1e999}]}"#), format!("{METRIC}.gauge.dataPoints[0].asDouble"), "number out of range".to_owned()),
    ] {
        let error = to_wire(signal, json.as_bytes()).unwrap_err();
        assert_eq!(error.path, path, "{json}");
        let (said, position) = error.reason.split_once(" at line 1 column ").unwrap();
        assert_eq!(said, reason, "{json}");
        assert!(position.parse::<usize>().unwrap() <= json.len() + 1, "{json}");
    }
}

#[test]
fn errors_contain_no_request_content() {
    const SECRET: &str = "4111111111111111";
    let value = |value: &str| span(&format!(r#""attributes":[{{"value":{{{value}}}}}]"#));
    for json in [
        format!("\"{SECRET}, expected {SECRET} at line {SECRET}\""),
        SECRET.to_owned(),
        format!("{{\"resourceSpans\":\"{SECRET}\"}}"),
        format!("{{\"resourceSpans\":{SECRET}}}"),
        value(&format!(r#""stringValue":{SECRET}"#)),
        value(&format!(r#""stringValue":{SECRET}.5"#)),
        value(&format!(r#""stringValue":[{SECRET}]"#)),
        value(&format!(r#""intValue":"x{SECRET}""#)),
        value(&format!(r#""boolValue":{SECRET}"#)),
        value(&format!(r#""boolValue":"{SECRET}""#)),
        value(&format!(r#""bytesValue":"{SECRET}!""#)),
        span(&format!(r#""kind":"{SECRET}x""#)),
        span(&format!(r#""kind":{SECRET}"#)),
        span(&format!(r#""{SECRET}": {SECRET}x"#)),
    ] {
        let error = to_wire(Signal::Traces, json.as_bytes()).unwrap_err();
        assert!(!error.to_string().contains(SECRET), "{error}");
    }
}

#[test]
fn error_names_position_in_one_line() {
    let error = to_wire(
        Signal::Traces,
        span(r#""kind":"SPAN_KIND_CLIENT""#).as_bytes(),
    );
    assert_eq!(
        error.unwrap_err().to_string(),
        "resourceSpans[0].scopeSpans[0].spans[0].kind: OTLP/JSON does not allow enum names; \
         write 3 instead of \"SPAN_KIND_CLIENT\" at line 1 column 69"
    );
    let error = to_wire(Signal::Traces, b"{\n  \"resourceSpans\": 1\n}").unwrap_err();
    assert_eq!(
        error.to_string(),
        "resourceSpans: expected a list, found a number at line 2 column 20"
    );
}

#[test]
fn invalid_utf8_is_refused_only_in_used_strings() {
    let mut json = span(r#""name":"?""#).into_bytes();
    let at = json.iter().position(|byte| *byte == b'?').unwrap();
    json[at] = 0xff;
    let error = to_wire(Signal::Traces, &json).unwrap_err();
    assert_eq!(error.path, "resourceSpans[0].scopeSpans[0].spans[0].name");
    assert!(
        error.reason.starts_with("the text is not valid UTF-8"),
        "{error}"
    );
    assert!(
        to_wire(Signal::Traces, b"{\"unknown\":\"\xff\"}")
            .unwrap()
            .is_empty()
    );
}

/// Returns a request with a span attribute of `levels` nested arrays.
fn nested(levels: usize) -> String {
    let open = r#"{"arrayValue":{"values":["#.repeat(levels);
    span(&format!(
        r#""attributes":[{{"value":{open}{}}}]"#,
        "]}}".repeat(levels)
    ))
}

#[test]
fn json_nesting_limit_matches_prost() {
    // ResourceSpans, ScopeSpans, Span, KeyValue, and two messages per level.
    let request = to_wire(Signal::Traces, nested(48).as_bytes()).unwrap();
    let decoded = Decoded::decode(Signal::Traces, &request).unwrap();
    assert_eq!(decoded.encode(), request);
    let json = from_wire(Signal::Traces, &request).unwrap();
    assert_eq!(to_wire(Signal::Traces, &json).unwrap(), request);
    let error = to_wire(Signal::Traces, nested(49).replace("[]", "[{}]").as_bytes()).unwrap_err();
    assert!(
        error.reason.starts_with("nested deeper than 100 messages"),
        "{error}"
    );
    assert!(error.path.ends_with(".arrayValue.values[0]"), "{error}");
}

#[test]
fn unbounded_nesting_overflows_no_stack() {
    for open in ["[", "{\"a\":", "{\"arrayValue\":{\"values\":["] {
        let deep = open.repeat(200_000);
        assert!(to_wire(Signal::Traces, deep.as_bytes()).is_err());
        assert!(to_wire(Signal::Traces, format!("{{\"x\":{deep}").as_bytes()).is_err());
        let value = span(&format!(r#""attributes":[{{"value":{deep}"#));
        assert!(to_wire(Signal::Traces, value.as_bytes()).is_err());
    }
}

#[test]
fn lengths_of_every_width_are_inserted() {
    for length in [
        0, 1, 100, 125, 126, 127, 128, 129, 16_000, 16_380, 16_384, 2_100_000,
    ] {
        let name = "x".repeat(length);
        let json = span(&format!(
            r#""name":"{name}","links":[{{"traceState":"{name}"}},{{}}]"#
        ));
        let request = to_wire(Signal::Traces, json.as_bytes()).unwrap();
        let decoded = Decoded::decode(Signal::Traces, &request).unwrap();
        assert_eq!(decoded.encode(), request, "{length}");
    }
}

fn within(key: u8, mut content: Vec<u8>) -> Vec<u8> {
    let length = u8::try_from(content.len()).unwrap();
    content.splice(0..0, [key, length]);
    content
}

#[test]
fn from_wire_reads_any_order_and_merges_repeats() {
    // Span { name: "b", kind: 3, name: "a", status { code 1 }, status { message "m" } }, unknown
    // field 99.
    let span: &[u8] = b"\x2a\x01b\x30\x03\x2a\x01a\x7a\x02\x18\x01\x7a\x03\x12\x01m\x9a\x06\x01z";
    let scope_spans = within(0x12, within(0x12, span.to_vec()));
    let request = within(0x0a, [b"\x1a\x01s".as_slice(), &scope_spans].concat());
    assert_eq!(
        String::from_utf8(from_wire(Signal::Traces, &request).unwrap()).unwrap(),
        r#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"a","kind":3,"status":{"message":"m","code":1}}]}],"schemaUrl":"s"}]}"#
    );
    // HistogramDataPoint { explicit_bounds: 1.0 unpacked, then [2.0] packed, min: 0.0 }
    let mut point = vec![0x39];
    point.extend_from_slice(&1.0_f64.to_le_bytes());
    point.extend_from_slice(&[0x3a, 8]);
    point.extend_from_slice(&2.0_f64.to_le_bytes());
    point.push(0x59);
    point.extend_from_slice(&0.0_f64.to_le_bytes());
    let request = [0x0a, 0x4a, 0x12, 0x12, 0x0a]
        .into_iter()
        .fold(point, |content, key| within(key, content));
    assert_eq!(
        String::from_utf8(from_wire(Signal::Metrics, &request).unwrap()).unwrap(),
        metric(r#""histogram":{"dataPoints":[{"explicitBounds":[1.0,2.0],"min":0.0}]}"#)
    );
}

#[test]
fn last_member_of_oneof_wins() {
    // AnyValue { string_value: "s", array_value {}, int_value: 5 } as the body of a LogRecord.
    let value = b"\x0a\x01s\x2a\x00\x18\x05".to_vec();
    let request = [0x2a, 0x12, 0x12, 0x0a]
        .into_iter()
        .fold(value, |content, key| within(key, content));
    assert_eq!(
        String::from_utf8(from_wire(Signal::Logs, &request).unwrap()).unwrap(),
        r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{"intValue":"5"}}]}]}]}"#
    );
}

#[test]
fn invalid_request_is_refused_with_path() {
    for (request, offset, reason) in [
        (b"\x0a".as_slice(), 1, "no valid length"),
        (b"\x0a\x05", 2, "a length exceeds the message"),
        (b"\x0a\x02\x1a\x05", 4, "a length exceeds the message"),
        (b"\x0a\x03\x1a\x01\xff", 4, "a string is not valid UTF-8"),
        (b"\x08\x01", 1, "a field has the wrong wire type"),
        (b"\x00", 0, "no valid key"),
        (b"\x0b\x0c", 1, "groups are not part of OTLP"),
        (b"\x11\x00", 1, "a number exceeds the message"),
    ] {
        let error = from_wire(Signal::Traces, request).unwrap_err();
        assert_eq!(
            (error.offset, error.reason),
            (offset, reason),
            "{request:?}"
        );
    }
}

#[test]
fn specification_examples_are_read() {
    use opentelemetry_proto::tonic::metrics::v1::metric::Data;
    let traces = r#"{"resourceSpans":[{"resource":{"attributes":[
        {"key":"service.name","value":{"stringValue":"checkout"}}]},
        "scopeSpans":[{"scope":{"name":"lib","version":"1.2.0","attributes":[
            {"key":"a","value":{"arrayValue":{"values":[{"intValue":"1"},{"kvlistValue":{"values":[
                {"key":"b","value":{"doubleValue":2.5}}]}}]}}}]},
        "spans":[{"traceId":"5B8EFFF798038103D269B633813FC60C","spanId":"EEE19B7EC3C1B174",
            "parentSpanId":"EEE19B7EC3C1B173","name":"GET /cart","kind":2,
            "startTimeUnixNano":"1544712660000000000","endTimeUnixNano":"1544712661000000000",
            "events":[{"timeUnixNano":"1544712660500000000","name":"cache miss"}],
            "status":{"code":2,"message":"timeout"}}]}]}]}"#;
    let Decoded::Traces(request) = decode(Signal::Traces, traces) else {
        unreachable!()
    };
    let span = &request.resource_spans[0].scope_spans[0].spans[0];
    assert_eq!(span.trace_id[..2], [0x5b, 0x8e]);
    assert_eq!(span.parent_span_id.len(), 8);
    assert_eq!(span.start_time_unix_nano, 1_544_712_660_000_000_000);
    assert_eq!(span.events[0].name, "cache miss");
    assert_eq!(span.status.as_ref().unwrap().code, 2);

    let metrics = r#"{"resourceMetrics":[{"scopeMetrics":[{"metrics":[
        {"name":"c","unit":"1","sum":{"aggregationTemporality":1,"isMonotonic":true,
            "dataPoints":[{"asDouble":5,"timeUnixNano":"1544712660300000000"}]}},
        {"name":"g","gauge":{"dataPoints":[{"asInt":"-7","exemplars":[
            {"asDouble":"NaN","traceId":"00ff","filteredAttributes":[]}]}]}},
        {"name":"h","histogram":{"aggregationTemporality":2,"dataPoints":[{"count":"2","sum":2,
            "bucketCounts":["1","1"],"explicitBounds":[1],"min":0,"max":2}]}},
        {"name":"e","exponentialHistogram":{"aggregationTemporality":1,"dataPoints":[{"count":3,
            "scale":-1,"zeroCount":1,"positive":{"offset":-1,"bucketCounts":[0,2]},"zeroThreshold":0.5}]}},
        {"name":"s","summary":{"dataPoints":[{"quantileValues":[{"quantile":0.99,"value":"Infinity"}]}]}}
        ]}]}]}"#;
    let Decoded::Metrics(request) = decode(Signal::Metrics, metrics) else {
        unreachable!()
    };
    let metrics = &request.resource_metrics[0].scope_metrics[0].metrics;
    assert_eq!(metrics.len(), 5);
    assert!(metrics.iter().all(|metric| metric.data.is_some()));
    let Some(Data::ExponentialHistogram(histogram)) = &metrics[3].data else {
        panic!("{:?}", metrics[3].data)
    };
    assert_eq!(histogram.data_points[0].scale, -1);
    assert_eq!(
        histogram.data_points[0]
            .positive
            .as_ref()
            .unwrap()
            .bucket_counts,
        [0, 2]
    );

    let logs = r#"{"resourceLogs":[{"resource":{"entityRefs":[{"type":"service","idKeys":["service.name"]}]},
        "scopeLogs":[{"logRecords":[{"timeUnixNano":"1544712660300000000","severityNumber":10,
        "severityText":"Information","traceId":"5b8efff798038103d269b633813fc60c","eventName":"started",
        "body":{"stringValue":"hello"}}]}]}]}"#;
    let Decoded::Logs(request) = decode(Signal::Logs, logs) else {
        unreachable!()
    };
    let record = &request.resource_logs[0].scope_logs[0].log_records[0];
    assert_eq!((record.severity_number, record.trace_id.len()), (10, 16));
    let resource = request.resource_logs[0].resource.as_ref().unwrap();
    assert_eq!(resource.entity_refs[0].id_keys, ["service.name"]);

    let profiles = r#"{"resourceProfiles":[{"scopeProfiles":[{"profiles":[{
        "profileId":"000102030405060708090a0b0c0d0e0f","timeUnixNano":"1700000000000000000","durationNano":"10000000000",
        "sampleType":{"typeStrindex":1,"unitStrindex":2},"periodType":{},"period":"10000000",
        "originalPayloadFormat":"pprof","originalPayload":"H4sI",
        "samples":[{"stackIndex":1,"values":["5"],"timestampsUnixNano":["1700000000000000001"],"linkIndex":1}]}]}]}],
        "dictionary":{"stringTable":["","cpu","nanoseconds","main"],"mappingTable":[{}],
        "functionTable":[{},{"nameStrindex":3,"startLine":"4"}],
        "locationTable":[{},{"address":"4096","lines":[{"functionIndex":1,"line":"7"}]}],
        "stackTable":[{},{"locationIndices":[1]}],
        "linkTable":[{},{"traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b174"}],
        "attributeTable":[{},{"keyStrindex":3,"value":{"stringValueStrindex":1}}]}}"#;
    let Decoded::Profiles(request) = decode(Signal::Profiles, profiles) else {
        unreachable!()
    };
    let profile = &request.resource_profiles[0].scope_profiles[0].profiles[0];
    assert_eq!(profile.profile_id, (0..16).collect::<Vec<u8>>());
    assert_eq!(profile.original_payload, [0x1f, 0x8b, 0x08]);
    assert_eq!(profile.samples[0].values, [5]);
    assert!(profile.period_type.is_some());
    let dictionary = request.dictionary.unwrap();
    assert_eq!(dictionary.location_table[1].lines[0].line, 7);
    assert_eq!(dictionary.link_table[1].span_id.len(), 8);
}

#[test]
fn number_lists_above_limit_are_refused() {
    let zeros = "0,".repeat(1000);
    let json = format!(
        "{{\"resourceMetrics\":[{{\"scopeMetrics\":[{{\"metrics\":[{{\"histogram\":\
         {{\"dataPoints\":[{{\"explicitBounds\":[{zeros}0]}}]}}}}]}}]}}]}}"
    );
    let whole = to_wire(Signal::Metrics, json.as_bytes()).unwrap();
    assert!(whole.len() > 3 * json.len());
    let within = |limit| to_wire_within(Signal::Metrics, json.as_bytes(), limit);
    assert_eq!(within(json.len()), Ok(None));
    assert_eq!(within(whole.len()), Ok(Some(whole)));
}
