//! HTTP servers for spans of other schemas than OTLP: the receivers `zipkin` and `jaeger`.
//!
//! | status | meaning |
//! |---|---|
//! | 202 | the pipeline accepted the spans |
//! | 400 | the spans or the encoding of the body are malformed, or the pipeline refused the spans permanently |
//! | 401, 403 | the client is not authorized |
//! | 404, 405 | another path, another method |
//! | 413 | the body is larger than `max_request_body_size`, or needs more memory than the limit |
//! | 429, 503 | temporarily refused, with `Retry-After` |

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;

use super::otlp::intake::{Format, Intake};
use crate::pipeline::batch::{Code, Nack};
use crate::serving::body::Reader;
use crate::serving::front::{Front, may_be_sending, only_post};
use crate::serving::refusal::{refused_in_plain_text, too_busy};
use tributary_net::server::{Handler, Peer, plain};
use tributary_otlp::Signal;

/// A server of requests that contain spans.
pub(super) struct SpanServer<R> {
    pub(super) front: Front,
    pub(super) routes: R,
}

/// The requests of a protocol.
pub(super) trait SpanRoutes: Send + Sync + 'static {
    /// Returns the format of a POST request, and the intake that counts it.
    ///
    /// # Errors
    /// The request contains no spans.
    fn route(&self, path: &str, content_type: &str) -> Result<(&Intake, Format), Misdirected>;

    /// Returns the intake that counts requests of an unknown format.
    fn any(&self) -> &Intake;
}

/// Status and text of the response to a request that contains no spans.
pub(super) struct Misdirected(pub(super) StatusCode, pub(super) &'static str);

impl<R: SpanRoutes> SpanServer<R> {
    async fn respond(&self, mut request: Request<Incoming>, peer: &Peer) -> Response<Full<Bytes>> {
        let refuse = |nack| {
            self.routes.any().refused_request(peer);
            refused(nack)
        };
        if let Err(response) = self.front.admit(&mut request, peer, refuse).await {
            return response;
        }
        let may_be_sending = may_be_sending(&request);
        let content_type = content_type(request.headers());
        let routed = match request.method() {
            &Method::POST => self.routes.route(request.uri().path(), &content_type),
            _ => Err(Misdirected(StatusCode::METHOD_NOT_ALLOWED, "")),
        };
        let encoding = self.front.encoding(request.headers());
        let metadata = self.routes.any().metadata(request.headers());
        let rate = self.routes.any().body_rate;
        let mut reader = Reader::new(request.into_body(), peer, rate);
        let (intake, format) = match routed {
            Ok(routed) => routed,
            Err(Misdirected(status, text)) => {
                if may_be_sending {
                    reader.discard().await;
                }
                self.routes.any().refused_request(peer);
                return match status {
                    StatusCode::METHOD_NOT_ALLOWED => only_post(),
                    status => plain(status, text),
                };
            }
        };
        let read = match encoding {
            Err(nack) => Err(nack),
            Ok(encoding) => reader
                .whole(&intake.bounds())
                .await
                .map(|held| (held, encoding)),
        };
        let result = match read {
            Ok((held, encoding)) => {
                let codec = encoding.codec(&held.bytes);
                intake
                    .take(Signal::Traces, format, codec, held, metadata, peer)
                    .await
            }
            Err(nack) => {
                intake.unreadable(Signal::Traces, &nack);
                if may_be_sending && nack.code == Code::DeadlineExceeded {
                    peer.answered_early();
                } else if may_be_sending {
                    reader.discard().await;
                }
                Err(nack)
            }
        };
        match result {
            Ok(()) => {
                let mut response = Response::new(Full::default());
                *response.status_mut() = StatusCode::ACCEPTED;
                response
            }
            Err(nack) => {
                intake.refused(&nack, peer);
                refused(nack)
            }
        }
    }
}

impl<R: SpanRoutes> Handler for SpanServer<R> {
    type Body = Full<Bytes>;

    async fn handle(&self, request: Request<Incoming>, peer: &Peer) -> Response<Full<Bytes>> {
        let late = |nack| {
            self.routes.any().refused(&nack, peer);
            refused(nack)
        };
        let answer = |request| self.respond(request, peer);
        self.front.handle(request, answer, late).await
    }

    fn busy(&self, _: &Request<Incoming>) -> Response<Full<Bytes>> {
        refused(too_busy())
    }
}

/// Returns the content type without its parameters, in lower case.
fn content_type(headers: &HeaderMap) -> String {
    let value = headers.get(CONTENT_TYPE);
    let text = value.and_then(|value| value.to_str().ok());
    let essence = text.and_then(|text| text.split(';').next());
    essence.unwrap_or_default().trim().to_ascii_lowercase()
}

/// Returns a refusal as plain text. The exporter `zipkin` of the Collector and other clients send a request again after
/// 500, so a permanent refusal without a status of its own is 400.
fn refused(mut nack: Nack) -> Response<Full<Bytes>> {
    let has_status = matches!(
        nack.code,
        Code::Unauthenticated
            | Code::PermissionDenied
            | Code::Unimplemented
            | Code::ResourceExhausted
    );
    if !nack.retryable && !has_status {
        nack.code = Code::InvalidArgument;
    }
    refused_in_plain_text(nack)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permanent_refusal_is_not_a_server_error() {
        for (nack, status) in [
            (Nack::permanent(Code::Internal, "no"), 400),
            (Nack::permanent(Code::Unavailable, "no"), 400),
            (Nack::permanent(Code::ResourceExhausted, "no"), 413),
            (Nack::permanent(Code::PermissionDenied, "no"), 403),
            (Nack::unavailable("later"), 503),
        ] {
            let response = refused(nack);
            assert_eq!(response.status(), status);
            assert_eq!(
                response.headers().contains_key("retry-after"),
                status == 503
            );
        }
    }
}
