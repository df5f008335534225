//! Responses over HTTP, Connect and gRPC.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Body, Frame};

use crate::pipeline::batch::{Code, Nack};
use crate::serving::connect;
use crate::serving::grpc;
use crate::serving::refusal::{Refusal, refused_in_plain_text};

/// Protocol of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    /// `POST /ingest`.
    Ingest,
    /// Connect, with this encoding.
    Connect(connect::Encoding),
    /// gRPC.
    Grpc,
}

/// Body of a response.
pub(super) enum Answer {
    Whole(Full<Bytes>),
    Grpc(grpc::Reply),
}

impl From<Full<Bytes>> for Answer {
    fn from(body: Full<Bytes>) -> Self {
        Answer::Whole(body)
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Answer::Whole(body) => Pin::new(body).poll_frame(cx),
            Answer::Grpc(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Answer::Whole(body) => body.is_end_stream(),
            Answer::Grpc(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        match self {
            Answer::Whole(body) => body.size_hint(),
            Answer::Grpc(body) => body.size_hint(),
        }
    }
}

impl Protocol {
    /// Returns the response to an accepted request: an empty message.
    pub(super) fn accepted(self) -> Response<Answer> {
        let (body, content_type) = match self {
            Protocol::Grpc => return grpc::accepted().map(Answer::Grpc),
            Protocol::Ingest => ("", None),
            Protocol::Connect(connect::Encoding::Proto) => ("", Some(connect::PROTO)),
            Protocol::Connect(connect::Encoding::Json) => ("{}", Some(connect::JSON)),
        };
        let mut response = Response::new(Answer::Whole(body.into()));
        if let Some(content_type) = content_type {
            let content_type = HeaderValue::from_static(content_type);
            response.headers_mut().insert(CONTENT_TYPE, content_type);
        }
        response
    }

    /// Returns the response to a refused request.
    pub(super) fn refused(self, nack: Nack) -> Response<Answer> {
        match self {
            Protocol::Ingest => refused_in_plain_text(nack).map(Answer::Whole),
            Protocol::Grpc => grpc::refused(nack).map(Answer::Grpc),
            Protocol::Connect(_) => refused_over_connect(nack),
        }
    }
}

/// Returns an error as JSON, with the status that Connect has for its code.
fn refused_over_connect(nack: Nack) -> Response<Answer> {
    let is_retryable = nack.retryable;
    let refusal = Refusal::from(nack);
    let (code, status) = match refusal.code {
        Code::InvalidArgument => ("invalid_argument", StatusCode::BAD_REQUEST),
        Code::Unauthenticated => ("unauthenticated", StatusCode::UNAUTHORIZED),
        Code::PermissionDenied => ("permission_denied", StatusCode::FORBIDDEN),
        Code::Unimplemented => ("unimplemented", StatusCode::NOT_FOUND),
        Code::ResourceExhausted if is_retryable => {
            ("resource_exhausted", StatusCode::TOO_MANY_REQUESTS)
        }
        // Connect's status 429 would make clients retry what can never fit.
        Code::ResourceExhausted => ("resource_exhausted", StatusCode::PAYLOAD_TOO_LARGE),
        _ if is_retryable => ("unavailable", StatusCode::SERVICE_UNAVAILABLE),
        _ => ("internal", StatusCode::INTERNAL_SERVER_ERROR),
    };
    let body = connect::error_body(code, &refusal.message);
    let mut response = Response::new(Answer::Whole(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(connect::JSON));
    refusal.add_retry_after(status, headers);
    response
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn refusals_have_the_status_of_their_protocol() {
        let busy = || Nack::exhausted("busy", Duration::from_millis(1500));
        let large = || Nack::permanent(Code::ResourceExhausted, "large");
        let connect = Protocol::Connect(connect::Encoding::Proto);
        for (protocol, nack, status, retry_after) in [
            (Protocol::Ingest, busy(), 429, Some("2")),
            (Protocol::Ingest, large(), 413, None),
            (Protocol::Ingest, Nack::invalid("wrong"), 400, None),
            (Protocol::Ingest, Nack::unavailable("later"), 503, Some("1")),
            (connect, busy(), 429, Some("2")),
            (connect, large(), 413, None),
            (connect, Nack::invalid("wrong"), 400, None),
            (connect, Nack::unavailable("later"), 503, Some("1")),
            (Protocol::Grpc, busy(), 200, None),
        ] {
            let response = protocol.refused(nack);
            let after = response.headers().get("retry-after");
            let after = after.map(|value| value.to_str().unwrap());
            assert_eq!((response.status().as_u16(), after), (status, retry_after));
        }
    }
}
