//! The HTTP client of scrapes, with a limit on the size of bodies.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{LOCATION, PROXY_AUTHORIZATION};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Uri};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};

use crate::serving::body::ReceivedBytes;
use tributary_memory::{Budget, NoRoom, Permit};
use tributary_net::auth::ClientAuthenticator;
use tributary_net::client::{
    Chunks, ClientOptions, Connector, Proxy, RenewingClient, full_error, host_of,
};
use tributary_net::tls::ClientTls;
use tributary_net::tls::rotation::RotatingClient;

/// A successful response.
#[derive(Debug)]
pub(in crate::receivers) struct Received {
    /// Headers of the response.
    pub(in crate::receivers) headers: HeaderMap,
    /// The body as received.
    pub(in crate::receivers) held: ReceivedBytes,
}

/// Reason why there is no successful response.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::receivers) enum Unfetched {
    /// There is no response, or it is incomplete.
    Unreachable(String),
    /// The response has an unsuccessful status.
    Refused(Refusal),
    /// The body exceeds the limit, in bytes.
    TooLarge(usize),
    /// The memory budget has no room for the body.
    NoRoom(NoRoom),
}

/// An unsuccessful response.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::receivers) struct Refusal {
    /// Status of the response.
    pub(in crate::receivers) status: StatusCode,
    /// Target of a redirect.
    pub(in crate::receivers) location: Option<String>,
    /// Beginning of the body.
    pub(in crate::receivers) said: String,
}

/// Limits of a body.
#[derive(Clone)]
pub(in crate::receivers) struct BodyBounds {
    /// Maximum size in bytes.
    pub(in crate::receivers) limit: usize,
    /// The process-wide memory budget.
    pub(in crate::receivers) budget: Arc<Budget>,
}

/// HTTP client for one server.
pub(in crate::receivers) struct ScrapeClient {
    client: RenewingClient,
    connector: Connector,
    proxy_authorization: Option<HeaderValue>,
    headers: HeaderMap,
    auth: Option<Arc<dyn ClientAuthenticator>>,
}

/// Settings shared by all servers of a section.
#[derive(Clone)]
pub(in crate::receivers) struct ScrapeTransport {
    /// TLS settings, for servers with `https`.
    pub(in crate::receivers) tls: Option<(ClientTls, RotatingClient)>,
    /// Settings of connections.
    pub(in crate::receivers) options: ClientOptions,
    /// Proxy of all connections.
    pub(in crate::receivers) proxy: Option<Arc<Proxy>>,
    /// Headers of every request.
    pub(in crate::receivers) headers: HeaderMap,
    /// Source of credentials.
    pub(in crate::receivers) auth: Option<Arc<dyn ClientAuthenticator>>,
}

impl ScrapeTransport {
    /// Creates a client for the server of a URL. The server's certificate must be valid for `name`,
    /// or for the host if `name` is absent.
    ///
    /// # Errors
    /// Returns an error if the name is not valid in a certificate.
    pub(in crate::receivers) fn client(
        &self,
        url: &Uri,
        name: Option<&str>,
    ) -> Result<ScrapeClient, String> {
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
        let connector = Connector::new(host, port_of(url), tls).with_proxy(self.proxy.clone());
        // A tunnel to a TLS server has its own credentials.
        let tls_less = self.proxy.as_ref().filter(|_| !connector.is_tls());
        let authority = url.authority().cloned().ok_or("the URL has no host")?;
        let hosts = HashMap::from([(authority, connector.clone())]);
        Ok(ScrapeClient {
            client: self.options.client(hosts, source),
            proxy_authorization: match &tls_less {
                Some(proxy) => proxy.authorization().cloned(),
                None => None,
            },
            connector,
            headers: self.headers.clone(),
            auth: self.auth.clone(),
        })
    }
}

/// Returns the port of a URL.
pub(in crate::receivers) fn port_of(url: &Uri) -> u16 {
    let default = match url.scheme_str() {
        Some("https") => 443,
        _ => 80,
    };
    url.port_u16().unwrap_or(default)
}

impl ScrapeClient {
    /// Sends a GET request and returns the whole response. `more` are headers in addition to those of the transport.
    ///
    /// # Errors
    /// There is no successful response within the bounds.
    pub(in crate::receivers) async fn get(
        &self,
        url: &Uri,
        more: &HeaderMap,
        bounds: &BodyBounds,
    ) -> Result<Received, Unfetched> {
        let request = || {
            let mut request = Request::new(Chunks::new(Arc::new([])));
            *request.uri_mut() = url.clone();
            let headers = request.headers_mut();
            headers.clone_from(&self.headers);
            headers.extend(
                more.iter()
                    .map(|(name, value)| (name.clone(), value.clone())),
            );
            if let Some(auth) = &self.auth {
                auth.add(headers);
            }
            if let Some(value) = &self.proxy_authorization {
                headers.insert(PROXY_AUTHORIZATION, value.clone());
            }
            request
        };
        let response = self.client.send(request).await.map_err(|error| {
            let verdict = self.connector.last_failure();
            Unfetched::Unreachable(verdict.unwrap_or_else(|| full_error(&error)))
        })?;
        if !response.status().is_success() {
            if let Some(auth) = self.auth.as_ref().filter(|_| response.status() == 401) {
                auth.refresh();
            }
            return Err(Unfetched::Refused(refusal(response).await));
        }
        let (head, body) = response.into_parts();
        Ok(Received {
            headers: head.headers,
            held: read(body, bounds).await?,
        })
    }
}

impl Received {
    /// Returns a header of the response in lower case; empty if it is absent.
    pub(in crate::receivers) fn header(&self, name: &HeaderName) -> String {
        let value = self.headers.get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default().trim().to_ascii_lowercase()
    }
}

/// Describes an unsuccessful response.
async fn refusal(response: Response<Incoming>) -> Refusal {
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
    Refusal {
        status: head.status,
        location: location.map(str::to_owned),
        said: String::from_utf8_lossy(&said).into_owned(),
    }
}

/// Reads the whole body. The permit grows with the received data.
async fn read(mut body: Incoming, bounds: &BodyBounds) -> Result<ReceivedBytes, Unfetched> {
    let declared = body.size_hint().lower();
    if declared > bounds.limit as u64 {
        return Err(Unfetched::TooLarge(bounds.limit));
    }
    let mut permit = bounds.budget.empty_permit();
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Unfetched::Unreachable(full_error(&error)))?;
        let Some(data) = frame.data_ref() else {
            continue;
        };
        if bytes.len() + data.len() > bounds.limit {
            return Err(Unfetched::TooLarge(bounds.limit));
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
) -> Result<(), Unfetched> {
    const SMALLEST: usize = 16 << 10;
    let needed = bytes.len() + more;
    if needed <= bytes.capacity() {
        return Ok(());
    }
    let capacity = (bytes.capacity() * 2).max(SMALLEST).min(limit).max(needed);
    permit
        .grow(capacity.saturating_sub(permit.bytes()))
        .map_err(Unfetched::NoRoom)?;
    bytes.reserve_exact(capacity - bytes.len());
    Ok(())
}
