//! Damaged input is refused with its position, or yields a valid request; memory is bounded by the room.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::cell::Cell;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use proptest::prelude::*;
use prost::Message as _;
use tributary_otlp::room::{Room, RoomExhausted};
use tributary_otlp::{Signal, validate};
use tributary_span_formats::jaeger::agent_spans;
use tributary_span_formats::zipkin::{ZipkinEncoding, render};
use tributary_span_formats::{SpanFormat, TranslateError, TranslateOptions, translate};

const CASES: &str = include_str!("translators/cases.jsonl");

const FORMATS: [(&str, SpanFormat); 8] = [
    ("ZipkinV1Json", SpanFormat::ZipkinV1Json),
    ("ZipkinV1Thrift", SpanFormat::ZipkinV1Thrift),
    ("ZipkinV2Json", SpanFormat::ZipkinV2Json),
    ("ZipkinV2Proto", SpanFormat::ZipkinV2Proto),
    ("JaegerProto", SpanFormat::JaegerProto),
    ("JaegerThrift", SpanFormat::JaegerThrift),
    ("JaegerAgentCompact", SpanFormat::JaegerAgentCompact),
    ("JaegerAgentBinary", SpanFormat::JaegerAgentBinary),
];

/// Inputs of a format.
fn inputs(kind: &str) -> Vec<Vec<u8>> {
    let cases = CASES
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let of_kind = cases.filter(|case: &serde_json::Value| case["kind"] == kind);
    of_kind
        .map(|case| STANDARD.decode(case["input"].as_str().unwrap()).unwrap())
        .collect()
}

/// A room with a limit.
struct Limited {
    limit: usize,
    used: Cell<usize>,
    most: Cell<usize>,
}

impl Limited {
    fn new(limit: usize) -> Self {
        Limited {
            limit,
            used: Cell::new(0),
            most: Cell::new(0),
        }
    }
}

impl Room for Limited {
    fn take(&self, bytes: usize) -> Result<(), RoomExhausted> {
        let used = self.used.get() + bytes;
        if used > self.limit {
            return Err(RoomExhausted);
        }
        self.used.set(used);
        self.most.set(self.most.get().max(used));
        Ok(())
    }

    fn release(&self, bytes: usize) {
        self.used.set(self.used.get().checked_sub(bytes).unwrap());
    }
}

const ENOUGH: usize = 64 << 20;

/// Translates an input, and renders the result.
fn run(format: SpanFormat, input: &[u8], limit: usize) -> Result<usize, TranslateError> {
    let room = Limited::new(limit);
    let options = TranslateOptions {
        parse_string_tags: input.len().is_multiple_of(2),
        now: 1,
    };
    let translated = translate(format, &options, input, &room)?;
    assert_eq!(
        validate(Signal::Traces, &translated.request),
        Ok(translated.spans)
    );
    assert_eq!(room.used.get(), translated.request.capacity());
    for encoding in [ZipkinEncoding::Json, ZipkinEncoding::Proto] {
        let room = Limited::new(limit);
        if let Ok(rendered) = render(&[&translated.request], encoding, "none", &room) {
            assert_eq!(room.used.get(), rendered.capacity());
            assert!(
                encoding == ZipkinEncoding::Proto
                    || serde_json::from_slice::<serde_json::Value>(&rendered).is_ok()
            );
        }
    }
    Ok(translated.spans)
}

proptest! {
    #[test]
    fn damaged_input_yields_error_or_valid_request(
        format in 0..FORMATS.len(),
        case in 0_usize..6,
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
        is_cut in any::<bool>(),
    ) {
        let (kind, format) = FORMATS[format];
        let mut input = inputs(kind).swap_remove(case);
        for (at, byte) in damage {
            if !input.is_empty() {
                let at = at.index(input.len());
                input[at] = byte;
            }
        }
        if is_cut {
            input.truncate(cut.index(input.len() + 1));
        }
        agent_spans(&input, format == SpanFormat::JaegerAgentCompact);
        match run(format, &input, ENOUGH) {
            Ok(_) => {}
            Err(TranslateError::Malformed(error)) => {
                let text = error.to_string();
                prop_assert!(text.contains("at byte ") || text.contains(" line "), "{text}");
            }
            Err(TranslateError::RoomExhausted(_)) => prop_assert!(false, "the room is large"),
        }
    }

    #[test]
    fn random_bytes_are_never_a_panic(
        format in 0..FORMATS.len(),
        input in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let _ = run(FORMATS[format].1, &input, ENOUGH);
    }
}

#[test]
fn exhausted_room_is_reported_at_every_limit() {
    for (kind, format) in FORMATS {
        for input in inputs(kind) {
            let mut limit = 0;
            while let Err(error) = run(format, &input, limit) {
                assert_eq!(
                    error,
                    TranslateError::RoomExhausted(RoomExhausted),
                    "{kind}"
                );
                limit += 97;
            }
        }
    }
}

#[test]
fn number_of_spans_in_message_is_counted() {
    for (kind, is_compact) in [("JaegerAgentCompact", true), ("JaegerAgentBinary", false)] {
        for input in inputs(kind) {
            let spans = agent_spans(&input, is_compact);
            let format = FORMATS.iter().find(|(name, _)| *name == kind).unwrap().1;
            // Blank spans are counted, but not translated.
            assert!(run(format, &input, ENOUGH).unwrap() <= spans);
            assert_eq!(agent_spans(&input[..3], is_compact), 0);
        }
    }
}

/// A span of many tiny elements takes much more memory than its input. The room must bound it.
#[test]
fn many_small_elements_are_charged() {
    let tags: Vec<_> = (0..50_000).map(|at| format!("\"{at:x}\":\"\"")).collect();
    let input = format!(
        r#"[{{"traceId":"1","id":"1","tags":{{{}}}}}]"#,
        tags.join(",")
    );
    let room = Limited::new(usize::MAX);
    translate(
        SpanFormat::ZipkinV2Json,
        &TranslateOptions::default(),
        input.as_bytes(),
        &room,
    )
    .unwrap();
    assert!(room.most.get() > 50_000 * 48, "{}", room.most.get());
    let error = run(SpanFormat::ZipkinV2Json, input.as_bytes(), input.len()).unwrap_err();
    assert_eq!(error, TranslateError::RoomExhausted(RoomExhausted));
}

/// Each span has the tags of its resource, whose memory the room must bound as well.
#[test]
fn tags_of_resource_are_charged_for_each_layer() {
    const TAGS: usize = 1000;
    let attribute = |at| KeyValue {
        key: format!("{at}"),
        ..KeyValue::default()
    };
    let span = Span {
        trace_id: vec![1; 16],
        span_id: vec![1; 8],
        ..Span::default()
    };
    let entry = ResourceSpans {
        resource: Some(Resource {
            attributes: (0..TAGS).map(attribute).collect(),
            ..Resource::default()
        }),
        scope_spans: vec![ScopeSpans {
            spans: vec![span],
            ..ScopeSpans::default()
        }],
        ..ResourceSpans::default()
    };
    let resource_spans = vec![entry];
    let request = ExportTraceServiceRequest { resource_spans }.encode_to_vec();
    let room = Limited::new(ENOUGH);
    render(&[&request], ZipkinEncoding::Json, "none", &room).unwrap();
    let layers = 3;
    assert!(room.most.get() > layers * TAGS * 128, "{}", room.most.get());
}

/// The lists of one span are dropped before the next one.
#[test]
fn memory_does_not_grow_with_number_of_spans() {
    let tags: Vec<_> = (0..1000).map(|at| format!("\"{at}\":\"\"")).collect();
    let span = format!(
        r#"{{"traceId":"1","id":"1","tags":{{{}}}}}"#,
        tags.join(",")
    );
    let lists = |spans: usize| {
        let input = format!("[{}]", vec![&*span; spans].join(","));
        let room = Limited::new(usize::MAX);
        let options = TranslateOptions::default();
        let format = SpanFormat::ZipkinV2Json;
        let translated = translate(format, &options, input.as_bytes(), &room).unwrap();
        room.most
            .get()
            .saturating_sub(3 * translated.request.capacity())
    };
    assert!(lists(50) <= lists(1), "{} {}", lists(50), lists(1));
}

#[test]
fn links_are_found_among_many_tags() {
    let id = "1".repeat(32);
    let tags: Vec<_> = (0..5000)
        .map(|at| format!("\"otlp.link.{at}\":\"{id}|{}||{{}}|0\"", &id[..16]))
        .collect();
    let input = format!(
        r#"[{{"traceId":"1","id":"1","tags":{{{}}}}}]"#,
        tags.join(",")
    );
    let options = TranslateOptions::default();
    let format = SpanFormat::ZipkinV2Json;
    let translated = translate(format, &options, input.as_bytes(), &Limited::new(ENOUGH));
    let request = translated.unwrap().request;
    let left = String::from_utf8_lossy(&request)
        .matches("otlp.link.")
        .count();
    assert_eq!(left, 5000 - 128);
}

#[test]
fn errors_state_span_and_position_but_no_content() {
    let translate = |input: &str| {
        run(SpanFormat::ZipkinV2Json, input.as_bytes(), ENOUGH)
            .unwrap_err()
            .to_string()
    };
    for (input, expected) in [
        (
            r#"[{"traceId":"1","id":"1"},{"traceId":"1","id":"secret"}]"#,
            "span 1: `id` must have 1 to 16 hexadecimal digits at line 1 column 55",
        ),
        (
            r#"[{"traceId":"1","id":1234}]"#,
            "span 0: expected a string, found a number, at line 1 column 25",
        ),
        (
            r#"[{"traceId":"1","id":"1","timestamp":"secret"}]"#,
            "span 0: expected an integer, found a string, at line 1 column 45",
        ),
        (
            r#"[{"traceId":"1","id":"1","localEndpoint":{"ipv4":"secret"}}]"#,
            "span 0: the address of an endpoint is no IP address at line 1 column 58",
        ),
        (
            r#"{"secret":1}"#,
            "expected a list, found an object, at line 1 column 0",
        ),
        (
            r#"[{"traceId":"1""#,
            "EOF while parsing an object at line 1 column 15",
        ),
    ] {
        assert_eq!(translate(input), expected);
    }
}

#[test]
fn annotation_and_link_of_other_form_are_kept_whole() {
    let input = r#"[{"traceId":"1","id":"1","annotations":[{"timestamp":1,"value":"a|b|c"}],"tags":{"otlp.link.0":"x|y"}}]"#;
    let translated = translate(
        SpanFormat::ZipkinV2Json,
        &TranslateOptions::default(),
        input.as_bytes(),
        &Limited::new(ENOUGH),
    );
    let request = translated.unwrap().request;
    let text = String::from_utf8_lossy(&request).into_owned();
    assert!(
        text.contains("a|b|c") && text.contains("otlp.link.0") && text.contains("x|y"),
        "{text}"
    );
}

#[test]
fn short_trace_id_of_protobuf_is_padded_on_the_left() {
    // `ListOfSpans` with a span of a trace id of 8 bytes and an id.
    let span = [
        &[0x0a, 8][..],
        &[1, 2, 3, 4, 5, 6, 7, 8],
        &[0x1a, 8],
        &[9; 8],
    ]
    .concat();
    let list = [&[0x0a, span.len() as u8][..], &span].concat();
    let room = Limited::new(ENOUGH);
    let options = TranslateOptions::default();
    let translated = translate(SpanFormat::ZipkinV2Proto, &options, &list, &room).unwrap();
    let id = [&[0; 8][..], &[1, 2, 3, 4, 5, 6, 7, 8]].concat();
    assert!(translated.request.windows(16).any(|window| window == id));
}

#[test]
fn damaged_text_of_binary_annotation_is_repaired() {
    for damage in [&b"\\ud800"[..], b"\xff"] {
        let input = [
            br#"[{"traceId":"0000000000000001","id":"0000000000000001","binaryAnnotations":[{"key":"k","value":"a"#,
            damage,
            br#"b"},{"key":"l","value":true},{"key":"m","value":[1]}]}]"#,
        ]
        .concat();
        let room = Limited::new(ENOUGH);
        let options = TranslateOptions::default();
        let translated = translate(SpanFormat::ZipkinV1Json, &options, &input, &room);
        let request = translated.unwrap().request;
        let text = String::from_utf8_lossy(&request).into_owned();
        assert!(
            text.contains("a\u{fffd}") && text.contains("true"),
            "{text}"
        );
    }
}
