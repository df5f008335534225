//! OTLP over HTTP: `otlp_http`, alias `otlphttp`.

mod client;
mod config;
mod response;

use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;

use bytes::Bytes;
use http::header::PROXY_AUTHORIZATION;
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Method, Request, Uri};
use tokio::sync::Semaphore;

use self::client::{alpn, client, connector, headers};
use self::response::read;
pub(super) use self::response::{accepted, refused, retry_after};
pub use super::http_client_keys::CookiesConfig;
use super::otlp_response::{credentials_of, unless_renewed};
use crate::component::{
    ALL_SIGNALS, BuildContext, BuildError, Entry, ExporterConfig, Origin, Terminal, auth,
};
use crate::metric::shared;
use crate::pipeline::batch::Code;
use crate::pipeline::output_memory::OutputMemory;
use crate::queue;
use crate::queue::{Encoded, Fault, Outcome, SendError, Settings};
pub use config::{Config, Encoding};
use futures_util::future::BoxFuture;
use tributary_compression::compress::Compressor;
use tributary_config::ComponentId;
use tributary_net::Owner;
use tributary_net::auth::ClientAuthenticator;
use tributary_net::client::{
    Chunks, Connector, CookieJar, Proxy, RenewingClient, coalesce, full_error,
};
use tributary_net::tls::rotation::RotatingClient;
use tributary_otlp::edit::EditError;
use tributary_otlp::{Requests, Signal};

/// Entry of the component registry.
pub const ENTRY: Entry<dyn ExporterConfig> = crate::entry!(
    dyn ExporterConfig,
    Config,
    "otlp_http",
    aliases: &["otlphttp"],
    "Sends OTLP requests over HTTP.",
    ALL_SIGNALS,
    collector: Origin::Core,
    metrics: &[shared::EXPORTER, shared::STORED_QUEUE, shared::TLS]
);

impl ExporterConfig for Config {
    fn build(&self, cx: &BuildContext, signals: &[Signal]) -> Result<Terminal, BuildError> {
        let exporter = Exporter::build(self, cx, signals)?;
        let settings = Settings {
            queue: self.sending_queue.0.clone(),
            retry: self.retry_on_failure.0.clone(),
            timeout: *self.timeout,
        };
        let sender: Arc<dyn queue::Sender> = Arc::new(exporter);
        queue::terminal(cx, signals, &settings, &sender)
    }
}

pub(super) struct Exporter {
    client: RenewingClient,
    /// Targets by signal; `None` for unused signals.
    targets: [Option<Target>; 4],
    pub(super) headers: HeaderMap,
    pub(super) auth: Option<Arc<dyn ClientAuthenticator>>,
    proxy_authorization: Option<HeaderValue>,
    cookies: Option<CookieJar>,
    encoding: Encoding,
    compressor: Option<Compressor>,
}

/// Destination of a signal.
struct Target {
    url: Uri,
    connector: Connector,
    /// Limit on connections, shared by all targets of a host.
    in_flight: Option<Arc<Semaphore>>,
}

impl Exporter {
    /// Creates the client of an exporter, with its credentials.
    ///
    /// # Errors
    /// An endpoint, a file of `tls` or the authenticator is not usable.
    pub(super) fn build(
        config: &Config,
        cx: &BuildContext,
        signals: &[Signal],
    ) -> Result<Self, BuildError> {
        let mut exporter = Exporter::new(config, signals, &cx.id)
            .map_err(|reason| BuildError(format!("exporter {}: {reason}", cx.id)))?;
        if let Some(auth) = auth::client(config.auth.as_ref(), cx)? {
            if auth.context_headers().is_empty() {
                // Reserves room for the credentials in the copied headers; each request gets the current values.
                auth.add(&mut exporter.headers);
            }
            exporter.auth = Some(auth);
        }
        Ok(exporter)
    }

    fn new(config: &Config, signals: &[Signal], id: &ComponentId) -> Result<Self, String> {
        let mut targets = [const { None }; 4];
        let mut connectors = HashMap::new();
        // One TLS configuration for all hosts.
        let mut tls: Option<RotatingClient> = None;
        let mut proxy = config
            .proxy()
            .map_err(|reason| format!("proxy_url: {reason}"))?;
        let mut proxy_tls = None;
        if let Some(plain) = proxy.take_if(|proxy| proxy.is_tls()) {
            let owner = Owner::new(id, "exporter");
            let source = RotatingClient::new(&config.tls, &[b"http/1.1"], owner);
            let source = source.map_err(|error| error.to_string())?;
            let name = config.tls.server_name(plain.host());
            let name = name.map_err(|error| error.to_string())?;
            proxy_tls = Some(source.clone());
            proxy = Some(plain.with_tls(source, name));
        }
        let proxy = proxy.map(Arc::new);
        let mut limits: HashMap<Authority, Arc<Semaphore>> = HashMap::new();
        for signal in signals {
            let url = config
                .url(*signal)
                .map_err(|(key, reason)| format!("{key}: {reason}"))?;
            let url = url.ok_or_else(|| {
                format!("{signal} have no endpoint: set endpoint or {signal}_endpoint")
            })?;
            let authority = url.authority().cloned().ok_or("the endpoint has no host")?;
            let connector = match connectors.get(&authority) {
                Some(known) => Connector::clone(known),
                None => {
                    if Config::is_tls(&url) && tls.is_none() {
                        let owner = Owner::new(id, "exporter");
                        let source = RotatingClient::new(&config.tls, alpn(config), owner);
                        tls = Some(source.map_err(|error| error.to_string())?);
                    }
                    let connector = connector(config, &url, tls.as_ref());
                    let connector = connector.map_err(|error| error.to_string())?;
                    connector.with_proxy(proxy.clone())
                }
            };
            connectors.insert(authority.clone(), connector.clone());
            let most = config.max_conns_per_host.min(Semaphore::MAX_PERMITS);
            let in_flight = (most > 0).then(|| {
                let limit = limits.entry(authority);
                limit
                    .or_insert_with(|| Arc::new(Semaphore::new(most)))
                    .clone()
            });
            if let Some(target) = targets.get_mut(signal.index()) {
                *target = Some(Target {
                    url,
                    connector,
                    in_flight,
                });
            }
        }
        let level = config.compression_params.level;
        let codec = config.compression.codec();
        Ok(Exporter {
            client: client(config, connectors, tls.or(proxy_tls)),
            targets,
            headers: headers(config),
            auth: None,
            proxy_authorization: proxy.as_deref().and_then(Proxy::authorization).cloned(),
            cookies: config.cookies.as_ref().map(|_| CookieJar::default()),
            encoding: config.encoding,
            compressor: codec.map(|codec| Compressor::new(codec, level)),
        })
    }

    /// Makes an attempt with the current credentials.
    ///
    /// # Errors
    /// There are no credentials, or the attempt failed.
    pub(super) async fn authenticated(
        &self,
        attempt: impl Future<Output = Result<Outcome, SendError>>,
    ) -> Result<Outcome, SendError> {
        let auth = self.auth.as_deref();
        credentials_of(auth)?;
        let version = auth.map_or(0, ClientAuthenticator::version);
        unless_renewed(auth, version, attempt.await)
    }

    /// Compresses a body that is not OTLP, if so configured.
    ///
    /// # Errors
    /// There is no memory for the compressed body.
    pub(super) fn compressed(
        &self,
        body: Bytes,
        memory: &OutputMemory,
    ) -> Result<Vec<Bytes>, SendError> {
        let parts = [body];
        let Some(compressor) = &self.compressor else {
            return Ok(parts.into());
        };
        let most = compressor.most_bytes(&parts);
        memory
            .take(most)
            .map_err(|_| SendError::no_memory(memory))?;
        let body = compressor.compress(&parts).map_err(|error| {
            let reason = format!("cannot compress the batch: {error}");
            SendError::permanent(Code::Internal, Fault::Content, reason)
        })?;
        Ok(vec![body])
    }

    async fn call(&self, batch: &Encoded) -> Result<Outcome, SendError> {
        let Answer {
            url,
            head,
            body,
            whole,
        } = self.post(batch).await?;
        match head.status.is_success() {
            // The status arrived, so the data was accepted. The missing body could only have reported rejected items.
            true if !whole => Ok(Outcome::default()),
            true => accepted(url, &head.headers, &body),
            false => Err(refused(url, head.status, &head.headers, &body)),
        }
    }

    /// Sends a batch to the target of its signal, and returns the response, whatever its status.
    pub(super) async fn post(&self, batch: &Encoded) -> Result<Answer<'_>, SendError> {
        let target = self
            .targets
            .get(batch.signal.index())
            .and_then(Option::as_ref);
        let target = target.ok_or_else(|| {
            let reason = format!("{} have no endpoint", batch.signal);
            SendError::permanent(Code::Unimplemented, Fault::Elsewhere, reason)
        })?;
        let _in_flight = match &target.in_flight {
            Some(limit) => limit.acquire().await.ok(),
            None => None,
        };
        let body = Chunks::new(batch.chunks.clone());
        let request = || {
            let mut request = Request::new(body.clone());
            *request.method_mut() = Method::POST;
            *request.uri_mut() = target.url.clone();
            *request.headers_mut() = self.headers.clone();
            if let Some(auth) = &self.auth {
                auth.add_for(&batch.identity.context, request.headers_mut());
            }
            if let Some(cookies) = &self.cookies {
                cookies.add(&target.url, request.headers_mut());
            }
            // A tunnel was authorized when it was opened, and the server must not receive the proxy's credentials.
            if let Some(value) = self
                .proxy_authorization
                .as_ref()
                .filter(|_| !target.connector.is_tls())
            {
                request
                    .headers_mut()
                    .insert(PROXY_AUTHORIZATION, value.clone());
            }
            request
        };
        let response = self.client.send(request).await.map_err(|error| {
            let reason = match target.connector.last_failure() {
                Some(verdict) => verdict,
                None => full_error(&error),
            };
            let reason = format!("request to {} failed: {reason}", target.url);
            SendError::transient(Code::Unavailable, reason)
        })?;
        let (head, body) = response.into_parts();
        if let Some(cookies) = &self.cookies {
            cookies.store(&target.url, &head.headers);
        }
        let (body, whole) = read(body).await;
        Ok(Answer {
            url: &target.url,
            head,
            body,
            whole,
        })
    }
}

/// The response of a server.
pub(super) struct Answer<'e> {
    pub(super) url: &'e Uri,
    pub(super) head: http::response::Parts,
    /// The beginning of the body.
    pub(super) body: Vec<u8>,
    /// Whether the beginning is the whole body.
    pub(super) whole: bool,
}

impl queue::Sender for Exporter {
    fn encode(
        &self,
        signal: Signal,
        requests: &Requests,
        memory: &OutputMemory,
    ) -> Result<Vec<Bytes>, SendError> {
        let take = |bytes| memory.take(bytes).map_err(|_| SendError::no_memory(memory));
        let unfit = |error: &dyn Error| {
            let reason = format!("cannot encode the batch: {error}");
            SendError::permanent(Code::Internal, Fault::Content, reason)
        };
        let json;
        let parts = match self.encoding {
            Encoding::Proto => requests.parts(),
            Encoding::Json => {
                take(if requests.parts().len() > 1 {
                    requests.len()
                } else {
                    0
                })?;
                let request = requests.to_bytes();
                let text = tributary_otlp::json::from_wire_within(signal, &request, memory);
                let text = text.map_err(|error| match error {
                    EditError::Malformed(error) => unfit(&error),
                    EditError::RoomExhausted(_) => SendError::no_memory(memory),
                })?;
                json = [Bytes::from(text)];
                &json
            }
        };
        match &self.compressor {
            None => Ok(coalesce(parts.iter().cloned())),
            Some(compressor) => {
                take(compressor.most_bytes(parts))?;
                let body = compressor.compress(parts).map_err(|error| unfit(&error))?;
                Ok(vec![body])
            }
        }
    }

    fn encodes_every_byte(&self) -> bool {
        self.compressor.is_some() || self.encoding == Encoding::Json
    }

    fn context_headers(&self) -> &[String] {
        self.auth
            .as_ref()
            .map_or(&[], |auth| auth.context_headers())
    }

    fn send<'a>(&'a self, batch: &'a Encoded) -> BoxFuture<'a, Result<Outcome, SendError>> {
        Box::pin(self.authenticated(self.call(batch)))
    }
}

#[cfg(test)]
mod tests;
