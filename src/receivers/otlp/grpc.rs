//! OTLP over gRPC, directly on hyper. Four unary methods need no framework, whose overhead would exceed the work on the
//! data.

use http::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use tokio::time::{Instant, timeout_at};

use super::intake::{Format, Intake};
use crate::pipeline::batch::{Code, Nack};
use crate::pipeline::calls::CallMetrics;
use crate::serving::body::Reader;
use crate::serving::grpc::{Reply, accepted, codec, encoding, is_grpc, refused, timeout};
use crate::serving::refusal::too_busy;
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
        let encoding = encoding(request.headers())?;
        let metadata = intake.metadata(request.headers());
        let mut reader = Reader::new(request.into_body(), peer, intake.body_rate);
        let (compressed, held) = reader
            .message(&intake.bounds())
            .await
            .inspect_err(|nack| intake.unreadable(signal, nack))?;
        let codec = codec(encoding, compressed, &held.bytes)?;
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

fn plain(status: StatusCode) -> Response<Reply> {
    let mut response = Response::new(Reply::Empty);
    *response.status_mut() = status;
    response
}
