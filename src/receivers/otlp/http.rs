//! OTLP over HTTP: protobuf and JSON.

use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ALLOW, CONTENT_ENCODING, CONTENT_TYPE, EXPECT, HeaderMap, HeaderValue, ORIGIN, RETRY_AFTER,
    WWW_AUTHENTICATE,
};
use http::{Method, Request, Response, StatusCode, Version};
use http_body_util::Full;
use hyper::body::Incoming;
use tokio::time::timeout;

use super::body::Reader;
use super::config::HttpConfig;
use super::cors::Policy;
use super::encoding::{Encoding, list};
use super::intake::{Format, Intake, too_busy};
use super::status::Refusal;
use crate::auth::Guard;
use crate::batch::{Code, Nack, Signal};
use crate::net::server::{Handler, Peer, plain};

/// The HTTP side of the receiver.
pub(super) struct Http {
    intake: Intake,
    guard: Option<Guard>,
    paths: Vec<(String, Signal)>,
    /// The accepted values of `Content-Encoding`.
    encodings: Vec<(String, Encoding)>,
    cors: Option<Policy>,
    response_headers: HeaderMap,
    answer_timeout: Option<Duration>,
}

impl Http {
    pub(super) fn new(config: &HttpConfig, intake: Intake, guard: Option<Guard>) -> Self {
        let path = |path: &str| format!("/{}", path.strip_prefix('/').unwrap_or(path));
        Http {
            paths: vec![
                (path(&config.traces_url_path), Signal::Traces),
                (path(&config.metrics_url_path), Signal::Metrics),
                (path(&config.logs_url_path), Signal::Logs),
                (PROFILES_PATH.to_owned(), Signal::Profiles),
            ],
            encodings: config
                .compression_algorithms
                .iter()
                .filter_map(|name| Some((name.clone(), Encoding::of_http(name)?)))
                .collect(),
            cors: config.cors.as_ref().map(Policy::new),
            response_headers: config.response_headers.to_map(),
            answer_timeout: config.write_timeout.unless_zero(),
            intake,
            guard,
        }
    }

    async fn answer(&self, mut request: Request<Incoming>, peer: &Peer) -> Response<Full<Bytes>> {
        if let Some(guard) = &self.guard
            && let Err(nack) = guard.admit(request.headers_mut(), peer).await
        {
            self.intake.turned_away(peer);
            return turned_away(guard, nack, &request, peer);
        }
        let may_be_sending = may_be_sending(&request);
        let target = self.route(&request);
        let encoding = self.encoding(request.headers());
        let metadata = self.intake.metadata(request.headers());
        let mut reader = Reader::new(request.into_body(), peer, self.intake.pace);
        let intake = &self.intake;
        let (signal, format) = match target {
            Ok(target) => target,
            Err(why) => {
                if may_be_sending {
                    reader.discard().await;
                }
                intake.turned_away(peer);
                return self.misdirected(why);
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
                    .take(signal, format, codec, held, metadata, peer)
                    .await
            }
            Err(nack) => {
                intake.unreadable(signal);
                if may_be_sending && nack.code == Code::DeadlineExceeded {
                    peer.answered_early();
                } else if may_be_sending {
                    reader.discard().await;
                }
                Err(nack)
            }
        };
        match result {
            Ok(()) => accepted(format),
            Err(nack) => {
                intake.refused(&nack, peer);
                refused(nack, format)
            }
        }
    }

    fn route(&self, request: &Request<Incoming>) -> Result<(Signal, Format), Misdirected> {
        let content_type = request.headers().get(CONTENT_TYPE);
        if content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc")) {
            return Err(Misdirected::Grpc);
        }
        let path = request.uri().path();
        let known = self.paths.iter().find(|(known, _)| known == path);
        let (_, signal) = known.ok_or(Misdirected::UnknownPath)?;
        if self.intake.outputs.get(*signal).is_none() {
            return Err(Misdirected::Unserved(*signal));
        }
        if request.method() != Method::POST {
            return Err(Misdirected::NotPost);
        }
        let format = content_type
            .and_then(format)
            .ok_or(Misdirected::UnknownFormat)?;
        Ok((*signal, format))
    }

    fn misdirected(&self, why: Misdirected) -> Response<Full<Bytes>> {
        match why {
            Misdirected::Grpc => {
                let mut response = response(StatusCode::OK, "application/grpc", Bytes::new());
                let headers = response.headers_mut();
                headers.insert("grpc-status", HeaderValue::from(Code::Unimplemented as i32));
                headers.insert("grpc-message", HeaderValue::from_static(NOT_GRPC));
                response
            }
            Misdirected::UnknownPath => {
                let paths = list(self.served().map(|(path, _)| path.as_str()));
                let message = format!("404 page not found; OTLP is taken at {paths}");
                plain(StatusCode::NOT_FOUND, message)
            }
            Misdirected::Unserved(signal) => {
                let message = format!("404 {}", self.intake.unserved(signal));
                plain(StatusCode::NOT_FOUND, message)
            }
            Misdirected::NotPost => {
                let message = "405 method not allowed, supported: [POST]";
                let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, message);
                response
                    .headers_mut()
                    .insert(ALLOW, HeaderValue::from_static("POST"));
                response
            }
            Misdirected::UnknownFormat => plain(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "415 unsupported media type, supported: [application/json, application/x-protobuf]",
            ),
        }
    }

    fn served(&self) -> impl Iterator<Item = &(String, Signal)> {
        self.paths
            .iter()
            .filter(|(_, signal)| self.intake.outputs.get(*signal).is_some())
    }

    /// The one encoding of a body. Several on top of each other are refused: no OTLP client sends them, and each layer
    /// would multiply what a small body can cost.
    fn encoding(&self, headers: &HeaderMap) -> Result<Encoding, Nack> {
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

impl Handler for Http {
    type Body = Full<Bytes>;

    async fn handle(&self, request: Request<Incoming>, peer: &Peer) -> Response<Full<Bytes>> {
        let origin = self
            .cors
            .as_ref()
            .and_then(|_| request.headers().get(ORIGIN).cloned());
        let preflight = self.cors.as_ref().and_then(|cors| cors.preflight(&request));
        let mut response = match (preflight, self.answer_timeout) {
            (Some(preflight), _) => preflight,
            (None, None) => self.within_cors(request, peer, origin).await,
            (None, Some(limit)) => {
                let format = request.headers().get(CONTENT_TYPE).and_then(format);
                timeout(limit, self.within_cors(request, peer, origin))
                    .await
                    .unwrap_or_else(|_| {
                        let nack =
                            Nack::unavailable("the data was not taken within `write_timeout`");
                        self.intake.refused(&nack, peer);
                        refused(nack, format.unwrap_or(Format::Protobuf))
                    })
            }
        };
        for (name, value) in &self.response_headers {
            response.headers_mut().insert(name.clone(), value.clone());
        }
        response
    }

    fn busy(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let format = request.headers().get(CONTENT_TYPE).and_then(format);
        refused(too_busy(), format.unwrap_or(Format::Protobuf))
    }
}

impl Http {
    async fn within_cors(
        &self,
        request: Request<Incoming>,
        peer: &Peer,
        origin: Option<HeaderValue>,
    ) -> Response<Full<Bytes>> {
        let mut response = self.answer(request, peer).await;
        if let Some(cors) = &self.cors {
            cors.apply(origin.as_ref(), response.headers_mut());
        }
        response
    }
}

/// Why a request is for no signal.
enum Misdirected {
    /// It is gRPC, which has its own port.
    Grpc,
    UnknownPath,
    Unserved(Signal),
    NotPost,
    UnknownFormat,
}

/// What a content type stands for; parameters such as `charset` make no difference.
pub(super) fn format(content_type: &HeaderValue) -> Option<Format> {
    let essence = content_type.to_str().ok()?.split(';').next()?.trim();
    if essence.eq_ignore_ascii_case(PROTOBUF) {
        Some(Format::Protobuf)
    } else if essence.eq_ignore_ascii_case(JSON) {
        Some(Format::Json)
    } else {
        None
    }
}

/// An empty `Export*ServiceResponse`, which means full success.
fn accepted(format: Format) -> Response<Full<Bytes>> {
    match format {
        Format::Protobuf => response(StatusCode::OK, PROTOBUF, Bytes::new()),
        Format::Json => response(StatusCode::OK, JSON, Bytes::from_static(b"{}")),
    }
}

/// A `google.rpc.Status` in the encoding of the request.
pub(super) fn refused(nack: Nack, format: Format) -> Response<Full<Bytes>> {
    let refusal = Refusal::from(nack);
    let status = refusal.http_status();
    let mut response = match format {
        Format::Protobuf => response(status, PROTOBUF, refusal.to_protobuf().into()),
        Format::Json => response(status, JSON, refusal.to_json().into()),
    };
    if let Some(seconds) = refusal.retry_after_seconds() {
        response
            .headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// Whether an HTTP/1 client may still be sending the body. One that waits for `100 Continue` has not begun, and reading
/// would make it.
fn may_be_sending(request: &Request<Incoming>) -> bool {
    request.version() < Version::HTTP_2 && !request.headers().contains_key(EXPECT)
}

/// The answer to a request that was not let in. It is given before anything of the body is read.
fn turned_away(
    guard: &Guard,
    nack: Nack,
    request: &Request<Incoming>,
    peer: &Peer,
) -> Response<Full<Bytes>> {
    let format = request.headers().get(CONTENT_TYPE).and_then(format);
    let mut response = refused(nack, format.unwrap_or(Format::Protobuf));
    if response.status() == StatusCode::UNAUTHORIZED {
        response
            .headers_mut()
            .insert(WWW_AUTHENTICATE, guard.challenge());
    }
    if may_be_sending(request) {
        peer.answered_early();
    }
    response
}

fn response(status: StatusCode, content_type: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

const NOT_GRPC: &str = "this port speaks OTLP/HTTP; OTLP/gRPC is usually on port 4317";
const PROTOBUF: &str = "application/x-protobuf";
const JSON: &str = "application/json";
/// Fixed in the Collector too; the signal is in development.
const PROFILES_PATH: &str = "/v1development/profiles";
