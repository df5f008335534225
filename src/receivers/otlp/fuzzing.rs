//! The receiver's readers of headers and writers of refusals, for fuzz targets.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};

use super::http as over_http;
use super::intake::Format;
use crate::pipeline::batch::Nack;
use crate::serving::body::{BodyRate, Bounds, Reader, ReceivedBytes};
use crate::serving::cors::{Cors, Policy};
use crate::serving::encoding::Encoding;
use crate::serving::grpc;
use tributary_memory::{Budget, Permit};
use tributary_net::server::Peer;

/// The value of `grpc-timeout`.
pub fn grpc_timeout(value: &HeaderValue) -> Option<Duration> {
    grpc::timeout(value)
}

/// Whether a content type is gRPC's.
pub fn is_grpc(value: &HeaderValue) -> bool {
    grpc::is_grpc(Some(value))
}

/// Whether a content type of OTLP/HTTP means JSON. `None` for an unknown content type.
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

/// Returns the CORS headers of a preflight and of a response.
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

/// Returns a refusal over gRPC.
pub fn refused_over_grpc(nack: Nack) -> (StatusCode, HeaderMap) {
    let (head, _) = grpc::refused(nack).into_parts();
    (head.status, head.headers)
}

/// Returns a refusal over HTTP.
pub fn refused_over_http(nack: Nack, json: bool) -> (StatusCode, HeaderMap, Bytes) {
    let format = match json {
        true => Format::Json,
        false => Format::Protobuf,
    };
    let response: Response<_> = over_http::refused(nack, format);
    let (head, body) = response.into_parts();
    let body = http_body_util::BodyExt::collect(body).now_or_never();
    let body = body.and_then(Result::ok).map(|body| body.to_bytes());
    (head.status, head.headers, body.unwrap_or_default())
}

/// A request body that is already available, in chunks.
pub struct Pieces {
    /// The chunks in order, which may be empty.
    pub pieces: VecDeque<Bytes>,
    /// Whether the head had a content length.
    pub declared: bool,
}

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        let piece = self.pieces.pop_front();
        Poll::Ready(piece.map(|piece| Ok(http_body::Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        let length = self.pieces.iter().map(|piece| piece.len() as u64).sum();
        match self.declared {
            true => http_body::SizeHint::with_exact(length),
            false => http_body::SizeHint::default(),
        }
    }
}

/// Reads a body: a gRPC message with its flag, or the whole body. Returns `None` if the reader waits
/// for more.
pub fn read(
    pieces: Pieces,
    grpc: bool,
    size: usize,
    budget: &Arc<Budget>,
) -> Option<Result<(bool, Bytes, Permit), Nack>> {
    let peer = Peer::unconnected();
    let bounds = Bounds {
        size,
        key: "size",
        budget,
    };
    let mut reader = Reader::new(pieces, &peer, BodyRate::default());
    let read = match grpc {
        true => reader.message(&bounds).now_or_never()?,
        false => reader
            .whole(&bounds)
            .now_or_never()?
            .map(|held| (false, held)),
    };
    Some(read.map(|(flag, ReceivedBytes { bytes, permit })| (flag, bytes, permit)))
}
