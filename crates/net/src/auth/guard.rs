//! Authentication in front of a server's handlers: checks credentials, counts and logs refusals, and responds.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderMap, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use metrics::{Counter, counter};
use tracing::{debug, warn};

use super::{AuthFailure, ServerAuthenticator, UserIdentity, Verdict};
use crate::Owner;
use crate::sampled_log::SampledLog;
use crate::server::{Handler, Peer, SimpleHandler, plain};
use tonic::Code;
use tributary_otlp::Nack;

/// Admits authenticated requests only.
pub struct Guard {
    authenticator: Arc<dyn ServerAuthenticator>,
    owner: Owner,
    /// `tributary_server_unauthenticated`, by reason.
    refused: [Counter; AuthFailure::ALL.len()],
    log: SampledLog,
}

impl Guard {
    /// Creates a guard for the server of `owner`.
    pub fn new(authenticator: Arc<dyn ServerAuthenticator>, owner: Owner) -> Self {
        let refused = AuthFailure::ALL.map(|reason| {
            let mut labels = owner.labels();
            labels.push(("reason", reason.name().to_owned()));
            counter!("tributary_server_unauthenticated", &labels)
        });
        Guard {
            authenticator,
            owner,
            refused,
            log: SampledLog::of_one_line(),
        }
    }

    /// Authenticates the request with these headers. The header with the credentials is removed, because no later stage
    /// needs it and it must not travel with the data.
    ///
    /// # Errors
    /// The refusal to send: UNAUTHENTICATED, or RESOURCE_EXHAUSTED if the client should retry. The refusal reveals
    /// nothing about the credentials.
    pub async fn admit(&self, headers: &mut HeaderMap, peer: &Peer) -> Result<UserIdentity, Nack> {
        let verdict = self.authenticator.authenticate(headers, peer.address.ip());
        let known = match verdict {
            Verdict::Known(known) => known,
            Verdict::Pending(pending) => pending.await,
        };
        headers.remove(self.authenticator.header());
        if known.is_ok() {
            peer.mark_authenticated();
        }
        known.map_err(|reason| self.refuse(reason, peer))
    }

    /// Returns the value of `WWW-Authenticate` for a response with status 401.
    pub fn challenge(&self) -> HeaderValue {
        self.authenticator.challenge().clone()
    }

    fn refuse(&self, reason: AuthFailure, peer: &Peer) -> Nack {
        if let Some(counter) = self.refused.get(reason as usize) {
            counter.increment(1);
        }
        let (address, identity) = (peer.address, peer.identity.as_deref());
        if let Some(suppressed) = self.log.admit() {
            warn!(
                otelcol.component.id = %self.owner.id,
                otelcol.component.kind = self.owner.kind,
                transport = self.owner.transport,
                client.address = %address,
                client.identity = identity,
                %reason,
                suppressed,
                "Refused a client that did not authenticate; for the next ten seconds, such refusals are logged at \
                 debug level"
            );
        } else {
            debug!(client.address = %address, client.identity = identity, %reason, "Refused a client");
        }
        let header = self.authenticator.header();
        let scheme = scheme(self.authenticator.challenge());
        match reason {
            AuthFailure::Missing => unauthenticated(format!(
                "this server requires authentication, and the request has no `{header}` header ({scheme})"
            )),
            AuthFailure::Malformed => unauthenticated(format!(
                "the `{header}` header does not have credentials of the scheme of this server ({scheme})"
            )),
            AuthFailure::Wrong => unauthenticated(format!(
                "the credentials in the `{header}` header are not valid ({scheme})"
            )),
            AuthFailure::Busy => Nack::exhausted(
                "too many credentials are being checked, or too many were wrong; retry later",
                BUSY_RETRY_DELAY,
            ),
        }
    }
}

/// A handler of simple requests behind a guard.
pub struct Guarded {
    /// Guard of the handler; `None` if no authentication is configured.
    pub guard: Option<Guard>,
    /// Handles admitted requests.
    pub handler: SimpleHandler,
}

impl Handler for Guarded {
    type Body = Full<Bytes>;

    async fn handle(&self, mut request: Request<Incoming>, peer: &Peer) -> Response<Full<Bytes>> {
        if let Some(guard) = &self.guard
            && let Err(nack) = guard.admit(request.headers_mut(), peer).await
        {
            return refusal(guard, nack);
        }
        self.handler.handle(request, peer).await
    }

    fn busy(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        self.handler.busy(request)
    }
}

/// Returns the plain-text response for a refusal.
pub fn refusal(guard: &Guard, nack: Nack) -> Response<Full<Bytes>> {
    let (status, name, value) = match nack.retryable {
        true => {
            let seconds = HeaderValue::from(BUSY_RETRY_DELAY.as_secs());
            (StatusCode::TOO_MANY_REQUESTS, RETRY_AFTER, seconds)
        }
        false => (
            StatusCode::UNAUTHORIZED,
            WWW_AUTHENTICATE,
            guard.challenge(),
        ),
    };
    let mut response = plain(status, format!("{}\n", nack.reason));
    response.headers_mut().insert(name, value);
    response
}

fn unauthenticated(reason: String) -> Nack {
    Nack::permanent(Code::Unauthenticated, reason)
}

fn scheme(challenge: &HeaderValue) -> &str {
    let text = challenge.to_str().unwrap_or_default();
    text.split(' ').next().unwrap_or_default()
}

/// Retry delay if the server could not check the credentials.
const BUSY_RETRY_DELAY: Duration = Duration::from_secs(1);
