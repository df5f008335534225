//! debuginfod servers: `GET /buildid/ID/debuginfo` and `.../executable`, see
//! [debuginfod(8)](https://www.mankier.com/8/debuginfod).
//!
//! Servers are queried one after the other. A query to all servers at once, as in elfutils, would reveal to all of them
//! which binaries run here.
//!
//! At most three redirects are followed. A redirect to another server carries none of the configured headers. Redirects
//! to this machine and to link-local addresses are refused, because services such as cloud metadata servers trust
//! requests from this machine. Redirects into a private network are followed only from within a private network, and
//! only to another configured server.

mod config;
mod network;
mod redirect;

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, HOST, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Uri};
use http_body_util::{BodyDataStream, BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::time::{sleep, timeout};

pub use self::config::Debuginfod;
use self::network::{Network, System, connector, has_public_ip, host_and_port};
use self::redirect::redirected;
use super::breaker::Breaker;
use super::download::download;
use super::{BinaryFiles, BinarySource, Tools};
use crate::build_id::BuildId;
use crate::failure::Failure;
use futures_util::future::BoxFuture;
use tributary_net::Owner;
use tributary_net::client::{Connector, full_error, host_of, parse_url};
use tributary_net::tls::ClientTls;
use tributary_net::tls::rotation::RotatingClient;

/// Attempts per file, if the server is unreachable or fails.
const ATTEMPTS: u32 = 3;
const FIRST_WAIT: std::time::Duration = std::time::Duration::from_secs(1);
/// Maximum number of redirects that are followed.
const REDIRECTS: usize = 3;

const MAX_SIZE: HeaderName = HeaderName::from_static("x-debuginfod-maxsize");
const AGENT: &str = concat!("tributary/", env!("CARGO_PKG_VERSION"));

/// The configured servers.
pub struct Servers(Vec<Server>);

struct Server {
    /// URL without a `/` at its end.
    base: String,
    url: Uri,
    connector: Connector,
    redirect_connector: Option<(ClientTls, RotatingClient)>,
    network: Arc<dyn Network>,
    headers: HeaderMap,
    /// Hosts and ports of all configured servers.
    configured: Arc<[(String, u16)]>,
    breaker: Breaker,
    timeout: std::time::Duration,
    /// Wait after the first attempt; doubled after each further attempt.
    first_wait: std::time::Duration,
    max_bytes: u64,
}

enum Attempt {
    /// Another attempt may succeed.
    Retryable(String),
    Final(Failure),
}

impl Servers {
    /// Creates the servers of the configuration section; `owner` is their component.
    ///
    /// # Errors
    /// Fails if a URL or a file of `tls` cannot be used.
    pub fn new(config: &Debuginfod, owner: &Owner) -> Result<Self, String> {
        let urls = config.servers.iter().map(|url| parse_url(url));
        let urls = urls.collect::<Result<Vec<_>, _>>()?;
        let configured: Arc<[_]> = urls.iter().map(host_and_port).collect();
        let servers = urls.into_iter();
        let servers = servers.map(|url| Server::new(url, config, configured.clone(), owner));
        servers.collect::<Result<_, _>>().map(Servers)
    }
}

impl BinarySource for Servers {
    fn name(&self) -> &'static str {
        "debuginfod"
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn find<'a>(
        &'a self,
        id: &'a BuildId,
        tools: &'a Tools,
    ) -> BoxFuture<'a, Result<BinaryFiles, Failure>> {
        Box::pin(async move {
            let mut last = Failure::NotFound;
            for server in &self.0 {
                match server.find(id, tools).await {
                    Ok(found) => return Ok(found),
                    Err(Failure::NotFound) => {}
                    Err(failure) => last = failure,
                }
            }
            Err(last)
        })
    }
}

impl Server {
    fn new(
        url: Uri,
        config: &Debuginfod,
        configured: Arc<[(String, u16)]>,
        owner: &Owner,
    ) -> Result<Self, String> {
        const PROTOCOLS: &[&[u8]] = &[b"http/1.1"];
        let source = |tls: &ClientTls| {
            let source = RotatingClient::new(tls, PROTOCOLS, owner.clone());
            source.map_err(|error| error.to_string())
        };
        // Only the configured server may receive the client certificate.
        let stripped = ClientTls {
            server_name_override: String::new(),
            cert_file: Default::default(),
            cert_pem: String::new(),
            key_file: Default::default(),
            key_pem: Default::default(),
            ..config.tls.clone()
        };
        let secure = url.scheme_str() == Some("https");
        let tls = match secure {
            true => Some(source(&config.tls)?),
            false => None,
        };
        let name = config.tls.server_name(host_of(&url));
        let name = name.map_err(|error| error.to_string());
        let connector = match &tls {
            Some(source) => connector(&url, Some((source.clone(), name?))),
            None => connector(&url, None),
        };
        let mut headers = config.headers.to_map();
        let agent = headers.entry(USER_AGENT);
        agent.or_insert(HeaderValue::from_static(AGENT));
        Ok(Server {
            base: url.to_string().trim_end_matches('/').to_owned(),
            connector,
            redirect_connector: match secure {
                true => Some((stripped.clone(), source(&stripped)?)),
                false => None,
            },
            url,
            network: Arc::new(System),
            headers,
            configured,
            breaker: Breaker::default(),
            timeout: config.timeout.0,
            first_wait: FIRST_WAIT,
            max_bytes: config.max_bytes.0,
        })
    }

    async fn find(&self, id: &BuildId, tools: &Tools) -> Result<BinaryFiles, Failure> {
        let mut found = match self.fetch(id, "debuginfo", tools).await {
            Err(Failure::NotFound) => self.fetch(id, "executable", tools).await?,
            fetched => fetched?,
        };
        let description = tools.compiler.describe(&found.binary).await;
        if let Some(supplementary_id) = description.unwrap_or_default().supplementary_id {
            match self.fetch(&supplementary_id, "debuginfo", tools).await {
                Ok(supplementary_id) => found.add(supplementary_id),
                // Most names can be resolved without the supplementary file.
                Err(Failure::NotFound) => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(found)
    }

    /// Fetches a file, and retries after failures that may be temporary.
    async fn fetch(&self, id: &BuildId, kind: &str, tools: &Tools) -> Result<BinaryFiles, Failure> {
        let url = format!("{}/buildid/{id}/{kind}", self.base);
        let url: Uri = url
            .parse()
            .map_err(|error| Failure::Local(format!("invalid URL {}: {error}", self.base)))?;
        let mut wait = self.first_wait;
        let mut last = String::new();
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                sleep(wait.mul_f64(0.5 + fastrand::f64())).await;
                wait *= 2;
            }
            if !self.breaker.allows_request() {
                let reason = format!(
                    "requests to {} are paused for up to a minute after repeated failures",
                    self.base
                );
                return Err(Failure::Unreachable(reason));
            }
            let attempted = timeout(self.timeout, self.attempt(&url, tools)).await;
            last = match attempted {
                Ok(Ok(found)) => {
                    self.breaker.record_success();
                    return Ok(found);
                }
                Ok(Err(Attempt::Final(failure))) => {
                    self.breaker.record_success();
                    return Err(failure);
                }
                Ok(Err(Attempt::Retryable(reason))) => reason,
                Err(_) => format!(
                    "no complete file within {:?}; raise `timeout` if downloads take longer",
                    self.timeout
                ),
            };
            self.breaker.record_failure();
        }
        let url = url.to_string();
        let url = tributary_config::without_url_secrets(&url);
        Err(Failure::Unreachable(format!("{url}: {last}")))
    }

    /// Sends one request and follows redirects. A host name is resolved once, and connections are made only to the
    /// checked addresses, because another resolution may return other addresses.
    async fn attempt(&self, url: &Uri, tools: &Tools) -> Result<BinaryFiles, Attempt> {
        let own = self.network.addresses(&self.connector).await;
        let own = own.map_err(|error| Attempt::Retryable(error.0))?;
        // Whether a server on the Internet chose the target. A host with both public and private addresses is treated
        // as a server on the Internet.
        let mut outside = own.iter().any(has_public_ip);
        let mut url = url.clone();
        for _ in 0..=REDIRECTS {
            let is_own =
                url.authority() == self.url.authority() && url.scheme() == self.url.scheme();
            let response = match is_own {
                true => {
                    let asked = self.send(&url, &self.connector, &own, &self.headers).await;
                    asked.map_err(Attempt::Retryable)?
                }
                false => {
                    let again = |reason| {
                        let url = url.to_string();
                        let url = tributary_config::without_url_secrets(&url);
                        Attempt::Retryable(format!("redirected to {url}: {reason}"))
                    };
                    let connector = self.redirect_connector(&url).map_err(again)?;
                    let addresses = self.network.addresses(&connector).await;
                    let addresses = addresses.map_err(|error| again(error.0))?;
                    self.may_redirect(outside, &url, &addresses)
                        .map_err(|reason| again(reason.to_owned()))?;
                    outside |= addresses.iter().any(has_public_ip);
                    let nothing =
                        HeaderMap::from_iter([(USER_AGENT, HeaderValue::from_static(AGENT))]);
                    let asked = self.send(&url, &connector, &addresses, &nothing).await;
                    asked.map_err(again)?
                }
            };
            if !response.status().is_redirection() {
                return self.receive(response, tools).await;
            }
            url = redirected(&url, response.headers())?;
        }
        let reason = format!("{} redirects more than {REDIRECTS} times", self.base);
        Err(Attempt::Retryable(reason))
    }

    /// Sends a request on a new connection, since files are large and requests rare.
    async fn send(
        &self,
        url: &Uri,
        connector: &Connector,
        addresses: &[SocketAddr],
        headers: &HeaderMap,
    ) -> Result<Response<Incoming>, String> {
        let broke = |error: hyper::Error| match connector.last_failure() {
            Some(verdict) => verdict,
            None => full_error(&error),
        };
        let stream = self.network.connect(connector, addresses).await;
        let stream = TokioIo::new(stream.map_err(|error| error.0)?);
        let (mut sender, connection) = http1::handshake(stream).await.map_err(broke)?;
        tokio::spawn(connection);
        let path = url.path_and_query().map_or("/", |path| path.as_str());
        let host = url.authority().map_or("", |authority| authority.as_str());
        let mut request = Request::get(path)
            .body(Empty::<Bytes>::new())
            .map_err(|error| error.to_string())?;
        *request.headers_mut() = headers.clone();
        let host = HeaderValue::from_str(host).map_err(|error| error.to_string())?;
        request.headers_mut().insert(HOST, host);
        self.add_limits(request.headers_mut());
        sender.send_request(request).await.map_err(broke)
    }

    fn add_limits(&self, headers: &mut HeaderMap) {
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        headers.insert(MAX_SIZE, HeaderValue::from(self.max_bytes));
    }

    async fn receive(
        &self,
        response: Response<Incoming>,
        tools: &Tools,
    ) -> Result<BinaryFiles, Attempt> {
        let status = response.status();
        let again = |text: String| Attempt::Retryable(format!("{} {text}", self.base));
        match status {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND | StatusCode::GONE => {
                return Err(Attempt::Final(Failure::NotFound));
            }
            // debuginfod's response if a file is larger than the requested maximum.
            StatusCode::NOT_ACCEPTABLE => {
                let text = format!(
                    "the file has more than {} bytes; raise `max_bytes` to accept it",
                    self.max_bytes
                );
                return Err(Attempt::Final(Failure::TooLarge(text)));
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                let text = format!("{} responded with {status}; check `headers`", self.base);
                return Err(Attempt::Final(Failure::Unreachable(text)));
            }
            _ => return Err(again(format!("responded with {status}"))),
        }
        let headers = response.headers();
        if let Some(encoding) = headers.get(CONTENT_ENCODING)
            && encoding != "identity"
        {
            return Err(again(
                "sent an encoded file, despite `accept-encoding: identity`".to_owned(),
            ));
        }
        let declared = headers.get(CONTENT_LENGTH);
        let declared = declared.and_then(|length| length.to_str().ok()?.parse().ok());
        let body = response.into_body().map_err(|error| full_error(&error));
        let body = BodyDataStream::new(body);
        match download(body, declared, self.max_bytes, &tools.cache).await {
            Ok(scratch) => Ok(BinaryFiles::download(scratch)),
            Err(Failure::Unreachable(reason)) => Err(again(reason)),
            Err(failure) => Err(Attempt::Final(failure)),
        }
    }
}

#[cfg(test)]
mod tests;
