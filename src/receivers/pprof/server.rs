//! `server`: receives pprof files over HTTP.
//!
//! `POST /v1/pprof` with the file as the body, with or without gzip (or any other
//! `Content-Encoding`). The query describes the origin of the file: see [`labels`].
//!
//! | status | meaning |
//! |---|---|
//! | 204 | the pipeline accepted the file, or the file has no samples |
//! | 400 | the file is not a valid pprof file, or the query or the encoding is not understood |
//! | 401, 403 | the client is not authorized |
//! | 404, 405 | another path, another method |
//! | 413 | the file is larger than `max_request_body_size`, or needs more memory than the limit |
//! | 429, 503 | temporarily refused, with `Retry-After` (the Collector: 500, which is final) |
//! | 500 | the pipeline refused the file permanently |
//!
//! If the pipeline or the next hop refuses a file permanently with a specific reason, the status
//! reflects the reason: 400 for invalid data, 413 for data that is too large, and 401, 403 or 404
//! for missing access.
//!
//! The content type is ignored: pprof files have none, and clients send various types.

mod labels;

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use opentelemetry_proto::tonic::common::v1::KeyValue;

use self::labels::labels;
use crate::component::auth;
use crate::component::{BuildContext, BuildError};
use crate::pipeline::Component;
use crate::pipeline::batch::{Code, Nack};
use crate::receivers::profile_intake::{Intake, Origin, Subject, text};
use crate::serving::Serving;
use crate::serving::body::{BodyRate, Bounds, Reader};
use crate::serving::front::{Front, may_be_sending, only_post};
use crate::serving::keys::http_server_section;
use crate::serving::metadata;
use crate::serving::refusal::{log_refusal, refused_in_plain_text as refused, too_busy};
use tributary_config::{ComponentId, Problems, Validate};
use tributary_net::Owner;
use tributary_net::sampled_log::SampledLog;
use tributary_net::server::{
    BoundServer, Handler, Peer, Protocol, ServerOptions, plain, tls_source,
};
use tributary_otlp::Signal;

http_server_section! {
    /// Receives pprof files at `POST /v1/pprof`, with the file as the body, with or without gzip, which needs no
    /// `Content-Encoding`. Each parameter of the query is a resource attribute, as in
    /// `/v1/pprof?service.name=checkout`; `profile` names the profile at its source, as in `&profile=mutex`.
    pub struct ServerConfig {
        /// Address to listen on, as in `localhost:8080`. Required.
        endpoint = "",
    }
}

impl ServerConfig {
    /// Binds the socket; connections are accepted only after the start. `intake` must belong to
    /// this section, with [`LIMIT_KEY`] as the key of its limit.
    ///
    /// # Errors
    /// Returns an error if the address cannot be used, or a file of `tls` cannot be read.
    pub(super) fn build(
        &self,
        cx: &BuildContext,
        intake: Intake,
    ) -> Result<Box<dyn Component>, BuildError> {
        Ok(Box::new(self.listening(cx, intake)?))
    }

    fn listening(&self, cx: &BuildContext, intake: Intake) -> Result<Serving<Push>, BuildError> {
        let owner = Owner::new(&cx.id, "receiver").with_transport("http");
        let within = |error: &dyn std::fmt::Display| BuildError(format!("server::{error}"));
        let guard = auth::guard(self.auth.as_ref(), cx, &owner).map_err(|error| within(&error))?;
        let tls = tls_source(&self.tls, Protocol::Either, &owner).map_err(|e| within(&e))?;
        let identity = (*self.tls).as_ref();
        let identity = identity.map(|tls| tls.client_identity_attribute.clone());
        let handler = Push {
            id: cx.id.clone(),
            intake,
            front: Front::new(
                guard,
                &self.compression_algorithms,
                self.cors.as_ref(),
                &self.response_headers,
                self.write_timeout.unless_zero(),
            ),
            identity: identity.filter(|key| !key.is_empty()),
            include_metadata: self.include_metadata,
            refusals: SampledLog::default(),
            body_rate: BodyRate::new(&self.limits, self.read_timeout.unless_zero()),
        };
        let options = ServerOptions {
            tls,
            budget: Some(cx.budget.clone()),
            ..self.server_options()
        };
        let bound = cx
            .listeners
            .bind(&cx.id, &self.endpoint)
            .and_then(|listener| BoundServer::new(listener, handler, options, "HTTP", owner))
            .map_err(|error| BuildError(error.to_string()))?;
        Ok(Serving::new(bound))
    }
}

impl Validate for ServerConfig {
    fn validate(&self, problems: &mut Problems) {
        self.validate_server("0.0.0.0:8080", problems);
    }
}

/// Handler of requests.
struct Push {
    id: ComponentId,
    intake: Intake,
    front: Front,
    /// Resource attribute that identifies the sender according to its certificate.
    identity: Option<String>,
    include_metadata: bool,
    /// Limits the log lines that a client can cause by refused requests.
    refusals: SampledLog,
    body_rate: BodyRate,
}

impl Push {
    async fn respond(&self, mut request: Request<Incoming>, peer: &Peer) -> Response<Full<Bytes>> {
        let metrics = &self.intake.metrics;
        let refuse = |nack| {
            metrics.refused_request(peer.identity.as_ref());
            refused(nack)
        };
        if let Err(response) = self.front.admit(&mut request, peer, refuse).await {
            return response;
        }
        let may_be_sending = may_be_sending(&request);
        let misdirected = misdirected(&request);
        let origin = self.origin(&request, peer);
        let encoding = self.front.encoding(request.headers());
        let metadata = self.include_metadata;
        let metadata = metadata.then(|| metadata::of(request.headers()));
        let mut reader = Reader::new(request.into_body(), peer, self.body_rate);
        if let Some(response) = misdirected {
            if may_be_sending {
                reader.discard().await;
            }
            metrics.refused_request(peer.identity.as_ref());
            return response;
        }
        let bounds = Bounds {
            size: self.intake.limit,
            key: self.intake.limit_key,
            budget: &self.intake.budget,
        };
        let read = match (origin, encoding) {
            (Err(nack), _) | (_, Err(nack)) => Err(nack),
            (Ok(origin), Ok(encoding)) => reader
                .whole(&bounds)
                .await
                .map(|held| (held, encoding, origin)),
        };
        let result = match read {
            Ok((held, encoding, origin)) => {
                let codec = encoding.codec(&held.bytes);
                // The limit per connection comes first, so that a connection with a thousand
                // decompression bombs delays only itself.
                let own = peer.turns.acquire().await;
                let converted = match self.intake.unpack(held, codec).await {
                    Ok(held) => self.intake.convert(held, origin).await,
                    Err(refused) => Err(refused),
                };
                drop(own);
                let result = match converted {
                    Ok(mut converted) => {
                        converted.metadata = metadata;
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
            Ok(()) => {
                let mut response = Response::new(Full::default());
                *response.status_mut() = StatusCode::NO_CONTENT;
                response
            }
            Err(nack) => {
                self.report(&nack, peer);
                refused(nack)
            }
        }
    }

    /// Counts a refusal, and logs it.
    fn report(&self, nack: &Nack, peer: &Peer) {
        self.intake.metrics.refused_request(peer.identity.as_ref());
        log_refusal(&self.id, &self.refusals, nack, peer);
    }

    /// Returns the origin of the file, from the query and the certificate of the sender.
    fn origin(&self, request: &Request<Incoming>, peer: &Peer) -> Result<Origin, Nack> {
        let labels = labels(request.uri().query().unwrap_or_default())?;
        let subject = subject(
            labels.attributes,
            self.identity.as_deref(),
            peer.identity.as_deref(),
        );
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default().as_nanos();
        Ok(Origin {
            subject: subject.into(),
            profile: labels.profile,
            start: u64::try_from(now).unwrap_or(u64::MAX),
            duration: std::time::Duration::ZERO,
            is_interval: false,
        })
    }
}

impl Handler for Push {
    type Body = Full<Bytes>;

    async fn handle(&self, request: Request<Incoming>, peer: &Peer) -> Response<Full<Bytes>> {
        let late = |nack| {
            self.report(&nack, peer);
            refused(nack)
        };
        let answer = |request| self.respond(request, peer);
        self.front.handle(request, answer, late).await
    }

    fn busy(&self, _: &Request<Incoming>) -> Response<Full<Bytes>> {
        refused(too_busy())
    }
}

/// Returns the profiled subject according to the query. Only the certificate sets the attribute
/// `key`, the identity of the sender.
fn subject(mut attributes: Vec<KeyValue>, key: Option<&str>, identity: Option<&str>) -> Subject {
    let Some(key) = key else {
        return Subject::new(attributes, None);
    };
    attributes.retain(|attribute| attribute.key != *key);
    attributes.extend(identity.map(|identity| text(key, identity)));
    // Without a name in the certificate, the attribute stays unset, because neither the query nor
    // the file may set it.
    Subject::new(attributes, None).certified(key.to_owned())
}

/// Returns the response to a request that contains no file.
fn misdirected<B>(request: &Request<B>) -> Option<Response<Full<Bytes>>> {
    if request.uri().path() != PATH {
        let message = format!("404 page not found; the path for pprof files is {PATH}");
        return Some(plain(StatusCode::NOT_FOUND, message));
    }
    (request.method() != Method::POST).then(only_post)
}

/// The path of the Collector's receiver.
const PATH: &str = "/v1/pprof";
/// Key of the limit on the size of a received file.
pub(super) const LIMIT_KEY: &str = "max_request_body_size";

#[cfg(test)]
mod tests;
