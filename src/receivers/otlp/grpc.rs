//! OTLP over gRPC, directly on hyper. Four unary methods need no framework, whose overhead would exceed the work on the
//! data.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use hyper::body::{Body, Frame, Incoming};
use tokio::time::{Instant, timeout_at};

use super::intake::{Format, Intake};
use crate::pipeline::batch::{Code, Nack};
use crate::pipeline::calls::CallMetrics;
use crate::serving::body::Reader;
use crate::serving::encoding::{Encoding, GRPC_NAMES};
use crate::serving::refusal::{Refusal, percent_encode, too_busy};
use tributary_net::auth::Guard;
use tributary_net::server::{Handler, Peer};
use tributary_otlp::Signal;

/// Unary methods whose response is an empty message.
pub(in crate::receivers) struct Grpc {
    pub(in crate::receivers) intake: Intake,
    pub(in crate::receivers) guard: Option<Guard>,
    pub(in crate::receivers) calls: CallMetrics,
    /// Returns the content of the requests to a path.
    pub(in crate::receivers) route: fn(&str) -> Option<(Signal, Format)>,
}

impl Handler for Grpc {
    type Body = Reply;

    async fn handle(&self, mut request: Request<Incoming>, peer: &Peer) -> Response<Reply> {
        if request.method() != Method::POST {
            self.intake.refused_request(peer);
            let mut response = plain(StatusCode::METHOD_NOT_ALLOWED);
            response
                .headers_mut()
                .insert(ALLOW, HeaderValue::from_static("POST"));
            return response;
        }
        if !is_grpc(request.headers().get(CONTENT_TYPE)) {
            self.intake.refused_request(peer);
            return plain(StatusCode::UNSUPPORTED_MEDIA_TYPE);
        }
        if let Some(guard) = &self.guard
            && let Err(nack) = guard.admit(request.headers_mut(), peer).await
        {
            self.intake.refused_request(peer);
            return refused(nack);
        }
        let deadline = match request.headers().get("grpc-timeout").map(timeout) {
            None => None,
            Some(Some(timeout)) => Some(Instant::now() + timeout),
            Some(None) => {
                let nack = Nack::permanent(Code::Internal, "malformed grpc-timeout");
                self.intake.refused(&nack, peer);
                return refused(nack);
            }
        };
        let signal = (self.route)(request.uri().path()).map(|(signal, _)| signal);
        let began = Instant::now();
        let export = self.export(request, peer);
        let result = match deadline {
            None => export.await,
            Some(deadline) => timeout_at(deadline, export).await.unwrap_or_else(|_| {
                Err(Nack {
                    retryable: true,
                    code: Code::DeadlineExceeded,
                    reason: "the request was not accepted within the deadline of the client".into(),
                    retry_after: None,
                })
            }),
        };
        if let Some(signal) = signal {
            let code = result.as_ref().map_or_else(|nack| nack.code, |()| Code::Ok);
            self.calls.ended(signal, code, began.elapsed());
        }
        match result {
            Ok(()) => accepted(),
            Err(nack) => {
                self.intake.refused(&nack, peer);
                refused(nack)
            }
        }
    }

    fn busy(&self, _: &Request<Incoming>) -> Response<Reply> {
        refused(too_busy())
    }
}

impl Grpc {
    async fn export(&self, request: Request<Incoming>, peer: &Peer) -> Result<(), Nack> {
        let intake = &self.intake;
        let path = request.uri().path();
        let (signal, format) = (self.route)(path).ok_or_else(|| {
            Nack::permanent(Code::Unimplemented, format!("unknown method {path}"))
        })?;
        if intake.outputs.get(signal).is_none() {
            return Err(intake.unserved(signal));
        }
        let encoding = match request.headers().get(GRPC_ENCODING) {
            None => Encoding::Identity,
            Some(name) => Encoding::of_grpc(name.as_bytes()).ok_or_else(|| {
                Nack::permanent(
                    Code::Unimplemented,
                    format!(
                        "the encoding `{}` is not supported; supported are {GRPC_NAMES}",
                        name.to_str().unwrap_or("?")
                    ),
                )
            })?,
        };
        let metadata = intake.metadata(request.headers());
        let mut reader = Reader::new(request.into_body(), peer, intake.body_rate);
        let (compressed, held) = reader
            .message(&intake.bounds())
            .await
            .inspect_err(|nack| intake.unreadable(signal, nack))?;
        let codec = if compressed {
            encoding.codec(&held.bytes)
        } else {
            None
        };
        if compressed && codec.is_none() {
            // gRPC over HTTP/2, "Compression": the flag without an encoding is an INTERNAL error.
            return Err(Nack::permanent(
                Code::Internal,
                "the message is flagged as compressed, but the header grpc-encoding is missing",
            ));
        }
        intake
            .take(signal, format, codec, held, metadata, peer)
            .await
    }
}

/// Returns the signal of a method of OTLP.
pub(super) fn route(path: &str) -> Option<(Signal, Format)> {
    let signal = match path {
        "/opentelemetry.proto.collector.trace.v1.TraceService/Export" => Signal::Traces,
        "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export" => Signal::Metrics,
        "/opentelemetry.proto.collector.logs.v1.LogsService/Export" => Signal::Logs,
        "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export" => {
            Signal::Profiles
        }
        _ => return None,
    };
    Some((signal, Format::Protobuf))
}

/// Whether the content type is `application/grpc`, also as `application/grpc+proto` and with parameters.
pub(super) fn is_grpc(content_type: Option<&HeaderValue>) -> bool {
    let Some(rest) = content_type.and_then(|value| value.as_bytes().strip_prefix(GRPC.as_bytes()))
    else {
        return false;
    };
    let rest = rest.strip_prefix(b"+proto").unwrap_or(rest);
    matches!(rest.first(), None | Some(b';' | b' '))
}

/// Parses `TimeoutValue TimeoutUnit` (gRPC over HTTP/2, "Requests"): at most eight digits and a unit.
pub(super) fn timeout(value: &HeaderValue) -> Option<Duration> {
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
fn accepted() -> Response<Reply> {
    let mut response = Response::new(Reply::Message);
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(GRPC));
    response
}

/// Returns a response without a message ("Trailers-Only").
pub(super) fn refused(nack: Nack) -> Response<Reply> {
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

fn plain(status: StatusCode) -> Response<Reply> {
    let mut response = Response::new(Reply::Empty);
    *response.status_mut() = status;
    response
}

/// A response body: the message of an empty response and its trailers, or nothing.
pub(in crate::receivers) enum Reply {
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
