//! The target for spans of Zipkin and Jaeger.

use std::cell::Cell;

use tributary_otlp::room::{RoomExhausted, Room};
use tributary_otlp::{Signal, validate};
use tributary_span_formats::jaeger::agent_spans;
use tributary_span_formats::zipkin::{ZipkinEncoding, render};
use tributary_span_formats::{SpanFormat, TranslateOptions, translate};

/// The formats, by the first byte of an input.
pub(crate) const FORMATS: [(&str, SpanFormat); 8] = [
    ("ZipkinV1Json", SpanFormat::ZipkinV1Json),
    ("ZipkinV1Thrift", SpanFormat::ZipkinV1Thrift),
    ("ZipkinV2Json", SpanFormat::ZipkinV2Json),
    ("ZipkinV2Proto", SpanFormat::ZipkinV2Proto),
    ("JaegerProto", SpanFormat::JaegerProto),
    ("JaegerThrift", SpanFormat::JaegerThrift),
    ("JaegerAgentCompact", SpanFormat::JaegerAgentCompact),
    ("JaegerAgentBinary", SpanFormat::JaegerAgentBinary),
];

/// Bytes are refused, or become a valid request. Zipkin's own formats keep every span when the request is rendered and
/// read again. The room bounds the memory and gets back no more than was taken.
pub fn spans(input: &[u8]) {
    let Some((first, input)) = input.split_first() else {
        return;
    };
    let (_, format) = FORMATS[usize::from(first & 7)];
    let options = TranslateOptions {
        parse_string_tags: first & 8 != 0,
        now: 1,
    };
    let room = Metered::default();
    agent_spans(input, format == SpanFormat::JaegerAgentCompact);
    let Ok(translated) = translate(format, &options, input, &room) else {
        return;
    };
    assert!(room.0.get() >= translated.request.capacity());
    assert_eq!(
        validate(Signal::Traces, &translated.request),
        Ok(translated.spans)
    );
    for (encoding, format) in [
        (ZipkinEncoding::Json, SpanFormat::ZipkinV2Json),
        (ZipkinEncoding::Proto, SpanFormat::ZipkinV2Proto),
    ] {
        let room = Metered::default();
        let Ok(rendered) = render(&[&translated.request], encoding, "none", &room) else {
            // A span without ids.
            continue;
        };
        assert!(room.0.get() >= rendered.capacity());
        match translate(format, &options, &rendered, &room) {
            Ok(again) => assert_eq!(again.spans, translated.spans),
            // Zipkin has no annotations without a time.
            Err(error) => assert!(error.to_string().contains("timestamp"), "{error}"),
        }
    }
}

/// A room without a limit that counts.
#[derive(Default)]
struct Metered(Cell<usize>);

impl Room for Metered {
    fn take(&self, bytes: usize) -> Result<(), RoomExhausted> {
        self.0.set(self.0.get() + bytes);
        Ok(())
    }

    fn release(&self, bytes: usize) {
        self.0.set(self.0.get().checked_sub(bytes).unwrap());
    }
}
