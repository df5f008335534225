//! The server: routes, bodies and responses.
//!
//! | status | meaning |
//! |---|---|
//! | 200 | the pipeline accepted the profiles, or there are none |
//! | 400 | the query, the labels or a profile is malformed |
//! | 401, 403 | the client is not authorized |
//! | 404, 405, 415 | another path, another method, another content type of `push.v1` |
//! | 413 | the request is larger than `max_request_body_size`, or needs more memory than the limit |
//! | 429, 503 | temporarily refused, with `Retry-After` |
//! | 500 | the pipeline refused the profiles permanently |
//!
//! Over Connect the body of a refusal is JSON with one of Connect's codes; over gRPC the status is in the trailers.

use std::time::{SystemTime, UNIX_EPOCH};

use http::header::{CONTENT_TYPE, HeaderMap};
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use tokio::time::{Instant, timeout_at};

use super::answer::{Answer, Protocol};
use super::config::PyroscopeHttpConfig;
use super::sender::Sender;
use super::{ingest, push};
use crate::component::auth;
use crate::component::{BuildContext, BuildError};
use crate::pipeline::Component;
use crate::pipeline::batch::{Code, Nack};
use crate::receivers::profile_intake::{Converted, Intake, ReceivedBytes, Refused};
use crate::serving::body::{BodyRate, Bounds, Reader};
use crate::serving::connect::{Encoding, JSON, PROTO};
use crate::serving::front::{Front, may_be_sending, only_post};
use crate::serving::query::decode;
use crate::serving::refusal::{log_refusal, too_busy};
use crate::serving::{Serving, grpc, metadata};
use tributary_compression::Codec;
use tributary_config::ComponentId;
use tributary_net::Owner;
use tributary_net::sampled_log::SampledLog;
use tributary_net::server::{
    BoundServer, Handler, Peer, Protocol as HttpVersion, ServerOptions, plain, tls_source,
};
use tributary_otlp::Signal;
use tributary_pyroscope::ingest::Ingest;

/// Binds the socket; connections are accepted only after the start.
///
/// # Errors
/// Returns an error if the address cannot be used, or a file of `tls` cannot be read.
pub(super) fn listening(
    config: &PyroscopeHttpConfig,
    tenant_attribute: &str,
    cx: &BuildContext,
    intake: Intake,
) -> Result<Box<dyn Component>, BuildError> {
    let owner = Owner::new(&cx.id, "receiver").with_transport("http");
    let within = |error: &dyn std::fmt::Display| BuildError(format!("protocols::http::{error}"));
    let guard = auth::guard(config.auth.as_ref(), cx, &owner).map_err(|error| within(&error))?;
    let tls = tls_source(&config.tls, HttpVersion::Either, &owner).map_err(|e| within(&e))?;
    let identity = (*config.tls).as_ref();
    let identity = identity.map(|tls| tls.client_identity_attribute.clone());
    let handler = Agents {
        id: cx.id.clone(),
        intake,
        front: Front::new(
            guard,
            &config.compression_algorithms,
            config.cors.as_ref(),
            &config.response_headers,
            config.write_timeout.unless_zero(),
        ),
        tenant: Some(tenant_attribute.to_owned()).filter(|key| !key.is_empty()),
        identity: identity.filter(|key| !key.is_empty()),
        include_metadata: config.include_metadata,
        refusals: SampledLog::default(),
        body_rate: BodyRate::new(&config.limits, config.read_timeout.unless_zero()),
    };
    let options = ServerOptions {
        tls,
        budget: Some(cx.budget.clone()),
        ..config.server_options()
    };
    let bound = cx
        .listeners
        .bind(&cx.id, &config.endpoint)
        .and_then(|listener| BoundServer::new(listener, handler, options, "HTTP", owner))
        .map_err(|error| BuildError(error.to_string()))?;
    Ok(Box::new(Serving::new(bound)))
}

/// Handler of requests.
struct Agents {
    id: ComponentId,
    intake: Intake,
    front: Front,
    /// Resource attribute of the tenant.
    tenant: Option<String>,
    /// Resource attribute that identifies the client according to its certificate.
    identity: Option<String>,
    include_metadata: bool,
    /// Limits the log lines that a client can cause by refused requests.
    refusals: SampledLog,
    body_rate: BodyRate,
}

impl Handler for Agents {
    type Body = Answer;

    async fn handle(&self, request: Request<Incoming>, peer: &Peer) -> Response<Answer> {
        let protocol = protocol(request.uri().path(), request.headers());
        let deadline = grpc_deadline(protocol, request.headers());
        let in_plain_text = protocol.unwrap_or(Protocol::Ingest);
        let late = |nack| {
            self.report(&nack, peer);
            in_plain_text.refused(nack)
        };
        let respond = |request| async move {
            let respond = self.respond(request, protocol, peer);
            match deadline {
                None => respond.await,
                Some(deadline) => timeout_at(deadline, respond).await.unwrap_or_else(|_| {
                    late(Nack {
                        retryable: true,
                        code: Code::DeadlineExceeded,
                        reason: "the request was not accepted within the deadline of the client"
                            .into(),
                        retry_after: None,
                    })
                }),
            }
        };
        self.front.handle(request, respond, late).await
    }

    fn busy(&self, request: &Request<Incoming>) -> Response<Answer> {
        let protocol = protocol(request.uri().path(), request.headers());
        protocol.unwrap_or(Protocol::Ingest).refused(too_busy())
    }
}

impl Agents {
    async fn respond(
        &self,
        mut request: Request<Incoming>,
        protocol: Result<Protocol, StatusCode>,
        peer: &Peer,
    ) -> Response<Answer> {
        let metrics = &self.intake.metrics;
        let in_protocol = protocol.unwrap_or(Protocol::Ingest);
        let refuse = |nack| {
            metrics.refused_request(peer.identity.as_ref());
            in_protocol.refused(nack)
        };
        if let Err(response) = self.front.admit(&mut request, peer, refuse).await {
            return response;
        }
        let may_be_sending = may_be_sending(&request);
        if let Some(response) = misdirected(&request, protocol) {
            if may_be_sending {
                Reader::new(request.into_body(), peer, self.body_rate)
                    .discard()
                    .await;
            }
            metrics.refused_request(peer.identity.as_ref());
            return response;
        }
        let (head, body) = request.into_parts();
        let mut reader = Reader::new(body, peer, self.body_rate);
        let read = match self.work(&head, in_protocol, peer) {
            Err(nack) => Err(nack),
            Ok(work) => {
                let body = self.body(&mut reader, in_protocol, &head.headers).await;
                body.map(|(held, codec)| (held, codec, work))
            }
        };
        let result = match read {
            Ok((held, codec, work)) => {
                // The limit per connection comes first, so that a connection with a thousand decompression bombs delays
                // only itself.
                let own = peer.turns.acquire().await;
                let converted = self.convert(held, codec, work).await;
                drop(own);
                let result = match converted {
                    Ok(mut converted) => {
                        let metadata = self.include_metadata;
                        converted.metadata = metadata.then(|| metadata::of(&head.headers));
                        self.intake.hand_on(converted).await
                    }
                    Err(refused) => Err(refused),
                };
                result.map(|_| ()).map_err(Nack::from)
            }
            Err(nack) => {
                metrics.unreadable(Signal::Profiles);
                if may_be_sending && nack.code == Code::DeadlineExceeded {
                    peer.answered_early();
                } else if may_be_sending {
                    reader.discard().await;
                }
                Err(nack)
            }
        };
        match result {
            Ok(()) => in_protocol.accepted(),
            Err(nack) => {
                self.report(&nack, peer);
                in_protocol.refused(nack)
            }
        }
    }

    /// Reads the body, and returns the codec that it is compressed with.
    async fn body(
        &self,
        reader: &mut Reader<'_>,
        protocol: Protocol,
        headers: &HeaderMap,
    ) -> Result<(ReceivedBytes, Option<Codec>), Nack> {
        let bounds = Bounds {
            size: self.intake.limit,
            key: self.intake.limit_key,
            budget: &self.intake.budget,
        };
        if protocol == Protocol::Grpc {
            let encoding = grpc::encoding(headers)?;
            let (compressed, held) = reader.message(&bounds).await?;
            let codec = grpc::codec(encoding, compressed, &held.bytes)?;
            return Ok((held, codec));
        }
        let encoding = self.front.encoding(headers)?;
        let held = reader.whole(&bounds).await?;
        let codec = encoding.codec(&held.bytes);
        Ok((held, codec))
    }

    async fn convert(
        &self,
        held: ReceivedBytes,
        codec: Option<Codec>,
        work: Work,
    ) -> Result<Converted, Refused> {
        let held = self.intake.unpack(held, codec).await?;
        let convert = move |rules: &_| match &work.content {
            Content::Push(encoding) => push::convert(held, *encoding, &work.sender, rules),
            Content::Ingest(query, content_type) => {
                ingest::convert(held, query, content_type, &work.sender, rules)
            }
        };
        self.intake.convert_with(convert).await
    }

    /// Returns the content of a request and its sender, from its head.
    fn work(
        &self,
        head: &http::request::Parts,
        protocol: Protocol,
        peer: &Peer,
    ) -> Result<Work, Nack> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = u64::try_from(now.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX);
        let text = |name: &str| {
            let value = head.headers.get(name);
            value
                .and_then(|value| value.to_str().ok())
                .map(str::to_owned)
        };
        let content = match protocol {
            Protocol::Grpc => Content::Push(Encoding::Proto),
            Protocol::Connect(encoding) => Content::Push(encoding),
            Protocol::Ingest => {
                let parameters = parameters(head.uri.query().unwrap_or_default())?;
                let query = Ingest::of(parameters, now);
                let query = query.map_err(|error| Nack::invalid(error.to_string()))?;
                Content::Ingest(query, text(CONTENT_TYPE.as_str()).unwrap_or_default())
            }
        };
        let identity = self.identity.clone();
        let tenant = match (head.headers.contains_key(TENANT), text(TENANT)) {
            // Profiles of a tenant must not become profiles without a tenant.
            (true, None) => {
                return Err(Nack::invalid(
                    "the header `X-Scope-OrgID` must be ASCII text",
                ));
            }
            (_, tenant) => tenant.filter(|tenant| !tenant.is_empty()),
        };
        Ok(Work {
            content,
            sender: Sender {
                tenant: self.tenant.clone().map(|key| (key, tenant)),
                identity: identity.map(|key| (key, peer.identity.clone())),
                now,
            },
        })
    }

    /// Counts a refusal, and logs it.
    fn report(&self, nack: &Nack, peer: &Peer) {
        self.intake.metrics.refused_request(peer.identity.as_ref());
        log_refusal(&self.id, &self.refusals, nack, peer);
    }
}

/// The content of a request and its sender, from its head.
struct Work {
    content: Content,
    sender: Sender,
}

/// Content of a body.
enum Content {
    Push(Encoding),
    /// A query and the content type.
    Ingest(Ingest, String),
}

/// Returns the protocol of a request, or the status of the response.
fn protocol(path: &str, headers: &HeaderMap) -> Result<Protocol, StatusCode> {
    match path {
        "/ingest" | "/pyroscope/ingest" => Ok(Protocol::Ingest),
        PUSH if grpc::is_grpc(headers.get(CONTENT_TYPE)) => Ok(Protocol::Grpc),
        PUSH => {
            let encoding = Encoding::of(headers).map(Protocol::Connect);
            encoding.ok_or(StatusCode::UNSUPPORTED_MEDIA_TYPE)
        }
        _ if grpc::is_grpc(headers.get(CONTENT_TYPE)) => Ok(Protocol::Grpc),
        _ => Err(StatusCode::NOT_FOUND),
    }
}

/// Returns the response to a request that contains no profiles.
fn misdirected<B>(
    request: &Request<B>,
    protocol: Result<Protocol, StatusCode>,
) -> Option<Response<Answer>> {
    let path = request.uri().path();
    match protocol {
        Err(StatusCode::UNSUPPORTED_MEDIA_TYPE) => {
            let message = format!("the content type must be {PROTO}, {JSON} or application/grpc");
            let response = plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, message);
            Some(response.map(Answer::Whole))
        }
        Err(_) => {
            let message =
                format!("404 page not found; the paths for profiles are /ingest and {PUSH}");
            Some(plain(StatusCode::NOT_FOUND, message).map(Answer::Whole))
        }
        Ok(Protocol::Grpc) if path != PUSH => {
            let reason = format!("unknown method {path}");
            Some(Protocol::Grpc.refused(Nack::permanent(Code::Unimplemented, reason)))
        }
        Ok(_) if request.method() != Method::POST => Some(only_post().map(Answer::Whole)),
        Ok(_) => None,
    }
}

/// Returns the deadline of a call over gRPC.
fn grpc_deadline(protocol: Result<Protocol, StatusCode>, headers: &HeaderMap) -> Option<Instant> {
    let is_grpc = protocol == Ok(Protocol::Grpc);
    let value = headers.get("grpc-timeout").filter(|_| is_grpc)?;
    grpc::timeout(value).and_then(|timeout| Instant::now().checked_add(timeout))
}

/// Returns the decoded parameters of a query.
fn parameters(query: &str) -> Result<Vec<(String, String)>, Nack> {
    let parameters = query.split('&').filter(|parameter| !parameter.is_empty());
    let decoded = parameters.map(|parameter| {
        let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let decoded = decode(key).zip(decode(value));
        decoded.ok_or_else(|| Nack::invalid("the query is not percent-encoded UTF-8"))
    });
    decoded.collect()
}

/// Path of the method of `push.v1`.
const PUSH: &str = "/push.v1.PusherService/Push";
/// Header with the tenant, in lower case.
const TENANT: &str = "x-scope-orgid";
/// Key of the limit on the size of a request.
pub(super) const LIMIT_KEY: &str = "max_request_body_size";
