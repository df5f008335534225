//! OTLP over HTTP: protobuf and JSON.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;

use super::config::HttpConfig;
use super::intake::{Format, Intake};
use crate::pipeline::batch::{Code, Nack};
use crate::serving::body::Reader;
use crate::serving::encoding::list;
use crate::serving::front::{Front, may_be_sending, only_post};
use crate::serving::refusal::{Refusal, too_busy};
use tributary_net::server::{Handler, Peer, plain};
use tributary_otlp::Signal;

/// The HTTP side of the receiver.
pub(super) struct Http {
    intake: Intake,
    front: Front,
    paths: Vec<(String, Signal)>,
}

impl Http {
    pub(super) fn new(config: &HttpConfig, intake: Intake, front: Front) -> Self {
        let path = |path: &str| format!("/{}", path.strip_prefix('/').unwrap_or(path));
        Http {
            paths: vec![
                (path(&config.traces_url_path), Signal::Traces),
                (path(&config.metrics_url_path), Signal::Metrics),
                (path(&config.logs_url_path), Signal::Logs),
                (PROFILES_PATH.to_owned(), Signal::Profiles),
            ],
            intake,
            front,
        }
    }

    async fn respond(&self, mut request: Request<Incoming>, peer: &Peer) -> Response<Full<Bytes>> {
        let asked = request_format(&request);
        let refuse = |nack| {
            self.intake.refused_request(peer);
            refused(nack, asked)
        };
        if let Err(response) = self.front.admit(&mut request, peer, refuse).await {
            return response;
        }
        let may_be_sending = may_be_sending(&request);
        let target = self.route(&request);
        let encoding = self.front.encoding(request.headers());
        let metadata = self.intake.metadata(request.headers());
        let mut reader = Reader::new(request.into_body(), peer, self.intake.body_rate);
        let intake = &self.intake;
        let (signal, format) = match target {
            Ok(target) => target,
            Err(why) => {
                if may_be_sending {
                    reader.discard().await;
                }
                intake.refused_request(peer);
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
                intake.unreadable(signal, &nack);
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
                let message = format!("404 page not found; the paths for OTLP are {paths}");
                plain(StatusCode::NOT_FOUND, message)
            }
            Misdirected::Unserved(signal) => {
                let message = format!("404 {}", self.intake.unserved(signal));
                plain(StatusCode::NOT_FOUND, message)
            }
            Misdirected::NotPost => only_post(),
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
}

impl Handler for Http {
    type Body = Full<Bytes>;

    async fn handle(&self, request: Request<Incoming>, peer: &Peer) -> Response<Full<Bytes>> {
        let format = request_format(&request);
        let late = |nack| {
            self.intake.refused(&nack, peer);
            refused(nack, format)
        };
        let answer = |request| self.respond(request, peer);
        self.front.handle(request, answer, late).await
    }

    fn busy(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        refused(too_busy(), request_format(request))
    }
}

/// Reason why a request matches no signal.
enum Misdirected {
    /// The request is a gRPC request, which belongs to another port.
    Grpc,
    UnknownPath,
    Unserved(Signal),
    NotPost,
    UnknownFormat,
}

/// Returns the encoding of a request, and of its refusal.
fn request_format<B>(request: &Request<B>) -> Format {
    let format = request.headers().get(CONTENT_TYPE).and_then(format);
    format.unwrap_or(Format::Protobuf)
}

/// Returns the format of a content type; parameters such as `charset` are ignored.
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

/// Returns an empty `Export*ServiceResponse`, which means full success.
fn accepted(format: Format) -> Response<Full<Bytes>> {
    match format {
        Format::Json => response(StatusCode::OK, JSON, Bytes::from_static(b"{}")),
        _ => response(StatusCode::OK, PROTOBUF, Bytes::new()),
    }
}

/// Returns a `google.rpc.Status` in the encoding of the request.
pub(super) fn refused(nack: Nack, format: Format) -> Response<Full<Bytes>> {
    let refusal = Refusal::from(nack);
    let status = refusal.http_status();
    let mut response = match format {
        Format::Json => response(status, JSON, refusal.to_json().into()),
        _ => response(status, PROTOBUF, refusal.to_protobuf().into()),
    };
    if let Some(seconds) = refusal.retry_after_seconds() {
        response
            .headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from(seconds));
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
/// Not configurable in the Collector either; the signal is in development.
const PROFILES_PATH: &str = "/v1development/profiles";
