//! The receiver's readers of headers and writers of refusals, for fuzz targets.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};

use super::config::Cors;
use super::cors::Policy;
use super::encoding::Encoding;
use super::intake::Format;
use super::{grpc, http as over_http};
use crate::batch::Nack;

/// The value of `grpc-timeout`.
pub fn grpc_timeout(value: &HeaderValue) -> Option<Duration> {
    grpc::timeout(value)
}

/// Whether a content type is gRPC's.
pub fn is_grpc(value: &HeaderValue) -> bool {
    grpc::is_grpc(Some(value))
}

/// Whether a content type of OTLP/HTTP stands for JSON; none when it stands for nothing.
pub fn is_json(value: &HeaderValue) -> Option<bool> {
    over_http::format(value).map(|format| matches!(format, Format::Json))
}

/// Whether the names in `grpc-encoding` and `Content-Encoding` are known.
pub fn encodings(name: &[u8]) -> (bool, bool) {
    let text = std::str::from_utf8(name).unwrap_or("?");
    (
        Encoding::of_grpc(name).is_some(),
        Encoding::of_http(text).is_some(),
    )
}

/// What a browser is told: for a preflight, and with an answer.
pub fn cors(origins: Vec<String>, request: &Request<()>) -> (Option<HeaderMap>, HeaderMap) {
    let policy = Policy::new(&Cors {
        allowed_origins: origins,
        ..Cors::default()
    });
    let preflight = policy.preflight(request).map(|answer| answer.into_parts());
    let mut headers = HeaderMap::new();
    policy.apply(request.headers().get("origin"), &mut headers);
    (preflight.map(|(head, _)| head.headers), headers)
}

/// A refusal over gRPC.
pub fn refused_over_grpc(nack: Nack) -> (StatusCode, HeaderMap) {
    let (head, _) = grpc::refused(nack).into_parts();
    (head.status, head.headers)
}

/// A refusal over HTTP.
pub fn refused_over_http(nack: Nack, json: bool) -> (StatusCode, HeaderMap, Bytes) {
    let format = match json {
        true => Format::Json,
        false => Format::Protobuf,
    };
    let response: Response<_> = over_http::refused(nack, format);
    let (head, body) = response.into_parts();
    let body = futures_util::FutureExt::now_or_never(http_body_util::BodyExt::collect(body));
    let body = body.and_then(Result::ok).map(|body| body.to_bytes());
    (head.status, head.headers, body.unwrap_or_default())
}
