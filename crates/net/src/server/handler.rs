//! Handlers of requests, and simple responses.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;

use super::peer::Peer;

/// Handles requests. One instance serves all connections of a server.
pub trait Handler: Send + Sync + 'static {
    /// Body of the responses.
    type Body: http_body::Body<Data = Bytes, Error: std::error::Error + Send + Sync> + Send + Unpin;

    /// Handles one request. The future is dropped when the client resets the stream or disconnects.
    fn handle(
        &self,
        request: Request<Incoming>,
        peer: &Peer,
    ) -> impl Future<Output = Response<Self::Body>> + Send;

    /// Refuses a request because too many are open. Its body is not read.
    fn busy(&self, request: &Request<Incoming>) -> Response<Self::Body>;
}

/// A boxed handler of simple requests (`/metrics`, health).
pub type SimpleHandler =
    Arc<dyn Fn(Request<Incoming>) -> BoxFuture<'static, Response<Full<Bytes>>> + Send + Sync>;

/// Returns a plain-text response, for people and for clients that do not speak OTLP.
pub fn plain(status: StatusCode, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, PLAIN);
    response
}

const PLAIN: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

impl Handler for SimpleHandler {
    type Body = Full<Bytes>;

    async fn handle(&self, request: Request<Incoming>, _: &Peer) -> Response<Full<Bytes>> {
        self(request).await
    }

    fn busy(&self, _: &Request<Incoming>) -> Response<Full<Bytes>> {
        busy()
    }
}

/// Returns the plain-text response to a request over the limit.
pub fn busy() -> Response<Full<Bytes>> {
    let text = "too many requests are in flight; retry later\n";
    let mut response = plain(StatusCode::SERVICE_UNAVAILABLE, text);
    let headers = response.headers_mut();
    headers.insert(RETRY_AFTER, HeaderValue::from(BUSY_RETRY_AFTER.as_secs()));
    response
}

/// Retry delay for clients refused because too many requests are open.
pub const BUSY_RETRY_AFTER: Duration = Duration::from_secs(1);
