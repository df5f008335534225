//! Unary gRPC methods with an empty response, directly on hyper.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::body::{Body, Frame};

use super::encoding::{Encoding, GRPC_NAMES};
use super::refusal::{Refusal, percent_encode};
use crate::pipeline::batch::{Code, Nack};
use tributary_compression::Codec;

/// Returns the encoding of a request.
///
/// # Errors
/// The encoding is not supported.
pub(crate) fn encoding(headers: &HeaderMap) -> Result<Encoding, Nack> {
    let Some(name) = headers.get(GRPC_ENCODING) else {
        return Ok(Encoding::Identity);
    };
    Encoding::of_grpc(name.as_bytes()).ok_or_else(|| {
        Nack::permanent(
            Code::Unimplemented,
            format!(
                "the encoding `{}` is not supported; supported are {GRPC_NAMES}",
                name.to_str().unwrap_or("?")
            ),
        )
    })
}

/// Returns the codec of a message; `None` if it is not compressed.
///
/// # Errors
/// The message is compressed without an encoding.
pub(crate) fn codec(
    encoding: Encoding,
    compressed: bool,
    message: &[u8],
) -> Result<Option<Codec>, Nack> {
    if !compressed {
        return Ok(None);
    }
    match encoding.codec(message) {
        // gRPC over HTTP/2, "Compression": the flag without an encoding is an INTERNAL error.
        None => Err(Nack::permanent(
            Code::Internal,
            "the message is flagged as compressed, but the header grpc-encoding is missing",
        )),
        codec => Ok(codec),
    }
}

/// Whether the content type is `application/grpc`, also as `application/grpc+proto` and with parameters.
pub(crate) fn is_grpc(content_type: Option<&HeaderValue>) -> bool {
    let Some(rest) = content_type.and_then(|value| value.as_bytes().strip_prefix(GRPC.as_bytes()))
    else {
        return false;
    };
    let rest = rest.strip_prefix(b"+proto").unwrap_or(rest);
    matches!(rest.first(), None | Some(b';' | b' '))
}

/// Parses `TimeoutValue TimeoutUnit` (gRPC over HTTP/2, "Requests"): at most eight digits and a unit.
pub(crate) fn timeout(value: &HeaderValue) -> Option<Duration> {
    let (unit, digits) = value.as_bytes().split_last()?;
    if digits.is_empty() || digits.len() > 8 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let amount: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some(match unit {
        b'H' => Duration::from_secs(amount * 3600),
        b'M' => Duration::from_secs(amount * 60),
        b'S' => Duration::from_secs(amount),
        b'm' => Duration::from_millis(amount),
        b'u' => Duration::from_micros(amount),
        b'n' => Duration::from_nanos(amount),
        _ => return None,
    })
}

/// Returns an empty `Export*ServiceResponse`, which means full success.
pub(crate) fn accepted() -> Response<Reply> {
    let mut response = Response::new(Reply::Message);
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(GRPC));
    response
}

/// Returns a response without a message ("Trailers-Only").
pub(crate) fn refused(nack: Nack) -> Response<Reply> {
    let unknown_encoding = nack.code == Code::Unimplemented;
    let refusal = Refusal::from(nack);
    let mut response = Response::new(Reply::Empty);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(GRPC));
    headers.insert(GRPC_STATUS, HeaderValue::from(refusal.code as i32));
    if let Ok(message) = HeaderValue::try_from(percent_encode(&refusal.message)) {
        headers.insert(GRPC_MESSAGE, message);
    }
    if let Some(details) = refusal.details_bin()
        && let Ok(details) = HeaderValue::try_from(details)
    {
        headers.insert(GRPC_STATUS_DETAILS, details);
    }
    if unknown_encoding {
        headers.insert(GRPC_ACCEPT_ENCODING, HeaderValue::from_static(GRPC_NAMES));
    }
    response
}

/// A response body: the message of an empty response and its trailers, or nothing.
pub(crate) enum Reply {
    /// The message is sent next.
    Message,
    /// The trailers are sent next.
    Trailers,
    /// The response is complete.
    Empty,
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let (frame, next) = match *self {
            Reply::Message => (Frame::data(Bytes::from_static(&[0; 5])), Reply::Trailers),
            Reply::Trailers => {
                let mut trailers = HeaderMap::with_capacity(1);
                trailers.insert(GRPC_STATUS, HeaderValue::from_static("0"));
                (Frame::trailers(trailers), Reply::Empty)
            }
            Reply::Empty => return Poll::Ready(None),
        };
        *self = next;
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Reply::Empty)
    }
}

const GRPC: &str = "application/grpc";
const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
const GRPC_ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_STATUS_DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
