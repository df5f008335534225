//! Translates spans of Zipkin and Jaeger to OTLP requests, and OTLP requests to spans of Zipkin.
//!
//! The rules of the translation are those of the OpenTelemetry Collector (`pkg/translator/zipkin` and
//! `pkg/translator/jaeger`), with its default feature gates. A decoder reads one span at a time and writes it at once,
//! so that only the output and one span are in memory. All memory that grows with the input comes from a
//! [`Room`].
//!
//! - [`zipkin`]: v1 and v2 as JSON, v1 as Thrift, v2 as protobuf; and rendering as v2.
//! - [`jaeger`]: protobuf of `PostSpans`, Thrift over HTTP, and messages of the agent over UDP.

mod attributes;
mod encode;
mod error;
pub mod jaeger;
mod json;
mod keys;
mod memory;
mod proto;
mod thrift;
pub mod zipkin;

use tributary_otlp::room::Room;

pub use self::error::{MalformedSpans, TranslateError};

/// A format of spans, as received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanFormat {
    /// Zipkin v1, a JSON list of spans.
    ZipkinV1Json,
    /// Zipkin v1, a list of spans in Thrift's binary protocol.
    ZipkinV1Thrift,
    /// Zipkin v2, a JSON list of spans.
    ZipkinV2Json,
    /// Zipkin v2, `zipkin.proto3.ListOfSpans`.
    ZipkinV2Proto,
    /// `jaeger.api_v2.PostSpansRequest`.
    JaegerProto,
    /// `jaeger.thrift` `Batch` in Thrift's binary protocol.
    JaegerThrift,
    /// Message `emitBatch` of Jaeger's agent in Thrift's compact protocol.
    JaegerAgentCompact,
    /// Message `emitBatch` of Jaeger's agent in Thrift's binary protocol.
    JaegerAgentBinary,
}

/// Options of a translation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TranslateOptions {
    /// Whether texts of Zipkin tags become integers, floating-point numbers and booleans where possible.
    pub parse_string_tags: bool,
    /// The current time in nanoseconds since 1970, for spans of Zipkin v1 without a time.
    pub now: u64,
}

/// A traces request and the number of its spans.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TranslatedSpans {
    /// Number of spans in the request.
    pub spans: usize,
    /// An encoded `ExportTraceServiceRequest`.
    pub request: Vec<u8>,
}

/// Translates `input` to an OTLP request, with memory from `room`.
///
/// # Errors
/// The input is malformed, or the room is exhausted.
pub fn translate(
    format: SpanFormat,
    options: &TranslateOptions,
    input: &[u8],
    room: &dyn Room,
) -> Result<TranslatedSpans, TranslateError> {
    let memory = memory::Memory::new(room);
    let mut groups = encode::Groups::new(room);
    let (memory, output) = (&memory, &mut groups);
    match format {
        SpanFormat::ZipkinV1Json => zipkin::v1_json(input, options, memory, output)?,
        SpanFormat::ZipkinV1Thrift => zipkin::v1_thrift(input, memory, output)?,
        SpanFormat::ZipkinV2Json => zipkin::v2_json(input, options, memory, output)?,
        SpanFormat::ZipkinV2Proto => zipkin::v2_proto(input, options, memory, output)?,
        SpanFormat::JaegerProto => jaeger::post_spans(input, memory, output)?,
        SpanFormat::JaegerThrift => jaeger::batch(input, memory, output)?,
        SpanFormat::JaegerAgentCompact => {
            jaeger::agent(input, thrift::Protocol::Compact, memory, output)?;
        }
        SpanFormat::JaegerAgentBinary => {
            jaeger::agent(input, thrift::Protocol::Binary, memory, output)?;
        }
    }
    let (spans, request) = groups.finish()?;
    Ok(TranslatedSpans { spans, request })
}
