//! Routing of requests: page files, the snapshot, the configuration and the profile API.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    ACCEPT_ENCODING, ALLOW, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE,
    HOST, REFERRER_POLICY, RETRY_AFTER, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use tracing::info;

use super::Config;
use super::files::{self, PageFile};
use super::snapshot::Snapshots;
use crate::component::BuildContext;
use crate::component::auth::is_loopback;
use crate::introspection::Introspection;
use crate::pipeline::batch::{Code, Nack};
use crate::profile_api::{MAX_BODY, ProfileApi};
use crate::serving::body::{BodyRate, Bounds, Reader, ReceivedBytes};
use tributary_config::ComponentId;
use tributary_memory::Budget;
use tributary_net::auth::{Guard, UserIdentity, refusal};
use tributary_net::server::{Handler, Peer, plain};

/// Content security policy: no inline scripts or styles, and no scripts, styles, requests or frames of other hosts.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

/// The handler of the console's server.
pub(super) struct Console {
    id: ComponentId,
    guard: Option<Guard>,
    /// Whether clients of other machines are refused.
    is_local_only: bool,
    /// Host names to answer to; `None` if clients are authenticated.
    hosts: Option<Vec<String>>,
    snapshots: Snapshots,
    introspection: Arc<Introspection>,
    profiles: ProfileApi,
    budget: Arc<Budget>,
    body_rate: BodyRate,
}

impl Console {
    pub(super) fn new(
        config: &Config,
        cx: &BuildContext,
        guard: Option<Guard>,
        is_local_only: bool,
    ) -> Self {
        let hosts = (!config.authenticates()).then(|| config.allowed_hosts.clone());
        Console {
            id: cx.id.clone(),
            guard,
            is_local_only,
            hosts,
            snapshots: Snapshots::new(cx),
            introspection: cx.introspection.clone(),
            profiles: ProfileApi::new(cx.profile_stores.clone(), cx.budget.clone()),
            budget: cx.budget.clone(),
            body_rate: BodyRate::new(&config.limits, None),
        }
    }

    async fn answer(&self, mut request: Request<Incoming>, peer: &Peer) -> Response<Full<Bytes>> {
        if !self.allows_host(&request) {
            return plain(
                StatusCode::MISDIRECTED_REQUEST,
                "this host name is not allowed: use `localhost` or an address, or add the name to `allowed_hosts` of the \
                 extension `console`\n",
            );
        }
        if self.is_local_only && !peer.address.ip().to_canonical().is_loopback() {
            return plain(
                StatusCode::FORBIDDEN,
                "only clients on this machine are served: set `auth`, or `tls` with `client_ca_file`, at the extension\n",
            );
        }
        let mut user = UserIdentity::default();
        if let Some(guard) = &self.guard {
            match guard.admit(request.headers_mut(), peer).await {
                Ok(known) => user = known,
                Err(nack) => return refusal(guard, nack),
            }
        }
        if ProfileApi::serves(request.uri().path()) {
            self.log_access(&request, &user, peer);
            return self.profile_api(request, peer).await;
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "use GET\n");
            let allowed = HeaderValue::from_static("GET, HEAD");
            response.headers_mut().insert(ALLOW, allowed);
            return response;
        }
        match request.uri().path() {
            "/api/v1/pipeline" => full("application/json", self.snapshots.latest()),
            "/api/v1/config" => {
                let yaml = self.introspection.graph().configuration();
                full("text/plain; charset=utf-8", yaml.into())
            }
            path => match files::find(path.trim_start_matches('/')) {
                Some(file) => page(file, request.headers()),
                None => plain(
                    StatusCode::NOT_FOUND,
                    "not found: the page is at /, the APIs are below /api/v1/\n",
                ),
            },
        }
    }

    /// Whether the host of the request is allowed. Without this check, a page of another site could read the console by a
    /// host name that resolves to this machine (DNS rebinding).
    fn allows_host<B>(&self, request: &Request<B>) -> bool {
        let Some(allowed) = &self.hosts else {
            return true;
        };
        // HTTP/2 has the host in the URI. An HTTP/1 request may have both.
        let header = request
            .headers()
            .get(HOST)
            .map(|value| value.to_str().unwrap_or_default());
        let authority = request
            .uri()
            .authority()
            .map(|authority| authority.as_str());
        let named = [header, authority];
        let mut named = named.into_iter().flatten().map(host_of).peekable();
        named.peek().is_some() && named.all(|host| is_local_or_in(host, allowed))
    }

    fn log_access<B>(&self, request: &Request<B>, user: &UserIdentity, peer: &Peer) {
        info!(
            otelcol.component.id = %self.id,
            otelcol.component.kind = "extension",
            client.address = %peer.address,
            client.identity = peer.identity.as_deref(),
            user = user.user.as_deref(),
            method = %request.method(),
            path = request.uri().path(),
            query = request.uri().query(),
            "Profiles were read."
        );
    }

    async fn profile_api(&self, request: Request<Incoming>, peer: &Peer) -> Response<Full<Bytes>> {
        let (parts, body) = request.into_parts();
        let bounds = Bounds {
            size: MAX_BODY,
            key: "",
            budget: &self.budget,
        };
        let read = match parts.method {
            Method::POST => Reader::new(body, peer, self.body_rate)
                .whole(&bounds)
                .await
                .map(Some),
            _ => Ok(None),
        };
        match read {
            Ok(held) => {
                // The permit stays until the answer is complete.
                let (bytes, _permit) = match held {
                    Some(ReceivedBytes { bytes, permit }) => (bytes, Some(permit)),
                    None => (Bytes::new(), None),
                };
                let answer = self
                    .profiles
                    .handle(Request::from_parts(parts, bytes))
                    .await;
                answer.map(Full::from)
            }
            Err(nack) => {
                peer.answered_early();
                unreadable(&nack)
            }
        }
    }
}

impl Handler for Console {
    type Body = Full<Bytes>;

    fn busy(&self, _: &Request<Incoming>) -> Response<Full<Bytes>> {
        let mut response = plain(
            StatusCode::SERVICE_UNAVAILABLE,
            "too many requests at once\n",
        );
        response
            .headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from_static("1"));
        response
    }

    async fn handle(&self, request: Request<Incoming>, peer: &Peer) -> Response<Full<Bytes>> {
        let is_head = request.method() == Method::HEAD;
        let mut response = self.answer(request, peer).await;
        let headers = response.headers_mut();
        headers.insert(CONTENT_SECURITY_POLICY, POLICY);
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        if is_head {
            *response.body_mut() = Full::default();
        }
        response
    }
}

/// Whether a host is this machine, an address, or one of `allowed`.
fn is_local_or_in(host: &str, allowed: &[String]) -> bool {
    let is_address = host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    is_address || is_loopback(host) || allowed.iter().any(|name| name.eq_ignore_ascii_case(host))
}

/// Returns the host of `host:port`.
fn host_of(authority: &str) -> &str {
    match authority.rfind(']') {
        Some(end) => authority.get(..=end).unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    }
}

fn page(file: &'static PageFile, headers: &HeaderMap) -> Response<Full<Bytes>> {
    let encodings = headers.get(ACCEPT_ENCODING);
    let encodings = encodings
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let takes_gzip = encodings.split(',').any(|part| part.trim() == "gzip");
    let body = match takes_gzip {
        true => file.gzip(),
        false => Bytes::from_static(file.content),
    };
    let mut response = full(file.content_type, body);
    let headers = response.headers_mut();
    // After an update the page must fit the API.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
    if takes_gzip {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

fn full(content_type: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Returns the response to a request whose body could not be read.
fn unreadable(nack: &Nack) -> Response<Full<Bytes>> {
    let status = match nack.code {
        Code::DeadlineExceeded => StatusCode::REQUEST_TIMEOUT,
        Code::ResourceExhausted if nack.retryable => StatusCode::SERVICE_UNAVAILABLE,
        Code::ResourceExhausted => StatusCode::PAYLOAD_TOO_LARGE,
        _ => StatusCode::BAD_REQUEST,
    };
    let reason = match status {
        StatusCode::PAYLOAD_TOO_LARGE => {
            format!("the file is larger than {MAX_BODY} bytes, or than the memory budget allows")
        }
        _ => nack.reason.to_string(),
    };
    let body = serde_json::json!({ "error": reason });
    let mut response = full("application/json", body.to_string().into());
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_is_the_part_before_the_port() {
        for (authority, host) in [
            ("localhost:55679", "localhost"),
            ("localhost", "localhost"),
            ("[::1]:55679", "[::1]"),
            ("evil.example:55679", "evil.example"),
            ("", ""),
        ] {
            assert_eq!(host_of(authority), host);
        }
    }
}
