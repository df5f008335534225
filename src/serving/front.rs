//! Steps before and after the handler of every HTTP request.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ALLOW, CONTENT_ENCODING, EXPECT, HeaderMap, HeaderValue, ORIGIN, WWW_AUTHENTICATE,
};
use http::{Request, Response, StatusCode, Version};
use http_body_util::Full;
use tokio::time::timeout;

use super::cors::{Cors, Policy};
use super::encoding::{Encoding, list};
use crate::pipeline::batch::Nack;
use tributary_config::Headers;
use tributary_net::auth::Guard;
use tributary_net::server::{Peer, plain};

/// Authentication, accepted encodings, timeout and response headers.
pub(crate) struct Front {
    guard: Option<Guard>,
    /// Accepted values of `Content-Encoding`.
    encodings: Vec<(String, Encoding)>,
    cors: Option<Policy>,
    response_headers: HeaderMap,
    response_timeout: Option<Duration>,
}

impl Front {
    /// Creates the front from these parts of a server's configuration.
    pub(crate) fn new(
        guard: Option<Guard>,
        encodings: &[String],
        cors: Option<&Cors>,
        response_headers: &Headers,
        response_timeout: Option<Duration>,
    ) -> Self {
        let known = |name: &String| Some((name.clone(), Encoding::of_http(name)?));
        Front {
            guard,
            encodings: encodings.iter().filter_map(known).collect(),
            cors: cors.map(Policy::new),
            response_headers: response_headers.to_map(),
            response_timeout,
        }
    }

    /// Handles a request. `respond` handles every request except a preflight. `late` returns the response after a
    /// timeout.
    pub(crate) async fn handle<B, R: From<Full<Bytes>>, A: Future<Output = Response<R>>>(
        &self,
        request: Request<B>,
        respond: impl FnOnce(Request<B>) -> A,
        late: impl FnOnce(Nack) -> Response<R>,
    ) -> Response<R> {
        let origin = self
            .cors
            .as_ref()
            .and_then(|_| request.headers().get(ORIGIN).cloned());
        let preflight = self.cors.as_ref().and_then(|cors| cors.preflight(&request));
        let mut response = match (preflight, self.response_timeout) {
            (Some(preflight), _) => preflight.map(R::from),
            (None, None) => self.within_cors(respond(request), origin).await,
            (None, Some(limit)) => timeout(limit, self.within_cors(respond(request), origin))
                .await
                .unwrap_or_else(|_| {
                    late(Nack::unavailable(
                        "the request was not accepted within `write_timeout`",
                    ))
                }),
        };
        for (name, value) in &self.response_headers {
            response.headers_mut().insert(name.clone(), value.clone());
        }
        response
    }

    async fn within_cors<R>(
        &self,
        response: impl Future<Output = Response<R>>,
        origin: Option<HeaderValue>,
    ) -> Response<R> {
        let mut response = response.await;
        if let Some(cors) = &self.cors {
            cors.apply(origin.as_ref(), response.headers_mut());
        }
        response
    }

    /// Authenticates the client before any part of the body is read.
    ///
    /// # Errors
    /// Returns the response to an unauthorized client; `refuse` formats it.
    pub(crate) async fn admit<B, R>(
        &self,
        request: &mut Request<B>,
        peer: &Peer,
        refuse: impl FnOnce(Nack) -> Response<R>,
    ) -> Result<(), Response<R>> {
        let Some(guard) = &self.guard else {
            return Ok(());
        };
        let Err(nack) = guard.admit(request.headers_mut(), peer).await else {
            return Ok(());
        };
        let mut response = refuse(nack);
        if response.status() == StatusCode::UNAUTHORIZED {
            response
                .headers_mut()
                .insert(WWW_AUTHENTICATE, guard.challenge());
        }
        if may_be_sending(request) {
            peer.answered_early();
        }
        Err(response)
    }

    /// Returns the single encoding of a body. Multiple encodings are refused: no client uses them,
    /// and each layer would multiply the cost of a small body.
    ///
    /// # Errors
    /// Returns a refusal for encodings that are not accepted.
    pub(crate) fn encoding(&self, headers: &HeaderMap) -> Result<Encoding, Nack> {
        let mut values = headers.get_all(CONTENT_ENCODING).iter();
        let name = match (values.next(), values.next()) {
            (None, _) => "",
            (Some(value), None) => value.to_str().unwrap_or("?").trim(),
            (Some(_), Some(_)) => "several",
        };
        let name = if name.eq_ignore_ascii_case("identity") {
            ""
        } else {
            name
        };
        let known = self
            .encodings
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name));
        known.map(|(_, encoding)| *encoding).ok_or_else(|| {
            let supported = list(self.encodings.iter().map(|(name, _)| name.as_str()));
            Nack::invalid(format!(
                "unsupported Content-Encoding: {}; supported is one of: {supported}",
                list([name])
            ))
        })
    }
}

/// Whether an HTTP/1 client may still be sending the body. A client that waits for `100 Continue`
/// has not started, and a read would cause it to start.
pub(crate) fn may_be_sending<B>(request: &Request<B>) -> bool {
    request.version() < Version::HTTP_2 && !request.headers().contains_key(EXPECT)
}

/// Returns the response to a request with another method than POST.
pub(crate) fn only_post() -> Response<Full<Bytes>> {
    let message = "405 method not allowed, supported: [POST]";
    let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, message);
    response
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static("POST"));
    response
}
