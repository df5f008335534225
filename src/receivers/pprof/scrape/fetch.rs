//! Fetches a profile over HTTP, with a limit on the size of the body.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, LOCATION, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request, Response, Uri};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};

use super::failure::{Failure, Refusal};
use crate::receivers::pprof::intake::ReceivedBytes;
use futures_util::future::BoxFuture;
use tributary_config::Headers;
use tributary_memory::{Budget, Permit};
use tributary_net::auth::ClientAuthenticator;
use tributary_net::client::{
    Chunks, ClientOptions, Connector, RenewingClient, full_error, host_of,
};
use tributary_net::tls::ClientTls;
use tributary_net::tls::rotation::RotatingClient;

/// A body as received.
#[derive(Debug)]
pub(super) struct Fetched {
    pub(super) held: ReceivedBytes,
    /// Content type according to the server; empty if it sends none.
    pub(super) content_type: String,
}

/// Limits of a body.
#[derive(Clone)]
pub(super) struct Bounds {
    /// Maximum size in bytes.
    pub(super) limit: usize,
    pub(super) budget: Arc<Budget>,
}

/// Fetcher of profiles; tests of the schedule replace the HTTP client.
pub(super) trait Fetch: Send + Sync + 'static {
    /// Returns the body of a successful response.
    fn fetch<'a>(
        &'a self,
        url: &'a Uri,
        bounds: &'a Bounds,
    ) -> BoxFuture<'a, Result<Fetched, Failure>>;
}

/// HTTP client for one server.
pub(super) struct Client {
    client: RenewingClient,
    connector: Connector,
    headers: HeaderMap,
    auth: Option<Arc<dyn ClientAuthenticator>>,
}

/// Settings shared by all servers of a section.
#[derive(Clone)]
pub(super) struct Transport {
    /// TLS settings, for servers with `https`.
    pub(super) tls: Option<(ClientTls, RotatingClient)>,
    pub(super) options: ClientOptions,
    pub(super) headers: HeaderMap,
    pub(super) auth: Option<Arc<dyn ClientAuthenticator>>,
}

impl Transport {
    /// Creates a client for the server of a URL. The server's certificate must be valid for `name`,
    /// or for the host if `name` is absent.
    ///
    /// # Errors
    /// Returns an error if the name is not valid in a certificate.
    pub(super) fn client(&self, url: &Uri, name: Option<&str>) -> Result<Client, String> {
        let host = host_of(url);
        let tls = match (url.scheme_str(), &self.tls) {
            (Some("https"), Some((tls, source))) => {
                let name = tls.server_name(name.unwrap_or(host));
                let name = name.map_err(|error| error.to_string())?;
                Some((source.clone(), name))
            }
            (Some("https"), None) => {
                return Err("TLS is not configured: set `scheme: https`".to_owned());
            }
            _ => None,
        };
        let source = tls.as_ref().map(|(source, _)| source.clone());
        let connector = Connector::new(host, port_of(url), tls);
        let authority = url.authority().cloned().ok_or("the URL has no host")?;
        let hosts = HashMap::from([(authority, connector.clone())]);
        Ok(Client {
            client: self.options.client(hosts, source),
            connector,
            headers: self.headers.clone(),
            auth: self.auth.clone(),
        })
    }
}

/// Returns the port of a URL.
pub(super) fn port_of(url: &Uri) -> u16 {
    let default = match url.scheme_str() {
        Some("https") => 443,
        _ => 80,
    };
    url.port_u16().unwrap_or(default)
}

/// Returns the headers of every request. Configured headers replace the default ones.
pub(super) fn headers(configured: &Headers) -> HeaderMap {
    let mut headers = configured.to_map();
    let agent = concat!("tributary/", env!("CARGO_PKG_VERSION"));
    let ours = headers.entry(USER_AGENT);
    ours.or_insert(HeaderValue::from_static(agent));
    // A pprof file is already compressed.
    let ours = headers.entry(ACCEPT_ENCODING);
    ours.or_insert(HeaderValue::from_static("identity"));
    headers
}

impl Client {
    async fn get(&self, url: &Uri, bounds: &Bounds) -> Result<Fetched, Failure> {
        if let Some(reason) = self.auth.as_ref().and_then(|auth| auth.missing()) {
            return Err(Failure::Unreachable(reason));
        }
        let request = || {
            let mut request = Request::new(Chunks::new(Arc::new([])));
            *request.uri_mut() = url.clone();
            *request.headers_mut() = self.headers.clone();
            if let Some(auth) = &self.auth {
                auth.add(request.headers_mut());
            }
            request
        };
        let response = self.client.send(request).await.map_err(|error| {
            let verdict = self.connector.verdict();
            Failure::Unreachable(verdict.unwrap_or_else(|| full_error(&error)))
        })?;
        if !response.status().is_success() {
            if let Some(auth) = self.auth.as_ref().filter(|_| response.status() == 401) {
                auth.refresh();
            }
            return Err(refusal(response).await);
        }
        let encoding = header(response.headers(), &CONTENT_ENCODING);
        // Some servers declare the gzip compression of the pprof file itself; the body is the same.
        if !matches!(encoding.as_str(), "" | "identity" | "gzip" | "x-gzip") {
            return Err(Failure::Encoding(encoding));
        }
        let content_type = header(response.headers(), &CONTENT_TYPE);
        let held = read(response.into_body(), bounds).await?;
        if held.bytes.is_empty() {
            return Err(Failure::Empty);
        }
        Ok(Fetched { held, content_type })
    }
}

impl Fetch for Client {
    fn fetch<'a>(
        &'a self,
        url: &'a Uri,
        bounds: &'a Bounds,
    ) -> BoxFuture<'a, Result<Fetched, Failure>> {
        Box::pin(self.get(url, bounds))
    }
}

fn header(headers: &HeaderMap, name: &http::HeaderName) -> String {
    let value = headers.get(name).and_then(|value| value.to_str().ok());
    value.unwrap_or_default().trim().to_ascii_lowercase()
}

/// Describes an unsuccessful response.
async fn refusal(response: Response<Incoming>) -> Failure {
    /// Enough for the sentence that gives the reason.
    const BEGINNING: usize = 1024;
    let (head, mut body) = response.into_parts();
    let mut said = Vec::new();
    while said.len() < BEGINNING {
        let Some(Ok(frame)) = body.frame().await else {
            break;
        };
        if let Some(data) = frame.data_ref() {
            let left = BEGINNING - said.len();
            said.extend_from_slice(data.get(..left).unwrap_or(data));
        }
    }
    let location = head.headers.get(LOCATION);
    let location = location.and_then(|value| value.to_str().ok());
    Failure::Refused(Refusal {
        status: head.status,
        location: location.map(str::to_owned),
        said: String::from_utf8_lossy(&said).into_owned(),
    })
}

/// Reads the whole body. The permit grows with the received data.
async fn read(mut body: Incoming, bounds: &Bounds) -> Result<ReceivedBytes, Failure> {
    let declared = body.size_hint().lower();
    if declared > bounds.limit as u64 {
        return Err(Failure::TooLarge(bounds.limit));
    }
    let mut permit = bounds.budget.empty_permit();
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Failure::Unreachable(full_error(&error)))?;
        let Some(data) = frame.data_ref() else {
            continue;
        };
        if bytes.len() + data.len() > bounds.limit {
            return Err(Failure::TooLarge(bounds.limit));
        }
        make_room(&mut bytes, data.len(), bounds.limit, &mut permit)?;
        bytes.extend_from_slice(data);
    }
    permit.shrink_to(bytes.capacity());
    Ok(ReceivedBytes {
        bytes: Bytes::from(bytes),
        permit,
    })
}

/// Reserves memory before it is used.
fn make_room(
    bytes: &mut Vec<u8>,
    more: usize,
    limit: usize,
    permit: &mut Permit,
) -> Result<(), Failure> {
    const SMALLEST: usize = 16 << 10;
    let needed = bytes.len() + more;
    if needed <= bytes.capacity() {
        return Ok(());
    }
    let capacity = (bytes.capacity() * 2).max(SMALLEST).min(limit).max(needed);
    permit
        .grow(capacity.saturating_sub(permit.bytes()))
        .map_err(Failure::NoRoom)?;
    bytes.reserve_exact(capacity - bytes.len());
    Ok(())
}
