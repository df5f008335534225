//! Seed inputs of the targets: a few small inputs each, made by the generators and encoders of this
//! repository.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use tributary::pipeline::batch::{Code, Nack};
use tributary_compression::compress::Compressor;
use tributary::fuzzing::receiver;
use tributary_otlp::json;

use crate::compression::CODECS;
use crate::spans::FORMATS;
use crate::telemetry::{request, signal_of};

/// The seeds of a target; none where they would be random anyway.
pub fn of(target: &str) -> Vec<Vec<u8>> {
    match target {
        "validate" => each_signal(|signal, request| [&[signal], request].concat()),
        "json" => each_signal(|signal, request| {
            let text = json::from_wire(signal_of(signal), request).unwrap();
            [&[signal][..], &text].concat()
        }),
        // Half of the first 64 bytes are decisions; the first decision selects the signal.
        "count" | "edit" | "filter" | "split" | "transcode" | "view" | "debug"
        | "parquet_table" => each_signal(|signal, request| {
            let mut input = vec![signal; 32];
            input.extend(request);
            input
        }),
        "prometheus" => (0..8)
            .map(|how| [&[how][..], &noise(how.into(), 500)].concat())
            .collect(),
        "decompress" => compressed(),
        "headers" => lines(&[
            "20000000u\nhttps://*.example.com *",
            "https://a.example.com\nhttps://*.example.com\nContent-Type, x",
            "application/json; charset=utf-8\n*",
            "application/grpc+proto\n",
            "x-snappy-framed\n",
            "Fri, 20 Nov 2026 12:00:00 GMT\n",
        ]),
        "answers" => answers(),
        "spans" => spans(),
        "refusals" => vec![
            b"\x01\x08\x01\0\0\0\x05\xdc\0\0busy".to_vec(),
            b"\0\x03\0\0\0\0\0\0\0\0bad".to_vec(),
        ],
        "segment" => vec![
            b"\0\0\0one record and another".to_vec(),
            b"\x03\x05\x10one record that is one record that is one record".to_vec(),
            [
                &b"\x82"[..],
                &tributary::fuzzing::storage::blocks(&[b"first", b"second"], true),
            ]
            .concat(),
        ],
        "stored_record" => vec![
            b"\x01\x03\x01\0\x01\0\0\0\x02\0\0\0\x01\0\0\0\x01\0\0\0a\x01\0\0\0\x01\0\0\0bxy"
                .to_vec(),
        ],
        "names" => lines(&[
            "*.example.com\na.example.com",
            "spiffe://a.example/ns/*/sa/b\nspiffe://A.example/ns/c/sa/b",
            "urn:uuid:*\nURN:uuid:ab",
        ]),
        "credentials" => lines(&[
            "Bearer\0bearer  first\0\0first\nsecond",
            "\0Basic dTpw\0\0u:p\nv:{SHA}0DPiKuNIrrVmD8IUCuw1hQxNqZc=\n#\nw:$2y$04$abc",
            "Token\0Token a\0Token b\0a\nb",
        ]),
        "redaction" => lines(&[
            "\0\x01\x02mail jane@example.com from 192.0.2.17",
            "\x07\0\x09/find?mail=jane%40example.com&at=amFuZUBleGFtcGxlLmNvbQ==",
            "\x02\x03\x04Basic dXNlcjpwYXNz, Bearer mF_9.B5f-4.1JqM, +49 30 90182012",
            "\x03\x04\x05SELECT 'x' FROM t WHERE a = 5 -- [EMAIL] ****",
        ]),
        "conditions" => lines(&[
            "\0span.attributes[\"a\"] == \"b\" and not (span.kind == SPAN_KIND_SERVER or IsRootSpan())",
            "\0IsMatch(spanevent.name, \"^a.*\\\\d$\") or span.trace_id != TraceID(0x0102030405060708090a0b0c0d0e0f10)",
            "\x01HasAttrOnDatapoint(\"a\", \"b\") or metric.type == METRIC_DATA_TYPE_SUM",
            "\x01datapoint.value_double >= -1.5e3 and scope.name != nil",
            "\x02log.body[\"a\"][\"b\"] == 0x01ff or log.severity_number < SEVERITY_NUMBER_WARN2",
            "\0span.end_time - span.start_time > Duration(\"1m\") + Duration(\"1s\") or -(1 + 2) * 3 / 4.5 < +5",
            "\0HasPrefix(span.attributes[\"a\"], \"b\") and not HasSuffix(span.name, span.status.message)",
            "\x02Len(log.body[\"a\"][0][\"b\"]) / 2 >= 1 or log.attributes[\"c\"] + log.attributes[\"d\"] == 3",
            "\x03profile.period > 5 and resource.attributes[\"a\"] == true",
        ]),
        "statements" => lines(&[
            "\0set(span.attributes[\"a\"], Concat([span.name, span.kind], \"-\")) where IsRootSpan()",
            "\0set(span.events, span.events) where spanevent.name == \"a\"",
            "\x01set(datapoint.attributes[\"a\"][\"b\"][2], {\"c\": [1, 2.5, nil]})",
            "\x01convert_gauge_to_sum(\"delta\", true) where metric.type == METRIC_DATA_TYPE_GAUGE",
            "\x02replace_all_patterns(log.attributes, \"key\", \"^(.)\", \"x$1\", SHA1, \"<%s>\")",
            "\x02merge_maps(log.attributes, ParseJSON(log.body), strategy=\"upsert\")",
            "\x02flatten(log.attributes, \"p\", 2, true)",
            "\x03set(profile.attributes[\"a\"], resource.attributes[\"b\"])",
        ]),
        "redact" => (0..20)
            .map(|signals| [&[signals][..], &noise(signals.into(), 300)].concat())
            .collect(),
        "greeting" => lines(&[
            "\0\x01\x02\x03more",
            "\x02\x01\x01\x01hello",
            "\x09\x01\x01\x01POST / HTTP/1.1",
        ]),
        "profiles" => [0_u8, 1, 2, 3]
            .map(|how| [&[how; 8][..], &noise(how.into(), 300)].concat())
            .to_vec(),
        "naming" => [0_u8, 1, 2, 3]
            .map(|how| [&[how; 48][..], &noise(how.into(), 300)].concat())
            .to_vec(),
        "join" => [0x00_u8, 0x01, 0x11, 0x23]
            .map(|how| {
                [
                    &[how, how >> 4, 1, 3][..],
                    &[how; 12],
                    &noise(how.into(), 500),
                ]
                .concat()
            })
            .to_vec(),
        // Number of functions, and whether the rest is a request or decisions about one.
        "profile_metrics" => (0..8)
            .map(|how| [&[how, 1][..], &noise(how.into(), 400)].concat())
            .chain(each_signal(|_, request| [&[2, 0], request].concat()))
            .collect(),
        "frames" => frames(),
        "framing" => vec![b"\0\0\0\x10\x03\x04\x02\0\0\0\0\0\0\0\0\0\x01\0\0\0\x05hello".to_vec()],
        _ => Vec::new(),
    }
}

fn lines(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// Two requests of every signal, of at most some hundred bytes.
fn each_signal(seed: impl Fn(u8, &[u8]) -> Vec<u8>) -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for signal in 0..4 {
        let mut found = 0;
        for number in 1..10_000_u64 {
            let mut input = vec![signal; 32];
            input.extend(noise(number, 400));
            let (_, request, _) = request(&input);
            if (100..600).contains(&request.len()) && found < 2 {
                found += 1;
                seeds.push(seed(signal, &request));
            }
        }
    }
    seeds
}

/// Bytes without a pattern (xorshift64).
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let bytes = (0..length).map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    });
    bytes.collect()
}

fn compressed() -> Vec<Vec<u8>> {
    let text = Bytes::from("telemetry stays on the wire; ".repeat(20));
    let seeds = (0_u8..).zip(CODECS).map(|(at, codec)| {
        let body = Compressor::new(codec, None).compress(&[text.clone()]);
        [&[at, 8, 19][..], &body.unwrap()].concat()
    });
    seeds.collect()
}

fn answers() -> Vec<Vec<u8>> {
    let nack = Nack::exhausted("busy", std::time::Duration::from_millis(1500));
    let (_, headers) = receiver::refused_over_grpc(nack);
    let grpc = [
        &b"\xa4\x03\x08\0\0\0\0\x001\nbu%73y\n"[..],
        headers["grpc-status-details-bin"].as_bytes(),
    ];
    let (_, _, json) = receiver::refused_over_http(Nack::invalid("no UTF-8"), true);
    let (_, _, protobuf) =
        receiver::refused_over_http(Nack::permanent(Code::Internal, "no"), false);
    let partial = br#"{"partialSuccess":{"rejectedSpans":"3","errorMessage":"too old"}}"#;
    vec![
        grpc.concat(),
        [&b"\x96\0\0\0\0\0\0\0"[..], &json].concat(),
        [&b"\x96\x01\0\0\0\0\0\0"[..], &protobuf].concat(),
        [&b"\x32\0\0\0\0\0\0\0"[..], partial].concat(),
        b"\x32\x01\0\0\0\0\0\0\x0a\x06\x08\x03\x12\x02no".to_vec(),
    ]
}

/// One frame of every type.
fn frames() -> Vec<Vec<u8>> {
    let mut connection = vec![7; 16];
    let mut frame = |kind: u8, flags: u8, stream: u8, payload: &[u8]| {
        let length = u8::try_from(payload.len()).unwrap();
        connection.extend([0, 0, length, kind, flags, 0, 0, 0, stream]);
        connection.extend(payload);
    };
    frame(4, 0, 0, &[0, 4, 0, 1, 0, 0]);
    frame(1, 0, 1, b"head");
    frame(9, 4, 1, b"more");
    frame(0, 0, 1, b"data");
    frame(0, 8, 1, &[3, 0, 0, 0]);
    frame(0, 1, 1, b"");
    frame(8, 0, 0, &[0, 0, 1, 0]);
    frame(6, 0, 0, &[0; 8]);
    frame(2, 0, 3, &[0; 5]);
    frame(1, 5, 3, b"head");
    frame(3, 0, 3, &[0, 0, 0, 8]);
    frame(7, 0, 0, &[0; 8]);
    vec![connection]
}

/// The shortest recorded input of each format of spans.
fn spans() -> Vec<Vec<u8>> {
    let cases = include_str!("../../crates/span_formats/tests/translators/cases.jsonl");
    let cases: Vec<serde_json::Value> = cases
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let inputs = FORMATS.iter().zip(0_u8..).filter_map(|((kind, _), first)| {
        let of_kind = cases.iter().filter(|case| case["kind"] == *kind);
        let inputs = of_kind.map(|case| STANDARD.decode(case["input"].as_str().unwrap()).unwrap());
        let input = inputs.filter(|input| input.len() > 100).min_by_key(Vec::len)?;
        Some([&[first][..], &input].concat())
    });
    inputs.collect()
}
